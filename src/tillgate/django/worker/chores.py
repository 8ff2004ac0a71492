"""The table of chores: every kind of due work. A new one is a row here; the runner does the rest.

The order of the rows is the order of the turns in a lane. Events that have failed have a lane of
their own, after all others and after staff's mail, and are claimed alone: one that hangs keeps no
other waiting.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    OutboxEventKind,
    Payment,
    Refund,
)
from tillgate.django.orders.locking import locked_order
from tillgate.django.orders.status import queue_event
from tillgate.django.outbox import attempts, delivering, handlers, remote
from tillgate.django.payments.restores import look_for_restore
from tillgate.django.payments.webhooks import find_payment
from tillgate.django.refunds.sending import mark_lost, poll_refund
from tillgate.django.worker.polls import poll
from tillgate.django.worker.retention import purge_order
from tillgate.django.worker.runner import Chore, each
from tillgate.django.worker.sends import send_unless_made
from tillgate.lifecycle import UNSETTLED_REFUND_STATUSES, RefundStatus

SHOP: Final = ":shop"
REMOTE: Final = ":remote"
STAFF: Final = ":staff"
AGAIN: Final = ":again"
PURGE: Final = ":purge"
OWN_LANES: Final = (SHOP, REMOTE, STAFF, AGAIN, PURGE)
"""The lanes beside the accounts', in the order of their turns. Staff's has mail and no chores."""

_FRESH: Final = Q(attempts=0, begun_at=None)


def _refunds_to_send() -> QuerySet[Refund]:
    return Refund.objects.filter(status=RefundStatus.QUEUED)


def _unsettled_refunds() -> QuerySet[Refund]:
    return Refund.objects.filter(status__in=UNSETTLED_REFUND_STATUSES)


def _lost_refunds() -> QuerySet[Refund]:
    return Refund.objects.filter(status=RefundStatus.SENDING)


def first_of_each_order(*, is_remote: bool) -> QuerySet[OutboxEvent]:
    """Return the local or the remote events that wait for no older one of their order."""
    kind = Q(kind=OutboxEventKind.REMOTE) if is_remote else ~Q(kind=OutboxEventKind.REMOTE)
    waiting = OutboxEvent.objects.filter(kind, done_at__isnull=True, created_at__lte=timezone.now())
    return waiting.filter(~Exists(waiting.filter(order=OuterRef("order"), pk__lt=OuterRef("pk"))))


def _events() -> QuerySet[OutboxEvent]:
    return first_of_each_order(is_remote=False).filter(_FRESH)


def _failed_events() -> QuerySet[OutboxEvent]:
    return first_of_each_order(is_remote=False).exclude(_FRESH)


def _remote_events() -> QuerySet[OutboxEvent]:
    return (
        first_of_each_order(is_remote=True)
        .filter(_FRESH)
        .select_related("payment", "refund__payment")
    )


def _failed_remote_events() -> QuerySet[OutboxEvent]:
    return (
        first_of_each_order(is_remote=True)
        .exclude(_FRESH)
        .select_related("payment", "refund__payment")
    )


def _send(refund: Refund, _: datetime) -> None:
    # A refund that another server sent already is unknown by now, and is not sent.
    look_for_restore()
    send_unless_made(refund.pk)


def _ask_about(refund: Refund, _: datetime) -> None:
    poll_refund(refund.pk)


def _find_payment(notification: Notification, _: datetime) -> None:
    find_payment(notification)


def _mark_lost(refund: Refund, _: datetime) -> None:
    mark_lost(refund.pk)


def _queue_unpaid(claimed: Order, leased_until: datetime) -> int:
    """Queue "the order is unpaid" for an unpaid order after its time to pay again; return how many
    were queued.
    """
    with locked_order(claimed.pk) as order:
        if order.unpaid_check_at != leased_until:
            return 0  # another process has set another time
        is_unpaid = handlers.is_unpaid(order)
        order.unpaid_check_at = None
        if is_unpaid:
            order.tried_since = None  # a shop that still offers the order begins a new time to pay
            queue_event(order, OutboxEventKind.ORDER_UNPAID)
        order.save(update_fields=["unpaid_check_at", "tried_since"])
    return int(is_unpaid)


def _carry_again(claimed: OutboxEvent, leased_until: datetime) -> int:
    """Carry a remote event that has failed before, and those that wait behind it."""
    carried = remote.carry_claimed(claimed, leased_until)
    return carried and carried + remote.deliver_remote(claimed.order_id)


def _purge(claimed: Order, leased_until: datetime) -> int:
    return int(purge_order(claimed.pk, leased_until))


_of_events: Final[dict[str, Any]] = {"due": "due_at", "mark": "begun_at", "lease": attempts.LEASE}

EVENTS: Final = Chore(
    name="events",
    label=_("Shop events to deliver"),
    rows=_events,
    lane=SHOP,
    at_once=8,  # handlers may be slow, and the lease is for all of them
    do=partial(each, delivering.deliver_claimed),
    **_of_events,
)

CHORES: Final = (
    Chore(
        name="refunds to send",
        label=_("Refunds to send"),
        rows=_refunds_to_send,
        due="due_at",
        account="payment__account",
        order="payment__order",
        do=partial(each, _send),
    ),
    Chore(
        name="refunds to ask about",
        label=_("Refunds to ask about"),
        rows=_unsettled_refunds,
        due="due_at",
        account="payment__account",
        order="payment__order",
        do=partial(each, _ask_about),
    ),
    Chore(
        name="unmatched notifications",
        label=_("Notifications without a payment"),
        rows=Notification.objects.all,
        due="due_at",
        account="account",
        order="",
        do=partial(each, _find_payment),
    ),
    Chore(
        name="payments",
        label=_("Payments to poll"),
        rows=Payment.objects.all,
        due="next_poll_at",
        account="account",
        do=poll,
        then=EVENTS,
    ),
    Chore(
        name="lost refunds",
        label=_("Refunds whose process ended"),
        rows=_lost_refunds,
        due="due_at",
        lane=SHOP,
        order="payment__order",
        do=partial(each, _mark_lost),
    ),
    Chore(
        name="unpaid orders",
        label=_("Unpaid orders to check"),
        rows=Order.objects.all,
        due="unpaid_check_at",
        lane=SHOP,
        order="",
        do=partial(each, _queue_unpaid),
    ),
    EVENTS,
    Chore(
        name="failed events",
        label=_("Shop events to try again"),
        rows=_failed_events,
        lane=AGAIN,
        at_once=1,
        do=partial(each, delivering.deliver_claimed),
        **_of_events,
    ),
    Chore(
        name="remote events",
        label=_("Remote events to send"),
        rows=_remote_events,
        lane=REMOTE,
        at_once=8,
        do=partial(each, remote.carry_claimed),
        **_of_events,
    ),
    Chore(
        name="failed remote events",
        label=_("Remote events to try again"),
        rows=_failed_remote_events,
        lane=AGAIN,
        at_once=1,
        do=partial(each, _carry_again),
        **_of_events,
    ),
    Chore(
        name="orders to purge",
        label=_("Orders whose details are old"),
        rows=Order.objects.all,
        due="purge_check_at",
        lane=PURGE,
        order="",
        do=partial(each, _purge),
    ),
)
"""Every kind of due work of rows. Staff's mail and alerts have their turns in `run.py`."""
