"""The drawn inputs: texts, JSON, forms and requests that are nearly right, since the code refuses
plainly wrong ones at the first letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar
from urllib.parse import quote_plus

_T = TypeVar("_T")

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"

_NASTY: Final = (
    *(
        "",
        " ",
        "\0",
        "\x01",
        "\x7f",
        "\r\n",
        "\u2028",
        "\ufeff",
        "\ufffd",
        "\ud800",
        "\udfff",
        "\U0001f4b8",
        "é",
        "e\u0301",
        "\u202e",
        "İ",
        "ß",
    ),
    *(
        "%",
        "%00",
        "%0d%0aSet-Cookie:%20a=b",
        "%ff%fe",
        "%ed%a0%80",
        "%25",
        "%u0000",
        "+",
        "&",
        "=",
        "&&=",
        ";",
        "{amount}",
        "{}",
        "{status}",
    ),
    *(
        "'",
        '"',
        "\\",
        "\\u0000",
        "<script>alert(1)</script>",
        "' OR 1=1 --",
        "${7*7}",
        "{{7*7}}",
        "../../etc/passwd",
        "//evil.example",
        "@",
    ),
    *(
        "https://evil.example/",
        "javascript:alert(1)",
        "http://127.0.0.1:1/",
        "https://pay.example@evil.example/",
        "https://[::1]/",
        "x" * 300,
    ),
    *(
        "0",
        "-0",
        "0.00",
        "00012.50",
        "12.5",
        "12.50",
        "12.500",
        "1e1",
        "1E400",
        "-1",
        "NaN",
        "Infinity",
        "\u0661\u0662",
        "9" * 40,
        "0x10",
        "1_0",
    ),
    *(
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "None",
        "success",
        "SUCCESS",
        " success",
        "paid",
        "pending",
        "failed",
        "closed",
        "refunded",
        "000100",
    ),
)
_NUMBERS: Final = (
    "0",
    "-0",
    "12.5",
    "12.50",
    "12.5000",
    "1.25e1",
    "125e-1",
    "1e400",
    "1e-400",
    "-12.50",
    "9" * 30,
    "0.1",
    "1E+2",
    "100",
    "1e99999999999",
)
_TYPES: Final = (
    *(
        FORM,
        JSON,
        "application/json; charset=utf-8",
        "application/json;charset=no-such",
        "text/plain",
        "text/xml",
        "",
        "application/JSON",
        ";;;",
    ),
    *(
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "application/octet-stream",
        "json",
        "\x00",
        "application/x-www-form-urlencoded;é",
    ),
)


class FromBytes(Random):
    """Draws from given bytes, as the fuzzer that wrote them wants; once they are used up everything
    drawn is the first of its kind.
    """

    def __new__(cls, *_: object) -> FromBytes:
        return super().__new__(cls)

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        count = (k + 7) // 8
        taken = self._data[self._at : self._at + count]
        self._at += count
        return int.from_bytes(taken.ljust(count, b"\0"), "big") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)


def chance(r: Random, one_in: int) -> bool:
    """Tell whether something that happens once in so many times happens now."""
    return r.randrange(one_in) == 0


def text(r: Random) -> str:
    """Draw a text: one of those that have broken programs before, a few together, or letters by
    chance.
    """
    kind = r.randrange(4)
    if kind == 0:
        return "".join(
            chr(r.choice((r.randrange(32, 127), r.randrange(0x110000))))
            for _ in range(r.randrange(12))
        )
    return "".join(r.choice(_NASTY) for _ in range(kind if kind < 3 else 1))


def json_text(r: Random, value: Any, depth: int = 0) -> str:
    """Write a value as JSON, now and then with other spaces, escapes or numbers than Python would
    write.
    """
    if isinstance(value, Mapping):
        members = [
            f"{json_text(r, str(name), 9)}:{' ' * r.randrange(2)}{json_text(r, member, depth + 1)}"
            for name, member in value.items()
        ]
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(r, member, depth + 1) for member in value) + "]"
    if isinstance(value, Bare):
        return value.text
    return json.dumps(value, ensure_ascii=r.randrange(2) == 0)


@dataclass(frozen=True)
class Bare:
    """A JSON number, or its replacement, exactly as written."""

    text: str


def json_value(r: Random, depth: int = 0) -> Any:
    """Draw anything that JSON can say, and some things that it cannot."""
    kind = r.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return text(r)
    if kind == 3:
        return Bare(r.choice(_NUMBERS))
    if kind == 4:
        return r.choice((None, True, False, Bare("NaN"), Bare("-Infinity"), Bare("01"), Bare("")))
    if kind in (5, 6):
        return [json_value(r, depth + 1) for _ in range(r.randrange(4))]
    return {text(r): json_value(r, depth + 1) for _ in range(r.randrange(4))}


def spoil(r: Random, members: Mapping[str, Any], others: Sequence[str] = ()) -> dict[str, Any]:
    """Return members with a few of them changed, dropped, renamed or added; sometimes as they
    are.
    """
    spoilt = dict(members)
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        name = r.choice([*spoilt, *others, "x"])
        action = r.randrange(6)
        if action == 0:
            spoilt.pop(name, None)
        elif action == 1:
            spoilt[name] = json_value(r)
        elif action == 2:
            spoilt[name] = text(r)
        elif action == 3 and isinstance(spoilt.get(name), str):
            spoilt[name] = mutated_text(r, spoilt[name])
        elif action == 4 and isinstance(spoilt.get(name), Mapping):
            spoilt[name] = spoil(r, spoilt[name], others)
        else:
            spoilt[mutated_text(r, name)] = spoilt.pop(name, text(r))
    return spoilt


def mutated_text(r: Random, good: str) -> str:
    """Return a text that differs a little from a good one: another case, a letter more, less or
    changed.
    """
    action, at = r.randrange(6), r.randrange(len(good) + 1)
    if action == 0:
        return good.swapcase()
    if action == 1:
        return good[:at] + r.choice(_NASTY) + good[at:]
    if action == 2:
        return good[:at] + good[at + 1 :]
    if action == 3:
        return good[:at]
    if action == 4:
        return good[:at] + chr(r.randrange(32, 127)) + good[at + 1 :]
    return f"{good} "


def mutated(r: Random, data: bytes) -> bytes:
    """Return bytes with a few places changed: letters turned, cut out, doubled, put in, or the end
    cut off.
    """
    changed = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 4))):
        at, length = r.randrange(len(changed) + 1), r.choice((1, 1, 2, 8))
        action = r.randrange(6)
        if action == 0 and at < len(changed):
            changed[at] ^= 1 << r.randrange(8)
        elif action == 1:
            del changed[at : at + length]
        elif action == 2:
            changed[at:at] = changed[at : at + length] * r.choice((1, 2, 50))
        elif action == 3:
            changed[at:at] = r.choice(_NASTY).encode("utf-8", "surrogatepass")
        elif action == 4:
            changed[at : at + length] = r.randbytes(length)
        else:
            del changed[at:]
    return bytes(changed)


def form(r: Random, members: Mapping[str, Any]) -> str:
    """Write members as a form or query string, repeated, bare or wrongly encoded now and then."""
    pairs = [
        f"{_quoted(r, name)}={_quoted(r, value if isinstance(value, str) else json_text(r, value))}"
        for name, value in members.items()
    ]
    if pairs and chance(r, 4):
        pairs.append(r.choice(pairs))
    if chance(r, 8):
        pairs.append(
            r.choice(("a", "=", "a=%", "&", "%00=%00", "a=b;c=d", "status=success", "verifySign=")),
        )
    if chance(r, 200):
        pairs += [f"k{number}=v" for number in range(r.choice((199, 201, 1200)))]
    return "&".join(pairs)


def _quoted(r: Random, value: str) -> str:
    return value if chance(r, 4) else quote_plus(value, errors="surrogatepass")


def latin(value: str) -> str:
    """Return a text as WSGI carries it: every byte of its UTF-8 a letter."""
    return value.encode("utf-8", "surrogatepass").decode("latin-1")


def body(r: Random, members: Mapping[str, Any]) -> tuple[str, bytes]:
    """Draw a content type and a body that says the members, more or less."""
    kind = r.randrange(8)
    if kind < 3:
        content = json_text(r, members).encode("utf-8", "surrogatepass")
    elif kind < 6:
        content = form(r, members).encode("utf-8", "surrogatepass")
    elif kind == 6:
        content = r.randbytes(r.randrange(40))
    else:
        content = unusual(r, json_text(r, members))
    if chance(r, 3):
        content = mutated(r, content)
    said = FORM if content[:1] not in b"{[" else JSON
    return (r.choice(_TYPES) if chance(r, 4) else said), content


def unusual(r: Random, good: str) -> bytes:
    """Draw a body of an unusual kind: too long, too deep, in another encoding, compressed, or
    several of these together.
    """
    return _UNUSUAL[r.randrange(len(_UNUSUAL))](good)


_UNUSUAL: Final[tuple[Callable[[str], bytes], ...]] = (
    lambda good: b"",
    lambda good: good.encode("utf-16", "surrogatepass"),
    lambda good: b"\xef\xbb\xbf" + good.encode("utf-8", "surrogatepass"),
    lambda good: good.encode("utf-8", "surrogatepass") * 2,
    lambda good: b'{"a":' * 3000 + b"1" + b"}" * 3000,
    lambda good: b"[" * 20_000,
    lambda good: b'{"amount":' + b"9" * 5000 + b"}",
    lambda good: b'{"status":"success","status":"success"}',
    lambda good: b"a=" + b"x" * 70_000,
    lambda good: b"\x1f\x8b\x08\x00" + good.encode("utf-8", "surrogatepass"),
    lambda good: (
        b'--x\r\nContent-Disposition: form-data; name="status"\r\n\r\nsuccess\r\n--x--\r\n'
    ),
    lambda good: b"--x\r\nContent-Disposition: form-data; name=",
)


@dataclass(frozen=True)
class Request:
    """One HTTP request as a WSGI server hands it over: texts hold bytes as letters."""

    method: str
    path: str
    query: str = ""
    content_type: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    """Whether the connection breaks before the body has come."""


_METHODS: Final = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "")
_HEADERS: Final = (
    *(
        "HTTP_HOST",
        "HTTP_COOKIE",
        "HTTP_USER_AGENT",
        "HTTP_ACCEPT_LANGUAGE",
        "HTTP_REFERER",
        "HTTP_ORIGIN",
        "HTTP_X_FORWARDED_HOST",
    ),
    *(
        "HTTP_X_FORWARDED_PROTO",
        "HTTP_X_FORWARDED_FOR",
        "HTTP_X_CSRFTOKEN",
        "HTTP_ACCEPT",
        "HTTP_X_HTTP_METHOD_OVERRIDE",
    ),
    *(
        "HTTP_CONTENT_ENCODING",
        "HTTP_TRANSFER_ENCODING",
        "HTTP_AUTHORIZATION",
        "HTTP_IF_MODIFIED_SINCE",
        "HTTP_X_REQUESTED_WITH",
    ),
)


def request(
    r: Random,
    path: str,
    members: Mapping[str, Any],
    methods: Sequence[str] = ("POST", "POST", "GET"),
) -> Request:
    """Draw a request to a path that says the members, in its body or its query, with some odd
    headers.
    """
    method = r.choice(_METHODS) if chance(r, 16) else r.choice(methods)
    content_type, content = body(r, members) if method != "GET" or chance(r, 8) else ("", b"")
    query = form(r, members) if method == "GET" or chance(r, 8) else ""
    headers = (
        {r.choice(_HEADERS): latin(text(r)) for _ in range(r.randrange(3))} if chance(r, 4) else {}
    )
    if chance(r, 64):
        # a server lets only numbers through
        headers["CONTENT_LENGTH"] = r.choice(("0", "5", "99999999", ""))
    return Request(
        method,
        path,
        latin(query),
        latin(content_type),
        content,
        headers,
        is_cut=bool(content) and chance(r, 64),
    )
