"""Reviews: opened once while the case is open, resolved once, and reported to the right shop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tests.django.conftest import World
from tillgate.django.models import OutboxEvent, Payment, Review, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.django.reviews.closing import ITSELF, resolve, settle
from tillgate.django.reviews.opening import open_among, open_review
from tillgate.django.worker.mail import mail_reviews
from tillgate.lifecycle import ReviewReason
from tillgate.testing.world import together

FORGED, GONE = ReviewReason.FORGED_NOTIFICATIONS, ReviewReason.ACCOUNT_GONE


def forged(payment: Payment, message: str = "Forged.") -> Review | None:
    return open_review(FORGED, message, "notification", payment)


def test_same_review_opens_once_per_payment(
    world: World,
) -> None:
    first, second = world.start(world.order()), world.start(world.order())
    raised = forged(first)
    assert raised
    assert (raised.open_key, raised.account) == (
        f"forged-notifications:payment:{first.pk}",
        "default",
    )
    assert forged(first) is None
    assert forged(second)
    assert Review.objects.count() == 2


def test_account_review_opens_once_per_account(world: World) -> None:
    """Any payment may meet the problem."""
    first, second = world.start(world.order()), world.start(world.order())
    raised = open_review(
        GONE, "Gone.", "worker", first, account="default", evidence={"reference": "r" * 501}
    )
    assert raised
    assert (raised.open_key, raised.account, raised.evidence) == (
        "account-gone:account:default",
        "default",
        {"reference": "r" * 500},
    )
    assert open_review(GONE, "Gone.", "worker", second, account="default") is None
    assert open_review(GONE, "Gone.", "worker", second, account="other")


@pytest.mark.parametrize("subject", ["refund", "outbox_event", "payment", "nothing"])
def test_review_belongs_to_its_subject(
    world: World,
    subject: str,
) -> None:
    """The subject is the refund, the outbox event or the payment."""
    payment = world.paid_payment()
    refund, outbox_event = queueing.refund(payment.pk, "1.00"), OutboxEvent.objects.earliest("id")
    cases: dict[str, dict[str, Any]] = {
        "refund": {"payment": payment, "refund": refund},
        "outbox_event": {"payment": payment, "outbox_event": outbox_event},
        "payment": {"payment": payment},
    }
    given = cases.get(subject, {})
    raised = open_review(FORGED, "Forged.", "notification", given.get(subject, payment.order))
    assert raised
    whom = {
        "refund": f"refund:{refund.pk}",
        "outbox_event": f"outboxevent:{outbox_event.pk}",
        "payment": f"payment:{payment.pk}",
    }
    assert raised.open_key == f"forged-notifications:{whom.get(subject, 'nonetype:')}"
    raised.refresh_from_db()
    assert {
        name: getattr(raised, name)
        for name in ("payment", "refund", "outbox_event")
        if getattr(raised, name)
    } == given
    entry = TimelineEntry.objects.latest("id")
    told = {name: getattr(entry, name) for name in ("payment", "refund") if getattr(entry, name)}
    assert (entry.event, entry.message, entry.evidence) == (
        "review.opened",
        "Forged.",
        {"reason": "forged-notifications"},
    )
    assert told == {name: row for name, row in given.items() if name != "outbox_event"}


def test_overtaken_worker_raises_no_second_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker's transaction stays usable."""
    payment = world.start(world.order())

    other = world.start(world.order())
    assert forged(payment)
    first, looks = QuerySet.first, []

    def not_yet_there(rows: QuerySet[Review]) -> Review | None:
        looks.append(rows)
        return first(rows) if len(looks) > 1 else None

    with transaction.atomic():
        with monkeypatch.context() as patch:
            patch.setattr(QuerySet, "first", not_yet_there)
            assert forged(payment, "Forged as well.") is None
        assert forged(other)
    assert Review.objects.count() == len(looks) == 2


