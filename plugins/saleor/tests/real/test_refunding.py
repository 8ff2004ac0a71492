"""The staff of a real Saleor refunds money."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from tests.real.saleor import TOTAL, Attempt, Channel, Saleor, Storefront, until
from tests.real.service import Service
from tests.real.shopper import decides
from tillgate.sandbox import Sandbox

pytestmark = pytest.mark.saleor


@dataclass(frozen=True)
class Sale:
    """A sale: Saleor's order and the attempt that paid it."""

    order: str
    paid: Attempt


@pytest.fixture
def sale(storefront: Storefront, channel: Channel) -> Sale:
    """Return an order that a shopper has paid."""
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    decides(begun.payment_page, "pay", storefront.return_url)
    assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    return Sale(storefront.complete(checkout), begun)


def refunded_amount(gateway: Sandbox, sale: Sale) -> Decimal:
    """Return how much the gateway has refunded."""
    return Decimal(gateway.service.find(sale.paid.reference).refunded_units) / 100


def until_refunded(saleor: Saleor, sale: Sale, amount: str) -> None:
    """Wait until Saleor holds so much to be refunded, and nothing to be under way."""

    def look() -> bool:
        found = saleor.transaction(sale.paid.transaction)
        return (found["refundedAmount"]["amount"], found["refundPendingAmount"]["amount"]) == (
            Decimal(amount),
            0,
        )

    until(f"Saleor holds {amount} to be refunded", look)


def refund_references(saleor: Saleor, sale: Sale) -> list[str]:
    """Return the references under which Saleor noted refunds as done."""
    return [
        event["pspReference"]
        for event in saleor.transaction(sale.paid.transaction)["events"]
        if event["type"] == "REFUND_SUCCESS"
    ]


def test_all_is_given_back(saleor: Saleor, gateway: Sandbox, sale: Sale) -> None:
    saleor.request(sale.paid.transaction, "REFUND")
    until_refunded(saleor, sale, str(TOTAL))
    assert refunded_amount(gateway, sale) == TOTAL
    assert len(refund_references(saleor, sale)) == 1
    assert saleor.order(sale.order)["totalRefunded"]["amount"] == TOTAL


def test_partial_refunds_have_own_references(
    saleor: Saleor,
    gateway: Sandbox,
    sale: Sale,
) -> None:
    """Two parts of the same amount and the rest, to the cent."""
    for amount, sum_ in (("2.45", "2.45"), ("2.45", "4.90"), ("20.00", "24.90")):
        saleor.request(sale.paid.transaction, "REFUND", amount)
        until_refunded(saleor, sale, sum_)
        assert refunded_amount(gateway, sale) == Decimal(sum_)
    references = refund_references(saleor, sale)
    assert len(set(references)) == len(references) == 3
    assert sale.paid.reference not in references


def _granted(saleor: Saleor, sale: Sale) -> list[tuple[str, str]]:
    return [(one["id"], one["status"]) for one in saleor.order(sale.order)["grantedRefunds"]]


def test_a_granted_refund_is_given_back(saleor: Saleor, gateway: Sandbox, sale: Sale) -> None:
    granted = saleor.grant_refund(sale.order, sale.paid.transaction, "5.00")
    until_refunded(saleor, sale, "5.00")
    assert refunded_amount(gateway, sale) == Decimal("5.00")
    until("the granted refund is done", lambda: (granted, "SUCCESS") in _granted(saleor, sale))


def test_refunds_never_exceed_paid_amount(saleor: Saleor, gateway: Sandbox, sale: Sale) -> None:
    """Saleor itself cuts a request down to the rest: to nothing at last, which is refused."""
    saleor.request(sale.paid.transaction, "REFUND", "1000.00")
    until_refunded(saleor, sale, str(TOTAL))
    assert refunded_amount(gateway, sale) == TOTAL
    assert saleor.transaction(sale.paid.transaction)["actions"] == []
    saleor.request(sale.paid.transaction, "REFUND", "0.01")
    until(
        "the refusal is noted",
        lambda: ("REFUND_FAILURE", Decimal(0)) in saleor.events(sale.paid.transaction),
    )
    assert refunded_amount(gateway, sale) == TOTAL


def test_refused_refund_has_no_effect(
    saleor: Saleor,
    gateway: Sandbox,
    sale: Sale,
) -> None:
    gateway.control.fault("refused", occasion="refund")
    saleor.request(sale.paid.transaction, "REFUND", "5.00")
    until(
        "the failure is noted",
        lambda: "REFUND_FAILURE" in dict(saleor.events(sale.paid.transaction)),
    )
    until_refunded(saleor, sale, "0.00")
    saleor.request(sale.paid.transaction, "REFUND", "5.00")
    until_refunded(saleor, sale, "5.00")
    assert refunded_amount(gateway, sale) == Decimal("5.00")


def test_unknown_refund_stays_pending_until_notification(
    saleor: Saleor,
    gateway: Sandbox,
    service: Service,
    sale: Sale,
) -> None:
    """It is never sent again, neither by us nor at a second request of Saleor's."""
    gateway.control.set_options({"notification_on_refund": False})
    gateway.control.fault("lost_response", occasion="refund")
    saleor.request(sale.paid.transaction, "REFUND", "5.00")
    until("somebody is told of the refund", lambda: service.reviews(sale.paid.reference))
    found = saleor.transaction(sale.paid.transaction)
    assert (found["refundedAmount"]["amount"], found["refundPendingAmount"]["amount"]) == (
        0,
        Decimal("5.00"),
    )
    assert refunded_amount(gateway, sale) == Decimal("5.00")

    gateway.control.notify(sale.paid.reference, "refund")
    until_refunded(saleor, sale, "5.00")
    assert refunded_amount(gateway, sale) == Decimal("5.00")
    assert len(refund_references(saleor, sale)) == 1


def test_unanswered_refund_stays_pending(
    saleor: Saleor,
    gateway: Sandbox,
    service: Service,
    sale: Sale,
) -> None:
    gateway.control.set_options(
        {"faults": {"refund.delay": 1.0}, "delay_seconds": 60, "notification_on_refund": False},
    )
    saleor.request(sale.paid.transaction, "REFUND", "5.00")
    until("somebody is told of the refund", lambda: service.reviews(sale.paid.reference), 60)
    assert saleor.transaction(sale.paid.transaction)["refundPendingAmount"]["amount"] == Decimal(
        "5.00",
    )
    assert "REFUND_FAILURE" not in dict(saleor.events(sale.paid.transaction))


def test_refund_during_outage_can_be_repeated(
    saleor: Saleor,
    gateway: Sandbox,
    service: Service,
    sale: Sale,
) -> None:
    """A request made while our service is down returns no money."""
    service.kill()
    saleor.request(sale.paid.transaction, "REFUND", "5.00")
    until(
        "Saleor gives up",
        lambda: "REFUND_FAILURE" in dict(saleor.events(sale.paid.transaction)),
        120,
    )
    service.start()
    assert refunded_amount(gateway, sale) == 0
    saleor.request(sale.paid.transaction, "REFUND", "5.00")
    until_refunded(saleor, sale, "5.00")
    assert refunded_amount(gateway, sale) == Decimal("5.00")
