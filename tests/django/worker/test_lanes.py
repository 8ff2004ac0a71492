"""Pauses: the resting accounts, the duration, and the review."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from tests.django.conftest import World
from tillgate import hooks
from tillgate.django import actions
from tillgate.django.models import Lane, Payment, Review
from tillgate.django.worker.lanes import (
    PAUSE,
    failures,
    has_answered,
    in_turn,
    note_failures,
    rest,
    take_turn,
    wake,
)
from tillgate.wire.dialects import REFERENCE

LONG = "a" * 128


@pytest.mark.parametrize("account", ["default", LONG])
def test_paused_account_rests_two_minutes(
    world: World,
    account: str,
) -> None:
    """Other accounts do not rest."""
    rest(account, "time-out", has_review=False)
    due = {
        name: timezone.now() - timedelta(minutes=place)
        for place, name in enumerate(("other", f"{account}b", account, "z"))
    }
    assert in_turn(due) == ["z", f"{account}b", "other"]
    world.time.advance(seconds=119)
    assert in_turn(due) == ["z", f"{account}b", "other"]
    world.time.advance(seconds=1)
    assert in_turn(due) == ["z", f"{account}b", "other", account], (
        "it has waited since its rest was over"
    )
    assert Lane.objects.get().name == account


def test_repeated_pause_restarts_and_keeps_beginning(world: World) -> None:
    """The account still remembers since when it has been silent."""
    rest("default", "time-out", has_review=False)
    since = Lane.objects.get().silent_since
    world.time.advance(minutes=1)
    rest("default", "time-out", has_review=False)
    lane = Lane.objects.get()
    assert lane.silent_since == since
    assert lane.rests_until
    assert timedelta(minutes=2) - timedelta(seconds=5) < lane.rests_until - timezone.now() <= PAUSE


@pytest.mark.parametrize(
    ("minutes", "has_review", "raised"),
    [(29, False, False), (30, False, True), (95, False, True), (95, True, False)],
)
def test_half_hour_silence_raises_review(
    world: World,
    minutes: int,
    has_review: bool,
    raised: bool,
) -> None:
    """It opens none if staff learn the cause in another way."""
    rest("default", "time-out", has_review=False)
    assert not Review.objects.exists()
    world.time.advance(minutes=minutes)
    rest("default", "connection refused", has_review=has_review)
    said = [(one.reason, one.account, one.message) for one in Review.objects.all()]
    message = (
        f"Account default: its gateway has not answered for {minutes} minutes (connection refused)."
    )
    assert said == ([("gateway-silent", "default", message)] if raised else [])


def test_answer_ends_rest_and_resolves_silence(
    world: World,
) -> None:
    for account in ("default", "other"):
        rest(account, "time-out", has_review=False)
    world.time.advance(minutes=31)
    for account in ("default", "other"):
        rest(account, "time-out", has_review=False)
    wake("default")
    wake("never paused")
    assert in_turn(dict.fromkeys(("default", "other"), timezone.now())) == ["default"]
    assert list(
        Review.objects.order_by("id").values_list("account", "resolution", "resolved_by"),
    ) == [
        ("default", "the gateway answers again", "tillgate"),
        ("other", "", ""),
    ]
    assert [lane.name for lane in Lane.objects.filter(silent_since__isnull=False)] == ["other"]


def test_answer_resolves_no_other_review(world: World) -> None:
    Review.objects.create(
        reason="account-gone",
        account="default",
        facts={"detail": "Gone."},
        opened_at=timezone.now(),
    )
    rest("default", "time-out", has_review=False)
    wake("default")
    assert Review.objects.get().resolved_at is None


def test_silence_is_told_at_half_hour(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The review names the worker as its actor."""
    began, heard = datetime(2026, 11, 21, 12, 0, tzinfo=UTC), list[hooks.Event]()
    monkeypatch.setattr(hooks, "emit", heard.append)
    for after in (
        timedelta(),
        timedelta(minutes=30) - timedelta(microseconds=1),
        timedelta(minutes=30),
    ):
        assert heard == []
        monkeypatch.setattr(timezone, "now", lambda now=began + after: now)
        rest("default", "time-out", has_review=False)
    assert [(event.name, event.fields["actor"], event.fields["account"]) for event in heard] == [
        ("review.opened", "worker", "default"),
    ]


