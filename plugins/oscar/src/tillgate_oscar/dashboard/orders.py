"""The order's page of Oscar's dashboard: its payments, open reviews, and refunds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.loader import select_template
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext
from oscar.apps.order.exceptions import InvalidPaymentEvent
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_model

from tillgate.django.forms import RefundForm
from tillgate.django.models import NOTHING, Order, Payment, Refund
from tillgate.django.operations.locking import database
from tillgate.django.operations.refunds import refundable
from tillgate.django.staff import words
from tillgate.django.staff.masking import Mask
from tillgate.django.staff.showing import MAY_REFUND, Line, refund_of_press, refund_outcome, row_id, timeline_of
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import RefundStatus
from tillgate.wire import money
from tillgate_oscar.refunds import is_refund, paid_for, payments_of, refund_event_type, refunded_here

__all__ = ["OrderDetailMixin"]


@dataclass(frozen=True, slots=True)
class _ShownRefund:
    row: Refund
    status: words.Word
    answer: str


@dataclass(frozen=True, slots=True)
class _ShownPayment:
    row: Payment
    status: words.Word
    method: str
    paid_the_order: bool
    refunded_amount: Decimal
    left: Decimal
    refunds: list[_ShownRefund]
    timeline: list[Line]
    admin_url: str


@dataclass(frozen=True, slots=True)
class _ShownReview:
    reason: str
    message: str
    admin_url: str


class OrderDetailMixin:
    """Adds the payments to the order's page, and sends refunds of Tillgate's payments to the gateway."""

    request: HttpRequest
    object: Any

    def get_handler(self, user: Any = None, **options: Any) -> Any:
        """Return Oscar's event handler, and pass it the user."""
        return super().get_handler(user or self.request.user, **options)  # type: ignore[misc]  # a mixin of Oscar's view

    def get_template_names(self) -> list[str]:
        """Show the shop's page with Tillgate's part, if the order is Tillgate's."""
        names: list[str] = super().get_template_names()  # type: ignore[misc]  # a mixin of Oscar's view
        return ["tillgate_oscar/dashboard/order_detail.html"] if payments_of(self.object) else names

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add the payments, the open reviews, and the refund form."""
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]  # a mixin of Oscar's view
        ours = payments_of(self.object)
        if ours is None:
            return context
        names = super().get_template_names()  # type: ignore[misc]  # a mixin of Oscar's view
        left = refundable(ours.paid_by) if ours.paid_by else NOTHING
        may_refund = left and self.request.user.has_perm(MAY_REFUND)
        return context | {
            "order_page": select_template(names),
            "tillgate_payments": _payments(ours, self.request),
            "tillgate_reviews": _reviews(ours, self.request),
            "tillgate_refund_form": RefundForm(left, initial={"amount": left}, auto_id="tillgate_%s") if may_refund else None,
            "tillgate_refund_type": refund_event_type(),
            "tillgate_press": secrets.token_urlsafe(12),
            "tillgate_seen": _newest_refund(ours),
        }

    def create_order_payment_event(self, request: HttpRequest, order: Any) -> HttpResponse:
        """Refund part of the order's money, or do as Oscar does."""
        if self._is_for_tillgate(request, order):
            return self._refund(request, order)
        response: HttpResponse = super().create_order_payment_event(request, order)  # type: ignore[misc]  # a mixin of Oscar's view
        return response

    def create_payment_event(self, request: HttpRequest, order: Any, lines: Any, quantities: Sequence[int]) -> HttpResponse:
        """Refund the money for some of the lines, or do as Oscar does."""
        if self._is_for_tillgate(request, order):
            return self._refund(request, order, lines, quantities)
        response: HttpResponse = super().create_payment_event(request, order, lines, quantities)  # type: ignore[misc]  # a mixin of Oscar's view
        return response

    def _is_for_tillgate(self, request: HttpRequest, order: Any) -> bool:
        types = get_model("order", "PaymentEventType")._default_manager
        event_type = types.filter(code=request.POST.get("payment_event_type", "")).first()
        return event_type is not None and is_refund(event_type) and refunded_here(order)

    def _refund(self, request: HttpRequest, order: Any, lines: Any = None, quantities: Sequence[int] | None = None) -> HttpResponse:
        """Request a refund and report its result. Without an amount, refund the price of so many of each line."""
        handler, event_type, press = self.get_handler(), refund_event_type(), request.POST.get("tillgate_press", "")[:64]
        text, seen = request.POST.get("amount", "").strip(), request.POST.get("tillgate_seen")
        try:
            amount = paid_for(order, lines, quantities) if lines and quantities and not text else money.amount(text)
            refund = handler.handle_payment_event(
                order,
                event_type,
                amount,
                lines,
                quantities,
                reason=request.POST.get("reason", ""),
                press=press,
                seen=row_id(seen) if seen else None,
            )
        except (PaymentError, InvalidPaymentEvent, InvalidRequest) as error:
            refund = _of_same_press(order, press)
            if refund is None:
                messages.error(request, gettext("Nothing was refunded: %(detail)s.") % {"detail": _detail(error)})
        if refund is not None:
            # With ATOMIC_REQUESTS the refund is sent after the request's transaction: its result is known only then.
            transaction.on_commit(partial(_say_outcome, request, refund), using=database())
        response: HttpResponse = self.reload_page(fragment="payment")  # type: ignore[attr-defined]  # of Oscar's view
        return response


