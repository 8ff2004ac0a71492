"""Payments that staff decide about: expired by force, or accepted as paid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django.utils import timezone

from tillgate.django import dates
from tillgate.django.models import Payment, Review
from tillgate.django.orders.locking import locked_order
from tillgate.django.orders.timeline import ACCEPTED, FORCE_EXPIRE
from tillgate.django.outbox.delivering import deliver, deliver_due
from tillgate.django.payments.reconciling import BY_STAFF, facts_of, write_decision
from tillgate.django.reviews.closing import resolve
from tillgate.django.reviews.opening import UNAPPLIED_REASONS
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import (
    Answer,
    Claim,
    Decision,
    Found,
    Inconclusive,
    PaymentStatus,
    interpret,
)
from tillgate.wire.personal import without_personal_data


def force_expire(about: Review, staff: str, note: str, newest: int) -> Payment:
    """Mark a payment as expired that no answer settles, as staff decided; money that arrives later
    is still found.

    `about` is the review that staff answer for, as they read it, and `newest` the last of the
    payment's reviews at that time. Raises `InvalidRequest` when the review is not open any more,
    when another review says more, and when the payment can still be paid or is settled.
    """
    assert about.payment is not None
    row = about.payment
    with locked_order(row.order_id) as order:
        payment = Payment.objects.select_for_update().get(pk=row.pk)
        payment.order = order
        open_rows = Review.objects.filter(
            payment=payment,
            reason__in=UNAPPLIED_REASONS,
            resolved_at__isnull=True,
        ).order_by("pk")
        if not open_rows.filter(pk=about.pk).exists():
            raise InvalidRequest(
                "review",
                about.pk,
                "was resolved by another clerk in the meantime",
            )
        if more := _greater_claim(about, newest, open_rows):
            raise InvalidRequest(
                "payment",
                payment.reference,
                f"is known to the gateway by now: {more.message}",
            )
        if not payment.is_open:
            raise InvalidRequest("payment", payment.reference, f"is {payment.status} by now")
        if timezone.now() < payment.expires_at:
            raise InvalidRequest(
                "payment",
                payment.reference,
                f"can still be paid, until {dates.local(payment.expires_at):%Y-%m-%d %H:%M}",
            )
        detail = f"a person marks it as expired: {without_personal_data(note)}"
        decision = Decision(
            status=PaymentStatus.EXPIRED,
            transaction_no=payment.transaction_no,
            detail=detail,
        )
        for pk, version in open_rows.values_list("pk", "version"):
            resolve(pk, detail, staff, dismissed=(pk, version) == (about.pk, about.version))
        write_decision(
            payment,
            decision,
            Inconclusive(detail=detail),
            f"{BY_STAFF}{staff}",
            notifications_before=row.notifications,
            event=FORCE_EXPIRE,
        )
    deliver_due(row.order_id)
    return payment


def _greater_claim(about: Review, newest: int, open_rows: Iterable[Review]) -> Review | None:
    """Return the open review of a payment that claims more than the one that staff read, or as much
    of being paid and is newer.

    Once the gateway has reported the payment paid, only staff that have read so can end it,
    whichever answers follow.
    """
    most = max(open_rows, key=lambda one: (one.claim, one.pk))
    is_unread = most.claim > Claim.UNPAID and most.pk > newest
    return most if is_unread or most.claim > about.claim else None


def accept_as_paid(
    about: Review,
    staff: str,
    answer: Answer,
    *,
    delivers: bool = True,
) -> Payment:
    """Take a payment for paid with the amount that the gateway reports, as staff decide; the shop
    decides whether that is enough.

    `about` is the review that staff have read, and `answer` a fresh one. Without `delivers` the
    caller tells the shop. Raises `InvalidRequest`
    where the review is closed or says something else by now, and where the answer differs in more
    than the amount, or in another amount than staff have read.
    """
    assert about.payment is not None
    with locked_order(about.payment.order_id) as order:
        review = Review.objects.select_for_update().get(pk=about.pk)
        payment = Payment.objects.select_for_update().get(pk=about.payment.pk)
        payment.order = order
        if review.resolved_at or review.version != about.version:
            raise InvalidRequest("review", about.pk, "was resolved, or says something else by now")
        amount = answer.transaction.amount if isinstance(answer, Found) else None
        if (
            amount is None
            or not isinstance(answer, Found)
            or str(amount) != about.facts.get("found")
        ):
            raise InvalidRequest(
                "answer",
                payment.reference,
                f"does not report the amount {about.facts.get('found')} any more",
            )
        decision = interpret(replace(facts_of(payment), amount=amount), (), answer)
        if decision.status is not PaymentStatus.PAID:
            raise InvalidRequest(
                "answer",
                payment.reference,
                f"cannot be accepted as paid: {decision.detail}",
            )
        detail = (
            f"accepted as paid: {payment.currency} {amount} instead of {payment.currency} "
            f"{payment.amount}"
        )
        payment.amount = amount
        payment.save(update_fields=["amount"])
        resolve(review.pk, detail, staff)
        accepted = replace(decision, detail=detail)
        write_decision(
            payment,
            accepted,
            answer,
            f"{BY_STAFF}{staff}",
            notifications_before=payment.notifications,
            event=ACCEPTED,
        )
    if delivers:
        deliver(payment.order_id)
    return payment
