"""The stored data of a shopper: how long it is kept, and how it is exported and erased."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.core.serializers import serialize
from django.utils import timezone

from tests.django.gateway import queue
from tests.test_docs import read, rows, section
from tillgate import Refused, hooks, shop
from tillgate.account import Account
from tillgate.django.conf import get_settings
from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.django.outbox.remote import enqueue_remote
from tillgate.django.refunds import queueing
from tillgate.django.reviews import closing
from tillgate.django.reviews.opening import open_review
from tillgate.django.worker import retention
from tillgate.errors import ConfigurationError, InvalidRequest
from tillgate.lifecycle import ReviewReason
from tillgate.testing.world import World

PERSONAL = {
    "payerName": "Ann Example",
    "payerEmail": "ann@shopper.example",
    "cardNo": "4111111111111111",
}
TRACES = ("Ann", "ann@", "411111", "4111 1111")
SAID = "card 4111 1111 1111 1111 of ann@shopper.example"


def everything() -> str:
    """Return all of Tillgate's rows as text."""
    return "".join(
        serialize("json", model._default_manager.all())
        for model in apps.get_app_config("tillgate").get_models()
    )


def traces() -> list[str]:
    rows = everything()
    return [trace for trace in TRACES if trace in rows]


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that describes the shopper in its answers, and in its refusals of refunds."""
    pay, query = hooks.pay, hooks.query

    def refuse(*_: Any) -> None:
        raise Refused("000020", SAID, 400)

    monkeypatch.setattr(
        "tillgate.hooks.pay",
        lambda *a, **b: replace(made := pay(*a, **b), raw={**made.raw, **PERSONAL, "status": SAID}),
    )
    monkeypatch.setattr(
        "tillgate.hooks.query",
        lambda *a, **b: replace(found := query(*a, **b), raw={**found.raw, "buyer": PERSONAL}),
    )
    monkeypatch.setattr("tillgate.hooks.refund", refuse)


def old(world: World, payment: Payment, days: int = 601) -> Order:
    """Let so many days pass, with the last polls and nothing else."""
    world.time.advance(days=days)
    for _ in range(2):
        assert world.run_worker().faults == []
    return Order.objects.get(pk=payment.order_id)


# Stored data
# ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("talkative")
def test_no_shopper_details_are_stored(
    world: World,
) -> None:
    """This covers notifications, answers and errors."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.notification(
        payment,
        json.dumps({"status": "success", "data": PERSONAL, **PERSONAL}),
        "application/json",
    )
    world.client.get(f"/payments/return/{payment.return_key}/", PERSONAL)
    refund = queueing.refund(
        payment.pk,
        "1.00",
        staff="clerk",
        reason=f"asked by ann@shopper.example, {SAID}",
    )
    world.client.post(f"/payments/refund-notification/{refund.notification_key}/", PERSONAL)
    assert Notification.objects.filter(kind="payment").latest("pk").evidence == {
        "status": "success",
    }
    assert (refund.status, refund.answer) == (
        "failed",
        "the gateway refused: 000020 'card *** of ***' (HTTP 400)",
    )
    assert refund.reason == "asked by ***, card *** of ***"
    paid = TimelineEntry.objects.get(event="payment.paid").evidence
    assert (paid["reference"], paid["status"]) == (payment.reference, "success"), (
        "what decides is kept"
    )
    assert traces() == []


