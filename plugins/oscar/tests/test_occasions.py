"""Mail about slow money, vouchers, refunds that came back and disputes, and the pages beside it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.timezone import localtime
from oscar.core.loading import get_model

from tests.shopper import Shopper
from tillgate import ConfigurationError, Transaction, hooks, shop
from tillgate.django.models import Payment, Refund, TimelineEntry
from tillgate.django.orders.locking import locked_order
from tillgate.django.payments import starting
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import open_review
from tillgate.gateways import NextStep
from tillgate.hooks import DisputeStatus, ReportedDispute, hookimpl
from tillgate.testing.translations import SHOPPER_LANGUAGES, STAFF_LANGUAGES
from tillgate.testing.world import World
from tillgate_oscar.conf import MAILS, get_settings

Order = get_model("order", "Order")
Make = Callable[..., Any]
VOUCHER = "https://pay.example/voucher/7"


@pytest.fixture
def payment(world: World, shopper: Shopper, product: Make) -> Payment:
    shopper.get(shopper.buys(product())["Location"])
    return Payment.objects.get()


def finish(world: World, payment: Payment, step: NextStep | None = None) -> None:
    """Let the shopper finish on the payment page and come back, with money that takes days."""
    world.money.hold(payment.reference, step)
    world.come_back(payment)
    world.run_worker()


def voucher(world: World, days: float = 3) -> NextStep:
    return NextStep(url=VOUCHER, until=world.time.now() + timedelta(days=days))


def pass_time(world: World, **by: float) -> None:
    world.time.advance(**by)
    world.run_worker()


def subjects() -> list[str]:
    return [str(sent.subject) for sent in mail.outbox]


def mailed(sent: Any) -> tuple[str, str]:
    """Return the text and the HTML of a mail."""
    return str(sent.body), str(sent.alternatives[0][0])


@contextmanager
def disputed(*statuses: DisputeStatus, **more: Any) -> Iterator[None]:
    """Let the gateway's answers tell of disputes."""

    class Disputes:
        @hookimpl(wrapper=True)
        def tillgate_query(self) -> Generator[None, Transaction, Transaction]:
            found = yield
            disputes = tuple(
                ReportedDispute(
                    amount=Decimal("5.00"),
                    status=status,
                    dispute_no=f"d-{number}",
                    **more,
                )
                for number, status in enumerate(statuses)
            )
            return replace(found, disputes=disputes)

    plugin = Disputes()
    hooks.plugin_manager().register(plugin)
    try:
        yield
    finally:
        hooks.plugin_manager().unregister(plugin)


# Slow money ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("payable_minutes", [1440, 60])
def test_debit_is_mailed_when_it_begins_and_fails(
    world: World,
    payment: Payment,
    settings: Any,
    payable_minutes: int,
) -> None:
    """The second mail has the link to pay. The time to pay again begins then, whole, however late
    the debit began.
    """
    settings.TILLGATE = {**settings.TILLGATE, "ORDER_PAYABLE_FOR_MINUTES": payable_minutes}
    pass_time(world, minutes=20)
    finish(world, payment)
    number = payment.order.key
    assert subjects() == [f"Order {number}: Your payment is on its way"]
    for text in mailed(mail.outbox[0]):
        assert "We are waiting for your bank." in text
        assert "/payments/pay/" not in text
    world.gateway.decline(payment.reference)
    pass_time(world, hours=30)
    assert len(mail.outbox) == 1
    world.money.release(payment.reference)
    world.notification(payment)
    pass_time(world, seconds=5)
    assert subjects()[1:] == [f"Your order {number} waits for payment"]
    for text in mailed(mail.outbox[1]):
        assert "has not arrived. Your payment was declined." in text
        assert "/payments/pay/" in text
    state = shop.order_state("oscar", number)
    assert state is not None
    assert state.kept_until is not None
    left = state.kept_until - world.time.now()
    assert timedelta(minutes=59) < left <= timedelta(minutes=60)
    pass_time(world, minutes=50)
    assert Order.objects.get().status == "Pending payment"
    pass_time(world, minutes=15)
    assert Order.objects.get().status == "Cancelled"
    assert len(mail.outbox) == 2, "no reminder beside the mail that it failed"


def test_debit_that_arrives_is_confirmed(world: World, payment: Payment) -> None:
    finish(world, payment)
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, hours=30)
    assert Order.objects.get().status == "Paid"
    assert len(mail.outbox) == 2
    assert "waits" not in mail.outbox[1].subject


def test_failure_reported_after_the_money_counts_for_nothing(
    world: World,
    payment: Payment,
) -> None:
    """Money that came stays: staff review what the gateway says, and no shopper is asked to pay."""
    finish(world, payment)
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    world.notification(payment)
    world.gateway.reverse(payment.reference)
    pass_time(world, hours=2)
    assert Order.objects.get().status == "Paid"
    assert world.reviews() == ["changed-after-paid"]
    assert not [one for one in subjects() if "waits" in one]


