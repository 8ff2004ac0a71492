"""Scrubbing: the parts of a request and of an answer that a cassette keeps.

One table, `MEMBERS`, says how each member is written; a member that it does not name is written as
`***`. Texts lose e-mail addresses and card numbers as the stored texts of the Django app do, and
the values that the account and earlier answers have made known. A body other than JSON or a form is
not kept.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from hashlib import md5
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from vcr.filters import decode_response
from vcr.request import Request
from vcr.util import read_body

from tillgate.account import Account
from tillgate.money import WireNumber, json_decoder
from tillgate.sandbox import PUBLISHED_STORE_NO, PUBLISHED_TEST_TOKEN
from tillgate.wire import signing
from tillgate.wire.personal import KEPT_FIELDS, without_personal_data

REPLAY_BASE_URL: Final = "https://gateway.example"
"""The placeholder that replaces the gateway's address in every cassette."""

WRONG_SIGNATURE: Final = "WRONG-SIGNATURE"
"""The text that replaces a signature that was wrong when it was recorded; no token makes it."""

CODE: Final = "a code or an amount"
PROSE: Final = "a text for people"
MEMBERS: Final[Mapping[str, str]] = {
    **dict.fromkeys([*KEPT_FIELDS, "timeout", "osType", "quantity"], CODE),
    **dict.fromkeys(
        ["ret_msg", "retMsg", "description", "goodsInfo", "goods_name", "ipnUrl", "callbackUrl"],
        PROSE,
    ),
    "merchantNo": "MERCHANT",
    "storeNo": PUBLISHED_STORE_NO,
    "verifySign": "SIGNATURE",
    **dict.fromkeys(
        ["transactionNo", "refundTransactionNo", "refundTransactionId"],
        "TRANSACTION-{}",
    ),
    "cashierUrl": f"{REPLAY_BASE_URL}/cashier/{{}}",
}
"""How a member is written: as it is, as a text for people, or as a placeholder, in which `{}` is a
number for each different value.
"""

_HIDDEN = "***"
_TOKEN = "TOKEN"  # noqa: S105  # stands where one was
_HEADERS = ("content-type", "retry-after")
_CODE_LIKE = re.compile(r"[\w.,:+-]{1,64}", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_DATE = "2000-01-01T00:00:00Z"
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T "
    r"+][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?",
)
_SHORTEST = 6  # a shorter number or reference is in too many texts


