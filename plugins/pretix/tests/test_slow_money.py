"""Slow money: what shoppers read of a voucher, a debit, and money that went another way."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils.formats import date_format
from django.utils.timezone import localtime, now
from pretix.base.models import Order

from tests.shopping import at, bought, newest_payment, order_of, path_of, payments_of
from tests.test_mails import saved
from tests.test_paying import page_of, pay_again
from tests.test_refunds import refunded_amount
from tillgate import Transaction, hooks, shop
from tillgate.django.models import Payment, Refund
from tillgate.django.orders.locking import locked_order
from tillgate.django.payments import starting
from tillgate.django.reviews.opening import open_review
from tillgate.gateways import NextStep, PaidWith
from tillgate.hooks import DisputeStatus, ReportedDispute, hookimpl
from tillgate.testing.translations import SHOPPER_LANGUAGES, STAFF_LANGUAGES
from tillgate.testing.world import World
from tillgate_pretix import orders
from tillgate_pretix.occasions import follow

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


# Mail about slow money ----------------------------------------------------------------------------


def test_debit_is_mailed_until_failure(world: World) -> None:
    """The second mail has the link to pay. pretix sends none of its own about the same."""
    order, payment = finished(world)
    assert subjects(order) == [f"Order {order.code}: Your payment is on its way"]
    for text in mailed(mail.outbox[0]):
        assert "We are waiting for your bank." in text
        assert "$12.50" in text
    world.gateway.decline(payment.reference)
    pass_time(world, hours=30)
    assert len(subjects(order)) == 1
    world.money.release(payment.reference)
    world.notification(payment)
    world.run_worker()
    assert subjects(order)[1:] == [f"Your order {order.code} waits for payment"]
    for text in mailed(mail.outbox[-1]):
        assert "has not arrived. Your payment was declined." in text
        assert "Your order is kept until" in text
        assert f"/order/{order.code}/{order.secret}/" in text
    assert order_of(world, str(order.pk)).status == Order.STATUS_PENDING
    pass_time(world, minutes=65)
    assert payments_of(order) == [("alipay", "failed")]
    assert order_of(world, str(order.pk)).status == Order.STATUS_EXPIRED
    assert len(subjects(order)) == 2


def test_unwanted_failure_mail_leaves_pretix(world: World) -> None:
    """pretix's own mail, when the time to pay is over, is not switched off with ours."""
    saved(world, mail_send_tillgate_failed="")
    order, payment = finished(world)
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    pass_time(world, hours=30)
    assert len(subjects(order)) == 1
    pass_time(world, minutes=65)
    assert subjects(order)[1:] == [f"Payment failed for your order: {order.code}"]


def test_arriving_debit_is_only_confirmed(world: World) -> None:
    order, payment = finished(world)
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, hours=30)
    assert world.shop.is_paid(str(order.pk))
    assert len(subjects(order)) == 2
    assert "waits for payment" not in subjects(order)[1]


def test_declined_card_gets_no_debit_mail(world: World) -> None:
    """The shopper saw it on the page."""
    key = world.order()
    payment = world.pay_page(key)
    mail.outbox.clear()
    world.gateway.decline(payment.reference)
    world.notification(payment)
    world.run_worker()
    assert subjects(order_of(world, key)) == []


def test_failure_beside_open_payment_waits(world: World) -> None:
    """A shopper who is using another payment is not asked to pay."""
    order, payment = finished(world)
    starting.start_payment(
        "pretix",
        str(order.pk),
        method="paypal",
        account=payment.account,
        despite=[payment.reference],
    )
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    world.notification(payment)
    world.run_worker()
    assert world.fresh(payment).status == "failed"
    assert len(subjects(order)) == 1


# Mail about vouchers ------------------------------------------------------------------------------


def test_voucher_is_mailed_and_reminded(world: World) -> None:
    """Once at the beginning, and once a day before its end."""
    step = voucher(world)
    order, payment = finished(world, step)
    assert step.until is not None
    first = f"Order {order.code}: Pay the voucher by {date_format(localtime(step.until), 'F j')}"
    assert subjects(order) == [first]
    for text in mailed(mail.outbox[0]):
        assert f"Show the voucher: {VOUCHER}" in text or f'href="{VOUCHER}"' in text
        assert "waiting for your bank" not in text
    pass_time(world, days=1.9)
    assert len(subjects(order)) == 1
    pass_time(world, days=0.2)
    assert subjects(order) == [first, first]
    assert world.fresh(payment).is_processing


def test_paid_voucher_is_not_reminded(world: World) -> None:
    order, payment = finished(world, voucher(world))
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, days=2.1)
    assert world.shop.is_paid(str(order.pk))
    assert len([one for one in subjects(order) if "Pay the voucher" in one]) == 1