def test_no_mail_of_failure_for_a_paid_order(world: World, payment: Payment) -> None:
    """The shopper has paid in another way meanwhile."""
    finish(world, payment)
    other = starting.start_payment(
        "oscar",
        payment.order.key,
        method="paypal",
        despite=[payment.reference],
    ).payment
    world.shopper_pays(other)
    world.notification(other)
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    pass_time(world, hours=30)
    assert Order.objects.get().status == "Paid"
    assert not [one for one in subjects() if "waits" in one]


# Vouchers -----------------------------------------------------------------------------------------


def test_voucher_is_mailed_and_reminded_of(world: World, payment: Payment) -> None:
    """Once at the beginning, once a day before its end, and after that its end."""
    step, number = voucher(world), payment.order.key
    finish(world, payment, step)
    assert step.until is not None
    day = date_format(localtime(step.until), "F j")
    first = f"Order {number}: Pay the voucher by {day}"
    assert subjects() == [first]
    for text in mailed(mail.outbox[0]):
        assert VOUCHER in text
        assert "After that you can pay in another way for a while." in text
        assert "waiting for your bank" not in text
    pass_time(world, days=1.9)
    assert len(mail.outbox) == 1
    pass_time(world, days=0.2)
    assert subjects() == [first, first]
    world.money.release(payment.reference)  # its page has closed
    pass_time(world, days=1)
    assert subjects()[2:] == [f"Your order {number} waits for payment"]
    assert Order.objects.get().status == "Pending payment"


def test_paid_voucher_is_not_reminded_of(world: World, payment: Payment) -> None:
    finish(world, payment, voucher(world))
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, days=2.1)
    assert len(mail.outbox) == 2
    assert Order.objects.get().status == "Paid"


def test_voucher_that_ends_later_is_reminded_of_later(world: World, payment: Payment) -> None:
    finish(world, payment, voucher(world, days=3))
    world.money.hold(payment.reference, voucher(world, days=6))
    pass_time(world, days=1.9)
    pass_time(world, days=0.2)
    assert len(mail.outbox) == 1
    pass_time(world, days=3)
    assert len(mail.outbox) == 2


@pytest.mark.parametrize(("days", "mails"), [(3, 3), (0.8, 2)])
def test_voucher_that_appears_later_is_mailed(
    world: World,
    payment: Payment,
    days: float,
    mails: int,
) -> None:
    """The gateway first said that the money is on its way, and that nothing is to be done."""
    finish(world, payment)
    assert subjects() == [f"Order {payment.order.key}: Your payment is on its way"]
    world.money.hold(payment.reference, voucher(world, days=days))
    for _ in range(2):
        pass_time(world, hours=3)
    assert len(mail.outbox) == 2
    assert "Pay the voucher by" in mail.outbox[1].subject
    assert VOUCHER in mail.outbox[1].body
    pass_time(world, days=2)
    assert len(mail.outbox) == mails


def test_voucher_with_later_date_is_reminded(world: World, payment: Payment) -> None:
    """The gateway first named no end of the voucher."""
    finish(world, payment, NextStep(url=VOUCHER))
    world.money.hold(payment.reference, voucher(world))
    for _ in range(2):
        pass_time(world, hours=3)
    number = payment.order.key
    assert subjects()[0] == f"Order {number}: Pay the voucher"
    assert "Pay the voucher by" in subjects()[1]
    pass_time(world, days=2)
    assert len(mail.outbox) == 3


@pytest.mark.parametrize("days", [0.5, -1], ids=["short", "over"])
def test_short_voucher_is_mailed_once(world: World, payment: Payment, days: float) -> None:
    finish(world, payment, voucher(world, days=days))
    pass_time(world, days=0.6)
    assert len(mail.outbox) == 1
    assert (VOUCHER in mail.outbox[0].body) is (days > 0)


def test_voucher_without_page_and_date_is_mailed(world: World, payment: Payment) -> None:
    finish(world, payment, NextStep())
    assert subjects() == [f"Order {payment.order.key}: Pay the voucher"]
    assert "The payment service has shown you the voucher" in mail.outbox[0].body


def test_voucher_paid_beside_a_card_is_mailed(world: World, payment: Payment) -> None:
    """The order is paid once, staff review the second payment, and the shopper hears of it."""
    finish(world, payment, voucher(world))
    card = starting.start_payment(
        "oscar",
        payment.order.key,
        method="paypal",
        despite=[payment.reference],
    ).payment
    world.shopper_pays(card)
    world.notification(card)
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, hours=3)
    assert world.reviews() == ["second-payment"]
    assert Order.objects.get().status == "Paid"
    assert subjects()[-1] == f"Two payments for your order {payment.order.key}"


def test_phone_that_never_comes_back_is_mailed(world: World, payment: Payment) -> None:
    """Nobody returns and no notification comes: the worker learns of the voucher, and mails it."""
    world.money.hold(payment.reference, voucher(world))
    pass_time(world, minutes=20)
    assert VOUCHER in mail.outbox[0].body
    pass_time(world, days=2.1)
    assert len(mail.outbox) == 2
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, hours=7)
    assert Order.objects.get().status == "Paid"


