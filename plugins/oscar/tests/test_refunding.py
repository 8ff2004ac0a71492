"""The page that refunds items: chosen, shown once more, confirmed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from oscar.apps.checkout.surcharges import FlatCharge
from oscar.core.loading import get_model

from tests.shopper import Shopper, fields_of
from tests.test_cancelling import stock_of
from tests.test_dashboard import MAY, SEES, messages_of, staff, text_of, url_of
from tests.test_refunds import Bought
from tillgate.django.models import Refund
from tillgate.testing.world import World, together

Order = get_model("order", "Order")


class Shipped(Bought):
    """The same order, with shipping for 4.99."""

    def __init__(self, world: World, product: Callable[..., Any]) -> None:
        shopper = Shopper()
        shopper.adds(product("4.00", "Tea", stock=9), 3)
        shopper.says_where(shipping="courier")
        shopper.chooses()
        shopper.places()
        self.world = world
        self.payment = world.start(self.order.number)
        world.shopper_pays(self.payment)
        world.notification(self.payment)


@pytest.fixture
def shipped(world: World, product: Callable[..., Any]) -> Shipped:
    return Shipped(world, product)


@pytest.fixture
def ann(transactional_db: None) -> Client:
    """Somebody who may do everything about orders."""
    return staff("ann", *MAY)


def page_of(client: Client, order: Any) -> Any:
    return client.get(f"{url_of(order)}?tillgate=refund", follow=True)


def checks(client: Client, order: Any, page: Any = None, **changes: str) -> Any:
    """Fill in the form of items and press "Check the refund"."""
    fields = fields_of(page or page_of(client, order), "tillgate_items_form")
    given = {name: value for name, value in (fields | changes).items() if value != "-"}
    return client.post(url_of(order), given, follow=True)


def confirms(client: Client, order: Any, page: Any, **changes: str) -> Any:
    fields = fields_of(page, "tillgate_confirm_form")
    return client.post(url_of(order), {**fields, **changes}, follow=True)


def test_items_and_shipping_are_refunded(shipped: Shipped, ann: Client) -> None:
    """The confirmation names all of it; the items return to the stock when the money has moved."""
    tea = shipped.tea
    page = checks(ann, shipped.order, **{f"quantity_{tea.pk}": "2", "shipping": "1"})
    shown = text_of(page)
    assert "Refund USD 12.99" in shown
    assert not Refund.objects.exists()
    assert messages_of(confirms(ann, shipped.order, page)) == ["USD 12.99 was refunded."]
    assert shipped.events() == [(Decimal("12.99"), {"Tea": 2})]
    assert stock_of(tea) == (9, 1)
    again = text_of(page_of(ann, shipped.order))
    assert 'name="shipping"' not in again
    assert 'max="1"' in again


def test_failed_refund_puts_nothing_back(shipped: Shipped, ann: Client) -> None:
    shipped.world.sandbox.control.fault("refused", occasion="refund")
    confirms(ann, shipped.order, checks(ann, shipped.order, **{f"quantity_{shipped.tea.pk}": "2"}))
    assert (shipped.refunded_amount(), stock_of(shipped.tea)) == (Decimal(0), (9, 3))


def test_restock_remembers_the_last_choice(shipped: Shipped, ann: Client) -> None:
    tea = shipped.tea
    restock = f"restock_{tea.pk}"
    assert fields_of(page_of(ann, shipped.order), "tillgate_items_form")[restock] == "1"
    page = checks(ann, shipped.order, **{f"quantity_{tea.pk}": "1", restock: "-"})
    confirms(ann, shipped.order, page)
    assert stock_of(tea) == (9, 3)
    assert restock not in fields_of(page_of(ann, shipped.order), "tillgate_items_form")


def test_rest_is_refunded_in_one_press(shipped: Shipped, ann: Client) -> None:
    """A second press of the same page refunds nothing more."""
    confirms(ann, shipped.order, checks(ann, shipped.order, **{f"quantity_{shipped.tea.pk}": "1"}))
    page = page_of(ann, shipped.order)
    assert "Refund the rest: USD 12.99" in text_of(page)
    fields = fields_of(page, "tillgate_rest_form")
    said = [messages_of(ann.post(url_of(shipped.order), fields, follow=True)) for _ in range(2)]
    assert said[0] == ["USD 12.99 was refunded."]
    assert "nothing more was sent" in said[1][0]
    assert shipped.refunded_amount() == Decimal("16.99")
    assert stock_of(shipped.tea) == (9, 0)
    assert messages_of(page_of(ann, shipped.order)) == [
        "Nothing was refunded: nothing is left to refund.",
    ]


def test_shopper_is_mailed_if_ticked(shipped: Shipped, ann: Client) -> None:
    for tell, amount in (("1", "1.00"), ("-", "2.00")):
        confirms(ann, shipped.order, checks(ann, shipped.order, amount=amount, tell=tell))
    shipped.world.a_day_passes()
    bodies = [str(one.body) for one in mail.outbox if "Refund for your" in one.subject]
    assert [body.count("USD 1.00") for body in bodies] == [1]


@pytest.mark.parametrize(
    "bad",
    [
        {"quantity": "4"},
        {"quantity": "-1"},
        {"quantity": "1.5"},
        {"quantity": "٣"},
        {"quantity": "9999999999"},
        {"quantity": "<script>"},
        {"amount": "17.00"},
        {"amount": "1 EUR"},
        {"amount": "1,5,0"},
        {"amount": "0"},
        {},
    ],
)
def test_impossible_wish_is_a_message(
    shipped: Shipped,
    ann: Client,
    bad: dict[str, str],
) -> None:
    """Nothing is shown to confirm, and nothing refunded."""
    given = {(f"quantity_{shipped.tea.pk}" if k == "quantity" else k): v for k, v in bad.items()}
    page = checks(ann, shipped.order, **given)
    assert messages_of(page)[0].startswith("Nothing was refunded: ")
    assert "tillgate_confirm_form" not in text_of(page)
    assert "<script>" not in messages_of(page)[0] or "&lt;script" in text_of(page)
    said = messages_of(ann.post(url_of(shipped.order), {**given, **confirmed()}, follow=True))
    assert said[0].startswith("Nothing was refunded: ")
    assert not Refund.objects.exists()


def confirmed() -> dict[str, str]:
    return {
        "order_action": "tillgate_refund",
        "confirmed": "1",
        "tillgate_idempotency_key": "k",
        "tillgate_seen": "",
    }


def test_line_is_refunded_by_one_of_two_clerks(shipped: Shipped, ann: Client) -> None:
    """Both have confirmed the same items; the second reads of the first one's refund."""
    bob, quantity = staff("bob", *MAY), {f"quantity_{shipped.tea.pk}": "3", "shipping": "1"}
    pages = [(one, checks(one, shipped.order, **quantity)) for one in (ann, bob)]
    done = together(
        *[lambda one=one: confirms(one[0], shipped.order, one[1]) for one in pages],
    )
    said = sorted(messages_of(page)[0] for page in done)
    assert said[0].startswith("Nothing was refunded: ")
    assert said[1] == "USD 16.99 was refunded."
    assert shipped.refunded_amount() == Decimal("16.99")
    assert stock_of(shipped.tea) == (9, 0)


