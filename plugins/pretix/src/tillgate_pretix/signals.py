"""Receivers for pretix's signals."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Final

from django.db import transaction
from django.db.models.signals import post_save, pre_save
from django.dispatch import receiver
from django.template.loader import get_template
from django.urls import reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from pretix.base.logentrytypes import OrderLogEntryType, log_entry_types
from pretix.base.models import LogEntry, Order, OrderRefund
from pretix.base.notifications import ParametrizedOrderNotificationType
from pretix.base.signals import (
    order_canceled,
    order_changed,
    order_expired,
    order_expiry_changed,
    order_paid,
    order_placed,
    order_reactivated,
    periodic_task,
    register_data_exporters,
    register_data_shredders,
    register_mail_placeholders,
    register_notification_types,
    register_payment_providers,
)
from pretix.control.signals import (
    html_page_start,
    nav_event,
    nav_event_settings,
    order_info,
    order_search_filter_q,
)
from pretix.presale.signals import order_info_top

from tillgate import shop
from tillgate_pretix import accounts, mail, orders, refunds, staff
from tillgate_pretix.configuration import PLUGIN

_WORKER_SECONDS: Final = 300.0
"""The time budget of a worker run: pretix's other periodic tasks wait for it."""


@receiver(register_payment_providers, dispatch_uid="tillgate_pretix_providers")
def providers(sender: Any, **_kwargs: Any) -> list[type[Any]]:
    """Register the providers with pretix."""
    from tillgate_pretix.holder import SettingsHolder
    from tillgate_pretix.provider import PROVIDERS

    return [SettingsHolder, *PROVIDERS]


@receiver(register_data_shredders, dispatch_uid="tillgate_pretix_shredder")
def shredder(sender: Any, **_kwargs: Any) -> type[Any]:
    """Register the shredder with pretix."""
    from tillgate_pretix.personal import Shredder

    return Shredder


@receiver(register_data_exporters, dispatch_uid="tillgate_pretix_exporter")
def exporter(sender: Any, **_kwargs: Any) -> type[Any]:
    """Register the exporter with pretix."""
    from tillgate_pretix.personal import Exporter

    return Exporter


@receiver(nav_event, dispatch_uid="tillgate_pretix_nav")
def navigation(sender: Any, request: Any, **_kwargs: Any) -> list[dict[str, Any]]:
    """Add a link to the open reviews to the event's navigation, with their number."""
    if not request.user.has_event_permission(
        request.organizer,
        sender,
        staff.PERMISSION,
        request=request,
    ):
        return []
    orders_url = reverse(
        "control:event.orders",
        kwargs={"organizer": sender.organizer.slug, "event": sender.slug},
    )
    is_here = request.resolver_match.view_name == "plugins:tillgate_pretix:review"
    count = len(staff.reviews_of_event(sender))
    label = _("Payments that need review")
    return [
        {
            "label": format_lazy("{} ({})", label, count) if count else label,
            "url": staff.page_url(sender),
            "active": is_here,
            "parent": orders_url,
        },
    ]


@receiver(nav_event_settings, dispatch_uid="tillgate_pretix_nav_settings")
def settings_navigation(sender: Any, request: Any, **_kwargs: Any) -> list[dict[str, Any]]:
    """Add a link to the texts of the mails. pretix asks for staff who may change settings."""
    from tillgate_pretix import mail_settings  # its forms are not ready yet when the signals are

    is_here = request.resolver_match.view_name == "plugins:tillgate_pretix:mails"
    url = mail_settings.page_url(sender)
    return [{"label": _("Emails about payments"), "url": url, "active": is_here}]


@receiver(register_mail_placeholders, dispatch_uid="tillgate_pretix_placeholders")
def mail_placeholders(sender: Any, **_kwargs: Any) -> list[Any]:
    """Register the placeholders of our mails."""
    return list(mail.placeholders())


@receiver(register_notification_types, dispatch_uid="tillgate_pretix_notifications")
def notifications(sender: Any, **_kwargs: Any) -> Any:
    """Let staff choose to be notified of a payment that needs review."""
    label = _("Payment needs review")
    title = _("A payment of order {order.code} needs review.")
    return ParametrizedOrderNotificationType(sender, orders.REVIEW_LOGGED, label, title)


@receiver(order_search_filter_q, dispatch_uid="tillgate_pretix_search")
def search(sender: Any, query: str, **_kwargs: Any) -> Any:
    """Find orders by their payments too."""
    return staff.orders_like(query)


@receiver(order_info, dispatch_uid="tillgate_pretix_order_info")
def order_page(sender: Any, order: Any, request: Any, **_kwargs: Any) -> str:
    """Show the open reviews on the page of an order."""
    return staff.order_panel(order, request)


@receiver(html_page_start, dispatch_uid="tillgate_pretix_warnings")
def payment_pages(sender: Any, **_kwargs: Any) -> str:
    """Warn on pretix's pages about payment that attendees cannot pay, and lead from its page about
    mail to ours. pretix sends the request as the sender.
    """
    # here, since pretix's views are not ready yet when the signals are
    from tillgate_pretix import connection, mail_settings

    return connection.warnings_html(sender) or mail_settings.hint_html(sender)


