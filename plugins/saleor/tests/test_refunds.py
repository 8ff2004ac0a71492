"""Refunds that Saleor asks for, and others: once, each under its own reference, and never a
guess.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest
from django.urls import reverse

from tests.double import DoubleTransaction, SaleorDouble
from tests.storefront import RETURN_URL
from tillgate.django.models import OutboxEvent, Payment, Refund, Review
from tillgate.django.orders.locking import OrderHeld
from tillgate.django.payments import reconciling
from tillgate.django.refunds import queueing
from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.shop import RefundNotPossible, locked_order, settle_refund, states
from tillgate.testing.crashes import Crash, Points
from tillgate.testing.world import World, together
from tillgate_saleor import refunds
from tillgate_saleor.documents import Event

DATA = {"method": "alipay", "returnUrl": RETURN_URL}
TOTAL = Decimal("19.90")


@pytest.fixture
def paid(saleor: SaleorDouble, world: World) -> DoubleTransaction:
    """A transaction that is paid, and Saleor knows it."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    return transaction


def refunded_amount(world: World) -> Decimal:
    return Decimal(world.sandbox.service.find(Payment.objects.get().reference).refunded_units) / 100


def told(world: World, transaction: DoubleTransaction) -> Decimal:
    """Return the amount that Saleor holds as refunded, after all reports."""
    assert world.run_worker().faults == []
    return transaction.counted("REFUND")


def asked(world: World) -> int:
    return sum(
        entry.operation == "refund" and entry.direction == "in"
        for entry in world.sandbox.service.journal.all()
    )


