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
def test_row_is_paid_in_its_currency(
    world: World,
    currency: str,
    total: str,
    part: str,
    rest: str,
) -> None:
    """A partial refund uses the same currency."""
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
def test_refused_refund_names_its_currency(
    world: World,
    currency: str,
    shown: str,
) -> None:
    """The message shows the amount in it."""
    world.takes("JPY", "KWD", "EUR")
    payment = bought(world, total="1250", currency=currency)
    world.sandbox.control.fault("refused", occasion="refund")
    with pytest.raises(PaymentError, match=f"^{shown} of ") as refusal:
        payment.refund(Decimal(1000))
    assert refusal.value.code == REFUND_REFUSED
    assert stands(payment) == ("confirmed", Decimal(1250))


@pytest.mark.parametrize(("currency", "amount"), [("JPY", "0.50"), ("EUR", "0.005")])
def test_refund_with_extra_decimals_is_refused(
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
def test_unsupported_row_has_no_payment_link(
    world: World,
    total: str,
    currency: str,
    told: str,
) -> None:
    world.takes("JPY", "KWD")
    with pytest.raises(PaymentError, match=told):
        bill(total, currency=currency).get_form()
    assert not Attempt.objects.exists()


def test_unsuitable_variant_leads_to_suitable_methods(world: World) -> None:
    world.configure({"DIALECT": "v3", "STORE_NO": "300014"})
    page = world.client.get(way_of(bill("250", "alipay", "PHP"))).content.decode()
    assert 'value="gcash"' in page
    assert 'value="alipay"' not in page
    assert not Attempt.objects.exists()
