"""Notifications: the app stores a bounded number, acknowledges each, and reconciles the payment. Evidence, not truth (I7).

Gateways repeat their notifications, so the cost of each one decides how many a shop can bear. The statements for every notification are
therefore written in SQL here, or built by the ORM once: building them again took most of a notification's time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

from django.db import connections
from django.db.models import Q
from django.utils import timezone

from tillgate import hooks
from tillgate.account import Account
from tillgate.django import dates
from tillgate.django.conf import get_settings
from tillgate.django.models import Notification, NotificationKind, Payment, Refund, Review, database, new_key
from tillgate.django.operations.accounts import account_if_known, dialect_of, find_account, is_made_by, maker_if_known
from tillgate.django.operations.locking import durable, locked_order, outside_transactions
from tillgate.django.operations.outbox import deliver
from tillgate.django.operations.payments import apply_answer, ask, claim_poll
from tillgate.django.operations.refunds import settle_by_notification
from tillgate.django.operations.restores import is_told, look_for_restore, tell_of_lost, was_restored
from tillgate.django.operations.reviews import open_review
from tillgate.errors import AnswerNotUnderstood, ConfigurationError, GatewayError, SignatureMismatch
from tillgate.hooks.boundary import LONGEST_NUMBER
from tillgate.lifecycle import UNSETTLED_REFUND_STATUSES, Found, Inconclusive, PaymentStatus, ReviewReason
from tillgate.wire.dialects import SignatureRule, TransactionStatus
from tillgate.wire.notifications import NOT_READ, NOT_WHOLE, NotificationSignature, confirms_refund, read_notification
from tillgate.wire.notifications import Notification as Received
from tillgate.wire.personal import KEPT_FIELDS, kept_texts
from tillgate.wire.references import is_new_reference
from tillgate.wire.signing import SIGNATURE
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")


class CannotBeJudged(Exception):
    """A notification came that cannot be judged now. It is not kept: it has to come again."""


_ACCOUNT_GONE: Final = "a notification of a refund of %s has to come again: the account that made the payment could not be found"
_LEAST_PAUSE: Final = timedelta(minutes=1)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_ASKED_FOR: Final = timedelta(days=30)
"""So long the worker asks which payment a notification is about."""
_LOOKED_AT: Final = 1000
"""Forged notifications are counted among so many newest ones, which bounds the search."""
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


def receive_unknown(key: str, read: Callable[[], Received | None]) -> Account | None:
    """Receive a notification at an unknown address: the database may have lost the payment, or a refund.

    Return the account that has signed it; None for one without a signature of ours, which leads to nothing. A payment that is here is
    reconciled. Another one waits for the worker. `read` returns None for a text not worth parsing.
    """
    if len(key) != len(new_key()):
        return None
    received = read()
    if received is None or not received.parameters.get(SIGNATURE):
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
    if payment is None:
        _wait_for_worker(alias, [reference], received, account.dialect.kept_fields)
        return account
    with _kept_all_the_same(reference):
        if claim_poll(payment):
            apply_answer(payment, ask(payment, quickly=True), "webhook")
    return account


def receive_webhook(alias: str, headers: Mapping[str, str], body: bytes) -> Account | None:
    """Store what came to the address of an account with each of its payments that it is about.

    One payment is queried at once; the worker does the rest. Return the account, or None for an
    unknown one and for one whose notifications no plugin reads. A `SignatureMismatch` is counted
    and raised again; any other error of the plugin raises `CannotBeJudged`.
    """
    try:
        account = find_account(alias)
    except ConfigurationError:
        return None
    hints = _hints_of(alias, account, headers, body)
    if hints is None:
        return None
    received = read_notification(headers.get("Content-Type", ""), body=body)
    references, numbers = (_names(hints, name) for name in ("reference", "transaction_no"))
    named = Q(reference__in=references) | Q(transaction_no__in=numbers)
    kept = account.dialect.kept_fields
    found = Payment.objects.filter(named, account=alias).order_by("pk")
    for place, payment in enumerate(found):
        payment.maker = account if is_made_by(payment, account) else None
        signature = NotificationSignature.MATCHES
        _receive(
            payment,
            NotificationKind.PAYMENT,
            received,
            "POST",
            signature,
            "webhook",
            kept=kept,
            even_if_paid=True,
            may_query=place == 0,
        )
        _ask_about_refunds(payment)
        references.discard(payment.reference)
        numbers.discard(payment.transaction_no or "")
    ours = {one for one in references if is_new_reference(one)}
    if ours and (was_restored() or look_for_restore()):  # else it is about other software's payment
        ours -= set(Payment.objects.filter(reference__in=ours).values_list("reference", flat=True))
        _wait_for_worker(alias, ours, received, kept)
    numbered = _names([hint for hint in hints if hint.reference is None], "transaction_no")
    _wait_for_worker(alias, numbers & numbered, received, kept)
    return account


def _hints_of(alias: str, account: Account, headers: Mapping[str, str], body: bytes) -> tuple[hooks.Hint, ...] | None:
    """Let the plugin read a notification; whatever fails in it, the gateway is asked to repeat."""
    try:
        return hooks.read_notification(account, headers, body)
    except SignatureMismatch:
        fields = {"account": alias}
        hooks.emit(hooks.Event(name="notification.forged", at=timezone.now(), fields=fields))
        _keep_refused(alias)
        raise
    except AnswerNotUnderstood:
        raise
    except GatewayError as error:
        text = f"a notification at the address of the account {alias!r} has to come again: {error}"
        raise CannotBeJudged(text) from error
    except Exception as error:  # a plugin may raise anything
        _log.exception("the plugin of the account %r failed on a notification", alias)
        text = f"a notification at the address of the account {alias!r} has to come again"
        raise CannotBeJudged(text) from error


def _names(hints: Iterable[hooks.Hint], name: str) -> set[str]:
    """Return the references or numbers of hints. Text that no row can hold names no payment of ours."""
    found = (getattr(hint, name) for hint in hints)
    return {one for one in found if isinstance(one, str) and 0 < len(one) <= LONGEST_NUMBER and storable(one) == one}


def _ask_about_refunds(payment: Payment) -> None:
    """Make unsettled refunds due: a notification may be about one, however often it is repeated."""
    unsettled = Refund.objects.filter(payment=payment, status__in=UNSETTLED_REFUND_STATUSES, due_at__gt=timezone.now())
    unsettled.update(due_at=timezone.now())


def _wait_for_worker(alias: str, names: Iterable[str], received: Received, kept: Collection[str]) -> None:
    """Store a notification about payments that are not known here: the worker asks the gateway."""
    now = timezone.now()
    rows = [
        Notification(
            account=alias,
            unmatched=name,
            due_at=now,
            kind=NotificationKind.PAYMENT,
            slot=0,
            received_at=now,
            method="POST",
            signature=NotificationSignature.MATCHES,
            evidence=_bounded(received, kept),
        )
        for name in sorted(names)
        if name and not is_told(name, alias)
    ]
    if rows:
        # A repeated one finds its row, and brings it forward: it may tell of something new.
        Notification.objects.bulk_create(rows, ignore_conflicts=True)
        named = Notification.objects.filter(account=alias, unmatched__in=[row.unmatched for row in rows])
        named.filter(due_at__gt=now).update(due_at=now, received_at=now)


def find_payment(row: Notification) -> None:
    """Ask the gateway which payment an unmatched notification is about, and make it due.

    The worker's chore about one row, which it has claimed. The row goes when the gateway has
    answered.
    """
    outside_transactions("find_payment")
    now, rows = timezone.now(), Notification.objects.filter(pk=row.pk)
    name, account = row.unmatched or "", account_if_known(row.account)
    is_reference = is_new_reference(name)
    number = None if is_reference else name
    lost = Payment(reference=name, transaction_no=number, account=row.account)
    lost.maker = account
    answer = ask(lost)
    may_wait = now - row.received_at < _ASKED_FOR
    if account is None or (isinstance(answer, Inconclusive) and not is_reference):
        if may_wait:
            rows.update(due_at=now + min(max(_LEAST_PAUSE, now - row.received_at), _LONGEST_PAUSE))
        else:
            rows.delete()
        return
    reference = answer.transaction.reference if isinstance(answer, Found) else name
    is_lost = is_reference or (is_new_reference(reference) and was_restored())
    if not _make_due(row.account, reference, name) and is_lost:
        tell_of_lost(row.account, account, reference, row.evidence, answer)
    rows.delete()


def _make_due(account: str, reference: str, transaction_no: str) -> bool:
    """Let the worker poll the payments of these names now, and return whether there are some."""
    named = Q(reference=reference) | Q(transaction_no=transaction_no)
    payments = Payment.objects.filter(named, account=account)
    for payment in payments:
        _ask_about_refunds(payment)
    return bool(payments.update(next_poll_at=timezone.now()))


def receive_return(key: str, read: Reader, method: str) -> Payment | None:
    """Store a shopper's return and reconcile the payment; return the payment, or None for an unknown address, without reading."""
    payment = Payment.objects.select_related("order").filter(return_key=key).first()
    if payment is None:
        return None
    return _receive(payment, NotificationKind.RETURN, read(), method, NotificationSignature.ABSENT, "return", kept=KEPT_FIELDS)


