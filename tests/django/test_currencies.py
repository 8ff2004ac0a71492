"""Orders in currencies with no decimals, with two and with three: the amounts that users read and
type, and that move at the gateway.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import translation

from tests.django.conftest import World
from tests.django.notifying import confirming
from tests.smallest_shop.models import ShopOrder
from tillgate import shop
from tillgate.django import actions
from tillgate.django.amounts import read_typed, typed_text
from tillgate.django.models import Payment, Refund, Review
from tillgate.django.pages.forms import RefundForm
from tillgate.django.refunds import queueing
from tillgate.money import Money

CURRENCIES = ("JPY", "KWD", "EUR")


@pytest.fixture
def boss(admin_client: Client) -> Client:
    """A member of staff with every permission."""
    return admin_client


def text_of(page: Any) -> str:
    return str(page.content.decode())


def inputs_of(page: str) -> dict[str, str]:
    """Return the values of a page's inputs by their names, of the first of each name."""
    tags = re.findall(r"<input[^>]*>", page)
    named = {name[1]: tag for tag in reversed(tags) if (name := re.search(r' name="([^"]+)"', tag))}
    return {
        name: (re.search(r' value="([^"]*)"', tag) or ["", ""])[1] for name, tag in named.items()
    }


def page_of(row: Any, action: str = "change") -> str:
    return f"/admin/tillgate/{row._meta.model_name}/{row.pk}/{action}/"


def paid(world: World, currency: str, total: str) -> Payment:
    """Return a paid payment of an order in a currency that the account takes."""
    world.takes(*CURRENCIES)
    payment = world.pay_page(world.shop.place_order_in(currency, Decimal(total)))
    world.shopper_pays(payment)
    world.notification(payment)
    return world.fresh(payment)


@pytest.mark.parametrize(
    ("currency", "total", "english", "german", "typed", "part", "rest"),
    [
        ("JPY", "1250", "JPY 1,250", "1.250 JPY", "1.000", "1000", "JPY 250"),
        ("KWD", "1234.567", "KWD 1,234.567", "1.234,567 KWD", "1.000,5", "1000.5", "KWD 234.067"),
        ("EUR", "1234.50", "EUR 1,234.50", "1.234,50 EUR", "1.000", "1000", "EUR 234.50"),
    ],
)
def test_order_keeps_its_currency_throughout(
    world: World,
    boss: Client,
    settings: Any,
    currency: str,
    total: str,
    english: str,
    german: str,
    typed: str,
    part: str,
    rest: str,
) -> None:
    """It is paid, partly refunded and shown in it."""
    payment = paid(world, currency, total)
    order = ShopOrder.objects.get(pk=payment.order.key)
    assert (payment.status, payment.currency, payment.amount, order.status) == (
        "paid",
        currency,
        Decimal(total),
        "paid",
    )
    assert english in text_of(boss.get("/admin/tillgate/payment/"))
    settings.LANGUAGE_CODE = "de"
    assert german in text_of(boss.get(page_of(payment)))
    question = text_of(boss.get(page_of(payment, "refund"), {"amount": typed}))
    boss.post(page_of(payment, "refund"), inputs_of(question))
    settings.LANGUAGE_CODE = "en"
    refund, order = Refund.objects.get(), ShopOrder.objects.get(pk=order.pk)
    assert (refund.status, refund.amount) == ("succeeded", Decimal(part))
    assert order.refunded == world.refunded_amount(payment) == Decimal(part)
    assert f"{rest} can still be refunded" in text_of(boss.get(page_of(payment)))
    assert world.reviews() == []


@pytest.mark.parametrize(
    ("currency", "total", "shown"),
    [("JPY", "1250", "JPY 1,250"), ("KWD", "1.250", "KWD 1.250")],
)
def test_shopper_reads_price_in_orders_currency(
    world: World,
    currency: str,
    total: str,
    shown: str,
) -> None:
    world.takes(*CURRENCIES)
    order = world.shop.place_order_in(currency, Decimal(total))
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert shown in page
    assert "USD" not in page


@pytest.mark.parametrize("language", ["en", "de", "fr", "ja"])
@pytest.mark.parametrize(
    "money",
    [
        Money("1000", "JPY"),
        Money("1.234", "KWD"),
        Money("1234567.89", "KWD"),
        Money("12.50", "EUR"),
    ],
    ids=str,
)
def test_amount_survives_input_field(money: Money, language: str) -> None:
    with translation.override(language):
        assert read_typed(typed_text(money.amount, money.currency), money.currency) == money.amount


