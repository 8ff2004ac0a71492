"""A run: prepare, kill, recover, let a day pass, judge; for every point of every act, or for a
seeded sample of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from django.conf import settings
from django.db import connection, connections
from django.test import Client
from django.test.utils import (
    override_settings,
    setup_databases,
    setup_test_environment,
    teardown_databases,
    teardown_test_environment,
)
from django.utils import timezone

from proving.killing.actions import ACTIONS, ReviewAction, Subject
from proving.killing.judging import judge
from proving.killing.lines import Lines
from proving.killing.results import HELD, Part, Result, Results
from proving.killing.zygote import End, Zygote
from tillgate.django.models import Payment
from tillgate.errors import ConfigurationError
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN, Options, Sandbox
from tillgate.testing.driver import ShopDriver
from tillgate.testing.sandbox_driver import SandboxDriver
from tillgate.testing.world import Time, World

__all__ = ["HoldsNot", "Run", "running"]

_TOGETHER: Final = 25
"""So many are killed one after the other before a day passes for all of them."""
_HOURS: Final = ({"seconds": 15}, {"minutes": 20}, {"hours": 3}, {"hours": 3})
"""After each of them the worker runs: looks and leases are over after the second, payment pages
after the third, orders after the last.
"""
_PATIENCE_SECONDS: Final = 10.0
_SESSIONS: Final = {
    "postgresql": (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> "
        "pg_backend_pid()"
    ),
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> "
    "connection_id()",
}
"""How many other clients are connected. A database that learns of a client's death ends its
transaction in its own time.
"""


@dataclass(frozen=True, slots=True)
class _Job:
    action: str
    subject: Subject
    offset: timedelta


class HoldsNot(AssertionError):
    """A promise breaks without a death: killing could find nothing more."""


class Run:
    """Kills in a world, by a zygote, and writes down the outcome of each kill.

    The point decides which actor recovers from a death: they take turns, since many points lie
    between two that actors could distinguish.
    """

    def __init__(
        self,
        world: World,
        zygote: Zygote[_Job],
        results: Results,
        say: Callable[[str], object],
    ) -> None:
        self._world, self._zygote, self._results, self._say = world, zygote, results, say
        self.database = connection.display_name.lower()
        self.kills = 0
        self.violations: list[Result] = []

    def walk(
        self,
        action: ReviewAction,
        part: Part,
        sample: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Kill an act at every point of this part, or at so many drawn at random."""
        points = self.count(action)
        if sample is not None:
            # repeatable on purpose
            numbers = sorted(Random(seed).sample(range(1, points + 1), min(sample, points)))
            self._kill_all(action, filter(part.has, numbers), seed)
            return
        self._kill_all(action, filter(part.has, range(1, points + 1)))
        # The number of points varies a little: a thread that is quicker, an answer that comes in
        # two pieces.
        for point in filter(part.has, count(points + 1)):
            if not self._results.is_known(self.database, action.name, point) and not self._kill_all(
                action,
                [point],
            ):
                return

    def count(self, action: ReviewAction) -> int:
        """Return how many points an act has without a death, after a check that everything holds
        then with every kind of recovery.
        """
        # load now everything that loads at first use
        self._zygote.do(self._job(action, action.prepare(self._world)), fork=False)
        self._begin_anew()
        tried = self._try(
            action,
            [0] if action.is_alone else list(range(len(action.recoveries))),
            ends := list[End](),
            is_killed=False,
        )
        if faults := [one.outcome for one in tried if one.outcome != HELD]:
            raise HoldsNot(
                f"{action.name} breaks a promise without any kill: "
                f"{'; '.join(dict.fromkeys(faults))}",
            )
        return max(end.points for end in ends)

    def kill_at(self, action: ReviewAction, point: int) -> Result:
        """Kill an act at one point, and return the outcome."""
        [result] = self._try(action, [point], [])
        return result

    def _kill_all(
        self,
        action: ReviewAction,
        numbers: Iterable[int],
        seed: int | None = None,
    ) -> int:
        """Kill at those of the numbers that were not tried yet, and return how many died."""
        left = [
            number
            for number in numbers
            if not self._results.is_known(self.database, action.name, number)
        ]
        began, before, together = time.monotonic(), self.kills, 1 if action.is_alone else _TOGETHER
        for first in range(0, len(left), together):
            batch = left[first : first + together]
            tried = self._try(action, batch, [], seed)
            if len(batch) > 1 and any(one.outcome != HELD for one in tried):
                # Each alone, to find the one at fault; when all hold then, the fault lies in their
                # combination.
                alone = [one for number in batch for one in self._try(action, [number], [], seed)]
                tried = alone if any(one.outcome != HELD for one in alone) else tried
            self._results.add(tried)
            self.violations += [one for one in tried if one.outcome != HELD]
            rate = (self.kills - before) / (time.monotonic() - began)
            done = f"{first + len(batch):,} of {len(left):,} kills"
            self._say(
                f"{self.database}: {action.name}: {done}, {rate:.0f} a second, "
                f"{len(self.violations)} violations",
            )
        return self.kills - before

    def _try(
        self,
        action: ReviewAction,
        numbers: list[int],
        ends: list[End],
        seed: int | None = None,
        *,
        is_killed: bool = True,
    ) -> list[Result]:
        subjects = list[Subject]()
        for number in numbers:
            subjects.append(action.prepare(self._world))
            ends.append(
                self._zygote.do(
                    self._job(action, subjects[-1]), kill_at=number if is_killed else 0
                ),
            )
        self.kills += sum(bool(end.place) for end in ends)
        recoveries = [
            list(action.recoveries)[number % len(action.recoveries)] for number in numbers
        ]
        fault = self._fault(action, recoveries, subjects)
        self._begin_anew()
        return [
            Result(
                database=self.database,
                action=action.name,
                recovery=recovery,
                point=number,
                place=end.place,
                outcome=end.fault or fault or HELD,
                source=self._results.source,
                commit=self._results.commit,
                seed=seed,
            )
            for number, recovery, end in zip(numbers, recoveries, ends, strict=True)
        ]

    def _fault(self, action: ReviewAction, recoveries: list[str], subjects: list[Subject]) -> str:
        """Recover from the death, let hours pass, judge, and return the fault."""
        _await_the_end_of_the_dead()
        try:
            for recovery, subject in zip(recoveries, subjects, strict=True):
                action.recoveries[recovery](self._world, subject)
            for ahead in _HOURS:
                self._world.time.advance(**ahead)
                faults = self._world.run_worker().faults
                assert faults == [], f"the worker run failed: {faults}"
            for subject in subjects:
                for order in subject.orders:
                    judge(self._world, order)
        except Exception as error:  # noqa: BLE001  # any error of the project's address configuration
            return f"{type(error).__name__}: {error}"
        return ""

    def _job(self, action: ReviewAction, subject: Subject) -> _Job:
        return _Job(action.name, subject, self._world.time.offset)

    def _begin_anew(self) -> None:
        """Separate the past from everything that follows."""
        Payment.objects.filter(next_poll_at__isnull=False).update(next_poll_at=None)
        self._world.sandbox.control.reset()


