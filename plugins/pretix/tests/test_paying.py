"""Paying for tickets: through pretix's own checkout, on its own pages, and what its orders look
like afterwards.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core import mail
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils.timezone import now
from django_scopes import scope, scopes_disabled
from pretix.base.models import InvoiceAddress, Order, OrderPayment, OrderRefund, Quota
from pretix.base.payment import PaymentException
from pretix.base.services.locking import LockTimeoutException
from pretix.base.services.orders import (
    OrderChangeManager,
    cancel_order,
    extend_order,
    mark_order_expired,
)

from tests.driver import PretixDriver
from tests.shopping import at, bought, event_of, newest_payment, order_of, path_of, payments_of
from tillgate import shop as tillgate_shop
from tillgate.django.models import Order as Bill
from tillgate.django.models import Payment, Review
from tillgate.hooks import Customer, PaidOutcome
from tillgate.testing.world import World
from tillgate_pretix import orders, signals
from tillgate_pretix.accounts import settings_of


def checked_out(world: World, client: Client) -> Any:
    """Walk through pretix's checkout as far as the order, and return it."""
    event = event_of(world)
    with scope(organizer=event.organizer):
        ticket = event.items.get()
    shop = "/org/conf"
    client.post(f"{shop}/cart/add", {f"item_{ticket.pk}": "1"})
    client.get(f"{shop}/checkout/start")
    client.post(
        f"{shop}/checkout/questions/",
        {"email": "shopper@example.org", "email_repeat": "shopper@example.org"},
    )
    chosen = client.post(f"{shop}/checkout/payment/", {"payment": "tillgate_gcash"})
    assert path_of(chosen["Location"]) == f"{shop}/checkout/confirm/"
    overview = client.get(f"{shop}/checkout/confirm/")
    assert "pay with GCash" in overview.content.decode()
    client.post(f"{shop}/checkout/confirm/", follow=True)
    with scope(organizer=event.organizer):
        return event.orders.select_related("event__organizer").get()


def pay_again(order: Any) -> str:
    """Return the address at which pretix continues a payment."""
    theirs = newest_payment(order)
    return f"/org/conf/order/{order.code}/{order.secret}/pay/{theirs.pk}/complete"


# The whole way ------------------------------------------------------------------------------------


def test_shopper_buys_ticket_in_pretix_checkout(world: World, client: Client) -> None:
    order = checked_out(world, client)
    assert payments_of(order) == [("gcash", "created")]
    answer = client.get(pay_again(order))
    started = client.get(path_of(answer["Location"]))
    payment = Payment.objects.get(payment_url=started["Location"])
    assert (payment.method, payment.amount) == ("gcash", Decimal("12.50"))
    assert payment.reference.startswith(f"{order.code}-CONF-")
    back = path_of(world.shopper_pays(payment) or "")
    home = client.get(path_of(client.get(back)["Location"]))
    assert home["Location"] == f"/org/conf/order/{order.code}/{order.secret}/?paid=yes"
    assert "We successfully received your payment" in client.get(home["Location"]).content.decode()
    assert payments_of(order) == [("gcash", "confirmed")]
    assert order_of(world, str(order.pk)).status == Order.STATUS_PAID
    assert ["payment" in message.subject.lower() for message in mail.outbox].count(True) == 1


def test_booked_money_shows_both_numbers(world: World) -> None:
    order, payment = bought(world)
    theirs = newest_payment(order)
    with at(order):
        provider = theirs.payment_provider
        assert theirs.info_data == {
            "reference": payment.reference,
            "transaction_no": payment.transaction_no,
        }
        assert (
            provider.matching_id(theirs)
            == provider.payment_control_render_short(theirs)
            == payment.transaction_no
        )
        assert provider.api_payment_details(theirs) == theirs.info_data


def test_reload_leads_to_same_payment_page(
    world: World,
    client: Client,
) -> None:
    order = order_of(world, world.order())
    first, second = (
        client.get(path_of(client.get(pay_again(order))["Location"]))["Location"] for _ in range(2)
    )
    assert first == second
    assert Payment.objects.count() == 1


def test_payment_with_changed_price_is_rechosen(
    world: World,
    client: Client,
) -> None:
    """The shopper is asked to choose again when the price has changed since."""
    key = world.order()
    order = order_of(world, key)
    address = client.get(pay_again(order))["Location"]
    world.shop.edit_total(key, Decimal("20.00"))
    answer = client.get(path_of(address))
    assert answer["Location"] == f"/org/conf/order/{order.code}/{order.secret}/"
    assert "Please choose again" in client.get(answer["Location"]).content.decode()
    assert not Payment.objects.exists()


def test_withdrawn_payment_method_cannot_be_used(
    world: World,
    client: Client,
) -> None:
    order = order_of(world, world.order())
    address = client.get(pay_again(order))["Location"]
    settings_of(order.event).set("method_alipay", False)
    answer = client.get(path_of(address))
    assert answer["Location"].startswith("/org/conf/order/")
    assert not Payment.objects.exists()


