"""Replacements of the real world while a simulated one is played: time, chance, network, database,
threads, log, a shop's functions.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import tenacity
from django.conf import settings
from django.core import signing
from django.db import connection, transaction
from django.db.models import QuerySet
from django.test.client import ClientHandler
from django.test.utils import override_settings
from django.utils import timezone

from example_shop import vouchers
from proving.simulation.compiling import compiled_once
from proving.simulation.database import switching
from proving.simulation.faults import Faults
from proving.simulation.judge import Judge
from proving.simulation.network import Network, key_of
from proving.simulation.scheduler import Scheduler
from tillgate import client, hooks, transport
from tillgate.client import Gateway
from tillgate.django import models
from tillgate.django.conf import get_settings
from tillgate.django.orders import times
from tillgate.django.outbox import delivering
from tillgate.django.payments import creating, handing_out, reconciling
from tillgate.django.worker import calls, runner, watch
from tillgate.django.worker import mail as mailing
from tillgate.django.worker.chores import CHORES
from tillgate.hooks import hookimpl
from tillgate.hooks.adapter import ADAPTER_NAME, GatewayAdapter
from tillgate.testing.world import ShopIsDown
from tillgate.wire import references

if TYPE_CHECKING:
    from proving.simulation.world import SimulatedWorld

__all__ = ["in_place", "log_that_is_read"]


_SLEEPS_SECONDS: Final = (1200.0, 10_800.0, 172_800.0)
"""How long a process is suspended before it sends a refund: others take it for dead, and staff may
have decided in between.
"""
_HOOKS: Final = (
    "tillgate_describe_order",
    "tillgate_payment_paid",
    "tillgate_order_unpaid",
    "tillgate_refund_changed",
    "tillgate_deliver",
)
_SLOW_SECONDS: Final = (30.0, 300.0)
"""How long a slow outbox event over the network takes: longer than its lease, now and then."""


@contextmanager
def in_place(world: SimulatedWorld) -> Iterator[None]:
    """Put a world's virtual time, chance, network and database in the places of the real ones."""
    chance, scheduler = _Chance(world.scheduler), world.scheduler
    event_id = models.OutboxEvent._meta.get_field("event_id")
    adapter = _Adapter(world.network, scheduler, world.faults)
    with ExitStack() as stack:
        put = stack.enter_context
        put(override_settings(TILLGATE=dict(settings.TILLGATE)))
        put(mock.patch.object(timezone, "now", scheduler.now))
        # it goes by the machine's time
        put(mock.patch.object(watch._watch, "is_time", return_value=False))
        # Each actor is a process of its own, and has no other calls under way.
        put(mock.patch.object(delivering, "_places", BoundedSemaphore(1000)))
        for module in (
            times,
            calls,
            creating,
            handing_out,
            reconciling,
            runner,
            client,
            transport,
            signing,
            tenacity.nap,
        ):
            put(mock.patch.object(module, "time", scheduler))
        put(mock.patch("stamina._core.random", chance))
        put(mock.patch.object(references, "secrets", chance))
        put(mock.patch.object(models, "secrets", chance))
        put(mock.patch.object(event_id, "_get_default", chance.uuid4))
        put(mock.patch.object(mailing, "send_mail", partial(_mail, world)))
        put(mock.patch.object(runner, "ThreadPoolExecutor", _Inline))
        put(_due_in_one_order())
        put(compiled_once())
        put(switching(scheduler, world.faults))
        put(_handlers_that_fail(world))
        put(log_that_is_read(world.judge))
        put(_requests_in_one_go(scheduler))
        # which no view of ours may be harmed by
        put(mock.patch.dict(connection.settings_dict, ATOMIC_REQUESTS=True))
        manager = hooks.plugin_manager()
        # the real one would answer questions that the simulated one leaves open
        real = manager.unregister(name=ADAPTER_NAME)
        manager.register(adapter, name=ADAPTER_NAME)
        stack.callback(manager.register, real, name=ADAPTER_NAME)
        stack.callback(manager.unregister, adapter)
        manager.register(vouchers)
        stack.callback(manager.unregister, vouchers)
        world.configure()
        yield


