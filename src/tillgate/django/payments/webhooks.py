"""Notifications at an account's own address: they name a payment themselves, or none that is
known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.utils import timezone

from tillgate import hooks
from tillgate.account import Account
from tillgate.django.accounts import account_if_known, find_account, is_made_by
from tillgate.django.conf import get_settings
from tillgate.django.models import Notification, NotificationKind, Payment, Refund, new_key
from tillgate.django.orders.locking import outside_transactions
from tillgate.django.payments.details import is_storable, note_number
from tillgate.django.payments.keeping import bounded, errors_logged, signature_of
from tillgate.django.payments.notifications import receive
from tillgate.django.payments.reconciling import apply_answer, ask, claim_poll
from tillgate.django.payments.refusals import CannotBeJudged, keep_rejected
from tillgate.django.payments.restores import (
    has_review,
    look_for_restore,
    review_lost_payment,
    was_restored,
)
from tillgate.errors import AnswerNotUnderstood, ConfigurationError, GatewayError, SignatureMismatch
from tillgate.lifecycle import UNSETTLED_REFUND_STATUSES, Found, Inconclusive
from tillgate.wire.notifications import Notification as Received
from tillgate.wire.notifications import NotificationSignature, read_notification
from tillgate.wire.references import is_new_reference
from tillgate.wire.signing import SIGNATURE

_log = logging.getLogger("tillgate")

_LEAST_PAUSE: Final = timedelta(minutes=1)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_ASKED_FOR: Final = timedelta(days=30)
"""So long the worker asks which payment a notification is about."""
_NEWEST: Final = 20
"""The accounts of so many payments may have signed a notification at an unknown address, beside
those of the settings.
"""


def receive_unknown(key: str, read: Callable[[], Received | None]) -> Account | None:
    """Receive a notification at an unknown address: the database may have lost the payment, or a
    refund.

    Return the account that has signed it; None for one without a signature of ours, which leads to
    nothing. A payment that is here is reconciled. Another one waits for the worker. `read` returns
    None for a text not worth parsing.
    """
    if len(key) != len(new_key()):
        return None
    received = read()
    if received is None or not received.parameters.get(SIGNATURE):
        return None
    newest = Payment.objects.order_by("-pk").values_list("account", flat=True)[:_NEWEST]
    for alias in dict.fromkeys([*get_settings().accounts, *newest]):
        account = account_if_known(alias)
        if account is not None and signature_of(account, received) is NotificationSignature.MATCHES:
            break
    else:
        return None
    reference = received.parameters.get("reference", "")
    payment = Payment.objects.select_related("order").filter(reference=reference).first()
    if payment is None:
        _wait_for_worker(alias, [reference], received, account.dialect.kept_fields)
        return account
    with errors_logged(reference):
        if claim_poll(payment):
            apply_answer(payment, ask(payment, quickly=True), "webhook")
    return account


def receive_webhook(alias: str, headers: Mapping[str, str], body: bytes) -> Account | None:
    """Store a notification to the address of an account with each payment that it names.

    The first payment is queried now; the worker does the rest. Return the account, or None for an
    unknown one and for one without a plugin that reads its notifications. A `SignatureMismatch` is
    counted and raised again; any other error of the plugin raises `CannotBeJudged`.
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
        payment.known_account = account if is_made_by(payment, account) else None
        signature = NotificationSignature.MATCHES
        note_number(payment, hints)
        receive(
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


def _hints_of(
    alias: str,
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[hooks.Hint, ...] | None:
    """Let the plugin read a notification. After an error in it the gateway has to repeat it."""
    try:
        return hooks.read_notification(account, headers, body)
    except SignatureMismatch:
        fields = {"account": alias}
        hooks.emit(hooks.Event(name="notification.forged", at=timezone.now(), fields=fields))
        keep_rejected(alias)
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
    """Return the references or numbers of hints. Text that no row can hold names no payment of
    ours.
    """
    return {one for one in (getattr(hint, name) for hint in hints) if is_storable(one)}


def _ask_about_refunds(payment: Payment) -> None:
    """Make unsettled refunds due: a notification may be about one, however often it is repeated."""
    unsettled = Refund.objects.filter(
        payment=payment,
        status__in=UNSETTLED_REFUND_STATUSES,
        due_at__gt=timezone.now(),
    )
    unsettled.update(due_at=timezone.now())


def _wait_for_worker(
    alias: str,
    names: Iterable[str],
    received: Received,
    kept: Collection[str],
) -> None:
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
            evidence=bounded(received, kept),
        )
        for name in sorted(names)
        if name and not has_review(name, alias)
    ]
    if rows:
        # A repeated one finds its row, and brings it forward: it may tell of something new.
        Notification.objects.bulk_create(rows, ignore_conflicts=True)
        named = Notification.objects.filter(
            account=alias,
            unmatched__in=[row.unmatched for row in rows],
        )
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
    lost.known_account = account
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
        review_lost_payment(row.account, account, reference, row.evidence, answer)
    rows.delete()


def _make_due(account: str, reference: str, transaction_no: str) -> bool:
    """Let the worker poll the payments of these names now, and return whether there are some."""
    named = Q(reference=reference) | Q(transaction_no=transaction_no)
    payments = Payment.objects.filter(named, account=account)
    for payment in payments:
        _ask_about_refunds(payment)
    return bool(payments.update(next_poll_at=timezone.now()))
