"""What is listened to: the staff closing an order, and the rows that Oscar's dashboard needs."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.apps import AppConfig
from django.db import transaction
from django.db.models.signals import post_migrate
from oscar.apps.order.signals import order_status_changed
from oscar.core.loading import get_model

from tillgate.django import operations
from tillgate_oscar.conf import get_settings
from tillgate_oscar.orders import is_expected
from tillgate_oscar.plugin import PLUGIN

__all__ = ["connect"]


def connect(config: AppConfig) -> None:
    """Connect the receivers, once."""
    order_status_changed.connect(close_what_left_pending, dispatch_uid="tillgate_oscar")
    post_migrate.connect(create_event_types, sender=config, dispatch_uid="tillgate_oscar")


def close_what_left_pending(order: Any, old_status: str, new_status: str, **_: Any) -> None:
    """Let no payment start for an order that the staff cancelled or took out of the pending status otherwise.

    After commit, since it locks Tillgate's order, which deliveries lock before Oscar's. Should it be lost, the status itself still keeps
    the order from being paid.
    """
    settings = get_settings()
    if old_status == settings.pending_status and new_status != settings.paid_status and is_expected(order):
        transaction.on_commit(partial(operations.close, PLUGIN, order.number, f"status:{new_status}"), using=order._state.db, robust=True)


def create_event_types(using: str, **_: Any) -> None:
    """Create the types of payment events: Oscar's dashboard offers a refund only when its type is there."""
    settings, types = get_settings(), get_model("order", "PaymentEventType")._default_manager.using(using)
    for name in (settings.paid_event, settings.refund_event):
        types.get_or_create(name=name)