class _Chance:
    """Replaces `secrets`, `random` and `uuid` in the simulation: the stream of the present
    actor.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @property
    def _stream(self) -> Random:
        assert self._scheduler.actor, "only actors draw"
        return self._scheduler.actor.chance

    def choice(self, of: Any) -> Any:
        return self._stream.choice(of)

    def uniform(self, low: float, high: float) -> float:
        return self._stream.uniform(low, high)

    def token_urlsafe(self, size: int) -> str:
        return f"{self._stream.getrandbits(8 * size):0{2 * size}x}"[: size * 4 // 3]

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._stream.getrandbits(128), version=4)


class _Inline:
    """Replaces a pool of threads: each task is done where it is submitted."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, action: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(action(*arguments))
        except Exception as error:  # noqa: BLE001  # any error of the address configuration
            done.set_exception(error)
        return done


class _Adapter(GatewayAdapter):
    """The built-in adapter over the simulated network."""

    def __init__(self, network: Network, scheduler: Scheduler, faults: Faults) -> None:
        super().__init__()
        self._scheduler, self._faults = scheduler, faults
        self._gateway = lambda account: Gateway(account, transport=network)  # type: ignore[assignment]

    @hookimpl
    def tillgate_refund(self, account: Any, request: Any) -> Any:
        """Refund, now and then after a long sleep."""
        actor = self._scheduler.actor
        if actor and self._faults.strikes("sleep"):
            self._scheduler.pause(actor.chance.choice(_SLEEPS_SECONDS))
            answer, key = super().tillgate_refund(account, request), key_of(request.ipn_url)
            if models.Refund.objects.filter(notification_key=key, status="failed").exists():
                actor.proof = key, actor.struck
            return answer
        return super().tillgate_refund(account, request)