def test_order_pages_lead_to_the_voucher(world: World, shopper: Shopper, payment: Payment) -> None:
    """The shopper's own page has the link, and a stranger's only the date."""
    finish(world, payment, voucher(world))
    home = hooks.call_owner("oscar", "tillgate_return_url", payment=_value(payment))
    page = shopper.get(home).content.decode()
    assert "Pay the voucher by" in page
    assert f'href="{VOUCHER}"' in page
    assert "Other ways to pay" in page
    assert ">Pay now<" not in page
    strangers = Shopper().get(home).content.decode()
    assert "Pay the voucher by" in strangers
    assert VOUCHER not in strangers
    order = Order.objects.get()
    form = reverse("customer:anon-order-form", args=[order.number, order.verification_hash()])
    own = Client().post(form, {"email": order.guest_email}, follow=True).content.decode()
    assert f'href="{VOUCHER}"' in own
    assert ">Pay now<" not in own


def test_order_page_of_an_open_payment_warns(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    """The shopper may have paid just now, whatever brought them here."""
    home = hooks.call_owner("oscar", "tillgate_return_url", payment=_value(payment))
    page = shopper.get(home).content.decode()
    assert ">Pay now<" in page
    assert "You may have paid already" in page


def _value(payment: Payment) -> hooks.Payment:
    found = shop.find_payment("oscar", reference=payment.reference)
    assert found is not None
    return found


# Money that went another way ----------------------------------------------------------------------


def test_refund_that_came_back_is_mailed_once(world: World, payment: Payment) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    queueing.refund(payment.pk, Decimal("5.00"))
    world.run_worker()
    mail.outbox.clear()
    for _ in range(2):
        with locked_order(payment.order_id):
            refund = Refund.objects.select_related("payment__order").get()
            open_review(shop.ReviewReason.REFUND_RETURNED, {}, "worker", refund)
        world.run_worker()
    assert subjects() == [f"Refund for your order {payment.order.key}"]
    for text in mailed(mail.outbox[0]):
        assert "The refund of USD 5.00" in text
        assert "came back" in text


@pytest.mark.parametrize(("wanted", "mails"), [(True, 1), (False, 0), (None, 0)])
def test_lost_dispute_is_mailed_where_wanted(
    world: World,
    payment: Payment,
    settings: Any,
    wanted: bool | None,
    mails: int,
) -> None:
    """Once, though an open dispute is lost only later; not unless the shop says so."""
    settings.TILLGATE_OSCAR = {"MAILS": {} if wanted is None else {"dispute-lost": wanted}}
    world.shopper_pays(payment)
    world.notification(payment)
    world.run_worker()
    mail.outbox.clear()
    for statuses in ([DisputeStatus.OPEN], [DisputeStatus.LOST], [DisputeStatus.LOST]):
        with disputed(*statuses):
            pass_time(world, days=31)
    assert len(mail.outbox) == mails
    if mails:
        assert "Your bank has given USD 5.00" in mail.outbox[0].body


def test_unwanted_mails_are_not_queued(world: World, payment: Payment, settings: Any) -> None:
    """They leave no entry in the order's timeline either."""
    settings.TILLGATE_OSCAR = {"MAILS": dict.fromkeys(MAILS, False)}
    finish(world, payment, voucher(world))
    pass_time(world, days=2.1)
    world.shopper_pays(payment)
    world.money.release(payment.reference)
    pass_time(world, hours=3)
    assert Order.objects.get().status == "Paid"
    assert mail.outbox == []
    assert not TimelineEntry.objects.filter(message__contains="mailed").exists()


@pytest.mark.parametrize("wrong", [{"paid-once": True}, {"refunded": "yes"}, ["refunded"]])
def test_unknown_kind_of_mail_is_an_error(settings: Any, wrong: object) -> None:
    settings.TILLGATE_OSCAR = {"MAILS": wrong}
    with pytest.raises(ConfigurationError, match="MAILS"):
        get_settings()


@pytest.mark.parametrize("language", ["en", *STAFF_LANGUAGES, *SHOPPER_LANGUAGES])
def test_mails_of_slow_money_in_every_language(
    world: World,
    payment: Payment,
    language: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is written in the shopper's language, with its date, its amount and its link."""
    code = language.replace("_", "-").lower()
    monkeypatch.setattr("tillgate_oscar.orders.language_of", lambda payment: code)
    finish(world, payment, voucher(world))
    world.money.hold(payment.reference)
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    pass_time(world, hours=3)
    begun, failed = mail.outbox
    assert VOUCHER in begun.body
    assert "/payments/pay/" in failed.body
    said = f"{begun.body}{failed.body}"
    is_english = [text in said for text in ("voucher by", "has not arrived")]
    assert is_english == [language == "en"] * 2
    with transaction.atomic():
        assert Payment.objects.get().status == "failed"
