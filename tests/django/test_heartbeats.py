"""Heartbeats: written by many at once, and turns that one of them gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tillgate.django.heartbeats import begin, set_heartbeat, take_turn
from tillgate.django.models import Heartbeat

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_existing_heartbeat_is_not_restarted() -> None:
    begin("a", NOW, {"since": "noon"})
    begin("a", NOW + HOUR, {"since": "one"})
    begin("b", NOW)
    assert list(Heartbeat.objects.order_by("name").values_list("name", "at", "detail")) == [
        ("a", NOW, {"since": "noon"}),
        ("b", NOW, {}),
    ]


def test_heartbeat_replaces_only_its_own_predecessor() -> None:
    set_heartbeat("a", NOW, {"polled": 1})
    set_heartbeat("b", NOW, {"polled": 2})
    set_heartbeat("a", NOW + HOUR, {"polled": 3})
    assert list(Heartbeat.objects.order_by("name").values_list("at", "detail")) == [
        (NOW + HOUR, {"polled": 3}),
        (NOW, {"polled": 2}),
    ]


@pytest.mark.parametrize(
    ("after", "taken"),
    [(timedelta(), False), (HOUR - timedelta(seconds=1), False), (HOUR, True), (2 * HOUR, True)],
)
def test_turn_is_taken_once_per_interval(
    after: timedelta,
    taken: bool,
) -> None:
    """The first turn is taken at once."""
    assert take_turn("mail", NOW, HOUR)
    assert take_turn("other", NOW, HOUR)
    assert Heartbeat.objects.get(name="mail").at == NOW
    assert take_turn("mail", NOW + after, HOUR) is taken
    assert Heartbeat.objects.get(name="mail").at == (NOW + after if taken else NOW)
    assert Heartbeat.objects.get(name="other").at == NOW
