"""Notifications: the app stores a bounded number, acknowledges each, and reconciles the payment. Evidence, not truth (I7).

Gateways repeat their notifications, so the cost of each one decides how many a shop can bear. The statements for every notification are
therefore written in SQL here, or built by the ORM once: building them again took most of a notification's time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from django.db import connections
from django.db.models import Q

from tillgate import hooks
from tillgate.account import Account
from tillgate.django import clock
from tillgate.django.conf import get_settings
from tillgate.django.models import Notification, NotificationKind, Payment, Refund, database, new_key
from tillgate.django.operations.accounts import account_if_known, dialect_of, find_account, is_made_by, maker_if_known
from tillgate.django.operations.locking import durable, locked_order
from tillgate.django.operations.outbox import deliver
from tillgate.django.operations.payments import apply_answer, ask, claim_poll
from tillgate.django.operations.refunds import settle_by_notification
from tillgate.django.operations.restores import look_for_restore, tell_of_lost, was_restored
from tillgate.django.operations.reviews import open_review
from tillgate.errors import ConfigurationError, SignatureMismatch
from tillgate.lifecycle import UNSETTLED_REFUND_STATUSES, PaymentStatus, ReviewReason
from tillgate.wire.dialects import SignatureRule, TransactionStatus
from tillgate.wire.notifications import NOT_READ, NOT_WHOLE, NotificationSignature, confirms_refund, read_notification
from tillgate.wire.notifications import Notification as Received
from tillgate.wire.personal import KEPT_FIELDS, kept_texts
from tillgate.wire.references import is_new_reference
from tillgate.wire.signing import SIGNATURE

_log = logging.getLogger("tillgate")


class CannotBeJudged(Exception):
    """A notification of a refund came while the account that made the payment could not be found. It is not kept: it has to come again."""


_NEWEST: Final = 20
"""The accounts of so many payments may have signed a notification at an unknown address, beside those of the settings."""

Reader = Callable[[], Received]
"""Reads what came. Strangers can send it too, so it runs only for a known address."""

_KEPT_PER_PAYMENT: Final = 20
_KEPT_BYTES: Final = 8 * 1024

_COUNT_REPEATED: Final = "UPDATE {payments} SET repeated_notifications = repeated_notifications + 1 WHERE id = %s"
_COUNT: Final = "UPDATE {payments} SET notifications = %s, last_notification = %s WHERE id = %s AND notifications = %s"
_REPLACE: Final = (
    "UPDATE {kept} SET kind = %s, received_at = %s, method = %s, signature = %s, evidence = %s"
    " WHERE payment_id = %s AND slot = %s AND COALESCE(refund_id, 0) = %s"
)
_ADD: Final = (
    "INSERT INTO {kept} (kind, received_at, method, signature, evidence, payment_id, slot, refund_id)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
)


@functools.cache
def _sql(statement: str, alias: str) -> str:
    """Return a statement about our tables, by the names that the project gives them there."""
    quote = connections[alias].ops.quote_name
    return statement.format(payments=quote(Payment._meta.db_table), kept=quote(Notification._meta.db_table))


def receive_payment_notification(key: str, read: Reader, method: str) -> Payment | None:
    """Store a payment notification and reconcile its payment; return the payment, or None for an unknown address, without reading."""
    payment = _find(key)
    if payment is None:
        return None
    received = read()
    payment.maker = account = maker_if_known(payment)
    signature = _signature(account, received)
    kept = account.dialect.kept_fields if account else KEPT_FIELDS
    answered = _receive(payment, NotificationKind.PAYMENT, received, method, signature, "webhook", kept=kept)
    answered.maker = account
    return answered


def receive_unknown(key: str, read: Reader) -> Account | None:
    """Receive a notification at an address that the database does not know: it may have lost the payment, or one of its refunds.

    Return the account that has signed it; None for one without a signature of ours, which leads to nothing. A payment that is here is
    reconciled. About another one a review opens.
    """
    if len(key) != len(new_key()):
        return None
    received = read()
    if not received.parameters.get(SIGNATURE):
        return None
    newest = Payment.objects.order_by("-pk").values_list("account", flat=True)[:_NEWEST]
    for alias in dict.fromkeys([*get_settings().accounts, *newest]):
        account = account_if_known(alias)
        if account is not None and _signature(account, received) is NotificationSignature.MATCHES:
            break
    else:
        return None
    reference = received.parameters.get("reference", "")
    payment = Payment.objects.select_related("order").filter(reference=reference).first()
    with _kept_all_the_same(reference):
        if payment is None:
            tell_of_lost(alias, account, reference, received)
        elif claim_poll(payment):
            apply_answer(payment, ask(payment, quickly=True), "webhook")
    return account


def receive_webhook(alias: str, headers: Mapping[str, str], body: bytes) -> Account | None:
    """Store what came to the address of an account with each of its payments that it is about, and reconcile those.

    Return the account, or None for an unknown one and for one whose notifications no plugin reads. A `SignatureMismatch` is counted as the
    event `notification.forged`, and raised again.
    """
    try:
        account = find_account(alias)
    except ConfigurationError:
        return None
    try:
        hints = hooks.read_notification(account, headers, body)
    except SignatureMismatch:
        hooks.emit(hooks.Event(name="notification.forged", at=clock.now(), fields={"account": alias}))
        raise
    if hints is None:
        return None
    received = read_notification(headers.get("Content-Type", ""), body=body)
    references, numbers = ({getattr(hint, name) for hint in hints} - {None} for name in ("reference", "transaction_no"))
    named = Q(reference__in=references) | Q(transaction_no__in=numbers)
    for payment in Payment.objects.filter(named, account=alias).order_by("pk"):
        payment.maker = account if is_made_by(payment, account) else None
        signature, kept = NotificationSignature.MATCHES, account.dialect.kept_fields
        _receive(payment, NotificationKind.PAYMENT, received, "POST", signature, "webhook", kept=kept, even_if_paid=True)
        unsettled = Refund.objects.filter(payment=payment, status__in=UNSETTLED_REFUND_STATUSES, due_at__gt=clock.now())
        unsettled.update(due_at=clock.now())  # the notification may be about a refund: the worker asks, however often it is repeated
        references.discard(payment.reference)
    ours = {one for one in references if is_new_reference(one)}
    if ours and (was_restored() or look_for_restore()):  # else it is about a payment of other software
        for reference in sorted(ours - set(Payment.objects.filter(reference__in=ours).values_list("reference", flat=True))):
            with _kept_all_the_same(reference):
                tell_of_lost(alias, account, reference, received)
    return account


def receive_return(key: str, read: Reader, method: str) -> Payment | None:
    """Store a shopper's return and reconcile the payment; return the payment, or None for an unknown address, without reading."""
    payment = Payment.objects.select_related("order").filter(return_key=key).first()
    if payment is None:
        return None
    return _receive(payment, NotificationKind.RETURN, read(), method, NotificationSignature.ABSENT, "return", kept=KEPT_FIELDS)