def test_partial_refunds_have_their_own_references(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    references = {paid.psp_reference}
    for amount, sum_ in (("2.45", "2.45"), ("2.45", "4.90"), ("15.00", "19.90")):
        status, said = saleor.request_refund(paid, Decimal(amount))
        assert (status, said["result"], said["amount"]) == (200, "REFUND_SUCCESS", float(amount))
        references.add(said["pspReference"])
        assert refunded_amount(world) == told(world, paid) == Decimal(sum_)
    assert len(references) == 4
    assert paid.actions == []


@pytest.mark.parametrize("amount", [0, -1, 1.005, 19.91, 1e9, None, "x", True], ids=repr)
def test_unrefundable_amount_is_refused(
    amount: Any,
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    action = {"actionType": "REFUND", "amount": amount, "currency": "USD"}
    _, said = saleor.call(Event.REFUND, {"action": action, "transaction": {"id": paid.id}})
    assert (said["result"], set(said)) == ("REFUND_FAILURE", {"result", "pspReference", "message"})
    assert refunded_amount(world) == 0
    assert not Refund.objects.exists()


def test_another_currency_is_refused(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    action = {"actionType": "REFUND", "amount": 5, "currency": "PLN"}
    assert (
        saleor.call(Event.REFUND, {"action": action, "transaction": {"id": paid.id}})[1]["result"]
        == "REFUND_FAILURE"
    )
    assert not Refund.objects.exists()


def test_each_refusal_has_its_own_reference(
    saleor: SaleorDouble,
    paid: DoubleTransaction,
) -> None:
    """Saleor takes failures without a pspReference for one: the second request would seem to be
    under way without end.
    """
    answers = [saleor.request_refund(paid, amount)[1] for amount in (100.00, 100.00, 200.00)]
    answers += [saleor.request_charge(paid, 5.00)[1] for _ in range(2)] + [
        saleor.request_cancel(paid)[1] for _ in range(2)
    ]
    assert {said["result"] for said in answers} == {
        "REFUND_FAILURE",
        "CHARGE_FAILURE",
        "CANCEL_FAILURE",
    }
    references = [said["pspReference"] for said in answers]
    assert len(set(references)) == len(references)
    assert [
        event.psp_reference for event in paid.events if event.type.endswith("FAILURE")
    ] == references
    assert paid.charged == Decimal("19.90"), "none of them is the payment's own"


@pytest.mark.parametrize("parts", [("19.90",), ("5.00", "14.90")])
def test_i5_refunding_other_payment_resolves_review(
    parts: tuple[str, ...],
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The review of a second payment ends when staff refund the first one instead."""
    source = saleor.checkout(Decimal("19.90"))
    (first, said), (second, again) = (
        saleor.initialize(source, method, {"method": method}) for method in ("alipay", "paypal")
    )
    for reference in (said["pspReference"], again["pspReference"]):
        world.sandbox.control.pay(reference)
    world.a_day_passes()
    assert world.reviews() == ["second-payment"]
    for part in parts:
        assert world.reviews() == ["second-payment"]
        assert saleor.request_refund(first, Decimal(part))[1]["result"] == "REFUND_SUCCESS"
    world.time.advance(seconds=10)
    world.run_worker()
    assert world.reviews() == []
    assert Review.objects.get().resolution == "Saleor holds as much as it wanted"
    assert (first.charged, second.charged) == (Decimal(0), Decimal("19.90"))


def test_what_nobody_paid_is_not_given_back(saleor: SaleorDouble) -> None:
    transaction, _ = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    assert saleor.request_refund(transaction, TOTAL)[1]["result"] == "REFUND_FAILURE"
    assert not Refund.objects.exists()


def raw_request(saleor: SaleorDouble, transaction: DoubleTransaction, amount: float) -> bytes:
    action = {"actionType": "REFUND", "amount": amount, "currency": "USD"}
    return saleor.body(Event.REFUND, {"action": action, "transaction": {"id": transaction.id}})


def test_repeated_request_is_the_same_refund(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    """A replay of a request that Saleor once signed refunds nothing a second time."""
    raw = raw_request(saleor, paid, 5.0)
    answers = [saleor.post(Event.REFUND, raw, saleor.sign(raw)) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert refunded_amount(world) == Decimal("5.00")
    again = raw_request(saleor, paid, 5.0)  # issued in another moment: another refund
    assert (
        saleor.post(Event.REFUND, again, saleor.sign(again))[1]["pspReference"]
        != answers[0][1]["pspReference"]
    )
    assert refunded_amount(world) == Decimal("10.00")


def test_simultaneous_requests_are_one_refund(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    raw = raw_request(saleor, paid, 5.0)
    signature = saleor.sign(raw)
    answers = together(*[lambda: saleor.post(Event.REFUND, raw, signature)[1]["pspReference"]] * 3)
    assert len(set(answers)) == 1
    assert refunded_amount(world) == Decimal("5.00")


def test_refused_refund_can_be_requested_again(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    world.sandbox.control.fault("refused", occasion="refund")
    _, said = saleor.request_refund(paid, TOTAL)
    assert said["result"] == "REFUND_FAILURE"
    assert told(world, paid) == 0
    assert saleor.request_refund(paid, TOTAL)[1]["result"] == "REFUND_SUCCESS"
    assert refunded_amount(world) == told(world, paid) == TOTAL
    assert paid.counted("CHARGE") == TOTAL, "a failed refund is under a reference of its own"


@pytest.mark.parametrize("fault", ["lost_response", "server_error"])
@pytest.mark.parametrize("was_done", [True, False])
def test_unknown_refund_stays_pending_until_known(
    fault: str,
    was_done: bool,
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    world.sandbox.control.fault(fault, occasion="refund")
    status, said = saleor.request_refund(paid, Decimal("5.00"))
    assert (status, set(said)) == (200, {"pspReference"}), (
        "the answer that Saleor goes on waiting after"
    )
    world.a_day_passes()
    assert asked(world) == 1
    assert [
        event.type for event in paid.events if event.psp_reference == said["pspReference"]
    ] == []
    assert world.reviews() == ["refund-unknown"]
    settle_refund(str(Refund.objects.get().pk), done=was_done, staff="ann")
    assert told(world, paid) == (Decimal("5.00") if was_done else 0)
    (event,) = [event for event in paid.events if event.psp_reference == said["pspReference"]]
    assert event.type == ("REFUND_SUCCESS" if was_done else "REFUND_FAILURE")
    assert event.message == ("Refunded." if was_done else "Not refunded."), (
        "it is not known that the gateway refused it"
    )


@pytest.mark.parametrize(
    ("outcome", "event"),
    [("succeeded", "REFUND_SUCCESS"), ("failed", "REFUND_FAILURE")],
)
def test_slow_refund_stays_pending_until_finished(
    outcome: str,
    event: str,
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    """The gateway accepts a slow refund and finishes it later."""
    world.configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    world.sandbox.control.set_options({"refund_outcome": "pending", "refund_info": "status"})
    status, said = saleor.request_refund(paid, Decimal("5.00"))
    assert (status, set(said)) == (200, {"pspReference"}), (
        "the answer that Saleor goes on waiting after"
    )
    assert told(world, paid) == 0
    assert not world.reviews()
    world.sandbox.control.finish_refund(Payment.objects.get().reference, outcome)
    world.a_day_passes()
    told(world, paid)
    assert [one.type for one in paid.events if one.psp_reference == said["pspReference"]] == [event]


def test_notification_settles_refund_and_tells_saleor(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    world.sandbox.control.fault("lost_response", occasion="refund")
    _, said = saleor.request_refund(paid, Decimal("5.00"))
    address = reverse("tillgate:refund-notification", args=[Refund.objects.get().notification_key])
    world.client.post(address, "status=success", content_type="application/x-www-form-urlencoded")
    assert Refund.objects.get().status == "unknown", "an unsigned notification confirms nothing"
    world.gateway_notification(Payment.objects.get(), "refund")
    assert told(world, paid) == Decimal("5.00")
    assert paid.events[-1].psp_reference == said["pspReference"]


def test_a_refund_in_the_admin_is_reported(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    queueing.refund(Payment.objects.get().pk, "5.00", staff="ann")
    assert told(world, paid) == Decimal("5.00")
    world.sandbox.control.fault("refused", occasion="refund")
    queueing.refund(Payment.objects.get().pk, "5.00", staff="ann")
    assert told(world, paid) == Decimal("5.00")
    assert "REFUND_FAILURE" not in [event.type for event in paid.events], (
        "Saleor never asked for it"
    )


def test_early_refund_leaves_books_balanced(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Money refunded before Saleor heard of it leaves no gap for another payment to fill."""
    source = saleor.checkout(TOTAL)
    first, said = saleor.initialize(source, "one", DATA)
    world.sandbox.control.pay(said["pspReference"])
    with world.failing_handler("tillgate_payment_paid"):
        reconciling.reconcile(Payment.objects.get(), "webhook")
    queueing.refund(Payment.objects.get().pk, TOTAL, staff="ann")
    world.time.advance(minutes=1)
    assert world.run_worker().faults == []
    assert told(world, first) == first.counted("CHARGE") == TOTAL
    second, said = saleor.initialize(source, "two", DATA)
    assert second.amount == TOTAL
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(second)["result"] == "CHARGE_SUCCESS"
    assert told(world, second) == 0
    assert (source.charged, source.ledger) == (TOTAL, ["paid"])
    assert [event.type for event in first.events if event.type.endswith("SUCCESS")] == [
        "CHARGE_SUCCESS",
        "REFUND_SUCCESS",
    ]
    assert world.reviews() == []


def test_known_charge_is_reported_once(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    """Later refunds do not report the charge again."""
    for _ in range(2):
        queueing.refund(Payment.objects.get().pk, "5.00", staff="ann")
    assert told(world, paid) == Decimal("10.00")
    assert OutboxEvent.objects.filter(name="CHARGE_SUCCESS").count() == 1


def test_slow_gateway_still_sends_one_refund(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saleor gets its answer in time."""
    monkeypatch.setattr(refunds, "ANSWER_WITHIN_SECONDS", 0.3)
    world.sandbox.control.set_options({"faults": {"refund.delay": 1.0}, "delay_seconds": 1})
    began = time.monotonic()
    _, said = saleor.request_refund(paid, Decimal("5.00"))
    assert time.monotonic() - began < 0.9
    assert set(said) == {"pspReference"}
    until = time.monotonic() + 10
    while Refund.objects.get().status == "sending" and time.monotonic() < until:
        time.sleep(0.05)
    assert told(world, paid) == refunded_amount(world) == Decimal("5.00")
    assert paid.events[-1].psp_reference == said["pspReference"]
    assert asked(world) == 1


def test_refund_missing_deadline_is_never_begun(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database was held up by another; the answer to Saleor was that nothing was refunded, and
    it is true.
    """
    monkeypatch.setattr(refunds, "ANSWER_WITHIN_SECONDS", 0.3)
    real, held_up = locked_order, threading.Event()

    @contextmanager
    def slow(plugin: str, order_key: str) -> Iterator[Any]:
        time.sleep(0.6)
        with real(plugin, order_key) as order:
            yield order
        held_up.set()

    monkeypatch.setattr(refunds, "locked_order", slow)
    _, said = saleor.request_refund(paid, Decimal("5.00"))
    assert said["result"] == "REFUND_FAILURE"
    assert held_up.wait(10)
    world.a_day_passes()
    assert refunded_amount(world) == 0
    assert not Refund.objects.exists()


def test_refund_of_held_order_fails_readably(
    saleor: SaleorDouble,
    paid: DoubleTransaction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process holds the order."""
    monkeypatch.setattr(
        states,
        "locked",
        Mock(side_effect=OrderHeld("another transaction holds the order")),
    )
    _, said = saleor.request_refund(paid, Decimal("5.00"))
    assert (said["result"], said["message"]) == (
        "REFUND_FAILURE",
        "Another transaction holds the order.",
    )
    assert not Refund.objects.exists()


def test_refused_refund_is_said_for_staff(
    saleor: SaleorDouble,
    paid: DoubleTransaction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = RefundNotPossible("payment T-1: nothing is left", "nothing is left to refund")
    monkeypatch.setattr("tillgate.shop.refund", Mock(side_effect=error))
    _, said = saleor.request_refund(paid, Decimal("5.00"))
    assert said["message"] == "Nothing is left to refund."


def test_dying_process_refunds_nothing_twice(
    saleor: SaleorDouble,
    world: World,
    paid: DoubleTransaction,
) -> None:
    """Saleor sends the request again, with an empty body or, where an attacker replays it,
    unchanged.
    """
    for number in range(1, 40):
        before = refunded_amount(world)
        raw = raw_request(saleor, paid, 0.05)
        signature = saleor.sign(raw)
        with Points(number).installed() as points, suppress(Crash):
            saleor.post(Event.REFUND, raw, signature)
        saleor.post(Event.REFUND, b"", saleor.sign(b""))
        saleor.post(Event.REFUND, raw, signature)
        assert refunded_amount(world) - before <= Decimal("0.05")
        world.time.advance(minutes=20)
        assert world.run_worker().faults == []
        settled = Refund.objects.latest("pk").status
        assert refunded_amount(world) - before == (
            Decimal("0.05") if settled == "succeeded" else refunded_amount(world) - before
        )
        if not points.has_ended:
            assert number > 5
            return
    raise AssertionError("more points than this test looks at")
