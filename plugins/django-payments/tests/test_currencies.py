"""Rows in other currencies: paid, refunded in part through the library, and shown with the decimals
of their currency.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from payments import PaymentError

from tests.test_provider import attempt_of, bill, way_of
from tests.test_refunds import agrees, stands
from tests.test_rows import bought
from tillgate.django.models import Payment as Attempt
from tillgate.testing.world import World
from tillgate_django_payments.provider import REFUND_REFUSED


@pytest.mark.parametrize(
    ("currency", "total", "part", "rest"),
    [
        ("JPY", "1250", "1000", "250"),
        ("KWD", "1234.50", "1000.50", "234"),
        ("EUR", "1234.50", "1000.50", "234"),
    ],
)
def test_a_row_is_paid_and_refunded_in_part_in_its_currency(
    world: World,
    currency: str,
    total: str,
    part: str,
    rest: str,
) -> None:
    world.takes("JPY", "KWD", "EUR")
    payment = bought(world, total=total, currency=currency)
    attempt = attempt_of(payment)
    assert (attempt.currency, attempt.amount, payment.captured_amount) == (
        currency,
        Decimal(total),
        Decimal(total),
    )
    payment.refund(Decimal(part))
    assert stands(payment) == ("confirmed", Decimal(rest))
    agrees(world, payment, part)
    assert world.reviews() == []


@pytest.mark.parametrize(
    ("currency", "shown"),
    [("JPY", "JPY 1,000"), ("KWD", "KWD 1,000.000"), ("EUR", "EUR 1,000.00")],
)
def test_a_refused_refund_names_the_amount_in_its_currency(
    world: World,
    currency: str,
    shown: str,
) -> None:
    world.takes("JPY", "KWD", "EUR")
    payment = bought(world, total="1250", currency=currency)
    world.sandbox.control.fault("refused", occasion="refund")
    with pytest.raises(PaymentError, match=f"^{shown} of ") as refusal:
        payment.refund(Decimal(1000))
    assert refusal.value.code == REFUND_REFUSED
    assert stands(payment) == ("confirmed", Decimal(1250))


@pytest.mark.parametrize(("currency", "amount"), [("JPY", "0.50"), ("EUR", "0.005")])
def test_a_refund_with_more_decimals_than_the_currency_has_is_refused(
    world: World,
    currency: str,
    amount: str,
) -> None:
    world.takes("JPY", "EUR")
    payment = bought(world, total="1250", currency=currency)
    with pytest.raises(PaymentError, match=f"not an amount of {currency}"):
        payment.refund(Decimal(amount))
    agrees(world, payment, "0")


@pytest.mark.parametrize(
    ("total", "currency", "told"),
    [("12.50", "EUR", "“EUR”.* only JPY, KWD"), ("12.50", "JPY", "not an amount of JPY")],
)
def test_a_row_that_the_account_cannot_take_has_no_way_to_pay(
    world: World,
    total: str,
    currency: str,
    told: str,
) -> None:
    world.takes("JPY", "KWD")
    with pytest.raises(PaymentError, match=told):
        bill(total, currency=currency).get_form()
    assert not Attempt.objects.exists()


def test_a_variant_whose_method_does_not_take_the_row_leads_to_those_that_do(world: World) -> None:
    world.configure({"DIALECT": "v3", "STORE_NO": "300014"})
    page = world.client.get(way_of(bill("250", "alipay", "PHP"))).content.decode()
    assert 'value="gcash"' in page
    assert 'value="alipay"' not in page
    assert not Attempt.objects.exists()
