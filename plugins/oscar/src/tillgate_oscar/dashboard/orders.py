"""The orders of Oscar's dashboard: in the list what was refunded, and on the page the payments,
open reviews, and refunds.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.loader import select_template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from oscar.apps.order.exceptions import InvalidPaymentEvent
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_model

from tillgate import InvalidRequest, Money, shop
from tillgate_oscar.conf import PLUGIN
from tillgate_oscar.orders import is_expected, state_of
from tillgate_oscar.refunds import (
    MARKS,
    MAY_REFUND,
    doubts_of,
    find_repeated,
    is_refund,
    paid_for,
    refund_event_type,
    refunded_here,
    refunded_of,
)

_KEY: Final = "tillgate_idempotency_key"


class MarkedStatus(str):
    """A status that any template shows with a badge, and that compares as the status alone. Oscar's
    list has no block for a row.
    """

    mark: str

    def __html__(self) -> SafeString:
        """Return the status and the badge, in the classes of Oscar's dashboard."""
        return format_html('{} <span class="badge badge-danger">{}</span>', str(self), self.mark)


class OrderListMixin:
    """Marks refunded orders in the list, on the page and in its file, so that nobody ships them."""

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add a badge to the status of each refunded order."""
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        for order, mark in _marked(context["orders"]):
            order.status = MarkedStatus(order.status)
            order.status.mark = mark
        return {**context, "list_page": select_template(super().get_template_names())}  # type: ignore[misc]

    def get_template_names(self) -> list[str]:
        """Show the shop's list, whose table scrolls within itself on a phone."""
        return ["tillgate_oscar/dashboard/order_list.html"]

    def download_selected_orders(self, request: HttpRequest, orders: Any) -> HttpResponse:
        """Add the words of the badge to the status in the file."""
        orders = list(orders)
        for order, mark in _marked(orders):
            order.status = f"{order.status} ({mark})"
        # a mixin of Oscar's view
        response: HttpResponse = super().download_selected_orders(request, orders)  # type: ignore[misc]
        return response


def _marked(orders: Any) -> list[tuple[Any, str]]:
    states = {
        ours.key: ours for ours in shop.order_states(PLUGIN, [order.number for order in orders])
    }
    doubts = doubts_of(orders, states.values())
    found = []
    for order in orders:
        mark = refunded_of(order, states.get(order.number))
        words = [*([str(MARKS[mark])] if mark else []), *doubts.get(order.number, [])]
        found += [(order, ", ".join(words))] if words else []
    return found


