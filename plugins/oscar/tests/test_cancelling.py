"""A paid order that is cancelled: staff decide about its money and its items."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import connections
from django.test import Client
from django.utils import timezone
from oscar.core.loading import get_class, get_model

from tests.shopper import fields_of
from tests.test_dashboard import MAY, SEES, messages_of, staff, text_of, url_of
from tests.test_refunds import Bought
from tillgate import shop
from tillgate.django.accounting.audit import audit
from tillgate.django.models import Review
from tillgate.testing.world import World, together

Order = get_model("order", "Order")


@pytest.fixture
def bought(world: World, product: Callable[..., Any]) -> Bought:
    return Bought(world, product)


@pytest.fixture
def ann(transactional_db: None) -> Client:
    """The browser of a clerk with all permissions about orders."""
    return staff("ann", *MAY, "tillgate.resolve_review")


def cancels(client: Client, order: Any, page: Any = None, **changes: str) -> Any:
    """Press "Cancel the order" in the dialog; return the page that follows."""
    dialog = page or client.get(f"{url_of(order)}?tillgate=cancel")
    fields = {"money": "refund", "reason": "", **fields_of(dialog, "tillgate_cancel_form")}
    given = {name: value for name, value in (fields | changes).items() if value != "-"}
    return client.post(url_of(order), given, follow=True)


def stock_of(line: Any) -> tuple[int, int]:
    record = line.stockrecord
    record.refresh_from_db()
    return record.num_in_stock, record.num_allocated or 0


def reasons() -> list[str]:
    return [one.reason for one in Review.objects.filter(resolved_at=None).order_by("pk")]


def test_cancelling_a_paid_order_asks_first(bought: Bought, ann: Client) -> None:
    """The status form leads to the question, and nothing has changed before."""
    fields = {"order_action": "change_order_status", "new_status": "Cancelled"}
    page = ann.post(url_of(bought.order), fields)
    assert "This order is paid: USD 32.00 is held." in text_of(page)
    assert bought.order.status == "Paid"
    assert "?tillgate=cancel" in text_of(ann.get(url_of(bought.order)))


def test_cancelled_order_is_refunded_and_restocked(bought: Bought, ann: Client) -> None:
    """One press: the money, the items and the shopper's mails."""
    assert stock_of(bought.tea) == (9, 3)
    page = cancels(ann, bought.order, reason="out of tea")
    assert "Order " in messages_of(page)[0]
    assert bought.order.status == "Cancelled"
    assert bought.refunded_amount() == Decimal("32.00")
    assert (stock_of(bought.tea), stock_of(bought.pot)) == ((9, 0), (5, 0))
    assert reasons() == []
    bought.world.a_day_passes()
    subjects = [one.subject for one in mail.outbox if "cancelled" in one.subject]
    assert subjects == [f"Order {bought.order.number}: This order was cancelled."]
    assert any("Refund for your order" in one.subject for one in mail.outbox)


def test_i12_atomic_requests_refund_after_commit(
    bought: Bought,
    ann: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    cancels(ann, bought.order)
    assert (bought.order.status, bought.refunded_amount()) == ("Cancelled", Decimal("32.00"))


def test_partial_refund_keeps_the_rest(bought: Bought, ann: Client) -> None:
    cancels(ann, bought.order, amount="30.00", reason="a fee of 2", tell="-")
    assert (bought.order.status, bought.refunded_amount()) == ("Cancelled", Decimal("30.00"))
    assert reasons() == []
    kept = Review.objects.get()
    assert (kept.status, kept.resolved_by, kept.resolution) == ("dismissed", "ann", "a fee of 2")
    mail.outbox.clear()
    bought.world.a_day_passes()
    assert [one.subject for one in mail.outbox if "order" in one.subject.lower()] == []


def test_kept_money_needs_a_reason(bought: Bought, ann: Client) -> None:
    page = cancels(ann, bought.order, money="keep")
    assert messages_of(page) == [
        "The order was not cancelled: say why the shop keeps the money.",
    ]
    assert bought.order.status == "Paid"
    cancels(ann, bought.order, money="keep", reason="made to measure")
    assert (bought.order.status, bought.refunded_amount()) == ("Cancelled", Decimal(0))
    assert reasons() == []


def test_undecided_money_opens_a_review(bought: Bought, ann: Client) -> None:
    """The ledger check names it too, until the review's button has refunded all of it."""
    cancels(ann, bought.order, money="later")
    assert reasons() == ["cancelled-held"]
    page = ann.get(url_of(bought.order))
    assert "the order was cancelled, and USD 32.00 is still held" in text_of(page)
    now = timezone.now()
    found = [one.kind for one in audit(now - timedelta(days=1), now + timedelta(days=1))]
    assert found == [shop.ReviewReason.CANCELLED_HELD]
    (review,) = Review.objects.all()
    fields = fields_of(page, f"tillgate_review_{review.pk}")
    assert fields["amount"] == "32.00"
    press = {**fields, "action": "refund"}
    said = messages_of(ann.post(url_of(bought.order), press, follow=True))
    assert said == ["Nothing was done: tick that you mean the refund."]
    ann.post(url_of(bought.order), {**press, "meant": "1"}, follow=True)
    assert (bought.refunded_amount(), reasons()) == (Decimal("32.00"), [])
    assert list(audit(now - timedelta(days=1), now + timedelta(days=1))) == []


def test_clerk_without_permission_leaves_the_money(bought: Bought, ann: Client) -> None:
    """The dialog offers no refund, and a forged one is refused."""
    eve = staff("eve", *SEES)
    dialog = text_of(eve.get(f"{url_of(bought.order)}?tillgate=cancel"))
    assert 'value="refund"' not in dialog
    assert 'value="keep"' not in dialog
    forms = ann.get(f"{url_of(bought.order)}?tillgate=cancel")
    for money in ("refund", "keep", "give", ""):
        said = messages_of(cancels(eve, bought.order, forms, money=money, reason="so"))
        assert said[0].startswith("The order was not cancelled: ")
    assert bought.order.status == "Paid"
    cancels(eve, bought.order, money="later")
    assert (bought.order.status, reasons()) == ("Cancelled", ["cancelled-held"])
    page = text_of(eve.get(url_of(bought.order)))
    assert "is still held" in page
    assert "tillgate_review_" not in page


def test_order_cancelled_by_other_code_needs_review(bought: Bought) -> None:
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        bought.order,
        "Cancelled",
    )
    assert reasons() == ["cancelled-held"]


