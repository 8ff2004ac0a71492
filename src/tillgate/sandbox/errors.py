"""The errors of the emulator itself. Its refusals to clients are in `requests.Refusal`.

SandboxError
├── UnknownOption       a switch or fault of that name does not exist
├── WrongOption         a switch exists but cannot have that value
├── UnknownTransaction  no transaction has that number, reference or payment page token
└── NotPossible         the transaction is not in a state that allows the requested act
"""

from __future__ import annotations


class SandboxError(Exception):
    """The root of the emulator's own errors."""


class UnknownOption(SandboxError):
    """A switch or fault of that name does not exist."""

    def __init__(self, name: str, near: str = "") -> None:
        super().__init__(
            f"the sandbox has no option or fault {name!r}"
            + (f"; did you mean {near!r}?" if near else ""),
        )


class WrongOption(SandboxError):
    """A switch exists but cannot have that value."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"option {name!r} cannot be {value!r}: it takes {allowed}")


class UnknownTransaction(SandboxError):
    """No transaction has that number, reference or payment page token."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no transaction is known by {key!r}")


class NotPossible(SandboxError):
    """The transaction is not in a state that allows the requested act."""
