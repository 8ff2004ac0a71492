"""Summaries: everything that a page of staff says about one payment."""

from __future__ import annotations

from tillgate.django.models import Payment
from tillgate.django.pages.summaries import DisputeSummary, PaymentSummary, summary_of

__all__ = ["DisputeSummary", "PaymentSummary", "payment_summary"]


def payment_summary(plugin: str, payment_id: str) -> PaymentSummary | None:
    """Return everything that a page of staff says about a payment of the plugin's orders, or None.

    It calls the plugin's `tillgate_describe_order`. The template `tillgate/staff/summary.html`
    shows it: include it with the variable `summary`.
    """
    chosen = Payment.objects.select_related("order").prefetch_related("numbers")
    payment = chosen.filter(order__plugin=plugin, pk=int(payment_id)).first()
    return summary_of(payment) if payment else None
