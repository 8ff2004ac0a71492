"""Notifications: the app stores a bounded number, acknowledges each, and reconciles the payment.
Evidence, not truth (I7).

Gateways repeat their notifications, so the cost of a repeated one decides how many a shop can bear.
Its two statements are therefore written in SQL, or built by the ORM once: to build them again took
twice as long as all the rest.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final

from django.db import connections
from django.utils import timezone

from tillgate import hooks
from tillgate.account import Account
from tillgate.django.accounts import dialect_of, known_account_of
from tillgate.django.models import NotificationKind, Payment, Refund, database
from tillgate.django.orders.locking import durable, locked_order
from tillgate.django.outbox.delivering import deliver
from tillgate.django.payments.details import note_number
from tillgate.django.payments.keeping import (
    bounded,
    count_repeated,
    digest,
    errors_logged,
    is_late,
    keep,
    signature_of,
)
from tillgate.django.payments.reconciling import apply_answer, ask, claim_poll
from tillgate.django.payments.refusals import (
    ACCOUNT_GONE,
    CannotBeJudged,
    review_forged,
    review_rejected,
    review_unjudged,
)
from tillgate.django.refunds.settling import settle_by_notification
from tillgate.errors import SignatureMismatch
from tillgate.lifecycle import UNSETTLED_REFUND_STATUSES, PaymentStatus
from tillgate.wire.dialects import TransactionStatus
from tillgate.wire.notifications import Notification as Received
from tillgate.wire.notifications import NotificationSignature, confirms_refund
from tillgate.wire.personal import KEPT_FIELDS
from tillgate.wire.texts import described

_log = logging.getLogger("tillgate")

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
FORGED: Final = NotificationSignature.FORGED

Reader = Callable[[], Received]
"""Reads a request. Strangers can send one too, so it runs only for a known address."""


def receive_payment_notification(
    key: str,
    read: Reader,
    method: str,
    headers: Mapping[str, str] = _NO_HEADERS,
    body: Callable[[], bytes] = bytes,
) -> Payment | None:
    """Store a payment notification and reconcile its payment; return the payment, or None for an
    unknown address, without reading. The plugin of another gateway verifies headers and body.
    """
    payment = _look_up(database())(key)
    if payment is not None:
        received = read()
        payment.known_account = account = known_account_of(payment)
        signature = signature_of(account, received)
        if account is not None and account.dialect.is_of_plugin:
            signature = _verified(payment, account, headers, body())
        kept = account.dialect.kept_fields if account else KEPT_FIELDS
        kind = NotificationKind.PAYMENT
        payment = receive(payment, kind, received, method, signature, "webhook", kept=kept)
        payment.known_account = account
    return payment


def _verified(
    payment: Payment,
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> NotificationSignature:
    """Let the plugin verify a notification to a payment's address, and keep the number that it
    names.

    A notification that it cannot read is still a hint: only the gateway knows the address.
    """
    signature, hints = NotificationSignature.ABSENT, None
    try:
        hints = hooks.read_notification(account, headers, body)
    except SignatureMismatch:
        signature = FORGED
    except Exception as error:  # a plugin may raise anything
        _log.warning("a notification of %s was not read: %s", payment.reference, described(error))
    if hints:
        note_number(payment, hints, is_its_own=True)
        signature = NotificationSignature.MATCHES
    return signature


def receive_return(key: str, read: Reader, method: str) -> Payment | None:
    """Store a shopper's return and reconcile the payment; return the payment, or None for an
    unknown address, without reading.
    """
    payment = Payment.objects.select_related("order").filter(return_key=key).first()
    kind, unsigned = NotificationKind.RETURN, NotificationSignature.ABSENT
    return payment and receive(payment, kind, read(), method, unsigned, "return", kept=KEPT_FIELDS)


def receive_refund_notification(key: str, read: Reader, method: str) -> Refund | None:
    """Store a refund notification; a signed one of the documented shape settles a refund (I7,
    unspecified 14).

    Any other only makes the worker ask soon. Storing and believing happen together, or not at all.
    Raises `CannotBeJudged` when the account for its signature cannot be found.
    """
    refund = Refund.objects.select_related("payment__order").filter(notification_key=key).first()
    if refund is None:
        return None
    refund.payment.known_account = account = known_account_of(refund.payment)
    if account is None:
        review_unjudged(refund)
        raise CannotBeJudged(ACCOUNT_GONE % refund.payment.reference)
    received = read()
    signature = signature_of(account, received)
    confirms = signature is NotificationSignature.MATCHES and confirms_refund(
        received,
        account.dialect,
        reference=refund.payment.reference,
        transaction_no=refund.payment.transaction_no,
        refund_id=refund.refund_id,
        refund_no=refund.refund_no,
        refunded=refund.money,
    )
    # before the refund's own row, as everywhere
    with locked_order(refund.payment.order_id) as order:
        rows = Refund.objects.filter(pk=refund.pk)
        count = rows.select_for_update().values_list("notifications", flat=True).get() + 1
        rows.update(notifications=count, **({"confirmed": True} if confirms else {}))
        refund.notifications = count
        kept = bounded(received, account.dialect.kept_fields)
        kind = NotificationKind.REFUND
        keep(refund.payment, kind, kept, method, signature, refund=refund, count=count)
        # In the transaction that stores it: no later run reads a stored notification. Any other
        # notification is a hint to ask.
        has_settled = confirms and settle_by_notification(order, refund.pk)
        rows.filter(status__in=UNSETTLED_REFUND_STATUSES).update(due_at=timezone.now())
    with errors_logged(refund.payment.reference):
        if signature is FORGED:
            review_rejected(refund.payment.account, "webhook")
        if has_settled:
            deliver(refund.payment.order_id)
    return refund


@functools.cache
def _look_up(alias: str) -> Callable[[str], Payment | None]:
    """Return a function that finds a payment by its notifications' address. The ORM makes its
    statement once.
    """
    fields = Payment._meta.concrete_fields
    compiler = Payment.objects.using(alias).filter(notification_key="").query.get_compiler(alias)
    statement, _ = compiler.as_sql()
    converters = compiler.get_converters(
        [field.get_col(Payment._meta.db_table) for field in fields],
    )

    def find(key: str) -> Payment | None:
        with connections[alias].cursor() as cursor:
            cursor.execute(statement, [key])
            rows = cursor.fetchmany(1)
        if converters:
            rows = compiler.apply_converters(rows, converters)
        names = [field.attname for field in fields]
        return next((Payment.from_db(alias, names, list(values)) for values in rows), None)

    return find


def receive(
    payment: Payment,
    kind: NotificationKind,
    received: Received,
    method: str,
    signature: NotificationSignature,
    actor: str,
    *,
    kept: Collection[str],
    even_if_paid: bool = False,
    may_query: bool = True,
) -> Payment:
    """Store the `kept` fields of a notification, and reconcile the payment.

    A paid one only where the notification says something else of it, or with `even_if_paid`, where
    notifications tell of refunds and disputes. Without `may_query` the worker queries it.
    """
    hashed, is_forged = digest(kind, received, method, signature), signature is FORGED
    is_paid, word = payment.status == PaymentStatus.PAID, received.parameters.get("status", "")
    # another status than paid, such as "reversed": a bank may have taken the money back
    takes_back = (
        kind is NotificationKind.PAYMENT
        and is_paid
        and not is_forged
        and word != ""
        and dialect_of(payment).status(word) is not TransactionStatus.PAID
    )
    is_repeated = is_paid and payment.last_notification == hashed
    if is_repeated and not is_forged and not takes_back:
        count_repeated(payment)
        return payment
    even_if_paid = even_if_paid or takes_back
    counted = {"notifications": 1, "forged_notifications": 1} if is_forged else {"notifications": 1}
    with durable():
        # The payment's row first: the insert of a notification locks it too, and InnoDB could not
        # raise that lock for two at the same time.
        waits = not even_if_paid and is_late(payment, hashed, is_forged=is_forged)
        may_ask = not waits and claim_poll(
            payment,
            hashed,
            even_if_paid=even_if_paid,
            column="last_returned_at" if kind is NotificationKind.RETURN else "last_polled_at",
            counted=counted,
        )
        keep(payment, kind, bounded(received, kept), method, signature, count=payment.notifications)
    if is_forged:
        with errors_logged(payment.reference):
            review_forged(payment, actor)
    if may_ask and not may_query:
        Payment.objects.filter(pk=payment.pk).update(next_poll_at=timezone.now())
    elif may_ask:
        with errors_logged(payment.reference):
            payment = apply_answer(payment, ask(payment, quickly=True), actor)
    return payment
