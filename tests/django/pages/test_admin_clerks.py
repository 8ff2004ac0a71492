"""The admin as a clerk's desk: the texts and buttons of a payment's page and a review's card."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.django.conftest import World
from tests.django.pages.test_admin import page_of, said, staff
from tests.shop.test_summaries import DETAILS, described, known
from tillgate import hooks
from tillgate.django.models import Review, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import open_review
from tillgate.hooks import Customer
from tillgate.lifecycle import ReviewReason


@pytest.fixture
def boss() -> Client:
    """The browser of a superuser."""
    return staff(is_superuser=True)


def text(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def test_payment_page_says_everything(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = known(world.paid_payment("12.50"))
    described(
        monkeypatch,
        customer=Customer(name="Ann Lee", email="ann@shop.example"),
        staff_url="/orders/7/",
    )
    page = text(boss, page_of(payment))
    for shown in (
        "Ann Lee, ann@shop.example",
        '<a href="/orders/7/">Open order S7</a>',
        "Visa ending 4242",
        "USD 0.61",
        "The card was reported lost (lost_card)",
        "product not received",
        'href="https://gateway.example/payments/1"',
        "Paid USD 12.50 with Visa ending 4242",
        ">ch_7</code>",
    ):
        assert shown in page, shown


def test_technicians_steps_are_folded(world: World, boss: Client) -> None:
    payment = world.paid_payment("12.50")
    plain, folded = text(boss, page_of(payment)).split('<details class="tillgate-technical">')
    assert "the shop was told" not in plain
    assert "the shop was told" in folded


def test_disputes_card_leads_to_gateway(world: World, boss: Client) -> None:
    payment = known(world.paid_payment("12.50"))
    open_review(ReviewReason.CHANGED_AFTER_PAID, {"status": "reversed"}, "test", payment)
    page = text(boss, "/admin/tillgate/review/")
    assert "Charge-back or refund at the gateway" in page
    assert 'href="https://gateway.example/disputes/1"' in page
    assert "Recommended: “Poll now”" not in page


def test_pressed_action_is_not_recommended(world: World, boss: Client) -> None:
    payment = world.start(world.order("12.50"))
    world.sandbox.control.fault("wrong_currency", occasion="query", times=100)
    world.notification(payment)
    review = Review.objects.get()
    assert "Recommended: “Poll now”" in text(boss, page_of(review))
    world.time.advance(minutes=5)
    response = boss.post(page_of(review, "action"), {"action": "poll"}, follow=True)
    page = response.content.decode()
    assert "Recommended: “Poll now”" not in page
    assert "The gateway was asked just now, and nothing has changed." in page


def test_note_stands_in_clerks_timeline(world: World, boss: Client) -> None:
    payment = world.paid_payment("12.50")
    given = {"note": "<script>alert(1)</script> rang"}
    response = boss.post(page_of(payment, "note"), given, follow=True)
    assert said(response) == ["The note was added."]
    assert "anna: &lt;script&gt;alert(1)&lt;/script&gt; rang" in response.content.decode()


@pytest.mark.parametrize("given", ["", "x" * 10_000])
def test_unusable_note_is_refused_with_reason(world: World, boss: Client, given: str) -> None:
    payment = world.paid_payment("12.50")
    (message,) = said(boss.post(page_of(payment, "note"), {"note": given}, follow=True))
    assert message.startswith("note:") or "note" in message
    assert not TimelineEntry.objects.filter(event="payment.noted").exists()


def test_review_is_taken_and_given_back(world: World, boss: Client) -> None:
    open_review(ReviewReason.DISPUTED, {}, "test", world.paid_payment())
    review = Review.objects.get()
    assert "Take this review" in text(boss, page_of(review))
    boss.post(page_of(review, "take"), {"take": "1", "taken_by": ""})
    assert "You have this review." in text(boss, page_of(review))
    bob = staff("view_review", "resolve_review", name="bob")
    assert "anna has this review." in text(bob, page_of(review))
    (refused,) = said(
        bob.post(page_of(review, "take"), {"take": "1", "taken_by": ""}, follow=True),
    )
    assert "anna has it" in refused
    boss.post(page_of(review, "take"), {"take": "", "taken_by": "anna"})
    assert Review.objects.get().taken_by == ""


def test_number_is_entered_on_card(world: World, boss: Client) -> None:
    payment = world.start(world.order("12.50"))
    type(payment).objects.update(transaction_no=None)
    payment.refresh_from_db()
    facts = {"case": "error", "error": "no number"}
    open_review(ReviewReason.PAYMENT_UNANSWERED, facts, "test", payment)
    review = Review.objects.get()
    assert "The number in the gateway's own pages" in text(boss, page_of(review))
    given = {"action": "enter-number", "note": "a b"}
    (refused,) = said(boss.post(page_of(review, "action"), given, follow=True))
    assert "is no number" in refused


@pytest.mark.parametrize(("action", "model"), [("note", "payment"), ("take", "review")])
def test_viewer_may_neither_note_nor_take(world: World, action: str, model: str) -> None:
    payment = world.paid_payment()
    open_review(ReviewReason.DISPUTED, {}, "test", payment)
    viewer = staff("view_payment", "view_review", "view_order")
    row = payment if model == "payment" else Review.objects.get()
    assert viewer.post(page_of(row, action), {"note": "x", "take": "1"}).status_code == 403
    page = text(viewer, page_of(row))
    assert "Note for colleagues" not in page
    assert "Take this review" not in page


def test_reviewer_without_payments_reads_no_customer(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = known(world.paid_payment("12.50"), DETAILS)
    described(monkeypatch, customer=Customer(name="Ann Lee"))
    open_review(ReviewReason.DISPUTED, {}, "test", payment)
    page = text(staff("view_review"), page_of(Review.objects.get()))
    assert "Ann Lee" not in page
    assert "gateway.example" not in page


def test_get_of_action_changes_nothing(world: World, boss: Client) -> None:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "1.00")
    response = boss.get(page_of(payment, "note"), follow=True)
    assert said(response) == ["Nothing was done. Please press the button again."]


def test_list_shows_customer_and_way_paid(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shop is asked once for all rows."""
    payments = [known(world.paid_payment("12.50")) for _ in range(3)]
    asked: list[list[str]] = []

    def call(_plugin: str, name: str, *, order_keys: list[str]) -> dict[str, Customer]:
        assert name == "tillgate_customers"
        asked.append(order_keys)
        return {order_keys[0]: Customer(name="<b>Ann</b>"), order_keys[1]: Customer(email="e@x.y")}

    monkeypatch.setattr(hooks, "call_owner", call)
    page = text(boss, "/admin/tillgate/payment/")
    assert "&lt;b&gt;Ann&lt;/b&gt;" in page
    assert "e@x.y" in page
    assert page.count("Visa ending 4242") == len(payments)
    assert len(asked) == 1
