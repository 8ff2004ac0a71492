"""Paying through a Saleor: the answers to a storefront, Saleor's books in the end, and no answer
that takes too long.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from tests.double import DoubleTransaction, SaleorDouble, Source
from tests.storefront import RETURN_URL
from tillgate import hooks
from tillgate.django import actions
from tillgate.django.accounting.audit import audit
from tillgate.django.models import Order, Payment, Refund, Review
from tillgate.django.payments import reconciling, starting
from tillgate.django.refunds import queueing
from tillgate.shop import PaymentState, money
from tillgate.testing.crashes import Crash, Points
from tillgate.testing.world import World, together
from tillgate_saleor import costs, deadline, paying, transactions
from tillgate_saleor.answers import moment
from tillgate_saleor.bodies import Source as Told
from tillgate_saleor.deadline import TooLate, within
from tillgate_saleor.documents import Event
from tillgate_saleor.models import Purchase, Transaction

DATA = {"method": "alipay", "returnUrl": RETURN_URL}
TOTAL = Decimal("19.90")
NOTHING = Decimal(0)


def reports(saleor: SaleorDouble) -> int:
    return sum(name == "mutation Report" for name, _ in saleor.requests)


def run_worker(world: World) -> None:
    world.time.advance(seconds=10)
    assert world.run_worker().faults == []


def half_paid(saleor: SaleorDouble, world: World) -> Source:
    """Return a checkout whose cart had grown to twice as much when the old payment page was
    paid.
    """
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA)
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert world.reviews() == ["underpaid"]
    return source


def raising(error: BaseException) -> Any:
    """Return a function that raises."""

    def fail(*_: Any) -> None:
        raise error

    return fail


def given_up(saleor: SaleorDouble, world: World, reference: str) -> None:
    """Let money come while the App is deactivated, and let staff accept that Saleor does not hear
    of it.
    """
    tokens, saleor.tokens = saleor.tokens, {}
    world.sandbox.control.pay(reference)
    for _ in range(6):
        world.time.advance(minutes=10)
        world.run_worker()
    assert world.reviews() == ["delivery-failing"]
    actions.take_action(
        Review.objects.get(resolved_at__isnull=True).pk,
        "dismiss",
        staff="ann",
        note="I see to it",
    )
    saleor.tokens = tokens
    run_worker(world)


# Beginning ----------------------------------------------------------------------------------------


def test_channel_methods_keep_their_order(
    saleor: SaleorDouble,
    settings: Any,
) -> None:
    channels = {"default-channel": {"PAYMENT_METHODS": ["paypal", "alipay"]}}
    settings.TILLGATE_SALEOR = {"SALEORS": {saleor.origin: {"CHANNELS": channels}}}
    _, said = saleor.gateway_initialize(saleor.checkout(TOTAL))
    assert said == {
        "data": {
            "methods": [{"id": "paypal", "name": "PayPal"}, {"id": "alipay", "name": "Alipay"}],
        },
    }
    _, refused = saleor.initialize(saleor.checkout(TOTAL), "key", {"method": "wechatpay"})
    assert refused["result"] == "CHARGE_FAILURE"


def test_channel_in_other_currency_offers_nothing(saleor: SaleorDouble) -> None:
    assert saleor.gateway_initialize(saleor.checkout(TOTAL, "PLN"))[1] == {"data": {"methods": []}}


def test_a_channel_is_paid_to_its_account(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    settings.TILLGATE = {
        **settings.TILLGATE,
        "ACCOUNTS": dict.fromkeys(("default", "asia"), settings.TILLGATE["ACCOUNTS"]["default"]),
    }
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"CHANNELS": {"default-channel": {"ACCOUNT": "asia"}}}},
    }
    _, said = saleor.initialize(saleor.checkout(TOTAL), "key", {"method": "alipay"})
    assert said["result"] == "CHARGE_ACTION_REQUIRED"
    assert Payment.objects.get().account == "asia"


def test_the_same_key_is_the_same_payment(saleor: SaleorDouble) -> None:
    source = saleor.checkout(TOTAL)
    answers = [saleor.initialize(source, "key", DATA)[1] for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert Payment.objects.count() == 1


def test_same_key_survives_withdrawn_method(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """The same key is the same payment even if its method is no longer offered."""
    source = saleor.checkout(TOTAL)
    _, first = saleor.initialize(source, "key", DATA)
    world.configure(PAYMENT_METHODS=["paypal"])
    assert saleor.initialize(source, "key", DATA)[1] == first
    world.sandbox.control.pay(first["pspReference"])
    settings.TILLGATE_SALEOR = {"SALEORS": {}}
    assert saleor.initialize(source, "key", DATA)[1]["result"] == "CHARGE_SUCCESS", (
        "nobody who has paid is told otherwise"
    )
    assert source.transactions[0].charged == TOTAL


def test_simultaneous_same_key_makes_one_payment(saleor: SaleorDouble) -> None:
    source = saleor.checkout(TOTAL)
    saleor.initialize(saleor.checkout(Decimal("1.00")), "warm", DATA)
    first, second = together(
        *[lambda: saleor.initialize(source, "key", DATA)[1]["data"]["cashierUrl"]] * 2,
    )
    assert first == second
    assert Payment.objects.filter(amount=TOTAL).count() == 1


@pytest.mark.parametrize("fault", ["", "refused"])
def test_same_key_waits_for_payment_creation(
    fault: str,
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repeat during the creation waits and gets the same answer as the first call."""
    real, is_creating, asked_again = hooks.pay, threading.Event(), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        is_creating.set()
        assert asked_again.wait(10)
        time.sleep(0.3)  # until the second press has polled
        return real(*arguments, **options)

    def press() -> Any:
        said = saleor.initialize(source, "key", DATA)[1]
        return said["result"], said["pspReference"], said.get("data")

    def press_again() -> Any:
        assert is_creating.wait(10)
        asked_again.set()
        return press()

    monkeypatch.setattr(hooks, "pay", slow)
    if fault:
        world.sandbox.control.fault(fault, occasion="pay")
    source = saleor.checkout(TOTAL)
    first, second = together(press, press_again)
    payment = Payment.objects.get()
    is_there = ("CHARGE_ACTION_REQUIRED", payment.reference, {"cashierUrl": payment.payment_url})
    assert first == second == (("CHARGE_FAILURE", payment.reference, None) if fault else is_there)


def test_same_key_pays_each_checkout_separately(saleor: SaleorDouble) -> None:
    answers = [saleor.initialize(saleor.checkout(TOTAL), "key", DATA)[1] for _ in range(2)]
    assert answers[0]["pspReference"] != answers[1]["pspReference"]


