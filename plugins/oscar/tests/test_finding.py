"""The search box of the dashboard's list of orders, and its filter for money in doubt."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from oscar.core.loading import get_model

from tests.test_dashboard import MAY, staff, text_of, url_of
from tests.test_refunds import Bought
from tillgate import shop
from tillgate.testing.world import World

Order = get_model("order", "Order")


@pytest.fixture
def bought(world: World, product: Callable[..., Any]) -> Bought:
    return Bought(world, product)


@pytest.fixture
def ann(transactional_db: None) -> Client:
    return staff("ann", *MAY)


def finds(client: Client, text: str) -> list[str]:
    """Search, and return the numbers of the orders that are listed, or of the page that opens."""
    answer = client.get("/dashboard/orders/", {"find": text})
    if answer.status_code == 302:
        return [answer["Location"].split("/")[3]]
    text_of(answer)
    return [order.number for order in answer.context["orders"]]


def test_one_box_finds_an_order(bought: Bought, ann: Client) -> None:
    """The only order that is found opens at once."""
    order, other = bought.order, bought.world.order("5.00")
    Order.objects.filter(number=other).update(guest_email="bob@shopper.example")
    get_model("order", "ShippingAddress").objects.filter(order__number=other).update(
        first_name="Bob",
        last_name="Stone",
    )
    payment = bought.world.fresh(bought.payment)
    for text in (
        order.number,
        f"#{order.number}",
        "ada@shopper.example",
        "Ada",
        "ada moss",
        "Moss",
        "32.00",
        "USD 32.00",
        payment.reference,
        str(payment.transaction_no),
    ):
        assert finds(ann, text) == [order.number], text
    assert finds(ann, "Stone") == [other]
    assert sorted(finds(ann, "s")) == [other]


@pytest.mark.parametrize(
    "text",
    ["zz", "#", "%", "' OR 1=1 --", "<script>alert(1)</script>", "x" * 10_000, "a\0b", "1" * 300],
)
def test_odd_search_finds_nothing(bought: Bought, ann: Client, text: str) -> None:
    page = ann.get("/dashboard/orders/", {"find": text})
    assert "No orders found" in text_of(page)
    assert "<script>alert" not in text_of(page)


def test_number_reads_no_names(bought: Bought, ann: Client) -> None:
    """Oscar has no index of names: a table of years would be read whole, some times over."""
    for text in (bought.order.number, str(bought.payment.transaction_no), "12.34", "NOTHING-7"):
        with CaptureQueriesContext(connection) as statements:
            finds(ann, text)
        for one in statements:
            assert not re.search(r"_name\b\W.{0,9}LIKE", one["sql"]), one["sql"]


def test_payments_are_searched_for_permitted_staff(bought: Bought) -> None:
    """A clerk who may not see payments finds an order by its own data only."""
    eve, payment = staff("eve", "order.view_order"), bought.world.fresh(bought.payment)
    bought.world.order("5.00")
    assert finds(eve, payment.reference) == []
    assert finds(eve, bought.order.number) == [bought.order.number]


def test_partner_finds_own_orders_only(bought: Bought) -> None:
    partner = staff("pat", "partner.dashboard_access", "tillgate.view_payment", is_staff=False)
    assert finds(partner, bought.order.number) == []


def test_filter_lists_money_in_doubt(bought: Bought, ann: Client) -> None:
    """Cancelled orders wait for no shipping."""

    def listed() -> list[str]:
        page = ann.get("/dashboard/orders/", {"in_doubt": "1"})
        text_of(page)
        return [order.number for order in page.context["orders"]]

    order = bought.order
    bought.world.order("5.00")
    assert listed() == []
    shop.open_review(
        str(bought.payment.pk),
        "the bank wants it back",
        actor="test",
        reason=shop.ReviewReason.DISPUTED,
    )
    assert listed() == [order.number]
    file = ann.get("/dashboard/orders/", {"in_doubt": "1", "response_format": "csv"})
    assert "Paid (Disputed by the shopper's bank)" in file.content.decode()
    (review,) = shop.open_reviews("oscar")
    shop.close_reviews([review.id], "won")
    assert listed() == []
    shop.refund_rest("oscar", order.number)
    assert listed() == [order.number]
    order.set_status("Cancelled")
    assert listed() == []


def test_shipping_past_the_handler_leaves_a_note(bought: Bought) -> None:
    bought.ask(Decimal("32.00"))
    bought.order.set_status("Shipped")
    assert bought.notes()[-1] == (
        "This order was changed to “Shipped”. But: order "
        f"{bought.order.number} was refunded: do not ship it, cancel it."
    )


def test_row_of_summary_opens_at_order_page(bought: Bought, ann: Client) -> None:
    """Customer, items and copyable numbers stand on the order's page."""
    page = text_of(ann.get(url_of(bought.order)))
    assert "Ada Moss" in page
    assert "data-tillgate-copy" in page
    assert "3 \u00d7 Tea" in page
