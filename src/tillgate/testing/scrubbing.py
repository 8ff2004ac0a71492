"""Scrubbing removes the secrets of a recorded conversation. It is pure: values go in, values come out.

The name of a member decides about it (merchantNo, verifySign, transactionNo, cashierUrl, any kind of token). Every text is searched for
the values that it must not hold: the account's token and its MD5, its merchantNo, its address, and the gateway's numbers. In answers,
members that the interface does not name lose their values, since they may hold anything. Only headers known to be harmless stay. The
signature of an answer is checked with the real token and made again with the published one, so that a replay verifies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlencode, urlsplit

from tillgate.account import Account
from tillgate.money import WireNumber
from tillgate.sandbox import PUBLISHED_STORE_NO, PUBLISHED_TEST_TOKEN
from tillgate.testing.bodies import named_like, places, read_form, read_json, signed_readings, write_json
from tillgate.wire import signing

REPLAY_BASE_URL: Final = "https://gateway.example"
"""The placeholder that replaces the gateway's address in every cassette."""

MERCHANT: Final = "MERCHANT"
SIGNATURE: Final = "SIGNATURE"
WRONG_SIGNATURE: Final = "WRONG-SIGNATURE"
"""The text that replaces a signature that was wrong when it was recorded; no token makes it."""

_TOKEN = "TOKEN"  # noqa: S105  # stands where one was
_HIDDEN = "***"
_DATE = "2000-01-01T00:00:00Z"

