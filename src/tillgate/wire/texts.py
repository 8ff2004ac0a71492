"""Text from outside, made safe to store and to show."""

from __future__ import annotations

import logging
import re
import textwrap
from typing import Final

from tillgate.wire.personal import without_personal_data

__all__ = ["described", "masked", "printable", "storable"]

_MD5_HEX = re.compile(r"[0-9a-fA-F]{32}")
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
_LONGEST_SHOWN: Final = 300


def storable(text: str) -> str:
    """Return the text with U+FFFD for the characters that a database refuses: NUL and half a
    surrogate pair.
    """
    return _NOT_STORABLE.sub("\ufffd", text)


def masked(text: str) -> str:
    """Return the text, cut to a bound, without personal data and any possible signature: a gateway
    may print the one it expected (I11).
    """
    return (
        without_personal_data(text)
        if len(text) < 32
        else without_personal_data(_MD5_HEX.sub("***", text))[:_LONGEST_SHOWN]
    )


def printable(text: str) -> str:
    """Return the text with its control characters escaped, so that a terminal shows foreign text
    and never obeys it.
    """
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    )


def _forge_proof(record: logging.LogRecord) -> bool:
    """Escape quoted text in a log line and indent the traceback under it, so foreign text cannot
    forge log lines.

    Both are without personal data: an error of a shop's database quotes the row. The gateway's own
    numbers, which the attributes `transaction_no` and `refund_no` of the record name, are no card
    numbers.
    """
    numbers = (getattr(record, "transaction_no", None), getattr(record, "refund_no", None))
    if isinstance(record.args, tuple):
        record.args = tuple(
            one
            if isinstance(one, int | float)
            else printable(without_personal_data(str(one), numbers))
            for one in record.args
        )
    if record.exc_info and not record.exc_text:
        text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = textwrap.indent(without_personal_data(text, numbers), "    ")
    return True


# a filter sees the records of its own logger, not those of the loggers below it
for _name in (
    "tillgate",
    "tillgate.events",
):
    logging.getLogger(_name).addFilter(_forge_proof)


def described(error: Exception) -> str:
    """Return the text of a foreign library's exception. It may quote the gateway's answer, which
    may quote Tillgate's request.
    """
    return masked(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
