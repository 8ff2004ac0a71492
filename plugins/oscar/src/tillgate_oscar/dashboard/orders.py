"""The orders of Oscar's dashboard: in the list the refunded amounts, and on the page the payments,
open reviews, and refunds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import select_template
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from oscar.core.loading import get_model

from tillgate import Money, shop
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.dashboard.cancelling import cancel_paid, needs_choice, show_cancellation
from tillgate_oscar.dashboard.finding import IN_DOUBT, chosen, filters_of, text_of
from tillgate_oscar.dashboard.linking import link_of, make_link
from tillgate_oscar.dashboard.refunding import (
    Wish,
    marks,
    refund_items,
    refund_now,
    refund_rest,
    show_refund,
)
from tillgate_oscar.dashboard.reviewing import cards_of, resolve
from tillgate_oscar.orders import is_expected, state_of
from tillgate_oscar.refunds import (
    MARKS,
    MAY_REFUND,
    Extras,
    doubts_of,
    is_refund,
    paid_for,
    refund_event_type,
    refunded_here,
    refunded_of,
)


class MarkedStatus(str):
    """A status that any template shows with a badge, and that compares as the status alone. Oscar's
    list has no block for a row.
    """

    mark: str

    def __html__(self) -> SafeString:
        """Return the status and the badge, in the classes of Oscar's dashboard."""
        return format_html('{} <span class="badge badge-danger">{}</span>', str(self), self.mark)


class OrderListMixin:
    """Marks refunded orders in the list, on the page and in its file, so they are not shipped;
    finds orders by one box.
    """

    request: HttpRequest

    def get_queryset(self) -> Any:
        """Keep the orders that the search box and the filter leave."""
        # a mixin of Oscar's view
        return super().get_queryset().filter(self._chosen)  # type: ignore[misc]

    @cached_property
    def _chosen(self) -> Q:
        return chosen(self.request)  # a search takes time, and Oscar reads the list twice

    def get(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        """Open the only order that a search finds."""
        if text_of(request) and "response_format" not in request.GET:
            found = self.get_queryset().order_by()[:2]
            numbers = list(found.values_list("number", flat=True))
            if len(numbers) == 1:
                return redirect("dashboard:order-detail", number=numbers[0])
        # a mixin of Oscar's view
        response: HttpResponse = super().get(request, *arguments, **options)  # type: ignore[misc]
        return response

    def get_search_filter_descriptions(self) -> list[str]:
        """Add the words of our search and filter."""
        # a mixin of Oscar's view
        said: list[str] = super().get_search_filter_descriptions()  # type: ignore[misc]
        return [*said, *filters_of(self.request)]

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add a badge to the status of each refunded order."""
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        for order, mark in _marked(context["orders"]):
            order.status = MarkedStatus(order.status)
            order.status.mark = mark
        context["tillgate_find"] = text_of(self.request)
        context["tillgate_in_doubt"] = bool(self.request.GET.get(IN_DOUBT))
        return {**context, "list_page": select_template(super().get_template_names())}  # type: ignore[misc]

    def get_template_names(self) -> list[str]:
        """Show the shop's list, with a table that scrolls within itself on a phone."""
        return ["tillgate_oscar/dashboard/order_list.html"]

    def change_order_status(self, request: HttpRequest, order: Any) -> None:
        """Refuse to cancel a paid order among others: its own page asks about its money."""
        if needs_choice(order, request.POST.get("new_status", "")):
            said = gettext("Order %(number)s is paid. Cancel it on its own page.")
            messages.error(request, said % {"number": order.number})
            return
        # a mixin of Oscar's view
        super().change_order_status(request, order)  # type: ignore[misc]

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
        left = ours.refundable_amount
        may_refund = left and self.request.user.has_perm(MAY_REFUND)
        return context | {
            "order_page": select_template(names),
            "tillgate_payments": _payments(ours, self.request),
            "tillgate_reviews": cards_of(self.request, ours),
            "tillgate_link": link_of(self.request, self.object, ours),
            "tillgate_may_cancel": needs_choice(self.object, get_settings().cancelled_status)
            and get_settings().cancelled_status in self.object.available_statuses(),
            "tillgate_refund_form": _refund_form(left, self.object.currency)
            if may_refund
            else None,
            "tillgate_refunded": refunded_of(self.object, ours),
            "tillgate_doubts": doubts_of([self.object], [ours]).get(ours.key, []),
            "tillgate_refund_type": refund_event_type(),
            **marks(ours.paid_by),
        }

    def get(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        """Show the page that refunds or cancels the order, where the address asks for one."""
        if show := _PAGES.get(request.GET.get("tillgate", "")):
            # of Oscar's view
            order = self.object = self.get_object()  # type: ignore[attr-defined]
            return show(self, request, order)
        # a mixin of Oscar's view
        response: HttpResponse = super().get(request, *arguments, **options)  # type: ignore[misc]
        return response

    def handle_order_action(self, request: HttpRequest, order: Any, action: str) -> HttpResponse:
        """Do the action of a form of ours, or as Oscar does."""
        if own := _ACTIONS.get(action):
            return own(self, request, order)
        # a mixin of Oscar's view
        response: HttpResponse = super().handle_order_action(request, order, action)  # type: ignore[misc]
        return response

    def change_order_status(self, request: HttpRequest, order: Any) -> HttpResponse:
        """Ask about the money before a paid order is cancelled, or do as Oscar does."""
        if needs_choice(order, request.POST.get("new_status", "")):
            return show_cancellation(self, request, order)
        # a mixin of Oscar's view
        response: HttpResponse = super().change_order_status(request, order)  # type: ignore[misc]
        return response

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
        chosen = dict(zip(lines, quantities, strict=True)) if lines and quantities else {}

        def read(repeated: shop.RefundState | None) -> Wish:
            text = request.POST.get("amount", "").strip()
            if not chosen or text:
                amount = shop.read_typed(text, order.currency)
            else:  # the price of the lines that are left would be another one after the first press
                amount = repeated.amount if repeated else paid_for(order, chosen, chosen.values())
            return Wish(amount=amount, quantities=chosen, extras=Extras())

        return refund_now(self, request, order, read)


def _refund_form(left: Decimal, currency: str) -> shop.RefundForm:
    return shop.RefundForm(Money(left, currency), initial={"amount": left}, auto_id="tillgate_%s")


_Own = Callable[[OrderDetailMixin, HttpRequest, Any], HttpResponse]
_PAGES: Final[Mapping[str, _Own]] = {"refund": show_refund, "cancel": show_cancellation}
_ACTIONS: Final[Mapping[str, _Own]] = {
    "tillgate_refund": refund_items,
    "tillgate_refund_rest": refund_rest,
    "tillgate_cancel": cancel_paid,
    "tillgate_review": resolve,
    "tillgate_link": make_link,
}


def _payments(ours: shop.OrderState, request: HttpRequest) -> list[dict[str, Any]]:
    """Return the order's payments for the page, the one that paid it first, then the newest."""
    return [
        {
            "payment": payment,
            "badge": shop.badge_of(payment),
            "summary": shop.payment_summary(PLUGIN, payment.id),
            "refunds": [
                {"refund": refund, "badge": shop.badge_of(refund)} for refund in payment.refunds
            ],
            "lines": shop.clerk_timeline(PLUGIN, ours.key, payment_id=payment.id),
            "timeline": shop.timeline(PLUGIN, ours.key, payment_id=payment.id),
            "admin_url": shop.admin_url(request, "payment", payment.id),
        }
        for payment in sorted(
            ours.payments,
            key=lambda one: (one.paid_the_order, int(one.id)),
            reverse=True,
        )
    ]