def test_handler_errors_are_stored_without_addresses(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call_owner = hooks.call_owner

    def failing(plugin: str, hook: str, **arguments: Any) -> Any:
        return (
            _raise() if hook == "tillgate_payment_paid" else call_owner(plugin, hook, **arguments)
        )

    monkeypatch.setattr("tillgate.hooks.call_owner", failing)
    world.paid_payment()
    for _ in range(3):
        world.time.advance(hours=1)
        world.run_worker()
    assert (
        Review.objects.get(reason="delivery-failing").facts["error"]
        == "ValueError: Key (email)=(***), card ***"
    )
    assert traces() == []


def _raise(**_: Any) -> None:
    raise ValueError("Key (email)=(ann@shopper.example), card 4111111111111111")


def test_staff_notes_are_stored_without_addresses(world: World) -> None:
    payment = world.paid_payment()
    open_review(ReviewReason.OVERPAID, {"found": "2.00", "expected": "1.00"}, "worker", payment)
    closing.resolve(Review.objects.get().pk, f"talked to ann@shopper.example, {SAID}", "clerk")
    assert Review.objects.get().resolution == "talked to ***, card *** of ***"
    assert traces() == []


def test_compared_number_is_stored_unchanged(world: World) -> None:
    payment = world.paid_payment()
    facts = {"expected": "4111111111111111", "found": "5500005555555559"}
    open_review(ReviewReason.TRANSACTION_NO_MISMATCH, facts, "worker", payment)
    assert Review.objects.get().facts.items() >= facts.items()


def test_gateway_plugin_declares_kept_fields(
    world: World,
    configure: Callable[..., None],
) -> None:
    account = world.gateway.account()
    assert isinstance(account, Account)
    configure({"DIALECT": replace(account.dialect, kept_fields=frozenset({"charge"}))})
    world.notification(world.start(world.order()), "charge=c-1&status=success&payerName=Ann")
    assert Notification.objects.get().evidence == {"charge": "c-1"}
    created = TimelineEntry.objects.get(event="payment.pending").evidence
    assert created == {}


# Retention ----------------------------------------------------------------------------------------


def test_worker_purges_details_after_600_days(world: World) -> None:
    """Amounts and payments are kept."""
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "1.00", staff="clerk", reason="it was broken")
    open_review(ReviewReason.OVERPAID, {"found": "2.00", "answer": "sorry"}, "worker", payment)
    closing.resolve(Review.objects.get().pk, "talked to the shopper", "clerk")
    world.run_worker()
    before = world.fresh(payment)
    old(world, payment, 599)
    assert Notification.objects.exists()
    assert Refund.objects.get().reason == "it was broken"
    old(world, payment, 2)
    after, refund = world.fresh(payment), Refund.objects.get(pk=refund.pk)
    kept = (
        "reference",
        "transaction_no",
        "amount",
        "currency",
        "status",
        "status_since",
        "method",
        "account",
        "notification_key",
    )
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (after.description, after.payment_url, after.last_notification) == ("", "", "")
    assert (refund.amount, refund.status, refund.reason, refund.answer) == (1, "succeeded", "", "")
    review = Review.objects.get()
    assert (
        review.facts["found"],
        "answer" in review.facts,
        review.resolution,
        review.resolved_by,
    ) == ("2.00", False, "", "clerk")
    assert review.message, "a review can still be shown"
    assert not Notification.objects.exists()
    assert not TimelineEntry.objects.exclude(message="", evidence={}).exists()
    events = TimelineEntry.objects.order_by("pk").values_list("event", flat=True)
    assert ("payment.paid" in events, list(events)[-1]) == (True, "order.erased")


def test_purged_order_is_checked_every_month(world: World) -> None:
    """The check comes after 30 days and purges nothing twice."""
    payment = world.paid_payment()
    order = old(world, payment)
    assert TimelineEntry.objects.filter(event="order.erased").count() == 1
    assert order.purge_check_at
    assert timedelta(days=29) < order.purge_check_at - timezone.now() <= timedelta(days=30)
    old(world, payment, 40)
    assert TimelineEntry.objects.filter(event="order.erased").count() == 1


def test_data_after_purge_is_purged_later(world: World) -> None:
    payment = world.paid_payment()
    old(world, payment)
    world.notification(payment, "status=success&time=now")
    assert Notification.objects.count() == 1
    old(world, payment, 601)
    assert not Notification.objects.exists()


def _open_review(payment: Payment) -> None:
    open_review(ReviewReason.OVERPAID, {"found": "2.00"}, "worker", payment)


def _waiting_event(payment: Payment) -> None:
    enqueue_remote(payment.order.plugin, payment.order.key, "mail")


def _polled(payment: Payment) -> None:
    Payment.objects.update(next_poll_at=payment.created_at.replace(year=2999))


def _refund(status: str) -> Callable[[Payment], None]:
    def made(payment: Payment) -> None:
        refund = queue(payment)
        Refund.objects.filter(pk=refund.pk).update(status=status, due_at=None)

    return made


OPEN = {
    "review": (_open_review, "open review"),
    "event": (_waiting_event, "not delivered"),
    **{
        status: (_refund(status), "refund without an outcome")
        for status in ("queued", "sending", "pending", "unknown")
    },
}


