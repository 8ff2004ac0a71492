"""The payment link that staff copy or mail, with an end of its own."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.test import Client
from oscar.core.loading import get_model

from tests.shopper import fields_of
from tests.test_dashboard import SEES, messages_of, staff, text_of, url_of
from tests.test_occasions import mailed
from tillgate import shop
from tillgate.testing.world import World
from tillgate_oscar import orders

Order = get_model("order", "Order")


@pytest.fixture
def order(world: World) -> Any:
    return Order.objects.get(number=world.order("12.50"))


@pytest.fixture
def ann(transactional_db: None) -> Client:
    return staff("ann", *SEES)


def makes(client: Client, order: Any, page: Any = None, **changes: str) -> Any:
    fields = fields_of(page or client.get(url_of(order)), "tillgate_link_form")
    return client.post(url_of(order), {**fields, **changes}, follow=True)


def link_on(page: Any) -> str:
    text = text_of(page)
    start = text.index("http", text.index("data-tillgate-copy=", text.index("tillgate_link_form")))
    return text[start : text.index("<", start)]


def held(order: Any) -> list[int]:
    return [line.num_allocated for line in order.lines.all()]


def opens(link: str) -> Any:
    return Client().get("/" + link.split("/", 3)[3])


def test_link_outlives_the_kept_goods(world: World, order: Any, ann: Client) -> None:
    """The goods go after an hour, and are allocated again when the link is paid."""
    link = link_on(makes(ann, order))
    world.time.advance(hours=3)
    world.run_worker()
    assert (Order.objects.get().status, held(order)) == ("Pending payment", [0])
    assert "Alipay" in text_of(opens(link))
    payment = world.start(order.number)
    world.shopper_pays(payment)
    world.notification(payment)
    assert (Order.objects.get().status, held(order)) == ("Paid", [1])


def test_link_ends_and_the_order_with_it(world: World, order: Any, ann: Client) -> None:
    link = link_on(makes(ann, order, days="2"))
    world.time.advance(days=1)
    world.run_worker()
    assert Order.objects.get().status == "Pending payment"
    world.time.advance(days=1, hours=2)
    world.run_worker()
    assert Order.objects.get().status == "Cancelled"
    assert opens(link).status_code != 200


def test_sold_out_goods_end_the_link_for_a_while(world: World, order: Any, ann: Client) -> None:
    link = link_on(makes(ann, order))
    world.time.advance(hours=3)
    world.run_worker()
    stock = get_model("partner", "StockRecord").objects
    stock.update(num_in_stock=0)
    assert "Not available any more" in text_of(opens(link))
    stock.update(num_in_stock=5)
    assert "Alipay" in text_of(opens(link))


def test_late_money_for_gone_goods_needs_staff(world: World, order: Any, ann: Client) -> None:
    """Nobody knows whether they can be had again: staff refund it, or deliver all the same."""
    makes(ann, order)
    payment = world.start(order.number)
    world.a_day_passes()
    assert (Order.objects.get().status, held(order)) == ("Pending payment", [0])
    get_model("partner", "StockRecord").objects.update(num_in_stock=0)
    world.pays_late(payment)
    world.notification(payment)
    (review,) = shop.open_reviews("oscar", order_keys=[order.number])
    assert "Not available any more" in review.message
    assert shop.resolve_review(review.id, "reopen", staff="ann").resolved
    assert (Order.objects.get().status, held(order)) == ("Paid", [1])


def test_link_is_mailed_to_the_shopper(world: World, order: Any, ann: Client) -> None:
    page = makes(ann, order, send="1")
    assert messages_of(page) == [f"The payment link goes to {order.email}."]
    world.run_worker()
    (letter,) = mail.outbox
    assert letter.subject == f"Your order {order.number} waits for payment"
    assert link_on(ann.get(url_of(order))) in str(letter.body)
    order.set_status("Cancelled")
    assert "tillgate_link_form" not in text_of(ann.get(url_of(order)))


def test_money_under_way_gets_no_link(world: World, order: Any, ann: Client) -> None:
    payment = world.start(order.number)
    page = ann.get(url_of(order))
    world.money.hold(payment.reference, None)
    world.come_back(payment)
    assert "its money is on its way" in str(messages_of(makes(ann, order, page, send="yes")))
    world.run_worker()
    assert not [sent for sent in mail.outbox if "/payments/pay/" in str(sent.body)]


def test_mailed_link_warns_of_open_payment(world: World, order: Any, ann: Client) -> None:
    world.start(order.number)
    makes(ann, order, send="yes")
    world.run_worker()
    [sent] = mail.outbox
    for text in mailed(sent):
        assert "You may have paid already" in text


def test_cancelled_order_has_no_link(world: World, order: Any, ann: Client) -> None:
    """A mail that waits is not sent either."""
    page = ann.get(url_of(order))
    link = link_on(makes(ann, order, page, send="1"))
    order.set_status("Cancelled")
    world.run_worker()
    assert mail.outbox == []
    assert "cannot be paid" in opens(link).content.decode()
    said = messages_of(makes(ann, order, page))
    assert said == ["No link was made: the order does not wait for payment."]


@pytest.mark.parametrize("days", ["0", "91", "-1", "x", "", "1.5", "9" * 999, "<b>"])
def test_impossible_lifetime_is_a_message(order: Any, ann: Client, days: str) -> None:
    (said,) = messages_of(makes(ann, order, days=days))
    assert said.startswith("No link was made: ")
    assert orders.link_until(shop.order_state("oscar", order.number)) is None


def test_partner_gets_no_link(order: Any, ann: Client) -> None:
    """The link belongs to the shopper; a partner sees a part of the order."""
    page = ann.get(url_of(order))
    partner = staff("pat", "partner.dashboard_access", is_staff=False)
    order.lines.get().partner.users.add(get_model("auth", "User").objects.get(username="pat"))
    assert "tillgate_link_form" not in text_of(partner.get(url_of(order)))
    assert messages_of(makes(partner, order, page)) == [
        "No link was made: only staff may give it away.",
    ]


def test_forged_link_opens_nothing(order: Any, ann: Client) -> None:
    link = link_on(makes(ann, order))
    assert opens(f"{link[:-4]}AAA/").status_code == 404
