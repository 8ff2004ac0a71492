"""The errors of Tillgate, in one tree. Imports nothing.

::

    TillgateError
    ├── InvalidRequest         the caller's: a field breaks the interface; nothing was sent
    ├── ConfigurationError     the project's: an account, setting or plugin is wrong; nothing sent
    └── GatewayError           the gateway's, or the network's
        ├── NotSent            no byte of the request left this machine
        ├── OutcomeUnknown     it may have arrived, and its outcome is unknown
        ├── AnswerNotUnderstood    an answer came that cannot be trusted or read
        │   └── SignatureMismatch  its verifySign is not the account's
        └── Refused            a well-formed answer with a ret_code that means "no"
            ├── WrongCredentials   the account's token, merchant number or rights are wrong
            └── OrderNotFound  HTTP 400 and 000022: the account has no such reference

`pay` and `refund` move money, so any doubt about them raises `OutcomeUnknown`; its `detail` gives
the reason. `query` moves nothing: any `GatewayError` but `OrderNotFound` is inconclusive there, and
the query may be repeated.

No message holds a token or a signature (I11).
"""

from __future__ import annotations

__all__ = [
    "AnswerNotUnderstood",
    "ConfigurationError",
    "GatewayError",
    "InvalidRequest",
    "NotSent",
    "OrderNotFound",
    "OutcomeUnknown",
    "Refused",
    "SignatureMismatch",
    "TillgateError",
    "WrongCredentials",
]


class TillgateError(Exception):
    """The root of the tree. Every class below hands its arguments to `Exception`, so that errors
    survive pickling.
    """


class _FieldError(TillgateError):
    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(field, value, remedy)
        self.field = field
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        try:
            shown = repr(self.value)
        except ValueError:  # an int of more digits than Python prints
            shown = f"this {type(self.value).__name__}"
        if len(shown) > 80:
            shown = f"{shown[:76]}...{shown[-1]}"
        return (
            f"{self.field} {self.remedy}"
            if self.value is None
            else f"{self.field}: {shown} {self.remedy}"
        )


class InvalidRequest(_FieldError):
    """The `value` of a `field`, by its Python name, breaks the interface; `remedy` says how to
    correct it. Nothing was sent.
    """


class ConfigurationError(_FieldError):
    """An account, a setting or a plugin cannot be used, and nothing was sent. `value` is never a
    secret.
    """


class GatewayError(TillgateError):
    """A call to the gateway failed, or the gateway refused it."""


class NotSent(GatewayError):
    """The request certainly did not leave: no connection was made. Repeating it is safe."""

    def __init__(self, operation: str, reference: str, detail: str) -> None:
        super().__init__(operation, reference, detail)
        self.operation = operation
        self.reference = reference
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.operation} of {self.reference} was not sent: {self.detail}"


class OutcomeUnknown(GatewayError):
    """The request may have arrived, and its outcome is unknown. A pay or refund must not be
    repeated.

    `http_status` is the status of the answer, if one came. `may_have_arrived` is false only if the
    connection broke during the sending.
    """

    def __init__(
        self,
        operation: str,
        reference: str,
        detail: str,
        http_status: int | None = None,
        # positional, so that unpickling can pass it
        may_have_arrived: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        super().__init__(operation, reference, detail, http_status, may_have_arrived)
        self.operation = operation
        self.reference = reference
        self.detail = detail
        self.http_status = http_status
        self.may_have_arrived = may_have_arrived

    def __str__(self) -> str:
        if self.operation == "query":
            return f"the query of {self.reference} is inconclusive: {self.detail}; query again"
        return f"the outcome of {self.operation} of {self.reference} is not known: {self.detail}"


class AnswerNotUnderstood(GatewayError):
    """An answer does not follow the interface: it proves nothing."""

    def __init__(self, detail: str, http_status: int | None = None) -> None:
        super().__init__(detail, http_status)
        self.detail = detail
        self.http_status = http_status

    @property
    def is_overload(self) -> bool:
        """Whether the gateway says that it cannot answer now: HTTP 429 or 5xx."""
        return self.http_status is not None and (self.http_status == 429 or self.http_status >= 500)

    def __str__(self) -> str:
        return f"the gateway's answer was not understood: {self.detail}"


class SignatureMismatch(AnswerNotUnderstood):
    """An answer carries a wrong verifySign, or lacks one where the dialect requires it."""


class Refused(GatewayError):
    """The gateway refused: its code and words, and the HTTP status where it answered over HTTP."""

    def __init__(self, ret_code: str, ret_msg: str, http_status: int | None = None) -> None:
        super().__init__(ret_code, ret_msg, http_status)
        self.ret_code = ret_code
        self.ret_msg = ret_msg
        self.http_status = http_status

    def __str__(self) -> str:
        http = "" if self.http_status is None else f" (HTTP {self.http_status})"
        return f"the gateway refused: {self.ret_code} {self.ret_msg!r}{http}"


class WrongCredentials(Refused):
    """The gateway denies the account: its token does not fit the signature, or it has no rights.
    Nothing happened at the gateway.
    """


class OrderNotFound(Refused):
    """HTTP 400 and 000022: this account has no transaction with that reference (Errors)."""