def test_widget_frame_is_left_before_paying(world: World, rf: Any) -> None:
    order = order_of(world, world.order())
    request = rf.get("/")
    theirs = newest_payment(order)
    with at(order):
        request.session = {}
        start = theirs.payment_provider.execute_payment(request, theirs)
        request.session = {"iframe_session": True}
        out_of_the_frame = theirs.payment_provider.execute_payment(request, theirs)
    assert start.startswith("http://testserver/org/conf/tillgate/start/")
    assert out_of_the_frame.startswith("/redirect/?url=")
    assert out_of_the_frame.endswith("&framebreak=true")
    page = (
        Client().get(out_of_the_frame, headers={"referer": "http://testserver/"}).content.decode()
    )
    assert start in page


@pytest.mark.parametrize("wrong", ["secret", "payment", "provider"])
def test_wrong_link_starts_no_payment(
    world: World,
    client: Client,
    wrong: str,
) -> None:
    """A wrong secret, payment or provider in the link is answered with 404."""
    order, other = order_of(world, world.order()), order_of(world, world.order())
    theirs = newest_payment(order)
    secret, pk = (
        ("a" * 16 if wrong == "secret" else order.secret),
        (newest_payment(other).pk if wrong == "payment" else theirs.pk),
    )
    if wrong == "provider":
        with scopes_disabled():
            OrderPayment.objects.filter(pk=pk).update(provider="banktransfer")
    assert client.get(f"/org/conf/tillgate/start/{order.code}/{secret}/{pk}/").status_code == 404
    assert not Payment.objects.exists()


# Coming back --------------------------------------------------------------------------------------


def test_returning_stranger_sees_only_order_status(world: World) -> None:
    order, payment = bought(world)
    stranger = Client()
    home = stranger.get(reverse("tillgate:return", args=[payment.return_key]))["Location"]
    page = stranger.get(path_of(home))
    text = page.content.decode()
    assert "your payment has arrived" in text
    assert order.code in text
    assert order.secret not in text + home
    assert "shopper@example.org" not in text
    assert page["Referrer-Policy"] == "no-referrer"


def test_paying_browser_returns_to_its_order(world: World, client: Client) -> None:
    order, payment = bought(world)
    home = client.get(reverse("tillgate:return", args=[payment.return_key]))["Location"]
    assert (
        client.get(path_of(home))["Location"]
        == f"/org/conf/order/{order.code}/{order.secret}/?paid=yes"
    )


def test_unpaid_shopper_can_choose_another_method(
    world: World,
    client: Client,
) -> None:
    """The link leads to pretix's other methods, but shows a stranger nothing of the order."""
    order = order_of(world, world.order())
    payment = world.pay_page(str(order.pk))
    page = client.get(reverse("tillgate:return", args=[payment.return_key])).content.decode()
    [link] = re.findall(r'href="([^"]+)">Choose another payment method</a>', page)
    assert order.secret not in page
    own = f"/org/conf/order/{order.code}/{order.secret}/"
    assert client.get(path_of(link))["Location"] == f"{own}pay/change"
    stranger = Client().get(path_of(link))
    assert (stranger.status_code, order.secret in stranger.content.decode()) == (200, False)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert client.get(path_of(link))["Location"] == f"{own}?paid=yes"


def test_declined_shopper_is_not_thanked(world: World, client: Client) -> None:
    order = order_of(world, world.order())
    payment = world.pay_page(str(order.pk))
    home = orders.return_url(str(order.pk))
    assert home
    assert client.get(path_of(home))["Location"].endswith("/?thanks=yes")
    Payment.objects.update(status="failed", status_text="failed")
    home = client.get(reverse("tillgate:return", args=[payment.return_key]))["Location"]
    assert client.get(path_of(home))["Location"] == f"/org/conf/order/{order.code}/{order.secret}/"


def test_unissued_order_address_is_not_found(world: World, client: Client) -> None:
    order, _ = bought(world)
    assert client.get(f"/org/conf/tillgate/order/{order.code}/{'0' * 64}/").status_code == 404
    assert client.get(f"/org/conf/tillgate/order/NONE1/{'0' * 64}/").status_code == 404


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ("", "You have not paid yet"),
        ("start", "waiting for your payment"),
        ("decline", "did not succeed"),
    ],
)
def test_waiting_order_page_shows_payment_status(
    world: World,
    client: Client,
    decision: str,
    message: str,
) -> None:
    key = world.order()
    if decision:
        payment = world.pay_page(key)
        if decision == "decline":
            world.sandbox.control.decline(payment.reference)
            world.gateway_notification(payment)
    order = order_of(world, key)
    assert message in client.get(f"/org/conf/order/{order.code}/{order.secret}/").content.decode()


