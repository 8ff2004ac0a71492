"""The address of an account: a gateway plugin verifies its notifications, and Tillgate believes
only the answers to its queries (I7).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from tests.toy_gateway import SECRET, TOY, URL, Toy, ToyPlugin, signed
from tillgate import (
    Account,
    AnswerNotUnderstood,
    NotSent,
    OrderNotFound,
    Refused,
    WrongCredentials,
    hooks,
    shop,
)
from tillgate.django import actions
from tillgate.django.accounting.audit import audit
from tillgate.django.models import Notification, Payment, Refund, Review, TimelineEntry
from tillgate.django.operating.findings import examine
from tillgate.django.operating.health import health
from tillgate.django.payments import restores, starting
from tillgate.django.payments.admission import NotPayable
from tillgate.django.payments.restores import look_for_restore, note_restored
from tillgate.django.payments.webhooks import find_payment
from tillgate.django.refunds import limits, queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.reviews import closing
from tillgate.lifecycle import ReviewAction
from tillgate.shop import against_shipping
from tillgate.testing.world import World, together


class Shop(ToyPlugin):
    """The toy, which keeps an account of a name."""

    @hooks.hookimpl
    def tillgate_account(self, alias: str) -> Account | None:
        return (
            Account(base_url=URL, merchant_no="T-1", token=SECRET, dialect=TOY)
            if alias == "kept by the toy"
            else None
        )


@pytest.fixture
def toy(world: World) -> Iterator[Toy]:
    """The shop's account is at the toy gateway."""
    toy = Toy()
    plugin = Shop(toy)
    hooks.plugin_manager().register(plugin, name="toy")
    dialect = replace(TOY, kept_fields=frozenset({"name", "kind"}))
    world.configure(
        {
            "BASE_URL": URL,
            "MERCHANT_NO": "T-1",
            "TOKEN": SECRET,
            "SANDBOX": False,
            "DIALECT": dialect,
        },
    )
    yield toy
    hooks.plugin_manager().unregister(plugin)


def notified(
    world: World,
    name: str,
    *,
    secret: str = SECRET,
    alias: str = "default",
    **more: Any,
) -> Any:
    body = json.dumps({"name": name, **more}).encode()
    headers = {"x-toy-signature": signed(secret, body)["X-Toy-Signature"]}
    return world.client.post(
        f"/payments/webhook/{alias}/",
        body,
        content_type="application/json",
        headers=headers,
    )


def paid_at_toy(world: World, toy: Toy) -> Payment:
    payment = world.start(world.order())
    toy.payments[payment.reference].state = "paid"
    return payment


def test_signed_notification_queries_its_payment(world: World, toy: Toy) -> None:
    """The notification is kept."""
    payment = paid_at_toy(world, toy)
    answer = notified(world, payment.reference)
    assert (answer.status_code, answer.content) == (200, b"")
    assert world.fresh(payment).status == "paid"
    assert world.shop.is_paid(payment.order.key)
    kept = Notification.objects.get(payment=payment)
    assert (kept.kind, kept.method, kept.evidence) == (
        "payment",
        "POST",
        {"name": payment.reference},
    )


def test_i7_signed_notification_is_only_a_hint(world: World, toy: Toy) -> None:
    payment = world.start(world.order())
    assert notified(world, payment.reference, status="success", amount="12.50").status_code == 200
    assert world.fresh(payment).status == "pending"