class OrderDetailMixin:
    """Adds the payments to the order's page, and sends refunds of Tillgate's payments to the
    gateway.
    """

    request: HttpRequest
    object: Any

    def get_handler(self, user: Any = None, **options: Any) -> Any:
        """Return Oscar's event handler, and pass it the user."""
        # a mixin of Oscar's view
        return super().get_handler(user or self.request.user, **options)  # type: ignore[misc]

    def get_template_names(self) -> list[str]:
        """Show the shop's page with Tillgate's part, if the order is Tillgate's."""
        # a mixin of Oscar's view
        names: list[str] = super().get_template_names()  # type: ignore[misc]
        return ["tillgate_oscar/dashboard/order_detail.html"] if is_expected(self.object) else names

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add the payments, the open reviews, and the refund form."""
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        ours = state_of(self.object)
        if ours is None:
            return context
        names = super().get_template_names()  # type: ignore[misc]  # a mixin of Oscar's view
        left, refunds = ours.refundable_amount, ours.paid_by.refunds if ours.paid_by else ()
        may_refund = left and self.request.user.has_perm(MAY_REFUND)
        return context | {
            "order_page": select_template(names),
            "tillgate_payments": _payments(ours, self.request),
            "tillgate_reviews": [
                {"review": review, "admin_url": shop.admin_url(self.request, "review", review.id)}
                for review in shop.open_reviews(PLUGIN, order_keys=[ours.key])
            ],
            "tillgate_refund_form": _refund_form(left, self.object.currency)
            if may_refund
            else None,
            "tillgate_refunded": refunded_of(self.object, ours),
            "tillgate_doubts": doubts_of([self.object], [ours]).get(ours.key, []),
            "tillgate_refund_type": refund_event_type(),
            "tillgate_just_refunded": shop.just_refunded(ours.paid_by) if ours.paid_by else "",
            "tillgate_idempotency_key": secrets.token_urlsafe(12),
            "tillgate_seen": refunds[-1].id if refunds else "",
        }

    def create_order_payment_event(self, request: HttpRequest, order: Any) -> HttpResponse:
        """Refund part of the order's money, or do as Oscar does."""
        if self._is_for_tillgate(request, order):
            return self._refund(request, order)
        # a mixin of Oscar's view
        response: HttpResponse = super().create_order_payment_event(request, order)  # type: ignore[misc]
        return response

    def create_payment_event(
        self,
        request: HttpRequest,
        order: Any,
        lines: Any,
        quantities: Sequence[int],
    ) -> HttpResponse:
        """Refund the money for some of the lines, or do as Oscar does."""
        if self._is_for_tillgate(request, order):
            return self._refund(request, order, lines, quantities)
        # a mixin of Oscar's view
        response: HttpResponse = super().create_payment_event(request, order, lines, quantities)  # type: ignore[misc]
        return response

    def _is_for_tillgate(self, request: HttpRequest, order: Any) -> bool:
        types = get_model("order", "PaymentEventType")._default_manager
        event_type = types.filter(code=request.POST.get("payment_event_type", "")).first()
        return (
            event_type is not None
            and is_refund(event_type)
            and refunded_here(order, state_of(order))
        )

    def _refund(
        self,
        request: HttpRequest,
        order: Any,
        lines: Any = None,
        quantities: Sequence[int] | None = None,
    ) -> HttpResponse:
        """Request a refund and report its result. Without an amount, refund the price of so many of
        each line.
        """
        text, key = request.POST.get("amount", "").strip(), request.POST.get(_KEY)
        repeated = find_repeated(order, key)
        try:
            if not (lines and quantities) or text:
                amount = shop.read_typed(text, order.currency)
            else:  # the price of the lines that are left would be another one after the first press
                amount = repeated.amount if repeated else paid_for(order, lines, quantities)
            if not repeated and not request.POST.get("tillgate_again"):
                _refuse_second_press(order, amount, request.POST.get("tillgate_seen"))
            refund = self.get_handler().handle_payment_event(
                order,
                refund_event_type(),
                amount,
                lines,
                quantities,
                reason=request.POST.get("reason", ""),
                idempotency_key=key,
                newest_refund=request.POST.get("tillgate_seen"),
            )
        except (PaymentError, InvalidPaymentEvent, InvalidRequest) as error:
            messages.error(
                request,
                gettext("Nothing was refunded: %(detail)s.")
                % {"detail": _detail(error).rstrip(".")},
            )
        else:
            # With ATOMIC_REQUESTS the refund is sent after the request's transaction: its result is
            # known only then.
            transaction.on_commit(
                partial(shop.say_refund, request, refund.id, repeated=repeated is not None),
                using=shop.database(),
            )
        # of Oscar's view
        response: HttpResponse = self.reload_page(fragment="payment")  # type: ignore[attr-defined]
        return response


def _refuse_second_press(order: Any, amount: Decimal, seen: str | None) -> None:
    """Raise where the same amount was refunded a moment ago, and staff have not ticked that they
    want it again.
    """
    ours = state_of(order)
    payment = ours.paid_by if ours else None
    if payment is None or not payment.refunds or seen not in (None, payment.refunds[-1].id):
        return  # a newer refund than the page showed refuses this one with its own words
    if said := shop.just_refunded(payment, amount):
        remedy = gettext("To refund it again, tick “%(again)s” before you press the button.")
        raise PaymentError(f"{said} {remedy % {'again': gettext('Refund it again')}}")


def _refund_form(left: Decimal, currency: str) -> shop.RefundForm:
    return shop.RefundForm(Money(left, currency), initial={"amount": left}, auto_id="tillgate_%s")


def _detail(error: Exception) -> str:
    if isinstance(error, InvalidRequest):
        return f"“{error.value}” {error.remedy}"
    # Oscar raises some of its errors without a message
    return str(error) or gettext("more was asked for than was bought")


def _payments(ours: shop.OrderState, request: HttpRequest) -> list[dict[str, Any]]:
    """Return the order's payments for the page, the one that paid it first, then the newest."""
    return [
        {
            "payment": payment,
            "badge": shop.badge_of(payment),
            "method": shop.method_label(payment.method),
            "refunds": [
                {"refund": refund, "badge": shop.badge_of(refund)} for refund in payment.refunds
            ],
            "timeline": shop.timeline(PLUGIN, ours.key, payment_id=payment.id),
            "admin_url": shop.admin_url(request, "payment", payment.id),
        }
        for payment in sorted(
            ours.payments,
            key=lambda one: (one.paid_the_order, int(one.id)),
            reverse=True,
        )
    ]
