"""Who may not: each action and each datum of the dashboard, tried without the permission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from oscar.core.loading import get_model

from tests.test_dashboard import MAY, staff, text_of, url_of
from tests.test_refunds import Bought
from tillgate.django.models import Order, Payment, Refund, Review
from tillgate.testing.world import World
from tillgate_oscar.dashboard import orders
from tillgate_oscar.refunds import refund_event_type

ACTIONS: dict[str, dict[str, str]] = {
    "tillgate_refund": {"amount": "2.00", "confirmed": "1"},
    "tillgate_refund_rest": {},
    "tillgate_cancel": {"money": "refund", "amount": "2.00", "reason": "so"},
    "tillgate_review": {"action": "refund-not-done"},
    "tillgate_link": {"days": "7", "send": "1"},
    "create_order_payment_event": {"amount": "2.00"},
}
"""Each action of the order's page that needs a permission, with a form that would do it."""
PATHS = ("", "?tillgate=refund", "?tillgate=cancel")


@pytest.fixture
def bought(world: World, product: Callable[..., Any]) -> Bought:
    """A paid order with an open review: a refund of unknown outcome."""
    bought = Bought(world, product)
    world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask("1.00")
    return bought


def rows() -> list[Any]:
    """Return all that an action could change."""
    return [
        list(model._base_manager.order_by("pk").values())
        for model in (Order, Payment, Refund, Review, get_model("order", "Order"))
    ]


def people(bought: Bought) -> dict[str, Client]:
    partner = staff("pat", "partner.dashboard_access", is_staff=False)
    bought.tea.partner.users.add(User.objects.get(username="pat"))
    return {
        "a clerk": staff("eve", "order.view_order"),
        "a partner": partner,
        "another partner": staff("pam", "partner.dashboard_access", is_staff=False),
        "a shopper": staff("sam", *MAY, is_staff=False),
        "a stranger": Client(),
    }


@pytest.mark.parametrize("action", ACTIONS)
def test_nobody_acts_without_permission(bought: Bought, action: str) -> None:
    fields = {
        "order_action": action,
        "payment_event_type": refund_event_type().code,
        "review": str(Review.objects.get().pk),
        "version": Review.objects.get().version,
        "newest_refund": str(Refund.objects.get().pk),
        "tillgate_seen": str(Refund.objects.get().pk),
        "tillgate_idempotency_key": "k",
        **ACTIONS[action],
    }
    before = rows()
    for who, client in people(bought).items():
        client.post(url_of(bought.order), fields)
        assert rows() == before, who
    staff("ann", *MAY, "tillgate.resolve_review").post(url_of(bought.order), fields)
    assert (rows() != before) is (action != "tillgate_link"), "a paid order has no link"


def test_every_action_is_tried() -> None:
    assert set(orders._ACTIONS) <= set(ACTIONS)
    assert {f"?tillgate={name}" for name in orders._PAGES} <= set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_page_is_closed_to_outsiders(bought: Bought, path: str) -> None:
    """The order's reference, its review and its shopper stand on it."""
    found = people(bought)
    for who in ("another partner", "a shopper", "a stranger"):
        answer = found[who].get(url_of(bought.order) + path)
        assert answer.status_code in (302, 403, 404), who
        assert bought.payment.reference not in answer.content.decode(), who


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"in_doubt": "1"},
        {"find": "ada@shopper.example"},
        {"find": "32.00"},
        {"response_format": "csv"},
    ],
)
def test_lists_are_closed_to_outsiders(bought: Bought, query: dict[str, str]) -> None:
    found = people(bought)
    for who in ("another partner", "a shopper", "a stranger"):
        answer = found[who].get("/dashboard/orders/", query)
        assert answer.status_code in (200, 302, 403), who
        assert bought.order.number not in answer.content.decode(), who
        assert bought.order.number not in answer.headers.get("Location", ""), who


def test_clerk_sees_no_button_without_permission(bought: Bought) -> None:
    """Nor a way into the admin; a search by a number of the payment finds nothing."""
    eve = people(bought)["a clerk"]
    page = text_of(eve.get(url_of(bought.order)))
    for hidden in ("/admin/", "tillgate_refund_form", "?tillgate=refund", "tillgate_review_"):
        assert hidden not in page, hidden
    dialog = text_of(eve.get(f"{url_of(bought.order)}?tillgate=cancel"))
    assert 'value="refund"' not in dialog
    for path in ("", "orders/"):
        home = text_of(eve.get(f"/dashboard/{path}"))
        assert "/admin/" not in home
        assert "Needs review" not in home
    found = eve.get("/dashboard/orders/", {"find": bought.payment.reference})
    assert "No orders found" in text_of(found)