def test_clerk_without_permission_refunds_nothing(shipped: Shipped, ann: Client) -> None:
    """Neither the page nor a forged form."""
    eve, order = staff("eve", *SEES), shipped.order
    assert "permission" in messages_of(page_of(eve, order))[0]
    assert "?tillgate=refund" not in text_of(eve.get(url_of(order)))
    page = page_of(ann, order)
    for form in ("tillgate_rest_form", "tillgate_items_form"):
        fields = fields_of(page, form) | {"amount": "1.00", "confirmed": "1"}
        said = messages_of(eve.post(url_of(order), fields, follow=True))
        assert "permission" in said[0]
    assert not Refund.objects.exists()


def test_surcharges_are_refunded_beside_lines(
    world: World,
    product: Callable[..., Any],
    ann: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Oscar keeps them apart from lines and shipping; once refunded, they are not offered again."""
    monkeypatch.setattr(
        "oscar.apps.checkout.applicator.SurchargeApplicator.get_surcharges",
        lambda *_, **__: (FlatCharge(excl_tax=Decimal("1.50"), incl_tax=Decimal("1.50")),),
    )
    shipped = Shipped(world, product)
    page = page_of(ann, shipped.order)
    assert "Surcharges" in text_of(page)
    assert "Refund the rest: USD 18.49" in text_of(page)
    wish = {f"quantity_{shipped.tea.pk}": "1", "surcharges": "1"}
    checked = [checks(ann, shipped.order, page, **wish) for _ in range(2)]
    assert "Refund USD 5.50" in text_of(checked[0])
    assert messages_of(confirms(ann, shipped.order, checked[0])) == ["USD 5.50 was refunded."]
    assert 'name="surcharges"' not in text_of(page_of(ann, shipped.order))
    confirms(ann, shipped.order, checked[1], tillgate_again="1", tillgate_seen="")
    assert shipped.refunded_amount() == Decimal("5.50")


def test_reason_with_markup_is_only_text(shipped: Shipped, ann: Client) -> None:
    """On the confirmation, the order's page and in its timeline."""
    page = checks(ann, shipped.order, amount="1.00", reason="<script>alert(1)</script>")
    done = confirms(ann, shipped.order, page)
    for shown in (page, done, ann.get(url_of(shipped.order))):
        assert "<script>alert" not in text_of(shown)
        assert "&lt;script&gt;alert" in text_of(shown)
    assert Refund.objects.get().reason == "<script>alert(1)</script>"