def receive_refund_notification(key: str, read: Reader, method: str) -> Refund | None:
    """Store a refund notification; a signed one of the documented shape settles a refund (I7, unspecified 14).

    Any other only makes the worker ask soon. Storing and believing happen together, or not at all. Raises `CannotBeJudged` when the account for its signature cannot be found.
    """
    refund = Refund.objects.select_related("payment__order").filter(notification_key=key).first()
    if refund is None:
        return None
    refund.payment.maker = account = maker_if_known(refund.payment)
    if account is None:
        _tell_of_unjudged(refund)
        raise CannotBeJudged(refund.payment.reference)
    received = read()
    signature = _signature(account, received)
    confirms = signature is NotificationSignature.MATCHES and confirms_refund(
        received,
        account.dialect,
        reference=refund.payment.reference,
        transaction_no=refund.payment.transaction_no,
        refund_id=refund.refund_id,
        refund_no=refund.refund_no,
        refunded=refund.money,
    )
    with locked_order(refund.payment.order_id) as order:  # before the refund's own row, as everywhere
        rows = Refund.objects.filter(pk=refund.pk)
        refund.notifications = rows.select_for_update().values_list("notifications", flat=True).get() + 1
        rows.update(notifications=refund.notifications, **({"confirmed": True} if confirms else {}))
        kept = _bounded(received, account.dialect.kept_fields)
        _keep(refund.payment, NotificationKind.REFUND, kept, method, signature, refund=refund, count=refund.notifications)
        # In the transaction that stores it: no later run reads a stored notification. Any other notification is a hint to ask.
        has_settled = confirms and settle_by_notification(order, refund.pk)
        rows.filter(status__in=UNSETTLED_REFUND_STATUSES).update(due_at=clock.now())
    with _kept_all_the_same(refund.payment.reference):
        if has_settled:
            deliver(refund.payment.order_id)
    return refund