@pytest.mark.parametrize("case", [*OPEN, "polled"])
def test_unfinished_order_is_not_purged(world: World, case: str) -> None:
    """Nothing is purged while a payment, refund or review is open, or anything else of the
    order.
    """
    payment = world.paid_payment()
    world.time.advance(days=601)
    world.run_worker()
    Order.objects.update(purge_check_at=payment.created_at)
    (_polled if case == "polled" else OPEN[case][0])(payment)
    world.time.advance(days=601)
    Notification.objects.create(
        payment=payment,
        kind="payment",
        slot=9,
        received_at=payment.created_at,
        method="POST",
        signature="absent",
    )
    assert not retention.purge_order(payment.order_id, payment.created_at)
    assert Notification.objects.filter(slot=9).exists()
    order = Order.objects.get()
    assert order.purge_check_at
    assert order.purge_check_at > payment.created_at, "it is checked again"


def test_open_payment_is_never_purged(
    world: World,
    configure: Callable[..., None],
) -> None:
    """A shorter setting takes effect within 30 days."""
    payment = world.start(world.order())
    order = Order.objects.get()
    Order.objects.update(purge_check_at=order.created_at)
    configure({}, DETAILS_KEPT_DAYS=1, DISPUTABLE_DAYS=30)
    assert not retention.purge_order(order.pk, order.created_at)
    world.shopper_pays(payment)
    world.notification(payment)
    old(world, payment, 400)
    assert TimelineEntry.objects.filter(event="order.erased").exists()