def receive_refund_notification(key: str, read: Reader, method: str) -> Refund | None:
    """Store a refund notification; a signed one of the documented shape settles a refund (I7, unspecified 14).

    Any other only makes the worker ask soon. Storing and believing happen together, or not at all.
    Raises `CannotBeJudged` when the account for its signature cannot be found.
    """
    refund = Refund.objects.select_related("payment__order").filter(notification_key=key).first()
    if refund is None:
        return None
    refund.payment.maker = account = maker_if_known(refund.payment)
    if account is None:
        _tell_of_unjudged(refund)
        raise CannotBeJudged(_ACCOUNT_GONE % refund.payment.reference)
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
        rows.filter(status__in=UNSETTLED_REFUND_STATUSES).update(due_at=timezone.now())
    with _kept_all_the_same(refund.payment.reference):
        if signature is NotificationSignature.FORGED:
            _tell_of_refused(refund.payment.account, "webhook")
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
    may_query: bool = True,
) -> Payment:
    """Store the `kept` fields of what came, and reconcile the payment.

    A paid one only where the notification says something else of it, or with `even_if_paid`, where
    notifications tell of refunds and disputes. Without `may_query` the worker queries it.
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
            _tell_of_forged(payment, actor)
    if may_ask and not may_query:
        Payment.objects.filter(pk=payment.pk).update(next_poll_at=timezone.now())
    elif may_ask:
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
    received_at = connection.ops.adapt_datetimefield_value(timezone.now())
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


def _tell_of_forged(payment: Payment, actor: str) -> None:
    """Open a review at so many forged notifications of a payment, or of its account."""
    limit = get_settings().forged_notifications_before_review
    if payment.forged_notifications % limit == 0:
        if not _is_told_of_forged(payment.account):
            facts = {"count": payment.forged_notifications}
            reason = ReviewReason.FORGED_NOTIFICATIONS
            with locked_order(payment.order_id) as order:
                open_review(reason, facts, actor, order=order, payment=payment, account=payment.account)
    else:
        _tell_of_refused(payment.account, actor)


def _keep_refused(alias: str) -> None:
    """Keep that the plugin refused a notification at the address of an account, within a bound.

    Strangers can send it: once a review is due, nothing more is written.
    """
    limit = get_settings().forged_notifications_before_review
    if len(refused_since(alias)) < limit:
        forged = Notification.objects.filter(payment=None, account=alias, signature=NotificationSignature.FORGED)
        oldest = forged.order_by("-pk").values_list("pk", flat=True)[limit - 1 :]
        forged.filter(pk__in=list(oldest)).delete()
        Notification.objects.create(
            account=alias,
            kind=NotificationKind.PAYMENT,
            slot=0,
            received_at=timezone.now(),
            method="POST",
            signature=NotificationSignature.FORGED,
        )
    with _kept_all_the_same(alias):
        _tell_of_refused(alias, "webhook")


def _tell_of_refused(alias: str, actor: str) -> None:
    """Open one review where the newest notifications of an account are all forged."""
    rows = _newest_forged(alias)
    limit = get_settings().forged_notifications_before_review
    if len(rows) < limit or _is_told_of_forged(alias):
        return
    refused = [received_at for received_at, _ in rows]
    payments = {payment_id for _, payment_id in rows}
    if len(payments) == 1 and None not in payments:
        return  # the count of the payment itself opens the review, which names it
    since = f"{dates.local(refused[-1]):%Y-%m-%d %H:%M:%S %Z}".rstrip()
    facts = {"case": "account", "account": alias, "count": len(refused), "since": since}
    with durable():
        open_review(ReviewReason.FORGED_NOTIFICATIONS, facts, actor, account=alias)


def _is_told_of_forged(alias: str) -> bool:
    told = Review.objects.filter(reason=ReviewReason.FORGED_NOTIFICATIONS, account=alias)
    return told.filter(resolved_at__isnull=True).exists()


def refused_since(alias: str) -> list[datetime]:
    """Return the times of the newest forged notifications of an account, the newest first.

    None is older than a true one, or than the last closed review about forged ones, and they are
    no more than open a review.
    """
    return [received_at for received_at, _ in _newest_forged(alias)]


def _newest_forged(alias: str) -> list[tuple[datetime, int | None]]:
    kept = Notification.objects.order_by("-pk")
    newest = kept.values_list("pk", flat=True).first() or 0
    reviews = Review.objects.filter(reason=ReviewReason.FORGED_NOTIFICATIONS, account=alias)
    closed = reviews.filter(resolved_at__isnull=False).order_by("-resolved_at")
    since = closed.values_list("resolved_at", flat=True).first()
    judged = kept.filter(
        Q(account=alias) | Q(payment__account=alias),
        pk__gt=newest - _LOOKED_AT,
        signature__in=(NotificationSignature.FORGED, NotificationSignature.MATCHES),
        **({"received_at__gt": since} if since else {}),
    )
    limit = get_settings().forged_notifications_before_review
    rows = judged.values_list("signature", "received_at", "payment_id")[:limit]
    forged = takewhile(lambda row: row[0] == NotificationSignature.FORGED, rows)
    return [(received_at, payment_id) for _, received_at, payment_id in forged]
