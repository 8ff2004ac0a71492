"""Calls of PayU's REST API: an access token for each account, and errors by PayU's own words.

https://developers.payu.com/europe/api/ is the reference.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any, Final

from pydantic import SecretStr

from tillgate import Account, GatewayError, NotSent, Refused, WrongCredentials
from tillgate.gateways.http import Answer, Call

ORDERS: Final = "/api/v2_1/orders"
_TOKENS: Final = "/pl/standard/user/oauth/authorize"
_MARGIN_SECONDS: Final = 60
"""So long before its end a token is replaced."""
_MOST_TOKENS: Final = 256
_SUCCESS: Final = "SUCCESS"
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{8,4096}", re.ASCII)
"""RFC 6750's form of a bearer token. A shorter one would blot out words of errors."""

_kept: dict[tuple[str, str, SecretStr], tuple[SecretStr, float]] = {}
_lock: Final = threading.Lock()


def ask(call: Call, method: str, path: str, **request: Any) -> Any:
    """Send one request with the account's access token, and return the JSON of the answer.

    Raises as `Call.send` does, but only PayU's own words count as a refusal or as "not found": a
    proxy's page with the same HTTP status proves nothing.
    """
    token, is_new = _token(call)
    try:
        return _answer(call, method, path, token, request)
    except WrongCredentials as error:
        if is_new or error.http_status != 401:
            raise
    # PayU has withdrawn the token before its time, and did nothing: a new one is worth a try.
    _kept.pop(_name(call.account), None)
    token, _ = _token(call)
    return _answer(call, method, path, token, request)


def expect_success(call: Call, answer: Any) -> dict[str, Any]:
    """Return an answer with the status of success or without a status; any other proves nothing."""
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or (
        isinstance(status, dict) and status.get("statusCode") != _SUCCESS
    ):
        raise call.unknown(f"PayU answers {_words(answer)}")
    return answer


def try_credentials(call: Call) -> None:
    """Ask for a new access token: raise as `Call.send` does where PayU gives none."""
    _kept.pop(_name(call.account), None)
    _token(call)


def _answer(call: Call, method: str, path: str, token: SecretStr, request: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
    try:
        return call.json(method, path, headers=headers, refusal=_refusal, **request)
    except Refused as error:
        if error.ret_code:
            raise
        status = error.http_status
    raise call.unknown(f"HTTP {status} without PayU's own words", status)


def _token(call: Call) -> tuple[SecretStr, bool]:
    """Return the access token of an account, and whether it is new. It is kept in this process
    alone, and no error shows it.
    """
    name = _name(call.account)
    token, ends_at = _kept.get(name, (None, 0.0))
    is_new = token is None or time.monotonic() >= ends_at
    if token is None or is_new:
        began = time.monotonic()
        token, seconds = _new_token(call, name[1])
        with _lock:
            while len(_kept) >= _MOST_TOKENS:
                _kept.pop(next(iter(_kept)))
            _kept[name] = token, began + seconds - _MARGIN_SECONDS
    call.secrets.append(token.get_secret_value())
    return token, is_new


def _name(account: Account) -> tuple[str, str, SecretStr]:
    client_id = str(account.options.get("client_id") or account.merchant_no)
    return account.base_url, client_id, account.token


def _new_token(call: Call, client_id: str) -> tuple[SecretStr, float]:
    """Return a new access token and its seconds. After any error, nothing else was sent."""
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": call.account.token.get_secret_value(),
    }
    try:
        made = call.json("POST", _TOKENS, form=form, moves_money=False, refusal=_refusal)
    except Refused as error:
        if error.ret_code:  # "invalid_client" or the like; no payment was asked for
            raise WrongCredentials(error.ret_code, error.ret_msg, error.http_status) from None
        raise _no_token(call, f"HTTP {error.http_status}") from None
    finally:
        form.clear()  # error reports print local variables
    match made:
        case {"access_token": str(token), "expires_in": int(seconds)} if _TOKEN.fullmatch(token):
            return SecretStr(token), float(seconds)
    raise _no_token(call, "an answer without access_token and expires_in")


def _no_token(call: Call, detail: str) -> GatewayError:
    detail = f"PayU gave no access token: {detail}"
    if call.moves_money:
        return NotSent(call.operation, call.reference, detail)
    return call.unknown(detail)


def _refusal(answer: Answer) -> tuple[str, str]:
    """Return PayU's code and text of an error; no code where the answer is not PayU's."""
    try:
        found = answer.json()
    except ValueError:
        return "", "no JSON"
    return _words(found)


def _words(found: Any) -> tuple[str, str]:
    """Return the code and the text of PayU's answer: those of its API, or those of OAuth."""
    status = found.get("status", found) if isinstance(found, dict) else None
    match status if isinstance(status, dict) else found:
        case {"statusCode": str(code), **more} if code:
            return str(more.get("codeLiteral") or code), str(more.get("statusDesc") or "")
        case {"error": str(code), "error_description": text}:
            return code, str(text or "")
    return "", ""
