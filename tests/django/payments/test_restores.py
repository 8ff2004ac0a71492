"""After a restore or a failover: no refund is sent twice, and money of payments that the database
has lost is not overlooked.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connections
from django.utils import timezone

from tillgate.django import dates
from tillgate.django.models import (
    Heartbeat,
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
    database,
)
from tillgate.django.payments import restores
from tillgate.django.payments.restores import look_for_restore, note_restored
from tillgate.django.refunds import queueing
from tillgate.django.reviews import closing
from tillgate.lifecycle import ReviewReason
from tillgate.testing.world import World

LOST = ReviewReason.ROWS_LOST


def lose(*rows: Any) -> None:
    """Let the database lose some rows with all that belongs to them."""
    for row in rows:
        about = {"payment": row} if isinstance(row, Payment) else {"refund": row}
        for model in (OutboxEvent, Review, TimelineEntry, Notification):
            model._default_manager.filter(**about).delete()
        if isinstance(row, Payment):
            Order.objects.filter(pk=row.order_id).update(paid_by=None)
        row.delete()


def sent_and_forgotten(world: World) -> Refund:
    """Return a refund that was sent, but whose sending the database has lost."""
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50")
    assert refund.status == "succeeded"
    lose_tail(refund)
    return refund


def lose_tail(refund: Refund) -> None:
    """Set a refund back to the moment at which it was queued, as a replica knows it that lost the
    last second.
    """
    Refund.objects.filter(pk=refund.pk).update(
        status="queued",
        due_at=timezone.now(),
        answer="",
        refund_no=None,
    )
    TimelineEntry.objects.filter(refund=refund).exclude(event="refund.queued").delete()
    OutboxEvent.objects.filter(refund=refund).delete()


# The refund ---------------------------------------------------------------------------------------


def test_i6_restore_resends_no_queued_refund(world: World) -> None:
    """A refund queued before the restore may have been sent already."""
    refund = sent_and_forgotten(world)
    done = note_restored(timezone.now(), "restored")
    assert (done.refunds, done.payments) == (1, 1)
    for _ in range(3):
        world.run_worker()
        world.time.advance(hours=2)
    refund.refresh_from_db()
    assert (refund.status, str(world.refunded_amount(refund.payment))) == ("unknown", "2.50")
    assert sorted(world.reviews()) == ["refund-unknown", "rows-lost"]
    entries = TimelineEntry.objects.filter(refund=refund).exclude(event="event.delivered")
    events = entries.order_by("pk").values_list("event", flat=True)
    assert list(events) == ["refund.queued", "refund.sending", "refund.unknown", "review.opened"]


def test_refund_queued_after_restore_is_sent(world: World) -> None:
    since = timezone.now()
    world.time.advance(seconds=1)
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50")
    lose_tail(refund)
    assert note_restored(since, "restored").refunds == 0
    refund.refresh_from_db()
    assert refund.status == "queued"


def test_confirmed_queued_refund_is_booked(
    world: World,
) -> None:
    """After a restore, it counts as done if a notification has confirmed it."""
    refund = sent_and_forgotten(world)
    Refund.objects.filter(pk=refund.pk).update(confirmed=True)
    note_restored(timezone.now(), "restored")
    refund.refresh_from_db()
    assert (refund.status, world.reviews()) == ("succeeded", ["rows-lost"])


def test_noting_restore_twice_changes_nothing(world: World) -> None:
    sent_and_forgotten(world)
    since = timezone.now()
    assert [note_restored(since, "restored").refunds for _ in range(2)] == [1, 0]
    assert sorted(world.reviews()) == ["refund-unknown", "rows-lost"]


def test_restore_rechecks_payments_of_last_month(
    world: World,
) -> None:
    old = world.paid_payment()
    world.time.advance(days=31)
    payment = world.paid_payment()
    world.time.advance(days=2)
    world.run_worker()
    world.sandbox.control.set_options({"word_refunded": "refunded"})
    world.sandbox.control.refund(payment.reference, "12.50")  # by a refund with a lost row
    before = world.queries()
    assert note_restored(timezone.now(), "restored").payments == 1
    world.run_worker()
    assert world.queries() == before + 1
    assert world.reviews() == ["rows-lost", "changed-after-paid"]
    assert world.fresh(old).status == "paid"


# The guard ----------------------------------------------------------------------------------------


def test_purged_orders_are_no_restore(world: World) -> None:
    world.configure({}, PAYMENTS_KEPT_DAYS=600, DISPUTABLE_DAYS=30)
    world.run_worker()
    world.time.advance(minutes=1)
    world.paid_payment()
    world.run_worker()
    for _ in range(3):  # a quiet shop: the purge takes the newest entry of the timeline
        world.time.advance(days=601)
        assert world.run_worker().faults == []
    assert not Order.objects.exists()
    assert world.reviews() == []


def test_i6_failover_between_refunds_is_noticed(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both refunds belong to one turn of the worker."""
    refunds = [sent_and_forgotten(world) for _ in range(2)]
    monkeypatch.setattr(
        restores,
        "_server",
        iter(
            ["7:00000001", "7:00000001", "7:00000001", "7:00000002"] + ["7:00000002"] * 9,
        ).__next__,
    )
    look_for_restore()
    world.run_worker()
    assert sorted(Refund.objects.values_list("status", flat=True)) == ["succeeded", "unknown"]
    assert [str(world.refunded_amount(refund.payment)) for refund in refunds] == ["5.00", "2.50"], (
        "the first was sent before it"
    )


