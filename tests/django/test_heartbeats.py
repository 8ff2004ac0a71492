"""Heartbeats and lanes: many write them at the same time."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from tests.django.conftest import World
from tillgate.django.heartbeats import beat, lane_of, last_beat, set_heartbeat, write_lane
from tillgate.django.models import Heartbeat, Lane


def test_last_beat_is_that_of_the_worker(world: World) -> None:
    assert last_beat() is None
    beat({"polled": 1})
    set_heartbeat("another", {"polled": 2})
    first = last_beat()
    world.time.advance(hours=1)
    beat({"polled": 3})
    last = last_beat()
    assert first
    assert last
    assert last - first >= timedelta(hours=1)
    rows = Heartbeat.objects.order_by("name").values_list("name", "detail")
    assert list(rows) == [("another", {"polled": 2}), ("worker", {"polled": 3})]


def test_lane_keeps_columns_that_are_not_written() -> None:
    now = timezone.now()
    write_lane("a", silent_since=now)
    write_lane("b", failures={"payments": 1})
    write_lane("a", failures={"payments": 2})
    rows = Lane.objects.order_by("name").values_list("name", "silent_since", "failures")
    assert list(rows) == [("a", now, {"payments": 2}), ("b", None, {"payments": 1})]


def test_long_account_has_short_lane_name() -> None:
    names = {lane_of(":queries:", name) for name in ("a" * 128, "a" * 127 + "b", "default")}
    assert len(names) == 3
    assert ":queries:default" in names
    assert max(map(len, names)) <= 128