def _tell_of_unjudged(refund: Refund) -> None:
    """Open a review about a notification that cannot be judged: gateways do not repeat theirs for ever."""
    payment = refund.payment
    facts = {"case": "refund", "amount": refund.amount, "currency": payment.currency, "payment": payment.reference}
    with durable():
        open_review(ReviewReason.ACCOUNT_GONE, facts, "webhook", payment=payment, account=payment.account)


def _find(key: str) -> Payment | None:
    statement, read = _look_up(database())
    with connections[database()].cursor() as cursor:
        cursor.execute(statement, [key])
        row = cursor.fetchone()
    return read(row) if row else None


@functools.cache
def _look_up(alias: str) -> tuple[str, Callable[[tuple[Any, ...]], Payment]]:
    """Return the ORM's statement that finds a payment by its notifications' address, and a function that reads its answer."""
    fields = Payment._meta.concrete_fields
    compiler = Payment.objects.using(alias).filter(notification_key="").query.get_compiler(alias)
    statement, _ = compiler.as_sql()
    converters = compiler.get_converters([field.get_col(Payment._meta.db_table) for field in fields])

    def read(row: tuple[Any, ...]) -> Payment:
        [values] = compiler.apply_converters([row], converters) if converters else [row]
        return Payment.from_db(alias, [field.attname for field in fields], list(values))

    return statement, read


def _receive(
    payment: Payment,
    kind: NotificationKind,
    received: Received,
    method: str,
    signature: NotificationSignature,
    actor: str,
    *,
    kept: Collection[str],
    even_if_paid: bool = False,
) -> Payment:
    """Store the `kept` fields of what came, and reconcile the payment.

    A paid one only where the notification says something else of it, or with `even_if_paid`, where notifications tell of refunds and
    disputes.
    """
    said = _digest(kind, received, method, signature)
    is_forged = signature is NotificationSignature.FORGED
    takes_back = kind is NotificationKind.PAYMENT and not is_forged and _takes_back(payment, received)
    even_if_paid = even_if_paid or takes_back
    if payment.status == PaymentStatus.PAID and payment.last_notification == said and not is_forged and not takes_back:
        with connections[database()].cursor() as cursor:
            cursor.execute(_sql(_COUNT_REPEATED, database()), [payment.pk])
        return payment
    counted = {"notifications": 1, "forged_notifications": 1} if is_forged else {"notifications": 1}
    with durable():
        # The payment's row first: the insert of a notification locks it too, and InnoDB could not raise that lock for two at the same time.
        is_late = not even_if_paid and _is_late(payment, said, is_forged=is_forged)
        may_ask = not is_late and claim_poll(payment, said, even_if_paid=even_if_paid, **counted)
        _keep(payment, kind, _bounded(received, kept), method, signature, count=payment.notifications)
    with _kept_all_the_same(payment.reference):
        if is_forged:
            _raise_forged(payment, actor)
    if may_ask:
        with _kept_all_the_same(payment.reference):
            payment = apply_answer(payment, ask(payment, quickly=True), actor)
    return payment


def _takes_back(payment: Payment, received: Received) -> bool:
    """Return whether a notification of a paid payment gives it another status, such as "reversed": a bank may have taken the money back."""
    word = received.parameters.get("status", "")
    return payment.status == PaymentStatus.PAID and bool(word) and dialect_of(payment).status(word) is not TransactionStatus.PAID