def test_order_taken_back_needs_no_review(
    bought: Bought,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(Order.pipeline, "Cancelled", ("Paid",))
    bought.order.set_status("Cancelled")
    assert reasons() == ["cancelled-held"]
    bought.order.set_status("Paid")
    assert reasons() == []


def test_failed_refund_of_cancelled_order_needs_review(bought: Bought, ann: Client) -> None:
    bought.world.sandbox.control.fault("refused", occasion="refund")
    cancels(ann, bought.order)
    assert (bought.order.status, bought.refunded_amount()) == ("Cancelled", Decimal(0))
    assert reasons() == ["cancelled-held"]


def test_paid_order_is_not_cancelled_in_the_list(bought: Bought, ann: Client) -> None:
    fields = {
        "action": "change_order_statuses",
        "new_status": "Cancelled",
        "selected_order": [bought.order.pk],
    }
    page = ann.post("/dashboard/orders/", fields, follow=True)
    assert messages_of(page) == [
        f"Order {bought.order.number} is paid. Cancel it on its own page.",
    ]
    assert bought.order.status == "Paid"


@pytest.mark.parametrize("amount", ["", "abc", "0", "-1", "32.01", "5 EUR", "1e9", "<b>1</b>"])
def test_unusable_amount_cancels_nothing(bought: Bought, ann: Client, amount: str) -> None:
    (said,) = messages_of(cancels(ann, bought.order, amount=amount))
    assert said.startswith("The order was not cancelled: ")
    assert (bought.order.status, bought.refunded_amount()) == ("Paid", Decimal(0))
    assert stock_of(bought.tea) == (9, 3)


def test_two_clerks_cancel_once(bought: Bought, ann: Client) -> None:
    """One reads that the order has moved on; the money is refunded once."""
    order, bob = bought.order, staff("bob", *MAY)
    pages = [(one, one.get(f"{url_of(order)}?tillgate=cancel")) for one in (ann, bob)]
    done = together(*[lambda one=one: cancels(one[0], order, one[1]) for one in pages])
    said = sorted(messages_of(page)[0] for page in done)
    assert said[0] == f"Order {order.number} was cancelled."
    assert said[1].startswith("The order was not cancelled: ")
    assert (bought.order.status, bought.refunded_amount()) == ("Cancelled", Decimal("32.00"))
    assert stock_of(bought.tea) == (9, 0)


def test_second_press_cancels_nothing_more(bought: Bought, ann: Client) -> None:
    dialog = ann.get(f"{url_of(bought.order)}?tillgate=cancel")
    cancels(ann, bought.order, dialog)
    assert messages_of(cancels(ann, bought.order, dialog)) == [
        "The order was not cancelled: it is cancelled already.",
    ]
    assert bought.refunded_amount() == Decimal("32.00")


def test_open_payment_of_cancelled_order_is_watched(world: World, ann: Client) -> None:
    """Money that comes on its page later is a second payment, for staff to refund."""
    number = world.order("12.50")
    first, second = world.start(number, "alipay"), world.start(number, "paypal")
    world.shopper_pays(first)
    world.notification(first)
    cancels(ann, Order.objects.get())
    assert (Order.objects.get().status, reasons()) == ("Cancelled", [])
    world.shopper_pays(second)
    world.notification(second)
    assert reasons() == ["second-payment"]


def test_unpaid_order_is_cancelled_as_before(world: World, ann: Client) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    said = messages_of(ann.get(f"{url_of(order)}?tillgate=cancel", follow=True))
    assert said == [
        "The order was not cancelled: no money of it is here: change its status.",
    ]
    fields = {"order_action": "change_order_status", "new_status": "Cancelled"}
    ann.post(url_of(order), fields)
    assert Order.objects.get().status == "Cancelled"
