"""Faults on the shop's side: handlers that raise, processes that die, and secrets in logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from decimal import Decimal
from itertools import count
from typing import Final, TypeVar
from unittest import mock

from django.db import OperationalError, connection

from tillgate.django.models import Payment, Refund
from tillgate.django.orders import registering
from tillgate.django.refunds import queueing
from tillgate.testing.conformance.judging import (
    at_gateway,
    at_payment_page,
    expect_paid_once,
    expect_released,
    needs_review,
    paid,
    paid_at_gateway,
    pay,
)
from tillgate.testing.crashes import Crash, Points
from tillgate.testing.gateway_driver import Fault
from tillgate.testing.leaks import digest, everything_logged
from tillgate.testing.world import WRITES, World

_T = TypeVar("_T")
_MOST_POINTS: Final = 200
_OF_CREATIONS: Final[tuple[Fault, ...]] = (
    "refused",
    "lost_response",
    "broken_json",
    "bad_signature",
)
_OF_QUERIES: Final[tuple[Fault, ...]] = (
    "denied",
    "broken_json",
    "unknown_code",
    "bad_signature",
    "lost_request",
)
_WRONG_TOKEN: Final = "0123456789abcdef0123456789abcdef0"  # noqa: S105  # searched for in the logs


class Faults:
    """Scenarios in which a part of the shop fails."""

    def test_paid_handler_raises(self, world: World) -> None:
        """A handler that raises when the order is paid is tried again, and takes effect once,
        wherever it raised.
        """
        for failing in _failing(world, "tillgate_payment_paid", times=2):
            order, payment = paid_at_gateway(world)
            with failing:
                assert [answer.status_code for answer in world.gateway_notification(payment)] == [
                    200,
                ]
                assert world.shop.times_paid(order) == 0, (
                    "a part of the handler's work has stayed, or it hid an error of its database"
                )
                assert world.fresh(payment).status == "paid"
                world.a_day_passes()
            expect_paid_once(world, order)

    def test_unpaid_handler_raises(self, world: World) -> None:
        """A handler that raises when the order is unpaid is tried again, and releases it."""
        for failing in _failing(world, "tillgate_order_unpaid")[1:]:
            order = world.order()
            world.pay_page(order)
            with failing:
                world.a_day_passes()
                world.a_day_passes()
            expect_released(world, order)

    def test_refund_handler_raises(self, world: World) -> None:
        """A handler that raises when money was refunded is tried again, and takes effect once; the
        refund is sent once.
        """
        for failing in _failing(world, "tillgate_refund_changed"):
            payment = paid(world)
            with failing:
                assert queueing.refund(payment.pk, "5.00").status == "succeeded"
                assert world.shop.refunded(payment.order.key) == 0, (
                    "a part of the handler's work has stayed"
                )
                world.a_day_passes()
            assert world.shop.refunded(payment.order.key) == Decimal("5.00"), (
                "a refund was never booked: its handler hid an error"
            )
            assert world.refunded_amount(payment) == Decimal("5.00")

    def test_handler_that_keeps_raising(self, world: World) -> None:
        """A handler that keeps failing opens a review, gateway and shopper meet no error, and the
        order is paid in the end.
        """
        order, payment = paid_at_gateway(world)
        with world.failing_handler("tillgate_payment_paid", times=1000):
            assert [answer.content for answer in world.gateway_notification(payment)] == [
                world.acknowledgement,
            ]
            assert world.come_back(payment).status_code in (200, 302)
            world.a_day_passes()
            needs_review(world, "delivery-failing")
        world.a_day_passes()
        expect_paid_once(world, order)

    def test_order_that_cannot_be_described(self, world: World) -> None:
        """A shop that fails to describe its order when the money comes loses no money: Tillgate
        asks it again.
        """
        for failing in _failing(world, "tillgate_describe_order", times=2)[::2]:
            order, payment = paid_at_gateway(world)
            with failing:
                assert [answer.status_code for answer in world.gateway_notification(payment)] == [
                    200,
                ]
                world.a_day_passes()
            expect_paid_once(world, order)

    def test_crash_while_placing(self, world: World) -> None:
        """A process that dies while it registers an order leaves no order that the shop keeps and
        Tillgate does not know.
        """
        registered: list[str] = []

        def die(plugin: str, order_key: str, *_: str) -> None:
            registered.append(order_key)
            raise Crash("open_order")

        with mock.patch.object(registering, "open_order", die), suppress(Crash):
            world.shop.place_order(Decimal("12.50"))
        if not registered:
            assert not world.shop.waits_once_placed, (
                "the shop placed an order, and its own code did not register it with open_order"
            )
            return
        is_kept = False
        with suppress(Exception):  # a driver may raise anything about an order that is not there
            is_kept = world.shop.is_payable(registered[0])
        assert not is_kept, (
            "the process died before it registered the order, and the shop keeps the order, which "
            "is never released: "
            "call open_order in the transaction that writes the order"
        )

    def test_crash_while_starting(self, world: World) -> None:
        """A process that dies at any point while a payment starts loses no money that the gateway
        may have taken.
        """

        def prepare() -> tuple[str, int]:
            return world.order(), len(world.gateway.references())

        def check(prepared: tuple[str, int]) -> None:
            order, known = prepared
            created = world.gateway.references()[known:]
            for reference in created:
                world.gateway.pay(reference)
            _soon(world)
            if not created:  # the shopper tries again
                pay(world, order)
            expect_paid_once(world, order)

        _crash_everywhere(prepare, lambda prepared: world.choose(prepared[0]), check)

    def test_crash_at_a_notification(self, world: World) -> None:
        """A process that dies anywhere while it takes a notification leaves an order that is paid,
        once, after the next worker run.
        """
        _crash_everywhere(
            lambda: paid_at_gateway(world)[1],
            world.gateway_notification,
            lambda payment: _settled(world, payment),
        )

    def test_crash_at_a_return(self, world: World) -> None:
        """A process that dies anywhere while a shopper comes back leaves an order that is paid,
        once, after the next worker run.
        """
        _crash_everywhere(
            lambda: paid_at_gateway(world)[1],
            world.come_back,
            lambda payment: _settled(world, payment),
        )

    def test_crash_while_working(self, world: World) -> None:
        """The next worker run finishes the work of one that dies anywhere."""

        def prepare() -> Payment:
            _, payment = paid_at_gateway(world)
            world.time.advance(seconds=10)
            return payment

        _crash_everywhere(
            prepare,
            lambda _: world.run_worker(),
            lambda payment: _settled(world, payment),
        )

    def test_crash_while_releasing(self, world: World) -> None:
        """A process that dies anywhere while an order is released leaves it released after the next
        worker run.
        """

        def prepare() -> str:
            order, payment = at_payment_page(world)
            world.gateway.decline(payment.reference)
            world.gateway_notification(payment)
            world.time.advance(minutes=61)
            return order

        def check(order: str) -> None:
            _soon(world)
            expect_released(world, order)

        _crash_everywhere(prepare, lambda _: world.run_worker(), check)

    def test_crash_while_refunding(self, world: World) -> None:
        """A process that dies at any point while it refunds sends no refund twice, and loses track
        of none.
        """

        def check(payment: Payment) -> None:
            _soon(world)
            refunded_amount, shown = (
                world.refunded_amount(payment),
                world.shop.refunded(payment.order.key),
            )
            assert refunded_amount in (0, 5)
            refund = Refund.objects.filter(payment=payment).first()
            if refund is None:
                assert refunded_amount == shown == 0, (
                    "the gateway refunded money, and Tillgate knows of no refund"
                )
            elif refund.status == "succeeded":
                assert refunded_amount == shown == 5
            else:
                assert refund.status == "unknown"
                assert shown == 0, "the shop records a refund of unknown outcome"
                assert refund.reviews.filter(reason="refund-unknown").exists(), (
                    "a refund of unknown outcome opened no review"
                )

        _crash_everywhere(
            lambda: paid(world),
            lambda payment: queueing.refund(payment.pk, "5.00"),
            check,
        )

    def test_no_secret_in_logs(self, world: World) -> None:
        """No log holds a token or a signature, at any level and after any fault."""
        with (
            mock.patch.object(connection, "force_debug_cursor", new=True),
            everything_logged() as lines,
        ):
            _much_happens(world)
        assert lines
        tokens = (world.gateway.account_settings()["TOKEN"], _WRONG_TOKEN)
        secrets = {*tokens, *map(digest, tokens)}
        signatures = world.gateway.signatures()
        assert len(signatures) > 5, "the gateway received hardly any signature: this proves nothing"
        text = "\n".join(lines).lower()
        assert [secret[:4] + "..." for secret in secrets if secret in text] == [], (
            "a token was logged"
        )
        assert [signature[:4] + "..." for signature in signatures if signature in text] == [], (
            "a signature was logged"
        )


def _failing(world: World, hook: str, times: int = 1) -> list[AbstractContextManager[object]]:
    """Return the ways in which the plugin's function for a hook fails: before its work, after it,
    and in its database.

    Its database fails at the first statement, and at the first that writes.
    """
    outside = [
        _counted(world.failing_handler(hook, times=times, late=late), times)
        for late in (False, True)
    ]
    return [
        *outside,
        *(_counted(world.interrupted_handler(hook, _fail, at=at), 1) for at in ("", WRITES)),
    ]


@contextmanager
def _counted(failing: AbstractContextManager[list[str]], times: int) -> Iterator[None]:
    with failing as failures:
        yield
    assert len(failures) == times, f"the handler failed {len(failures)} times instead of {times}"


def _fail(_: str) -> None:
    raise OperationalError("the database is away, says the test")


def _soon(world: World) -> None:
    """Let enough time pass for a poll, a lease and an interrupted call to end."""
    for ahead in ({"seconds": 15}, {"minutes": 20}):
        world.time.advance(**ahead)
        faults = world.run_worker().faults
        assert faults == [], f"the worker run failed: {faults}"


def _settled(world: World, payment: Payment) -> None:
    _soon(world)
    expect_paid_once(world, payment.order.key)


def _crash_everywhere(
    prepare: Callable[[], _T],
    action: Callable[[_T], object],
    check: Callable[[_T], None],
) -> None:
    """Let the process die at the first point of an act, then at the second, and so on; after each
    death restart and check.
    """
    for number in count(1):
        subject = prepare()
        with Points(number).installed() as points, suppress(Crash):
            action(subject)
        check(subject)
        Payment.objects.update(next_poll_at=None)  # the next round has nothing to do with this one
        if not points.has_ended:
            assert number > 1, "nothing was written or sent: this proves nothing"
            return
        assert number < _MOST_POINTS, f"more than {_MOST_POINTS} points: {points.names}"


def _much_happens(world: World) -> None:
    """Do everything once that sends or receives a signature, fails, or opens a review."""
    _, payment = paid_at_gateway(world)
    world.gateway_notification(payment, "forged")
    with world.failing_handler("tillgate_payment_paid"):
        world.gateway_notification(payment)
    world.come_back(payment)
    for fault in _OF_CREATIONS:
        world.gateway.fault(fault, "pay")
        world.choose(world.order())
        world.time.advance(minutes=1)  # or the pages would create none after two without an answer
    for fault in _OF_QUERIES:
        world.gateway.fault(fault, "query")
        world.come_back(world.pay_page(world.order()))
    queueing.refund(payment.pk, "2.50")
    world.gateway_notification(payment, "refund")
    for lost_or_refused in (world.gateway.fail_refund, lambda: world.gateway.lose_answer("refund")):
        lost_or_refused()
        queueing.refund(payment.pk, "1.00")
    world.configure({"TOKEN": _WRONG_TOKEN})
    world.choose(world.order())
    world.gateway_notification(payment)
    world.time.advance(minutes=10)
    world.run_worker()
    assert at_gateway(world, payment.order.key) == [payment]