def test_later_voucher_end_delays_reminder(world: World) -> None:
    order, payment = finished(world, voucher(world, days=3))
    world.money.hold(payment.reference, voucher(world, days=6))
    pass_time(world, days=1.9)
    pass_time(world, days=0.2)
    assert len(subjects(order)) == 1
    pass_time(world, days=3)
    assert len(subjects(order)) == 2


def test_voucher_appearing_later_is_mailed(world: World) -> None:
    """The first mail said that nothing is to be done."""
    order, payment = finished(world)
    world.money.hold(payment.reference, voucher(world))
    for _ in range(2):
        pass_time(world, hours=3)
    assert len(subjects(order)) == 2
    assert "Pay the voucher by" in subjects(order)[1]


def test_unwanted_reminder_is_not_sent(world: World) -> None:
    saved(world, mail_send_tillgate_voucher_ends="")
    order, _ = finished(world, voucher(world))
    pass_time(world, days=2.1)
    assert len(subjects(order)) == 1


def test_cancelled_order_has_no_reminder(world: World) -> None:
    order, _ = finished(world, voucher(world))
    world.shop.close_order(str(order.pk))
    pass_time(world, days=2.1)
    assert len(subjects(order)) == 1


@pytest.mark.parametrize("language", ["en", *STAFF_LANGUAGES, *SHOPPER_LANGUAGES])
def test_slow_mails_speak_shoppers_language(world: World, language: str) -> None:
    order = order_of(world, world.order())
    order.locale = language.replace("_", "-").lower()
    order.save(update_fields=["locale"])
    payment = world.pay_page(str(order.pk))
    mail.outbox.clear()
    world.money.hold(payment.reference, voucher(world))
    world.come_back(payment)
    world.run_worker()
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    pass_time(world, hours=3)
    begun, failed = mail.outbox
    assert VOUCHER in begun.body
    assert order.secret in failed.body
    said = f"{begun.subject}{begun.body}{failed.body}"
    is_english = [text in said for text in ("voucher by", "has not arrived", "is kept until")]
    assert is_english == [language == "en"] * 3


# Money that went another way ----------------------------------------------------------------------


def test_returned_refund_is_mailed_once(world: World) -> None:
    """Although Tillgate may tell of it again."""
    order, _ = bought(world)
    refunded_amount(order, "5.00")
    mail.outbox.clear()
    refund = Refund.objects.select_related("payment__order").get()
    with locked_order(refund.payment.order.pk):
        open_review(shop.ReviewReason.REFUND_RETURNED, {}, "worker", refund)
    fields = {
        "order": f"pretix:{order.pk}",
        "reason": shop.ReviewReason.REFUND_RETURNED,
        "refund": str(refund.pk),
    }
    reference = refund.payment.reference
    follow(hooks.Event(name="review.opened", at=now(), reference=reference, fields=fields))
    assert subjects(order) == [f"Refund for your order {order.code}"]
    assert "The refund of $5.00" in mail.outbox[0].body
    assert "came back" in mail.outbox[0].body


@pytest.mark.parametrize("is_wanted", [True, False])
def test_lost_dispute_mails_on_request(world: World, is_wanted: bool) -> None:
    """Once, though an open dispute is lost only later."""
    if is_wanted:
        saved(world, mail_send_tillgate_dispute_lost="on")
    order, _ = bought(world)
    world.run_worker()
    mail.outbox.clear()
    told: list[int] = []
    for status in (DisputeStatus.OPEN, DisputeStatus.LOST, DisputeStatus.LOST):
        about = ReportedDispute(amount=Decimal("5.00"), status=status, dispute_no="d-1")
        with answered(disputes=(about,)):
            pass_time(world, days=31)
        told.append(len(subjects(order)))
    assert told == [0, is_wanted, is_wanted]
    for one in mail.outbox:
        if one.to == [order.email]:
            assert "Your bank has given $5.00" in one.body


# Browsers of other apps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("browser", "is_left"),
    [("MicroMessenger/8.0", False), ("AlipayClient/10", True), ("Firefox/140.0", True)],
)
def test_wallet_opens_in_own_browser(
    world: World,
    client: Client,
    browser: str,
    is_left: bool,
) -> None:
    """Elsewhere no payment starts, and the order's page says what to do."""
    order = order_of(world, world.order())
    headers = {"User-Agent": f"Mozilla/5.0 (iPhone) {browser}"}
    start = client.get(pay_again(order), headers=headers)["Location"]
    client.get(start, headers=headers)
    assert Payment.objects.exists() is is_left
    page = page_of(world, str(order.pk), client)
    hint = "Alipay cannot open inside WeChat. To pay that way, open this page in your browser."
    assert (hint in page) is not is_left
