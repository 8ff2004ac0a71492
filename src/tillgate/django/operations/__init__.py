"""The operations: the only code that changes Tillgate's rows.

Locks are taken in one order everywhere, and the order's row alone serialises its payments, refunds and outbox events. A row is written
before the network is used, no transaction is open while it is (I12), and status, timeline and outbox event change together.
"""

from tillgate.django.operations.actions import ActionNotPossible, Done, actions_for, poll_now, take_action, to_withdraw
from tillgate.django.operations.audit import audit
from tillgate.django.operations.notifications import (
    CannotBeJudged,
    receive_payment_notification,
    receive_refund_notification,
    receive_return,
    receive_unknown,
    receive_webhook,
)
from tillgate.django.operations.outbox import deliver, deliver_due, enqueue_remote
from tillgate.django.operations.payments import reconcile
from tillgate.django.operations.refunds import RefundNotPossible, queue_refund, refund, send_refund
from tillgate.django.operations.reviews import resolve
from tillgate.django.operations.starting import NotPayable, Started, StartOutcome, close_order, open_order, start_payment
from tillgate.lifecycle import ReviewAction

__all__ = [
    "ActionNotPossible",
    "CannotBeJudged",
    "Done",
    "NotPayable",
    "RefundNotPossible",
    "ReviewAction",
    "StartOutcome",
    "Started",
    "actions_for",
    "audit",
    "close_order",
    "deliver",
    "deliver_due",
    "enqueue_remote",
    "open_order",
    "poll_now",
    "queue_refund",
    "receive_payment_notification",
    "receive_refund_notification",
    "receive_return",
    "receive_unknown",
    "receive_webhook",
    "reconcile",
    "refund",
    "resolve",
    "send_refund",
    "start_payment",
    "take_action",
    "to_withdraw",
]
