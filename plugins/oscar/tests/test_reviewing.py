"""The reviews on an order's page of the dashboard, and their buttons."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.test import Client
from oscar.core.loading import get_model

from tests.shopper import fields_of
from tests.test_dashboard import MAY, SEES, messages_of, staff, text_of, url_of
from tillgate import shop
from tillgate.django.models import Refund, Review
from tillgate.testing.world import World

Order = get_model("order", "Order")


@pytest.fixture
def late(world: World) -> Any:
    """An order that was cancelled as unpaid, and whose money came late."""
    number = world.order("12.50")
    payment = world.start(number)
    Order.objects.get().set_status("Cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    assert [one.reason for one in Review.objects.all()] == ["paid-not-payable"]
    return Order.objects.get()


def presses(client: Client, order: Any, action: str, page: Any = None, **more: str) -> list[str]:
    review = Review.objects.latest("pk")
    fields = fields_of(page or client.get(url_of(order)), f"tillgate_review_{review.pk}")
    given = {**fields, "action": action, **more}
    return messages_of(client.post(url_of(order), given, follow=True))


def test_late_money_reopens_and_delivers(late: Any) -> None:
    """The pipeline does not lead from cancelled to waiting; the stock is allocated again."""
    ann = staff("ann", *SEES, "tillgate.resolve_review")
    assert "Reopen and deliver" in text_of(ann.get(url_of(late)))
    assert presses(ann, late, "reopen")[0].startswith("Resolved: ")
    assert Order.objects.get().status == "Paid"
    assert [line.num_allocated for line in late.lines.all()] == [1]
    ours = shop.order_state("oscar", late.number)
    assert ours
    assert ours.paid_by
    assert Review.objects.get().resolved_at


def test_reopened_order_names_goods_that_are_gone(world: World) -> None:
    """The clerk has decided; a note says what to buy anew."""
    payment = world.start(world.order("12.50"))
    world.a_day_passes()
    late = Order.objects.get()
    assert late.status == "Cancelled"
    get_model("partner", "StockRecord").objects.update(num_in_stock=0)
    world.pays_late(payment)
    world.notification(payment)
    ann = staff("ann", *SEES, "tillgate.resolve_review")
    assert presses(ann, late, "reopen")[0].startswith("Resolved: ")
    assert Order.objects.get().status == "Paid"
    assert any("there is not enough left" in note.message for note in late.notes.all())


def test_i12_atomic_requests_resolve_after_commit(
    late: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    ann = staff("ann", *MAY, "tillgate.resolve_review")
    assert presses(ann, late, "reopen")[0].startswith("Resolved: ")
    assert Order.objects.get().status == "Paid"


def test_late_money_is_refunded_on_the_page(late: Any) -> None:
    ann = staff("ann", *MAY, "tillgate.resolve_review")
    page = ann.get(url_of(late))
    said = presses(ann, late, "refund", page, meant="1")
    assert said[0].startswith("Resolved: ")
    assert Refund.objects.get().status == "succeeded"
    again = presses(ann, late, "refund", page, meant="1")
    assert again == ["Nothing was done: somebody has resolved it already."]


@pytest.mark.parametrize(
    ("permissions", "refused"),
    [
        (SEES, ["refund", "reopen", "redeliver", "dismiss"]),
        ((*SEES, "tillgate.resolve_review"), ["refund"]),
        ((*SEES, "tillgate.refund_payment"), ["refund", "reopen", "dismiss"]),
    ],
)
def test_clerk_without_permission_resolves_nothing(
    late: Any,
    permissions: tuple[str, ...],
    refused: list[str],
) -> None:
    boss = staff("ann", *MAY, "tillgate.resolve_review")
    page, eve = boss.get(url_of(late)), staff("eve", *permissions)
    shown = text_of(eve.get(url_of(late)))
    for action in refused:
        assert f'name="action" value="{action}"' not in shown
        said = presses(eve, late, action, page, meant="1", note="so")
        assert said == ["Nothing was done: you may not do this."]
    assert Order.objects.get().status == "Cancelled"
    assert Review.objects.get().resolved_at is None


@pytest.mark.parametrize("action", ["", "poll", "refund-done", "x" * 999, "<b>"])
def test_unknown_action_is_a_message(late: Any, action: str) -> None:
    ann = staff("ann", *MAY, "tillgate.resolve_review")
    assert presses(ann, late, action) == ["Nothing was done: you may not do this."]


def test_note_with_markup_is_only_text(late: Any) -> None:
    ann = staff("ann", *MAY, "tillgate.resolve_review")
    presses(ann, late, "dismiss", note="<script>alert(1)</script>")
    assert "<script>alert" not in text_of(ann.get(url_of(late)))
    assert Review.objects.get().resolution == "<script>alert(1)</script>"