def _await_the_end_of_the_dead() -> None:
    statement, until = _SESSIONS.get(connection.vendor), time.monotonic() + _PATIENCE_SECONDS
    while statement:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            [(others,)] = cursor.fetchall()
        if not others:
            return
        if time.monotonic() > until:
            raise AssertionError(
                f"{others} sessions of the dead are still open after {_PATIENCE_SECONDS:.0f} "
                "seconds",
            )
        time.sleep(0.002)


@contextmanager
def running(
    driver: ShopDriver,
    packages: list[Path],
    results: Results,
    say: Callable[[str], object],
    suffix: str = "",
) -> Iterator[Run]:
    """Give a run on a test database, with an emulator of the gateway in a thread of this process:
    it outlives every child.

    `suffix` is added to the name of the database, for runs beside each other.
    """
    setup_test_environment(debug=False)
    for alias in connections:
        _name(connections[alias].settings_dict, suffix)
    databases = setup_databases(verbosity=0, interactive=False, serialized_aliases=[])
    connections.close_all()
    shared, sandbox = (
        Time(),
        Sandbox(
            Options(
                notification_on_paid=False,
                notification_on_refund=False,
                magic_amounts=False,
                seed=1,
            ),
        ),
    )
    world = World(driver, SandboxDriver(sandbox), shared, Client(), _cannot_configure)
    original, timezone.now = timezone.now, shared.now

    def carry(job: _Job, kill_at: int, tell: Callable[[str], object]) -> int:
        world.time.offset, world.client = job.offset, Client()
        try:
            return Lines(packages, kill_at, tell).watch(
                lambda: ACTIONS[job.action].do(world, job.subject),
            )
        finally:
            connections.close_all()

    try:
        with override_settings(TILLGATE=_settings(sandbox), LOGGING_CONFIG=None):
            driver.use_account(sandbox.base_url, PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN)
            connections.close_all()
            zygote: Zygote[_Job] = Zygote(carry, begin=sandbox.stop)
            try:
                with sandbox:
                    shared.listeners.append(sandbox.control.advance)
                    yield Run(world, zygote, results, say)
            finally:
                zygote.end()
    finally:
        timezone.now = original
        teardown_databases(databases, verbosity=0)
        teardown_test_environment()


def _name(database: dict[str, Any], suffix: str) -> None:
    name = database["TEST"]["NAME"]
    if database["ENGINE"].endswith("sqlite3") and (not name or ":memory:" in str(name)):
        remedy = 'give it a file: DATABASES["default"]["TEST"] = {"NAME": "/tmp/tests.sqlite3"}'
        raise ConfigurationError(
            "DATABASES",
            name,
            f"is in memory, which dies with the process that is killed; {remedy}",
        )
    database["TEST"]["NAME"] = f"{name or 'test_' + str(database['NAME'])}{suffix}"


def _settings(sandbox: Sandbox) -> dict[str, object]:
    project = dict(getattr(settings, "TILLGATE", {}))
    account = {
        "BASE_URL": sandbox.base_url,
        "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
        "TOKEN": PUBLISHED_TEST_TOKEN,
        "SANDBOX": True,
    }
    accounts = dict.fromkeys(list(project.get("ACCOUNTS", {})) or ["default"], account)
    public_url = project.get("PUBLIC_URL", "http://testserver")
    return {
        "ACCOUNTS": accounts,
        "PUBLIC_URL": public_url,
        "NOTIFICATION_THROTTLE_SECONDS": 0,
        "QUERIES_PER_SECOND": 0,
    }


def _cannot_configure(**_: object) -> None:
    raise NotImplementedError("the settings stay as they are")
