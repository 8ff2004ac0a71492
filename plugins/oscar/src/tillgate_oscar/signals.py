"""What is listened to: an order's status, its row being saved, and the rows that Oscar's dashboard needs."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import transaction
from django.db.models.signals import post_migrate, pre_save
from oscar.apps.order.signals import order_status_changed
from oscar.core.loading import get_model

from tillgate.django import operations
from tillgate_oscar import mail
from tillgate_oscar.conf import get_settings
from tillgate_oscar.orders import is_expected, paid_by
from tillgate_oscar.plugin import PLUGIN

__all__ = ["connect"]


def connect(config: AppConfig) -> None:
    """Connect the receivers, once."""
    order_status_changed.connect(follow_status, dispatch_uid="tillgate_oscar")
    pre_save.connect(keep_paid, sender=get_model("order", "Order"), dispatch_uid="tillgate_oscar")
    post_migrate.connect(create_event_types, sender=config, dispatch_uid="tillgate_oscar")


def follow_status(order: Any, old_status: str, new_status: str, **_: Any) -> None:
    """Follow the staff, and the shop's own code, when they cancel an order, let it wait again or mark it paid by hand.

    After commit, since it locks Tillgate's order, which deliveries lock before Oscar's. Should it be lost with the process, the status
    itself still keeps the order from being paid.
    """
    settings = get_settings()
    if new_status in (settings.pending_status, settings.paid_status, settings.cancelled_status) and is_expected(order):
        transaction.on_commit(lambda: _follow(order.number, old_status, new_status), using=order._state.db, robust=True)


def _follow(number: str, old_status: str, new_status: str) -> None:
    settings, cause = get_settings(), f"status:{new_status}"
    if old_status == settings.pending_status:
        if new_status == settings.paid_status and not mail.is_confirmed(number):
            mail.confirm(number)
    elif new_status != settings.paid_status:
        # The time to look at it may have passed while it did not wait: it would hold its stock for ever.
        operations.expect(PLUGIN, number, cause)
    if new_status == settings.cancelled_status:
        operations.close(PLUGIN, number, cause)


def keep_paid(*, instance: Any, raw: bool, using: str, update_fields: Any, **_: Any) -> None:
    """Keep the status of an order that was paid while somebody had its row open, and saves the whole of it as it was read.

    Oscar's pages in Django's admin do so: the order would wait again, and be cancelled in the end, though its money is here.
    """
    pending = get_settings().pending_status
    if raw or update_fields is not None or instance.pk is None or instance.status != pending:
        return
    rows = type(instance)._base_manager.using(using).filter(pk=instance.pk).exclude(status=pending)
    stored = rows.values_list("status", flat=True).first()
    if stored is not None and paid_by(instance):
        instance.status = stored


def create_event_types(using: str, **_: Any) -> None:
    """Create the types of payment events: Oscar's dashboard offers a refund only when its type is there."""
    settings, types = get_settings(), get_model("order", "PaymentEventType")._default_manager.using(using)
    for name in (settings.paid_event, settings.refund_event):
        types.get_or_create(name=name)
