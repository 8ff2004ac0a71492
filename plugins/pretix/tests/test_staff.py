"""What the staff see in pretix, and who may do what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import translation
from django_scopes import scope
from pretix.base.models import LogEntry, OrderPayment, Team, User
from pretix.base.services.orders import cancel_order

from tests.shopping import at, bought, event_of, logged_in, order_of, payments_of, staff
from tests.test_paying import expired, underpaid
from tillgate import NotSent, hooks, shop
from tillgate.django.accounting.audit import audit
from tillgate.django.models import Payment, PaymentNumber, Refund, Review
from tillgate.testing.world import World
from tillgate_pretix import orders, signals
from tillgate_pretix.accounts import alias_of_event

PAGE = "/control/event/org/conf/tillgate/"


@pytest.fixture
def twice(world: World) -> Any:
    """An order that was paid twice."""
    key = world.order()
    for payment in [world.pay_page(key, method) for method in ("alipay", "paypal")]:
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["second-payment"]
    return order_of(world, key)


def test_order_history_tells_open_reviews(world: World, twice: Any) -> None:
    entry = LogEntry.objects.get(action_type="tillgate_pretix.review", object_id=twice.pk)
    about = f"({entry.parsed_data['reference']})"
    assert entry.display() == f"Payment needs review: Paid twice {about}"
    with translation.override("de"):
        assert entry.display() == f"Zahlung zu prüfen: Doppelt bezahlt {about}"
    assert (
        LogEntry.objects.filter(
            action_type="pretix.event.order.overpaid",
            object_id=twice.pk,
        ).count()
        == 1
    )


def test_order_page_leads_to_review_actions(
    world: World,
    twice: Any,
) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    page = browser.get(f"/control/event/org/conf/orders/{twice.code}/").content.decode()
    assert "Paid twice" in page
    assert PAGE in page
    assert "Recommended: “Refund…”" in page
    shown = browser.get(PAGE).content.decode()
    assert "Paid twice" in shown
    assert (
        len(
            re.findall(
                r'class="btn btn-primary" name="action" value="refund" '
                r'aria-describedby="does-\d+-refund"',
                shown,
            ),
        )
        == 1
    )
    assert 'name="amount" inputmode="decimal" autocomplete="off" value="12.50"' in shown
    assert len(re.findall(r'<span class="help-block" id="does-\d+-\w[\w-]*">\w', shown)) == len(
        re.findall('name="action" value=', shown),
    )
    assert f"/control/event/org/conf/orders/{twice.code}/" in shown


def test_review_mail_leads_to_event_page(world: World, twice: Any) -> None:
    about_order = Review.objects.get()
    alias = alias_of_event(event_of(world), testmode=True)
    about_account = Review.objects.create(
        reason="wrong-credentials",
        account=alias,
        version="1",
        opened_at=shop.now(),
    )
    of_nobody = Review.objects.create(
        reason="wrong-credentials",
        account="pretix-99-0",
        version="1",
        opened_at=shop.now(),
    )
    world.configure(REVIEW_MAIL_TO=["owner@example.org"])
    world.run_worker()
    told = "".join(str(one.body) for one in mail.outbox if one.to == ["owner@example.org"])
    for review in (about_order, about_account):
        assert f"http://testserver{PAGE}#review-{review.pk}\n" in told
    assert f"#review-{of_nobody.pk}" not in told


def test_never_started_order_appears_in_event(
    world: World,
) -> None:
    """It appears in no other event."""
    key = world.order()
    with world.failing_handler("tillgate_order_unpaid", times=99):
        world.a_day_passes()
        world.a_day_passes()
    assert world.reviews() == ["delivery-failing"]
    code, event = order_of(world, key).code, event_of(world)
    with scope(organizer=event.organizer):
        event.organizer.events.create(
            name="Another",
            slug="other",
            currency="USD",
            date_from=event.date_from,
            plugins=event.plugins,
        )
    browser = staff(world, "event.orders:read", "event.orders:write")
    assert PAGE in browser.get(f"/control/event/org/conf/orders/{code}/").content.decode()
    assert f"/control/event/org/conf/orders/{code}/" in browser.get(PAGE).content.decode()
    assert (
        "There is nothing to do."
        in browser.get("/control/event/org/other/tillgate/").content.decode()
    )
    answer = browser.post(
        PAGE,
        {"review": Review.objects.get().pk, "action": "redeliver", "newest_refund": ""},
        follow=True,
    )
    assert "Resolved: " in answer.content.decode()


def test_an_order_that_needs_nobody_shows_nothing(world: World) -> None:
    order, _ = bought(world)
    browser = staff(world, "event.orders:read", "event.orders:write")
    page = browser.get(f"/control/event/org/conf/orders/{order.code}/").content.decode()
    assert "See what can be done" not in page
    assert "There is nothing to do." in browser.get(PAGE).content.decode()


def fields_of(page: str) -> dict[str, str]:
    """Return what the form with the button *Refund* carries."""
    form = page[page.index("<h1>Refund</h1>") :]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)) | {
        "action": "refund",
    }


def test_refund_needs_second_press(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    answer = browser.post(
        PAGE,
        {
            "review": Review.objects.get().pk,
            "action": "refund",
            "amount": "12.5",
            "newest_refund": "",
        },
    )
    asked = answer.content.decode()
    assert "USD 12.50 will be refunded" in asked
    assert world.refunded_amount(Payment.objects.latest("pk")) == 0
    assert world.reviews() == ["second-payment"]


@pytest.mark.parametrize("amount", ["", "0", "12.51", "1.005", "all"])
def test_impossible_refund_is_not_confirmed(
    world: World,
    twice: Any,
    amount: str,
) -> None:
    """Staff are not asked whether they are sure."""
    browser = staff(world, "event.orders:read", "event.orders:write")
    answer = browser.post(
        PAGE,
        {
            "review": Review.objects.get().pk,
            "action": "refund",
            "amount": amount,
            "newest_refund": "",
        },
        follow=True,
    )
    assert "Nothing was done: " in answer.content.decode()
    assert "Refund USD" not in answer.content.decode()


def test_enter_in_a_field_presses_no_button(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    page = browser.get(PAGE).content.decode()
    form = page[page.index('<form class="panel-body"') :]
    assert re.findall(r"<button[^>]*>", form)[0] == '<button type="submit" disabled hidden>'


def test_confirmed_refund_is_made(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    review = Review.objects.get()
    asked = browser.post(
        PAGE,
        {"review": review.pk, "action": "refund", "amount": "12.50", "newest_refund": ""},
    ).content.decode()
    answer = browser.post(PAGE, fields_of(asked), follow=True)
    assert "Resolved: " in answer.content.decode()
    assert world.refunded_amount(Payment.objects.latest("pk")) == Decimal("12.50")
    assert world.reviews() == []
    review.refresh_from_db()
    assert review.resolved_by == "ann@example.org"


def test_repeated_key_refunds_once(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    asked = {
        "review": Review.objects.get().pk,
        "action": "refund",
        "amount": "5.00",
        "newest_refund": "",
    }
    fields = fields_of(browser.post(PAGE, asked).content.decode())
    for _ in range(2):
        assert "refund success" in browser.post(PAGE, fields, follow=True).content.decode()
    assert (
        "from this page a refund of USD 5.00 was asked for before"
        in browser.post(PAGE, fields | {"amount": "6.00"}, follow=True).content.decode()
    )
    assert world.refunded_amount(Payment.objects.latest("pk")) == Decimal("5.00")


def redelivered(world: World) -> str:
    """Press the button that redelivers the event of the only open review; return the text of the
    page after it.
    """
    browser = logged_in(User.objects.get(email="ann@example.org"))
    answer = browser.post(
        PAGE,
        {"review": Review.objects.get().pk, "action": "redeliver", "newest_refund": ""},
        follow=True,
    )
    return str(answer.content.decode())


def test_sold_out_payment_succeeds_after_redelivery(
    world: World,
) -> None:
    """The money pays the order once there are places again."""
    staff(world, "event.orders:read", "event.orders:write")
    order, payment = expired(world, places=0)
    world.gateway_notification(payment)
    world.run_worker()
    assert "Not resolved yet: " in redelivered(world)
    with at(order):
        order.event.quotas.update(size=1)
    assert "Resolved: " in redelivered(world)
    assert (world.shop.is_paid(str(order.pk)), world.shop.times_paid(str(order.pk))) == (True, 1)
    assert payments_of(order) == [("alipay", "confirmed")]
    assert world.reviews() == []


def test_underpaid_review_closes_when_price_drops(
    world: World,
) -> None:
    staff(world, "event.orders:read", "event.orders:write")
    key, _ = underpaid(world)
    assert "Not resolved yet: " in redelivered(world)
    world.shop.edit_total(key, Decimal("12.50"))
    assert world.shop.is_paid(key), "pretix sees to it that nothing is due"
    assert world.reviews() == []
    assert list(audit(shop.now() - timedelta(days=2), shop.now() + timedelta(seconds=1))) == []
    world.a_day_passes()
    assert world.shop.is_paid(key)
    assert payments_of(order_of(world, key))[-1] == ("alipay", "confirmed")


@pytest.mark.parametrize("otherwise", ["0.00", "12.50"])
def test_manually_paid_order_takes_gateway_money(
    world: World,
    otherwise: str,
) -> None:
    """This is not so if the order was paid in another way."""
    staff(world, "event.orders:read", "event.orders:write")
    order, payment = expired(world, places=0)
    world.gateway_notification(payment)
    world.run_worker()
    with at(order):
        manual = order.payments.create(
            provider="manual",
            amount=Decimal(otherwise),
            state=OrderPayment.PAYMENT_STATE_CREATED,
        )
        manual.confirm(force=True)
    if otherwise == "0.00":  # with the money that is booked pretix counts what the order costs
        assert world.reviews() == []
    else:
        assert "Not resolved yet: " in redelivered(world)
    assert world.shop.times_paid(str(order.pk)) == 1


def test_dismissing_review_needs_note(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    review = Review.objects.get()
    refused = browser.post(
        PAGE,
        {"review": review.pk, "action": "dismiss", "note": ""},
        follow=True,
    )
    assert "Nothing was done: a note must say why" in refused.content.decode()
    browser.post(PAGE, {"review": review.pk, "action": "dismiss", "note": "refunded in cash"})
    assert world.reviews() == []


@pytest.mark.parametrize("granted", [(), ("event.orders:read",)])
def test_staff_without_permission_only_read(
    world: World,
    twice: Any,
    granted: tuple[str, ...],
) -> None:
    browser = staff(world, *granted)
    assert browser.get(PAGE).status_code in (403, 404)
    answer = browser.post(
        PAGE,
        {"review": Review.objects.get().pk, "action": "dismiss", "note": "hm"},
    )
    assert answer.status_code in (403, 404)
    assert world.reviews() == ["second-payment"]


def test_a_stranger_is_asked_to_log_in(world: World, twice: Any) -> None:
    answer = Client().post(
        PAGE,
        {"review": Review.objects.get().pk, "action": "dismiss", "note": "hm"},
    )
    assert answer.status_code == 302
    assert answer["Location"].startswith("/control/login")
    assert world.reviews() == ["second-payment"]


def test_what_concerns_another_event_is_not_found(world: World, twice: Any) -> None:
    event = event_of(world)
    with scope(organizer=event.organizer):
        other = event.organizer.events.create(
            name="Other",
            slug="other",
            currency="USD",
            date_from=event.date_from,
            plugins="tillgate_pretix",
        )
    user = User.objects.create_user("bob@example.org", "secret")
    team = Team.objects.create(
        organizer=event.organizer,
        name="Other's",
        limit_event_permissions={"event.orders:write": True},
    )
    team.limit_events.add(other)
    team.members.add(user)
    browser = logged_in(user)
    page = "/control/event/org/other/tillgate/"
    assert "There is nothing to do." in browser.get(page).content.decode()
    assert (
        browser.post(
            page,
            {"review": Review.objects.get().pk, "action": "dismiss", "note": "hm"},
        ).status_code
        == 404
    )
    assert browser.get(PAGE).status_code in (403, 404)
    assert world.reviews() == ["second-payment"]


def test_payment_page_shows_tillgates_knowledge(world: World) -> None:
    order, payment = bought(world)
    browser = staff(world, "event.orders:read")
    page = browser.get(f"/control/event/org/conf/orders/{order.code}/").content.decode()
    assert payment.reference in page
    assert str(payment.transaction_no) in page
    assert payment.notification_key not in page


def asked_and_sure(browser: Client, review: Review) -> str:
    """Press *Refund…* for 12.50 and, where the page asks, once more; return what it says then."""
    answer = browser.post(
        PAGE,
        {"review": review.pk, "action": "refund", "amount": "12.50", "newest_refund": ""},
        follow=True,
    )
    page = str(answer.content.decode())
    return (
        str(browser.post(PAGE, fields_of(page), follow=True).content.decode())
        if "<h1>Refund</h1>" in page
        else page
    )


def test_refunded_bank_transfer_closes_review(world: World) -> None:
    """The gateway payment had come in addition to it."""
    key = world.order()
    payment = world.pay_page(key)
    order = order_of(world, key)
    with at(order):
        bank = order.payments.create(
            provider="banktransfer",
            amount=order.total,
            state=OrderPayment.PAYMENT_STATE_CREATED,
        )
        bank.confirm()
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["paid-not-payable"]
    with at(order):
        order.refunds.create(
            payment=bank,
            provider="banktransfer",
            amount="12.50",
            state="done",
            source="admin",
        )
    assert world.reviews() == []


@contextmanager
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no request for a refund leave."""

    def refuse(_: Any, request: Any) -> None:
        raise NotSent("refund", request.reference, "connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(hooks, "refund", refuse)
        yield


def test_i5_manual_refund_never_doubles_queued_one(
    world: World,
    twice: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The review stays open, with the button that withdraws the queued refund."""
    browser = staff(world, "event.orders:read", "event.orders:write")
    with away(monkeypatch):
        asked_and_sure(browser, Review.objects.get())
    assert [row.status for row in Refund.objects.all()] == ["queued"]
    with at(twice):
        twice.refunds.create(
            payment=twice.payments.first(),
            provider="manual",
            amount="12.50",
            state="done",
            source="admin",
        )
    assert world.reviews() == ["second-payment"]
    waiting = Refund.objects.get()
    browser.post(
        PAGE,
        {"review": Review.objects.get().pk, "action": "withdraw", "withdraws": waiting.pk},
    )
    world.a_day_passes()
    assert (world.reviews(), [row.status for row in Refund.objects.all()]) == ([], ["failed"])


def test_i5_equal_refunds_never_run_together(
    world: World,
    twice: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other payment's refund of the same amount must have ended."""
    with at(twice), away(monkeypatch):
        other = twice.payments.get(provider="tillgate_alipay", state="confirmed")
        row = twice.refunds.create(
            payment=other,
            provider="tillgate_alipay",
            amount="12.50",
            state="created",
            source="admin",
        )
        row.payment_provider.execute_refund(row)
    browser = staff(world, "event.orders:read", "event.orders:write")
    said = asked_and_sure(browser, Review.objects.get())
    assert "refunds of USD 12.50 are under way" in said
    world.a_day_passes()
    assert [(row.status, row.amount) for row in Refund.objects.all()] == [
        ("succeeded", Decimal("12.50")),
    ]
    assert world.reviews() == []


def test_review_closes_after_crash(
    world: World,
    twice: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its money was returned, but the process died before it wrote so."""
    with monkeypatch.context() as patched, at(twice):
        patched.setattr(orders, "conclude_order", lambda _: None)
        twice.refunds.create(
            payment=twice.payments.last(),
            provider="manual",
            amount="12.50",
            state="done",
            source="admin",
        )
    assert world.reviews() == ["second-payment"]
    signals.run_worker(None)
    assert world.reviews() == []


def test_failing_order_does_not_stop_worker(
    world: World,
    twice: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Any) -> None:
        raise ValueError("another plugin")

    monkeypatch.setattr(orders, "conclude", broken)
    signals.run_worker(None)
    assert world.reviews() == ["second-payment"]


def test_full_cancellation_fee_leaves_no_refund(world: World) -> None:
    key, _ = underpaid(world)
    order = order_of(world, key)
    with at(order):
        cancel_order(order.pk, cancellation_fee="12.50", send_mail=False)
    assert world.reviews() == []


def test_i5_unseen_colleagues_refund_blocks_staff(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    asked = {
        "review": Review.objects.get().pk,
        "action": "refund",
        "amount": "5.00",
        "newest_refund": "",
    }
    page = browser.post(PAGE, asked).content.decode()
    shop.refund(str(Payment.objects.latest("pk").pk), "5.00", staff="bob")
    for fields in (fields_of(page), fields_of(browser.post(PAGE, asked).content.decode())):
        assert "Nothing was done" in browser.post(PAGE, fields, follow=True).content.decode()
    assert world.refunded_amount(Payment.objects.latest("pk")) == Decimal("5.00")


# What staff ask and find of a payment -------------------------------------------------------------


def test_order_page_shows_payment_facts(world: World) -> None:
    order, payment = bought(world)
    known = {"paid_with": {"method": "creditcard", "brand": "visa", "last4": "4242"}}
    known |= {"fee": {"amount": "0.66", "currency": "USD"}}
    Payment.objects.filter(pk=payment.pk).update(details=known)
    browser = staff(world, "event.orders:read", "event.orders:write")
    page = browser.get(f"/control/event/org/conf/orders/{order.code}/").content.decode()
    for fact in ("Visa ending 4242", "USD 0.66", payment.reference, payment.transaction_no):
        assert fact in page, fact


def test_staff_ask_the_payment_service(world: World) -> None:
    """A lost notification holds no order up: staff ask, and read how the payment stands."""
    key = world.order()
    payment = world.pay_page(key)
    world.shopper_pays(payment)
    order = order_of(world, key)
    ask = {"payment": str(payment.pk)}
    address = f"{PAGE}poll/{order.code}/"
    browser = staff(world, "event.orders:read", "event.orders:write")
    page = browser.get(f"/control/event/org/conf/orders/{order.code}/").content.decode()
    assert f'action="{address}"' in page
    answer = browser.post(address, ask, follow=True)
    assert "The payment service was asked. The payment is now: paid." in answer.content.decode()
    assert world.shop.is_paid(key)


@pytest.mark.parametrize("permissions", [(), ("event.orders:read",)])
def test_poll_needs_the_permission(world: World, permissions: tuple[str, ...]) -> None:
    key = world.order()
    payment = world.pay_page(key)
    world.shopper_pays(payment)
    code = order_of(world, key).code
    browser = staff(world, *permissions)
    answer = browser.post(f"{PAGE}poll/{code}/", {"payment": str(payment.pk)})
    assert answer.status_code in (403, 404)
    assert not world.shop.is_paid(key)
    if permissions:
        page = browser.get(f"/control/event/org/conf/orders/{code}/").content.decode()
        assert "tillgate/poll/" not in page


def test_poll_of_anothers_payment_is_refused(world: World) -> None:
    mine, theirs = world.order(), world.order()
    world.pay_page(mine)
    payment = world.pay_page(theirs)
    browser = staff(world, "event.orders:read", "event.orders:write")
    for given in (str(payment.pk), "", "1 OR 1=1"):
        answer = browser.post(f"{PAGE}poll/{order_of(world, mine).code}/", {"payment": given})
        assert answer.status_code == 404


@pytest.mark.parametrize("number", ["reference", "transaction_no", "further"])
def test_order_search_finds_payment_numbers(world: World, number: str) -> None:
    order, payment = bought(world)
    PaymentNumber.objects.create(payment=payment, number="ch_123")
    query = "ch_123" if number == "further" else getattr(payment, number)
    browser = staff(world, "event.orders:read")
    for asked, is_found in ((query, True), (f"{query}9", False)):
        page = browser.get("/control/event/org/conf/orders/", {"query": asked}).content.decode()
        assert (f"/orders/{order.code}/" in page) is is_found


def test_navigation_counts_open_reviews(world: World, twice: Any) -> None:
    browser = staff(world, "event.orders:read", "event.orders:write")
    assert "Payments that need review (1)" in browser.get(PAGE).content.decode()


def test_review_notifies_staff_who_ask(world: World) -> None:
    """pretix mails them as of any other event, if they choose so in their account."""
    staff(world, "event.orders:read", "event.orders:write")
    user = User.objects.get(email="ann@example.org")
    user.notification_settings.create(
        action_type="tillgate_pretix.review",
        event=event_of(world),
        method="mail",
        enabled=True,
    )
    key = world.order()
    for payment in [world.pay_page(key, method) for method in ("alipay", "paypal")]:
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    told = [one for one in mail.outbox if "needs review" in one.subject]
    assert [one.to for one in told] == [["ann@example.org"]]