def test_german_form_accepts_its_own_remainder(
    world: World,
    boss: Client,
    settings: Any,
) -> None:
    payment = paid(world, "KWD", "12.500")
    settings.LANGUAGE_CODE = "de"
    for fields in (inputs_of(text_of(boss.get(page_of(payment)))), {}):
        question = inputs_of(
            text_of(
                boss.get(
                    page_of(payment, "refund"),
                    {name: fields[name] for name in ("amount",) if fields},
                ),
            ),
        )
        assert Decimal(question["amount"]) == Decimal("12.500")


def test_german_card_accepts_contradicted_refund_amount(
    world: World,
    boss: Client,
    settings: Any,
) -> None:
    payment = paid(world, "KWD", "30")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "1.234")
    review = Review.objects.get()
    actions.take_action(review.pk, "refund-not-done", staff="anna")
    notification = f"/payments/refund-notification/{refund.notification_key}/"
    world.client.post(
        notification,
        confirming(refund),
        content_type="application/x-www-form-urlencoded",
    )
    settings.LANGUAGE_CODE = "de"
    review = Review.objects.get(resolved_at=None)
    card = inputs_of(text_of(boss.get(page_of(review))))
    boss.post(
        page_of(review, "action"),
        {name: card[name] for name in ("amount", "seen", "read")}
        | {"action": "record-external-refund"},
    )
    assert Refund.objects.get(external=True).amount == Decimal("1.234")


@pytest.mark.parametrize(
    ("currency", "language", "typed", "amount"),
    [
        ("EUR", "de", "45,21", "45.21"),
        ("EUR", "de", "1.000", "1000"),
        ("EUR", "en", "1,000.5", "1000.50"),
        ("EUR", "de", "45,211", None),
        ("EUR", "en", "45,21", None),
        ("JPY", "en", "45.5", None),
        ("KWD", "en", "45.211", "45.211"),
        ("EUR", "en", "0", None),
        ("EUR", "en", "2000.01", None),
    ],
)
def test_form_reads_amounts_in_readers_language(
    currency: str,
    language: str,
    typed: str,
    amount: str | None,
) -> None:
    with translation.override(language):
        form = RefundForm(Money("2000", currency), {"amount": typed})
        assert form.is_valid() is (amount is not None)
        assert form.cleaned_data.get("amount") == (amount and Decimal(amount))
        assert currency in str(form.fields["amount"].label)
        assert set(form.errors) <= {"amount"}


def test_only_methods_taking_price_are_offered(world: World) -> None:
    offers = [
        "alipay",
        {"code": "paypal", "currencies": ["USD"]},
        {"code": "dana", "minimums": {"KRW": "2000"}},
        "visa",
    ]
    world.configure({"DIALECT": "v3", "STORE_NO": "300014", "METHODS": offers})
    for total, offered in ((1999, ["alipay", "visa"]), (2000, ["alipay", "dana", "visa"])):
        order = world.shop.place_order_in("KRW", Decimal(total))
        page = text_of(world.client.get(world.way_to_pay(order)))
        assert re.findall(r'name="method" value="(\w+)"', page) == offered


def test_order_in_unusable_currency_starts_nothing(
    world: World,
) -> None:
    """The shopper reads that no method takes it."""
    world.takes("JPY")
    order = world.shop.place_order_in("EUR", Decimal("12.50"))
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert "EUR 12.50" in page
    assert 'name="method"' not in page
    assert world.choose(order).status_code == 409
    assert not Payment.objects.exists()


def test_review_shows_amounts_with_currency(world: World) -> None:
    world.takes(*CURRENCIES)
    payment = world.start(world.shop.place_order_in("JPY", Decimal(1250)))
    world.shop.edit_total(payment.order.key, Decimal(9000))
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get()
    assert "JPY 1,250" in review.message
    assert "JPY 9,000" in review.message
    with translation.override("de"):
        assert "1.250 JPY" in review.message


def test_audit_totals_each_currency_separately(
    world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for currency, total in (("JPY", "1250"), ("JPY", "750"), ("KWD", "1.250")):
        paid(world, currency, total)
    call_command("tillgate", "audit")
    assert (
        "paid here: 3 with JPY 2,000, KWD 1.250; at the gateway: 3 with JPY 2,000, KWD 1.250"
        in capsys.readouterr().out
    )


def test_unsupported_method_currency_is_not_offered(world: World) -> None:
    """It is the method's own currency, but the account does not take it."""
    world.configure({"DIALECT": "v3", "STORE_NO": "300014", "CURRENCIES": ["USD"]})
    [alipay] = [
        one for one in shop.payment_methods(price=Money("12.50", "CNY")) if one.code == "alipay"
    ]
    assert (alipay.currencies, bool(alipay.problem)) == (("USD",), True)