_KEPT_CALL_HEADERS = ("content-type",)
_KEPT_ANSWER_HEADERS = ("content-type", "retry-after")
_INTERFACE = frozenset(
    [
        *("ret_code", "ret_msg", "retMsg", "result", "transactionNo", "reference", "amount", "currency", "settleCurrency", "cashierUrl"),
        *("status", "merchantNo", "verifySign", "vendor", "terminal", "ipnUrl", "callbackUrl", "description", "timeout", "goodsInfo"),
        *("refundAmount", "refundReference", "refundInfo", "transactionType"),
    ]
)
_NUMBERS = ("transactionNo", "refundTransactionNo", "refundTransactionId")
_CREDENTIAL = re.compile(r"token|secret|password|credential|apikey")
_NAMED = re.compile(r"((?:merchantNo|verifySign)(?:=|%3D|%253D|\\?\"\s*:\s*\\?\"?))[^&%#\"'\\,}\s]+", re.IGNORECASE)
_NUMBERED = re.compile(r"((?:t|refundT)ransaction(?:No|Id)\\?\"\s*:\s*\\?\"?)([^\"'\\,}\s]+)")
_PAYMENT_PAGE = re.compile(r"(cashierUrl\"\s*:\s*\")([^\"]+)")
_DATE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T +][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_START = r"(?:(?<!\w)|(?<=%[0-9A-Fa-f]{2}))"  # the start of a word, also behind a character in percent signs
SHORTEST_TOKEN: Final = 8
"""A shorter token, which no gateway issues but a test may use, is searched for as a whole word: "t" is in every address."""

_SHORTEST_NUMBER = 6  # a shorter transaction number is replaced in its own member only: "1" is in too many texts
_SHORTEST_TAIL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request as it went out. Header names are in lower case."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it came back."""

    status: int
    reason: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its answer."""

    call: Call
    answer: Answer


class Scrubber:
    """Takes one account's secrets out of a conversation; `stand_ins` are further texts to replace, such as random references."""

    def __init__(self, account: Account, stand_ins: Mapping[str, str] | None = None) -> None:
        self._token = account.token.get_secret_value()
        self._base = urlsplit(account.base_url)
        self._merchant_no = account.merchant_no
        self._numbers: dict[str, str] = {}
        self._payment_pages: dict[str, str] = {}
        self._stand_ins = dict(stand_ins or {})
        secrets = [_replacing(text, _TOKEN, whole=len(text) < SHORTEST_TOKEN) for text in (digest(self._token), self._token)]
        # The merchantNo as a whole word: it may be short, and must not be cut out of an amount or a longer number.
        merchant = re.compile(rf"{_START}(?<![0-9]\.){re.escape(self._merchant_no)}(?!\w|\.[0-9])")
        self._rules = [*secrets, *self._address_rules(), (_NAMED, self._named), (merchant, lambda found: MERCHANT)]
        if len(account.store_no) >= _SHORTEST_NUMBER:
            self._rules.append(_replacing(account.store_no, PUBLISHED_STORE_NO, whole=True))

    def is_ours(self, url: str) -> bool:
        """Return whether an address is the recorded gateway's; other requests are no part of the conversation."""
        parts = urlsplit(url)
        return _authority(parts.scheme, parts.netloc) == _authority(self._base.scheme, self._base.netloc)

    def secrets(self) -> tuple[str, ...]:
        """Return the texts that must not be in a file: the token, its digest, and the address unless it is a placeholder."""
        hosts = {self._base.netloc} - {urlsplit(REPLAY_BASE_URL).netloc}
        return (self._token, digest(self._token), *hosts)

    def scrub(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        """Return the conversation without its secrets; a value has the same stand-in wherever it appears."""
        for exchange in exchanges:
            self._learn(exchange.answer.body)
        return [Exchange(call=self.call(exchange.call), answer=self.answer(exchange.answer)) for exchange in exchanges]

    def call(self, call: Call) -> Call:
        """Return a request without secrets. Its body is laid out for people, with the same members in the same order."""
        headers = {name: self._text(call.headers[name]) for name in _KEPT_CALL_HEADERS if name in call.headers}
        return replace(call, url=self._url(call.url), headers=headers, body=self._call_body(call))

    def answer(self, answer: Answer) -> Answer:
        """Return an answer without secrets, signed again if it was signed. A body that is not JSON keeps every other character."""
        headers = {name: self._text(answer.headers[name]) for name in _KEPT_ANSWER_HEADERS if name in answer.headers}
        return replace(answer, reason=self._text(answer.reason), headers=headers, body=self._answer_body(answer.body))

    def _url(self, url: str) -> str:
        parts = urlsplit(url)
        path = parts.path.removeprefix(self._base.path)
        pairs = read_form(parts.query)
        query = self._form(pairs) if pairs else self._text(parts.query)
        return f"{REPLAY_BASE_URL}{self._text(path)}{'?' if query else ''}{query}"

    def _call_body(self, call: Call) -> bytes:
        text, encoding = _decoded(call.body)
        pairs = read_form(text) if "form-urlencoded" in call.headers.get("content-type", "") else []
        if pairs:
            return self._form(pairs).encode()
        found = read_json(text)
        if found is None:
            return self._loose(text).encode(encoding)
        return write_json(self._member("", found, in_answer=False)).encode()

    def _form(self, pairs: Iterable[tuple[str, str]]) -> str:
        return urlencode([(self._text(name), self._member(name, value, in_answer=False)) for name, value in pairs])

    def _answer_body(self, body: bytes) -> bytes:
        text, encoding = _decoded(body)
        found = read_json(text)
        if found is None:
            return self._loose(text).encode(encoding)
        kept = self._member("", found, in_answer=True)
        if isinstance(found, dict):
            self._sign(found, kept)
        return write_json(kept).encode()

    def _sign(self, found: dict[str, Any], kept: dict[str, Any]) -> None:
        """Replace a signature of the account's token by one of the published token, over the same fields."""
        for place, scrubbed in zip(places(found), places(kept), strict=True):
            claimed = place.get(signing.SIGNATURE)
            if not claimed:
                continue
            scrubbed[signing.SIGNATURE] = WRONG_SIGNATURE
            for reading, other in zip(signed_readings(found), signed_readings(kept), strict=True):
                if isinstance(claimed, str) and signing.verify(reading, self._token, claimed):
                    scrubbed[signing.SIGNATURE] = signing.sign(other, PUBLISHED_TEST_TOKEN)
                    break

    def _learn(self, body: bytes) -> None:
        found = read_json(_decoded(body)[0])
        for name, value in named_like(found, (*_NUMBERS, "cashierUrl")):
            if value and name == "cashierUrl":
                self._learn_payment_page(value)
            elif value:
                self._number(value)

    def _member(self, name: str, value: Any, *, in_answer: bool) -> Any:
        """Return the permitted form of a value, judged by the name of its member."""
        if isinstance(value, dict):
            return {self._text(inner): self._member(inner, member, in_answer=in_answer) for inner, member in value.items()}
        if isinstance(value, list):
            return [self._member(name, member, in_answer=in_answer) for member in value]
        if value is None or value == "" or isinstance(value, bool):
            return value
        plain = name.replace("_", "").lower()
        if plain == "merchantno":
            return MERCHANT
        if plain == "storeno":
            return PUBLISHED_STORE_NO
        if plain == "verifysign":
            return SIGNATURE
        if _CREDENTIAL.search(plain):
            return _TOKEN
        text = value.text if isinstance(value, WireNumber) else value
        if in_answer and name in _NUMBERS:
            return self._number(text) if text is value else WireNumber(self._number(text).rpartition("-")[2])
        if in_answer and name == "cashierUrl":
            return self._payment_page(text)
        if in_answer and name and name not in _INTERFACE:
            return _HIDDEN if text is value else WireNumber("0")
        kept = self._text(text)
        return kept if text is value else WireNumber(text if kept == text else "0")

    def _number(self, text: str) -> str:
        return self._numbers.setdefault(text, f"TRANSACTION-{len(self._numbers) + 1}")

    def _payment_page(self, url: str) -> str:
        """Return another address of the same kind: the real one opens the shopper's page for everyone."""
        if url not in self._payment_pages:
            start = url[:8].lower()
            host = REPLAY_BASE_URL if start.startswith(("http://", "https://")) else ""
            known = host or url.startswith("/")
            self._payment_pages[url] = f"{host}/cashier/{len(self._payment_pages) + 1}" if known else self._text(url)
        return self._payment_pages[url]

    def _learn_payment_page(self, url: str) -> None:
        """Learn an address, to replace it in other members and answers too, and before its host is replaced."""
        is_new, stand_in = url not in self._payment_pages, self._payment_page(url)
        path = url.split("/", 3)[3:]
        if is_new and stand_in.startswith(REPLAY_BASE_URL) and path and len(path[0]) >= _SHORTEST_TAIL:
            self._rules.insert(0, _replacing(url, stand_in))

    def _payment_page_in_json(self, text: str) -> str:
        """Do the same with a JSON text that cannot be parsed, in which slashes may be escaped."""
        is_escaped = "\\/" in text
        stand_in = self._payment_page(text.replace("\\/", "/") if is_escaped else text)
        return stand_in.replace("/", "\\/") if is_escaped else stand_in

    def _text(self, text: str) -> str:
        """Return a text in which every known secret is replaced, in every spelling."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        for number, stand_in in self._numbers.items():
            if len(number) >= _SHORTEST_NUMBER:
                text = re.sub(rf"{_START}{re.escape(number)}(?!\w)", stand_in, text)
        for value, stand_in in self._stand_ins.items():
            text = text.replace(value, stand_in)
        return _HEX.sub(_HIDDEN, _DATE_TIME.sub(_DATE, text))

    def _loose(self, text: str) -> str:
        """Scrub a body that cannot be parsed, an HTML page or half a JSON object, which may end in the middle of a secret."""
        text = _NUMBERED.sub(lambda found: found[1] + self._number(found[2]), text)
        text = _PAYMENT_PAGE.sub(lambda found: found[1] + self._payment_page_in_json(found[2]), text)
        for value, stand_in in {**self._stand_ins, self._base.netloc: urlsplit(REPLAY_BASE_URL).netloc}.items():
            for length in range(len(value) - 1, _SHORTEST_TAIL - 1, -1):
                if text.endswith(value[:length]):
                    text = text[:-length] + stand_in[:length]
                    break
        return self._text(text)

    @staticmethod
    def _named(found: re.Match[str]) -> str:
        return found[1] + (MERCHANT if found[0][:1] in "mM" else SIGNATURE)

    def _address_rules(self) -> Iterator[_Rule]:
        host = self._base.netloc.rpartition("@")[2]
        placeholder = urlsplit(REPLAY_BASE_URL).netloc
        if host == placeholder:
            return
        for path in dict.fromkeys((self._base.path, "")):
            for scheme in ("http", "https"):
                yield _replacing(f"{scheme}://{host}{path}", REPLAY_BASE_URL, whole=True)
        yield _replacing(host, placeholder, whole=True)
        name = self._base.hostname or host
        if ":" in host and not name.startswith("127.") and name not in ("localhost", "::1"):
            # This machine's own name is the shop's name as well, and is no secret.
            yield _replacing(name, placeholder, whole=True)


_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def _replacing(value: str, stand_in: str, *, whole: bool = False) -> _Rule:
    """Replace a value in each spelling by its stand-in in the same spelling: an address inside an address stays one."""
    pairs = {old.lower(): new for old, new in reversed(list(zip(spellings(value), spellings(stand_in), strict=True)))}
    spelt = "|".join(re.escape(old) for old in sorted(pairs, key=len, reverse=True))
    pattern = f"{_START}(?:{spelt})(?!\\w)" if whole else spelt
    return re.compile(pattern, re.IGNORECASE), lambda found: pairs[found[0].lower()]


def spellings(value: str) -> list[str]:
    """Return the spellings of a text: plain, and inside addresses, addresses inside addresses, forms and JSON."""
    # JSON may escape half a surrogate pair, which an address cannot encode. It is spelt as in Python, and found in that spelling.
    once, plus = quote(value, safe="", errors="surrogatepass"), quote_plus(value, errors="surrogatepass")
    return [value, once, quote(once, safe=""), plus, value.replace("/", "\\/"), json.dumps(value)[1:-1]]


def digest(token: str) -> str:
    """Return the MD5 of a token, which can sign as well as the token itself (Authentication, step 5)."""
    return md5(token.encode(), usedforsecurity=False).hexdigest()


def _authority(scheme: str, netloc: str) -> str:
    host = netloc.rpartition("@")[2].lower()
    return host.removesuffix({"http": ":80", "https": ":443"}.get(scheme.lower(), ":"))


def _decoded(body: bytes) -> tuple[str, str]:
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return body.decode("latin-1"), "latin-1"  # every byte is a character, and survives the way back
