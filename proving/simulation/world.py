"""A simulated world: a shop with Tillgate on a real database, the emulator's gateway, shoppers and
staff, in virtual time and one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Final
from urllib.parse import parse_qsl

from django.apps import apps
from django.conf import settings
from django.core.cache import caches
from django.core.management.color import no_style
from django.core.signals import setting_changed
from django.db import connection

from proving.simulation.database import Interposed
from proving.simulation.faults import Faults
from proving.simulation.gateway import NamingService
from proving.simulation.judge import Judge
from proving.simulation.network import Network, Violated
from proving.simulation.people import People
from proving.simulation.scheduler import Actor, Scheduler
from proving.simulation.stand_ins import in_place
from tillgate import money
from tillgate.django import models
from tillgate.django.accounting.audit import audit
from tillgate.django.conf import get_settings
from tillgate.django.worker.run import run_worker
from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.sandbox.faults import Planned
from tillgate.sandbox.notifications import NotificationAttempt
from tillgate.sandbox.options import Options
from tillgate.sandbox.signing import matches
from tillgate.testing.driver import ShopDriver
from tillgate.wire.dialects import DIALECTS

__all__ = ["Outcome", "SimulatedWorld", "empty_tables", "simulate"]

_PUBLIC_URL: Final = "https://shop.example"
_HOUR: Final = 3600.0
_LONG_AGO: Final = datetime(2025, 1, 1, tzinfo=UTC)
_EVERYTHING_EVERY: Final = 30
"""After so many steps for each order the whole books are judged."""
_FEWEST: Final = 100
"""Of fewer orders they are not judged more often than of so many."""
_METHODS: Final = ("alipay", "wechatpay", "paypal", "creditcard")
_SECONDS_PER_ORDER: Final = (0.3, 1.0, 3.0, 12.0)
"""How dense the orders come: each world has its own."""
_PACES: Final = (10.0, 60.0, 300.0)
"""How many seconds a worker rests at least while orders come: each world has its own."""
_SLOW_PACES: Final = (600.0, 3600.0)
"""And in the days after, when most work is about single payments: often enough for money that takes
hours.
"""
_LATE_SECONDS: Final = (60.0, 7200.0, 172_800.0)
"""How late the gateway's late notifications and late money come: each world has its own, and in
some the staff were quicker.
"""
_DAYS_OF_TROUBLE: Final = 4
_DAYS_AWAKE: Final = 1.5
"""So long after the last trouble worker runs come often: the owner must hear of a silent gateway
within a day.
"""
_LONGEST_QUIET: Final = 200 * 86_400.0
_MIGRATED: Final = ("auth.Permission", "contenttypes.ContentType")
_PROGRESS_EVERY: Final = 500


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed."""

    seed: int
    orders: int
    payments: int
    paid: int
    refunds: int
    steps: int
    judged: int
    days: float
    digest: str
    struck: dict[str, int] = field(default_factory=dict)
    reviews: dict[str, int] = field(default_factory=dict)


