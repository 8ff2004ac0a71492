"""Slow money: what shoppers read of a voucher, a debit, and money that went another way."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

from django.core import mail
from django.test import Client
from django.utils.formats import date_format
from django.utils.timezone import localtime

from tests.shopping import at, bought, newest_payment, order_of, path_of
from tests.test_paying import page_of
from tillgate import Transaction, hooks
from tillgate.django.models import Payment
from tillgate.gateways import NextStep, PaidWith
from tillgate.hooks import hookimpl
from tillgate.testing.world import World
from tillgate_pretix import orders

VOUCHER = "https://pay.example/voucher/7"


def finished(world: World, step: NextStep | None = None) -> tuple[Any, Payment]:
    """Return an order whose shopper has finished, with money that takes days, and the payment."""
    key = world.order()
    payment = world.pay_page(key)
    mail.outbox.clear()
    world.money.hold(payment.reference, step)
    world.come_back(payment)
    world.run_worker()
    return order_of(world, key), world.fresh(payment)


def voucher(world: World, days: float = 3) -> NextStep:
    return NextStep(url=VOUCHER, until=world.time.now() + timedelta(days=days))


def pass_time(world: World, **by: float) -> None:
    world.time.advance(**by)
    world.run_worker()


def subjects(order: Any) -> list[str]:
    """Return the subjects of the mails to the shopper, without what pretix puts before each."""
    sent = [one for one in mail.outbox if one.to == [order.email]]
    return [str(one.subject).removeprefix("[TESTMODE] ") for one in sent]


def mailed(sent: Any) -> tuple[str, str]:
    """Return the text and the HTML of a mail."""
    parts = [part for part in sent.message().walk() if part.get_content_type() == "text/html"]
    return str(sent.body), unescape(parts[0].get_payload(decode=True).decode())


class Answers:
    """Changes the gateway's answers."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    @hookimpl(wrapper=True)
    def tillgate_query(self) -> Generator[None, Transaction, Transaction]:
        found = yield
        return replace(found, **self.changes)


@contextmanager
def answered(**changes: Any) -> Iterator[None]:
    """Let the gateway's answers say more."""
    plugin = Answers(**changes)
    hooks.plugin_manager().register(plugin)
    try:
        yield
    finally:
        hooks.plugin_manager().unregister(plugin)


# The order's page ---------------------------------------------------------------------------------


def test_order_page_leads_to_voucher(world: World, client: Client) -> None:
    step = voucher(world)
    order, _ = finished(world, step)
    page = page_of(world, str(order.pk), client)
    assert step.until is not None
    day = date_format(localtime(step.until), "F j")
    assert f"Pay the voucher by {day}" in page
    assert f'href="{VOUCHER}"' in page
    assert "do not pay the voucher as well" in page
    assert "We are waiting for your payment" not in page
    assert 'id="tillgate-poll"' in page


def test_order_page_names_money_underway(world: World, client: Client) -> None:
    order, _ = finished(world)
    page = page_of(world, str(order.pk), client)
    assert "Your payment is on its way" in page
    assert "You need not pay again." in page
    assert "We are waiting for your payment" not in page


def test_stranger_reads_voucher_without_link(world: World) -> None:
    """The address of the return travels through the payment service."""
    order, _ = finished(world, voucher(world))
    page = Client().get(path_of(orders.return_url(str(order.pk)) or "")).content.decode()
    assert "Pay the voucher by" in page
    assert VOUCHER not in page


def test_cancelling_shopper_reads_card(world: World) -> None:
    with answered(paid_with=PaidWith(method="card", brand="visa", last4="4242")):
        order, _ = bought(world)
    theirs = newest_payment(order)
    with at(order):
        assert theirs.payment_provider.payment_presale_render(payment=theirs) == "Visa ending 4242"


def test_unpaid_payment_keeps_method_name(world: World) -> None:
    theirs = newest_payment(order_of(world, world.order()))
    with at(theirs.order):
        assert theirs.payment_provider.payment_presale_render(payment=theirs) == "Alipay"
