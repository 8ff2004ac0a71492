"""Orders: each order of a shop, and every payment of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from tillgate.django import words
from tillgate.django.masking import Mask
from tillgate.django.models import Order, Payment, Refund
from tillgate.django.pages.admin.base import NewestFilter, ReadOnlyAdmin
from tillgate.django.pages.clerks import clerk_lines
from tillgate.django.pages.searching import Found
from tillgate.django.pages.showing import badge, newest, timeline_of

_PAID = words.Word(_("paid"), "check", "good")
_CLOSED = words.Word(_("closed by the shop"), "lock")
_UNPAID = words.Word(_("not paid"), "clock", "wait")


class _PluginFilter(NewestFilter):
    title = _("plugin")
    parameter_name = "plugin"


@admin.register(Order)
class OrderAdmin(ReadOnlyAdmin[Order]):
    """Orders, the newest first."""

    list_display = ("key", "plugin", "shown_state", "shown_payments", "shown_paid_by", "created_at")
    list_filter = (_PluginFilter, "created_at")
    search_fields = ("key",)
    ordering = ("-id",)
    sortable_by = ("created_at",)
    page_template = "tillgate/admin/order.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Order]:
        """Return orders with the columns of the list, in one statement for any number of orders."""
        orders: QuerySet[Order] = super().get_queryset(request)
        # For the orders on the page alone: a join would group all orders.
        of_order = Payment.objects.filter(order=OuterRef("pk")).order_by().values("order")
        counted = Coalesce(Subquery(of_order.annotate(number=Count("pk")).values("number")), 0)
        return orders.select_related("paid_by").annotate(payment_count=counted)

    def condition_of(self, found: Found) -> Q:
        """Return the condition for the orders of a search."""
        return found.of_orders

    @admin.display(description=_("state"))
    def shown_state(self, order: Order) -> SafeString:
        """Return the state of the order."""
        return badge(_state(order))

    @admin.display(description=_("payments"))
    def shown_payments(self, order: Any) -> int:
        """Return the number of its payments."""
        return int(order.payment_count)

    @admin.display(description=_("paid by"), empty_value="-")
    def shown_paid_by(self, order: Order) -> SafeString | None:
        """Return a link to the payment that paid it."""
        return (
            format_html('<a href="{}">{}</a>', self.page_url(order.paid_by), order.paid_by)
            if order.paid_by
            else None
        )

    def page_context(self, request: HttpRequest, row: Order) -> dict[str, Any]:
        """Return an order, its payments and its timeline."""
        payments = newest(row.payments.all())
        mask = Mask(payments, Refund.objects.filter(payment__order=row).only("notification_key"))
        return {
            "order": row,
            "state": _state(row),
            "tried": payments,
            "payments": [
                (
                    one,
                    words.PAYMENT_STATUSES[one.status],
                    words.method_name(one.method),
                    self.page_url(one),
                )
                for one in payments
            ],
            "lines": clerk_lines(row),
            "timeline": timeline_of(row.timeline.all(), mask),
            "reviews": [
                (one, words.reason(one.reason), mask.text(one.message), self.page_url(one))
                for one in row.reviews.order_by("id")
            ],
        }


def _state(order: Order) -> words.Word:
    if order.paid_by_id:
        return _PAID
    return _CLOSED if order.closed_at else _UNPAID
