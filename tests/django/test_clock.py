"""The time is the database's, measured once a minute and with every lock of an order, whatever the machine's clock says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.django.conftest import World
from tillgate.django import clock, operations
from tillgate.django.models import Order
from tillgate.django.operations.locking import locked_order

_REAL_NOW = clock.now  # the fixture `time_` replaces it

_NOON = 1_800_000_000.0


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not asked the database yet."""
    monkeypatch.setattr(clock, "_measurements", {})


class Machine:
    """A machine whose monotonic clock a test moves, and a database whose clock a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.instant = 5.0
        monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: self.instant))
        self.database_shows(0)

    def database_shows(self, seconds_past_noon: float) -> None:
        """Let the database's clock stand at so many seconds past noon."""
        self._monkeypatch.setitem(clock._EPOCH_SECONDS, connection.vendor, f"{_NOON + seconds_past_noon:.3f}")

    def now(self) -> float:
        """Return how many seconds past noon it is for the process."""
        return round(clock.now().timestamp() - _NOON, 3)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine and a database at noon."""
    return Machine(monkeypatch)


@pytest.fixture
def order() -> Order:
    """An order without a payment."""
    return Order.objects.create(plugin="shop", key="1", created_at=datetime(2026, 1, 1, tzinfo=UTC))


def epoch_seconds() -> float:
    """Return what the database says its time is."""
    return float(Order.objects.annotate(seconds=clock.EpochSeconds()).values_list("seconds", flat=True)[0])


def test_the_database_tells_its_time_to_the_fraction_of_a_second_in_every_time_zone(order: Order) -> None:
    zones = {"postgresql": "SET TIME ZONE 'Asia/Tokyo'", "mysql": "SET time_zone = '+09:00'"}
    with connection.cursor() as cursor:
        cursor.execute(zones.get(connection.vendor, "SELECT 1"))
    try:
        began, first = time.time(), epoch_seconds()
        time.sleep(0.05)
        second, ended = epoch_seconds(), time.time()
    finally:
        connection.close()
    assert began - 0.01 <= first <= second <= ended + 0.01, "the database of the tests runs on this machine"
    assert 0.04 <= second - first < ended - began + 0.01


def test_rows_of_a_machine_whose_clock_is_a_day_ahead_have_the_databases_time(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    right, seconds = datetime.now(UTC), time.time
    monkeypatch.setattr(timezone, "now", lambda: right + timedelta(days=1))
    monkeypatch.setattr(time, "time", lambda: seconds() + 86_400)
    operations.open_order("shop", "2")
    operations.open_order("shop", "3")
    with locked_order(order.pk):
        operations.close_order("shop", "3")
    for stamped in (Order.objects.get(key="2").created_at, Order.objects.get(key="3").closed_at):
        assert stamped is not None
        assert abs(stamped - right) < timedelta(minutes=5)


def test_without_time_zones_the_time_is_the_projects_local_one(settings: Any) -> None:
    aware = clock.now()
    settings.USE_TZ = False
    assert clock.now().tzinfo is None
    assert abs(clock.now() - datetime.fromtimestamp(aware.timestamp())) < timedelta(minutes=1)  # noqa: DTZ006  # as Django stores it


def test_the_database_is_asked_once_a_minute(machine: Machine) -> None:
    with CaptureQueriesContext(
        connection,
    ) as statements:
        assert machine.now() == 0
        machine.database_shows(7000)
        machine.instant += 59.9
        assert machine.now() == 59.9
        assert len(statements) == 1
        machine.instant += 0.1
        assert machine.now() == 7000
        machine.instant += 59.9
        assert machine.now() == 7059.9
        assert len(statements) == 2


@pytest.mark.parametrize(("shown", "told"), [(60.09, 60), (59.91, 60), (60.2, 60.2), (59.8, 59.8)])
def test_a_tiny_difference_of_a_new_measurement_does_not_move_the_time(machine: Machine, shown: float, told: float) -> None:
    assert machine.now() == 0
    machine.instant += 60
    machine.database_shows(shown)
    assert machine.now() == told


def test_the_lock_of_an_order_brings_a_measurement_without_a_statement(machine: Machine, order: Order) -> None:
    machine.now()
    for minutes in range(1, 4):
        machine.instant += 59
        machine.database_shows(minutes * 1000)
        with locked_order(order.pk), CaptureQueriesContext(connection) as statements:
            assert machine.now() == minutes * 1000
        assert len(statements) == 0


@pytest.fixture
def slow(machine: Machine) -> Iterator[None]:
    """A database whose statements take two seconds."""

    def wait(execute: Callable[..., Any], *arguments: Any) -> Any:
        machine.instant += 1
        answer = execute(*arguments)
        machine.instant += 1
        return answer

    with connection.execute_wrapper(wait):
        yield


@pytest.mark.usefixtures("slow")
def test_a_lock_that_was_waited_for_brings_no_measurement(machine: Machine, order: Order) -> None:
    machine.now()
    machine.database_shows(1000)
    with locked_order(order.pk):
        assert machine.now() < 10


@pytest.mark.usefixtures("slow")
def test_the_time_of_a_slow_database_is_that_of_the_middle_of_its_statement(machine: Machine) -> None:
    assert machine.now() == 1


def test_other_threads_go_on_while_one_asks(machine: Machine) -> None:
    machine.now()
    machine.instant += 60
    told = list[float]()

    def meanwhile(execute: Callable[..., Any], *arguments: Any) -> Any:
        told.append(machine.now())
        return execute(*arguments)

    machine.database_shows(1000)
    with connection.execute_wrapper(meanwhile):
        assert machine.now() == 1000
    assert told == [60]


def test_in_a_broken_transaction_the_last_measurement_counts(machine: Machine) -> None:
    machine.now()
    machine.instant += 100
    with suppress(DatabaseError), transaction.atomic():
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column")
        transaction.set_rollback(True)
        assert machine.now() == 100
    machine.database_shows(1000)
    machine.instant += 60
    assert machine.now() == 1000


def test_without_any_measurement_the_failure_of_the_database_is_raised(machine: Machine) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(DatabaseError):
            machine.now()
    assert machine.now() == 0


def test_a_notification_takes_no_statement_more_for_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()
    for now in (world.time.now, _REAL_NOW):
        monkeypatch.setattr(clock, "now", now)
        now()
        payment = world.start(world.order())
        world.shopper_pays(payment)
        with CaptureQueriesContext(connection) as statements:
            world.notification(payment)
        assert world.fresh(payment).status == "paid"
        counts.append(len(statements))
    assert counts[0] == counts[1]
