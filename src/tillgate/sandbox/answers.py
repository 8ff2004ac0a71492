"""Answers to a client: the envelope of the interface, and every way to damage it.

The *fate* of an `Answer` says whether it arrives, drips, or is lost or cut with its connection.
"""

from __future__ import annotations

import http
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from . import contract, money, signing
from .options import Options
from .requests import Bare

Fate = Literal["answer", "lose_request", "lose_response", "cut", "drip"]
Envelope = dict[str, object]

_JSON = (("content-type", "application/json"),)
_HTML = (("content-type", "text/html"),)
_text = json.encoder.encode_basestring_ascii


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer and its fate.

    `lose_request`: the work is not done and no answer is sent. `lose_response`: the work is done
    and no answer is sent. `cut`: only the first `cut_after` bytes of `raw()` arrive.
    """

    http_status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    fate: Fate = "answer"
    delay_seconds: float = 0.0
    pause_seconds: float = 0.0
    cut_after: int = 0

    def raw(self) -> bytes:
        """Return the whole answer as HTTP/1.1, for the fates that cut it."""
        lines = [f"HTTP/1.1 {self.http_status} {http.HTTPStatus(self.http_status).phrase}"]
        lines += [
            f"{name}: {value}"
            for name, value in (*self.headers, ("content-length", str(len(self.body))))
        ]
        return "\r\n".join((*lines, "", "")).encode("latin-1") + self.body


def encode(value: object) -> str:
    """Write JSON by hand where the standard encoder would pass a money literal through a float."""
    if isinstance(value, Bare):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{_text(name)}:{encode(member)}" for name, member in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


def answer(envelope: object, http_status: int = 200) -> Answer:
    """Make an answer that arrives unharmed."""
    return Answer(http_status, _JSON, _encoded(envelope))


def _encoded(envelope: object) -> bytes:
    return encode(envelope).encode()


def sign(envelope: Envelope, token: str, how: str) -> None:
    """Put a verifySign into an answer (unspecified behaviour 7): over the result's fields where
    there is a result, else the envelope's.
    """
    result = envelope.get("result")
    place: Envelope = result if isinstance(result, dict) else envelope
    parameters = {name: str(value) for name, value in place.items()}
    make = signing.signature if how == "valid" else signing.wrong
    place[signing.FIELD] = make(parameters, token)


# Answers that have nothing to do with the request.
_FIXED: Mapping[str, Answer] = {
    "lost_request": Answer(0, (), b"", fate="lose_request"),
    "lost_response": Answer(0, (), b"", fate="lose_response"),
    "server_error": Answer(503, (("content-type", "text/plain"),), b"Service Unavailable"),
    "server_error_done": Answer(502, _HTML, b"<html><body><h1>502 Bad Gateway</h1></body></html>"),
    "html_body": Answer(200, _HTML, b"<!doctype html><title>Maintenance</title><p>Back soon."),
    "rate_limited": Answer(
        429,
        (*_JSON, ("retry-after", "1")),
        b'{"ret_code":"000429","ret_msg":"too many requests"}',
    ),
}


def instead(fault: str, options: Options) -> Answer:
    """Make the answer of a fault that replaces the work."""
    if fault == "refused":
        return answer(
            {"ret_code": contract.BAD_STATE, "ret_msg": "refused by the sandbox"},
            options.refusal_http_status,
        )
    return _FIXED.get(fault) or answer(
        {"ret_code": contract.NOT_FOUND, "ret_msg": "order not found"},
        400,
    )


def unit_more(text: str, currency: str) -> str:
    """Return the wrong amount that a fault uses: one of the smallest unit more."""
    return money.text_of((money.units_of(text, currency) or 0) + 1, currency)


# Faults in the content of the answer: the field of the result, and its new value, or None to leave
# it out.
_CHANGES: Mapping[str, tuple[str, Callable[[str, str], str | None]]] = {
    "payment_page_missing": ("cashierUrl", lambda text, currency: None),
    "payment_page_relative": ("cashierUrl", lambda text, currency: "/" + text.split("/", 3)[-1]),
    "other_reference": ("reference", lambda text, currency: f"{text}-OTHER"),
    "wrong_amount": ("amount", unit_more),
    "amount_number": ("amount", lambda text, currency: Bare(money.number_of(text))),
    "amount_text": ("amount", lambda text, currency: text),
    "missing_amount": ("amount", lambda text, currency: None),
    "wrong_currency": ("currency", lambda text, currency: "EUR"),
    "missing_currency": ("currency", lambda text, currency: None),
    "wrong_settle_currency": ("settleCurrency", lambda text, currency: "EUR"),
    "wrong_transaction_no": (
        "transactionNo",
        lambda text, currency: text[:-1] + str((int(text[-1]) + 1) % 10),
    ),
    "unknown_status": ("status", lambda text, currency: "quantum"),
}


def change_result(fault: str, envelope: Envelope, currency: str) -> None:
    """Let a fault change the content of the answer; faults in its form change nothing here."""
    name, change = _CHANGES.get(fault, ("", lambda text, currency: text))
    result = envelope.get("result")
    if isinstance(result, dict) and name in result:
        value = change(str(result[name]), currency)
        if value is None:
            del result[name]
        else:
            result[name] = value


def damage(
    fault: str,
    envelope: Envelope,
    whole: Answer,
    options: Options,
    random: Random,
) -> Answer:
    """Apply a fault to the answer after the work was done."""
    if fault in _FIXED:
        return _FIXED[fault]
    if fault == "delay":
        return replace(whole, delay_seconds=options.delay_seconds)
    if fault == "slow_drip":
        return replace(whole, fate="drip", pause_seconds=options.drip_pause_seconds)
    if fault == "cut":
        after = options.cut_after_bytes
        return replace(
            whole,
            fate="cut",
            cut_after=after if after >= 0 else random.randrange(len(whole.raw())),
        )
    if fault == "redirect":
        return Answer(302, (("location", f"{options.public_url}/elsewhere"),), b"")
    rewrite = _REWRITES.get(fault)
    return replace(whole, body=rewrite(envelope, whole.body, options)) if rewrite else whole


# Faults in the form of the answer: each writes another body under the same status.
_REWRITES: Mapping[str, Callable[[Envelope, bytes, Options], bytes]] = {
    "broken_json": lambda envelope, body, options: body[: len(body) // 2],
    "empty_body": lambda envelope, body, options: b"",
    "json_list": lambda envelope, body, options: b"[" + body + b"]",
    "missing_ret_code": lambda envelope, body, options: _encoded(
        {name: envelope[name] for name in envelope if name != "ret_code"},
    ),
    "numeric_ret_code": lambda envelope, body, options: _encoded({**envelope, "ret_code": 100}),
    "huge_body": lambda envelope, body, options: (
        body[:-1] + b" " * max(0, options.huge_body_bytes - len(body)) + b"}"
    ),
    "system_error": lambda envelope, body, options: _encoded(
        {"ret_code": contract.SYSTEM_ERROR, "ret_msg": "system error"},
    ),
    "unknown_code": lambda envelope, body, options: _encoded(
        {"ret_code": contract.UNKNOWN_CODE, "ret_msg": "something else"},
    ),
}