def test_forged_notification_is_refused_and_counted(
    world: World,
    toy: Toy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = paid_at_toy(world, toy)
    events: list[hooks.Event] = []
    monkeypatch.setattr(hooks, "emit", events.append)
    answer = notified(world, payment.reference, secret="of somebody else")  # no secret
    assert answer.status_code == 400
    assert world.fresh(payment).status == "pending"
    [kept] = Notification.objects.all()
    assert (kept.account, kept.signature, kept.payment, kept.evidence) == (
        "default",
        "forged",
        None,
        {},
    )
    assert [(event.name, event.fields) for event in events] == [
        ("notification.forged", {"account": "default"}),
    ]
    assert "'default'" in caplog.text


def test_unreadable_notification_is_refused(
    world: World,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(*_: object) -> Any:
        raise AnswerNotUnderstood("no JSON")

    monkeypatch.setattr(hooks, "read_notification", unreadable)
    assert notified(world, "x").status_code == 400


def test_i3_a_replayed_notification_takes_effect_once(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    assert [notified(world, payment.reference).status_code for _ in range(3)] == [200, 200, 200]
    assert world.shop.times_paid(payment.order.key) == 1
    assert world.fresh(payment).status == "paid"


def test_unknown_payments_notification_is_acknowledged(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    assert notified(world, "of-other-software").status_code == 200
    assert world.fresh(payment).status == "pending"
    assert Notification.objects.count() == 0


@pytest.mark.parametrize("days", [None, 2, 4])
def test_i2_lost_payment_reported_after_restore(
    world: World,
    toy: Toy,
    days: int | None,
) -> None:
    """For three days, notifications at the account's address report it."""
    payment = paid_at_toy(world, toy)
    TimelineEntry.objects.all().delete()
    payment.delete()
    if days:
        note_restored(timezone.now(), "restored")
        Review.objects.all().delete()
        world.time.advance(days=days)
    assert [notified(world, payment.reference).status_code for _ in range(2)] == [200, 200]
    assert notified(world, "of-other-software").status_code == 200
    assert toy.calls["query"] == 0, "the worker asks"
    world.run_worker()
    assert world.reviews() == (["rows-lost"] if days == 2 else [])


def test_i2_lost_payment_needs_no_worker(
    world: World,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is reported although no worker has noticed the restore yet."""
    payment = paid_at_toy(world, toy)
    monkeypatch.setattr(restores, "_server", lambda: "7:00000001")
    look_for_restore()  # the worker's last look
    monkeypatch.setattr(restores, "_server", lambda: "7:00000002")
    TimelineEntry.objects.all().delete()
    payment.delete()
    assert notified(world, payment.reference).status_code == 200
    world.run_worker()
    lost = Review.objects.filter(reason="rows-lost")
    assert [review.facts.get("reference") for review in lost.order_by("pk")] == [
        None,
        payment.reference,
    ]


def test_account_finds_only_its_own_payments(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    assert notified(world, payment.reference, alias="kept by the toy").status_code == 200
    assert world.fresh(payment).status == "pending"


def test_payment_is_found_by_transaction_number(
    world: World,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = paid_at_toy(world, toy)
    monkeypatch.setattr(
        hooks,
        "read_notification",
        lambda *_: (hooks.Hint(transaction_no=toy.payments[payment.reference].number),),
    )
    notified(world, "x")
    assert world.fresh(payment).status == "paid"


class Disputing(Shop):
    """The toy, whose notification of a dispute names neither a reference nor the payment's
    number.
    """

    def __init__(self, toy: Toy) -> None:
        super().__init__(toy)
        self.numbers, self.may_answer = dict[str, str](), threading.Event()
        self.may_answer.set()

    @hooks.hookimpl
    def tillgate_read_notification(  # type: ignore[override]
        self,
        body: bytes,
    ) -> list[hooks.Hint]:
        return [hooks.Hint(transaction_no=json.loads(body)["charge"])]

    @hooks.hookimpl
    def tillgate_query(  # type: ignore[override]
        self,
        account: Account,
        reference: str,
        transaction_no: str | None,
        deadline_seconds: float | None,
    ) -> Any:
        if transaction_no in self.numbers:
            assert self.may_answer.wait(60), "a question to a gateway that hangs"
            reference = self.numbers[transaction_no]
        return super().tillgate_query(account, reference, deadline_seconds)


@pytest.fixture
def disputing(toy: Toy) -> Iterator[Disputing]:
    plugin, manager = Disputing(toy), hooks.plugin_manager()
    former = manager.unregister(name="toy")
    manager.register(plugin, name="toy")
    yield plugin
    manager.unregister(plugin)
    manager.register(former, name="toy")


def charged(world: World, charge: str) -> Any:
    body = json.dumps({"charge": charge}).encode()
    return world.client.post("/payments/webhook/default/", body, content_type="application/json")


def test_worker_finds_the_payment_of_a_dispute(
    world: World,
    toy: Toy,
    disputing: Disputing,
) -> None:
    """A number that names no payment here is stored; the worker asks the gateway, and polls the
    payment.
    """
    payment = paid_at_toy(world, toy)
    notified_at = world.fresh(payment).next_poll_at
    disputing.numbers["ch-1"] = payment.reference
    before = toy.calls["query"]
    assert [charged(world, "ch-1").status_code for _ in range(3)] == [200, 200, 200]
    assert toy.calls["query"] == before, "the web process asked the gateway"
    [waiting] = Notification.objects.all()
    assert (waiting.account, waiting.unmatched, waiting.due_at is not None) == (
        "default",
        "ch-1",
        True,
    )
    assert world.fresh(payment).next_poll_at == notified_at
    world.time.advance(seconds=10)
    world.run_worker()
    assert not Notification.objects.filter(payment=None).exists()
    world.run_worker()  # work that falls due in a run is the next one's
    assert world.fresh(payment).status == "paid"


def test_hanging_gateway_holds_no_webhook(world: World, toy: Toy, disputing: Disputing) -> None:
    """Sixteen simultaneous true disputes, while each question to the gateway hangs: all are
    answered.
    """
    payments = [paid_at_toy(world, toy) for _ in range(16)]
    disputing.numbers |= {
        f"ch-{number}": payment.reference for number, payment in enumerate(payments)
    }
    disputing.may_answer.clear()
    page = partial(world.client.get, reverse("tillgate:status", args=[payments[0].return_key]))
    calls = [lambda number=number: charged(world, f"ch-{number}") for number in range(16)]
    answers = together(*calls, page)
    assert not disputing.may_answer.is_set()
    assert {getattr(answer, "status_code", answer) for answer in answers} == {200}
    assert Notification.objects.filter(due_at__isnull=False).count() == 16
    disputing.may_answer.set()
    world.run_worker()
    world.run_worker()  # work that falls due in a run is the next one's
    assert {world.fresh(payment).status for payment in payments} == {"paid"}


def test_worker_asks_again_about_a_notification(
    world: World,
    toy: Toy,
    disputing: Disputing,
) -> None:
    """While the gateway does not answer, the notification waits, longer each time, and for 30 days
    at most.
    """
    payment = paid_at_toy(world, toy)
    disputing.numbers["ch-1"] = payment.reference
    charged(world, "ch-1")
    for _ in range(2):
        toy.lost.add("query")
        find_payment(Notification.objects.get())
        waiting = Notification.objects.get()
        assert waiting.due_at is not None
        assert waiting.due_at >= timezone.now() + timedelta(seconds=55)
        world.time.advance(minutes=10)
    world.time.advance(days=30)
    toy.lost.add("query")
    find_payment(Notification.objects.get())
    assert not Notification.objects.exists()


def test_repeated_event_brings_its_query_forward(
    world: World,
    toy: Toy,
    disputing: Disputing,
) -> None:
    disputing.numbers["ch-1"] = paid_at_toy(world, toy).reference
    charged(world, "ch-1")
    world.time.advance(days=10)
    toy.lost.add("query")
    find_payment(Notification.objects.get())
    due_at = Notification.objects.get().due_at
    assert due_at is not None
    assert due_at <= timezone.now() + timedelta(hours=1)
    charged(world, "ch-1")
    assert Notification.objects.filter(due_at__lte=timezone.now()).count() == 1


def test_notification_about_other_software_is_forgotten(
    world: World,
    toy: Toy,
    disputing: Disputing,
) -> None:
    payment = paid_at_toy(world, toy)
    charged(world, "ch-of-nobody")
    world.run_worker()
    assert not Notification.objects.filter(payment=None).exists()
    assert world.reviews() == []
    assert world.fresh(payment).status == "pending"


@pytest.mark.parametrize("name", ["\0", "x" * 300, "", 7, None, {"a": 1}])
def test_strange_name_in_a_hint_is_acknowledged(
    world: World,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    name: Any,
) -> None:
    """Other software at the same gateway account chooses its references freely."""
    for hint in (hooks.Hint(reference=name), hooks.Hint(transaction_no=name)):
        monkeypatch.setattr(hooks, "read_notification", lambda *_, hint=hint: (hint,))
        assert notified(world, "x").status_code == 200
    assert Notification.objects.count() == 0


@pytest.mark.parametrize(
    "error",
    [
        Refused("forbidden", "no", 403),
        WrongCredentials("unauthorised", "no key", 401),
        OrderNotFound("unknown", "none", 404),
        NotSent("query", "x", "no connection"),
        KeyError("a bug of the plugin"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failing_plugin_is_asked_again(
    world: World,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """The gateway's refusal of a plugin's own call, or its bug, is no error 500 of the shop."""
    monkeypatch.setattr(hooks, "read_notification", Mock(side_effect=error))
    answer = notified(world, "x")
    assert (answer.status_code, answer["Retry-After"]) == (503, "60")


def test_notification_about_two_payments_queries_one(
    world: World,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payments = [paid_at_toy(world, toy) for _ in range(2)]
    hints = tuple(hooks.Hint(reference=payment.reference) for payment in payments)
    monkeypatch.setattr(hooks, "read_notification", lambda *_: hints)
    before = toy.calls["query"]
    notified(world, "x")
    assert toy.calls["query"] == before + 1
    world.run_worker()
    assert [world.fresh(payment).status for payment in payments] == ["paid", "paid"]


def test_refused_notifications_open_one_review(world: World, toy: Toy) -> None:
    """A wrong secret is seen: 60 refused notifications open one review, and doctor and health
    count.
    """
    payment = paid_at_toy(world, toy)
    for number in range(60):
        # no secret
        assert notified(world, payment.reference, secret="of somebody else").status_code == 400
        assert world.reviews() == ([] if number < 19 else ["forged-notifications"])
    review = Review.objects.get()
    assert (review.account, review.payment, review.facts["count"]) == ("default", None, "20")
    assert review.message.startswith(
        "Account default: the newest 20 notifications were signed with none",
    )
    assert Notification.objects.count() == 20, "strangers cannot fill the table"
    [account] = health().accounts
    assert account.refused_notifications == 20
    [finding] = [one for one in examine() if one.name == "notifications of default"]
    assert not finding.passed
    assert "WEBHOOK_SECRETS" in finding.finding
    closing.resolve(review.pk, "the secret was corrected", "ann")
    assert (health().accounts[0].refused_notifications, world.reviews()) == (0, [])
    for _ in range(20):
        notified(world, payment.reference, secret="of somebody else")  # no secret
    assert world.reviews() == ["forged-notifications"]


def test_wrong_token_is_seen_across_payments(world: World) -> None:
    """No single payment has many forged notifications; their account has."""
    forged = "status=success&verifySign=00000000000000000000000000000000"
    for number in range(20):
        assert world.reviews() == []
        world.notification(world.start(world.order()), forged)
        assert health().accounts[0].refused_notifications == number + 1
    review = Review.objects.get()
    assert (review.reason, review.account, review.payment) == (
        "forged-notifications",
        "default",
        None,
    )


def test_true_notification_resets_refused_count(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    for _ in range(3):
        for _ in range(19):
            notified(world, payment.reference, secret="of somebody else")  # no secret
        world.time.advance(seconds=10)
        notified(world, payment.reference, number=str(world.time.now()))
    assert world.reviews() == []
    assert health().accounts[0].refused_notifications == 0


def test_unserved_account_is_not_found(world: World, toy: Toy) -> None:
    """The account is unknown, or no plugin reads its notifications."""
    assert notified(world, "x", alias="nobody").status_code == 404
    world.configure()
    assert notified(world, "x").status_code == 404


def test_webhook_takes_only_bounded_posts(world: World, toy: Toy) -> None:
    assert notified(world, "x" * 70_000).status_code == 413
    assert world.client.get("/payments/webhook/default/").status_code == 405


def test_notification_hastens_pending_refund_poll(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    toy.next_refund = "pending"
    refund = queueing.refund(payment.pk, "2.50")
    assert refund.status == "pending"
    for one in toy.payments[payment.reference].refunds.values():
        one["state"] = "succeeded"
    world.run_worker()
    assert Refund.objects.get(pk=refund.pk).status == "pending"  # its poll is not due yet
    notified(world, payment.reference, about="a refund")
    world.run_worker()
    assert Refund.objects.get(pk=refund.pk).status == "succeeded"


def test_plugin_can_get_webhook_address(world: World) -> None:
    assert (
        shop.webhook_url("default")
        == f"{settings.TILLGATE['PUBLIC_URL']}/payments/webhook/default/"
    )


def disputed(status: hooks.DisputeStatus) -> hooks.ReportedDispute:
    due = datetime(2027, 1, 5, 18, tzinfo=UTC)
    return hooks.ReportedDispute(
        amount=Decimal("12.50"),
        status=status,
        dispute_no="D-7",
        respond_by=due,
    )


def test_dispute_opens_review_until_it_ends(
    world: World,
    toy: Toy,
) -> None:
    """The review of a paid payment opens immediately."""
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    toy.payments[payment.reference].disputes = (disputed(hooks.DisputeStatus.OPEN),)
    notified(world, payment.reference, about="a dispute")
    review = Review.objects.get(reason="disputed")
    assert (
        "USD 12.50" in review.message,
        "D-7" in review.message,
        "Jan. 5, 2027, noon" in review.message,
    ) == (True, True, True)
    assert ReviewAction.RECORD_EXTERNAL_REFUND not in actions.actions_for(review), (
        "nothing is lost yet"
    )
    with pytest.raises(limits.RefundNotPossible, match="until the shopper's bank has decided"):
        queueing.refund(payment.pk, "2.50")
    assert world.shop.is_paid(payment.order.key)
    toy.payments[payment.reference].disputes = (disputed(hooks.DisputeStatus.WON),)
    notified(world, payment.reference, about="its end")
    assert world.reviews() == []
    assert queueing.refund(payment.pk, "2.50").status == "succeeded"


def test_review_at_gateway_holds_until_approved(world: World, toy: Toy) -> None:
    """The order is paid immediately; its review ends with that at the gateway, and blocks no
    refund.
    """
    payment = paid_at_toy(world, toy)
    toy.payments[payment.reference].manual_review = "rule"
    notified(world, payment.reference)
    assert world.shop.is_paid(payment.order.key)
    review = Review.objects.get(reason="manual-review")
    assert "review the payment by hand (rule)" in review.message
    assert against_shipping(world.shop.plugin, [payment.order.key])
    assert queueing.refund(payment.pk, "2.50").status == "succeeded"
    assert Payment.objects.get(pk=payment.pk).next_poll_at is not None
    toy.payments[payment.reference].manual_review = None
    notified(world, payment.reference, about="its approval")
    assert world.reviews() == []
    assert against_shipping(world.shop.plugin, [payment.order.key]) == {}


def test_lost_dispute_waits_for_staff_record(
    world: World,
    toy: Toy,
) -> None:
    """Staff record it as an external refund."""
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    toy.payments[payment.reference].disputes = (disputed(hooks.DisputeStatus.LOST),)
    notified(world, payment.reference, about="a dispute")
    assert world.reviews() == ["disputed"]
    assert ReviewAction.RECORD_EXTERNAL_REFUND in actions.actions_for(Review.objects.get())
    record_external_refund(payment.pk, "12.50", staff="ann")
    notified(world, payment.reference, about="more")
    assert world.reviews() == []
    assert world.shop.refunded(payment.order.key) == Decimal("12.50")


def test_refund_failing_afterwards_opens_one_review(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    queueing.refund(payment.pk, "2.50")
    for one in toy.payments[payment.reference].refunds.values():
        one["state"] = "failed"
    for number in range(3):
        notified(world, payment.reference, number=number)
    assert world.reviews() == ["refund-returned"]
    assert Refund.objects.get().status == "succeeded"


def test_returned_refund_is_told_everywhere(world: World, toy: Toy) -> None:
    """The shopper, the clerk and the ledger check read it."""
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    queueing.refund(payment.pk, str(payment.amount))
    for one in toy.payments[payment.reference].refunds.values():
        one["state"] = "failed"
    notified(world, payment.reference, number=1)
    page = world.client.get(f"/payments/return/{payment.return_key}/?wait=1").content.decode()
    assert "Your refund came back to the shop" in page
    assert "is on its way back" not in page
    now = timezone.now()
    differences = audit(now - timedelta(days=1), now + timedelta(seconds=1))
    assert "refund-returned" in {one.kind for one in differences}
    lines = shop.clerk_timeline(payment.order.plugin, payment.order.key)
    assert lines[-1].text == "Needs review: A refund came back"


def test_money_under_way_keeps_order_waiting(
    world: World,
    toy: Toy,
) -> None:
    """The order waits beyond its time to pay."""
    payment = world.start(world.order())
    toy.payments[payment.reference].state = "under way"
    notified(world, payment.reference)
    world.time.advance(days=3)
    world.run_worker()
    stands = world.fresh(payment)
    assert (stands.status, stands.is_processing, world.reviews()) == ("pending", True, [])
    assert not world.shop.is_released(payment.order.key)
    toy.payments[payment.reference].state = "paid"
    notified(world, payment.reference, about="the end")
    assert (world.fresh(payment).status, world.fresh(payment).is_processing) == ("paid", False)
    assert world.shop.is_paid(payment.order.key)


def test_failed_money_under_way_releases_order(world: World, toy: Toy) -> None:
    payment = world.start(world.order())
    toy.payments[payment.reference].state = "under way"
    notified(world, payment.reference)
    world.time.advance(days=3)
    toy.payments[payment.reference].state = "declined"
    notified(world, payment.reference, about="the end")
    world.a_day_passes()
    assert world.shop.is_released(payment.order.key)


def test_i4_money_under_way_stops_second_payment(
    world: World,
    toy: Toy,
) -> None:
    """It is found when the shopper tries to pay again."""
    payment = world.start(world.order())
    toy.payments[payment.reference].state = "under way"
    answer = world.choose(payment.order.key, "alipay")
    assert (answer.status_code, Payment.objects.count()) == (409, 1)
    assert b"on its way" in answer.content
    with pytest.raises(NotPayable):
        world.start(payment.order.key)
    assert (
        starting.start_payment(
            "smallest-shop",
            payment.order.key,
            method="alipay",
            despite=[payment.reference],
        ).payment.pk
        != payment.pk
    )


def test_staff_cannot_end_payment_under_way(world: World, toy: Toy) -> None:
    payment = world.start(world.order())
    toy.payments[payment.reference].state = "under way"
    notified(world, payment.reference)
    world.time.advance(days=2)
    toy.lost.add("query")
    world.run_worker()
    assert world.reviews() == [], (
        "one lost answer is no sign of a gateway that does not answer for hours"
    )


def test_repeated_portal_refund_closes_review(
    world: World,
    toy: Toy,
) -> None:
    """A returned refund is made again in the portal, and polling stops."""
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    queueing.refund(payment.pk, "12.50")
    for one in toy.payments[payment.reference].refunds.values():
        one["state"] = "failed"
    notified(world, payment.reference, number=1)
    assert world.reviews() == ["refund-returned"]
    toy.refund(payment.reference, "portal", 1250, "USD")
    notified(world, payment.reference, number=2)
    assert world.reviews() == []
    assert world.shop.refunded(payment.order.key) == Decimal("12.50")
    due = world.fresh(payment).next_poll_at
    assert due is not None
    assert due > world.time.now() + timedelta(minutes=30)
    world.a_day_passes()
    assert world.reviews() == []


def test_open_dispute_is_polled_longer(
    world: World,
    toy: Toy,
) -> None:
    """Polling goes on after the last poll of a paid payment."""
    payment = paid_at_toy(world, toy)
    notified(world, payment.reference)
    toy.payments[payment.reference].disputes = (disputed(hooks.DisputeStatus.OPEN),)
    notified(world, payment.reference, about="a dispute")
    world.time.advance(days=45)
    world.run_worker()
    assert world.reviews() == ["disputed"]
    toy.payments[payment.reference].disputes = (disputed(hooks.DisputeStatus.WON),)
    world.time.advance(days=5)
    world.run_worker()
    assert world.reviews() == []


def test_shopper_is_warned_before_paying_again(
    world: World,
    toy: Toy,
) -> None:
    """The page says that the money is on its way, and asks first."""
    payment = world.start(world.order())
    toy.payments[payment.reference].state = "under way"
    page = world.come_back(payment)
    assert (b"on its way" in page.content, b"stands=under-way" in page.content) == (True, True)
    status = world.client.get(reverse("tillgate:status", args=[payment.return_key])).json()
    assert status == {"status": "pending", "settled": True}
    again = world.choose(payment.order.key)
    assert (again.status_code, b"on its way" in again.content) == (200, True)
    assert Payment.objects.count() == 1


def test_kept_notification_has_no_shopper_data(world: World, toy: Toy) -> None:
    payment = paid_at_toy(world, toy)
    notified(
        world,
        payment.reference,
        data={"email": "ann@shopper.example"},
        kind="paid",
        payerName="Ann",
    )
    assert Notification.objects.get(payment=payment).evidence == {
        "name": payment.reference,
        "kind": "paid",
    }


class Numbered(Shop):
    """The toy that finds a payment by its number alone, which its notifications bring."""

    @hooks.hookimpl
    def tillgate_query(  # type: ignore[override]
        self,
        account: Account,
        reference: str,
        transaction_no: str | None,
        deadline_seconds: float | None,
    ) -> Any:
        if transaction_no is None:
            raise AnswerNotUnderstood("the toy finds no payment without its number")
        return super().tillgate_query(account, reference, deadline_seconds)

    @hooks.hookimpl
    def tillgate_read_notification(
        self,
        account: Account,
        headers: Any,
        body: bytes,
    ) -> list[hooks.Hint]:
        [hint] = super().tillgate_read_notification(account, headers, body)
        number = self.toy.payments[str(hint.reference)].number
        return [hooks.Hint(reference=hint.reference, transaction_no=number)]


@pytest.fixture
def numbered(toy: Toy) -> Iterator[Toy]:
    plugin, manager = Numbered(toy), hooks.plugin_manager()
    former = manager.unregister(name="toy")
    manager.register(plugin, name="toy")
    yield toy
    manager.unregister(plugin)
    manager.register(former, name="toy")


def lost_creation(world: World, toy: Toy) -> Payment:
    """Return a payment that got no answer to its creation, and that the shopper paid."""
    toy.lost.add("pay")
    payment = world.start(world.order())
    assert payment.transaction_no is None
    toy.payments[payment.reference].state = "paid"
    return payment


def test_number_from_a_webhook_is_used(world: World, numbered: Toy) -> None:
    payment = lost_creation(world, numbered)
    world.run_worker()
    assert world.fresh(payment).status == "created"
    assert notified(world, payment.reference).status_code == 200
    assert world.fresh(payment).status == "paid"
    assert world.fresh(payment).transaction_no == numbered.payments[payment.reference].number


def test_worker_uses_the_number_later(world: World, numbered: Toy) -> None:
    payment = lost_creation(world, numbered)
    numbered.lost.add("query")
    notified(world, payment.reference)
    assert world.fresh(payment).status == "created"
    Payment.objects.update(next_poll_at=payment.created_at)
    world.run_worker()
    assert world.fresh(payment).status == "paid"


@pytest.mark.parametrize("secret", [SECRET, "of somebody else"])
def test_payment_address_reaches_the_plugin(world: World, numbered: Toy, secret: str) -> None:
    payment = lost_creation(world, numbered)
    body = json.dumps({"name": payment.reference}).encode()
    world.client.post(
        f"/payments/notification/{payment.notification_key}/",
        body,
        content_type="application/json",
        headers={"x-toy-signature": signed(secret, body)["X-Toy-Signature"]},
    )
    fresh = world.fresh(payment)
    is_true = secret == SECRET
    assert (fresh.status, fresh.forged_notifications) == (
        ("paid", 0) if is_true else ("created", 1)
    )