class _Handlers:
    """Replaces the shop's own functions, and calls them."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def for_hook(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return the replacement of a shop's function."""
        overheard = {
            "tillgate_describe_order": self._described,
            "tillgate_payment_paid": self._paid,
            "tillgate_order_unpaid": self._given_up,
            "tillgate_deliver": self._carried,
        }.get(name)
        return self._failing(overheard(real) if overheard else real)

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Raise now and then, before or after the work, or swallow after it that the database
        failed.
        """
        scheduler, faults = self._world.scheduler, self._world.faults

        def handler(*arguments: Any) -> Any:
            if not faults.strikes("handler"):
                return real(*arguments)
            actor = scheduler.actor
            assert actor
            way = actor.chance.choice(("before", "after", "swallowed"))
            if way == "before":
                raise ShopIsDown("the shop's handler failed")
            answer = real(*arguments)
            if way == "after" or not connection.in_atomic_block:
                raise ShopIsDown("the shop's handler failed")
            # as the failing save of a row does, even in a handler that catches its error
            transaction.set_rollback(True)
            return answer

        return handler

    def _described(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Let an order that staff moved to another currency be in that one."""
        moved = self._world.moved

        def handler(order_key: str) -> hooks.OrderDescription | None:
            described: hooks.OrderDescription | None = real(order_key)
            return (
                replace(described, currency=moved[order_key])
                if described and order_key in moved
                else described
            )

        return handler

    def _given_up(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Let the judge hear that the shop must cancel an order."""

        def handler(order: hooks.Order) -> Any:
            self._world.judge.hear_of_given_up(order)
            return real(order)

        return handler

    def _carried(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Let a remote event take its time, let its process die before it arrives or after, and let
        the judge hear of it.
        """
        scheduler, faults, judge = self._world.scheduler, self._world.faults, self._world.judge

        def handler(outbox_event: hooks.RemoteEvent) -> None:
            actor = scheduler.actor
            assert actor
            judge.hear_of_call("a remote outbox event")
            faults.dies("before a remote outbox event arrived")
            scheduler.pause(
                actor.chance.uniform(
                    *_SLOW_SECONDS if faults.strikes("slow_outbox_event") else (0.01, 0.4),
                ),
            )
            real(outbox_event)
            judge.hear_of_arrival(outbox_event)
            faults.dies("after a remote outbox event arrived")

        return handler

    def _paid(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Let staff close an order now and then after it was found payable, and let the judge hear
        the shop's decision about a payment.
        """
        shop, faults, judge = self._world.shop, self._world.faults, self._world.judge

        def handler(payment: hooks.Payment) -> Any:
            key = payment.order.key
            # staff close no order that is paid
            if faults.strikes("closed_meanwhile") and shop.is_payable(key):
                shop.close_order(key)
            is_payable = shop.is_payable(key)
            outcome = real(payment)
            if outcome == hooks.PaidOutcome.APPLIED:
                judge.hear_of_applied(payment, is_payable=is_payable)
            return outcome

        return handler


@contextmanager
def _handlers_that_fail(world: SimulatedWorld) -> Iterator[None]:
    manager, handlers = hooks.plugin_manager(), _Handlers(world)
    owner = manager.get_plugin(world.shop.plugin)
    with ExitStack() as stack:
        for name in _HOOKS:
            for implementation in getattr(manager.hook, name).get_hookimpls():
                if implementation.plugin is owner:
                    handler = handlers.for_hook(name, implementation.function)
                    stack.enter_context(mock.patch.object(implementation, "function", handler))
        yield


@contextmanager
def _due_in_one_order() -> Iterator[None]:
    """Order rows that fall due at the same moment by their keys, on any database."""
    columns, order_by = {(chore.due,) for chore in CHORES}, QuerySet.order_by

    def ordering(rows: QuerySet[Any], *names: Any) -> QuerySet[Any]:
        return order_by(rows, *names, "pk") if names in columns else order_by(rows, *names)

    with mock.patch.object(QuerySet, "order_by", ordering):
        yield


@contextmanager
def _requests_in_one_go(scheduler: Scheduler) -> Iterator[None]:
    """Let no other actor act while a driver or a shopper sends the shop a request by Django's test
    client.
    """
    call = ClientHandler.__call__

    def calling(handler: ClientHandler, environ: Any) -> Any:
        with scheduler.in_one_go():
            return call(handler, environ)

    with mock.patch.object(ClientHandler, "__call__", calling):
        yield


def _mail(world: SimulatedWorld, subject: str, *_: Any, **__: Any) -> None:
    """Mail the shop's owner, in place of `send_mail`: the server may refuse the mail, before it is
    sent or after.
    """
    scheduler, faults, judge = world.scheduler, world.faults, world.judge
    actor = scheduler.actor
    assert actor
    judge.hear_of_call("a mail")
    faults.dies("before a mail was sent")
    is_refused = bool(faults.strikes("mail_refused"))
    if is_refused and actor.chance.random() < 0.5:
        raise ConnectionRefusedError("the mail server refused")
    told = int(subject.split(maxsplit=1)[0])
    interval = timedelta(minutes=get_settings().review_mail_minutes)
    rests_until = models.Lane.objects.get(name=mailing.MAIL_LANE).rests_until
    assert rests_until
    judge.hear_of_mail(told, rests_until - interval, interval)
    faults.dies("after a mail was sent")
    if is_refused:
        raise TimeoutError("the mail server did not answer")


class _Reader(logging.Handler):
    """Reads to the judge all that is logged, to the last detail."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self._judge = judge

    def emit(self, record: logging.LogRecord) -> None:
        """Read a record as it is printed: with its traceback, and the causes of its error."""
        self._judge.hear_of_log(
            self.format(record),
            record.exc_info[1] if record.exc_info else None,
        )


@contextmanager
def log_that_is_read(judge: Judge) -> Iterator[None]:
    """Let the judge hear every record that a logger passes to the root, down to the last detail."""
    reader, root = _Reader(judge), logging.getLogger()
    level = root.level
    root.addHandler(reader)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(reader)