@pytest.mark.parametrize(
    ("status", "word", "message"),
    [
        ("failed", "failed", "Your payment was declined."),
        ("failed", "", "This payment method is not available now."),
        ("closed", "cancelled", "The payment was cancelled."),
        ("closed", "expired", "The time to pay has passed."),
        ("closed", "closed", "The payment was not made."),
        ("expired", "", "The time to pay has passed."),
    ],
)
def test_order_page_says_why_payment_ended(
    world: World,
    client: Client,
    status: str,
    word: str,
    message: str,
) -> None:
    key = world.order()
    world.pay_page(key)
    Payment.objects.update(status=status, status_text=word)
    assert message in page_of(world, key, client)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("failed", "Ihre Zahlung wurde abgelehnt."),
        ("closed", "Die Zahlung wurde abgebrochen."),
        ("expired", "Die Zeit zum Bezahlen ist abgelaufen."),
    ],
)
def test_german_page_says_why_payment_ended(
    world: World,
    client: Client,
    status: str,
    message: str,
) -> None:
    key = world.order()
    order_of(world, key).event.settings.locales = ["en", "de"]
    world.pay_page(key)
    Payment.objects.update(status=status, status_text="cancelled")
    client.cookies["pretix_language"] = "de"
    assert message in page_of(world, key, client)


# pretix's own confirm -----------------------------------------------------------------------------


def page_of(world: World, key: str, client: Client) -> str:
    """Return the page that an order's shopper sees."""
    order = order_of(world, key)
    return str(client.get(f"/org/conf/order/{order.code}/{order.secret}/").content.decode())


def test_second_press_leads_to_same_page(world: World, client: Client) -> None:
    """pretix makes a payment for each press, and both lead to the same payment page."""
    key = world.order()
    assert world.pay_page(key).pk == world.pay_page(key).pk
    assert "We are waiting for your payment" in page_of(world, key, client)


def test_paid_payment_never_reads_not_charged(
    world: World,
    client: Client,
) -> None:
    """No page says that nothing was charged once the gateway has reported the payment as paid."""
    key = world.order()
    payment = world.pay_page(key)
    world.sandbox.control.decline(payment.reference)
    world.gateway_notification(payment)
    assert "nothing was charged" in page_of(world, key, client)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.pays_late(payment)
    world.gateway_notification(payment)
    assert world.reviews() == ["amount-mismatch"]
    page = page_of(world, key, client)
    assert "nothing was charged" not in page
    assert "Please ask before you pay again" in page


def test_review_page_promises_no_confirmation(
    world: World,
) -> None:
    """A shopper whose money needs review is not told that it will be confirmed."""
    _, payment = expired(world, places=0)
    world.gateway_notification(payment)
    world.run_worker()
    told = world.come_back(payment).content.decode()
    assert "Your payment has arrived, and the shop reviews it" in told
    page = Client().get(path_of(told.split('">Back to the shop')[0].split('href="')[-1]))
    assert "The organizer knows, and will refund it" in page.content.decode()


def underpaid(world: World) -> tuple[str, Payment]:
    """Return the key of an order that had become dearer when USD 12.50 came for it, and the
    payment.
    """
    key = world.order()
    payment = world.pay_page(key)
    world.shop.edit_total(key, Decimal("20.00"))
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["underpaid"]
    return key, payment


def expired(world: World, *, places: int, accepts_late: bool = True) -> tuple[Any, Payment]:
    """Return an order that pretix's own term has ended while its shopper was on the payment page,
    and the payment.
    """
    key = world.order()
    payment = world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        order.event.settings.payment_term_accept_late = accepts_late
        mark_order_expired(order)
        order.event.quotas.update(size=places)
    world.shopper_pays(payment)
    return order, payment


def test_expired_order_with_places_is_paid(world: World) -> None:
    """Late money pays an expired order as long as there are places left."""
    order, payment = expired(world, places=1)
    world.gateway_notification(payment)
    assert world.shop.is_paid(str(order.pk))
    assert world.reviews() == []


@pytest.mark.parametrize(
    ("accepts_late", "expires_by_itself", "minutes"),
    [(False, True, 20), (True, True, 120), (False, False, 120)],
)
def test_payment_page_closes_before_order_expires(
    world: World,
    *,
    accepts_late: bool,
    expires_by_itself: bool,
    minutes: int,
) -> None:
    """This applies where the event takes no late money."""
    event_of(world).settings.payment_term_accept_late = accepts_late
    event_of(world).settings.payment_term_expire_automatically = expires_by_itself
    key = world.order()
    with scopes_disabled():
        Order.objects.filter(pk=key).update(expires=now() + timedelta(minutes=20, seconds=30))
    payment = world.pay_page(key)
    assert payment.page_closes_at - payment.created_at == timedelta(minutes=minutes)


def test_overdue_order_page_says_so(
    world: World,
    client: Client,
) -> None:
    """The page says it as soon as the deadline is over, before pretix expires the order."""
    key = world.order()
    with scopes_disabled():
        Order.objects.filter(pk=key).update(expires=now() - timedelta(minutes=1))
    page = client.get(pay_again(order_of(world, key)), follow=True)
    assert "the time to pay for it is over" in page.content.decode()
    assert not Payment.objects.filter(order__key=key).exists()


def test_late_money_without_places_needs_review(world: World) -> None:
    """The money is booked in pretix all the same."""
    order, payment = expired(world, places=0)
    world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["paid-not-payable"]
    assert order_of(world, str(order.pk)).status == Order.STATUS_EXPIRED
    assert payments_of(order) == [("alipay", "confirmed")]


