"""Mail to the shopper: once when the money has arrived, and one reminder when it has not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.db.models import F
from django.utils import translation
from django.utils.formats import date_format
from django.utils.timezone import localtime
from oscar.core.loading import get_class, get_model

from tests.shopper import Shopper
from tillgate.django import actions
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import OutboxEvent, Payment, Review, TimelineEntry
from tillgate.django.orders import registering
from tillgate.django.refunds import queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.testing.world import World
from tillgate_oscar.signals import create_event_types

Order = get_model("order", "Order")
Make = Callable[..., Any]
HOLDING_BACK = {
    "Pending payment": ("Paid", "On hold"),
    "Paid": ("Pending payment",),
    "On hold": ("Pending payment",),
}


@pytest.fixture
def payment(world: World, shopper: Shopper, product: Make) -> Payment:
    shopper.get(shopper.buys(product())["Location"])
    return Payment.objects.get()


def wait(world: World, minutes: int = 30) -> None:
    """Let the time pass after which a reminder is due, and run the worker."""
    world.time.advance(minutes=minutes)
    world.run_worker()


def subjects() -> list[str]:
    return [str(sent.subject) for sent in mail.outbox]


def bodies(sent: Any) -> tuple[str, str]:
    """Return the text and the HTML of a mail."""
    return str(sent.body), str(sent.alternatives[0][0])


def test_unpaid_order_sends_no_mail(world: World, payment: Payment) -> None:
    world.run_worker()
    assert mail.outbox == []


def test_notification_alone_sends_order_mail_once(
    world: World,
    payment: Payment,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    for _ in range(3):
        world.run_worker()
        world.notification(payment)
    (sent,) = mail.outbox
    number = Order.objects.get().number
    assert sent.to == ["ada@shopper.example"]
    assert number in sent.subject
    assert f"/accounts/order-status/{number}/" in sent.body
    assert "Green tea" in sent.body
    assert sent.body.count("Paid with Alipay.") == 1
    # it has an HTML part
    assert sent.alternatives[0][0].count("<p>Paid with Alipay.</p>") == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("begun", [True, False])
def test_order_marked_paid_is_confirmed_once(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
    begun: bool,
) -> None:
    monkeypatch.setitem(Order.pipeline, "Paid", ("Pending payment",))
    placed = shopper.buys(product())
    if begun:
        shopper.get(placed["Location"])
    for status in ("Paid", "Pending payment", "Paid"):
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            Order.objects.get(),
            status,
        )
        world.run_worker()
    (sent,) = mail.outbox
    assert Order.objects.get().number in sent.subject
    assert "Paid with" not in sent.body


def test_paid_after_retracted_mark_confirms_once(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Staff had marked the order paid and taken that back before the money came."""
    monkeypatch.setitem(Order.pipeline, "Paid", ("Pending payment",))
    for status in ("Paid", "Pending payment"):
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            Order.objects.get(),
            status,
        )
    world.shopper_pays(payment)
    world.notification(payment)
    world.run_worker()
    assert (Order.objects.get().status, len(mail.outbox)) == ("Paid", 1)


def test_cancellation_before_mail_prevents_confirmation(
    world: World,
    payment: Payment,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    queueing.refund(payment.pk, payment.amount)
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        Order.objects.get(),
        "Cancelled",
    )
    world.run_worker()
    assert subjects() == [f"Refund for your order {payment.order.key}"]


@pytest.mark.parametrize("before", ["On hold", "Cancelled"])
def test_any_status_to_paid_confirms_once(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
) -> None:
    """Staff may mark the order paid from another status than waiting."""
    monkeypatch.setitem(Order.pipeline, "Pending payment", ("Paid", before))
    monkeypatch.setitem(Order.pipeline, before, ("Paid",))
    monkeypatch.setitem(Order.pipeline, "Paid", (before,))
    for status in (before, "Paid", before, "Paid"):
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            Order.objects.get(),
            status,
        )
    world.run_worker()
    (sent,) = mail.outbox
    assert Order.objects.get().number in sent.subject


