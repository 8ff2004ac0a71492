"""Notices: what arrives from outside is kept within a bound, acknowledged, and leads to `reconcile`. Evidence, not truth (I7).

Gateways repeat their notices, so what each one costs decides how many a shop can bear. The statements that every notice needs are
therefore written in SQL here, or by the ORM once: building them anew took most of a notice's time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import connections

from tillgate.account import Account
from tillgate.django import clock
from tillgate.django.conf import get_settings
from tillgate.django.models import Notice, NoticeKind, Payment, Refund
from tillgate.django.operations.accounts import maker_if_known
from tillgate.django.operations.attention import raise_attention
from tillgate.django.operations.deliveries import deliver
from tillgate.django.operations.locking import database, durable, locked_order
from tillgate.django.operations.payments import apply_answer, ask, claim_look
from tillgate.django.operations.refunds import settle_by_notice
from tillgate.lifecycle import AttentionReason, PaymentStatus
from tillgate.wire.dialects import SignatureRule
from tillgate.wire.notices import NOT_READ, NOT_WHOLE, NoticeSignature, confirms_refund
from tillgate.wire.notices import Notice as Received

_log = logging.getLogger("tillgate")

__all__ = ["CannotBeJudged", "receive_payment_notice", "receive_refund_notice", "receive_return"]


class CannotBeJudged(Exception):
    """A notice of a refund came while the account that made the payment could not be found. It is not kept: it has to come again."""


_KEPT_PER_PAYMENT: Final = 20
_KEPT_BYTES: Final = 8 * 1024

_COUNT_REPEATED: Final = "UPDATE {payments} SET repeated_notices = repeated_notices + 1 WHERE id = %s"
_COUNT: Final = "UPDATE {payments} SET notices = %s, last_notice = %s WHERE id = %s AND notices = %s"
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
    return statement.format(payments=quote(Payment._meta.db_table), kept=quote(Notice._meta.db_table))


def receive_payment_notice(key: str, received: Received, method: str) -> Payment | None:
    """Keep a payment notice and look at its payment; return the payment, or None when nobody has that address."""
    payment = _find(key)
    if payment is None:
        return None
    signature = _signature(maker_if_known(payment), received)
    return _receive(payment, NoticeKind.PAYMENT, received, method, signature, cause="notice")


def receive_return(key: str, received: Received, method: str) -> Payment | None:
    """Keep a shopper's return and look at the payment; return the payment, or None when nobody has that address."""
    payment = Payment.objects.using(database()).select_related("order").filter(return_key=key).first()
    if payment is None:
        return None
    return _receive(payment, NoticeKind.RETURN, received, method, NoticeSignature.ABSENT, cause="return")


def receive_refund_notice(key: str, received: Received, method: str) -> Refund | None:
    """Keep a refund notice; it may settle a refund of unknown outcome, since only the gateway knows the address (I7, silence 14).

    What it says is kept and believed together, or not at all: raises `CannotBeJudged` when nobody can tell what its signature is worth.
    """
    refund = Refund.objects.using(database()).select_related("payment__order").filter(notice_key=key).first()
    if refund is None:
        return None
    account = maker_if_known(refund.payment)
    if account is None:
        _tell_of_unjudged(refund)
        raise CannotBeJudged(refund.payment.reference)
    signature = _signature(account, received)
    says_done = confirms_refund(_bounded(received), account.dialect, refund.payment.reference)
    confirms = says_done and signature is not NoticeSignature.FORGED
    with locked_order(refund.payment.order_id) as order:  # before the refund's own row, like everybody who wants both
        rows = Refund.objects.using(database()).filter(pk=refund.pk)
        refund.notices = rows.select_for_update().values_list("notices", flat=True).get() + 1
        rows.update(notices=refund.notices, **({"confirmed": True} if confirms else {}))
        _keep(refund.payment, NoticeKind.REFUND, received, method, signature, refund=refund, count=refund.notices)
        # Together with keeping it: nobody would come back to what it says.
        has_settled = confirms and settle_by_notice(order, refund.pk)
    with _kept_all_the_same(refund.payment.reference):
        if has_settled:
            deliver(refund.payment.order_id)
    return refund


def _tell_of_unjudged(refund: Refund) -> None:
    """Tell a person of a notice that nobody can judge: gateways do not repeat theirs for ever."""
    payment = refund.payment
    sentence = (
        f"Account {payment.account}: it could not be found, or is another merchant's by now, when a notice came of the refund of "
        f"USD {refund.amount} of payment {payment.reference}. If the notice does not come again, look at the gateway whether it was done."
    )
    with durable():
        raise_attention(AttentionReason.ACCOUNT_GONE, sentence, "notice", payment=payment, account=payment.account)


def _find(key: str) -> Payment | None:
    statement, read = _look_up(database())
    with connections[database()].cursor() as cursor:
        cursor.execute(statement, [key])
        row = cursor.fetchone()
    return read(row) if row else None


@functools.cache
def _look_up(alias: str) -> tuple[str, Callable[[tuple[Any, ...]], Payment]]:
    """Return the ORM's statement that finds a payment by its notices' address, and what makes a payment of its answer."""
    fields = Payment._meta.concrete_fields
    compiler = Payment.objects.using(alias).filter(notice_key="").query.get_compiler(alias)
    statement, _ = compiler.as_sql()
    converters = compiler.get_converters([field.get_col(Payment._meta.db_table) for field in fields])

    def read(row: tuple[Any, ...]) -> Payment:
        [values] = compiler.apply_converters([row], converters) if converters else [row]
        return Payment.from_db(alias, [field.attname for field in fields], list(values))

    return statement, read


