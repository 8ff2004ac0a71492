"""The facts that staff read in Saleor's dashboard about a payment: the method that paid, the
gateway's own page, and the reason of a failure.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.double import DoubleTransaction, Noted, SaleorDouble
from tests.storefront import RETURN_URL
from tillgate import hooks
from tillgate.django.models import OutboxEvent, Payment, Refund
from tillgate.django.reviews.opening import open_review
from tillgate.gateways import DeclineReason, PaidWith
from tillgate.hooks import DisputeStatus
from tillgate.shop import ReviewReason, find_refund, locked_order, poll
from tillgate.testing.world import World
from tillgate.wire.details import ReportedDispute
from tillgate.wire.messages import Transaction as Found
from tillgate_saleor.facts import gateway_page
from tillgate_saleor.models import Installation

DATA = {"method": "alipay", "returnUrl": RETURN_URL}
TOTAL = Decimal("19.90")
PAGE = "https://gateway.example/payments/1"
VISA = PaidWith(method="card", brand="visa", last4="4242")


class Talkative:
    """A gateway that says more about its payments than the sandbox does."""

    says: dict[str, Any]

    def __init__(self) -> None:
        self.says = {}

    @hooks.hookimpl(wrapper=True)
    def tillgate_query(self) -> Generator[None, Found, Found]:
        """Change every answer."""
        found = yield
        return replace(found, **self.says)


@pytest.fixture
def gateway(world: World) -> Iterator[Talkative]:
    plugin = Talkative()
    hooks.plugin_manager().register(plugin, name="talkative")
    yield plugin
    hooks.plugin_manager().unregister(plugin)


def bought(saleor: SaleorDouble) -> tuple[DoubleTransaction, str]:
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    return transaction, said["pspReference"]


def told(world: World, transaction: DoubleTransaction, kind: str) -> Noted:
    """Return the event of a kind that Saleor heard of, once the worker has run."""
    for _ in range(2):
        world.time.advance(seconds=10)
        assert world.run_worker().faults == []
    (event,) = [one for one in transaction.events if one.type == kind]
    return event


def test_saleor_gets_card_and_gateways_page(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    gateway.says = {"paid_with": VISA, "dashboard_url": PAGE}
    transaction, reference = bought(saleor)
    world.sandbox.control.pay(reference)
    event = told(world, transaction, "CHARGE_SUCCESS")
    assert (event.message, event.external_url) == ("Paid with Visa ending 4242.", PAGE)
    kept = OutboxEvent.objects.get(kind="remote").data
    assert "4242" not in json.dumps(kept), "an erasure would miss it"
    assert transaction.method == {
        "card": {"name": "Visa ending 4242", "brand": "visa", "lastDigits": "4242"}
    }


def test_storefronts_answer_names_method_and_page(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    """Saleor keeps the message of the first success, be it an answer or a report."""
    gateway.says = {"paid_with": VISA, "dashboard_url": PAGE}
    transaction, reference = bought(saleor)
    world.sandbox.control.pay(reference)
    said = saleor.process(transaction)
    assert (said["message"], said["externalUrl"]) == ("Paid with Visa ending 4242.", PAGE)
    told(world, transaction, "CHARGE_SUCCESS")
    assert transaction.method["card"]["lastDigits"] == "4242"


@pytest.mark.parametrize(("version", "expected"), [("3.21.9", {}), ("3.22.0", "other")])
def test_saleor_without_field_is_sent_none(
    version: str, expected: Any, saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    saleor.version = version
    gateway.says = {"paid_with": PaidWith(method="alipay")}
    transaction, reference = bought(saleor)
    assert Installation.objects.get().version == version
    world.sandbox.control.pay(reference)
    told(world, transaction, "CHARGE_SUCCESS")
    assert transaction.method == ({"other": {"name": "Alipay"}} if expected else {})


@pytest.mark.parametrize("url", ["https://gateway.example/" + "x" * 200, "javascript:alert(1)", ""])
def test_page_that_saleor_refuses_is_left_out(
    url: str, saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    gateway.says = {"dashboard_url": url or None}
    transaction, reference = bought(saleor)
    world.sandbox.control.pay(reference)
    assert told(world, transaction, "CHARGE_SUCCESS").external_url == ""


def test_money_on_its_way_is_pending(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    """It cannot be cancelled, and Saleor asks no more: the worker reports its end."""
    gateway.says = {"dashboard_url": PAGE}
    transaction, reference = bought(saleor)
    world.money.hold(reference)
    said = saleor.process(transaction)
    assert (said["result"], said["actions"], said["externalUrl"]) == ("CHARGE_REQUEST", [], PAGE)
    assert (said["pspReference"], "data" in said) == (reference, False)
    assert said["message"] == "The money is on its way."
    world.sandbox.control.pay(reference)
    world.money.release(reference)
    world.time.advance(hours=6)
    assert told(world, transaction, "CHARGE_SUCCESS").amount == TOTAL
    assert transaction.actions == ["REFUND"]


def test_money_on_its_way_is_reported_unasked(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    transaction, reference = bought(saleor)
    assert transaction.actions == ["CANCEL"]
    world.money.hold(reference)
    event = told(world, transaction, "CHARGE_REQUEST")
    assert (event.amount, event.message) == (TOTAL, "The money is on its way.")
    assert transaction.actions == []


def test_pending_money_that_fails_is_reported_at_once(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    """Until then Saleor takes it for pending, and the shopper could not pay again."""
    transaction, reference = bought(saleor)
    world.money.hold(reference)
    saleor.process(transaction)
    gateway.says = {"decline_reason": DeclineReason(code="51", text="Insufficient funds")}
    world.sandbox.control.decline(reference)
    world.money.release(reference)
    world.time.advance(hours=6)
    assert told(world, transaction, "CHARGE_FAILURE").message == "The money did not come."
    assert told(world, transaction, "INFO").message == "Declined: Insufficient funds (51)."
    assert transaction.source.status == "open"


def test_shopper_does_not_read_decline_reason(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    gateway.says = {"decline_reason": DeclineReason(code="lost_card", text="Reported lost")}
    transaction, reference = bought(saleor)
    world.sandbox.control.decline(reference)
    said = saleor.process(transaction)
    assert said["result"] == "CHARGE_FAILURE"
    assert "lost" not in said["message"]
    world.time.advance(minutes=65)
    assert told(world, transaction, "INFO").message == "Declined: Reported lost (lost_card)."


def test_dispute_is_told_with_deadline(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    transaction, reference = bought(saleor)
    world.sandbox.control.pay(reference)
    told(world, transaction, "CHARGE_SUCCESS")
    dispute = ReportedDispute(
        amount=TOTAL,
        status=DisputeStatus.OPEN,
        dispute_no="dp_1",
        respond_by=datetime(2030, 12, 5, 12, tzinfo=UTC),
    )
    gateway.says = {"disputes": (dispute,), "dashboard_url": PAGE}
    poll(str(Payment.objects.get().pk), actor="worker")
    event = told(world, transaction, "INFO")
    assert "the shopper's bank asks" in event.message
    assert "dp_1" in event.message
    assert transaction.charged == TOTAL, "a message moves no money"


def test_reversed_money_is_told(saleor: SaleorDouble, world: World) -> None:
    transaction, reference = bought(saleor)
    world.sandbox.control.pay(reference)
    told(world, transaction, "CHARGE_SUCCESS")
    world.sandbox.control.reverse(reference)
    poll(str(Payment.objects.get().pk), actor="worker")
    assert world.reviews() == ["changed-after-paid"]
    assert "charge-back" in told(world, transaction, "INFO").message


def test_returned_refund_is_told(saleor: SaleorDouble, world: World) -> None:
    """It moves no money in Saleor's books: staff refund the shopper in another way."""
    transaction, reference = bought(saleor)
    world.sandbox.control.pay(reference)
    told(world, transaction, "CHARGE_SUCCESS")
    saleor.request_refund(transaction, Decimal("5.00"))
    told(world, transaction, "REFUND_SUCCESS")
    with locked_order("saleor", Payment.objects.get().order.key):
        refund = Refund.objects.select_related("payment__order").get()
        open_review(ReviewReason.REFUND_RETURNED, {}, "worker", refund)
    assert "The money is yours again." in told(world, transaction, "INFO").message
    assert transaction.charged == TOTAL - Decimal("5.00")


def test_refund_links_to_its_own_page(
    saleor: SaleorDouble, world: World, gateway: Talkative
) -> None:
    transaction, reference = bought(saleor)
    gateway.says = {"dashboard_url": PAGE}
    world.sandbox.control.pay(reference)
    told(world, transaction, "CHARGE_SUCCESS")
    _, said = saleor.request_refund(transaction, Decimal("5.00"))
    assert said["externalUrl"] == PAGE
    refund = Refund.objects.get()
    page = "https://gateway.example/refunds/1"
    Refund.objects.update(refund_no="re_1")
    Payment.objects.update(
        details={"dashboard_url": PAGE, "refund_pages": {"re_1": page}},
    )
    state = find_refund("saleor", str(refund.pk))
    assert gateway_page(str(refund.payment_id), state) == page
