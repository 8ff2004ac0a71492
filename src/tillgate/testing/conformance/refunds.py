"""Refunds: bounded, sent once, taking effect once, and held while their outcome is unknown."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final

import pytest
from django.db import transaction
from django.urls import reverse

from tillgate import InvalidRequest, hooks
from tillgate.django.models import Payment, Refund
from tillgate.django.refunds import limits, queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.refunds.settling import settle_by_staff
from tillgate.errors import OutcomeUnknown
from tillgate.testing.conformance.judging import (
    expect_paid_once,
    expect_right_books,
    needs_review,
    paid,
)
from tillgate.testing.world import World, together
from tillgate.wire.dialects import RefundOutcome

_WORDS: Final = {True: "paid", False: "unpaid"}


class Refunds:
    """Scenarios of refunds."""

    def test_full_refund(self, world: World) -> None:
        """A full refund refunds the whole payment, once, and the shop records it."""
        earlier, payment, later = paid(world), paid(world), paid(world)
        assert (
            queueing.refund(payment.pk, "12.50", staff="ann", reason="returned").status
            == "succeeded"
        )
        _expect_refunded(world, payment, "12.50")
        world.a_day_passes()
        _expect_refunded(world, payment, "12.50")
        for other in (earlier, later):
            _expect_refunded(world, other, "0.00")
            expect_paid_once(world, other.order.key)
        needs_review(world)

    def test_partial_refunds(self, world: World) -> None:
        """Partial refunds follow each other, the shop records their sum, and their whole is a full
        refund to it.
        """
        payment, at_once = paid(world), paid(world)
        for amount, sum_ in (("2.50", "2.50"), ("0.01", "2.51"), ("9.99", "12.50")):
            queueing.refund(payment.pk, amount)
            _expect_refunded(world, payment, sum_)
        queueing.refund(at_once.pk, "12.50")
        is_paid, is_paid_at_once = (world.shop.is_paid(one.order.key) for one in (payment, at_once))
        assert is_paid == is_paid_at_once, (
            f"after a full refund the shop regards an order as {_WORDS[is_paid_at_once]}, "
            f"and after partial refunds of the whole as {_WORDS[is_paid]}: add up the refunds"
        )

    def test_over_refund(self, world: World) -> None:
        """More than was paid is never refunded, in one refund or in several; no refund is sent."""
        payment = paid(world)
        queueing.refund(payment.pk, "2.50")
        for amount in ("10.01", "12.50", "1000000"):
            with pytest.raises(InvalidRequest):
                queueing.refund(payment.pk, amount)
        _expect_refunded(world, payment, "2.50")

    def test_concurrent_refunds(self, world: World) -> None:
        """Of two simultaneous refunds that are too much together, one is sent."""
        payment = paid(world)
        done = together(*[lambda: queueing.refund(payment.pk, "8.00").status] * 2)
        assert sorted(isinstance(one, InvalidRequest) for one in done) == [False, True], f"{done}"
        _expect_refunded(world, payment, "8.00")

    def test_repeated_refund(self, world: World) -> None:
        """A repeated idempotency key is the same refund: the shop records it once, and the key with
        another amount is refused.
        """
        payment = paid(world)

        def refund(amount: str) -> int:
            return queueing.refund(payment.pk, amount, idempotency_key="return-1").pk

        asked = [refund("5.00"), *together(*[lambda: refund("5.00")] * 2)]
        assert len(set(asked)) == 1, f"{asked}"
        with pytest.raises(limits.RefundNotPossible):
            refund("6.00")
        world.a_day_passes()
        assert refund("5.00") == asked[0]
        _expect_refunded(world, payment, "5.00")

    def test_refused_refund(self, world: World) -> None:
        """A refund that the gateway refuses takes no effect in the shop, and staff may request it
        again.
        """
        payment = paid(world)
        world.gateway.fail_refund()
        assert queueing.refund(payment.pk, "12.50").status == "failed"
        _expect_refunded(world, payment, "0.00")
        assert queueing.refund(payment.pk, "12.50").status == "succeeded"
        _expect_refunded(world, payment, "12.50")

    def test_unknown_outcome_of_refund(self, world: World) -> None:
        """A refund without an answer is never sent again and takes no effect, until the gateway's
        query or staff settle it.
        """
        payment = paid(world)
        world.gateway.lose_answer("refund")
        refund = queueing.refund(payment.pk, "12.50")
        assert refund.status == "unknown"
        needs_review(world, "refund-unknown")
        world.a_day_passes()
        assert _asked(world) == 1, "a refund that may have been carried out was sent again"
        # the gateway can be asked for its outcome
        if Refund.objects.get(pk=refund.pk).status == "succeeded":
            _expect_refunded(world, payment, "12.50")
            needs_review(world)
            return
        assert world.shop.refunded(payment.order.key) == 0, (
            "the shop records a refund of unknown outcome"
        )
        with pytest.raises(InvalidRequest):
            queueing.refund(payment.pk, "0.01")
        settle_by_staff(refund.pk, done=True, staff="ann")
        _expect_refunded(world, payment, "12.50")
        needs_review(world)

    def test_unknown_refund_that_was_not_done(self, world: World) -> None:
        """A refund of unknown outcome that staff mark as not done takes no effect, and may be
        requested again.
        """
        payment = paid(world)
        world.gateway.fault("server_error", "refund")
        refund = queueing.refund(payment.pk, "12.50")
        settle_by_staff(refund.pk, done=False, staff="ann")
        _expect_refunded(world, payment, "0.00")
        queueing.refund(payment.pk, "12.50")
        _expect_refunded(world, payment, "12.50")

    def test_refund_notification_settles_an_unknown_refund(self, world: World) -> None:
        """The gateway's notification on a refund's own address settles an unknown outcome, once; a
        forged one does not.
        """
        payment = paid(world)
        world.gateway.lose_answer("refund")
        refund = queueing.refund(payment.pk, "12.50")
        address = reverse("tillgate:refund-notification", args=[refund.notification_key])
        forged = f"status=success&reference={payment.reference}&verifySign={'0' * 32}"
        world.client.post(address, forged, content_type="application/x-www-form-urlencoded")
        assert world.shop.refunded(payment.order.key) == 0, "a forged notification settled a refund"
        for _ in range(2):
            world.gateway_notification(payment, "refund")
        # a notification with a number that is new to Tillgate only causes a query
        world.a_day_passes()
        _expect_refunded(world, payment, "12.50")
        needs_review(world)

    def test_refund_notification_before_the_answer(self, world: World) -> None:
        """A refund notification that arrives before the answer makes no second effect."""
        payment = paid(world)
        with _notification_first(world, payment):
            assert queueing.refund(payment.pk, "5.00").status == "succeeded"
        _expect_refunded(world, payment, "5.00")

    def test_refund_notification_in_place_of_the_answer(self, world: World) -> None:
        """A refund succeeds, and takes effect once, if its notification arrives and its answer is
        lost.
        """
        payment = paid(world)
        with _notification_first(world, payment, is_answer_lost=True):
            status = queueing.refund(payment.pk, "5.00").status
        # unknown, where a notification only leads to a query
        assert status in ("succeeded", "unknown"), f"the refund is {status}"
        world.a_day_passes()
        _expect_refunded(world, payment, "5.00")
        needs_review(world)

    def test_queued_refund(self, world: World) -> None:
        """The worker run sends a refund that a dead process had queued, once."""
        payment = paid(world)
        with transaction.atomic():
            queueing.queue_refund(payment.pk, "2.50")
            # the process died before it could send
            transaction.get_connection().run_on_commit.clear()
        assert _asked(world) == 0
        world.a_day_passes()
        assert _asked(world) == 1
        _expect_refunded(world, payment, "2.50")

    def test_refund_that_is_finished_later(self, world: World) -> None:
        """A refund that the gateway accepts and finishes later blocks its amount, and takes effect
        once it succeeded, or never.
        """
        world.configure(world.gateway.listing)
        payment = paid(world)
        for outcome, refunded in (
            (RefundOutcome.FAILED, "0.00"),
            (RefundOutcome.SUCCEEDED, "5.00"),
        ):
            world.gateway.hold_refund()
            assert queueing.refund(payment.pk, "5.00").status == "pending"
            world.a_day_passes()
            assert world.shop.refunded(payment.order.key) == 0, (
                "the shop records a refund that the gateway has not finished"
            )
            with pytest.raises(InvalidRequest):
                queueing.refund(payment.pk, "12.50")
            world.gateway.finish_refund(payment.reference, outcome)
            for _ in range(2):
                world.a_day_passes()
            _expect_refunded(world, payment, refunded)
        needs_review(world)

    def test_refund_of_the_portal(self, world: World) -> None:
        """Where the gateway lists its refunds, each of its own portal takes effect in the shop
        once, beside the shop's own.
        """
        world.configure(world.gateway.listing)
        payment = paid(world)
        queueing.refund(payment.pk, "2.50")
        world.gateway.refund_in_portal(payment.reference, Decimal("2.50"))
        for _ in range(2):
            world.time.advance(days=8)
            world.run_worker()
        _expect_refunded(world, payment, "5.00")
        needs_review(world)

    def test_refund_made_elsewhere(self, world: World) -> None:
        """An external refund opens a review, and takes effect in the shop once staff have recorded
        it.
        """
        payment = paid(world)
        world.gateway.refund_unlisted(payment.reference, Decimal("2.50"))
        world.a_day_passes()
        needs_review(world, "changed-after-paid")
        with pytest.raises(limits.RefundNotPossible):
            queueing.refund(payment.pk, "12.50")
        record_external_refund(payment.pk, "2.50", staff="ann")
        _expect_refunded(world, payment, "2.50")
        needs_review(world)


def _expect_refunded(world: World, payment: Payment, amount: str) -> None:
    assert world.refunded_amount(payment) == Decimal(amount), (
        f"the gateway refunded {world.refunded_amount(payment)} instead of {amount}"
    )
    shown = world.shop.refunded(payment.order.key)
    assert shown == Decimal(amount), (
        f"the shop records {shown} as refunded, and the gateway refunded {amount}"
    )
    expect_right_books(world, payment.order.key)


def _asked(world: World) -> int:
    return world.gateway.received("refund")


@contextmanager
def _notification_first(
    world: World,
    payment: Payment,
    *,
    is_answer_lost: bool = False,
) -> Iterator[None]:
    """Let the gateway's refund notification arrive before its answer; `is_answer_lost` loses the
    answer.
    """
    lacking: list[NotImplementedError] = []

    class NotificationFirst:
        @hooks.hookimpl(wrapper=True)
        def tillgate_refund(self) -> Generator[None, Any, Any]:
            answer = yield
            try:
                world.gateway_notification(payment, "refund")
            except NotImplementedError as error:  # which Tillgate takes for an unknown outcome
                lacking.append(error)
                raise
            if is_answer_lost:
                raise OutcomeUnknown("refund", payment.reference, "the answer was lost")
            return answer

    plugin = NotificationFirst()
    hooks.plugin_manager().register(plugin, name="notification-first")
    try:
        yield
    finally:
        hooks.plugin_manager().unregister(plugin)
        if lacking:
            raise lacking[0]