def test_late_money_is_announced_once(world: World) -> None:
    """The order page shows it, and one mail is sent."""
    order, payment = expired(world, places=1, accepts_late=False)
    mail.outbox.clear()
    world.gateway_notification(payment)
    world.run_worker()
    world.run_worker()
    [sent] = [one for one in mail.outbox if one.to == [order.email]]
    told = (
        "Your payment has arrived, and has not paid this order. The organizer knows, and will "
        "refund it or give you the tickets."
    )
    assert told in sent.body
    assert "$12.50" in sent.body
    page = world.client.get(f"/org/conf/order/{order.code}/{order.secret}/").content.decode()
    assert told in page


@pytest.mark.parametrize("is_extended", [True, False])
def test_late_money_pays_after_deadline_extension(world: World, *, is_extended: bool) -> None:
    order, payment = expired(world, places=1, accepts_late=False)
    world.gateway_notification(payment)
    world.run_worker()
    order = order_of(world, str(order.pk))
    with at(order):
        if is_extended:
            extend_order(order, now() + timedelta(days=5))
        else:  # a process that died before it could deliver
            Order.objects.filter(pk=order.pk).update(
                status=Order.STATUS_PENDING,
                expires=now() + timedelta(days=5),
            )
    if not is_extended:
        orders.conclude_all()
    assert world.shop.is_paid(str(order.pk))
    assert world.reviews() == []
    assert world.shop.paid_amount(str(order.pk)) == Decimal("12.50")
    page = world.client.get(f"/org/conf/order/{order.code}/{order.secret}/").content.decode()
    assert "has not paid this order" not in page


def test_refunded_money_ignores_deadline_extension(world: World) -> None:
    """Refunded money does not pay the order when staff extend the deadline."""
    order, payment = expired(world, places=1, accepts_late=False)
    world.gateway_notification(payment)
    world.run_worker()
    [review] = tillgate_shop.open_reviews("pretix")
    tillgate_shop.resolve_review(review.id, "refund", staff="ann", amount="12.50")
    order = order_of(world, str(order.pk))
    with at(order):
        extend_order(order, now() + timedelta(days=5))
    assert not world.shop.is_paid(str(order.pk))


def test_waiting_page_status_follows_payment(world: World) -> None:
    payment = world.pay_page(key := world.order())
    order = order_of(world, key)
    page = world.client.get(f"/org/conf/order/{order.code}/{order.secret}/").content.decode()
    [address] = re.findall(r'"statusUrl": "([^"]+)"', page)
    assert world.client.get(address).json() == {"settled": False}
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert world.client.get(address).json() == {"settled": True}
    assert world.client.get(address.replace(order.secret, "0" * 16)).status_code == 404