def test_silence_without_rest_is_still_told(world: World) -> None:
    for _ in range(3):
        rest("default", "HTTP 500", has_review=False, pause=timedelta(0))
        assert in_turn({"default": timezone.now()}) == ["default"]
        assert not Review.objects.exists()
        world.time.advance(minutes=10)
    rest("default", "HTTP 500", has_review=False, pause=timedelta(0))
    assert world.reviews() == ["gateway-silent"]


@pytest.mark.parametrize(
    ("more", "is_forgotten"),
    [(timedelta(), False), (timedelta(microseconds=1), True)],
)
def test_silence_restarts_after_three_unasked_hours(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    more: timedelta,
    is_forgotten: bool,
) -> None:
    began = timezone.now()
    for now in (began, began + timedelta(hours=3) + more):
        monkeypatch.setattr(timezone, "now", lambda now=now: now)
        rest("default", "HTTP 500", has_review=False, pause=timedelta(0))
    assert world.reviews() == ([] if is_forgotten else ["gateway-silent"])
    assert Lane.objects.get().silent_since == (timezone.now() if is_forgotten else began)


def test_query_after_notification_ends_silence(
    world: World,
) -> None:
    """No review opens if the gateway has answered since."""
    payment = world.start(world.order())
    rest("default", "HTTP 500", has_review=False, pause=timedelta(0))
    world.time.advance(minutes=20)
    world.shopper_pays(payment)
    world.notification(payment)
    world.time.advance(minutes=20)
    rest("default", "HTTP 500", has_review=False, pause=timedelta(0))
    assert not Review.objects.exists()


@pytest.mark.parametrize(
    ("ahead", "counts"),
    [
        (timedelta(hours=-1), False),
        (timedelta(hours=-1, microseconds=1), True),
        (timedelta(), True),
    ],
)
def test_answer_counts_only_for_its_account(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    ahead: timedelta,
    counts: bool,
) -> None:
    """It must also be recent enough."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    payment = world.paid_payment()
    Payment.objects.filter(pk=payment.pk).update(status_since=now + ahead)
    assert has_answered("default", now - timedelta(hours=1)) is counts
    assert not has_answered("other", now - timedelta(hours=1))


def test_staff_expiry_is_no_gateway_answer(world: World) -> None:
    payment, since = world.start(world.order()), timezone.now()
    world.sandbox.control.fault("denied", occasion="query", times=100)
    world.time.advance(hours=3)
    world.run_worker()
    actions.take_action(
        Review.objects.get(reason="payment-unknown").pk,
        "mark-expired",
        staff="ann",
        note="not in the back office",
    )
    assert Payment.objects.get(pk=payment.pk).status == "expired"
    assert not has_answered("default", since)
    Payment.objects.filter(pk=payment.pk).update(status="paid", status_since=timezone.now())
    assert has_answered("default", since), "that is the gateway's"


def test_staff_poll_counts_as_gateway_answer(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure({"DIALECT": replace(REFERENCE, expired_is_forgotten=True)})
    payment, since = world.start(world.order()), timezone.now()
    world.sandbox.control.fault("denied", occasion="query")
    world.time.advance(hours=3)
    actions.poll_now(payment, "ann")
    assert Payment.objects.get(pk=payment.pk).status == "expired"
    assert has_answered("default", since)


def test_turn_is_taken_once_in_an_interval(world: World) -> None:
    assert [take_turn(":staff:mail", timedelta(minutes=15)) for _ in range(2)] == [True, False]
    assert take_turn(":staff:alerts", timedelta(minutes=15))
    world.time.advance(minutes=15)
    assert take_turn(":staff:mail", timedelta(minutes=15))


def test_failures_are_those_of_the_last_turns(world: World) -> None:
    note_failures("default", {"payments": 2})
    note_failures(":shop", {"events": 1, "payments": 1})
    assert failures() == {"payments": 3, "events": 1}
    note_failures("default", {})
    assert failures() == {"events": 1, "payments": 1}
