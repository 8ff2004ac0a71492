"""References: the merchant's own name of one payment (unspecified behaviour 11, I8)."""

from __future__ import annotations

import re
import secrets

from tillgate.errors import InvalidRequest

__all__ = ["any_reference", "is_new_reference", "new_reference", "reference"]

_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
# 65 bits: the references of two shops on one merchant account, or of a restored database, do not
# collide
_RANDOM_LENGTH = 13
_ORDER_LENGTH = 18
_REFERENCE = re.compile(r"[A-Z0-9-]{1,32}", re.ASCII)
_NEW = re.compile(rf"[A-Z0-9-]{{1,{_ORDER_LENGTH}}}-[{_BASE32}]{{{_RANDOM_LENGTH}}}", re.ASCII)
# without & and =, which would give a signature two meanings
_VISIBLE = re.compile(r"[!-%'-<>-~]{1,64}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Z0-9-]+", re.ASCII)


def new_reference(order_number: str | int) -> str:
    """Return a fresh reference: up to 18 safe characters of the order number, a hyphen and 13
    random characters.
    """
    if not isinstance(order_number, str | int):
        raise InvalidRequest("order_number", order_number, "is not text or a whole number")
    order_number = str(order_number)
    safe = _UNSAFE.sub("-", order_number.upper()).strip("-")[:_ORDER_LENGTH] or "ORDER"
    return f"{safe}-{''.join(secrets.choice(_BASE32) for _ in range(_RANDOM_LENGTH))}"


def is_new_reference(reference: str) -> bool:
    """Return whether a reference has the form of those that `new_reference` makes."""
    return _NEW.fullmatch(reference) is not None


def reference(value: object, field: str = "reference") -> str:
    """Return a valid reference, or raise `InvalidRequest`."""
    if isinstance(value, str) and _REFERENCE.fullmatch(value):
        return value
    raise InvalidRequest(
        field,
        value,
        "is not a reference: 1 to 32 characters of A-Z, 0-9 and hyphen, as new_reference() makes "
        "them",
    )


def any_reference(value: object, field: str = "reference") -> str:
    """Return a reference of a payment that exists, perhaps made by another plugin
    ("4711:alipay:1605000000"), or raise `InvalidRequest`.
    """
    if isinstance(value, str) and _VISIBLE.fullmatch(value):
        return value
    raise InvalidRequest(
        field,
        value,
        "is not a reference: 1 to 64 visible ASCII characters, and no space, & or =",
    )