@pytest.mark.parametrize("meanwhile", ["Pending payment", "Cancelled"])
def test_skipped_confirmation_is_sent_once_paid(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: str,
) -> None:
    """The order was not paid when its mail first fell due."""
    monkeypatch.setitem(Order.pipeline, "Paid", (meanwhile,))
    monkeypatch.setitem(Order.pipeline, meanwhile, ("Paid",))
    for status, sent in (("Paid", None), (meanwhile, 0), ("Paid", 1)):
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            Order.objects.get(),
            status,
        )
        if sent is not None:
            world.run_worker()
            assert len(mail.outbox) == sent
    # The process that dropped the first may have died before it was noted as done.
    dropped = OutboxEvent.objects.filter(name="order-paid").order_by("pk")[:1].get()
    OutboxEvent.objects.filter(pk=dropped.pk).update(done_at=None, due_at=dropped.done_at)
    world.run_worker()
    assert len(mail.outbox) == 1


def test_account_customer_mail_links_to_account(world: World, product: Make) -> None:
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    shopper = Shopper(world.client)
    shopper.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    shopper.get(shopper.buys(product())["Location"])
    world.shopper_pays(Payment.objects.get())
    world.notification(Payment.objects.get())
    world.run_worker()
    (sent,) = mail.outbox
    assert (sent.to, f"/accounts/orders/{Order.objects.get().number}/" in sent.body) == (
        ["bo@shopper.example"],
        True,
    )
    assert get_model("communication", "Email").objects.get().user == user


@pytest.mark.parametrize(
    ("decision", "said"),
    [("pay", "Bestätigung"), ("decline", "wartet auf die Zahlung")],
)
def test_mail_uses_language_of_purchase(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
    decision: str,
    said: str,
) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    shopper.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    getattr(world.sandbox.control, decision)(payment.reference)
    # of the process that worker runs; the middleware leaves its own in this thread
    translation.activate(settings.LANGUAGE_CODE)
    world.notification(payment)
    translation.activate(settings.LANGUAGE_CODE)
    wait(world)
    assert said in mail.outbox[0].subject


