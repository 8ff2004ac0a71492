"""Everything that a page of staff says about one payment."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.template.loader import render_to_string

from tests.django.conftest import World
from tillgate import Goods, InvalidRequest, Money, hooks, shop
from tillgate.django.models import Payment, PaymentNumber
from tillgate.gateways import DeclineReason, PaidWith
from tillgate.hooks import Customer, DisputeStatus
from tillgate.wire.details import PaymentDetails, ReportedDispute

DETAILS = PaymentDetails(
    paid_with=PaidWith(method="card", brand="visa", last4="4242"),
    fee=Money(Decimal("0.61"), "USD"),
    net=Money(Decimal("11.89"), "USD"),
    available_on=datetime(2026, 12, 7, tzinfo=UTC),
    decline_reason=DeclineReason(code="lost_card", text="The card was reported lost"),
    dashboard_url="https://gateway.example/payments/1",
    numbers=("ch_7",),
    disputes=(
        ReportedDispute(
            amount=Decimal("12.50"),
            status=DisputeStatus.OPEN,
            dispute_no="dp_1",
            respond_by=datetime(2026, 12, 5, 12, tzinfo=UTC),
            reason="product_not_received",
            url="https://gateway.example/disputes/1",
        ),
    ),
)


def known(payment: Payment, details: PaymentDetails = DETAILS) -> Payment:
    Payment.objects.filter(pk=payment.pk).update(details=details.as_json())
    for number in details.numbers:
        PaymentNumber.objects.create(payment=payment, number=number)
    payment.refresh_from_db()
    return payment


def summary(world: World, payment: Payment) -> shop.PaymentSummary:
    found = shop.payment_summary(world.shop.plugin, str(payment.pk))
    assert found is not None
    return found


def described(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Let the shop know more about its orders."""
    real = hooks.call_owner

    def call(plugin: str, name: str, **arguments: Any) -> Any:
        if name != "tillgate_describe_order":
            return real(plugin, name, **arguments)
        amount = Decimal("12.50")
        return hooks.OrderDescription(number="S7", amount=amount, currency="USD", **more)

    monkeypatch.setattr(hooks, "call_owner", call)


def test_summary_has_gateways_details(world: World) -> None:
    payment = known(world.paid_payment("12.50"))
    found = summary(world, payment)
    assert (found.paid_with, found.fee, found.net, found.gateway_url) == (
        "Visa ending 4242",
        Money(Decimal("0.61"), "USD"),
        Money(Decimal("11.89"), "USD"),
        "https://gateway.example/payments/1",
    )
    assert found.available_on == datetime(2026, 12, 7, tzinfo=UTC)
    assert found.numbers == (payment.reference, payment.transaction_no, "ch_7")
    assert found.decline_reason == "The card was reported lost (lost_card)"
    (dispute,) = found.disputes
    assert (dispute.reason, dispute.state, dispute.is_open) == (
        "product not received",
        "waits for your answer at the gateway",
        True,
    )


def test_summary_without_details_names_method(world: World) -> None:
    found = summary(world, world.start(world.order("12.50")))
    assert (found.paid_with, found.fee, found.disputes, found.customer) == (
        "Alipay",
        None,
        (),
        None,
    )


def test_customer_comes_from_shop_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no row of ours."""
    payment = world.paid_payment("12.50")
    described(
        monkeypatch,
        lines=(Goods.named("Mug", 2),),
        customer=Customer(name="Ann Lee", email="ann@shop.example"),
        staff_url="/orders/7/",
    )
    found = summary(world, payment)
    assert found.customer == Customer(name="Ann Lee", email="ann@shop.example")
    assert (found.order_number, found.order_url) == ("S7", "/orders/7/")
    assert [line.goods_name for line in found.lines] == ["Mug"]
    rows = [str(row) for row in Payment.objects.values()]
    assert "Ann" not in str(rows)
    assert "ann@" not in str(rows)


def test_script_address_is_no_link(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = known(world.paid_payment(), PaymentDetails(dashboard_url="javascript:alert(1)"))
    described(monkeypatch, staff_url="javascript:alert(1)")
    found = summary(world, payment)
    assert (found.gateway_url, found.order_url) == ("", "")


def test_failing_shop_leaves_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = known(world.paid_payment())

    def call(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(hooks, "call_owner", call)
    found = summary(world, payment)
    assert (found.paid_with, found.order_number) == ("Visa ending 4242", payment.order.key)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"page_closed_at": datetime(2026, 1, 1, tzinfo=UTC)}, "has closed its payment page"),
        ({"close_wanted_at": datetime(2026, 1, 1, tzinfo=UTC)}, "Until then it can be paid"),
        (
            {"page_closes_at": datetime(2026, 1, 1, tzinfo=UTC)},
            "time to pay on its page has passed",
        ),
        ({}, "can still be paid"),
    ],
)
def test_page_state_is_said(world: World, changes: dict[str, datetime], said: str) -> None:
    payment = world.start(world.order("12.50"))
    Payment.objects.filter(pk=payment.pk).update(**changes)
    assert said in summary(world, payment).page_state


def test_paid_payment_has_no_page_state(world: World) -> None:
    assert summary(world, world.paid_payment()).page_state == ""


def test_template_escapes_shops_texts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = known(world.paid_payment("12.50"))
    described(monkeypatch, customer=Customer(name="<script>alert(1)</script>"))
    page = render_to_string("tillgate/staff/summary.html", {"summary": summary(world, payment)})
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert ">Open the dispute at Reference</a>" in page
    assert "USD 0.61" in page


def test_customer_of_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="customer"):
        hooks.OrderDescription(
            number="1",
            amount=Decimal(1),
            currency="USD",
            customer="ann",  # type: ignore[arg-type]
        )
