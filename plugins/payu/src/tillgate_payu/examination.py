"""The examination of an account, by its settings and at PayU. It creates nothing and moves no
money.
"""

from __future__ import annotations

from collections.abc import Iterator

from tillgate import Account, TillgateError, WrongCredentials
from tillgate.gateways.http import Call
from tillgate.hooks import Finding
from tillgate_payu.api import ask, try_credentials
from tillgate_payu.profile import PAYU

_METHODS = "/api/v2_1/paymethods"


def of_settings(account: Account) -> Iterator[Finding]:
    """Look at the settings alone."""
    if account.sandbox and account.base_url == PAYU.base_url:
        finding = f"the sandbox of PayU is {PAYU.sandbox_url}: remove BASE_URL, or SANDBOX"
        yield Finding(name="base_url", passed=False, finding=finding)
    if not account.sandbox and account.base_url == PAYU.sandbox_url:
        finding = "this is PayU's sandbox: set SANDBOX to True in a test shop, or remove BASE_URL"
        yield Finding(name="base_url", passed=False, finding=finding)
    if not account.webhook_secrets:
        finding = "no notification is believed: give the second key (MD5) of the point of sale"
        yield Finding(name="webhook_secrets", passed=False, finding=finding)


def at_payu(account: Account, seconds: float | None) -> Iterator[Finding]:
    """Ask PayU for an access token, and for the payment methods of the point of sale."""
    call = Call(account, "query", "the examination", seconds=seconds)
    try:
        try_credentials(call)
        answer = ask(call, "GET", _METHODS)
    except WrongCredentials as error:
        finding = f"{error.ret_code} {error.ret_msg}: check client_id and token, the client_secret"
        yield Finding(name="credentials", passed=False, finding=finding)
        return
    except TillgateError as error:
        yield Finding(name="credentials", passed=False, finding=f"PayU cannot be asked: {error}")
        return
    money = "play money" if account.sandbox else "real money"
    yield Finding(name="credentials", passed=True, finding=f"PayU gave an access token: {money}")
    listed = answer.get("payByLinks") if isinstance(answer, dict) else None
    names = sorted(
        str(one.get("value"))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and one.get("status") == "ENABLED"
    )
    finding = f"PayU offers: {', '.join(names)}" if names else "PayU offers none at this time"
    yield Finding(name="methods", passed=bool(names), finding=finding)