def test_shop_may_keep_details_for_ever(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure({}, DETAILS_KEPT_DAYS=None)
    old(world, world.paid_payment(), 4000)
    assert Notification.objects.exists()


def test_worker_purges_orders_once(world: World) -> None:
    for _ in range(3):
        world.paid_payment()
    world.time.advance(days=601)
    assert world.run_worker().counts["orders to purge"] == 3
    assert TimelineEntry.objects.filter(event="order.erased").count() == 3
    assert world.run_worker().counts["orders to purge"] == 0


def test_orders_are_deleted_only_when_configured(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Whole orders are deleted only after the number of days that the shop sets."""
    payment = world.paid_payment()
    queueing.refund(payment.pk, "1.00")
    _open_review(payment)
    closing.resolve(Review.objects.get().pk, "", "clerk")
    world.run_worker()
    old(world, payment, 4000)
    assert Payment.objects.exists(), "payments are kept unless the shop sets days"
    configure({}, PAYMENTS_KEPT_DAYS=4030)
    old(world, payment, 20)
    assert Payment.objects.exists()
    world.time.advance(days=31)
    world.run_worker()
    left = everything()
    assert left.count('"model": "tillgate.') == left.count(
        '"model": "tillgate.heartbeat"',
    ) + left.count('"model": "tillgate.lane"')


def test_payments_outlive_their_details(
    world: World,
    configure: Callable[..., None],
) -> None:
    for settings in (
        {"PAYMENTS_KEPT_DAYS": 599},
        {"PAYMENTS_KEPT_DAYS": 9999, "DETAILS_KEPT_DAYS": None},
    ):
        configure({}, **settings)
        with pytest.raises(ConfigurationError, match="PAYMENTS_KEPT_DAYS"):
            get_settings()
    configure({}, PAYMENTS_KEPT_DAYS=600)
    assert get_settings().payments_kept_days == 600


# Erasure and export -------------------------------------------------------------------------------


def run(*words: str) -> str:
    out = StringIO()
    call_command("tillgate", *words, stdout=out, no_color=True)
    return out.getvalue()


def test_export_holds_all_data_without_keys(world: World) -> None:
    payment = world.paid_payment()
    queueing.refund(payment.pk, "1.00", reason="broken")
    world.paid_payment()
    plugin, key = payment.order.plugin, payment.order.key
    exported = json.loads(run("export-order", plugin, key))
    assert [one["reference"] for one in exported["payments"]] == [payment.reference]
    assert exported["refunds"][0]["reason"] == "broken"
    assert len(exported["timeline"]) == payment.order.timeline.count()
    assert exported["notifications"][0]["kind"] == "payment"
    fresh = world.fresh(payment)
    for secret in (fresh.notification_key, fresh.return_key, fresh.payment_url):
        assert secret not in json.dumps(exported)
    assert exported["payments"][0]["amount"] == "12.50"


def test_erasing_needs_apply_and_happens_once(world: World) -> None:
    """Without --apply nothing is erased."""
    payment, other = world.paid_payment(), world.paid_payment()
    plugin, key = payment.order.plugin, payment.order.key
    before = everything()
    assert run("erase-order", plugin, key).endswith("nothing was written: add --apply\n")
    assert everything() == before
    assert run("erase-order", plugin, key, "--apply").endswith("the details were erased\n")
    assert {one.payment_id for one in Notification.objects.all()} == {other.pk}
    entry = TimelineEntry.objects.latest("pk")
    assert (entry.event, entry.actor, entry.order_id) == (
        "order.erased",
        "staff:erase-order",
        payment.order_id,
    )
    assert run("erase-order", plugin, key, "--apply").endswith("there is nothing to erase\n")
    assert world.fresh(payment).status == "paid"
    refund = queueing.refund(payment.pk, "12.50")
    assert refund.status == "succeeded", "an erased payment can still be refunded"


def test_texts_of_staff_alone_are_details_too(world: World) -> None:
    payment = world.paid_payment()
    plugin, key = payment.order.plugin, payment.order.key
    refund = queueing.refund(payment.pk, "1.00", reason="Ada's jar broke")
    _open_review(payment)
    closing.resolve(Review.objects.get().pk, "Ada called", "clerk")
    world.run_worker()
    Review.objects.update(order=None, payment=None, refund=refund)
    assert shop.erase_order(plugin, key)
    Refund.objects.update(reason="Ada's jar broke")
    assert shop.erase_order(plugin, key)
    Review.objects.update(resolution="Ada called")
    assert shop.erase_order(plugin, key)
    assert "Ada" not in str(
        [*Refund.objects.values(), *Review.objects.values(), *TimelineEntry.objects.values()],
    )
    assert not shop.erase_order(plugin, key)


@pytest.mark.parametrize("case", OPEN)
def test_unfinished_order_refuses_erasure(
    world: World,
    case: str,
) -> None:
    """The error names the open payment or refund."""
    payment = world.paid_payment()
    OPEN[case][0](payment)
    before = everything()
    with pytest.raises(InvalidRequest, match=OPEN[case][1]):
        retention.erase_order(payment.order.plugin, payment.order.key, "staff:ann")
    assert everything() == before


def test_order_with_open_payment_refuses_erasure(world: World) -> None:
    payment = world.start(world.order())
    with pytest.raises(CommandError, match="open payment"):
        run("erase-order", payment.order.plugin, payment.order.key, "--apply")


@pytest.mark.parametrize("command", ["export-order", "erase-order"])
def test_an_unknown_order_is_an_error(command: str) -> None:
    with pytest.raises(CommandError, match="order_key: 'nobody' is no order of plugin 'oscar'"):
        run(command, "oscar", "nobody")


# Documentation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    list(apps.get_app_config("tillgate").get_models()),
    ids=lambda model: model.__name__,
)
def test_personal_data_page_lists_every_field(model: Any) -> None:
    """It says for each field whether it is erased."""
    listed = rows(section(read("docs/reference/personal-data.md"), model.__name__))
    assert sorted(listed) == sorted(field.name for field in model._meta.concrete_fields)
    assert {cells[-1] for cells in listed.values()} <= {"order", "details", "state"}


def test_only_documented_details_are_erased(world: World) -> None:
    """Every field that the page calls details is erased, and no other field is."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.notification(payment, "status=success")
    queueing.refund(payment.pk, "1.00", reason="broken")
    payment.refresh_from_db()
    _open_review(payment)
    Review.objects.update(evidence={"reference": "r"})
    closing.resolve(Review.objects.get().pk, "a note", "clerk")
    world.run_worker()
    payment.order.outbox_events.update(fault="it failed")
    Payment.objects.update(details={"dashboard_url": "https://gateway.example/1"}, last4="4242")
    models: tuple[Any, ...] = (Order, Payment, Refund, TimelineEntry, Review, OutboxEvent)
    before = {model: list(model.objects.order_by("pk").values()) for model in models}
    retention.erase_order(payment.order.plugin, payment.order.key, "staff:ann")
    page = read("docs/reference/personal-data.md")
    for model, old_rows in before.items():
        changed = {
            name
            for old_row, new_row in zip(
                old_rows,
                model.objects.order_by("pk").values(),
                strict=False,
            )
            for name in old_row
            if old_row[name] != new_row[name]
        }
        assert changed == {
            name
            for name, cells in rows(section(page, model.__name__)).items()
            if cells[-1] == "details"
        }, model
    assert not Notification.objects.exists()
