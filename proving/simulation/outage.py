"""A gateway that is away for weeks: it answers no query and sends no notification, while shoppers
pay at payment pages that are still open.

Once it answers again, one worker run must make good every notification that was lost in all that
time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proving.simulation.faults import KINDS, Faults
from proving.simulation.network import Violated
from proving.simulation.scheduler import Scheduler
from proving.simulation.stand_ins import in_place
from proving.simulation.world import SimulatedWorld, empty_tables
from tillgate.django.models import Order, Payment
from tillgate.django.worker.run import run_worker
from tillgate.django.worker.runner import WorkDone
from tillgate.testing.driver import ShopDriver

__all__ = ["Endured", "endure"]

_DAY: Final = 86_400.0
_HOUR: Final = 3600.0
_WORKER_EVERY: Final = 300.0
_REST: Final = 301.0
"""The worker polls an account whose gateway was silent again within five minutes."""
_OFTEN_PAYS: Final = 0.85
_OFTEN_COMES_BACK: Final = 0.5


@dataclass(frozen=True)
class Endured:
    """The outcome of an outage: payments that were open when it began, notifications lost, worker
    runs without effect, and the effects of one worker run afterwards.
    """

    seed: int
    days: float
    payments: int
    paid: int
    lost_notifications: int
    vain_worker_runs: int
    polled: int
    made_good: int
    digest: str


class _Outage(SimulatedWorld):
    """Every payment begins in the hour before the gateway goes, and is paid, declined or left at
    any time while it is away.
    """

    def __init__(self, shop: ShopDriver, scheduler: Scheduler, days: float) -> None:
        super().__init__(shop, scheduler, Faults(scheduler, dict.fromkeys(KINDS, 0.0)))
        self._days = days
        self._lost_notifications = self._vain_worker_runs = 0

    def endure(self, orders: int) -> Endured:
        """Let it pass, let the worker run once, and count the repaired payments; then let
        everything come to its end.
        """
        self.judge.begin()
        begins = self.scheduler.seconds + _HOUR
        ends = begins + self._days * _DAY
        for number in range(orders):
            name = f"shopper {number}"
            self.scheduler.spawn(
                name,
                lambda story=str(number): self._shopper(story, begins, ends),  # type: ignore[misc]  # a default that holds the loop's value
                story=str(number),
            )
        self.scheduler.spawn("outage", lambda: self._vanish(begins, ends), story="outage")
        self.scheduler.spawn("worker", lambda: self._worker_until(ends), story="worker")
        self._until(lambda: self.scheduler.seconds > ends + _REST)
        paid = [one.reference for one in self.service.transactions() if one.status == "paid"]
        before = self._known_as_paid()
        work_done: list[WorkDone] = []
        self.scheduler.spawn(
            "the one worker run",
            lambda: work_done.append(run_worker()),
            story="worker",
        )
        self._until(lambda: bool(work_done))
        made_good = self._known_as_paid() - before
        if missed := set(paid) - before - made_good:
            raise Violated(
                f"I2: {len(missed)} of {len(paid)} paid payments were not made good by one worker "
                f"run, such as {min(missed)}",
            )
        self.scheduler.spawn("worker", self.people.worker, story="worker")
        self.finish()
        return Endured(
            seed=self.scheduler.seed,
            days=self._days,
            payments=Payment.objects.count(),
            paid=len(paid),
            lost_notifications=self._lost_notifications,
            vain_worker_runs=self._vain_worker_runs,
            polled=work_done[0].counts["payments"],
            made_good=len(made_good),
            digest=self.scheduler.digest,
        )

    def _known_as_paid(self) -> set[str]:
        """Return the references of the payments whose order the shop holds as paid."""
        rows = Order.objects.filter(paid_by__isnull=False).values_list("key", "paid_by__reference")
        return {reference for key, reference in rows if self.shop.times_paid(key) == 1}

    def _vanish(self, begins: float, ends: float) -> None:
        self.scheduler.pause(begins - self.scheduler.seconds)
        self.network.dark_until = ends
        self.scheduler.tell(f"the gateway is away for {self._days:g} days")

    def _shopper(self, story: str, begins: float, ends: float) -> None:
        scheduler = self.scheduler
        assert scheduler.actor
        chance = scheduler.actor.chance
        key = self.place_order(self.price(chance), story)
        scheduler.pause(chance.uniform(0, begins - scheduler.seconds - 60))
        payment = self.people.start(key, "paypal", chance.choice(self.accounts))
        assert payment
        there = self.service.known(payment.merchant_no, payment.reference)
        assert there
        scheduler.pause(chance.uniform(begins, ends) - scheduler.seconds)
        pays = chance.random() < _OFTEN_PAYS
        self.service.settle(scheduler.seconds)
        if not pays and there.status != "pending":
            return  # too late to say no
        way_back = self.service.decide(
            there.transaction_no,
            "pay" if pays else "decline",
            late=pays,
        )
        if way_back and chance.random() < _OFTEN_COMES_BACK:
            self.people.visit("GET", way_back)

    def _worker_until(self, ends: float) -> None:
        while self.scheduler.seconds < ends:
            self.people.process("worker", run_worker)
            self._vain_worker_runs += self.scheduler.seconds < self.network.dark_until
            self.scheduler.pause(_WORKER_EVERY)

    def _post(self) -> None:
        """Lose every notification while the gateway is away; it never learns that none arrived."""
        if self.scheduler.seconds >= self.network.dark_until:
            return super()._post()
        for attempt in self.service.due_notifications(self.scheduler.seconds):
            self._lost_notifications += 1
            self.service.notification_answered(attempt, 200, b"success")
        return None


def endure(
    shop: ShopDriver,
    seed: int,
    orders: int,
    days: float,
    watch: Callable[[SimulatedWorld], object] = lambda _: None,
) -> Endured:
    """Play an outage in an emptied database. Raises `Violated` when one worker run does not make
    all good, or an invariant does not hold.
    """
    empty_tables()
    world = _Outage(shop, Scheduler(seed), days)
    watch(world)
    with in_place(world):
        return world.endure(orders)