def test_double_press_charges_one_transaction(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A shopper pressed twice, and the storefront used two keys."""
    source = saleor.checkout(TOTAL)
    (first, said), (second, again) = (
        saleor.initialize(source, key, DATA) for key in ("one", "two")
    )
    assert (again["pspReference"], again["data"]) == (said["pspReference"], said["data"])
    world.sandbox.control.pay(again["pspReference"])
    assert saleor.process(first)["result"] == "CHARGE_FAILURE"
    assert saleor.process(second)["result"] == "CHARGE_SUCCESS"
    run_worker(world)
    assert (first.charged, second.charged) == (NOTHING, TOTAL)


def test_simultaneous_presses_share_one_payment_page(
    saleor: SaleorDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second is begun and answered while the first is about to be."""
    source, answers = saleor.checkout(TOTAL), list[Any]()

    def attach_and_be_overtaken(begun: Transaction, payment: PaymentState) -> bool:
        is_told = transactions.attach(begun, payment)
        monkeypatch.setattr(paying, "attach", transactions.attach)
        answers.append(saleor.initialize(source, "two", DATA)[1])
        return is_told

    monkeypatch.setattr(paying, "attach", attach_and_be_overtaken)
    answers.append(saleor.initialize(source, "one", DATA)[1])
    assert [said["result"] for said in answers] == ["CHARGE_ACTION_REQUIRED"] * 2
    assert answers[0]["data"] == answers[1]["data"]


def test_a_channel_that_authorizes_is_charged(saleor: SaleorDouble, world: World) -> None:
    saleor.strategy = "AUTHORIZATION"
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    assert said["result"] == "CHARGE_ACTION_REQUIRED"
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"


def test_refused_creation_leaves_next_transaction_payable(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A refused creation says so, and another transaction can pay."""
    source = saleor.checkout(TOTAL)
    world.sandbox.control.fault("refused", occasion="pay")
    _, said = saleor.initialize(source, "one", DATA)
    assert said["result"] == "CHARGE_FAILURE"
    assert said["pspReference"] == Payment.objects.get().reference
    assert saleor.initialize(source, "one", DATA)[1]["result"] == "CHARGE_FAILURE", (
        "a transaction has one payment, and keeps it"
    )
    transaction, said = saleor.initialize(source, "two", DATA)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"


def test_paid_shopper_gets_no_payment_page(
    saleor: SaleorDouble,
    world: World,
) -> None:
    source = saleor.checkout(TOTAL)
    first, said = saleor.initialize(source, "one", DATA)
    world.sandbox.control.pay(said["pspReference"])
    _, again = saleor.initialize(source, "two", {"method": "paypal"}, TOTAL)
    assert (again["result"], "pspReference" in again) == ("CHARGE_FAILURE", False)
    assert len(world.sandbox.service.transactions()) == 1
    run_worker(world)
    assert first.charged == TOTAL


def test_killed_process_finds_its_payment_again(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Wherever it dies: money that the gateway could take is reported to the right transaction."""
    for number in range(1, 40):
        source = saleor.checkout(TOTAL)
        with Points(number).installed() as points, suppress(Crash):
            saleor.initialize(source, "key", DATA)
        created = [
            one
            for one in Payment.objects.filter(order__key__endswith=source.id)
            if one.status != "failed"
        ]
        known = {one.reference for one in world.sandbox.service.transactions()}
        for payment in created:
            if payment.reference in known:
                world.sandbox.control.pay(payment.reference)
        world.time.advance(minutes=20)
        assert world.run_worker().faults == []
        held = sum(
            Decimal(world.sandbox.service.find(one.reference).amount)
            for one in created
            if one.reference in known
        )
        assert source.charged == held
        if not points.has_ended:
            assert number > 5
            return
    raise AssertionError("more points than this test looks at")


def test_trusted_saleor_may_pay_in_parts(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """A part now and the rest later, or an order that became dearer after it was paid."""
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"], "PARTS": True}},
    }
    source = saleor.checkout(TOTAL)
    first, said = saleor.initialize(source, "one", DATA, Decimal("5.00"))
    world.sandbox.control.pay(said["pspReference"])
    _, soon = saleor.initialize(source, "two", DATA, Decimal("14.90"))
    assert soon["result"] == "CHARGE_FAILURE", (
        "Saleor has not heard of the first yet, and may mean the same money"
    )
    run_worker(world)
    assert source.ledger == []
    second, said = saleor.initialize(source, "three", DATA)
    assert second.amount == Decimal("14.90"), (source.charged, first.events)
    assert saleor.initialize(source, "three", DATA)[1] == said
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(second)["result"] == "CHARGE_SUCCESS"
    run_worker(world)
    assert (first.charged, second.charged, source.ledger) == (
        Decimal("5.00"),
        Decimal("14.90"),
        ["paid"],
    )
    assert saleor.request_refund(second, Decimal("14.90"))[1]["result"] == "REFUND_SUCCESS"
    assert world.reviews() == []


def test_payment_in_parts_needs_owner_permission(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing more is charged unless the owner has allowed payment in parts."""
    monkeypatch.setattr(saleor, "tells_costs", False)
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA, Decimal("5.00"))
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    assert saleor.initialize(source, "two", DATA)[1]["result"] == "CHARGE_FAILURE"


def test_storefront_amount_is_not_checkout_cost(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A smaller amount named by the storefront is refused and cannot pay the checkout."""
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA)
    saleor.gateway_initialize(source, Decimal("0.01"))
    for number, method in enumerate(("alipay", "paypal")):
        _, refused = saleor.initialize(
            source,
            f"less {number}",
            {"method": method},
            Decimal("0.01"),
        )
        assert (refused["result"], "pspReference" in refused) == ("CHARGE_FAILURE", False)
        assert "USD 19.90 is left to be paid" in refused["message"]
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    assert (source.ledger, world.reviews()) == (["paid"], [])
    assert Payment.objects.count() == 1


def test_no_more_than_rest_is_charged(saleor: SaleorDouble, world: World) -> None:
    """A tab that was left open names the total of before, or Saleor itself a total that a gift card
    pays in part.
    """
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA, TOTAL * 3)
    assert said["amount"] == 19.9
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert world.reviews() == ["underpaid"]
    _, rest = saleor.initialize(source, "two", {"method": "paypal"})
    _, stale = saleor.initialize(source, "three", {"method": "gcash"}, TOTAL * 2)
    assert (rest["amount"], stale["amount"]) == (19.9, 19.9)
    world.sandbox.control.pay(rest["pspReference"])
    run_worker(world)
    assert (source.ledger, world.reviews()) == (["paid"], [])


@pytest.mark.parametrize("is_seen", [True, False])
def test_second_payment_during_conclusion_is_reviewed(
    is_seen: bool,
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A payment that arrives while a review is being closed still reaches staff."""
    source = saleor.checkout(TOTAL)
    _, little = saleor.initialize(source, "little", DATA)
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(little["pspReference"])
    run_worker(world)
    run_worker(world)
    references = [
        saleor.initialize(source, method, {"method": method})[1]["pspReference"]
        for method in ("gcash", "paypal")
    ]
    for reference in references:
        world.sandbox.control.pay(reference)
    reconciling.reconcile(Payment.objects.get(reference=references[0]), "webhook")
    real, later = costs._held, [Payment.objects.get(reference=references[1])]

    def overtaken(parts: Any) -> Any:
        held = None if is_seen else real(parts)
        while later:
            reconciling.reconcile(later.pop(), "webhook")
        return held or real(parts)

    with monkeypatch.context() as patched:
        patched.setattr(costs, "_held", overtaken)
        costs.conclude(list(Purchase.objects.all()))
    assert world.reviews() == [*(["underpaid"] if is_seen else []), "second-payment"]


def test_paid_checkout_refuses_any_named_amount(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The cart grows, the shopper pays the old page, and the cart shrinks again: a cent would be
    taken for the whole.
    """
    source = half_paid(saleor, world)
    source.total = TOTAL
    for amount in (Decimal("0.01"), TOTAL, TOTAL * 2):
        _, refused = saleor.initialize(source, f"named {amount}", {"method": "paypal"}, amount)
        assert refused["message"] == "This is paid already."
    assert Payment.objects.count() == 1


def test_payment_by_other_app_blocks_ours(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """No payment starts for a checkout that another app has paid in full."""
    source = saleor.checkout(TOTAL)
    saleor.charge_by_another_app(source, TOTAL)
    assert (
        saleor.initialize(source, "stale tab", DATA, TOTAL)[1]["message"] == "This is paid already."
    )


def test_payment_beside_other_app_is_reviewed(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """If another app was paid in between, our money is reviewed and our page withdrawn."""
    source = saleor.checkout(TOTAL)
    transaction, said = saleor.initialize(source, "ours", DATA)
    saleor.charge_by_another_app(source, TOTAL)
    again = saleor.process(transaction)
    assert (again["result"], again.get("data")) == ("CHARGE_ACTION_REQUIRED", None)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert world.reviews() == ["paid-not-payable"]
    assert transaction.charged == TOTAL, (
        "Saleor's books hold it, so that its staff can give it back"
    )


@pytest.mark.parametrize("theirs", [TOTAL, TOTAL - 1])
def test_unheard_other_payment_is_reviewed_first(
    theirs: Decimal,
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The review opens before Saleor hears of our money."""
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "ours", DATA)
    saleor.charge_by_another_app(source, theirs)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert world.reviews() == ["overpaid"]
    assert f"Saleor wants {TOTAL - theirs} by now" in Review.objects.get().message


@pytest.mark.parametrize("door", ["report", "payment step", "process", "begun again"])
def test_unheard_price_rise_opens_review(
    door: str,
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In another tab, or since a sale has ended: Saleor would make no order of it, and shows the
    checkout to no shopper.
    """
    source = saleor.checkout(TOTAL)
    transaction, said = saleor.initialize(source, "one", DATA)
    world.sandbox.control.pay(said["pspReference"])
    reconciling.reconcile(Payment.objects.get(), "webhook")
    assert Purchase.objects.get().paid_reference == said["pspReference"]
    source.total = TOTAL * 2
    match door:
        case "payment step":
            saleor.gateway_initialize(source)
        case "process":
            assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
        case "begun again":
            saleor.initialize(source, "one", DATA)
        case _:
            run_worker(world)
    assert world.reviews() == ["underpaid"]
    run_worker(world)
    _, rest = saleor.initialize(source, "rest", {"method": "paypal"}, TOTAL * 2)
    assert (rest["result"], rest["amount"]) == ("CHARGE_ACTION_REQUIRED", 19.9)
    world.sandbox.control.pay(rest["pspReference"])
    run_worker(world)
    run_worker(world)
    assert (source.ledger, source.charged, world.reviews()) == (["paid"], TOTAL * 2, [])
    assert saleor.initialize(source, "third", DATA, TOTAL)[1]["message"] == "This is paid already."
    assert (
        list(audit(timezone.now() - timedelta(days=2), timezone.now() + timedelta(seconds=1))) == []
    )


def test_price_drop_review_ends_with_refund(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The review of a checkout that got cheaper closes after refunding the difference."""
    source = saleor.checkout(TOTAL)
    transaction, said = saleor.initialize(source, "one", DATA)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    source.total = Decimal("15.00")
    saleor.gateway_initialize(source)
    assert world.reviews() == ["overpaid"]
    saleor.request_refund(transaction, Decimal("4.90"))
    run_worker(world)
    assert world.reviews() == []


@pytest.mark.parametrize(
    ("back", "says"),
    [("5.00", "This is paid already."), ("19.90", "This was paid, and the money was refunded.")],
)
def test_refunded_order_is_not_charged_again(
    back: str,
    says: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    order = begun_order(saleor, world)
    paid_at_the_gateway(world)
    run_worker(world)
    run_worker(world)
    saleor.request_refund(order.transactions[0], Decimal(back))
    run_worker(world)
    assert saleor.initialize(order, "again", {"method": "paypal"}, TOTAL)[1]["message"] == says
    assert world.reviews() == []


def pays(
    saleor: SaleorDouble,
    world: World,
    source: Source,
    key: str,
    method: str = "alipay",
) -> Any:
    """Begin to pay, pay, and deliver all reports; return the transaction."""
    transaction, said = saleor.initialize(source, key, {"method": method})
    assert said["result"] == "CHARGE_ACTION_REQUIRED", said["message"]
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    return transaction


def test_fully_refunded_checkout_can_be_repaid(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """It becomes an order by its charged amount, and by nothing else."""
    source = saleor.checkout(TOTAL)
    saleor.request_refund(pays(saleor, world, source, "one"), TOTAL)
    run_worker(world)
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    assert world.reviews() == [], "nothing is held"
    pays(saleor, world, source, "two", "paypal")
    assert (source.charged, world.reviews()) == (TOTAL * 2, [])


def test_refunded_difference_can_be_charged_again(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A refunded difference can be paid once the checkout costs that much again."""
    source = saleor.checkout(TOTAL)
    pays(saleor, world, source, "one")
    source.total = Decimal("15.00")
    saleor.gateway_initialize(source)
    actions.take_action(Review.objects.get().pk, "refund", staff="ann", amount="4.90")
    run_worker(world)
    run_worker(world)
    assert (source.charged, world.reviews()) == (Decimal("15.00"), [])
    source.total = TOTAL + 5
    saleor.gateway_initialize(source)
    assert world.reviews() == ["underpaid"]
    pays(saleor, world, source, "rest", "paypal")
    assert (source.charged, world.reviews()) == (TOTAL + 5, [])


def test_rest_alone_is_underpaid_after_refund(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """If the first part was refunded, the rest alone does not pay the checkout."""
    source = saleor.checkout(TOTAL)
    pays(saleor, world, source, "one")
    source.total = TOTAL * 2
    _, rest = saleor.initialize(source, "rest", {"method": "paypal"})
    actions.take_action(Review.objects.get().pk, "refund", staff="ann", amount=str(TOTAL))
    run_worker(world)
    world.sandbox.control.pay(rest["pspReference"])
    run_worker(world)
    run_worker(world)
    assert (source.charged, world.reviews()) == (TOTAL, ["underpaid"])
    pays(saleor, world, source, "third", "gcash")
    assert (source.charged, world.reviews()) == (TOTAL * 2, [])


def test_rest_payable_after_refunding_first_payment(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """After a double payment the first one may be refunded instead of the second."""
    source = saleor.checkout(TOTAL)
    (first, one), (_, two) = (
        saleor.initialize(source, method, {"method": method}) for method in ("alipay", "paypal")
    )
    for said in (one, two):
        world.sandbox.control.pay(said["pspReference"])
        run_worker(world)
        run_worker(world)
    saleor.request_refund(first, TOTAL)
    run_worker(world)
    assert (source.charged, world.reviews()) == (TOTAL, [])
    source.total = TOTAL * 2
    pays(saleor, world, source, "rest", "gcash")
    assert (source.charged, world.reviews()) == (TOTAL * 2, [])


@pytest.mark.parametrize(("by", "reason"), [(5, "underpaid"), (-5, "overpaid")])
def test_abandoned_rest_still_opens_review(
    by: int,
    reason: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A rest that was started but never paid does not hide a price change from staff."""
    source = saleor.checkout(TOTAL)
    pays(saleor, world, source, "one")
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    saleor.initialize(source, "rest", {"method": "paypal"})
    world.a_day_passes()
    source.total = TOTAL + by
    saleor.gateway_initialize(source)
    assert world.reviews() == [reason]


def test_i4_second_payment_after_acceptance_is_reviewed(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Staff had already accepted the underpayment."""
    source = saleor.checkout(TOTAL)
    (_, one), (_, two) = (
        saleor.initialize(source, method, {"method": method}) for method in ("alipay", "paypal")
    )
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(one["pspReference"])
    run_worker(world)
    run_worker(world)
    actions.take_action(
        Review.objects.get().pk,
        "dismiss",
        staff="ann",
        note="the shopper will take it out",
    )
    source.total = TOTAL
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(two["pspReference"])
    run_worker(world)
    run_worker(world)
    assert (source.charged, world.reviews()) == (TOTAL * 2, ["overpaid"])


def test_underpaid_review_ends_with_price_drop(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The review closes when the cart costs the paid amount again."""
    source = half_paid(saleor, world)
    source.total = TOTAL
    saleor.gateway_initialize(source)
    assert world.reviews() == []


def test_simultaneous_presses_make_one_part(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = saleor.checkout(TOTAL)
    pays(saleor, world, source, "one")
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    real = transactions._is_more_wanted

    def slowly(*arguments: Any) -> bool:
        time.sleep(0.3)
        return real(*arguments)

    monkeypatch.setattr(transactions, "_is_more_wanted", slowly)
    presses = together(
        *[
            lambda number=number: saleor.initialize(source, f"rest {number}", DATA)[1]["result"]
            for number in range(2)
        ],
    )
    assert presses == ["CHARGE_ACTION_REQUIRED"] * 2
    assert Purchase.objects.count() == 2


def test_money_is_reported_without_known_cost(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have to ask other Apps for taxes, however long they take."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "one", DATA)
    real = saleor.graphql

    def slowly(token: str, asked: Any) -> Any:
        if "query Costs" in asked["query"]:
            raise ConnectionResetError
        return real(token, asked)

    monkeypatch.setattr(saleor, "graphql", slowly)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert transaction.charged == TOTAL


def test_double_press_makes_one_part(saleor: SaleorDouble, world: World) -> None:
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    source.total = TOTAL * 2
    rests = [saleor.initialize(source, f"rest {number}", DATA)[1] for number in range(2)]
    assert rests[0]["pspReference"] == rests[1]["pspReference"]
    assert Purchase.objects.count() == 2
    world.sandbox.control.pay(rests[1]["pspReference"])
    run_worker(world)
    assert (source.charged, world.reviews()) == (TOTAL * 2, [])


def test_two_open_pages_pay_grown_cart(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Two open pages that add up to the new total pay the cart without a review."""
    source = saleor.checkout(TOTAL)
    references = [
        saleor.initialize(source, method, {"method": method})[1]["pspReference"]
        for method in ("alipay", "paypal")
    ]
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    for reference in references:
        world.sandbox.control.pay(reference)
        run_worker(world)
        run_worker(world)
    assert (source.ledger, source.charged, world.reviews()) == (["paid"], TOTAL * 2, [])
    assert (
        saleor.initialize(source, "third", DATA, TOTAL * 2)[1]["message"] == "This is paid already."
    )


def test_review_states_cost_not_rest(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The review names the cost of the order, not the rest that was left to pay."""
    source = saleor.checkout(TOTAL * 2)
    _, whole = saleor.initialize(source, "whole", DATA)
    source.total = TOTAL
    _, half = saleor.initialize(source, "half", {"method": "paypal"})
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    for said in (half, whole):
        world.sandbox.control.pay(said["pspReference"])
        run_worker(world)
        run_worker(world)
    assert sorted(world.reviews()) == ["overpaid", "underpaid"]
    assert "the order costs USD 39.80 by now" in Review.objects.get(reason="underpaid").message


def test_i4_canceled_but_paid_starts_no_payment(
    saleor: SaleorDouble,
    world: World,
) -> None:
    source = saleor.checkout(TOTAL)
    transaction, said = saleor.initialize(source, "one", DATA)
    saleor.request_cancel(transaction)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert (source.charged, world.reviews()) == (TOTAL, ["paid-not-payable"])
    assert (
        saleor.initialize(source, "two", {"method": "paypal"}, TOTAL)[1]["result"]
        == "CHARGE_FAILURE"
    )


def test_killed_process_leaves_no_stale_review(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The review closes even if a process is killed right after the rest was paid."""
    source = half_paid(saleor, world)
    _, rest = saleor.initialize(source, "two", {"method": "paypal"})
    world.sandbox.control.pay(rest["pspReference"])
    with monkeypatch.context() as patched, suppress(Crash):
        patched.setattr(costs, "close_reviews", raising(Crash("here")))
        reconciling.reconcile(Payment.objects.get(reference=rest["pspReference"]), "webhook")
        run_worker(world)
    run_worker(world)
    world.a_day_passes()
    assert (source.ledger, world.reviews()) == (["paid"], [])


def test_money_of_other_app_lowers_rest(saleor: SaleorDouble, world: World) -> None:
    """An amount that another app holds is not charged again."""
    source = saleor.checkout(TOTAL)
    saleor.charge_by_another_app(source, Decimal("10.00"))
    _, said = saleor.initialize(source, "rest", DATA)
    assert said["amount"] == 9.9
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    assert (source.ledger, world.reviews()) == (["paid"], [])


def test_balance_tells_cost_of_order(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The cost follows from the balance, whichever app holds the money."""
    body = saleor.session_body(begun_order(saleor, world).transactions[0])["sourceObject"]

    def held(name: str, **amounts: str) -> dict[str, Any]:
        return {
            "id": name,
            **{
                f"{kind}Amount": {"amount": money.WireNumber(amount)}
                for kind, amount in amounts.items()
            },
        }

    ours = held("ours", charged="5.0")
    for balance, begun, expected in (
        ("-19.9", [], "19.90"),
        ("-14.9", [ours], "19.90"),
        ("-9.9", [ours, held("other", charged="5")], "14.90"),
        ("-4.9", [ours, held("other", charged="5", chargePending="5")], "9.90"),
        ("-14.9", [ours, held("other", authorized="7", authorizePending="1.5")], "11.40"),
        ("5", [ours], "0.00"),
        ("0", [], "0.00"),
        ("-24.9", [held("other", charged="-5.0")], "19.90"),
        ("-19.9", None, "19.90"),
    ):
        told = Told.model_validate(
            {**body, "totalBalance": {"amount": money.WireNumber(balance)}, "transactions": begun},
        )
        assert told.costs_without({"ours"}) == Decimal(expected)
    for unclear in (money.WireNumber("-12.3456"), None, True, "5", money.WireNumber("-1e30")):
        assert (
            Told.model_validate({**body, "totalBalance": {"amount": unclear}}).costs_without(())
            is None
        )


# How it stands ------------------------------------------------------------------------------------


def test_process_tells_what_the_gateway_says_now(saleor: SaleorDouble, world: World) -> None:
    transaction, begun = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    assert saleor.process(transaction) == begun
    world.sandbox.control.pay(begun["pspReference"])
    paid = saleor.process(transaction)
    assert (paid["result"], paid["pspReference"], paid["amount"]) == (
        "CHARGE_SUCCESS",
        begun["pspReference"],
        19.9,
    )


def test_process_believes_nobody_but_the_gateway(saleor: SaleorDouble) -> None:
    transaction, _ = saleor.initialize(
        saleor.checkout(TOTAL),
        "key",
        {**DATA, "status": "paid", "returned": True},
    )
    assert saleor.process(transaction)["result"] == "CHARGE_ACTION_REQUIRED"


def test_a_declined_payment_is_a_failure(saleor: SaleorDouble, world: World) -> None:
    transaction, begun = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.decline(begun["pspReference"])
    declined = saleor.process(transaction)
    assert (declined["result"], declined["pspReference"], declined["actions"]) == (
        "CHARGE_FAILURE",
        begun["pspReference"],
        [],
    )


@pytest.mark.parametrize(
    ("status", "word", "message"),
    [
        ("failed", "failed", "Your payment was declined. Nothing was charged."),
        ("closed", "cancelled", "The payment was cancelled. Nothing was charged."),
        ("closed", "expired", "The time to pay has passed. Nothing was charged."),
        ("closed", "closed", "The payment was not made. Nothing was charged."),
        ("expired", "", "The time to pay has passed. Nothing was charged."),
    ],
)
def test_a_shopper_reads_why_a_payment_ended(
    saleor: SaleorDouble,
    status: str,
    word: str,
    message: str,
) -> None:
    transaction, _ = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    Payment.objects.update(status=status, status_text=word)
    assert saleor.process(transaction)["message"] == message


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("failed", "Ihre Zahlung wurde abgelehnt. Es wurde nichts abgebucht."),
        ("closed", "Die Zahlung wurde abgebrochen. Es wurde nichts abgebucht."),
        ("expired", "Die Zeit zum Bezahlen ist abgelaufen. Es wurde nichts abgebucht."),
    ],
)
def test_german_shop_explains_failure_in_german(
    saleor: SaleorDouble,
    settings: Any,
    status: str,
    message: str,
) -> None:
    settings.LANGUAGE_CODE = "de"
    transaction, _ = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    Payment.objects.update(status=status, status_text="cancelled")
    assert saleor.process(transaction)["message"] == message


@pytest.mark.parametrize(
    "fault",
    ["server_error", "lost_response", "broken_json", "denied", "wrong_amount"],
)
def test_failed_query_leaves_payment_open(
    fault: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    transaction, begun = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(begun["pspReference"])
    world.sandbox.control.fault(fault, occasion="query")
    assert saleor.process(transaction)["result"] == "CHARGE_ACTION_REQUIRED"
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"


def test_transaction_never_started_is_failure(saleor: SaleorDouble) -> None:
    transaction, _ = saleor.initialize(saleor.checkout(TOTAL), "key", None)
    for said in (
        saleor.process(transaction),
        saleor.request_cancel(transaction)[1],
        saleor.request_refund(transaction, 5)[1],
    ):
        assert said["result"].endswith("_FAILURE")
        assert said.get("pspReference", "refused-").startswith("refused-")
    assert not Payment.objects.exists()


def test_shopper_returns_to_storefront_with_transaction(
    saleor: SaleorDouble,
    world: World,
) -> None:
    url = "http://testserver/storefront/back/?order=1&x=%C3%BC"
    transaction, said = saleor.initialize(
        saleor.checkout(TOTAL),
        "key",
        {"method": "alipay", "returnUrl": url},
    )
    back = urlsplit(world.sandbox.control.pay(said["pspReference"]) or "")
    answer = Client().get(f"{back.path}?{back.query}")
    assert answer["Location"].startswith(
        "http://testserver/storefront/back/?order=1&x=%C3%BC&transaction=",
    )
    assert Client().get(answer["Location"]).content == b"CHARGE_SUCCESS"
    assert transaction.charged == TOTAL


def test_shopper_without_return_address_stays(saleor: SaleorDouble, world: World) -> None:
    """Without an address to go back to, the shopper stays on our return page."""
    _, said = saleor.initialize(saleor.checkout(TOTAL), "key", {"method": "alipay"})
    back = urlsplit(world.sandbox.control.pay(said["pspReference"]) or "")
    assert Client().get(f"{back.path}?{back.query}").status_code == 200


def test_unpaid_shopper_can_return_to_checkout(
    saleor: SaleorDouble,
    settings: Any,
) -> None:
    configured = {
        "STOREFRONTS": ["http://testserver"],
        "CHECKOUT_URL": "https://www.shop.example/checkout?checkout={id}",
    }
    for given, is_shown in (({"STOREFRONTS": ["http://testserver"]}, False), (configured, True)):
        settings.TILLGATE_SALEOR = {"SALEORS": {saleor.origin: given}}
        checkout = saleor.checkout(TOTAL)
        saleor.initialize(checkout, "key" + str(is_shown), DATA)
        page = (
            Client()
            .get(f"/payments/return/{Payment.objects.latest('pk').return_key}/")
            .content.decode()
        )
        link = (
            f'href="https://www.shop.example/checkout?checkout={quote(checkout.id)}">Choose '
            "another payment method</a>"
        )
        assert (link in page) is is_shown


# Reports ------------------------------------------------------------------------------------------


def test_payment_without_return_is_reported_once(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A payment is reported once even if the shopper never comes back."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    world.a_day_passes()
    assert (transaction.charged, transaction.references_charged, reports(saleor)) == (TOTAL, 1, 1)
    assert transaction.actions == ["REFUND"]


def test_process_and_report_share_reference(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The answer to process and the later report carry the same reference."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    saleor.process(transaction)
    run_worker(world)
    assert (transaction.charged, transaction.references_charged, reports(saleor)) == (TOTAL, 1, 1)


def test_unreachable_saleor_hears_later(saleor: SaleorDouble, world: World) -> None:
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    saleor.is_down = True
    world.a_day_passes()
    assert transaction.charged == 0
    assert world.reviews() == ["delivery-failing"]
    saleor.is_down = False
    world.a_day_passes()
    assert transaction.charged == TOTAL
    assert world.reviews() == []


def test_late_money_is_reported_after_failure(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """An unpaid transaction is reported as failed, and late money is still reported."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.a_day_passes()
    assert transaction.has_failed
    world.sandbox.control.service.decide(said["pspReference"], "pay", late=True)
    world.time.advance(days=8)
    world.run_worker()
    assert world.reviews() == ["paid-not-payable"]
    run_worker(world)
    assert transaction.charged == TOTAL, "Saleor's books hold what came"


def test_slow_clock_keeps_money_after_failure(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Of a success and a failure under one reference the later one counts there, by the times that
    both have.
    """
    world.time.offset = -timedelta(minutes=3)
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.decline(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_FAILURE"
    world.sandbox.control.service.decide(said["pspReference"], "pay", late=True)
    reconciling.reconcile(Payment.objects.get(), "test")
    run_worker(world)
    assert transaction.charged == TOTAL


def test_fast_clock_keeps_money_after_failure(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A payment after a failure counts even if our clock is ahead of Saleor's."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.a_day_passes()
    assert transaction.has_failed
    world.sandbox.control.service.decide(said["pspReference"], "pay", late=True)
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    run_worker(world)
    assert transaction.charged == TOTAL


def test_reset_clock_keeps_money_after_failure(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A payment after a failure counts even if our clock was set back in between."""
    world.time.offset = timedelta(minutes=3)
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.decline(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_FAILURE"
    world.time.offset = timedelta(0)
    world.sandbox.control.service.decide(said["pspReference"], "pay", late=True)
    reconciling.reconcile(Payment.objects.get(), "test")
    run_worker(world)
    assert transaction.charged == TOTAL
    assert datetime.fromisoformat(saleor.process(transaction)["time"]) > timezone.now() + timedelta(
        minutes=2,
    )


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 7, 1, 8, 30),  # noqa: DTZ001  # without USE_TZ
        datetime(2026, 7, 1, 12, 30, tzinfo=UTC),
    ],
)
def test_saleor_always_receives_utc_times(
    at: datetime,
    settings: Any,
) -> None:
    """The time zone of the project makes no difference."""
    settings.TIME_ZONE = "America/New_York"
    assert moment(at) == "2026-07-01T12:30:00+00:00"


def test_abandoned_checkout_can_still_be_paid(
    saleor: SaleorDouble,
    world: World,
) -> None:
    source = saleor.checkout(TOTAL)
    saleor.initialize(source, "one", DATA)
    world.a_day_passes()
    source.status = "open"
    transaction, said = saleor.initialize(source, "two", DATA)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    run_worker(world)
    assert source.ledger == ["paid"]
    assert world.reviews() == []


def test_payment_wins_over_simultaneous_abandonment(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A payment that starts while its checkout is being cancelled still pays it."""
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA)
    world.sandbox.control.decline(said["pspReference"])
    real = starting.start_payment

    def late(*arguments: Any, **named: Any) -> Any:
        world.a_day_passes()
        source.status = "open"
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(starting, "start_payment", late)
        second, said = saleor.initialize(source, "two", DATA)
    assert Purchase.objects.get().given_up_at is not None
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(second)["result"] == "CHARGE_SUCCESS"
    run_worker(world)
    assert source.ledger == ["paid"]
    assert world.reviews() == []


@pytest.mark.parametrize("tells_costs", [True, False])
def test_rest_is_not_taken_for_cost(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    tells_costs: bool,
) -> None:
    """The cart has grown, the paid amount is too little, and the storefront shows its payment step
    again.
    """
    monkeypatch.setattr(saleor, "tells_costs", tells_costs)
    source = saleor.checkout(TOTAL)
    first, said = saleor.initialize(source, "one", DATA)
    source.total = TOTAL * 2 - 1
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert first.charged == TOTAL
    assert world.reviews() == ["underpaid"]
    saleor.gateway_initialize(source)
    review = Review.objects.get(resolved_at__isnull=True)
    assert not actions.take_action(review.pk, "redeliver", staff="ann").resolved
    assert world.reviews() == ["underpaid"]
    said = saleor.initialize(source, "two", {"method": "paypal"})[1]
    assert said["result"] == "CHARGE_ACTION_REQUIRED", "the rest can be paid"


@pytest.mark.parametrize("is_told_again", [False, True])
def test_paying_rest_ends_underpaid_review(
    saleor: SaleorDouble,
    world: World,
    is_told_again: bool,
) -> None:
    source = half_paid(saleor, world)
    _, rest = saleor.initialize(source, "two", {"method": "paypal"})
    assert rest["amount"] == 19.9
    if is_told_again:
        assert not actions.take_action(Review.objects.get().pk, "redeliver", staff="ann").resolved
    world.sandbox.control.pay(rest["pspReference"])
    run_worker(world)
    assert (source.ledger, source.charged, world.reviews()) == (["paid"], TOTAL * 2, [])


def test_money_being_refunded_pays_no_share(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """An underpayment with an open refund does not count towards the total."""
    source = half_paid(saleor, world)
    _, rest = saleor.initialize(source, "two", {"method": "paypal"})
    queueing.queue_refund(Payment.objects.earliest("pk").pk, "1.00")
    Refund.objects.update(status="unknown")
    world.sandbox.control.pay(rest["pspReference"])
    run_worker(world)
    assert world.reviews().count("underpaid") == 2


def test_redelivery_accepts_restored_price(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Delivering again closes the review when the cart costs the paid amount again."""
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "one", DATA)
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    source.total = TOTAL
    saleor.gateway_initialize(source)
    assert actions.take_action(Review.objects.get().pk, "redeliver", staff="ann").resolved
    assert world.reviews() == []


def test_double_payment_is_reported_and_reviewed(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Saleor's books hold both payments, and staff get a review."""
    source = saleor.checkout(TOTAL)
    (first, one), (second, two) = (
        saleor.initialize(source, method, {"method": method}) for method in ("alipay", "paypal")
    )
    for said in (one, two):
        world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert world.reviews() == ["second-payment"]
    assert (first.charged, second.charged) == (TOTAL, TOTAL)
    assert source.ledger == ["paid"]


def test_i4_paid_shopper_gets_no_other_page(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Two tabs, two methods: paid in one, and the other asks how its own transaction stands, before
    Saleor's books know and after.
    """
    source = saleor.checkout(TOTAL)
    (first, one), (second, two) = (
        saleor.initialize(source, method, {"method": method}) for method in ("alipay", "paypal")
    )
    assert saleor.process(second)["data"] == two["data"]
    world.sandbox.control.pay(one["pspReference"])
    with world.failing_handler("tillgate_payment_paid", times=1):
        assert saleor.process(first)["result"] == "CHARGE_SUCCESS"
        answers = [
            saleor.process(second),
            saleor.initialize(source, "paypal", {"method": "paypal"})[1],
        ]
    run_worker(world)
    run_worker(world)
    assert source.ledger == ["paid"]
    for said in (*answers, saleor.process(second)):
        assert (said["result"], "data" in said, "pspReference" in said) == (
            "CHARGE_FAILURE",
            False,
            False,
        )
        assert said["message"] == "This is paid already, by another transaction."
    assert (first.charged, second.charged) == (TOTAL, NOTHING)
    world.sandbox.control.pay(two["pspReference"])
    assert saleor.process(second)["result"] == "CHARGE_SUCCESS", (
        "money that comes all the same is in Saleor's books"
    )
    assert world.reviews() == ["second-payment"]


def test_replaced_account_withdraws_payment_page(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """The payment page of an account that was replaced is not handed out again."""
    transaction, _ = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    default = settings.TILLGATE["ACCOUNTS"]["default"]
    settings.TILLGATE = {
        **settings.TILLGATE,
        "ACCOUNTS": {"default": {**default, "MERCHANT_NO": "200044"}},
    }
    said = saleor.process(transaction)
    assert (said["result"], "data" in said) == ("CHARGE_ACTION_REQUIRED", False)


# Requests of the staff
# -----------------------------------------------------------------------------


def test_charge_request_changes_nothing(saleor: SaleorDouble, world: World) -> None:
    """A charge request is refused and does not turn a paid payment into a failure."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    saleor.process(transaction)
    _, asked = saleor.request_charge(transaction, TOTAL)
    assert (asked["result"], asked["pspReference"][:8]) == ("CHARGE_FAILURE", "refused-")
    assert transaction.charged == TOTAL, "the failure must not be taken for the payment's own"


def test_what_is_paid_cannot_be_canceled(saleor: SaleorDouble, world: World) -> None:
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    _, asked = saleor.request_cancel(transaction)
    assert (asked["result"], asked["pspReference"][:8]) == ("CANCEL_FAILURE", "refused-")
    run_worker(world)
    assert transaction.charged == TOTAL


def test_money_for_canceled_transaction_is_reviewed(
    saleor: SaleorDouble,
    world: World,
) -> None:
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    assert saleor.request_cancel(transaction)[1]["result"] == "CANCEL_SUCCESS"
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    run_worker(world)
    assert world.reviews() == ["paid-not-payable"]
    assert transaction.charged == TOTAL


def test_payment_wins_over_simultaneous_cancel(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the money arrives during the cancellation, the transaction is paid."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    reconcile = reconciling.reconcile

    def overtaken(payment: Payment, actor: str) -> Payment:
        polled = reconcile(payment, actor)
        world.sandbox.control.pay(said["pspReference"])
        reconcile(payment, "webhook")
        return polled

    monkeypatch.setattr(reconciling, "reconcile", overtaken)
    assert saleor.request_cancel(transaction)[1]["result"] == "CANCEL_FAILURE"
    run_worker(world)
    assert transaction.charged == TOTAL
    assert world.reviews() == []


def test_canceled_transaction_frees_checkout(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Another transaction can pay the checkout."""
    source = saleor.checkout(TOTAL)
    canceled, _ = saleor.initialize(source, "one", DATA)
    saleor.request_cancel(canceled)
    transaction, said = saleor.initialize(source, "two", {"method": "paypal"})
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    assert world.reviews() == []


# In time ------------------------------------------------------------------------------------------


def test_the_deadline_leaves_time_for_the_answer() -> None:
    assert deadline.ANSWER_WITHIN_SECONDS <= 12


def test_within_returns_raises_and_gives_up() -> None:
    assert within(5, lambda: 7) == 7
    with pytest.raises(KeyError):
        within(5, lambda: {"y": 1}["x"])
    began = time.monotonic()
    with pytest.raises(TooLate):
        within(0.05, lambda: time.sleep(0.5))
    assert time.monotonic() - began < 0.4


def test_slow_gateway_delays_no_answer(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saleor gets an answer in time, and the payment goes on."""
    monkeypatch.setattr(paying, "ANSWER_WITHIN_SECONDS", 0.2)
    world.sandbox.control.set_options({"faults": {"pay.delay": 1.0}, "delay_seconds": 1})
    source = saleor.checkout(TOTAL)
    transaction, said = saleor.initialize(source, "key", DATA)
    # an answer that had waited for the gateway would have its payment page
    assert said["result"] == "CHARGE_FAILURE"
    world.sandbox.control.set_options({"faults": {}})
    reference = said["pspReference"]
    until = time.monotonic() + 10
    while not Payment.objects.get().payment_url and time.monotonic() < until:
        time.sleep(0.05)
    again = saleor.process(transaction)
    assert (again["result"], again["pspReference"]) == ("CHARGE_ACTION_REQUIRED", reference)
    world.sandbox.control.pay(reference)
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"


def test_no_idempotency_key_is_forgotten(saleor: SaleorDouble) -> None:
    saleor.initialize(saleor.checkout(TOTAL), "a key of the storefront", DATA)
    assert Transaction.objects.get().idempotency_key == "a key of the storefront"


def test_stored_methods_are_none(saleor: SaleorDouble) -> None:
    assert saleor.call(Event.STORED_METHODS, {"channel": {"slug": "default-channel"}}) == (
        200,
        {"paymentMethods": []},
    )


# An order that was a checkout ---------------------------------------------------------------------


def test_i4_order_of_paid_checkout_is_paid(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A shopper who paid on the open page of the checkout reads that the order is paid."""
    checkout = saleor.checkout(TOTAL)
    _, said = saleor.initialize(checkout, "first", DATA)
    order = saleor.order(checkout)
    # in the tab that was left open; its notification is late
    world.sandbox.control.pay(said["pspReference"])
    world.time.advance(seconds=20)
    _, again = saleor.initialize(order, "second", DATA)
    assert again["result"] == "CHARGE_FAILURE"
    assert "paid" in again["message"]
    run_worker(world)
    assert Order.objects.count() == 1
    assert [payment.status for payment in Payment.objects.all()] == ["paid"]
    assert sum(one.charged for one in order.transactions) == TOTAL


def test_i4_paying_checkout_and_order_opens_review(
    saleor: SaleorDouble,
    world: World,
) -> None:
    checkout = saleor.checkout(TOTAL)
    _, first = saleor.initialize(checkout, "first", DATA)
    order = saleor.order(checkout)
    _, second = saleor.initialize(order, "second", {**DATA, "method": "paypal"})
    for said in (first, second):
        world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    assert Order.objects.count() == 1
    assert world.reviews() == ["second-payment"]


@pytest.mark.parametrize("asked", [None, TOTAL], ids=["what is left", "the total again"])
@pytest.mark.parametrize("is_told", [True, False], ids=["now", "by the webhooks of an older App"])
def test_i4_order_of_paid_checkout_starts_nothing(
    asked: Decimal | None,
    is_told: bool,
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order whose checkout was paid is not charged again."""
    checkout = saleor.checkout(TOTAL)
    _, said = saleor.initialize(checkout, "first", DATA)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    order = saleor.order(checkout)
    if not is_told:
        monkeypatch.setattr(Source, "charge_status", None)
    _, again = saleor.initialize(order, "second", {**DATA, "method": "paypal"}, asked)
    assert again["result"] == "CHARGE_FAILURE"
    assert len(world.sandbox.service.transactions()) == 1


def test_i4_late_checkout_joins_its_order(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A checkout that is first heard of after its order is the same purchase."""
    checkout = saleor.checkout(TOTAL)
    order = saleor.order(checkout)
    _, first = saleor.initialize(order, "first", DATA)
    checkout.status = "open"  # its webhook was on its way for longer
    _, second = saleor.initialize(checkout, "second", {**DATA, "method": "paypal"})
    for said in (first, second):
        world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    assert Order.objects.count() == 1
    assert world.reviews() == ["second-payment"]


def test_split_checkout_pays_both_orders(saleor: SaleorDouble, world: World) -> None:
    checkout = saleor.checkout(TOTAL)
    for number in range(2):
        order = saleor.order(checkout)
        checkout.transactions = []
        transaction, said = saleor.initialize(order, str(number), DATA)
        world.sandbox.control.pay(said["pspReference"])
        run_worker(world)
        assert (transaction.charged, order.charged) == (TOTAL, TOTAL)
        assert saleor.initialize(order, "again", DATA, TOTAL)[1]["result"] == "CHARGE_FAILURE"
    assert world.reviews() == []


@pytest.mark.parametrize("has_parts", [True, False])
def test_order_surplus_over_checkout_is_payable(
    has_parts: bool,
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """An order that costs more than its paid checkout is charged the difference."""
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"], "PARTS": has_parts}},
    }
    checkout = saleor.checkout(TOTAL)
    _, said = saleor.initialize(checkout, "first", DATA)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    order = saleor.order(checkout)
    order.total += 5
    _, more = saleor.initialize(order, "second", DATA)
    assert (more["result"], more["amount"]) == ("CHARGE_ACTION_REQUIRED", 5.0)
    world.sandbox.control.pay(more["pspReference"])
    run_worker(world)
    assert order.charged == TOTAL + 5
    assert world.reviews() == []


@pytest.mark.parametrize(
    ("order_status", "charged", "has_parts", "says"),
    [
        ("CANCELED", "NONE", False, "cancelled"),
        ("CANCELED", "NONE", True, "cancelled"),
        ("EXPIRED", "NONE", False, "expired"),
        ("UNFULFILLED", "FULL", False, "paid already"),
        ("UNFULFILLED", "OVERCHARGED", False, "paid already"),
        ("UNFULFILLED", "PARTIAL", False, ""),
        ("UNFULFILLED", "FULL", True, ""),
    ],
)
def test_order_wanting_no_money_is_refused(
    order_status: str,
    charged: str,
    has_parts: bool,
    says: str,
    saleor: SaleorDouble,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cancelled, expired, or paid in cash: Saleor still begins a transaction."""
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"], "PARTS": has_parts}},
    }
    order = saleor.order(saleor.checkout(TOTAL))
    order.order_status = order_status
    monkeypatch.setattr(Source, "charge_status", charged)
    _, said = saleor.initialize(order, "key", DATA)
    assert said["result"] == ("CHARGE_FAILURE" if says else "CHARGE_ACTION_REQUIRED")
    assert says in said["message"]
    assert Payment.objects.exists() is not bool(says)


@pytest.mark.parametrize(
    ("order_status", "charged", "has_parts", "is_over"),
    [
        ("CANCELED", "NONE", False, True),
        ("EXPIRED", "NONE", True, True),
        ("UNFULFILLED", "FULL", False, True),
        ("UNFULFILLED", "PARTIAL", False, False),
        ("UNFULFILLED", "FULL", True, False),
    ],
)
def test_unwanted_payment_hides_its_page(
    order_status: str,
    charged: str,
    has_parts: bool,
    is_over: bool,
    saleor: SaleorDouble,
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The payment page is withdrawn once Saleor wants no more money for the order."""
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"], "PARTS": has_parts}},
    }
    order = begun_order(saleor, world)
    order.order_status = order_status
    monkeypatch.setattr(Source, "charge_status", charged)
    for said in (saleor.process(order.transactions[0]), saleor.initialize(order, "key", DATA)[1]):
        # No failure, which would be the last word about it: the shopper may have paid already.
        assert said["result"] == "CHARGE_ACTION_REQUIRED"
        assert ("data" in said, said["message"] == "The payment is being confirmed.") == (
            not is_over,
            is_over,
        )
    paid_at_the_gateway(world)
    run_worker(world)
    assert order.transactions[0].charged == TOTAL


# Money for orders that Saleor has ended
# -------------------------------------------------------------


def begun_order(saleor: SaleorDouble, world: World) -> Source:
    """Return an order whose shopper has the payment page open."""
    order = saleor.order(saleor.checkout(TOTAL))
    assert saleor.initialize(order, "key", DATA)[1]["result"] == "CHARGE_ACTION_REQUIRED"
    return order


def ended(order: Source, how: str) -> None:
    if how == "DELETED":
        order.status = "deleted"
    else:
        order.order_status = how


def paid_at_the_gateway(world: World) -> None:
    world.sandbox.control.pay(Payment.objects.get().reference)


def told() -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in Review.objects.order_by("pk")]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("CANCELED", "cancelled in Saleor"),
        ("EXPIRED", "expired in Saleor"),
        ("DELETED", "not in Saleor any more"),
    ],
)
def test_money_for_ended_order_is_reviewed(
    how: str,
    says: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Saleor opens a cancelled order again for it, without a word and without its stock."""
    order = begun_order(saleor, world)
    ended(order, how)
    paid_at_the_gateway(world)
    run_worker(world)
    ((reason, message),) = told()
    assert reason == "paid-not-payable"
    assert says in message
    assert order.transactions[0].charged == TOTAL
    run_worker(world)
    assert reports(saleor) == 1
    assert len(told()) == 1


def test_returning_shopper_also_triggers_review(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The review also opens when Saleor learns of the money through the shopper's return."""
    order = begun_order(saleor, world)
    order.order_status = "CANCELED"
    paid_at_the_gateway(world)
    assert saleor.process(order.transactions[0])["result"] == "CHARGE_SUCCESS"
    assert [reason for reason, _ in told()] == ["paid-not-payable"]
    order.order_status = "UNFULFILLED"  # as Saleor has it from now on
    run_worker(world)
    assert len(told()) == 1
    assert reports(saleor) == 1


def test_review_ends_when_money_is_refunded(
    saleor: SaleorDouble,
    world: World,
) -> None:
    order = begun_order(saleor, world)
    order.order_status = "CANCELED"
    paid_at_the_gateway(world)
    run_worker(world)
    assert world.reviews() == ["paid-not-payable"]
    saleor.request_refund(order.transactions[0], TOTAL)
    run_worker(world)
    assert world.reviews() == []
    assert order.transactions[0].charged == NOTHING


def test_payment_elsewhere_meanwhile_opens_review(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order was paid in another way while its payment page was open."""
    order = begun_order(saleor, world)
    monkeypatch.setattr(Source, "charge_status", "FULL")
    paid_at_the_gateway(world)
    run_worker(world)
    ((reason, message),) = told()
    assert reason == "paid-not-payable"
    assert "from elsewhere" in message
    assert order.transactions[0].charged == TOTAL


def test_own_answer_is_not_other_money(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Money that Saleor knows from our answer is not taken for money from elsewhere."""
    order = begun_order(saleor, world)
    paid_at_the_gateway(world)
    for _ in range(2):
        assert saleor.process(order.transactions[0])["result"] == "CHARGE_SUCCESS"
    assert saleor.initialize(order, "key", DATA)[1]["result"] == "CHARGE_SUCCESS"
    assert told() == []


def test_older_app_still_opens_review(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """With an older app, Saleor does not say which money it knows, so staff get a review."""
    order = begun_order(saleor, world)
    order.order_status = "CANCELED"
    paid_at_the_gateway(world)
    body = saleor.session_body(order.transactions[0]) | {"data": None}
    del body["transaction"]["chargedAmount"]
    assert saleor.call(Event.PROCESS, body)[1]["result"] == "CHARGE_SUCCESS"
    assert [reason for reason, _ in told()] == ["paid-not-payable"]


def test_review_opens_before_plugin_hears(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Staff get a review even while the plugin has not heard of the money."""
    order = begun_order(saleor, world)
    order.order_status = "CANCELED"
    paid_at_the_gateway(world)
    with world.failing_handler("tillgate_payment_paid"):
        assert saleor.process(order.transactions[0])["result"] == "CHARGE_SUCCESS"
    world.time.advance(seconds=60)
    run_worker(world)
    assert [reason for reason, _ in told()] == ["paid-not-payable"]
    assert reports(saleor) == 1


def test_money_refunded_early_opens_no_review(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Money that was refunded before Saleor could hear of it needs no review."""
    order = begun_order(saleor, world)
    saleor.is_down = True
    paid_at_the_gateway(world)
    run_worker(world)
    queueing.refund(Payment.objects.get().pk, TOTAL, staff="ann")
    order.order_status = "CANCELED"
    saleor.is_down = False
    world.time.advance(minutes=10)
    run_worker(world)
    assert reports(saleor) == 2
    assert order.transactions[0].charged == NOTHING
    assert told() == []


def test_reported_paid_starts_no_payment(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """No other payment starts while the gateway reports the first one as paid."""
    order = begun_order(saleor, world)
    paid_at_the_gateway(world)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    said = saleor.process(order.transactions[0])
    assert (said["result"], said.get("data")) == ("CHARGE_ACTION_REQUIRED", None)
    for method in ("alipay", "paypal"):
        _, again = saleor.initialize(order, f"with {method}", {"method": method})
        assert (again["result"], "has been paid" in again["message"]) == ("CHARGE_FAILURE", True)
    assert Payment.objects.count() == 1
    world.sandbox.control.clear_faults()
    world.time.advance(minutes=30)
    run_worker(world)
    assert order.transactions[0].charged == TOTAL


def test_later_cancellation_opens_no_review(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Staff need no review if they cancel an order whose money Saleor already knows."""
    order = begun_order(saleor, world)
    paid_at_the_gateway(world)
    assert saleor.process(order.transactions[0])["result"] == "CHARGE_SUCCESS"
    order.order_status = "CANCELED"
    run_worker(world)
    assert saleor.process(order.transactions[0])["result"] == "CHARGE_SUCCESS"
    assert told() == []


def test_second_payment_opens_only_one_review(saleor: SaleorDouble, world: World) -> None:
    """A deleted checkout adds no other review to that of the second payment."""
    source = saleor.checkout(TOTAL)
    references = [
        saleor.initialize(source, method, DATA | {"method": method})[1]["pspReference"]
        for method in ("alipay", "paypal")
    ]
    for reference in references:
        world.sandbox.control.pay(reference)
        run_worker(world)
    source.status = "deleted"
    run_worker(world)
    assert world.reviews() == ["second-payment"]


@pytest.mark.parametrize(
    "answer",
    [
        {"errors": [{"message": "Cannot query"}]},
        {"data": {"transaction": None}},
        {"data": {"transaction": {}}},
    ],
)
def test_money_is_reported_without_paid_amount(
    answer: dict[str, Any],
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saleor hears of the money even if it does not tell how much was paid so far."""
    order = begun_order(saleor, world)
    paid_at_the_gateway(world)
    real = saleor.graphql
    monkeypatch.setattr(
        saleor,
        "graphql",
        lambda token, asked: answer if "PaidFor" in asked["query"] else real(token, asked),
    )
    run_worker(world)
    assert order.transactions[0].charged == TOTAL
    assert told() == []


def test_silent_saleor_is_asked_again_first(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A Saleor that does not answer is asked again before it hears of the money."""
    order = begun_order(saleor, world)
    order.order_status = "CANCELED"
    paid_at_the_gateway(world)
    saleor.is_down = True
    world.time.advance(seconds=10)
    world.run_worker()
    assert (told(), reports(saleor)) == ([], 0)
    saleor.is_down = False
    world.time.advance(minutes=2)
    assert world.run_worker().faults == []
    assert [reason for reason, _ in told()] == ["paid-not-payable"]
    assert order.transactions[0].charged == TOTAL


def test_i4_abandoned_report_starts_no_payment(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """An order is not charged again after staff abandoned the report of its payment."""
    checkout = saleor.checkout(TOTAL)
    _, said = saleor.initialize(checkout, "first", DATA)
    given_up(saleor, world, said["pspReference"])
    order = saleor.order(checkout)
    assert order.charge_status == "NONE"
    assert (
        saleor.initialize(order, "second", {**DATA, "method": "paypal"})[1]["message"]
        == "This is paid already."
    )


def test_refund_after_abandoned_report_leaves_nothing(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Saleor's books hold nothing of a refunded payment whose report staff abandoned."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "first", DATA)
    given_up(saleor, world, said["pspReference"])
    queueing.refund(Payment.objects.get().pk, TOTAL, staff="ann")
    run_worker(world)
    run_worker(world)
    assert transaction.charged == NOTHING


def test_i4_order_being_refunded_stays_same(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order with a pending refund is not taken for another order that can be charged."""
    checkout = saleor.checkout(TOTAL)
    transaction, said = saleor.initialize(checkout, "first", DATA)
    world.sandbox.control.pay(said["pspReference"])
    run_worker(world)
    order = saleor.order(checkout)
    world.sandbox.control.fault("lost_response", occasion="refund")
    saleor.request_refund(transaction, TOTAL)
    assert world.reviews() == ["refund-unknown"]
    # Saleor subtracts pending amounts from the charged amount
    monkeypatch.setattr(DoubleTransaction, "charged", NOTHING)
    assert order.charge_status == "NONE"
    _, again = saleor.initialize(order, "second", {**DATA, "method": "paypal"})
    assert again["result"] == "CHARGE_FAILURE"
    assert Purchase.objects.count() == 1


def test_reported_paid_is_never_called_failed(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A payment that the gateway reports as paid is shown as being confirmed."""
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "one", DATA)
    world.sandbox.control.decline(said["pspReference"])
    reconciling.reconcile(Payment.objects.get(), "webhook")
    assert saleor.process(transaction)["result"] == "CHARGE_FAILURE"
    world.sandbox.control.service.decide(said["pspReference"], "pay", late=True)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.time.advance(seconds=30)
    answered = saleor.process(transaction)
    assert (answered["result"], answered.get("data")) == ("CHARGE_ACTION_REQUIRED", None)
    assert answered["message"] == "The payment is being confirmed."


def test_reported_paid_cannot_be_canceled(saleor: SaleorDouble, world: World) -> None:
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "one", DATA)
    world.sandbox.control.pay(said["pspReference"])
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.time.advance(seconds=30)
    _, asked = saleor.request_cancel(transaction)
    assert asked["result"] == "CANCEL_FAILURE"
    world.time.advance(seconds=30)
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    assert world.reviews() == []


def test_underpaid_checkout_is_not_called_paid(saleor: SaleorDouble, world: World) -> None:
    source = saleor.checkout(TOTAL)
    _, said = saleor.initialize(source, "first", DATA)
    source.total = TOTAL * 2
    saleor.gateway_initialize(source)
    world.sandbox.control.pay(said["pspReference"])  # its notification is lost
    world.time.advance(seconds=20)
    _, again = saleor.initialize(source, "second", {"method": "paypal"})
    assert "paid already" not in again["message"]