def test_failing_mail_server_is_retried(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patched:
        patched.setattr("django.core.mail.message.EmailMessage.send", refuse)
        world.run_worker()
    assert (mail.outbox, Order.objects.get().status) == ([], "Paid")
    world.time.advance(minutes=1)
    world.run_worker()
    assert len(mail.outbox) == 1


def test_unpaid_shopper_is_reminded_once(
    world: World,
    payment: Payment,
) -> None:
    """The reminder after a decline or an abandoned payment has a link that pays."""
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    world.time.advance(minutes=19)  # of the hour in which it can be paid
    world.run_worker()
    assert mail.outbox == []
    wait(world, minutes=1)
    (sent,) = mail.outbox
    number = Order.objects.get().number
    assert f"Your order {number} waits for payment" in sent.subject
    link = next(line for line in sent.body.splitlines() if "/payments/pay/" in line)
    assert link.startswith("http://127.0.0.1:2/payments/pay/")
    answer = Shopper().post(link.removeprefix("http://127.0.0.1:2"), {"method": "paypal"})
    assert world.onward(answer).startswith(world.sandbox.base_url)
    world.sandbox.control.decline(Payment.objects.latest("pk").reference)
    world.come_back(Payment.objects.latest("pk"))
    wait(world)
    assert len(mail.outbox) == 1


@pytest.mark.parametrize(
    ("language", "text"),
    [
        (
            "en",
            "Your goods are kept for you until July 9, 2099 17:05 CEST. You can pay now, in "
            "another way too.",
        ),
        (
            "de",
            "Ihre Waren bleiben bis 9. Juli 2099 17:05 CEST für Sie zurückgelegt. Sie können "
            "jetzt bezahlen, auch auf andere Weise.",
        ),
    ],
)
def test_reminder_shows_deadline_in_shop_timezone(
    world: World,
    payment: Payment,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    text: str,
) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    monkeypatch.setattr("tillgate_oscar.orders.language_of", lambda payment: language)
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    ExpectedOrder.objects.update(unpaid_check_at=datetime(2099, 7, 9, 15, 5, tzinfo=UTC))
    wait(world)
    plain, html = bodies(mail.outbox[0])
    assert text in plain
    assert text in html


def test_goods_are_kept_until_reminder_deadline(
    world: World,
    payment: Payment,
    settings: Any,
) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    until = ExpectedOrder.objects.get().unpaid_check_at
    assert until is not None
    wait(world)
    assert (
        f"until {date_format(localtime(until), 'N j, Y H:i T')}. You" in bodies(mail.outbox[0])[0]
    )
    for moment, status in (
        (until - timedelta(seconds=20), "Pending payment"),
        (until + timedelta(seconds=1), "Cancelled"),
    ):
        world.time.advance(seconds=(moment - world.time.now()).total_seconds())
        world.run_worker()
        assert Order.objects.get().status == status


def test_payment_expired_by_staff_triggers_reminder(
    world: World,
    payment: Payment,
) -> None:
    world.sandbox.control.fault("denied", occasion="query", times=100)
    world.notification(payment)
    world.time.advance(hours=3)
    actions.take_action(
        Review.objects.get().pk,
        "mark-expired",
        staff="ann",
        note="it is not in the back office",
    )
    wait(world)
    assert "waits for payment" in mail.outbox[0].subject


def test_paid_order_gets_no_reminder(
    world: World,
    payment: Payment,
) -> None:
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    second = world.start(Order.objects.get().number, "paypal")
    world.shopper_pays(second)
    world.come_back(second)
    wait(world)
    (sent,) = mail.outbox
    assert "waits for payment" not in sent.subject


def test_open_payment_delays_reminder(
    world: World,
    payment: Payment,
) -> None:
    """The reminder follows if the shopper leaves the other payment too."""
    second = world.start(payment.order.key, "paypal")
    for one, reminders in ((payment, 0), (second, 1)):
        world.sandbox.control.decline(one.reference)
        world.notification(one)
        wait(world, minutes=15)
        wait(world, minutes=15)
        assert len(mail.outbox) == reminders


def test_newer_payment_replaces_reminder(
    world: World,
    payment: Payment,
) -> None:
    """A shopper who leaves the newer payment too is reminded of that one."""
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    world.time.advance(minutes=25)
    second = world.start(payment.order.key, "paypal")
    wait(world, minutes=5)
    assert mail.outbox == []
    world.sandbox.control.decline(second.reference)
    world.come_back(second)
    for _ in range(2):
        wait(world)
        assert subjects() == [f"Your order {payment.order.key} waits for payment"]


def test_dropped_reminder_stays_dropped_after_crash(
    world: World,
    payment: Payment,
) -> None:
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    world.time.advance(minutes=25)
    second = world.start(payment.order.key, "paypal")
    wait(world, minutes=5)
    world.sandbox.control.decline(second.reference)
    world.come_back(second)
    OutboxEvent.objects.filter(name="order-waits").update(done_at=None, due_at=F("created_at"))
    wait(world)
    assert len(mail.outbox) == 1


def test_stale_save_does_not_lose_confirmation(
    world: World,
    payment: Payment,
) -> None:
    """The mail fell due while an old copy of the order was being saved."""
    read = Order.objects.get()
    world.shopper_pays(payment)
    world.notification(payment)
    # what that has written, at the moment before its receiver repairs it
    Order.objects.update(status="Pending payment")
    world.run_worker()
    assert mail.outbox == []
    read.save()
    world.run_worker()
    assert (Order.objects.get().status, len(mail.outbox)) == ("Paid", 1)


def test_held_order_is_confirmed_once_paid(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order held back before its mail goes out is not confirmed at first."""
    monkeypatch.setattr(Order, "pipeline", HOLDING_BACK)
    handler = get_class("order.processing", "EventHandler")()
    for status in ("Paid", "Pending payment", "On hold"):
        handler.handle_order_status_change(Order.objects.get(), status)
    world.run_worker()
    assert mail.outbox == []
    handler.handle_order_status_change(Order.objects.get(), "Pending payment")
    world.shopper_pays(payment)
    world.notification(payment)
    world.run_worker()
    assert (Order.objects.get().status, len(mail.outbox)) == ("Paid", 1)


def test_reminder_follows_after_order_was_held(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reminder is sent when the shopper's next payment fails."""
    monkeypatch.setattr(Order, "pipeline", HOLDING_BACK)
    handler = get_class("order.processing", "EventHandler")()
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    handler.handle_order_status_change(Order.objects.get(), "On hold")
    wait(world)
    assert mail.outbox == []
    handler.handle_order_status_change(Order.objects.get(), "Pending payment")
    second = world.start(payment.order.key, "paypal")
    world.sandbox.control.decline(second.reference)
    world.come_back(second)
    wait(world)
    assert len(mail.outbox) == 1


def test_order_given_up_gets_no_reminder(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.buys(product())
    world.a_day_passes()
    assert Order.objects.get().status == "Cancelled"
    assert mail.outbox == []


@pytest.mark.parametrize(("payable", "after"), [(60, 20), (240, 80), (3, 1)])
def test_reminder_leaves_two_thirds_of_time(
    world: World,
    payment: Payment,
    settings: Any,
    payable: int,
    after: int,
) -> None:
    """The mail says until when, and what happens then."""
    settings.TILLGATE = {**settings.TILLGATE, "ORDER_UNPAID_AFTER_MINUTES": payable}
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    world.time.advance(minutes=after, seconds=-5)
    world.run_worker()
    assert mail.outbox == []
    world.time.advance(seconds=10)
    world.run_worker()
    until = ExpectedOrder.objects.get().unpaid_check_at
    assert until is not None
    left = until - world.time.now()
    assert abs(left - timedelta(minutes=payable - after)) < timedelta(seconds=15)
    for body in bodies(mail.outbox[0]):
        assert f"until {date_format(localtime(until), 'N j, Y H:i T')}" in body
        assert "If it is not paid by then, it is cancelled, and nothing is charged." in body


def test_reminder_waits_for_configured_time(
    world: World,
    payment: Payment,
    settings: Any,
) -> None:
    settings.TILLGATE_OSCAR = {"REMIND_AFTER_MINUTES": 0}
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    world.run_worker()
    assert len(mail.outbox) == 1


def test_mails_name_the_card_that_paid(world: World, payment: Payment) -> None:
    """Not the payment method that offered a choice of cards and wallets."""
    world.shopper_pays(payment)
    world.notification(payment)
    known = {"paid_with": {"method": "card", "brand": "visa", "last4": "4242"}}
    Payment.objects.update(method="checkout", details=known)
    world.run_worker()
    queueing.refund(payment.pk, "5.00")
    Payment.objects.update(details=known)
    world.run_worker()
    assert len(mail.outbox) == 2
    for sent in mail.outbox:
        for body in bodies(sent):
            assert "Visa ending 4242" in body
            assert "another way to pay" not in body


def test_waiting_reminder_delays_no_other_mail(world: World, payment: Payment) -> None:
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    second = world.start(payment.order.key, "paypal")
    world.shopper_pays(second)
    world.come_back(second)
    world.run_worker()
    assert subjects() == [f"Confirmation of order {payment.order.key}"]
    wait(world)
    assert len(mail.outbox) == 1
    assert TimelineEntry.objects.filter(message__contains="not mailed: order-waits").exists()


def test_double_payer_is_told_then_refunded(
    world: World,
    payment: Payment,
) -> None:
    """The shopper is told once of the double payment and then of the refund."""
    second = world.start(payment.order.key, "paypal")
    for one in (payment, second):
        world.shopper_pays(one)
        world.notification(one)
    world.run_worker()
    confirmation, twice = mail.outbox
    number = payment.order.key
    assert (confirmation.subject, twice.subject) == (
        f"Confirmation of order {number}",
        f"Two payments for your order {number}",
    )
    for body in bodies(twice):
        assert all(
            fact in body
            for fact in (
                "USD 12.50",
                "PayPal",
                number,
                f"http://127.0.0.1:2/accounts/order-status/{number}/",
            )
        )
    queueing.refund(second.pk, second.amount)
    world.run_worker()
    assert [sent.subject for sent in mail.outbox[2:]] == [f"Refund for your order {number}"]
    assert all(fact in mail.outbox[2].body for fact in ("USD 12.50", "PayPal", number))


def test_paying_order_marked_paid_is_double(
    world: World,
    payment: Payment,
) -> None:
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        Order.objects.get(),
        "Paid",
    )
    world.shopper_pays(payment)
    world.notification(payment)
    actions.take_action(Review.objects.get().pk, "redeliver", staff="ann")
    world.run_worker()
    assert world.reviews() == ["paid-not-payable"]
    assert subjects()[1:] == [f"Two payments for your order {payment.order.key}"]


def test_paying_cancelled_order_is_not_double(world: World, payment: Payment) -> None:
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        Order.objects.get(),
        "Cancelled",
    )
    world.shopper_pays(payment)
    world.notification(payment)
    world.run_worker()
    assert (world.reviews(), mail.outbox) == (["paid-not-payable"], [])


def test_each_refund_is_mailed_once(
    world: World,
    payment: Payment,
) -> None:
    """This holds wherever the refund was made; a failed refund is never mailed."""
    world.shopper_pays(payment)
    world.notification(payment)
    world.sandbox.control.fault("refused", occasion="refund")
    queueing.refund(payment.pk, Decimal("1.00"))
    queueing.refund(payment.pk, Decimal("2.50"))
    record_external_refund(payment.pk, Decimal("3.00"), staff="ann")
    for _ in range(2):
        world.notification(payment)
        world.run_worker()
    refunds = mail.outbox[1:]
    assert [
        amount in sent.body for sent, amount in zip(refunds, ("USD 2.50", "USD 3.00"), strict=True)
    ] == [True, True]
    assert all("Alipay" in body for sent in refunds for body in bodies(sent))


@pytest.mark.parametrize("event", ["paid", "declined"])
def test_mail_without_recipient_is_logged(
    world: World,
    payment: Payment,
    caplog: pytest.LogCaptureFixture,
    event: str,
) -> None:
    """It leaves a log line and an entry in the timeline."""
    Order.objects.update(guest_email="")
    if event == "paid":
        world.shopper_pays(payment)
    else:
        world.sandbox.control.decline(payment.reference)
    world.notification(payment)
    wait(world)
    name = "order-paid" if event == "paid" else "order-waits"
    assert mail.outbox == []
    assert payment.order.key in next(
        one.getMessage() for one in caplog.records if name in one.getMessage()
    )
    assert (
        TimelineEntry.objects.filter(
            message=f"not mailed: {name}: the order has no mail address",
        ).count()
        == 1
    )


def test_no_subject_is_escaped_for_html(world: World, payment: Payment) -> None:
    """A shop that makes its own numbers may have any letter in them."""
    number = "A&B'7"
    Order.objects.update(number=number)
    registering.open_order("oscar", number)
    second, third = world.start(number, "alipay"), world.start(number, "paypal")
    for one in (second, third):
        world.shopper_pays(one)
        world.notification(one)
    queueing.refund(third.pk, third.amount)
    world.run_worker()
    assert len(mail.outbox) == 3
    assert all(number in sent.subject and number in sent.body for sent in mail.outbox[1:])


def test_staff_can_edit_mails_in_dashboard(
    world: World,
    payment: Payment,
) -> None:
    create_event_types("default")  # after each `migrate`
    kinds = get_model("communication", "CommunicationEventType")
    kinds.objects.filter(code="TILLGATE_ORDER_WAITS").update(
        email_subject_template="Still waiting: {{ order.number }}",
    )
    assert set(kinds.objects.values_list("code", flat=True)) >= {
        "TILLGATE_CANCELLED",
        "TILLGATE_ORDER_WAITS",
        "TILLGATE_PAID_TWICE",
        "TILLGATE_REFUNDED",
    }
    world.sandbox.control.decline(payment.reference)
    world.come_back(payment)
    wait(world)
    assert subjects() == [f"Still waiting: {payment.order.key}"]
    assert Order.objects.get().communication_events.get().event_type.code == "TILLGATE_ORDER_WAITS"