def _receive(payment: Payment, kind: NoticeKind, received: Received, method: str, signature: NoticeSignature, cause: str) -> Payment:
    said = _digest(kind, received, method, signature)
    is_forged = signature is NoticeSignature.FORGED
    if payment.status == PaymentStatus.PAID and payment.last_notice == said and not is_forged:
        with connections[database()].cursor() as cursor:
            cursor.execute(_sql(_COUNT_REPEATED, database()), [payment.pk])
        return payment
    counted = {"notices": 1, "forged_notices": 1} if is_forged else {"notices": 1}
    with durable():
        # The payment's row first: a notice that refers to it takes a lock on it too, which InnoDB could not raise for two at once.
        may_ask = not _is_late(payment, said, is_forged=is_forged) and claim_look(payment, said, **counted)
        _keep(payment, kind, received, method, signature, count=payment.notices)
    with _kept_all_the_same(payment.reference):
        if is_forged:
            _raise_forged(payment, cause)
    if may_ask:
        with _kept_all_the_same(payment.reference):
            payment = apply_answer(payment, ask(payment, quickly=True), cause)
    return payment


@contextmanager
def _kept_all_the_same(reference: str) -> Iterator[None]:
    """Let nothing fail whoever sent what is kept by now: a lock may be held too long, and the sweeper does what is left."""
    try:
        yield
    except Exception:
        _log.exception("what a notice of %s leads to could not be done", reference)


def _digest(kind: NoticeKind, received: Received, method: str, signature: NoticeSignature) -> str:
    """Return a hash that two notices share which say the same, through the same door."""
    said = [kind.value, method, signature.value, received.fault, sorted(received.evidence().items())]
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def _signature(account: Account | None, received: Received) -> NoticeSignature:
    """Return what a notice's signature says, by the dialect of the account that made the payment, if that can be found (silence 8)."""
    if account is None:
        return NoticeSignature.ABSENT
    rule = account.dialect.notice_signature
    if rule is SignatureRule.IGNORED:
        return NoticeSignature.ABSENT
    signature = received.signature(account.token.get_secret_value())
    if rule is SignatureRule.REQUIRED and signature is NoticeSignature.ABSENT:
        return NoticeSignature.FORGED
    return signature


def _is_late(payment: Payment, said: str, *, is_forged: bool) -> bool:
    """Count a notice that teaches nothing, since its payment is paid, and tell whether it is one; tail looks notice what changes later.

    The row is changed as it was read; when it has changed since, it is for `claim_look` to read it again.
    """
    if payment.status != PaymentStatus.PAID or is_forged:
        return False
    with connections[database()].cursor() as cursor:
        cursor.execute(_sql(_COUNT, database()), [payment.notices + 1, said, payment.pk, payment.notices])
        if cursor.rowcount:
            payment.notices += 1
        return bool(cursor.rowcount)


def _keep(
    payment: Payment,
    kind: NoticeKind,
    received: Received,
    method: str,
    signature: NoticeSignature,
    *,
    count: int,
    refund: Refund | None = None,
) -> None:
    """Keep the so manieth notice of a payment or refund in one of its slots, in place of the oldest when all are taken."""
    connection = connections[database()]
    received_at = connection.ops.adapt_datetimefield_value(clock.now())
    evidence = connection.ops.adapt_json_value(_bounded(received), None)
    kept = [kind.value, received_at, method[:8], signature.value, evidence]
    slot, refund_id = (count - 1) % _KEPT_PER_PAYMENT, refund.pk if refund else None
    with connection.cursor() as cursor:
        if count > _KEPT_PER_PAYMENT:
            cursor.execute(_sql(_REPLACE, database()), [*kept, payment.pk, slot, refund_id or 0])
            if cursor.rowcount:
                return
        cursor.execute(_sql(_ADD, database()), [*kept, payment.pk, slot, refund_id])


def _bounded(received: Received) -> dict[str, Any]:
    evidence: dict[str, str] = {}
    size = 0
    for name, value in received.evidence().items():
        size += len(json.dumps([name, value]))
        if size > _KEPT_BYTES:
            evidence[NOT_WHOLE] = "the rest was not kept"
            break
        evidence[name] = value
    if received.repeated:
        also = ", and the rest" if NOT_WHOLE in evidence else ""
        evidence[NOT_WHOLE] = f"not kept: another value of {', '.join(sorted(received.repeated))}"[:1000] + also
    if received.fault:
        evidence[NOT_READ] = received.fault
    return evidence


def _raise_forged(payment: Payment, cause: str) -> None:
    """Tell a person at so many forged notices, and again at as many more when that was resolved."""
    limit = get_settings().forged_notices_before_attention
    if payment.forged_notices % limit == 0:
        sentence = f"Payment {payment.reference}: {payment.forged_notices} notices arrived that were not signed with the account's token."
        with locked_order(payment.order_id) as order:
            raise_attention(AttentionReason.FORGED_NOTICES, sentence, cause, order=order, payment=payment, account=payment.account)