def _say_outcome(request: HttpRequest, refund: Refund) -> None:
    refund.refresh_from_db()
    messages.add_message(request, *refund_outcome(refund, Mask([refund.payment], [refund])))


def _detail(error: Exception) -> str:
    if isinstance(error, InvalidRequest):
        return f"“{error.value}” {error.remedy}"
    return str(error) or gettext("more was asked for than was bought")  # Oscar raises some of its errors without a message


def _of_same_press(order: Any, press: str) -> Refund | None:
    ours = payments_of(order)
    return refund_of_press(ours.paid_by, press) if ours and ours.paid_by else None


def _newest_refund(ours: Order) -> int:
    newest = ours.paid_by and ours.paid_by.refunds.order_by("-id").first()
    return newest.pk if newest else 0


def _payments(ours: Order, request: HttpRequest) -> list[_ShownPayment]:
    """Return the order's payments, the one that paid it first, then the newest."""
    rows = ours.payments.prefetch_related("refunds").order_by("-id")
    return sorted((_payment(ours, row, request) for row in rows), key=lambda shown: not shown.paid_the_order)


def _payment(ours: Order, row: Payment, request: HttpRequest) -> _ShownPayment:
    refunds = sorted(row.refunds.all(), key=lambda refund: refund.pk)
    mask = Mask([row], refunds)
    return _ShownPayment(
        row=row,
        status=words.PAYMENT_STATUSES[row.status],
        method=words.method_name(row.method),
        paid_the_order=row.pk == ours.paid_by_id,
        refunded_amount=money.total(refund.amount for refund in refunds if refund.status == RefundStatus.SUCCEEDED),
        left=refundable(row),
        refunds=[_ShownRefund(refund, words.REFUND_STATUSES[refund.status], mask.text(refund.answer)) for refund in refunds],
        timeline=timeline_of(ours.timeline.filter(Q(payment=row) | Q(payment__isnull=True)), mask),
        admin_url=_admin_url(request, "payment", row.pk),
    )


def _reviews(ours: Order, request: HttpRequest) -> list[_ShownReview]:
    rows = ours.reviews.filter(resolved_at__isnull=True).select_related("payment", "refund").order_by("id")
    return [
        _ShownReview(
            reason=words.reason(row.reason),
            message=Mask([row.payment], [row.refund]).text(row.message),
            admin_url=_admin_url(request, "review", row.pk),
        )
        for row in rows
    ]


def _admin_url(request: HttpRequest, model: str, row: int) -> str:
    """Return the address of a row's page in the admin, or an empty string for users without the permission to see it."""
    user: Any = request.user
    if not (user.is_staff and user.has_perm(f"tillgate.view_{model}")):
        return ""
    try:
        return reverse(f"admin:tillgate_{model}_change", args=[row])
    except NoReverseMatch:  # a shop without the admin
        return ""
