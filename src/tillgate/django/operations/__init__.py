"""The operations: the only code that changes Tillgate's rows.

Locks are taken in one order everywhere, and the order's row alone serialises its payments, refunds and deliveries. A row is written before
the network is used, no transaction is open while it is (I12), and status, timeline and delivery change together.
"""

from tillgate.django.operations.acts import Act, ActNotPossible, Done, acts_for, look_again, perform, to_withdraw
from tillgate.django.operations.attention import resolve
from tillgate.django.operations.audit import audit
from tillgate.django.operations.deliveries import deliver, deliver_due, enqueue_remote
from tillgate.django.operations.notices import CannotBeJudged, receive_payment_notice, receive_refund_notice, receive_return
from tillgate.django.operations.payments import reconcile
from tillgate.django.operations.refunds import RefundNotPossible, queue_refund, refund, send_refund
from tillgate.django.operations.starting import NotPayable, Started, StartOutcome, close, expect, start
from tillgate.django.operations.sweep import sweep

__all__ = [
    "Act",
    "ActNotPossible",
    "CannotBeJudged",
    "Done",
    "NotPayable",
    "RefundNotPossible",
    "StartOutcome",
    "Started",
    "acts_for",
    "audit",
    "close",
    "deliver",
    "deliver_due",
    "enqueue_remote",
    "expect",
    "look_again",
    "perform",
    "queue_refund",
    "receive_payment_notice",
    "receive_refund_notice",
    "receive_return",
    "reconcile",
    "refund",
    "resolve",
    "send_refund",
    "start",
    "sweep",
    "to_withdraw",
]