class Scrubber:
    """Takes the secrets and personal data out of the conversation of one account.

    `stand_ins` are further texts to replace, such as random references; the recording may add to
    them.
    """

    def __init__(self, account: Account, stand_ins: Mapping[str, str] | None = None) -> None:
        self._token = account.token.get_secret_value()
        self._base = urlsplit(account.base_url)
        self._stand_ins: Mapping[str, str] = {} if stand_ins is None else stand_ins
        self._numbered: dict[str, str] = {}
        self._known = {self._token: _TOKEN, digest(self._token): _TOKEN}
        named = {account.merchant_no: MEMBERS["merchantNo"], account.store_no: MEMBERS["storeNo"]}
        self._known |= {
            value: stand_in for value, stand_in in named.items() if len(value) >= _SHORTEST
        }
        if account.base_url != REPLAY_BASE_URL:
            self._known |= dict(_addresses(account.base_url))

    def request(self, request: Any) -> Any:
        """Return a request as the file has it, or None if it went elsewhere: the sandbox in this
        process sends notifications too.
        """
        parts = urlsplit(request.uri)
        if _place(request.uri) not in (_place(self._base.geturl()), _place(REPLAY_BASE_URL)):
            return None
        query = parse_qsl(parts.query, keep_blank_values=True)
        uri = (
            REPLAY_BASE_URL
            + self._text(parts.path.removeprefix(self._base.path))
            + ("?" if query else "")
            + self._form(query)
        )
        headers = self._headers(request.headers)
        return Request(
            request.method,
            uri,
            self._sent(request, headers.get("content-type", "")),
            headers,
        )

    def response(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer as the file has it; one that was signed rightly is signed again, with
        the published token.
        """
        # some clients have decompressed the body but kept the header
        with contextlib.suppress(Exception):
            response = decode_response(response)
        body, status = response["body"].get("string") or b"", response["status"]
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        found = read_json(text)
        if found is not None:
            # the first walk learns the numbers, which a text before them may name
            self._kept("", found)
            kept = self._kept("", found)
            if isinstance(found, dict):
                self._sign(found, kept)
            text = write_json(kept)
        return {
            "status": {
                "code": int(status["code"]),
                "message": self._prose(status["message"] or ""),
            },
            "headers": {
                name: [value] for name, value in self._headers(response["headers"]).items()
            },
            "body": {"string": (text if found is not None or not text else _HIDDEN).encode()},
        }

    def _headers(self, headers: Mapping[Any, Any]) -> dict[str, str]:
        plain = {
            str(name).lower(): value[0] if isinstance(value, list | tuple) else value
            for name, value in headers.items()
        }
        texts = {
            name: value.decode("latin-1") if isinstance(value, bytes) else str(value)
            for name, value in plain.items()
        }
        return {name: self._prose(texts[name]) for name in _HEADERS if name in texts}

    def _sent(self, request: Any, content_type: str) -> bytes:
        body = read_body(request)
        if isinstance(body, dict | list):  # for the client to encode
            body = json.dumps(body, default=str)
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
        if "form-urlencoded" in content_type:
            return self._form(parse_qsl(text, keep_blank_values=True)).encode()
        found = read_json(text)
        return (
            write_json(self._kept("", found)) if found is not None else _HIDDEN if text else ""
        ).encode()

    def _form(self, pairs: list[tuple[str, str]]) -> str:
        return urlencode([(self._prose(name), self._kept(name, value)) for name, value in pairs])

    def _kept(self, name: str, value: Any) -> Any:
        """Return a member as the file has it."""
        if isinstance(value, dict):
            return {
                self._prose(inner): self._kept(inner, member) for inner, member in value.items()
            }
        if isinstance(value, list):  # a bare text in a list has no name that tells its meaning
            return [self._kept("", member) for member in value]
        if value is None or value == "" or isinstance(value, bool):
            return value
        text = value.text if isinstance(value, WireNumber) else value
        kept = self._written(MEMBERS.get(name, _HIDDEN), text)
        if isinstance(value, WireNumber):
            return value if kept == text else WireNumber(re.sub(r"\D", "", kept) or "0")
        return kept

    def _written(self, rule: str, text: str) -> str:
        if rule == CODE and _CODE_LIKE.fullmatch(text):
            return self._text(text)
        if rule in (CODE, PROSE):
            return self._prose(text)
        if (
            "{}" not in rule
            or len(text) < _SHORTEST
            or re.fullmatch(re.escape(rule).replace(r"\{\}", r"\d+"), text)
        ):
            return text if "{}" in rule else rule
        if rule.startswith("https:") and not text.lower().startswith(("http://", "https://")):
            return _HIDDEN
        used = sum(1 for one in self._numbered.values() if one.startswith(rule[:-2]))
        return self._numbered.setdefault(text, rule.format(used + 1))

    def _prose(self, text: str) -> str:
        """Return a text without personal data, also where it is JSON or written for an address."""
        if text.lstrip().startswith(("{", "[")):
            nested = read_json(text)
            return _HIDDEN if nested is None else write_json(self._kept("", nested), lay_out=False)
        plain = unquote(text)
        # as a sentence: a card number may be the whole text
        masked = without_personal_data(f"{plain}.")[:-1]
        return self._text(text if masked == plain else masked)

    def _text(self, text: str) -> str:
        """Return a text in which known values are replaced, also where they are quoted for an
        address.
        """
        known = {**self._known, **self._numbered}
        spelt = {
            quote(value, safe="", errors="replace").lower(): quote(stand_in, safe="")
            for value, stand_in in known.items()
        }
        spelt |= {value.lower(): stand_in for value, stand_in in known.items()}
        values = "|".join(re.escape(value) for value in sorted(spelt, key=len, reverse=True))
        start = r"(?:(?<![\w.])|(?<=%[0-9A-Fa-f]{2}))"
        text = re.sub(
            rf"{start}(?:{values})(?!\w|\.\d)",
            lambda found: spelt[found[0].lower()],
            text,
            flags=re.IGNORECASE,
        )
        for value, stand_in in dict(self._stand_ins).items():
            text = text.replace(value, stand_in)
        return _HEX.sub(_HIDDEN, _DATE_TIME.sub(_DATE, text))

    def _sign(self, found: dict[str, Any], kept: dict[str, Any]) -> None:
        for place, scrubbed in ((found, kept), (found.get("result"), kept.get("result"))):
            claimed = place.get(signing.SIGNATURE) if isinstance(place, dict) else None
            if not claimed or not isinstance(scrubbed, dict):
                continue
            scrubbed[signing.SIGNATURE] = WRONG_SIGNATURE
            for reading, other in zip(_signed_readings(found), _signed_readings(kept), strict=True):
                if isinstance(claimed, str) and signing.verify(reading, self._token, claimed):
                    scrubbed[signing.SIGNATURE] = signing.sign(other, PUBLISHED_TEST_TOKEN)
                    break


def digest(token: str) -> str:
    """Return the MD5 of a token, which can sign as well as the token itself (Authentication, step
    5).
    """
    return md5(token.encode(), usedforsecurity=False).hexdigest()


def _addresses(base_url: str) -> Iterator[tuple[str, str]]:
    base, placeholder = urlsplit(base_url), urlsplit(REPLAY_BASE_URL).netloc
    host, name = base.netloc.rpartition("@")[2], base.hostname or ""
    for path in (base.path, ""):
        for scheme in ("http", "https"):
            yield f"{scheme}://{host}{path}", REPLAY_BASE_URL
    yield host, placeholder
    # this machine is the shop's as well
    if not name.startswith("127.") and name not in (
        "localhost",
        "::1",
    ):
        yield name, placeholder


def _place(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    default = {"http": ":80", "https": ":443"}.get(parts.scheme, ":")
    return parts.scheme, parts.netloc.rpartition("@")[2].lower().removesuffix(default)


def _signed_readings(envelope: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the fields that a signature can cover: those of the whole answer, or of its result
    alone, as the client tries both.
    """
    result = envelope.get("result")
    outer, inner = _wire_texts(envelope), _wire_texts(result if isinstance(result, dict) else {})
    yield {**outer, **inner}
    yield inner


def _wire_texts(members: Mapping[str, Any]) -> dict[str, str]:
    words = {True: "true", False: "false"}
    plain = {
        name: value.text if isinstance(value, WireNumber) else value
        for name, value in members.items()
    }
    return {
        name: words[value] if isinstance(value, bool) else value
        for name, value in plain.items()
        if isinstance(value, str | bool)
    }


def read_json(text: str) -> Any:
    """Return a JSON object or array with its numbers as their texts, or None when it is anything
    else or says a name twice.
    """
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name comes twice, which would be lost")
    return members


_DECODER = json_decoder(_members)


def write_json(value: Any, *, lay_out: bool = True, indent: str = "\n") -> str:
    """Write JSON with its numbers as they stood on the wire, one member a line if it is laid
    out.
    """
    inner = f"{indent}  " if lay_out else ""
    comma, colon, end = (f",{inner}", ": ", indent) if lay_out else (",", ":", "")
    if isinstance(value, dict | list) and value:
        written = [
            write_json(one, lay_out=lay_out, indent=inner)
            for one in (value.values() if isinstance(value, dict) else value)
        ]
        if isinstance(value, list):
            return f"[{inner}{comma.join(written)}{end}]"
        named = (
            f"{write_json(name)}{colon}{member}"
            for name, member in zip(value, written, strict=True)
        )
        return f"{{{inner}{comma.join(named)}{end}}}"
    if isinstance(value, WireNumber):
        return value.text
    text = json.dumps(value, ensure_ascii=False)
    # Half a surrogate pair has no other spelling than an escape.
    return (
        text
        if text.isprintable() or not any("\ud800" <= one <= "\udfff" for one in text)
        else json.dumps(value)
    )
