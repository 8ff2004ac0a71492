"""Mail to shoppers: organizers edit it and switch it off, as they do with pretix's own."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
from pretix.base.services.cancelevent import cancel_event
from pretix.base.services.orders import cancel_order

from tests.shopping import at, bought, event_of, order_of, staff
from tests.test_paying import expired
from tests.test_refunds import mailed, refunded_amount
from tillgate.testing.world import World
from tillgate_pretix import orders
from tillgate_pretix.mail import tell_of_held_money

PAGE = "/control/event/org/conf/tillgate/mails/"
MAY_EDIT = "event.settings.general:write"


def saved(world: World, **changes: str) -> None:
    """Let an organizer save the page with changes."""
    browser = staff(world, MAY_EDIT)
    form = browser.get(PAGE).context["form"]
    values: dict[str, str] = {}
    for name, field in form.fields.items():
        value = form.initial.get(name)
        if name.startswith("mail_send_"):
            values |= {name: "on"} if value else {}
        else:
            values[f"{name}_0"] = field.widget.decompress(value)[0]
    answer = browser.post(PAGE, {name: one for name, one in {**values, **changes}.items() if one})
    assert answer.status_code == 302


def test_organizer_writes_text_of_mail(world: World) -> None:
    order, _ = bought(world)
    saved(
        world,
        mail_subject_tillgate_refunded_0="Refund {code} from {event}",
        mail_text_tillgate_refunded_0="{amount} by {payment_method}, {reference}",
    )
    refunded_amount(order, "5.00")
    sent = mail.outbox[-1]
    assert sent.subject == f"[TESTMODE] Refund {order.code} from Conference"
    assert "$5.00 by Alipay, " in sent.body  # as pretix writes money


def test_mail_can_be_switched_off(world: World) -> None:
    order, _ = bought(world)
    saved(world, mail_send_tillgate_refunded="")
    refunded_amount(order, "5.00")
    assert mailed() == []


def test_switch_of_one_leaves_others(world: World) -> None:
    saved(world, mail_send_tillgate_held="")
    order, _ = bought(world)
    refunded_amount(order, "5.00")
    assert len(mailed()) == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_quiet_cancellation_refunds_without_mail(world: World, is_told: bool) -> None:
    """*Notify customer by email* of the cancellation is about its refund too."""
    order, payment = bought(world)
    with at(order):
        cancel_order(order.pk, send_mail=is_told)
    refunded_amount(order_of(world, str(order.pk)), "12.50")
    assert world.refunded_amount(payment) == Decimal("12.50")
    assert len(mailed()) == is_told


@pytest.mark.parametrize("is_told", [True, False])
def test_cancelled_event_sends_one_mail(world: World, is_told: bool) -> None:
    """pretix's own mail names the refund; without it there is none."""
    order, payment = bought(world)
    event = event_of(world)
    options: dict[str, Any] = {
        "subevent": None,
        "auto_refund": True,
        "keep_fee_fixed": "0.00",
        "keep_fee_per_ticket": "0.00",
        "keep_fee_percentage": "0.00",
        "send": is_told,
        "send_subject": "It does not take place",
        "send_message": "You get {refund_amount} back.",
    }
    mail.outbox.clear()
    with at(order):
        cancel_event.apply(kwargs={"event": event.pk, **options}, throw=True)
    assert world.refunded_amount(payment) == Decimal("12.50")
    assert len([one for one in mail.outbox if one.to == [order.email]]) == is_told
    assert mailed() == []


def test_mail_without_reference_goes_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it was sent does not depend on its text."""
    saved(world, mail_text_tillgate_held_0="It has arrived.")
    told: list[tuple[Any, Any]] = []
    monkeypatch.setattr(orders, "tell_of_held_money", lambda *about: told.append(about))
    order, payment = expired(world, places=1, accepts_late=False)
    world.gateway_notification(payment)
    world.run_worker()
    for _ in range(2):
        with at(order), transaction.atomic():
            tell_of_held_money(*told[0])
    assert len([one for one in mail.outbox if "Your payment for order" in str(one.subject)]) == 1


def test_preview_fills_placeholders(world: World) -> None:
    event_of(world)
    browser = staff(world, MAY_EDIT)
    item = "mail_text_tillgate_refunded"
    shown = browser.post(f"{PAGE}preview/", {"item": item, f"{item}_0": "**{amount}** <script>"})
    assert "$42.23" in shown.json()["msgs"]["en"]
    assert "<script>" not in shown.json()["msgs"]["en"]
    wrong = browser.post(f"{PAGE}preview/", {"item": item, f"{item}_0": "{nothing}"})
    assert "alert-danger" in wrong.json()["msgs"]["en"]
    foreign = {"item": "mail_text_order_paid", "mail_text_order_paid_0": "x"}
    assert browser.post(f"{PAGE}preview/", foreign).status_code == 400


def test_unknown_placeholder_is_not_saved(world: World) -> None:
    event_of(world)
    values = {"mail_text_tillgate_refunded_0": "{nothing}"}
    answer = staff(world, MAY_EDIT).post(PAGE, values)
    assert "Invalid placeholder" in answer.content.decode()


def test_email_page_leads_to_ours(world: World) -> None:
    event_of(world)
    assert (
        PAGE
        in staff(world, MAY_EDIT).get("/control/event/org/conf/settings/email").content.decode()
    )


@pytest.mark.parametrize("address", [PAGE, f"{PAGE}preview/"])
def test_mails_need_permission(world: World, address: str) -> None:
    event_of(world)
    browser = staff(world, "event.orders:write")
    assert browser.get(address).status_code in (403, 404)
    assert browser.post(address, {}).status_code in (403, 404)
