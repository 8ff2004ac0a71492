"""Refunds are asked for here: queued under the order's lock, one for each key."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from tillgate import money
from tillgate.django.amounts import money_text
from tillgate.django.models import (
    LONGEST_IDEMPOTENCY_KEY,
    Payment,
    Refund,
    Review,
    database,
)
from tillgate.django.orders.locking import (
    OrderHeld,
    joined_order,
    outside_transactions,
)
from tillgate.django.orders.timeline import record
from tillgate.django.refunds.limits import (
    RefundNotPossible,
    blocking_reason,
    check_newest_refund,
    check_open,
    refundable,
)
from tillgate.django.refunds.sending import send_refund
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import (
    PaymentStatus,
    ReviewReason,
)
from tillgate.money import Money
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")


def refund(
    payment_id: int,
    amount: Decimal | str | None,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    newest_refund: int | None = None,
    about: Review | None = None,
) -> Refund:
    """Refund part or all of a payment now, and return the refund with its outcome. Without an
    amount it is all that can still be refunded, as the order's lock shows it.

    A key that a refund of the payment already has returns that refund, even a failed one; with
    another amount it raises `RefundNotPossible`. Without a key each call asks for a refund of its
    own.

    `newest_refund` is the id of the newest refund on the form, 0 for none: if there is a newer one
    by now (a second press of the button, or a colleague), nothing is sent and `RefundNotPossible`
    is raised. The same happens if `about`, the review that the refund is to resolve, is resolved:
    the event may have been delivered again, so that this money pays the order. Another transaction
    may hold the order: before the refund is queued that is `RefundNotPossible` too; later the
    refund is returned as it stands, and the worker goes on with it.
    """
    outside_transactions("refund")
    try:
        queued, is_new = _queue(
            payment_id,
            amount,
            staff,
            reason,
            data or {},
            idempotency_key,
            newest_refund,
            about,
        )
    except OrderHeld as error:
        raise RefundNotPossible(str(error)) from None
    # An earlier refund of the same key is the worker's, which asks the gateway before it sends.
    if not is_new:
        return queued
    try:
        return send_refund(queued.pk)
    except OrderHeld:
        return Refund.objects.select_related("payment__order").get(pk=queued.pk)


def queue_refund(
    payment_id: int,
    amount: Decimal | str | None,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    newest_refund: int | None = None,
) -> Refund:
    """Queue a refund inside the running transaction; it is sent on commit, or by the worker. The
    options are as in `refund`.
    """
    # where the host commits by hand, only in here can something be done on commit
    with transaction.atomic(using=database()):
        queued, is_new = _queue(
            payment_id,
            amount,
            staff,
            reason,
            data or {},
            idempotency_key,
            newest_refund,
        )
        if is_new:
            transaction.on_commit(lambda: _send_quietly(queued), using=database())
    return queued


def _queue(
    payment_id: int,
    amount: Decimal | str | None,
    staff: str,
    reason: str,
    data: Mapping[str, Any],
    idempotency_key: str | None = None,
    newest_refund: int | None = None,
    about: Review | None = None,
) -> tuple[Refund, bool]:
    """Return the refund of a wish, and whether this call has written it."""
    _check_key(idempotency_key)
    order_id, currency = Payment.objects.values_list("order_id", "currency").get(pk=payment_id)
    asked = None if amount is None else money.amount(amount, currency)
    with joined_order(order_id) as order:
        # Under locks, since the host's transaction may see an old snapshot where it reads without.
        payment = Payment.objects.select_for_update().get(pk=payment_id)
        payment.order = order
        refunds = list(payment.refunds.select_for_update())
        # Before all other checks: a change since the first call, such as its own refund, must not
        # refuse the second.
        if earlier := _refund_of_key(payment, refunds, idempotency_key, asked):
            return earlier, False
        _check_refundable(payment)
        check_newest_refund(payment, newest_refund)
        check_open(about)
        left = refundable(payment, refunds)
        exact = _rest(payment, left) if asked is None else asked
        if exact > left:
            remedy = (
                f"is more than the {Money(left, currency)} that can still be refunded of "
                f"{payment.reference}"
            )
            raise InvalidRequest("amount", str(Money(exact, currency)), remedy)
        now = timezone.now()
        queued = Refund(
            payment=payment,
            amount=exact,
            requested_by=staff[:150],
            reason=without_personal_data(storable(reason))[:255],
            data=dict(data),
            idempotency_key=idempotency_key,
            created_at=now,
            status_since=now,
            due_at=now,
        )
        queued.save(force_insert=True)
        actor = f"staff:{staff}" if staff else "shop"
        message = str(queued.money) + (f": {queued.reason}" if reason else "")
        record("refund.queued", order, actor, message, payment=payment, refund=queued)
    return queued, True


def _rest(payment: Payment, left: Decimal) -> Decimal:
    """Return all that is left to refund; raise `RefundNotPossible` where nothing is."""
    if not left:
        raise RefundNotPossible(
            f"nothing of payment {payment.reference} is left to refund",
            _("nothing is left to refund"),
        )
    return left


def _check_refundable(payment: Payment) -> None:
    """Raise `RefundNotPossible` for a payment that is not paid, or has a review that blocks
    refunds.
    """
    if payment.status != PaymentStatus.PAID:
        raise RefundNotPossible(
            f"payment {payment.reference} is {payment.status}, and only a paid one can be refunded",
        )
    blocked_by = blocking_reason(payment)
    if blocked_by == ReviewReason.DISPUTED:
        raise RefundNotPossible(
            f"payment {payment.reference} is disputed: no refund is sent until the shopper's bank "
            "has decided, since it may take the money itself",
        )
    if blocked_by:
        raise RefundNotPossible(
            f"payment {payment.reference} may have been refunded elsewhere: enter that amount "
            "first",
        )


def _check_key(key: str | None) -> None:
    if key is not None and (not 0 < len(key) <= LONGEST_IDEMPOTENCY_KEY or storable(key) != key):
        # An empty key, such as one that a form has lost, would make one refund of all.
        raise InvalidRequest(
            "idempotency_key",
            key[:40],
            f"must have 1 to {LONGEST_IDEMPOTENCY_KEY} characters that a database stores",
        )


def _refund_of_key(
    payment: Payment,
    refunds: Iterable[Refund],
    key: str | None,
    amount: Decimal | None,
) -> Refund | None:
    earlier = next((one for one in refunds if one.idempotency_key == key), None) if key else None
    if earlier is None:
        return None
    earlier.payment = payment
    if amount not in (None, earlier.amount):
        asked = Money(amount, payment.currency)
        remedy = f"repeat that amount, or choose a new key to refund {asked} as well"
        said = _("from this page a refund of %(amount)s was asked for before. Open the page again")
        raise RefundNotPossible(
            f"idempotency key {key!r} already names a refund of {earlier.money} of "
            f"{payment.reference}: {remedy}",
            said % {"amount": money_text(earlier.amount, payment.currency)},
        )
    return earlier


def find_repeated(
    payment: Payment,
    amount: Decimal | str | None,
    idempotency_key: str | None,
) -> Refund | None:
    """Return the refund that the same key has named before, or None; raise `RefundNotPossible`
    where its amount is another. Without an amount any is right.
    """
    if not idempotency_key:
        return None
    exact = money.amount(amount, payment.currency) if amount else None
    return _refund_of_key(payment, payment.refunds.all(), idempotency_key, exact)


def _send_quietly(refund: Refund) -> None:
    """Send after the host's commit, where an exception would look like a failure of the host's
    transaction.
    """
    try:
        send_refund(refund.pk)
    except Exception:  # the worker sends it
        _log.exception("refund %s of %s could not be sent on commit", refund.pk, refund.payment)
