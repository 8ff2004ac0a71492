"""One search box finds a payment by all that staff may have at hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from tests.django.conftest import World
from tests.django.pages.test_admin import LISTS, said, staff
from tests.shop.test_summaries import DETAILS, known
from tillgate import hooks
from tillgate.django.models import Payment, Refund
from tillgate.django.pages.searching import search
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import open_review
from tillgate.django.worker.retention import erase_order
from tillgate.lifecycle import ReviewReason


class Knowing:
    """A shop's plugin that knows one shopper, and notes the questions."""

    def __init__(self) -> None:
        self.key = ""
        self.asked: list[str] = []

    @hooks.hookimpl
    def tillgate_find_orders(self, text: str, limit: int) -> Sequence[str]:
        self.asked.append(text)
        if text == "Broken":
            raise RuntimeError("the shop's database is down")
        return [self.key] if text.lower() in ("ann", "ann@shop.example") else []


@pytest.fixture
def shopper(monkeypatch: pytest.MonkeyPatch) -> Knowing:
    """The shop's plugin with its shopper."""
    known_here = Knowing()
    real = hooks.call_owner

    def call(plugin: str, name: str, **arguments: object) -> object:
        if name == "tillgate_find_orders":
            return known_here.tillgate_find_orders(**arguments)  # type: ignore[arg-type]
        return real(plugin, name, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call)
    monkeypatch.setattr(hooks, "implements", lambda plugin, _: plugin == "smallest-shop")
    return known_here


@pytest.fixture
def boss() -> Client:
    return staff(is_superuser=True)


@pytest.fixture
def wanted(world: World, shopper: Knowing) -> Payment:
    """A payment with everything, among others."""
    payment = world.paid_payment("12.50")
    for total in ("11.00", "4242.00"):
        world.paid_payment(total)
    known(payment, DETAILS)
    Payment.objects.filter(pk=payment.pk).update(last4="4242")
    queueing.refund(payment.pk, "2.00")
    Refund.objects.update(refund_no="re_5")
    shopper.key = payment.order.key
    shopper.asked.clear()
    return payment


def found(term: str) -> set[int]:
    got = search(term)
    return {*Payment.objects.filter(got.of_payments).values_list("pk", flat=True)}


@pytest.mark.parametrize(
    "term",
    [
        "{0.reference}",
        " {0.reference} ",
        "#{0.reference}",
        "{0.transaction_no}",
        "{0.order.key}",
        "#{0.order.key}",
        "# {0.order.key}",
        "ch_7",
        "re_5",
        "12.50",
        "USD 12.50",
        "12.50 USD",
        "4242",
    ],
)
def test_payment_is_found(wanted: Payment, term: str) -> None:
    assert found(term.format(wanted)) == {wanted.pk}


@pytest.mark.parametrize("term", ["Ann", "ann@shop.example"])
def test_name_and_mail_are_asked_of_shop(
    wanted: Payment,
    shopper: Knowing,
    monkeypatch: pytest.MonkeyPatch,
    term: str,
) -> None:
    monkeypatch.setattr(hooks, "implements", lambda plugin, _: plugin == wanted.order.plugin)
    assert found(term) == {wanted.pk}
    assert shopper.asked == [term]


def test_failing_shop_leaves_rest_of_search(
    wanted: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "implements", lambda plugin, _: plugin == wanted.order.plugin)
    assert found("Broken") == set()


def test_amount_is_read_in_language_of_page(wanted: Payment) -> None:
    with translation.override("de"):
        assert found("12,50") == {wanted.pk}
        assert found("4.242,00") != set()


def test_whole_reference_asks_nothing_else(wanted: Payment, shopper: Knowing) -> None:
    with CaptureQueriesContext(connection) as statements:
        search(wanted.reference)
    assert len(statements) == 1
    assert shopper.asked == []


def test_digits_of_card_are_erased(wanted: Payment) -> None:
    erase_order(wanted.order.plugin, wanted.order.key, "test")
    assert wanted.pk not in found("4242")


@pytest.mark.parametrize(
    "term",
    [
        "",
        " ",
        "#",
        "'",
        "%",
        "x" * 10_000,
        "' OR 1=1 --",
        "'; DROP TABLE tillgate_payment; --",
        "<script>alert(1)</script>",
        "\0",
        "٤٢٤٢",
        "1e400",
        "🙂",
    ],
)
def test_nonsense_finds_nothing_and_is_escaped(wanted: Payment, boss: Client, term: str) -> None:
    assert found(term) == set()
    for address in LISTS:
        response = boss.get(address, {"q": term})
        assert response.status_code == 200
        assert "<script>alert" not in response.content.decode()


def test_unusable_search_gets_clear_word(wanted: Payment, boss: Client) -> None:
    for term, word in (("x" * 10_000, "longer than anything"), ("%", "at least three characters")):
        (message,) = said(boss.get(LISTS[0], {"q": term}))
        assert word in message


def test_each_list_has_same_search(wanted: Payment, boss: Client) -> None:
    open_review(ReviewReason.DISPUTED, {}, "test", wanted)
    for address in LISTS:
        for term in ("4242", "ch_7", wanted.reference, f"#{wanted.order.key}"):
            page = boss.get(address, {"q": term}).content.decode()
            assert wanted.reference in page, (address, term)
        assert wanted.reference not in boss.get(address, {"q": "11.00"}).content.decode()
