"""Refunds that were made elsewhere: in the gateway's pages, or before a restore."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Final

from django.utils import timezone

from tillgate import money
from tillgate.django.models import (
    Order,
    Payment,
    Refund,
    Review,
)
from tillgate.django.orders.locking import (
    locked_order,
)
from tillgate.django.orders.timeline import record
from tillgate.django.outbox.delivering import deliver
from tillgate.django.refunds.limits import (
    ELSEWHERE_REASONS,
    RefundNotPossible,
    check_newest_refund,
    check_open,
    refundable,
)
from tillgate.django.refunds.settling import (
    OVER_ONCE_REFUNDED,
    conclude_refunded,
    mark_sent,
    queue_refund_changed,
    settle_locked,
    withdraw_locked,
)
from tillgate.django.reviews.closing import ITSELF, resolve, settle
from tillgate.django.reviews.opening import open_review
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import (
    UNSETTLED_REFUND_STATUSES,
    Answer,
    Found,
    KnownRefund,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
    match_refunds,
)
from tillgate.money import Money
from tillgate.wire.dialects import RefundOutcome, TransactionStatus
from tillgate.wire.messages import ReportedRefund

_RETURNED: Final = (RefundStatus.SUCCEEDED, RefundOutcome.FAILED)
"""The status here and the gateway's word of a refund that came back."""


def record_external_refund(
    payment_id: int,
    amount: Decimal | str,
    *,
    staff: str,
    newest_refund: int | None = None,
    about: Review | None = None,
    expected_version: str | None = None,
) -> Refund:
    """Enter a refund that was made elsewhere, so that the refundable amount is right again (I5).
    `newest_refund` is as in `refund`.

    A made refund is a fact and a queued one a wish: queued refunds without a refundable amount are
    withdrawn, the newest first. A queued one that a notification has confirmed is a fact as well.
    `about` is the review that it resolves, by default the payment's `changed-after-paid`: each
    *failed* refund that was made after all is entered alone. `expected_version` is the version of
    that review on the form, or empty without one: a review with other facts is not resolved.
    """
    payment = Payment.objects.get(pk=payment_id)
    exact = money.amount(amount, payment.currency)
    with locked_order(payment.order_id) as order:
        payment = Payment.objects.get(pk=payment_id)
        payment.order = order
        check_newest_refund(payment, newest_refund)
        check_open(about)
        open_rows = Review.objects.filter(payment=payment, resolved_at__isnull=True)
        chosen = {"pk": about.pk} if about else {"reason": ReviewReason.CHANGED_AFTER_PAID}
        review = open_rows.filter(**chosen).first()
        if (
            expected_version is not None
            and review is not None
            and review.version != expected_version
        ):
            raise RefundNotPossible(f"it says something else by now: {review.message}")
        entered = enter_external(order, payment, exact, f"staff:{staff}", requested_by=staff)
        if review is not None:
            resolve(review.pk, f"{entered.money} was refunded elsewhere", staff)
        conclude_refunded(payment, staff, OVER_ONCE_REFUNDED | ELSEWHERE_REASONS)
        queue_refund_changed(entered)
    deliver(order.pk)
    return entered


def enter_external(
    order: Order,
    payment: Payment,
    amount: Decimal,
    actor: str,
    *,
    requested_by: str = "",
    refund_no: str | None = None,
) -> Refund:
    """Write a refund that was made elsewhere, under the order's lock; raise `InvalidRequest` where
    it is more than can be refunded (I5).
    """
    left = refundable(payment)
    waiting = list(
        payment.refunds.filter(status=RefundStatus.QUEUED, confirmed=False).order_by("-pk"),
    )
    most = Money(money.total([left, *(refund.amount for refund in waiting)]), payment.currency)
    if amount > most.amount:
        remedy = f"is more than the {most} that can still be refunded of {payment.reference}"
        raise InvalidRequest("amount", str(Money(amount, payment.currency)), remedy)
    for refund in waiting:
        if amount <= left:
            break
        withdraw_locked(refund, order, actor, "a refund made elsewhere left nothing for it")
        left = money.total([left, refund.amount])
    now = timezone.now()
    entered = Refund(
        payment=payment,
        refund_no=refund_no,
        amount=amount,
        status=RefundStatus.SUCCEEDED.value,
        external=True,
        requested_by=requested_by[:150],
        reason="made elsewhere",
        created_at=now,
        status_since=now,
    )
    entered.save(force_insert=True)
    record(
        "refund.external",
        order,
        actor,
        f"{entered.money} was refunded elsewhere",
        payment=payment,
        refund=entered,
    )
    return entered