@contextmanager
def _kept_all_the_same(reference: str) -> Iterator[None]:
    """Log every error: the sender's notification is stored. A lock may be held too long, and the worker does the remaining work."""
    try:
        yield
    except Exception:
        _log.exception("what a notification of %s leads to could not be done", reference)


def _digest(kind: NotificationKind, received: Received, method: str, signature: NotificationSignature) -> str:
    """Return a hash that two notifications share which say the same, through the same door."""
    said = [kind.value, method, signature.value, received.fault, sorted(received.evidence().items())]
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def _signature(account: Account | None, received: Received) -> NotificationSignature:
    """Return the state of a notification's signature, by the dialect of the account that made the payment (unspecified 8)."""
    if account is None:
        return NotificationSignature.ABSENT
    rule = account.dialect.notification_signature
    if rule is SignatureRule.IGNORED:
        return NotificationSignature.ABSENT
    signature = received.signature(account.token.get_secret_value())
    if rule is SignatureRule.REQUIRED and signature is NotificationSignature.ABSENT:
        return NotificationSignature.FORGED
    return signature


def _is_late(payment: Payment, said: str, *, is_forged: bool) -> bool:
    """Count a notification of a paid payment that says no more than paid, and return whether it is one. Tail polls find later changes.

    The row is changed as it was read; when it has changed since, it is for `claim_poll` to read it again.
    """
    if payment.status != PaymentStatus.PAID or is_forged:
        return False
    with connections[database()].cursor() as cursor:
        cursor.execute(_sql(_COUNT, database()), [payment.notifications + 1, said, payment.pk, payment.notifications])
        if cursor.rowcount:
            payment.notifications += 1
        return bool(cursor.rowcount)


def _keep(
    payment: Payment,
    kind: NotificationKind,
    evidence: Mapping[str, str],
    method: str,
    signature: NotificationSignature,
    *,
    count: int,
    refund: Refund | None = None,
) -> None:
    """Keep the so manieth notification of a payment or refund in one of its slots, in place of the oldest when all are taken."""
    connection = connections[database()]
    received_at = connection.ops.adapt_datetimefield_value(clock.now())
    kept = [kind.value, received_at, method[:8], signature.value, connection.ops.adapt_json_value(evidence, None)]
    slot, refund_id = (count - 1) % _KEPT_PER_PAYMENT, refund.pk if refund else None
    with connection.cursor() as cursor:
        if count > _KEPT_PER_PAYMENT:
            cursor.execute(_sql(_REPLACE, database()), [*kept, payment.pk, slot, refund_id or 0])
            if cursor.rowcount:
                return
        cursor.execute(_sql(_ADD, database()), [*kept, payment.pk, slot, refund_id])


def _bounded(received: Received, names: Collection[str]) -> dict[str, str]:
    """Return the fields of these names to store, within a bound and without personal data."""
    evidence: dict[str, str] = {}
    size = 0
    for name, value in kept_texts(received.evidence(), names).items():
        size += len(json.dumps([name, value]))
        if size > _KEPT_BYTES:
            evidence[NOT_WHOLE] = "the rest was not kept"
            break
        evidence[name] = value
    if repeated := [name for name in sorted(received.repeated) if name in names]:
        also = ", and the rest" if NOT_WHOLE in evidence else ""
        evidence[NOT_WHOLE] = f"not kept: another value of {', '.join(repeated)}" + also
    if received.fault:
        evidence[NOT_READ] = received.fault
    return evidence


def _raise_forged(payment: Payment, actor: str) -> None:
    """Tell a person at so many forged notifications, and again at as many more when that was resolved."""
    limit = get_settings().forged_notifications_before_review
    if payment.forged_notifications % limit == 0:
        facts = {"count": payment.forged_notifications}
        with locked_order(payment.order_id) as order:
            open_review(ReviewReason.FORGED_NOTIFICATIONS, facts, actor, order=order, payment=payment, account=payment.account)