@pytest.mark.parametrize(
    ("servers", "noticed"),
    [
        (("7:00000001", "7:00000001"), [False, False]),
        # a replica was promoted
        (
            ("7:00000001", "7:00000002", "7:00000002"),
            [False, True, False],
        ),
        # a dump was loaded into another server
        (
            ("7:00000001", "8:00000001", "8:00000001"),
            [False, True, False],
        ),
        (("", "7:00000001", "7:00000002"), [False, False, True]),
        (("7:00000001", "", "7:00000001"), [False, False, False]),  # it did not tell for a moment
    ],
)
def test_another_server_or_timeline_is_a_restore(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    servers: tuple[str, ...],
    noticed: list[bool],
) -> None:
    answers = [
        one for one, was in zip(servers, noticed, strict=True) for _ in range(2 if was else 1)
    ]
    monkeypatch.setattr(restores, "_server", iter(answers).__next__)
    assert [look_for_restore() for _ in servers] == noticed


def test_normal_operation_notes_no_restore(world: World) -> None:
    payment = world.paid_payment()
    for _ in range(3):
        world.time.advance(minutes=10)
        assert world.run_worker().faults == []
    queueing.refund(payment.pk, "2.50")
    world.run_worker()
    assert world.reviews() == []
    assert Heartbeat.objects.get(name="database").detail.keys() == {"server"}


def test_only_postgresql_tells_its_server_and_timeline(world: World) -> None:
    told = re.fullmatch(r"\d+:[0-9A-F]{8}", restores._server())
    assert bool(told) is (connections[database()].vendor == "postgresql")


def test_database_refusing_identity_is_asked_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, asked = connections[database()], list[str]()

    class Denied:
        def __enter__(self) -> Denied:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, statement: str) -> None:
            asked.append(statement)
            raise DatabaseError("permission denied for function pg_control_system")

    monkeypatch.setattr(connection, "vendor", "postgresql")
    monkeypatch.setattr(restores, "_unnamed", set())
    with monkeypatch.context() as patched:
        patched.setattr(connection, "cursor", Denied)
        patched.setattr(connection, "is_usable", lambda: True)
        assert [restores._server() for _ in range(3)] == ["", "", ""]
    assert len(asked) == 1


# The payment that was lost ------------------------------------------------------------------------


@pytest.fixture
def lost(world: World) -> Any:
    """A paid payment that the database does not know, with the gateway's notification of it."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    [told] = world.sent(payment)
    lose(payment)
    return told


def test_i2_lost_payment_opens_one_review(
    world: World,
    lost: Any,
) -> None:
    """The gateway's signed notification opens it."""
    answers = [world.post(lost) for _ in range(3)]
    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b"success")] * 3
    assert world.queries() == 0, "the worker asks"
    world.run_worker()
    review = Review.objects.get()
    assert (review.reason, review.account, review.payment) == (LOST, "default", None)
    facts = {name: review.facts[name] for name in ("amount", "currency")}
    assert facts == {"amount": "12.50", "currency": "USD"}
    assert review.facts["reference"] in review.message
    assert "12.50" in review.message
    assert world.queries() == 1, "the gateway's answer counts, and it is asked once"
    closing.resolve(review.pk, "it was given its order", "ann", dismissed=True)
    world.post(lost)
    world.run_worker()
    assert world.reviews() == []