def refund_news(payment: Payment, answer: Answer) -> tuple[ReportedRefund, ...]:
    """Return the refunds of a paid payment that an answer lists, or none where each is known here
    as it is listed.
    """
    if (
        payment.status != PaymentStatus.PAID
        or not isinstance(answer, Found)
        or not answer.transaction.refunds
    ):
        return ()
    pairs, made_elsewhere = match_refunds(_known_refunds(payment), answer.transaction.refunds)
    is_news = _changes(pairs) or any(
        one.outcome is RefundOutcome.SUCCEEDED for one in made_elsewhere
    )
    return answer.transaction.refunds if is_news else ()


def book_reported_refunds(
    order: Order,
    payment: Payment,
    reported: Collection[ReportedRefund],
    actor: str,
) -> None:
    """Settle refunds as the gateway lists them, and enter those that were made elsewhere, once,
    under the order's lock.
    """
    pairs, made_elsewhere = match_refunds(_known_refunds(payment), reported)
    for known, listed in _changes(pairs):
        _settle_as_listed(order, payment, known, listed, actor)
    returned = money.total(
        known.amount for known, listed in pairs if (known.status, listed.outcome) == _RETURNED
    )
    for listed in made_elsewhere:
        if listed.outcome is RefundOutcome.SUCCEEDED:
            returned = _enter_listed(order, payment, listed, actor, returned)


def _settle_as_listed(
    order: Order,
    payment: Payment,
    known: KnownRefund,
    listed: ReportedRefund,
    actor: str,
) -> None:
    only_from: Collection[RefundStatus] = UNSETTLED_REFUND_STATUSES
    if known.status is RefundStatus.QUEUED:
        only_from = (RefundStatus.SENDING,)
        message = "the gateway lists it: its request has left"
        mark_sent(order, payment, known.id, actor, message)
    settle_locked(
        order,
        known.id,
        RefundStatus(listed.outcome.value),
        f"the gateway lists it as {listed.outcome}",
        actor,
        only_from=only_from,
        refund_no=listed.refund_no,
    )


def _enter_listed(
    order: Order,
    payment: Payment,
    listed: ReportedRefund,
    actor: str,
    returned: Decimal,
) -> Decimal:
    """Enter a refund that was made elsewhere, or open a review where it is more than can be
    refunded; return the rest of the `returned` amount.

    A refund may stand in place of one that came back, which still counts as refunded here.
    """
    try:
        entered = enter_external(order, payment, listed.amount, actor, refund_no=listed.refund_no)
    except InvalidRequest:
        amount = Money(listed.amount, payment.currency)
        if listed.amount > returned:
            facts = {"status": f"refunded {amount} more"}
            open_review(ReviewReason.CHANGED_AFTER_PAID, facts, actor, payment)
            return returned
        reason = ReviewReason.REFUND_RETURNED
        reviews = Review.objects.filter(refund__payment=payment, reason=reason)
        settle(reviews, f"{amount} was refunded again elsewhere", ITSELF)
        return money.left_of(returned, [listed.amount])
    conclude_refunded(payment, ITSELF, OVER_ONCE_REFUNDED)
    queue_refund_changed(entered)
    return returned


def _changes(
    pairs: Iterable[tuple[KnownRefund, ReportedRefund]],
) -> list[tuple[KnownRefund, ReportedRefund]]:
    """Return the pairs in which the gateway reports another outcome than is known here."""
    contradicted = (RefundStatus.FAILED, RefundOutcome.SUCCEEDED), _RETURNED
    return [
        (here, there)
        for here, there in pairs
        if (here.status in UNSETTLED_REFUND_STATUSES and here.status.value != there.outcome.value)
        or here.status is RefundStatus.QUEUED  # found by its names: its request has left
        or (here.status, there.outcome) in contradicted
    ]


def _known_refunds(payment: Payment) -> list[KnownRefund]:
    columns = ("pk", "amount", "status", "refund_id", "refund_no", "external")
    return [
        KnownRefund(
            id=pk,
            amount=amount,
            status=RefundStatus(status),
            refund_id=refund_id,
            refund_no=refund_no,
            external=external,
        )
        for pk, amount, status, refund_id, refund_no, external in payment.refunds.order_by(
            "pk",
        ).values_list(*columns)
    ]


def find_unknown_refund(payment: Payment, answer: Answer) -> str:
    """Return a sentence about a refund that an answer shows and the database does not know, or an
    empty text.

    The refunds that the answer lists are booked before. The rows are read after the answer: a
    refund that another process sends then has its row.
    """
    if not isinstance(answer, Found):
        return ""
    known, found = _known_refunds(payment), answer.transaction
    _, made_elsewhere = match_refunds(known, found.refunds or ())
    if any(one.outcome is not RefundOutcome.FAILED for one in made_elsewhere):
        return "the gateway lists a refund that is not known here, and it may be this one"
    has_left = any(one.status not in (RefundStatus.QUEUED, RefundStatus.FAILED) for one in known)
    is_listed = bool(found.refunds)  # this one by its names: it is booked
    if found.status is TransactionStatus.REFUNDED and not has_left and not is_listed:
        return (
            "the gateway says refunded, though no refund is known to have left: it may be this one"
        )
    return ""