@receiver(order_info_top, dispatch_uid="tillgate_pretix_order_info_top")
def shoppers_order_page(sender: Any, order: Any, request: Any, **_kwargs: Any) -> str:
    """Tell the shopper on the order's page that the money is there, where pretix says only that the
    order expired.
    """
    if order.status == Order.STATUS_PAID or not orders.holds_money(order):
        return ""
    return str(get_template("tillgate_pretix/order_info.html").render({}, request))


@receiver(order_placed, dispatch_uid="tillgate_pretix_placed")
def placed(sender: Any, order: Any, **_kwargs: Any) -> None:
    """Open Tillgate's order when pretix creates a payment, so that Tillgate also knows orders that
    never reach the payment page.
    """
    if any(orders.method_of(theirs.provider) for theirs in order.payments.all()):
        shop.open_order(PLUGIN, orders.bill_of(order))


@receiver(order_expired, dispatch_uid="tillgate_pretix_expired")
@receiver(order_expiry_changed, dispatch_uid="tillgate_pretix_expiry_changed")
def called_unpaid(sender: Any, order: Any, **_kwargs: Any) -> None:
    """Check whether an order that pretix just marked unpaid is paid, or can be paid with money that
    came too late before.
    """
    transaction.on_commit(lambda: orders.stays_paid(order.pk), robust=True)
    sums_changed(sender, order)


@receiver(order_paid, dispatch_uid="tillgate_pretix_paid")
@receiver(order_changed, dispatch_uid="tillgate_pretix_changed")
@receiver(order_canceled, dispatch_uid="tillgate_pretix_canceled")
@receiver(order_reactivated, dispatch_uid="tillgate_pretix_reactivated")
def sums_changed(sender: Any, order: Any, **_kwargs: Any) -> None:
    """Check whether pretix's balance of an order is now even, after any payment, change or
    refund.
    """
    transaction.on_commit(lambda: orders.conclude_order(order.pk), robust=True)


@receiver(post_save, sender=OrderRefund, dispatch_uid="tillgate_pretix_refund")
def refund_saved(sender: Any, instance: Any, **_kwargs: Any) -> None:
    """Pass a decision of staff about a refund to Tillgate."""
    refunds.settled_in_pretix(instance)
    sums_changed(sender, instance.order)


@receiver(periodic_task, dispatch_uid="tillgate_pretix_worker")
def run_worker(sender: Any, **_kwargs: Any) -> None:
    """Run due work whenever pretix runs its periodic tasks. A separate worker process is
    quicker.
    """
    shop.run_worker(seconds=_WORKER_SECONDS)
    orders.all_stay_paid()
    orders.conclude_all()
    orders.review_cancelled_orders()


@receiver(pre_save, sender=LogEntry, dispatch_uid="tillgate_pretix_log")
def log_entry_saved(sender: Any, instance: Any, **_kwargs: Any) -> None:
    """Keep token and secrets out of the history, where pretix writes every setting that is changed
    (I11).
    """
    if instance.action_type != "pretix.event.payment.provider":
        return
    data = json.loads(instance.data or "{}")
    holder = f"payment_{accounts.HOLDER}_"
    secrets = [
        name
        for name in data.get("new_values", {})
        if name.startswith(holder) and name.endswith(accounts.SECRETS)
    ]
    if secrets:
        data["new_values"].update(dict.fromkeys(secrets, "********"))
        instance.data = json.dumps(data, sort_keys=True)


_ABOUT_REFUNDS: Final = {
    refunds.NOT_CANCELLED: _(
        "The refund of payment {reference} goes on: the payment service has accepted it, so it "
        "cannot be cancelled any more.",
    ),
    refunds.MAYBE_TWICE: _(
        "The refund of {amount} of payment {reference} was on its way when it was marked as done, "
        "and the payment service may have made it. If the money was refunded in another way too, "
        "the shopper has it twice.",
    ),
}


@log_entry_types.new()
class ReviewLogEntryType(OrderLogEntryType):  # type: ignore[misc]  # pretix has no types
    """The text of reviews in the order's history, in the language of who reads it."""

    action_type = orders.REVIEW_LOGGED

    def display(self, logentry: Any, data: dict[str, Any]) -> str:
        """Return the title of the review, or the sentence about a refund."""
        reason = str(data.get("reason", ""))
        if reason in _ABOUT_REFUNDS:
            return str(_ABOUT_REFUNDS[reason]).format_map(defaultdict(lambda: "?", data))
        title = shop.review_title(reason) or data.get("message") or "?"
        said = str(_("Payment needs review: {}")).format(title)
        return f"{said} ({data['reference']})" if data.get("reference") else said


@log_entry_types.new_from_dict(
    {
        mail.REFUND_MAILED: _("The shopper was mailed about a refund."),
        mail.PAID_TWICE_MAILED: _("The shopper was mailed that the order was paid twice."),
        mail.HELD_MAILED: _(
            "The shopper was mailed that the money has arrived and has not paid the order.",
        ),
        mail.WAITS_MAILED: _("The shopper was mailed that the payment is on its way."),
        mail.REMINDED: _("The shopper was reminded of a voucher."),
        mail.FAILED_MAILED: _("The shopper was mailed that the payment has not arrived."),
        mail.RETURNED_MAILED: _("The shopper was mailed that a refund came back."),
        mail.DISPUTE_MAILED: _("The shopper was mailed about a lost dispute."),
    },
)
class MailLogEntryType(OrderLogEntryType):  # type: ignore[misc]  # pretix has no types
    """The text of our mail in the order's history."""
