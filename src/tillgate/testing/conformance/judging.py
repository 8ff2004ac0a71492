"""The acts and the checks that the scenarios share."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.test import Client

from tillgate.django.conf import get_settings
from tillgate.django.models import Payment
from tillgate.testing.books import fault_of_books
from tillgate.testing.world import World

_TOKEN: Final = re.compile(rb"""name=["']?csrfmiddlewaretoken["']?\s+value=["']?([A-Za-z0-9]+)""")


def at_payment_page(world: World) -> tuple[str, Payment]:
    """Place an order and come to its payment page."""
    order = world.order()
    return order, world.pay_page(order)


def paid_at_gateway(world: World) -> tuple[str, Payment]:
    """Place an order and pay it, before the shop knows."""
    order, payment = at_payment_page(world)
    world.shopper_pays(payment)
    return order, payment


def pay(world: World, order: str, method: str | None = None) -> Payment:
    """Pay an order, and let the gateway's notification arrive."""
    payment = world.pay_page(order, method)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    return payment


def paid(world: World) -> Payment:
    """Place an order and pay it; return its payment in its present state."""
    order = world.order()
    payment = pay(world, order)
    expect_paid_once(world, order)
    return world.fresh(payment)


def token_on(page: Any, browser: Client) -> dict[str, str]:
    """Return the CSRF token that a page sends with its forms, or that its script finds in the
    cookie; empty without a token.
    """
    found, cookie = _TOKEN.search(b"".join(page)), browser.cookies.get(settings.CSRF_COOKIE_NAME)
    token = found[1].decode() if found else cookie.value if cookie else ""
    return {"csrfmiddlewaretoken": token} if token else {}


def expect_paid_once(world: World, order: str) -> None:
    """Fail unless the shop regards an order as paid, by one payment."""
    shop = world.shop
    assert shop.is_paid(order), "the shopper paid, and the shop regards the order as unpaid"
    assert shop.times_paid(order) == 1, f"the payment took effect {shop.times_paid(order)} times"
    assert not shop.is_released(order), "the order is paid, and the shop released it"
    assert not shop.is_payable(order), "the order is paid, and the shop still asks for money"
    expect_right_books(world, order)


def expect_right_books(world: World, order: str) -> None:
    """Fail unless the shop has booked the money and the refunds of an order."""
    assert not (fault := fault_of_books(world.shop, order)), fault


def expect_unpaid(world: World, order: str) -> None:
    """Fail unless the shop regards an order as unpaid."""
    assert not world.shop.is_paid(order), "no money came, and the shop regards the order as paid"
    assert world.shop.times_paid(order) == 0, "no money came, and a payment took effect in the shop"


def expect_released(world: World, order: str) -> None:
    """Fail unless the shop has released an order, once."""
    shop = world.shop
    assert shop.is_released(order), "no money came, and the shop still reserves the order's stock"
    assert shop.times_released(order) in (None, 1), (
        f"the release took effect {shop.times_released(order)} times"
    )


def expect_still_waiting(world: World, order: str) -> None:
    """Fail unless the shop still waits for the money of an order after another order has ended."""
    expect_unpaid(world, order)
    assert not world.shop.is_released(order), "the shop released another order"
    assert world.shop.is_payable(order), "the shop no longer waits for the money of another order"


def expect_no_payment_page(world: World, order: str, method: str | None = None) -> None:
    """Fail unless choosing a payment method leads to a page of the shop, and not to the payment
    page.
    """
    answer = world.choose(order, method)
    to = world.onward(answer)
    chosen = world.gateway.method if method is None else method
    assert not world.gateway.is_payment_page(to), f"choosing {chosen!r} led to the payment page"
    assert answer.status_code < 500, (
        f"choosing {chosen!r} is answered with HTTP {answer.status_code}"
    )


def expect_landing(client: Client, answer: Any) -> None:
    """Fail unless a returning shopper gets a page. A page on another host, such as a separate
    storefront, is not checked here.
    """
    assert answer.status_code in (200, 302), (
        f"the return is answered with HTTP {answer.status_code}"
    )
    to = urlsplit(answer.get("Location", ""))
    if answer.status_code == 302 and to.netloc in (
        "",
        "testserver",
        urlsplit(get_settings().public_url).netloc,
    ):
        page = client.get(to.path + (f"?{to.query}" if to.query else ""))
        assert page.status_code < 400, (
            f"the shopper is led back to {to.path}, which is answered with HTTP {page.status_code}"
        )


def needs_review(world: World, *reasons: str) -> None:
    """Fail unless exactly these reviews are open."""
    found = world.reviews()
    assert found == list(reasons), f"the open reviews are {found} instead of {list(reasons)}"


def asked_for(world: World, payment: Payment) -> tuple[str, Decimal]:
    """Return the currency and the amount that the gateway was asked for."""
    held = world.gateway.held(payment.reference)
    assert held is not None, "the gateway has no payment of this reference"
    return held.currency, held.amount


def at_gateway(world: World, order: str) -> list[Payment]:
    """Return the payments of an order that the gateway has created, oldest first."""
    payments = (
        Payment.objects.select_related("order")
        .filter(order__plugin=world.shop.plugin, order__key=order)
        .order_by("pk")
    )
    return [payment for payment in payments if world.gateway.held(payment.reference)]
