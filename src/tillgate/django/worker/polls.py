"""The polls of due payments: a batch is queried in parallel, its answers are applied one by one.

Answers that bring nothing new are written together, a statement for all that are due at the same
moment.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from types import TracebackType

from django.utils import timezone

from tillgate.django.models import Payment, Review
from tillgate.django.orders.locking import locked_order, reconnect_if_cut
from tillgate.django.payments.closing import close_and_ask, note_closed
from tillgate.django.payments.details import note_details
from tillgate.django.payments.reconciling import (
    facts_of,
    is_unchanged,
    next_poll_after,
    write_answer,
)
from tillgate.django.refunds.external import refund_news
from tillgate.django.reviews.closing import AppliedAnswer, conclude
from tillgate.django.reviews.opening import ACCOUNT_REASONS, open_among, open_key, open_review
from tillgate.django.worker.calls import Calls
from tillgate.django.worker.lanes import has_answered, rest, wake
from tillgate.django.worker.runner import Batch, Turn
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    Answer,
    Decision,
    Inconclusive,
    PaymentStatus,
    ReviewReason,
    interpret,
    is_unanswered,
)


def poll(batch: Batch) -> None:
    """Query the gateway about a batch of payments, and apply the answers."""
    calls = batch.turn.keep(_CallsOfTurn)
    answers = calls.answers(batch.rows)
    reconnect_if_cut()
    answered = [
        (payment, answer) for payment, answer in zip(batch.rows, answers, strict=True) if answer
    ]
    batch.left = [
        payment for payment, answer in zip(batch.rows, answers, strict=True) if answer is None
    ]
    _Answers(batch, answered).apply()
    batch.turn.is_over = calls.is_silent


class _CallsOfTurn(Calls):
    """The queries of a turn, after which the account rests where its gateway does not answer."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(close_and_ask, stop=turn.run.stop, ends=turn.ends)
        self._account = turn.account

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            return
        if self.is_silent:
            rest(self._account, self.detail, has_review=self.has_review)
        elif self.has_heard:
            wake(self._account)
        elif self.last_was_silent:
            rest(self._account, self.detail, has_review=self.has_review, pause=timedelta(0))


class _Answers:
    """The answers about a batch's payments, while they are applied."""

    def __init__(self, batch: Batch, answered: list[tuple[Payment, Answer]]) -> None:
        self._batch, self._turn, self._answered, self._now = (
            batch,
            batch.turn,
            answered,
            timezone.now(),
        )
        self._unchanged: dict[datetime | None, list[Payment]] = defaultdict(list)
        self._in_order: list[AppliedAnswer] = []
        self._unanswered: dict[Payment, str] = {}
        """Payments that should long be settled, with the reason why no answer is usable."""

    def apply(self) -> None:
        """Apply each, and reschedule unchanged payments together."""
        decisions = [interpret(facts_of(payment), (), answer) for payment, answer in self._answered]
        versions = open_among(
            open_key(decision.review, payment, payment.account)
            for (payment, _), decision in zip(self._answered, decisions, strict=True)
            if decision.review
        )
        for (payment, answer), decision in zip(self._answered, decisions, strict=True):
            self._take(payment, answer, decision)
            if is_unchanged(payment, decision, versions) and not refund_news(payment, answer):
                self._unchanged[next_poll_after(payment, decision, self._now)].append(payment)
            else:
                self._write(payment, answer)
        if self._in_order:
            with self._turn.guarded("reviews"):
                conclude(self._in_order)
        if self._unanswered:
            with self._turn.guarded("reviews"):
                _open_unanswered(self._unanswered)
        for due, payments in self._unchanged.items():
            # Where the lease does not stand any more, it ran out, or a notification has
            # brought the poll forward.
            with self._turn.guarded("putting back"):
                self._batch.put_back(payments, due)

    def _take(self, payment: Payment, answer: Answer, decision: Decision) -> None:
        """Count an answer, and keep it for the reviews."""
        self._turn.work.count(self._turn.chore.name)
        with self._turn.guarded(f"payment {payment.reference}"):
            note_closed(payment)
            note_details(payment, answer, "worker")
        if decision.is_conclusive and not isinstance(answer, Inconclusive):
            # `write_answer` concludes an answer that moves the payment, with all that is known
            # then.
            is_in_order = decision.is_in_order and decision.status == payment.status
            self._in_order.append(AppliedAnswer(payment, answer, is_in_order=is_in_order))
        if not decision.is_conclusive:
            self._turn.work.note("inconclusive")
            self._note_unanswered(payment, PaymentStatus(decision.status), decision.detail)

    def _write(self, payment: Payment, answer: Answer) -> None:
        is_written = False
        with self._turn.guarded(f"payment {payment.reference}"):
            if write_answer(payment, answer, "worker").status != payment.status:
                self._turn.work.note("changed")
                self._batch.has_news = True
            is_written = True
        if not is_written:
            self._note_unanswered(payment, PaymentStatus(payment.status), "")

    def _note_unanswered(self, payment: Payment, status: PaymentStatus, detail: str) -> None:
        is_late = not payment.is_processing and is_unanswered(status, payment.expires_at, self._now)
        if is_late:
            self._unanswered.setdefault(payment, detail)


def _open_unanswered(payments: dict[Payment, str]) -> None:
    """Open a review about payments that should long be settled, unless the account has the
    trouble.
    """
    account, reason = next(iter(payments)).account, ReviewReason.PAYMENT_UNANSWERED
    wrong = Review.objects.filter(
        account=account,
        reason__in=ACCOUNT_REASONS,
        resolved_at__isnull=True,
    )
    told_at = wrong.order_by("-opened_at").values_list("opened_at", flat=True).first()
    if told_at and not has_answered(account, told_at):
        return
    # The words of a fault change with each poll: an open review stays as it is.
    known = open_among(open_key(reason, payment, account) for payment in payments)
    for payment, detail in payments.items():
        if open_key(reason, payment, account) in known:
            continue
        with locked_order(payment.order_id) as order:
            if order.payments.filter(pk=payment.pk, status__in=OPEN_PAYMENT_STATUSES).exists():
                facts = {"case": "error", "error": detail} if detail else {}
                open_review(reason, facts, "worker", payment)
