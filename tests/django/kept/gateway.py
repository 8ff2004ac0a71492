"""The gateway and the shop of the kept database: a plugin that answers as a test says, and a shop
that fails on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final
from unittest import mock

from django.test import override_settings
from django.utils import timezone

from tests.stand_in import standing_in
from tillgate import (
    AnswerNotUnderstood,
    CreatedPayment,
    OrderNotFound,
    PaymentRequest,
    Refunded,
    RefundRequest,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
    WrongCredentials,
    hooks,
)
from tillgate.django.models import Payment
from tillgate.hooks import DisputeStatus, RefundOutcome, ReportedDispute, hookimpl
from tillgate.lifecycle import ReviewReason
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN

__all__ = [
    "ACCOUNTS",
    "ANSWERS",
    "BEGIN",
    "PLUGIN",
    "Answering",
    "Moment",
    "failing_shop",
    "running",
]

PLUGIN: Final = "smallest-shop"
BEGIN: Final = datetime(2026, 3, 2, 9, tzinfo=UTC)
"""The moment at which the kept database begins."""
ACCOUNTS: Final = (
    "default",
    "unsigned",
    "unknown-merchant",
    "unsigned-creation",
    "closed",
    "silent",
    "unanswered",
    "refusing",
)
"""An account for each review that is about an account, and for each worker run."""

ANSWERS: Final[Mapping[ReviewReason, Mapping[str, Any] | Exception]] = MappingProxyType(
    {
        ReviewReason.AMOUNT_MISMATCH: {"amount": Decimal("13.44")},
        ReviewReason.AMOUNT_MISSING: {"amount": None},
        ReviewReason.CURRENCY_MISMATCH: {"currency": "EUR"},
        ReviewReason.TRANSACTION_NO_MISMATCH: {"transaction_no": "another"},
        ReviewReason.TRANSACTION_NO_MISSING: {"transaction_no": None},
        ReviewReason.REFERENCE_MISMATCH: {"reference": "ANOTHER"},
        ReviewReason.UNRECOGNISED_STATUS: {
            "status": TransactionStatus.UNRECOGNISED,
            "status_text": "on-hold",
        },
        ReviewReason.CHANGED_AFTER_PAID: {
            "status": TransactionStatus.CLOSED,
            "status_text": "reversed",
        },
        ReviewReason.DISPUTED: {
            "disputes": (
                ReportedDispute(
                    amount=Decimal("12.50"),
                    status=DisputeStatus.OPEN,
                    dispute_no="D-1",
                    respond_by=datetime(2026, 3, 9, 12, tzinfo=UTC),
                ),
            ),
        },
        ReviewReason.MANUAL_REVIEW: {"manual_review": "rule"},
        ReviewReason.PAYMENT_UNKNOWN: OrderNotFound("000022", "order not found", 400),
        ReviewReason.PAYMENT_UNANSWERED: AnswerNotUnderstood("the body is no JSON", 200),
        ReviewReason.WRONG_CREDENTIALS: WrongCredentials("000030", "merchant not found", 400),
        ReviewReason.SIGNATURE_MISMATCH: SignatureMismatch("the answer is not signed"),
    },
)
"""The answer to a query that opens a review of a reason: its differences from "paid, all in order",
or an error.
"""


class Moment:
    """A clock that stands still until a caller moves it."""

    def __init__(self, begin: datetime = BEGIN) -> None:
        self.at = begin

    def now(self) -> datetime:
        return self.at

    def advance(self, **by: float) -> None:
        self.at += timedelta(**by)


class Answering:
    """A gateway plugin: each payment is paid and in order, unless `says` has another answer for its
    reference.
    """

    def __init__(self) -> None:
        self.says: dict[str, Mapping[str, Any] | Exception] = {}
        self.creates: Callable[[PaymentRequest], str] = lambda request: f"T-{request.reference}"
        self.refunds: Exception | None = None
        self.refund_outcome = RefundOutcome.SUCCEEDED

    @hookimpl
    def tillgate_pay(self, request: PaymentRequest) -> CreatedPayment:
        """Create the payment; `creates` gives its transaction number or raises."""
        answer = _answer(
            request.reference,
            transaction_no=self.creates(request),
            amount=request.amount,
        )
        del answer["status"], answer["status_text"]
        return CreatedPayment(
            payment_url=f"https://gateway.example/pay/{request.reference}",
            **answer,
        )

    @hookimpl
    def tillgate_query(self, reference: str) -> Transaction:
        """Answer as `says` has it."""
        said = self.says.get(reference, {})
        if isinstance(said, Exception):
            raise said
        payment = Payment.objects.get(reference=reference)
        return Transaction(
            **{
                **_answer(reference, transaction_no=payment.transaction_no, amount=payment.amount),
                **said,
            },
        )

    @hookimpl
    def tillgate_refund(self, request: RefundRequest) -> Refunded:
        """Accept the refund, or raise the error in `refunds`."""
        if self.refunds:
            raise self.refunds
        return Refunded(
            reference=request.reference,
            amount=request.amount,
            ret_msg="refund success",
            outcome=self.refund_outcome,
        )

    @hookimpl
    def tillgate_query_refund(self, request: RefundRequest) -> Refunded:
        """Answer as `refund_outcome` has it."""
        return Refunded(
            reference=request.reference,
            amount=request.amount,
            ret_msg="as asked",
            outcome=self.refund_outcome,
        )


def _answer(reference: str, **fields: Any) -> dict[str, Any]:
    paid = {
        "status": TransactionStatus.PAID,
        "status_text": "success",
        "currency": "USD",
        "settle_currency": "USD",
        "raw": {},
    }
    return {**paid, "reference": reference, **fields}


@contextmanager
def running(moment: Moment, *, without: str = "") -> Iterator[Answering]:
    """Let the app run on this gateway and clock, with the accounts of the kept database but for
    one.
    """
    account = {
        "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
        "TOKEN": PUBLISHED_TEST_TOKEN,
        "BASE_URL": "https://gateway.example",
        "SANDBOX": True,
    }
    settings = {
        "ACCOUNTS": {alias: account for alias in ACCOUNTS if alias != without},
        "PUBLIC_URL": "https://shop.example",
        "NOTIFICATION_THROTTLE_SECONDS": 0,
        "QUERIES_PER_SECOND": 0,
        "DELIVERY_TRIES_BEFORE_REVIEW": 1,
        "FORGED_NOTIFICATIONS_BEFORE_REVIEW": 1,
    }
    gateway = Answering()
    with ExitStack() as stack:
        stack.enter_context(override_settings(TILLGATE=settings))
        stack.enter_context(mock.patch.object(timezone, "now", moment.now))
        stack.enter_context(standing_in(gateway))
        yield gateway


@contextmanager
def failing_shop(hook: str) -> Iterator[None]:
    """Let the shop plugin's hook of this name raise."""
    real = hooks.call_owner

    def call_owner(plugin: str, name: str, **arguments: Any) -> Any:
        if name == hook:
            raise ConnectionError("the shop is down")
        return real(plugin, name, **arguments)

    with mock.patch.object(hooks, "call_owner", call_owner):
        yield