def test_places_lost_while_confirming_keep_money(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the last place goes during confirmation, the money is booked and needs review."""
    order, payment = expired(world, places=0)
    monkeypatch.setattr(orders, "why_not", lambda order: None)
    real, raised = OrderPayment.confirm, []

    def confirm(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            real(self, *arguments, **named)
        except Quota.QuotaExceededException as error:
            raised.append(error)
            raise

    monkeypatch.setattr(OrderPayment, "confirm", confirm)
    world.gateway_notification(payment)
    assert len(raised) == 1
    assert world.reviews() == ["paid-not-payable"]
    assert payments_of(order) == [("alipay", "confirmed")]
    assert not world.shop.is_paid(str(order.pk))


def test_missed_pretix_lock_is_retried(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = world.order()
    payment = world.pay_page(key)
    world.shopper_pays(payment)
    real, busy = OrderPayment.confirm, [LockTimeoutException(), LockTimeoutException()]

    def confirm(self: Any, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        if busy:
            raise busy.pop()

    monkeypatch.setattr(OrderPayment, "confirm", confirm)
    assert [answer.content for answer in world.gateway_notification(payment)] == [b"success"]
    assert payments_of(order_of(world, key)) == [("alipay", "created")]
    world.a_day_passes()
    assert busy == []
    assert (world.shop.is_paid(key), world.shop.times_paid(key)) == (True, 1)


@pytest.mark.parametrize("otherwise", ["cancelled", "paid"])
def test_swallowed_confirmation_opens_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    otherwise: str,
) -> None:
    key = world.order()
    payment = world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        if otherwise == "cancelled":
            cancel_order(order.pk, send_mail=False)
        else:
            order.payments.create(
                provider="manual",
                amount=order.total,
                state=OrderPayment.PAYMENT_STATE_CREATED,
            ).confirm()
            Order.objects.filter(pk=order.pk).update(
                total=Decimal("30.00"),
                status=Order.STATUS_PENDING,
            )
            monkeypatch.setattr(Order, "pending_sum", Decimal("12.50"))
    monkeypatch.setattr(orders, "why_not", lambda order: None)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert world.reviews() == ["paid-not-payable"]
    assert not world.shop.is_paid(key)


def test_handler_reports_missing_order(world: World) -> None:
    from tillgate.django.orders.values import payment_value

    payment = world.pay_page(world.order())
    gone = payment_value(payment)
    object.__setattr__(gone.order, "key", "987654")
    assert orders.paid(gone) is PaidOutcome.NOT_PAYABLE
    assert orders.return_url("987654") is None
    assert [orders.describe(key) for key in ("987654", "nonsense", "1 OR 1=1")] == [
        None,
        None,
        None,
    ]


def test_gateway_gets_order_email_if_known(world: World) -> None:
    order = order_of(world, key := world.order())
    described = orders.describe(key)
    assert described is not None
    assert described.email == order.email == "shopper@example.org"
    order.email = None
    order.save()
    described = orders.describe(key)
    assert described is not None
    assert described.email is None


def test_staff_read_customer_and_open_order(world: World) -> None:
    order = order_of(world, key := world.order())
    described = orders.describe(key)
    assert described is not None
    assert described.customer == Customer(email="shopper@example.org")
    assert urlsplit(described.staff_url).path == f"/control/event/{_path(order)}/"
    InvoiceAddress.objects.create(order=order, name_parts={"_scheme": "full", "full_name": "Ann"})
    described = orders.describe(key)
    assert described is not None
    assert described.customer == Customer(name="Ann", email="shopper@example.org")


def test_staff_search_orders_by_shopper(world: World) -> None:
    order = order_of(world, key := world.order())
    for text, found in (
        (order.code, [key]),
        (f"{order.code}-{order.event.slug}".lower(), [key]),
        ("SHOPPER@example.org", [key]),
        ("' OR 1=1 --", []),
    ):
        assert orders.search(text, 10) == found, text


def _path(order: Any) -> str:
    return f"{order.event.organizer.slug}/{order.event.slug}/orders/{order.code}"


# What pretix writes over an order that was paid ---------------------------------------------------


def extended(order: Any) -> None:
    """Let staff give the shopper five days more."""
    extend_order(order, now() + timedelta(days=5))


@pytest.mark.parametrize(
    ("was", "write"),
    [(Order.STATUS_PENDING, mark_order_expired), (Order.STATUS_EXPIRED, extended)],
)
def test_i2_stale_pretix_copy_keeps_order_paid(
    world: World,
    was: str,
    write: Any,
) -> None:
    """pretix may mark a paid order unpaid from an old copy; the order stays paid."""
    key = world.order()
    payment = world.pay_page(key)
    event_of(world).settings.payment_term_accept_late = True
    with scopes_disabled():
        Order.objects.filter(pk=key).update(status=was)
    stale = order_of(world, key)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert world.shop.is_paid(key)
    mails = len(mail.outbox)
    with at(stale):
        write(stale)
    assert world.shop.is_paid(key)
    assert len(mail.outbox) == mails
    assert world.reviews() == []


def test_i2_crash_after_unpaid_mark_is_repaired(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a process dies after marking a paid order unpaid, the next one restores it."""
    order, _ = bought(world)
    unpaid_bill = world.order()
    with monkeypatch.context() as patched, at(order):
        patched.setattr(orders, "stays_paid", lambda order_id: None)
        mark_order_expired(order)
    assert not world.shop.is_paid(str(order.pk))
    signals.run_worker(None)
    assert world.shop.is_paid(str(order.pk))
    assert not world.shop.is_paid(unpaid_bill)


def test_order_marked_unpaid_by_staff_expires(world: World) -> None:
    order, _ = bought(world)
    with at(order):
        order.status = Order.STATUS_PENDING
        order.save(update_fields=["status"])
        order.log_action("pretix.event.order.unpaid")
        mark_order_expired(order)
    assert order_of(world, str(order.pk)).status == Order.STATUS_EXPIRED


def test_order_owing_again_expires_normally(world: World) -> None:
    order, _ = bought(world)
    world.shop.edit_total(str(order.pk), Decimal("20.00"))
    with at(order):
        mark_order_expired(order_of(world, str(order.pk)))
    assert order_of(world, str(order.pk)).status == Order.STATUS_EXPIRED


def test_i4_reported_payment_starts_no_second(
    world: World,
) -> None:
    """A shopper the gateway reports as paid is not sent to another payment page."""
    key = world.order()
    payment = world.pay_page(key)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert world.reviews() == ["amount-mismatch"]
    world.choose(key, "paypal")
    assert Payment.objects.count() == 1


def test_late_money_never_forces_order_paid(world: World) -> None:
    order, _ = bought(world)
    key = str(order.pk)
    world.shop.edit_total(key, Decimal("20.00"))
    world.choose(key, "dana")
    rest = Payment.objects.select_related("order").get(method="dana")
    with at(order):
        mark_order_expired(order_of(world, key))
    event_of(world).settings.payment_term_accept_late = False
    world.shopper_pays(rest)
    world.gateway_notification(rest)
    assert world.reviews() == ["paid-not-payable"]
    signals.run_worker(None)
    orders.stays_paid(order.pk)
    assert order_of(world, key).status == Order.STATUS_EXPIRED


def test_i2_order_with_two_payments_stays_paid(world: World) -> None:
    """This holds even when pretix marks the order unpaid."""
    key, _ = underpaid(world)
    rest = world.pay_page(key)
    world.shopper_pays(rest)
    world.gateway_notification(rest)
    order = order_of(world, key)
    with at(order):
        mark_order_expired(order)
    assert world.shop.is_paid(key)


def test_taken_seat_needs_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A paid order whose seat was taken needs review, and all others are still checked."""
    taken, other = bought(world)[0], bought(world)[0]
    mark_order_paid = OrderPayment._mark_order_paid

    def sold_out(theirs: Any, *arguments: Any, **named: Any) -> None:
        if theirs.order_id == taken.pk:
            raise Quota.QuotaExceededException("The seat A-1 is taken.")
        mark_order_paid(theirs, *arguments, **named)

    monkeypatch.setattr(OrderPayment, "_mark_order_paid", sold_out)
    with monkeypatch.context() as patched:
        patched.setattr(orders, "stays_paid", lambda order_id: None)
        for order in (taken, other):
            with at(order):
                mark_order_expired(order)
    for _ in range(2):
        signals.run_worker(None)
        assert world.reviews() == ["paid-not-payable"]
    assert "The seat A-1 is taken." in Review.objects.get().message
    assert [world.shop.is_paid(str(order.pk)) for order in (taken, other)] == [False, True]


def test_disabled_plugin_shows_tillgate_return_page(
    world: World,
) -> None:
    """A shopper who returns to an event without the plugin sees Tillgate's own page."""
    order, payment = bought(world)
    event = event_of(world)
    event.disable_plugin("tillgate_pretix")
    event.save()
    assert orders.return_url(str(order.pk)) is None
    assert (
        world.client.get(
            reverse("tillgate:return", args=[payment.return_key]),
            follow=True,
        ).status_code
        == 200
    )


# One order, several payments ----------------------------------------------------------------------


def test_second_payment_is_booked_and_refunded(world: World) -> None:
    """pretix gives the money back."""
    key = world.order()
    first, second = world.pay_page(key), world.pay_page(key, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    order = order_of(world, key)
    assert payments_of(order) == [("alipay", "confirmed"), ("paypal", "confirmed")]
    with at(order):
        assert order.pending_sum == Decimal("-12.50")
        refund = order.refunds.create(
            payment=order.payments.last(),
            provider="tillgate_paypal",
            amount="12.50",
            state="created",
            source="admin",
        )
        refund.payment_provider.execute_refund(refund)
        assert (refund.state, order.pending_sum) == ("done", 0)
    assert world.refunded_amount(second) == Decimal("12.50")
    assert world.reviews() == []


@pytest.mark.parametrize("address", ["ann@shopper.example", ""])
def test_second_payment_mails_shopper_once(
    world: World,
    caplog: pytest.LogCaptureFixture,
    address: str,
) -> None:
    """If the order has no address, the log says so."""
    key = world.order()
    order = order_of(world, key)
    with scopes_disabled():
        Order.objects.filter(pk=order.pk).update(email=address, locale="de")
    first, second = world.pay_page(key), world.pay_page(key, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.a_day_passes()
    told = [str(one.body) for one in mail.outbox if "Zwei Zahlungen" in str(one.subject)]
    assert len(told) == bool(address)
    assert all(second.reference in body and "PayPal" in body for body in told)
    assert (f"order {order.code} has no e-mail address" in caplog.text) is (not address)


def told_of_two_payments() -> list[str]:
    """Return the mails about a second payment."""
    return [str(one.body) for one in mail.outbox if "Two payments" in str(one.subject)]


def paid_after_a_bank_transfer(world: World) -> None:
    """Let a bank transfer pay an order while its shopper is on the payment page, and pays there
    too.
    """
    payment = world.pay_page(world.order())
    order = order_of(world, payment.order.key)
    with at(order):
        order.payments.create(
            provider="banktransfer",
            amount=order.total,
            state=OrderPayment.PAYMENT_STATE_CREATED,
        ).confirm()
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.a_day_passes()
    assert world.reviews() == ["paid-not-payable"]


def test_payment_after_bank_transfer_is_mailed(
    world: World,
) -> None:
    """The mail calls it a second payment and names its amount and the refund."""
    paid_after_a_bank_transfer(world)
    (body,) = told_of_two_payments()
    assert "A second payment of $12.50 with Alipay has arrived" in body
    assert "one of the two payments is refunded to you" in body


def test_repeated_review_sends_no_second_mail(
    world: World,
) -> None:
    """pretix may be told of the review of a second payment again."""
    from tillgate.django.orders.values import review_value

    paid_after_a_bank_transfer(world)
    with transaction.atomic():
        orders.review_opened(review_value(Review.objects.get()))
    assert len(told_of_two_payments()) == 1


@pytest.mark.parametrize("otherwise", ["cancelled", "sold out", "cheaper"])
def test_only_payment_is_not_called_second(
    world: World,
    otherwise: str,
) -> None:
    key = world.order()
    payment = world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        if otherwise == "cancelled":
            cancel_order(order.pk, send_mail=False)
        elif otherwise == "sold out":
            mark_order_expired(order)
            order.event.quotas.update(size=0)
        else:
            change = OrderChangeManager(order)
            change.change_price(order.positions.get(), Decimal("0.00"))
            change.commit()
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.a_day_passes()
    assert world.reviews() == ["paid-not-payable"]
    assert told_of_two_payments() == []


def test_i5_refunding_other_payment_closes_review(world: World) -> None:
    key = world.order()
    for payment in (world.pay_page(key), world.pay_page(key, "paypal")):
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["second-payment"]
    order = order_of(world, key)
    with at(order):
        other = order.payments.get(provider="tillgate_alipay", state="confirmed")
        for amount, left in (("5.00", ["second-payment"]), ("7.50", [])):
            refund = order.refunds.create(
                payment=other,
                provider="tillgate_alipay",
                amount=amount,
                state="created",
                source="admin",
            )
            refund.payment_provider.execute_refund(refund)
            assert world.reviews() == left
        assert order.pending_sum == 0
    assert Review.objects.get().resolution == "pretix counts as much as the order costs"


def test_i5_pending_refund_keeps_review_open(world: World) -> None:
    key = world.order()
    for payment in (world.pay_page(key), world.pay_page(key, "paypal")):
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    order = order_of(world, key)
    with at(order):
        other = order.payments.get(provider="tillgate_alipay", state="confirmed")
        made = [
            order.refunds.create(
                payment=other,
                provider="tillgate_alipay",
                amount=amount,
                state="created",
                source="admin",
            )
            for amount in ("5.00", "7.50")
        ]
        world.configure({"TOKEN": ""})
        made[0].payment_provider.execute_refund(made[0])
        world.configure()
        made[1].payment_provider.execute_refund(made[1])
        assert (order.pending_sum, made[1].state) == (0, "done")
        assert "second-payment" in world.reviews()
        made[0].state = OrderRefund.REFUND_STATE_CANCELED
        made[0].save()
    assert "second-payment" in world.reviews()
    with at(order):
        rest = order.refunds.create(
            payment=other,
            provider="tillgate_alipay",
            amount="5.00",
            state="created",
            source="admin",
        )
        rest.payment_provider.execute_refund(rest)
    assert "second-payment" not in world.reviews()


@pytest.mark.parametrize("state", ["done", "created"])
def test_i5_refund_elsewhere_closes_review(
    world: World,
    state: str,
) -> None:
    """The money was refunded in another way."""
    key = world.order()
    for payment in (world.pay_page(key), world.pay_page(key, "paypal")):
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["second-payment"]
    order = order_of(world, key)
    with at(order):
        order.refunds.create(
            payment=order.payments.last(),
            provider="manual",
            amount="12.50",
            state=state,
            source="admin",
        )
        assert order.pending_sum == 0
    assert world.reviews() == []


def test_i5_paying_rest_elsewhere_closes_review(world: World) -> None:
    """The review of an underpaid order closes when the rest is paid by another method."""
    key, _ = underpaid(world)
    assert world.reviews() == ["underpaid"]
    order = order_of(world, key)
    with at(order):
        order.payments.create(
            provider="banktransfer",
            amount=order.pending_sum,
            state=OrderPayment.PAYMENT_STATE_CREATED,
        ).confirm()
    assert world.shop.is_paid(key)
    assert world.reviews() == []


def test_i5_raised_price_closes_overpaid_review(world: World) -> None:
    key = world.order()
    payment = world.pay_page(key)
    world.shop.edit_total(key, Decimal("5.00"))
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["overpaid"]
    order = order_of(world, key)
    with at(order):
        change = OrderChangeManager(order)
        change.change_price(order.positions.get(), Decimal("12.50"))
        change.commit()
    assert world.reviews() == []


def test_i5_overpayment_is_refunded_once(world: World) -> None:
    """It does not matter which side makes the refund."""
    key = world.order()
    payment = world.pay_page(key)
    world.shop.edit_total(key, Decimal("5.00"))
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["overpaid"]
    order = order_of(world, key)
    with at(order):
        refund = order.refunds.create(
            payment=order.payments.last(),
            provider="tillgate_alipay",
            amount="7.50",
            state="created",
            source="admin",
        )
        refund.payment_provider.execute_refund(refund)
    assert world.reviews() == []


def test_underpaid_order_lets_rest_be_paid(world: World) -> None:
    """Money that no longer covers the price is booked."""
    key, _ = underpaid(world)
    rest = world.pay_page(key)
    assert rest.amount == Decimal("7.50")
    world.shopper_pays(rest)
    world.gateway_notification(rest)
    assert (world.shop.is_paid(key), world.shop.times_paid(key)) == (True, 1)
    assert world.reviews() == [], "to give USD 12.50 back now would leave the order unpaid"


def test_dearer_paid_order_gets_another_bill(
    world: World,
    client: Client,
) -> None:
    order, _ = bought(world)
    world.shop.edit_total(str(order.pk), Decimal("20.00"))
    assert not world.shop.is_paid(str(order.pk))
    world.choose(str(order.pk), "dana")
    rest = Payment.objects.select_related("order").get(method="dana")
    assert (rest.amount, rest.order.key) == (Decimal("7.50"), f"{order.pk}/1")
    world.shopper_pays(rest)
    world.gateway_notification(rest)
    assert world.shop.is_paid(str(order.pk))
    assert payments_of(order)[-1] == ("dana", "confirmed")
    assert world.reviews() == []


def test_first_bill_is_not_paid_again(world: World) -> None:
    """Only the second bill can be paid once it is due."""
    key = world.order()
    first, second = world.pay_page(key), world.pay_page(key, "paypal")
    world.shopper_pays(first)
    world.gateway_notification(first)
    world.shop.edit_total(key, Decimal("25.00"))
    world.shopper_pays(second)
    world.gateway_notification(second)
    assert world.reviews() == ["second-payment"]
    described = orders.describe(key)
    assert described is not None
    assert described.not_payable_detail == "the order is paid"


def test_gift_card_amount_is_not_charged(world: World) -> None:
    key = world.order()
    order = order_of(world, key)
    with at(order):
        order.payments.create(
            provider="giftcard",
            amount=Decimal("10.00"),
            state=OrderPayment.PAYMENT_STATE_CREATED,
        ).confirm()
    payment = world.pay_page(key)
    assert payment.amount == Decimal("2.50")
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert world.shop.is_paid(key)


def test_bills_of_same_number_stay_distinct(world: World) -> None:
    order = order_of(world, world.order())
    Bill.objects.all().delete()
    Bill.objects.create(plugin="pretix", key=f"{order.pk}0/1", created_at=order.datetime)
    assert orders.bill_of(order) == str(order.pk)


# Nobody paid --------------------------------------------------------------------------------------


def test_unpaid_order_keeps_places_until_deadline(
    world: World,
) -> None:
    """The event can choose to release unpaid orders earlier."""
    settings_of(event_of(world)).set("expire_unpaid", False)
    key = world.order()
    world.pay_page(key)
    world.a_day_passes()
    order = order_of(world, key)
    assert order.status == Order.STATUS_PENDING
    assert payments_of(order)[-1] == ("alipay", "failed")
    assert any("failed" in message.subject for message in mail.outbox)
    assert world.pay_page(key, "paypal").order.key == key


def test_planned_bank_transfer_keeps_places(world: World) -> None:
    key = world.order()
    world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        order.payments.create(
            provider="banktransfer",
            amount=order.total,
            state=OrderPayment.PAYMENT_STATE_CREATED,
        )
    world.a_day_passes()
    assert order_of(world, key).status == Order.STATUS_PENDING
    assert payments_of(order)[-1] == ("banktransfer", "created")


@pytest.mark.parametrize("detail", ["valid if pending", "a cancellation fee"])
def test_tillgate_expires_no_order_pretix_keeps(world: World, detail: str) -> None:
    key = world.order()
    world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        if detail == "valid if pending":
            order.valid_if_pending = True
            order.save(update_fields=["valid_if_pending"])
        else:
            order.fees.create(
                fee_type="cancellation",
                value=Decimal("5.00"),
                tax_value=Decimal("0.00"),
            )
    world.a_day_passes()
    assert order_of(world, key).status == Order.STATUS_PENDING


@pytest.mark.parametrize("state", ["confirmed", "refunded"])
def test_i9_paid_payment_survives_staff_cancellation(
    world: World,
    state: str,
) -> None:
    """The money arrives while staff cancel the payment."""
    key = world.order()
    payment = world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        stale = newest_payment(order)
        world.shopper_pays(payment)
        world.gateway_notification(payment)
        order.payments.filter(pk=stale.pk).update(state=state)
        assert stale.state == "created"
        with pytest.raises(PaymentException, match="received in the meantime"):
            stale.payment_provider.cancel_payment(stale)
        assert newest_payment(order).state == state


def test_unpaid_payment_can_be_cancelled(world: World) -> None:
    key = world.order()
    world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        theirs = newest_payment(order)
        theirs.payment_provider.cancel_payment(theirs)
        assert newest_payment(order).state == "canceled"


def test_unvisited_order_is_released_too(world: World) -> None:
    """The shopper never opened the payment page."""
    key = world.order()
    world.a_day_passes()
    assert world.shop.is_released(key)
    assert payments_of(order_of(world, key)) == [("alipay", "failed")]
    assert mail.outbox == []


def test_bank_transfer_order_is_left_alone(world: World) -> None:
    driver = world.shop
    assert isinstance(driver, PretixDriver)
    key = str(driver.place("banktransfer", Decimal("12.50")).pk)
    world.a_day_passes()
    assert not Bill.objects.exists()
    assert driver.is_payable(key)


def test_unapproved_order_cannot_be_paid(world: World) -> None:
    key = world.order()
    with scopes_disabled():
        Order.objects.filter(pk=key).update(require_approval=True)
    described = orders.describe(key)
    assert described is not None
    assert "not yet approved" in (described.not_payable_detail or "")


def test_lowered_price_leaves_order_to_pretix(world: World) -> None:
    """The price was lowered to the amount that has been paid."""
    key = world.order("20.00")
    payment = world.pay_page(key)
    world.shop.edit_total(key, Decimal("30.00"))
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.run_worker()
    order = order_of(world, key)
    with at(order):
        change = OrderChangeManager(order, notify=False)
        change.change_price(order.positions.get(), Decimal("20.00"))
        change.commit()
    assert world.shop.is_paid(key)
