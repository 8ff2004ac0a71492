"""Awaited money: the texts about a voucher, about money under way, and after a payment that the
gateway has not reported yet; and how soon they turn.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils.formats import date_format
from django.utils.translation import override

from tests.django.pages.test_pages import come_back, links_of, text_of
from tillgate.django import dates
from tillgate.django.models import Payment
from tillgate.django.payments import starting
from tillgate.gateways import NextStep
from tillgate.shop import order_state
from tillgate.testing.world import World

VOUCHER = "https://pay.example/voucher/7"


def finish(world: World, step: NextStep | None = None) -> Payment:
    """Let the shopper finish on the payment page, with money that takes days."""
    payment = world.start(world.order())
    world.money.hold(payment.reference, step)
    return payment


def poll_of(page: str) -> dict[str, Any]:
    """Return the data of a page's script."""
    found = re.search(r'<script id="tillgate-poll"[^>]*>(.*?)</script>', page)
    assert found
    read: dict[str, Any] = json.loads(found[1])
    return read


def test_voucher_page_says_until_when(world: World) -> None:
    """It leads to the voucher, tells the steps after its end, and offers another way to pay."""
    until = world.time.now() + timedelta(days=3)
    payment = finish(world, NextStep(url=VOUCHER, until=until))
    page = text_of(come_back(world, payment))
    day = date_format(dates.local(until - timedelta(seconds=1)), "F j")
    assert f"<h1>Pay the voucher by {day}</h1>" in page
    assert "After that you can pay in another way for a while." in page
    assert links_of(page)["Show the voucher"] == VOUCHER
    assert "Choose another payment method" in links_of(page)
    assert "Pay now" not in page


def test_pay_page_says_it_too(world: World) -> None:
    payment = finish(world, NextStep(url=VOUCHER, until=world.time.now() + timedelta(days=3)))
    come_back(world, payment)
    page = text_of(world.client.get(world.way_to_pay(payment.order.key)))
    assert "Pay the voucher by" in page
    assert links_of(page)["Show the voucher"] == VOUCHER
    assert "do not pay the voucher as well" in page
    assert "is on its way already" not in page


@pytest.mark.parametrize(
    ("url", "days", "title", "text", "has_link"),
    [
        (VOUCHER, None, "Pay the voucher", "as long as the voucher is valid", True),
        (None, 3, "Pay the voucher by", "has shown you the voucher", False),
        (None, None, "Pay the voucher", "has shown you the voucher", False),
        (VOUCHER, -1, "The time to pay the voucher has passed", "If you paid it in time", False),
    ],
    ids=["no date", "no page", "neither", "in the past"],
)
def test_voucher_says_what_is_known(
    world: World,
    url: str | None,
    days: int | None,
    title: str,
    text: str,
    has_link: bool,
) -> None:
    """A voucher without a page or a date, or after its time, is no finished payment."""
    until = world.time.now() + timedelta(days=days) if days else None
    page = text_of(come_back(world, finish(world, NextStep(url=url, until=until))))
    assert f"<h1>{title}" in page
    assert text in page
    assert ("Show the voucher" in links_of(page)) is has_link


@pytest.mark.parametrize(
    ("days", "title", "text"),
    [
        (3, "Make the bank transfer by", "The shop waits for your transfer until"),
        (None, "Make the bank transfer", "while it waits for your transfer"),
        (-1, "The time for the bank transfer has passed", "If you made it in time"),
    ],
)
def test_transfer_is_no_voucher(world: World, days: int | None, title: str, text: str) -> None:
    until = world.time.now() + timedelta(days=days) if days else None
    payment = finish(world, NextStep(url=VOUCHER, until=until, is_transfer=True))
    page = text_of(come_back(world, payment))
    assert f"<h1>{title}" in page
    assert text in page
    assert ("Show the bank details" in links_of(page)) is (days != -1)
    pay_page = text_of(world.client.get(world.way_to_pay(payment.order.key)))
    assert title in pay_page
    assert "do not make the bank transfer as well" in pay_page
    assert "oucher" not in f"{page}{pay_page}".replace(VOUCHER, "")


