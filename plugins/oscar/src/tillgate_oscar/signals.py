"""Signal receivers: they register new orders, follow statuses and the saving of rows, and create
the rows that Oscar's dashboard needs.
"""

from __future__ import annotations

from typing import Any, Final

from django.apps import AppConfig, apps
from django.db import transaction
from django.db.models import Model
from django.db.models.signals import class_prepared, post_migrate, post_save, pre_save
from oscar.apps.order.signals import order_status_changed
from oscar.core.loading import get_model

from tillgate_oscar import mail
from tillgate_oscar.conf import get_settings
from tillgate_oscar.following import follow, follow_written, warn_of_doubt
from tillgate_oscar.orders import is_expected, is_paid_here, status_once_paid, statuses_of_unpaid
from tillgate_oscar.payments import is_being_paid
from tillgate_oscar.placing import register_placed

_STORED: Final = "_tillgate_stored_status"
"""On a copy of an order while it is saved: the status that its row had before."""


def connect(config: AppConfig) -> None:
    """Connect the receivers, once."""
    order_status_changed.connect(follow_status, dispatch_uid="tillgate_oscar")
    for model in apps.get_models():
        listen_to(model)
    class_prepared.connect(listen_to, dispatch_uid="tillgate_oscar")
    post_migrate.connect(create_event_types, sender=config, dispatch_uid="tillgate_oscar")


def listen_to(sender: type[Model], **_: Any) -> None:
    """Connect the receivers for the saving of orders, also through proxy models that a shop's admin
    may define.
    """
    if issubclass(sender, get_model("order", "Order")):
        post_save.connect(register_placed, sender=sender, dispatch_uid="tillgate_oscar_placed")
        pre_save.connect(keep_paid, sender=sender, dispatch_uid="tillgate_oscar")
        post_save.connect(keep_paid_meanwhile, sender=sender, dispatch_uid="tillgate_oscar")
        post_save.connect(
            follow_what_was_written,
            sender=sender,
            dispatch_uid="tillgate_oscar_written",
        )


def follow_status(order: Any, old_status: str, new_status: str, **_: Any) -> None:
    """Follow staff and the shop's own code when they cancel an order, let it wait again or mark it
    paid by hand.

    This runs after commit, because it locks Tillgate's order, and outbox events lock that before
    Oscar's order. If the process dies before, the status alone still keeps the order from being
    paid.
    """
    followed = {get_settings().paid_status, *statuses_of_unpaid(order)}
    if new_status in followed and not is_being_paid(order.number) and is_expected(order):
        transaction.on_commit(
            lambda: _follow(order, old_status, new_status),
            using=order._state.db,
            robust=True,
        )
    elif new_status not in followed and is_expected(order):
        transaction.on_commit(
            lambda: warn_of_doubt(order, new_status),
            using=order._state.db,
            robust=True,
        )


def _follow(order: Any, old_status: str, new_status: str) -> None:
    follow(order.number, old_status, new_status)
    if old_status == get_settings().pending_status:
        # an order that was paid in between stays paid, also when this copy is saved again
        order.refresh_from_db(fields=["status"])


def follow_what_was_written(
    *,
    instance: Any,
    raw: bool,
    created: bool,
    using: str,
    **_: Any,
) -> None:
    """Follow a status that was saved without `set_status`, in a transaction like that of Django's
    admin.

    Either staff typed it there, or they changed another field of a row that was read some time ago.
    """
    stored, status = vars(instance).pop(_STORED, None), vars(instance).get("status")
    if (
        raw
        or created
        or stored in (None, status)
        or is_being_paid(instance.number)
        or not transaction.get_connection(using).in_atomic_block
        or not is_expected(instance)
    ):
        return

    transaction.on_commit(
        lambda: follow_written(instance.number, stored, status),
        using=using,
        robust=True,
    )


def keep_paid(*, instance: Any, raw: bool, using: str, update_fields: Any, **_: Any) -> None:
    """Keep the status of an order that was paid while a stale copy of its row was open, when that
    copy is saved as a whole.

    Oscar's pages in Django's admin save whole rows: the paid order would wait again, and in the end
    be cancelled although its money has arrived.
    """
    if raw or instance.pk is None or not _is_written(instance, update_fields):
        return
    if is_being_paid(instance.number):
        return
    rows = type(instance)._base_manager.using(using).filter(pk=instance.pk)
    stored = vars(instance)[_STORED] = rows.values_list("status", flat=True).first()
    if stored not in (None, instance.status) and _waits(instance) and is_paid_here(instance):
        instance.status = stored


def keep_paid_meanwhile(
    *,
    instance: Any,
    raw: bool,
    created: bool,
    using: str,
    update_fields: Any,
    **_: Any,
) -> None:
    """Keep the order paid if the payment came after that check: saving waited for its lock, and
    then overwrote the status.

    A mail that was due in between was dropped, so it is queued again.
    """
    if (
        raw
        or created
        or not _is_written(instance, update_fields)
        or not _waits(instance)
        or not is_paid_here(instance)
    ):
        return
    paid = status_once_paid(instance)
    type(instance)._base_manager.using(using).filter(pk=instance.pk, status=instance.status).update(
        status=paid,
    )
    instance.status = paid
    transaction.on_commit(lambda: mail.confirm_again(instance.number), using=using, robust=True)


def _is_written(order: Any, update_fields: Any) -> bool:
    """Tell whether saving an order writes its status. If a row was read without some fields, Django
    names the fields that it writes.
    """
    return (update_fields is None or "status" in update_fields) and "status" in vars(order)


def _waits(order: Any) -> bool:
    return bool(order.status == get_settings().pending_status)


def create_event_types(using: str, **_: Any) -> None:
    """Create the types of our events: Oscar's dashboard offers a refund, and the templates of a
    mail, only when its type is there.
    """
    settings, types = (
        get_settings(),
        get_model("order", "PaymentEventType")._default_manager.using(using),
    )
    for name in (settings.paid_event, settings.refund_event):
        types.get_or_create(name=name)
    for code, name in mail.EVENT_TYPES.items():
        get_model("communication", "CommunicationEventType")._default_manager.using(
            using,
        ).get_or_create(code=code, defaults={"name": name})