class SimulatedWorld:
    """One seed's world."""

    def __init__(self, shop: ShopDriver, scheduler: Scheduler, faults: Faults) -> None:
        self.shop, self.public_url = shop, _PUBLIC_URL
        self.accounts = ("default", "default", "second")
        self.scheduler, self.faults, seed = scheduler, faults, scheduler.seed
        sells_in_won = type(shop).place_order_in is not ShopDriver.place_order_in
        self.currency = "USD" if seed % 2 or not sells_in_won else "KRW"
        """Odd seeds pay in dollars by version 1, even seeds in won by version 3: a currency without
        decimals, and refunds with names.

        A shop that sells in dollars only does so in every world.
        """
        self.unit = Decimal(1).scaleb(-money.decimals_of(self.currency))
        self._tokens = {"200001": f"{seed:032x}", "200002": f"{seed + 1:032x}"}
        late = Random(f"{seed}:late").choice(_LATE_SECONDS)  # repeatable on purpose
        options = Options(
            seed=seed,
            merchants=self._tokens,
            public_url="https://gateway.example",
            magic_amounts=False,
            journal_entries=100,
            late_seconds=late,
        )
        self.service = NamingService(options, clock=lambda: self.scheduler.seconds)
        self.network = Network(
            self.service,
            self.scheduler,
            self.faults,
            get_settings().notification_throttle_seconds,
        )
        self.judge = Judge(shop, self.service, self.network, self.unit)
        self.people = People(self)
        chance = Random(f"{seed}:world")  # repeatable on purpose
        self.limiter, self._seconds_per_order = (
            chance.choice(_PACES),
            chance.choice(_SECONDS_PER_ORDER),
        )
        self.slow_pace = chance.choice(_SLOW_PACES)
        self.has_tasks = chance.choice((False, True))
        """Whether the parts of a worker run are processes of their own."""
        self.owner: tuple[str, ...] = ("owner@shop.example",)
        """The addresses that get mail about reviews."""
        self.moved: dict[str, str] = {}
        """The orders that staff moved to another currency."""
        self.is_quiet = False
        self.orders: dict[str, str] = {}
        """The story of each order."""
        self.steps = 0
        self.progress: Callable[[], object] = lambda: None
        """Called every now and then, to show the progress."""
        self._everything_every = _EVERYTHING_EVERY * _FEWEST
        self._shoppers: list[Actor] = []
        self._planned: list[Planned] = []
        self._busy_until, self._settled_at = 0.0, math.inf

    # For shoppers and staff -----------------------------------------------------------------------

    def place_order(self, total: Decimal, story: str) -> str:
        """Place an order; nothing happens to the shop's own part of it."""
        with self.scheduler.in_one_go():
            key = (
                self.shop.place_order(total)
                if self.currency == "USD"
                else self.shop.place_order_in(self.currency, total)
            )
        self.orders[key] = story
        self.judge.hear_of_price(key, total)
        self.scheduler.tell(f"order {key} costs {total}")
        return key

    def price(self, chance: Random) -> Decimal:
        """Return a price of up to 90,000 of the smallest unit."""
        return chance.randint(1, 90_000) * self.unit

    def plan(self, reference: str, occasion: str, *names: str) -> None:
        """Let a fault of the gateway strike at its next occasion, now and then."""
        actor = self.scheduler.actor
        rate = self.faults.rates["notifications"]
        if actor and not self.faults.is_calm and rate and actor.chance.random() < rate:
            self._planned.append(
                self.service.faults.plan(
                    actor.chance.choice(names),
                    occasion=occasion,
                    reference=reference,
                ),
            )

    def forget_plans(self) -> None:
        """Count the faults that have struck as planned, and let the others strike no more."""
        for planned in self._planned:
            if not planned.times:
                self.faults.note(planned.fault.name)
        self._planned.clear()
        self.service.faults.planned.clear()

    def is_genuine(self, attempt: NotificationAttempt) -> bool:
        """Tell whether the shop can take a notification for the gateway's own: it is signed with a
        token that never changed here.
        """
        said = dict(parse_qsl(attempt.body.decode()))
        merchant_no = self.service.find(attempt.transaction_no).merchant_no
        return not self.faults.rates["credentials"] and matches(said, self._tokens[merchant_no])

    # Running --------------------------------------------------------------------------------------

    def run(self, orders: int, only: int | None) -> Outcome:
        """Let everybody act until nothing is left to do."""
        self.judge.begin()
        self._everything_every = _EVERYTHING_EVERY * max(orders, _FEWEST)
        span = max(_HOUR, orders * self._seconds_per_order)
        for number in range(orders) if only is None else [only]:
            story = str(number)
            chance = Random(f"{self.scheduler.seed}:{story}")  # repeatable on purpose
            spawn = self.scheduler.spawn
            self._shoppers.append(
                spawn(
                    f"shopper {story}",
                    lambda story=story: self.people.shopper(story),  # type: ignore[misc]
                    story=story,
                    after=chance.uniform(0, span),
                ),
            )
        for name in ("worker", "worker"):
            self.scheduler.spawn(name, self.people.worker, story=name)
        self.scheduler.spawn("owner", self.people.owner, story="owner")
        self._troubles(span)
        end = self.scheduler.seconds + span + _DAYS_OF_TROUBLE * 86_400.0
        self._busy_until = self.scheduler.seconds + span + _HOUR
        self._until(lambda: self.scheduler.seconds > end and not self._has_shoppers)
        self.finish()
        return self._outcome()

    def finish(self, seconds: float = _LONGEST_QUIET) -> None:
        """Let nothing go wrong any more and let every actor finish, which may take so long, and
        judge the outcome.
        """
        self._quieten()
        end = self.scheduler.seconds + seconds
        self._until(lambda: self.scheduler.seconds > end)
        self._close_the_books()
        if self.owner:
            self._worker_at_last()
        self.judge.in_the_end()
        self.judge.of_slow_money(self.faults.interruptions)
        self.judge.of_personal_data()
        if self.owner:
            self.judge.of_mail()
        self.scheduler.tell("the end")

    def _worker_at_last(self) -> None:
        """Run the worker once more when the next mail may go and the accountant's decisions are
        due, as workers that never rest do.
        """

        def working() -> None:
            self.scheduler.pause(max(get_settings().review_mail_minutes * 60, _HOUR) + 1)
            self.people.process("worker", run_worker)

        worker = self.scheduler.spawn("last worker", working, story="worker")
        self._until(lambda: worker.thread.dead)

    @property
    def is_busy(self) -> bool:
        """Whether orders come, or have just come."""
        return self.scheduler.seconds < self._busy_until

    @property
    def is_settled(self) -> bool:
        """Whether nothing has gone wrong for days, so only unsolvable cases and late polls are
        left.
        """
        return self.scheduler.seconds > self._settled_at

    @property
    def _has_shoppers(self) -> bool:
        return any(not actor.thread.dead for actor in self._shoppers)

    def _until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            due, at = self.service.next_due(), self.scheduler.next_at()
            if at is None and due is None:
                return
            if due is not None and (at is None or due <= at):
                self.scheduler.seconds = max(self.scheduler.seconds, due)
            else:
                recorded = Interposed.recorded
                self.scheduler.step()
                self.steps += 1
                if Interposed.recorded > recorded or self.judge.has_heard:
                    self.judge.after_a_step()
                if self.steps % self._everything_every == 0:
                    self.judge.everything()
                    self.judge.of_personal_data()
                if self.steps % _PROGRESS_EVERY == 0:
                    self.progress()
            self._post()

    def _post(self) -> None:
        """Send the notifications that are due."""
        for attempt in self.service.due_notifications(self.scheduler.seconds):
            reference = self.service.find(attempt.transaction_no).reference
            keys = models.Payment.objects.filter(reference=reference).values_list(
                "order__key",
                flat=True,
            )
            story = self.orders.get(keys.first() or "", "")
            self.scheduler.spawn(
                f"notification {story}",
                lambda attempt=attempt: self.people.carry(attempt),  # type: ignore[misc]
                story=story,
                after=0.05,
            )

    def _troubles(self, span: float) -> None:
        """Let the world itself have its troubles: the gateway away for hours, tokens changed."""
        chance = Random(f"{self.scheduler.seed}:troubles")  # repeatable on purpose
        spawn = self.scheduler.spawn
        if self.faults.rates["outages"]:
            for _ in range(chance.randint(1, 3)):
                hours = chance.choice((0.1, 1, 6, 30))
                spawn(
                    "outage",
                    lambda hours=hours: self._darken(hours * _HOUR),  # type: ignore[misc]
                    story="outage",
                    after=chance.uniform(0, span),
                )
        if self.faults.rates["credentials"]:
            late = chance.uniform(0, 2 * _HOUR)
            spawn(
                "rotation",
                lambda: self._rotate(late),
                story="rotation",
                after=chance.uniform(0, span),
            )

    def _darken(self, seconds: float) -> None:
        self.network.dark_until = max(self.network.dark_until, self.scheduler.seconds + seconds)
        self.scheduler.tell(f"the gateway is away for {seconds / _HOUR:.1f} hours")

    def _rotate(self, late: float) -> None:
        """Change a token at the gateway, and some time later in the shop."""
        self._tokens = self._tokens | {"200001": f"{self.scheduler.seed + 7:032x}"}
        self.service.use(Options.read({"merchants": self._tokens}, self.service.options))
        self.scheduler.tell("the gateway has another token")
        self.scheduler.pause(late)
        self.configure()
        self.scheduler.tell("the shop has the other token")

    def _quieten(self) -> None:
        """Let nothing go wrong any more."""
        self.is_quiet = self.faults.is_calm = True
        self._settled_at = self.scheduler.seconds + _DAYS_AWAKE * 86_400.0
        self.network.dark_until = 0.0
        self.configure()
        self.scheduler.tell("quiet")
        if self.network.unusable:
            self.scheduler.spawn("unusable", self._make_usable, story="unusable")

    def _make_usable(self) -> None:
        """Let worker runs that nothing cuts off find for a day and a half that some answers cannot
        be used, and then let them be usable.
        """
        self.scheduler.pause(_DAYS_AWAKE * 86_400.0)
        self.judge.of_the_unusable(self.network.unusable, self.scheduler.now())
        self.network.unusable.clear()

    def _close_the_books(self) -> None:
        """Let staff settle the refunds that only staff can, and compare the ledger with the
        gateway's as an owner would.
        """

        def closing() -> None:
            for reason in (
                "changed-after-paid",
                "refund-contradicted",
                "refund-unknown",
                "changed-after-paid",
                "refund-contradicted",
            ):
                for review in models.Review.objects.filter(
                    resolved_at__isnull=True,
                    reason=reason,
                ).order_by("pk"):
                    self.people.settle(review)
            for difference in audit(_LONG_AGO, self.scheduler.now(), connections=1):
                if not difference.told:
                    raise Violated(
                        f"the ledger: {difference.kind} {difference.reference}: "
                        f"{difference.here}; {difference.there}",
                    )

        accountant = self.scheduler.spawn("accountant", closing, story="owner")
        self._until(lambda: accountant.thread.dead)

    def configure(self) -> None:
        """Let the shop have the accounts in their present form."""
        accounts = {
            alias: {
                "BASE_URL": "https://gateway.example",
                "MERCHANT_NO": merchant_no,
                "TOKEN": self._tokens[merchant_no],
                "SANDBOX": True,
                "DIALECT": replace(
                    DIALECTS["reference" if self.currency == "USD" else "v3"],
                    processing_words=frozenset({"processing"}),
                ),
                **(
                    {}
                    if self.currency == "USD"
                    else {"STORE_NO": PUBLISHED_STORE_NO, "METHODS": _METHODS}
                ),
            }
            for alias, merchant_no in (("default", "200001"), ("second", "200002"))
        }
        given = {
            **settings.TILLGATE,
            "ACCOUNTS": accounts,
            "PUBLIC_URL": _PUBLIC_URL,
            "POLL_CONNECTIONS": 1,
            "QUERIES_PER_SECOND": 0,
        }
        given["REVIEW_MAIL_TO"] = self.owner
        settings.TILLGATE = given
        setting_changed.send(sender=type(self), setting="TILLGATE", value=given, enter=True)

    def _outcome(self) -> Outcome:
        reviews: dict[str, int] = {}
        for reason in models.Review.objects.order_by("pk").values_list("reason", flat=True):
            reviews[reason] = reviews.get(reason, 0) + 1
        return Outcome(
            seed=self.scheduler.seed,
            orders=len(self.orders),
            payments=models.Payment.objects.count(),
            paid=models.Payment.objects.filter(status="paid").count(),
            refunds=models.Refund.objects.count(),
            steps=self.steps,
            judged=self.judge.judged,
            days=self.scheduler.elapsed / 86_400,
            digest=self.scheduler.digest,
            struck=dict(sorted(self.faults.struck.items())),
            reviews=dict(sorted(reviews.items())),
        )


def empty_tables() -> None:
    """Empty the tables of every app, and restart their numbers; forget everything cached of them.

    Rows written by `migrate` stay: Django looks for a model's content type once in a process.
    """
    models = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    names = [model._meta.db_table for model in models if model._meta.label not in _MIGRATED]
    for cache in caches.all():
        cache.clear()
    connection.ops.execute_sql_flush(
        connection.ops.sql_flush(no_style(), names, reset_sequences=True, allow_cascade=True),
    )


def simulate(
    shop: ShopDriver,
    seed: int,
    orders: int = 1000,
    *,
    only: int | None = None,
    without: frozenset[str] = frozenset(),
    watch: Callable[[SimulatedWorld], object] = lambda world: None,
) -> Outcome:
    """Simulate one seed in an emptied database. `only` leaves the stories of all orders but one
    out, `without` kinds of faults.

    Raises `Violated` at the first step after which an invariant does not hold; `watch` gets the
    world before it begins.
    """
    empty_tables()
    scheduler = Scheduler(seed)
    world = SimulatedWorld(shop, scheduler, Faults.drawn(scheduler, without))
    watch(world)
    with in_place(world):
        return world.run(orders, only)