def test_voucher_that_ends_at_midnight_names_day_before(world: World) -> None:
    until = dates.start_of(dates.local(world.time.now()).date() + timedelta(days=3))
    payment = finish(world, NextStep(url=VOUCHER, until=until))
    come_back(world, payment)
    state = order_state(world.shop.plugin, payment.order.key)
    assert state is not None
    assert state.awaited is not None
    with override("de"):
        day = date_format(dates.local(until) - timedelta(days=1), "j. F")
        german = order_state(world.shop.plugin, payment.order.key)
    assert german is not None
    assert german.awaited is not None
    assert german.awaited.title == f"Bezahlen Sie den Zahlschein bis {day}"
    assert (german.awaited.url, german.awaited.until) == (VOUCHER, until)


def test_paid_order_warns_of_open_voucher(world: World) -> None:
    """A shopper that has paid in another way should not pay the voucher too."""
    voucher = finish(world, NextStep(url=VOUCHER, until=world.time.now() + timedelta(days=3)))
    come_back(world, voucher)
    card = starting.start_payment(
        world.shop.plugin,
        voucher.order.key,
        method="paypal",
        despite=[voucher.reference],
    ).payment
    world.shopper_pays(card)
    world.notification(card)
    page = text_of(come_back(world, voucher))
    assert "<h1>This order is already paid</h1>" in page
    assert "please do not pay it" in page
    assert "Show the voucher" not in page


@pytest.mark.parametrize("word", ["", "pending", "failed", "cancelled", "anything"])
def test_pending_return_warns_before_pay_now(world: World, word: str) -> None:
    """After any word of the return: the bank may have taken the money."""
    payment = world.start(world.order())
    page = text_of(come_back(world, payment, status=word))
    assert "Pay now" in links_of(page)
    assert "You may have paid already" in page


# How soon the page turns --------------------------------------------------------------------------


def test_waiting_page_asks_once_more_after_a_second(world: World) -> None:
    """The return's query was too early: the page's first request asks the gateway again, once."""
    world.configure(NOTIFICATION_THROTTLE_SECONDS=5)
    payment = world.start(world.order())
    poll = poll_of(text_of(come_back(world, payment, status="success")))
    assert (poll["quick"], poll["seconds"]) == (10, 3)
    world.shopper_pays(payment)
    asked = world.queries()
    assert world.client.get(poll["statusUrl"]).json()["settled"] is False
    assert world.queries() == asked
    assert world.client.get(poll["firstUrl"]).json() == {"status": "paid", "settled": True}
    assert world.queries() == asked + 1


def test_first_request_counts_once(world: World) -> None:
    """Its address gives no second query, and a page that is loaded again gives none."""
    world.configure(NOTIFICATION_THROTTLE_SECONDS=5)
    payment = world.start(world.order())
    first = poll_of(text_of(come_back(world, payment, status="success")))["firstUrl"]
    again = poll_of(text_of(come_back(world, payment, status="success")))["firstUrl"]
    asked = world.queries()
    for url in (first, first, again, f"{again}after=2026-01-01", f"{again}after=x"):
        assert world.client.get(url).status_code == 200
    assert world.queries() == asked + 1


def test_notification_after_return_is_not_held_up(world: World) -> None:
    """The query of the return was too early, and the notification turns the page immediately."""
    world.configure(NOTIFICATION_THROTTLE_SECONDS=5)
    payment = world.start(world.order())
    poll = poll_of(text_of(come_back(world, payment, status="success")))
    world.client.get(poll["firstUrl"])
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.client.get(poll["statusUrl"]).json()["settled"] is True


def test_page_about_money_under_way_turns_by_itself(world: World) -> None:
    payment = finish(world)
    page = text_of(come_back(world, payment))
    assert "<h1>Your payment is on its way</h1>" in page
    poll = poll_of(page)
    assert world.client.get(poll["statusUrl"]).json()["settled"] is False
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    world.notification(payment)
    assert world.client.get(poll["statusUrl"]).json()["settled"] is True