def test_i2_unwritten_review_raises_an_error(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A review that could not be stored does not count as reported."""
    payment = world.start(world.order())

    def refused(*_: object, **__: object) -> None:
        raise IntegrityError("NOT NULL constraint failed: a column that this version does not know")

    monkeypatch.setattr(Review, "save", refused)
    with pytest.raises(IntegrityError, match="NOT NULL"), transaction.atomic():
        forged(payment)


def test_shop_hears_of_order_reviews_only(
    world: World,
) -> None:
    """The shop does not hear of a failing outbox event."""
    payment = world.paid_payment()
    outbox_event = OutboxEvent.objects.get()
    open_review(ReviewReason.DELIVERY_FAILING, "Failing.", "outbox", outbox_event)
    assert OutboxEvent.objects.count() == 1
    raised = forged(payment)
    told = OutboxEvent.objects.latest("id")
    assert raised
    assert (told.kind, told.review, told.payment, told.order) == (
        "review-opened",
        raised,
        payment,
        payment.order,
    )
    assert told.due_at == told.created_at
    assert raised.opened_at <= told.created_at


def test_review_resolves_once_and_stays_unchanged(world: World) -> None:
    payment = world.start(world.order())
    raised = forged(payment)
    assert raised
    resolved = resolve(raised.pk, "r" * 256, "p" * 151)
    assert (resolved.resolution, resolved.resolved_by, resolved.open_key) == (
        "r" * 255,
        "p" * 150,
        None,
    )
    assert resolved.resolved_at
    entries = TimelineEntry.objects.count()
    again = resolve(raised.pk, "otherwise", "bob")
    assert (again.resolution, again.resolved_at) == ("r" * 255, resolved.resolved_at)
    assert Review.objects.get().resolution == "r" * 255
    assert TimelineEntry.objects.count() == entries
    entry = TimelineEntry.objects.latest("id")
    assert (entry.event, entry.payment, entry.message) == ("review.resolved", payment, "r" * 256)


def test_resolved_review_opens_anew_on_recurrence(world: World) -> None:
    payment = world.start(world.order())
    first = forged(payment)
    assert first
    resolve(first.pk, "a scanner", "ann")
    again = forged(payment)
    assert again
    assert (again.pk != first.pk, again.open_key) == (
        True,
        f"forged-notifications:payment:{payment.pk}",
    )
    assert forged(payment) is None


def test_account_review_resolves_without_timeline(world: World) -> None:
    raised = open_review(GONE, "Gone.", "worker", account="default")
    assert raised
    assert resolve(raised.pk, "it is back", "ann").resolved_by == "ann"
    assert not TimelineEntry.objects.exists()


def test_obsolete_review_is_withdrawn_automatically(world: World) -> None:
    """This does not happen if staff resolved it first."""
    first, second = world.start(world.order()), world.start(world.order())
    open_one, resolved = forged(first), forged(second)
    assert open_one
    assert resolved
    resolve(resolved.pk, "a scanner", "ann")
    settle(Review.objects.all(), "over")
    assert list(Review.objects.order_by("id").values_list("resolution", "resolved_by")) == [
        ("over", ITSELF),
        ("a scanner", "ann"),
    ]
    assert timezone.now() >= Review.objects.earliest("id").resolved_at  # type: ignore[operator]


def test_open_lookup_skips_resolved_reviews(world: World) -> None:
    open_one, resolved = forged(world.start(world.order())), forged(world.start(world.order()))
    assert open_one
    assert resolved
    assert open_one.open_key
    assert resolved.open_key
    keys = (open_one.open_key, resolved.open_key, "forged-notifications:payment:0")
    resolve(resolved.pk, "a scanner", "ann")
    assert open_among(keys) == {open_one.open_key: open_one.version}
    assert open_among(()) == {}


MISMATCH = ReviewReason.AMOUNT_MISMATCH


def told_of(payment: Payment, message: str, reason: ReviewReason = MISMATCH) -> Review | None:
    return open_review(reason, message, "worker", payment)


def test_changed_gateway_answer_updates_open_review(
    world: World,
) -> None:
    payment = world.start(world.order())
    told = told_of(payment, "It is part-refunded.")
    assert told
    Review.objects.update(mailed_at=timezone.now())
    assert told_of(payment, "It is part-refunded.") is None
    assert Review.objects.get().mailed_at
    assert told_of(payment, "It is a charge-back.") is None
    told.refresh_from_db()
    assert (told.message, told.mailed_at) == ("It is a charge-back.", None)
    assert list(
        TimelineEntry.objects.filter(event="review.opened")
        .order_by("id")
        .values_list("message", flat=True),
    ) == [
        "It is part-refunded.",
        "It is a charge-back.",
    ]


def test_repeated_finding_without_answer_told_once(world: World) -> None:
    """A finding that rests on no answer of the gateway is reported once while it is open."""
    payment = world.start(world.order())
    told = forged(payment)
    assert told
    assert forged(payment, "More of them.") is None
    told.refresh_from_db()
    assert told.message == "Forged."


def test_accepted_answer_is_not_told_again(
    world: World,
) -> None:
    """It is reported again only with new facts."""
    payment, other = world.paid_payment(), world.paid_payment()
    told = told_of(payment, "It is 12.49.")
    assert told
    resolve(told.pk, "agreed", "ann", dismissed=True)
    assert told_of(payment, "It is 12.49.") is None
    assert told_of(payment, "It is 12.48.")
    assert told_of(other, "It is 12.49.")
    assert told_of(payment, "It is 12.49.", ReviewReason.CURRENCY_MISMATCH)


def test_otherwise_settled_answer_is_told_again(world: World) -> None:
    payment = world.start(world.order())
    told = told_of(payment, "It is 12.49.")
    assert told
    resolve(told.pk, "asked again", "ann")
    assert told_of(payment, "It is 12.49.")


def test_accepted_account_problem_is_told_again() -> None:
    """The account's gateway may have answered in the meantime."""
    for _ in range(2):
        told = open_review(ReviewReason.WRONG_CREDENTIALS, "Refused.", "worker", account="default")
        assert told
        resolve(told.pk, "we know", "ann", dismissed=True)


def test_accepted_missing_account_stays_accepted(world: World) -> None:
    """This ends when the missing account is a different one."""
    told = open_review(GONE, "The merchant was 1.", "worker", account="default")
    assert told
    resolve(told.pk, "the contract ended", "ann", dismissed=True)
    world.time.advance(minutes=1)
    world.paid_payment()
    assert open_review(GONE, "The merchant was 1.", "worker", account="default") is None
    assert open_review(GONE, "The merchant was 2.", "worker", account="default")


def test_alternating_messages_are_mailed_once_each(
    world: World,
    configure: Callable[..., None],
) -> None:
    """The gateway may say one thing and another in turn."""
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    payment = world.start(world.order())
    for message in (
        "It says 12.00.",
        "It says 12.01.",
        "It says 12.00.",
        "It says 12.01.",
        "It says 12.02.",
    ):
        world.time.advance(hours=1)
        with transaction.atomic():
            open_review(ReviewReason.AMOUNT_MISMATCH, message, "worker", payment)
        mail_reviews()
        review = Review.objects.get()
        assert review.message == message
        assert abs(review.opened_at - timezone.now()) < timedelta(minutes=1), (
            "what was asked before that does not take it back"
        )
    assert [sent.body.count("It says 12") for sent in mail.outbox] == [1, 1, 1]
    assert TimelineEntry.objects.filter(event="review.opened").count() == 3


def test_i2_replaced_message_is_mailed_on_return(
    world: World,
    configure: Callable[..., None],
) -> None:
    """It gave way to another message before it could be mailed."""
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    payment = world.start(world.order())

    def says(message: str) -> None:
        with transaction.atomic():
            open_review(ReviewReason.AMOUNT_MISMATCH, message, "worker", payment)

    says("It says 12.00.")
    mail_reviews()
    world.time.advance(hours=1)
    for message in ("It says 0.01.", "It says 12.00."):
        says(message)
    assert mail_reviews() == 0, "that is known"
    says("It says 0.01.")
    mail_reviews()
    assert ["It says 0.01." in sent.body for sent in mail.outbox] == [False, True]


def test_i2_older_acceptance_does_not_silence_review(
    world: World,
) -> None:
    """An older version had accepted the finding for a payment that is still open."""
    payment, reason = world.start(world.order()), ReviewReason.PAYMENT_UNKNOWN
    told = {"order": payment.order, "payment": payment}
    Review.objects.create(
        reason=reason,
        facts={"detail": "Unknown."},
        status="dismissed",
        opened_at=timezone.now(),
        resolved_at=timezone.now(),
        **told,
    )
    assert open_review(reason, "Unknown.", "worker", payment)


def test_concurrent_account_reviews_do_not_deadlock(world: World) -> None:
    """InnoDB keeps a lock for each that was refused: a transaction that then asked for the row
    itself would wait for the others.
    """

    def raised(name: str) -> None:
        with transaction.atomic():
            open_review(GONE, "Gone.", "worker", account=name)

    for budget in range(10):
        # all of a turn are over before the next
        together(*[lambda: raised(f"account {budget}")] * 6)  # noqa: B023
    assert Review.objects.count() == 10
