"""What shoppers and staff do, in the words of a test."""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import time
from typing import Any
from urllib.parse import urlsplit

from django.test import Client
from django_scopes import scope, scopes_disabled
from pretix.base.models import OrderPayment, OrderRefund, Team, User

from tests.driver import PretixDriver
from tillgate.django.models import Payment
from tillgate.testing.world import World


def at(order: Any) -> AbstractContextManager[None]:
    """Return access to the data of an order's organizer."""
    access: AbstractContextManager[None] = scope(organizer=order.event.organizer)
    return access


def order_of(world: World, key: str) -> Any:
    """Return pretix's order as it now stands."""
    assert isinstance(world.shop, PretixDriver)
    return world.shop.order(key)


def event_of(world: World) -> Any:
    """Return the event."""
    assert isinstance(world.shop, PretixDriver)
    return world.shop.event()


def payments_of(order: Any) -> list[tuple[str, str]]:
    """Return payment method and state of each of pretix's payments, oldest first, without those
    that another took the place of.
    """
    with scopes_disabled():
        rows = (
            OrderPayment.objects.filter(order=order)
            .exclude(state=OrderPayment.PAYMENT_STATE_CANCELED)
            .order_by("pk")
        )
        return [(row.provider.removeprefix("tillgate_"), row.state) for row in rows]


def refunds_of(order: Any) -> list[tuple[str, str]]:
    """Return amount and state of each of pretix's refunds, oldest first."""
    with scopes_disabled():
        return [
            (str(row.amount), row.state)
            for row in OrderRefund.objects.filter(order=order).order_by("pk")
        ]


def newest_payment(order: Any) -> Any:
    """Return the newest of pretix's payments."""
    with at(order):
        return order.payments.select_related("order__event__organizer").last()


def bought(world: World, total: str = "12.50") -> tuple[Any, Payment]:
    """Return an order that a shopper has paid, and the payment."""
    key = world.order(total)
    payment = world.pay_page(key)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    assert world.shop.is_paid(key)
    return order_of(world, key), world.fresh(payment)


def staff(world: World, *permissions: str) -> Client:
    """Return the browser of somebody who works for the organizer, with those of pretix's
    permissions about events.
    """
    event = event_of(world)
    user = User.objects.create_user("ann@example.org", "secret")
    with scope(organizer=event.organizer):
        granted = dict.fromkeys(permissions, True)
        team = Team.objects.create(
            organizer=event.organizer,
            name="Team",
            all_events=True,
            limit_event_permissions=granted,
        )
        team.members.add(user)
    return logged_in(user)


def logged_in(user: Any) -> Client:
    """Return the browser of a user who has logged in."""
    browser = Client()
    browser.force_login(user)
    session = browser.session
    session["pretix_auth_login_time"] = session["pretix_auth_last_used"] = int(time())
    session.save()
    return browser


def path_of(address: str) -> str:
    """Return what a browser asks the shop for."""
    parts = urlsplit(address)
    return parts.path + (f"?{parts.query}" if parts.query else "")