def test_each_lost_payment_has_own_review(world: World) -> None:
    payments = [world.start(world.order()) for _ in range(2)]
    told = []
    for payment in payments:
        world.shopper_pays(payment)
        told += world.sent(payment)
    lose(*payments)
    for one in told:
        world.post(one)
    world.run_worker()
    assert world.reviews() == [LOST, LOST]


def test_i2_silent_gateway_hides_no_lost_payment(
    world: World,
    lost: Any,
) -> None:
    """The notification alone is enough for a review."""
    world.sandbox.control.fault("lost_request", occasion="query", times=5)
    assert world.post(lost).status_code == 200
    world.run_worker()
    assert world.reviews() == [LOST]


def test_unpaid_lost_payment_opens_no_review(world: World) -> None:
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    [told] = world.sent(payment, status="success")
    lose(payment)
    assert world.post(told).status_code == 200
    world.run_worker()
    assert world.reviews() == []


@pytest.mark.parametrize("kind", ["forged", "unsigned", "a short address"])
def test_unsigned_unknown_notification_is_not_found(
    world: World,
    lost: Any,
    kind: str,
) -> None:
    """It is not signed and came to an unknown address."""
    address, body = urlsplit(lost.url).path, lost.body.decode()
    body = (
        body.replace("12.50", "99.00")
        if kind == "forged"
        else body.partition("&verifySign")[0]
        if kind == "unsigned"
        else body
    )
    address = "/payments/notification/short/" if kind == "a short address" else address
    assert world.client.post(address, body, content_type=lost.content_type).status_code == 404
    assert (Review.objects.count(), world.queries()) == (0, 0)


def test_i2_lost_refunds_notification_queries_payment(
    world: World,
) -> None:
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "12.50")
    world.sandbox.control.set_options({"word_refunded": "refunded"})
    told = world.sent(payment, "refund")
    lose(refund)
    assert [world.post(one).status_code for one in told] == [200]
    assert world.reviews() == ["changed-after-paid"]


def test_other_shops_notification_is_not_found(world: World, lost: Any) -> None:
    world.configure({"TOKEN": "another token of another merchant"})
    assert world.post(lost).status_code == 404


# The command --------------------------------------------------------------------------------------


def test_command_notes_restore_and_its_effects(
    world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refund = sent_and_forgotten(world)
    call_command("tillgate", "restored", "--since", "0m")
    said = capsys.readouterr().out
    assert (
        "1 queued refund unknown now, each with a review; the worker asks about 1 payment." in said
    )
    refund.refresh_from_db()
    assert refund.status == "unknown"
    entry = TimelineEntry.objects.get(refund=refund, event="refund.unknown")
    assert entry.actor == "restored"


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])
def test_i6_given_day_or_minute_counts_whole(
    world: World,
    form: str,
) -> None:
    refund = sent_and_forgotten(world)
    world.time.advance(minutes=2)
    call_command("tillgate", "restored", "--since", f"{dates.local(refund.created_at):{form}}")
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, str(world.refunded_amount(refund.payment))) == ("unknown", "2.50")


def test_refund_after_given_minute_is_sent(
    world: World,
) -> None:
    since = dates.local(timezone.now())
    world.time.advance(minutes=1)
    refund = sent_and_forgotten(world)
    call_command("tillgate", "restored", "--since", f"{since:%Y-%m-%dT%H:%M}")
    refund.refresh_from_db()
    assert refund.status == "queued"


def test_command_refuses_future_moment(world: World) -> None:
    for options in ((), ("--since", "2999-01-01")):
        with pytest.raises(CommandError, match="since"):
            call_command("tillgate", "restored", *options)
    assert world.reviews() == []
