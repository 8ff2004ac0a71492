"""The worker: what is due is done once, whatever is slow, silent or dead."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

from tests.django import project
from tests.django.conftest import World
from tests.django.operations.conftest import due_in, queue, silent
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import unregistered
from tests.smallest_shop.views import order_page
from tillgate import NotSent, OutcomeUnknown, hooks
from tillgate.account import Account
from tillgate.django import clock, operations
from tillgate.django.models import Heartbeat, Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.operations import bounds, refunds
from tillgate.django.operations.circuit_breaker import pause
from tillgate.django.operations.locking import InsideTransaction, durable
from tillgate.django.operations.reviews import Heard, conclude
from tillgate.django.operations.supervision import WORKER
from tillgate.django.operations.worker import WorkDone, accounts_due, beat, run_account, run_mail, run_shop, run_worker
from tillgate.lifecycle import Found, Inconclusive, NotFound
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
from tillgate.testing.crashes import Crash
from tillgate.wire.dialects import REFERENCE

working: Any = sys.modules["tillgate.django.operations.worker"]  # the package gives its function under the same name


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "_BATCH", 4)


def many(world: World, count: int, account: str = "default") -> list[Payment]:
    """Return payments that are due; nobody has paid them."""
    orders = [world.order() for _ in range(count)]
    payments = [operations.start_payment(world.shop.plugin, order, method="alipay", account=account).payment for order in orders]
    make_due(*payments)
    return payments


def make_due(*payments: Payment) -> None:
    Payment.objects.filter(pk__in=[payment.pk for payment in payments]).update(next_poll_at=clock.now())


def asked(world: World) -> Counter[str]:
    """Return how often the gateway was asked about each reference."""
    entries = world.sandbox.service.journal.all()
    return Counter(entry.reference for entry in entries if entry.operation == "query" and entry.direction == "in")


# The schedule -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_an_open_payment_is_watched_closely_at_first_and_then_every_ten_minutes(world: World) -> None:
    payment = world.start(world.order())
    looks = []
    for _ in range(60 * 4):
        world.time.advance(seconds=15)
        before = world.queries()
        world.run_worker()
        looks += [world.time.offset.total_seconds()] * (world.queries() - before)
        if looks and looks[-1] > 35 * 60:
            break
    assert looks[:6] == [15, 30, 60, 120, 300, 900]
    assert {later - earlier for earlier, later in pairwise(looks[5:])} <= {600, 615}
    assert due_in(world, payment) > 0


def test_what_is_not_due_is_left_alone(world: World) -> None:
    world.start(world.order())
    assert world.run_worker() == WorkDone()
    assert world.queries() == 0


def test_i2_a_worker_that_is_killed_before_it_is_done_has_applied_what_it_heard_first(
    world: World, gateway: dict[str, Callable[[], object]]
) -> None:
    payments = many(world, 2 * working._BATCH)
    for payment in payments:
        world.shopper_pays(payment)

    def dies() -> None:
        raise Crash("killed")

    gateway[payments[-1].reference] = dies
    with pytest.raises(Crash):
        world.run_worker()
    assert sum(world.fresh(payment).status == "paid" for payment in payments) == working._BATCH


def test_tail_looks_go_on_every_month_while_the_payment_can_be_disputed(world: World, configure: Callable[..., None]) -> None:
    configure(DISPUTABLE_DAYS=60)
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    world.notification(payment)
    days = []
    for day in range(1, 95):
        world.time.advance(days=1)
        if day % 30 in (1, 7, 8, 0) and world.run_worker().polled:
            days.append(day)
    assert days == [1, 7, 30, 60]
    assert world.fresh(payment).next_poll_at is None


# Leases -----------------------------------------------------------------------------------------------------------------------------------


def test_i2_what_a_dead_worker_held_is_looked_at_by_another_after_the_lease(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    make_due(payment)
    claimed, leased_until = working._claim("default", clock.now(), 10)
    assert [row.pk for row in claimed] == [payment.pk]
    assert world.run_worker().polled == 0
    world.time.advance(seconds=(leased_until - clock.now()).total_seconds() + 1)
    assert world.run_worker().changed == 1
    assert world.shop.is_paid(order)


def test_the_lease_is_longer_than_a_turn_and_the_longest_call_that_may_begin_at_its_end(
    world: World, configure: Callable[..., None]
) -> None:
    configure({"DEADLINE_SECONDS": 500})
    assert timedelta(seconds=60 + 600) < working._lease("nobody knows it")
    assert timedelta(seconds=60 + 500) < working._lease("default") < working._lease("nobody knows it")
    _, leased_until = working._claim("default", clock.now(), 10)
    assert leased_until <= clock.now() + working._lease("default")


def test_i7_a_notification_that_comes_while_the_worker_asks_is_not_forgotten(
    world: World, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    payment = many(world, 1)[0]
    world.time.advance(minutes=30)  # from now on it is polled every ten minutes
    real = working.ask

    def answer_and_then_a_notification(asked_about: Payment) -> Any:
        answer = real(asked_about)
        world.shopper_pays(payment)
        world.notification(payment)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(working, "ask", answer_and_then_a_notification)
        world.run_worker()
    assert (world.fresh(payment).status, world.shop.is_paid(payment.order.key)) == ("paid", True)


def test_i3_the_lease_that_ran_out_in_the_middle_does_no_harm(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    make_due(payment)
    batch, leased_until = working._claim("default", clock.now(), 10)
    answer = working.ask(batch[0])
    assert isinstance(answer, Found)
    world.time.advance(hours=1)
    world.run_worker()
    assert world.shop.times_paid(order) == 1
    working._apply(batch, [answer], leased_until, WorkDone())
    assert world.shop.times_paid(order) == 1
    assert OutboxEvent.objects.count() == 1


def test_what_was_not_asked_about_keeps_its_place_and_the_others_are_due_as_their_answers_say(world: World) -> None:
    for late, payment in enumerate(many(world, 5)):
        Payment.objects.filter(pk=payment.pk).update(next_poll_at=clock.now() - timedelta(minutes=late))
    world.time.advance(minutes=30)  # from now on they are polled every ten minutes
    batch, leased_until = working._claim("default", clock.now(), 10)
    work_done = WorkDone()
    unheard = Inconclusive(detail="time-out")
    working._apply(batch, [None, unheard, unheard, working.ask(batch[3]), None], leased_until, work_done)
    first, silent_about, _, found, last = batch
    assert [world.fresh(payment).next_poll_at for payment in (first, last)] == [first.next_poll_at, last.next_poll_at]
    assert due_in(world, silent_about) <= 300 < 540 < due_in(world, found) <= 600
    assert work_done == WorkDone(polled=3, inconclusive=2)


def test_poll_holds_up_no_notification(world: World, configure: Callable[..., None]) -> None:
    """The throttle counts the queries that notifications and returns caused, not the worker's own (I7)."""
    configure(NOTIFICATION_THROTTLE_SECONDS=60)
    payment, moved = many(world, 2)
    world.shopper_pays(moved)
    assert world.run_worker().polled == 2
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.fresh(payment).status == "paid"
    Payment.objects.filter(pk=moved.pk).update(status="pending")
    world.notification(moved)
    assert world.fresh(moved).status == "paid"


@pytest.mark.usefixtures("small_batches")
def test_shop_hears_between_batches(world: World) -> None:
    """A shopper waits for the delivery, not for the account's other payments."""
    for payment in many(world, 12):
        world.shopper_pays(payment)
    owner = hooks.plugin_manager().get_plugin(world.shop.plugin)
    [handler] = [one for one in hooks.plugin_manager().hook.tillgate_payment_paid.get_hookimpls() if one.plugin is owner]
    real, queried = handler.function, list[int]()

    def count(*arguments: Any) -> Any:
        queried.append(world.queries())
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "function", count)
        assert run_account("default").outbox_events == 12
    assert queried == [4] * 4 + [8] * 4 + [12] * 4


# Bounds -----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_limit_bounds_the_payments_looked_at_and_begins_with_those_due_longest(world: World) -> None:
    payments = many(world, 10)
    for late, payment in enumerate(payments):
        Payment.objects.filter(pk=payment.pk).update(next_poll_at=clock.now() - timedelta(minutes=late))
    assert run_worker(limit=7).polled == 7
    assert set(asked(world)) == {payment.reference for payment in payments[3:]}
    assert run_worker(limit=7).polled == 3


@pytest.mark.usefixtures("small_batches", "two_accounts")
def test_the_limit_is_shared_by_all_accounts_and_what_one_does_not_need_is_for_the_others(world: World) -> None:
    many(world, 2, "other")
    many(world, 20)
    assert run_worker(limit=10).polled == 10


@pytest.mark.usefixtures("small_batches")
def test_a_turn_looks_at_all_that_is_due_batch_by_batch(world: World) -> None:
    many(world, 10)
    assert run_account("default").polled == 10


def test_what_a_turn_does_not_reach_counts_for_no_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(POLL_CONNECTIONS=1)
    seconds = [0.0]
    gateway["*"] = lambda: seconds.append(seconds[-1] + 40)
    monkeypatch.setattr(bounds, "time", SimpleNamespace(monotonic=lambda: seconds[-1], sleep=time.sleep))
    many(world, 6)
    assert run_account("default").polled == 2
    many(world, 2)
    assert run_worker(limit=5).polled == 5


@pytest.mark.usefixtures("small_batches")
def test_an_account_that_answers_until_the_limit_is_reached_rests_no_more(world: World) -> None:
    many(world, 8)
    pause("default", "time-out", is_told=False)
    world.time.advance(minutes=3)
    assert run_worker(limit=4).polled == 4
    assert not Heartbeat.objects.filter(name__startswith="silent:").exists()


@pytest.mark.usefixtures("small_batches")
def test_a_worker_that_is_asked_to_stop_finishes_what_is_under_way_and_gives_the_rest_back(world: World) -> None:
    payments = many(world, 20)
    heard: list[int] = []
    work_done = run_worker(progress=lambda done: heard.append(done.polled), stop=lambda: bool(heard) and heard[-1] >= 4)
    assert (4 <= work_done.polled < 20, work_done.faults) == (True, [])
    assert Payment.objects.filter(next_poll_at__lte=clock.now()).count() == 20 - work_done.polled
    assert run_worker().polled == 20 - work_done.polled
    assert asked(world) == {payment.reference: 1 for payment in payments}


def test_the_rate_of_queries_is_bounded_per_account(world: World, configure: Callable[..., None]) -> None:
    configure(QUERIES_PER_SECOND=50)
    many(world, 26)
    began = time.monotonic()
    assert world.run_worker().polled == 26
    assert time.monotonic() - began >= 25 / 50


def test_the_connections_to_a_gateway_are_bounded(
    world: World, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(POLL_CONNECTIONS=3)
    now, most, lock = [0], [0], threading.Lock()

    def count() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1

    gateway["*"] = count
    many(world, 12)
    world.run_worker()
    assert most[0] == 3


@pytest.mark.usefixtures("small_batches")
def test_a_turn_ends_and_what_was_not_reached_is_due_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(POLL_CONNECTIONS=1)
    monkeypatch.setattr(bounds, "TURN_SECONDS", 0.2)
    gateway["*"] = lambda: time.sleep(0.15)
    many(world, 4)
    polled = run_account("default").polled
    assert 1 <= polled <= 2, "a look that would begin after the turn's end is not begun"
    assert Payment.objects.filter(next_poll_at__lte=clock.now()).count() == 4 - polled
    assert run_worker().polled == 4 - polled  # in as many turns as it takes


# Several workers --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_i3_workers_at_once_look_at_each_payment_once_and_tell_the_shop_once(world: World) -> None:
    payments = many(world, 32)
    for payment in payments:
        world.shopper_pays(payment)
    together = threading.Barrier(4)

    def work() -> WorkDone:
        try:
            together.wait()
            return run_worker()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        done = [future.result() for future in [pool.submit(work) for _ in range(4)]]
    assert asked(world) == {payment.reference: 1 for payment in payments}
    assert sum(one.polled for one in done) == 32
    assert [fault for one in done for fault in one.faults] == []
    assert set(ShopOrder.objects.values_list("times_paid", flat=True)) == {1}


@pytest.mark.skipif(project.DATABASE == "sqlite", reason="SQLite has no SKIP LOCKED: its writers take turns")
def test_a_worker_passes_by_what_another_is_claiming(world: World) -> None:
    many(world, 6)
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with durable():
                due = Payment.objects.filter(account="default", next_poll_at__lte=clock.now()).order_by("next_poll_at")
                list(due.select_for_update()[:2])
                is_held.set()
                may_go.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert is_held.wait(30)
        claimed, _ = working._claim("default", clock.now(), 10)
    finally:
        may_go.set()
        thread.join()
    assert len(claimed) == 4


# Slow and silent gateways -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_accounts(settings: Any, sandbox: Any, configure: Callable[..., None]) -> None:
    """The sandbox under two addresses: `default` at 127.0.0.1 and `other` at localhost."""
    other = {
        "BASE_URL": sandbox.base_url.replace("127.0.0.1", "localhost"),
        "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
        "TOKEN": PUBLISHED_TEST_TOKEN,
        "SANDBOX": True,
    }
    settings.TILLGATE = {**settings.TILLGATE, "ACCOUNTS": {**settings.TILLGATE["ACCOUNTS"], "other": other}}


@pytest.mark.usefixtures("two_accounts")
def test_one_worker_does_what_is_due_though_a_claim_passed_over_rows_that_the_claim_of_another_account_locked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(world, 3)
    many(world, 3, "other")
    real, passed_over = working._claim, list[str]()

    def claim(account: str, *arguments: Any) -> Any:
        if account == "other" and not passed_over:
            passed_over.append(account)
            return [], clock.now()
        return real(account, *arguments)

    monkeypatch.setattr(working, "_claim", claim)
    assert world.run_worker().polled == 6
    assert passed_over


@pytest.mark.usefixtures("two_accounts", "small_batches")
def test_a_slow_account_starves_no_other(world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]) -> None:
    monkeypatch.setattr(bounds, "TURN_SECONDS", 0.3)
    slow, quick = many(world, 40), many(world, 3, "other")
    gateway["127.0.0.1"] = lambda: time.sleep(0.1)
    later: list[Payment] = []

    def watch(work_done: WorkDone) -> None:
        if not later and work_done.polled > len(quick):
            later.extend(many(world, 1, "other"))  # falls due while the slow one is being swept

    run_worker(progress=watch)
    order_of_asking = [entry.reference for entry in world.sandbox.service.journal.all() if entry.operation == "query"]
    assert set(order_of_asking) == {payment.reference for payment in (*slow, *quick, *later)}, "a slow machine may ask some twice"
    last = max(order_of_asking.index(payment.reference) for payment in slow)  # many are due at the same moment, in no order of their own
    assert order_of_asking.index(later[0].reference) < last
    assert max(order_of_asking.index(payment.reference) for payment in quick) < last


def test_eight_accounts_are_worked_at_once_and_no_more(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = [f"account-{number}" for number in range(16)]
    settings.TILLGATE = {**settings.TILLGATE, "ACCOUNTS": dict.fromkeys(aliases, settings.TILLGATE["ACCOUNTS"]["default"])}
    for alias in aliases:
        many(world, 1, alias)
    eight, lock, names = threading.Barrier(8, timeout=10), threading.Lock(), list[str]()
    now, most = [0], [0]

    def account(*_: object) -> bool:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            names.append(threading.current_thread().name)
        eight.wait()
        with lock:
            now[0] -= 1
        return False

    monkeypatch.setattr(working, "_account", account)
    world.run_worker()
    assert (len(names), most[0]) == (16, 8)
    assert {name.rpartition("_")[0] for name in names} == {"tillgate-account"}


@pytest.mark.usefixtures("two_accounts")
def test_what_the_accounts_have_done_so_far_is_shown_while_one_is_slow(
    world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]
) -> None:
    real, one_at_a_time = working._claim, threading.Lock()

    def claim(*arguments: Any) -> Any:
        with one_at_a_time:  # on MariaDB a claim locks rows of others for a moment, which these then pass by
            return real(*arguments)

    monkeypatch.setattr(working, "_claim", claim)
    many(world, 1)
    quick, is_shown, waited = many(world, 3, "other"), threading.Event(), list[bool]()
    gateway["127.0.0.1"] = lambda: waited.append(is_shown.wait(10))

    def show(work_done: WorkDone) -> None:
        if work_done.polled == len(quick):
            is_shown.set()

    assert run_worker(progress=show) == WorkDone(polled=4)
    assert waited == [True]


@pytest.mark.usefixtures("two_accounts")
@pytest.mark.once
def test_a_silent_gateway_pauses_its_account_and_no_other(world: World, gateway: dict[str, Callable[[], object]]) -> None:
    lost, found = many(world, 40), many(world, 20, "other")
    gateway["127.0.0.1"] = silent
    before, work_done = clock.now(), world.run_worker()
    assert sum(asked(world)[payment.reference] for payment in found) == 20
    assert work_done.inconclusive <= 5 + 8  # those that were under way when it was noticed
    assert accounts_due() == []
    assert world.run_worker().polled == 0
    assert Payment.objects.filter(account="default", next_poll_at__lte=before).count() == 40 - work_done.inconclusive
    del gateway["127.0.0.1"]
    world.time.advance(minutes=5)
    world.run_worker()
    assert {payment.reference for payment in lost} <= set(asked(world))
    assert not Heartbeat.objects.filter(name__startswith="silent:").exists()


def test_a_gateway_that_was_away_is_tried_again_within_five_minutes(world: World, gateway: dict[str, Callable[[], object]]) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.time.advance(minutes=30)
    gateway["*"] = silent
    world.run_worker()
    assert world.fresh(payment).status == "pending"
    del gateway["*"]
    world.time.advance(minutes=5)
    world.run_worker()
    assert world.shop.is_paid(order)


def test_payments_that_never_bring_news_do_not_keep_the_others_from_being_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    configure(POLL_CONNECTIONS=1)
    payments = many(world, 20)
    hopeless = {payment.reference for payment in payments[:8]}
    real = hooks.query

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        if reference in hopeless:
            raise OutcomeUnknown("query", reference, "HTTP 500", 500)
        return real(account, reference, **bounds)

    monkeypatch.setattr("tillgate.hooks.query", query)
    for _ in range(4):
        world.run_worker()
        world.time.advance(minutes=2, seconds=1)
    assert set(asked(world)) == {payment.reference for payment in payments[8:]}


def test_a_long_silence_is_told_once_and_taken_back_when_the_gateway_answers(
    world: World, gateway: dict[str, Callable[[], object]]
) -> None:
    many(world, 10)
    gateway["*"] = silent
    for _ in range(20):
        world.run_worker()
        world.time.advance(minutes=3)
    assert world.reviews() == ["gateway-silent"]
    assert "connection refused" in Review.objects.get().message
    del gateway["*"]
    world.run_worker()
    assert world.reviews() == []
    assert Review.objects.get().resolution == "the gateway answers again"


def test_a_refusing_gateway_is_told_as_such_and_not_as_silent(world: World, configure: Callable[..., None]) -> None:
    many(world, 10)
    configure({"TOKEN": "another token"})
    for _ in range(20):
        world.run_worker()
        world.time.advance(minutes=3)
    assert world.reviews() == ["wrong-credentials"]


def test_refunds_wait_while_the_gateway_is_silent(world: World, gateway: dict[str, Callable[[], object]]) -> None:
    paid = world.paid_payment()
    many(world, 10)
    gateway["*"] = silent
    world.run_worker()
    refund = queue(paid)
    world.run_worker()
    assert Refund.objects.get(pk=refund.pk).status == "queued"
    world.time.advance(minutes=3)
    world.run_worker()
    assert Refund.objects.get(pk=refund.pk).status == "succeeded"


# Everything else that is due --------------------------------------------------------------------------------------------------------------


def test_refunds_orders_and_outbox_events_are_handled(world: World) -> None:
    payment = world.paid_payment()
    queue(payment, "2.50")
    declined = world.start(world.order())
    world.sandbox.control.decline(declined.reference)
    world.notification(declined)
    world.time.advance(minutes=61)
    work_done = world.run_worker()
    assert (work_done.refunds_sent, work_done.orders_unpaid) == (1, 1)
    assert work_done.outbox_events == 2
    assert str(world.shop.refunded(payment.order.key)) == "2.50"
    assert world.shop.is_released(declined.order.key)


def test_an_account_whose_refunds_wait_or_are_being_sent_has_nothing_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paid = world.paid_payment()

    def never_left(*_: object) -> None:
        raise NotSent("refund", "x", "connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "refund", never_left)
        assert operations.refund(paid.pk, "1.00").status == "queued"
    refunds._claim(queue(paid).pk)
    Refund.objects.filter(status="sending").update(due_at=clock.now())
    assert accounts_due() == []
    assert run_account("default") == WorkDone()
    world.time.advance(hours=1)
    assert accounts_due() == ["default"]


def test_one_that_fails_keeps_no_other_from_being_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.paid_payment(), world.paid_payment()
    for payment in (first, second):
        queue(payment)
    real = working.send_refund

    def fail_first(pk: int) -> Any:
        if pk == Refund.objects.order_by("pk").values_list("pk", flat=True)[0]:
            raise RuntimeError("a bug")
        return real(pk)

    monkeypatch.setattr(working, "send_refund", fail_first)
    work_done = world.run_worker()
    assert work_done.refunds_sent == 1
    assert ["a bug" in fault for fault in work_done.faults] == [True]
    assert Heartbeat.objects.get(name=WORKER).detail["faults"] == work_done.faults


def test_a_plugin_that_raises_about_its_account_is_no_news(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = many(world, 1)[0]

    def ask(_: Payment) -> Any:
        raise RuntimeError("the plugin's own table is away")

    monkeypatch.setattr(working, "ask", ask)
    assert world.run_worker().inconclusive == 1
    assert 0 < due_in(world, payment) <= 300


def test_a_database_that_is_away_ends_the_worker_instead_of_failing_at_every_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        world.paid_payment()
    OutboxEvent.objects.update(done_at=None, due_at=clock.now())
    tried: list[int] = []

    def away(order_id: int) -> Any:
        tried.append(order_id)
        raise OperationalError("server closed the connection unexpectedly")

    def unreachable() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(working, "deliver_now", away)
    with monkeypatch.context() as patch:
        patch.setattr(working, "_reconnect", unreachable)
        with pytest.raises(OperationalError, match="refused"):
            world.run_worker()
    assert len(tried) == 1
    assert len(world.run_worker().faults) == 3, "each of three, and once, since no payment brought anything"


@pytest.mark.parametrize(
    ("operation", "action"),
    [("worker", run_worker), ("run_shop", run_shop), ("run_account", lambda: run_account("default")), ("run_mail", run_mail)],
)
def test_i12_nothing_is_worked_inside_a_transaction(world: World, operation: str, action: Callable[[], WorkDone]) -> None:
    with pytest.raises(InsideTransaction, match=rf"^{operation} uses the network"), transaction.atomic():
        action()


def test_the_shops_turn_does_what_is_due_for_shops_and_asks_no_gateway(world: World) -> None:
    paid = world.paid_payment()
    with world.failing_handler("tillgate_payment_paid"):
        other = world.paid_payment()
    many(world, 2)
    queue(paid)
    for _ in range(2):
        refunds._claim(queue(paid).pk)
        operations.open_order(world.shop.plugin, world.order())
    assert run_shop() == WorkDone()
    assert list(Refund.objects.order_by("pk").values_list("status", flat=True)) == ["queued", "sending", "sending"]
    world.time.advance(minutes=61)
    operations.enqueue_remote(world.shop.plugin, other.order.key, "invoice")
    queries = world.queries()
    work_done = run_shop()
    work_done.add(run_shop())  # what the first turn brought
    assert work_done == WorkDone(refunds_lost=2, orders_unpaid=2, outbox_events=4)
    assert work_done.work == 8
    assert world.queries() == queries
    assert list(Refund.objects.order_by("pk").values_list("status", flat=True)) == ["queued", "unknown", "unknown"]
    assert not OutboxEvent.objects.filter(done_at=None).exists()


@pytest.mark.usefixtures("two_accounts")
def test_an_accounts_turn_sends_its_refunds_looks_at_its_payments_and_leaves_the_others(world: World) -> None:
    ours = world.paid_payment()
    theirs = operations.start_payment(world.shop.plugin, world.order(), method="alipay", account="other").payment
    world.shopper_pays(theirs)
    world.notification(theirs)
    for payment in (ours, ours, theirs):
        queue(payment)
    last_polled_at = many(world, 3)
    many(world, 2, "other")
    before = asked(world)
    work_done = run_account("default")
    assert work_done == WorkDone(polled=3, refunds_sent=2, outbox_events=2)
    assert work_done.work == 7
    assert asked(world) - before == {payment.reference: 1 for payment in last_polled_at}
    assert Refund.objects.get(payment=theirs).status == "queued"
    assert accounts_due() == ["other"]


def test_all_that_is_due_is_done_however_much_of_it_is_read_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 2)
    raise_one(world)
    for _ in range(5):
        operations.open_order(world.shop.plugin, world.order())
        queue(world.paid_payment())
    world.time.advance(minutes=61)
    work_done = world.run_worker()
    assert (work_done.orders_unpaid, work_done.refunds_sent, work_done.mails, work_done.faults) == (5, 5, 1, [])
    assert not OutboxEvent.objects.filter(done_at=None).exists()


@pytest.mark.parametrize("kind", ["lost refund", "unpaid order", "outbox event", "remote outbox event"])
def test_the_shops_turn_says_whether_more_is_left_of_any_kind(world: World, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 1)
    payment = world.start(unregistered())
    world.shopper_pays(payment)
    world.notification(payment)
    if kind == "lost refund":
        refunds._claim(queue(payment).pk)
    elif kind == "unpaid order":
        operations.open_order(world.shop.plugin, world.order())
    elif kind == "outbox event":
        OutboxEvent.objects.update(done_at=None, due_at=clock.now())
    else:
        operations.enqueue_remote(world.shop.plugin, payment.order.key, "invoice")
    later = operations.enqueue_remote(world.shop.plugin, world.start(unregistered()).order.key, "reminder")
    OutboxEvent.objects.filter(event_id=later).update(due_at=clock.now() + timedelta(days=1))
    world.time.advance(minutes=61)
    assert working._shop(WorkDone(), lambda: False) is True, "as many as are read at once"
    run_shop()  # what that brought
    assert working._shop(WorkDone(), lambda: False) is False


def test_what_one_turn_of_the_shop_leaves_is_done_in_as_many_as_it_takes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(7):
        operations.enqueue_remote(world.shop.plugin, world.start(world.order()).order.key, "invoice")
    seconds, real = [0.0], working.deliver_remote

    def deliver_slowly(order_id: int) -> int:
        seconds[0] += 40
        return int(real(order_id))

    monkeypatch.setattr(bounds, "time", SimpleNamespace(monotonic=lambda: seconds[0], sleep=time.sleep))
    monkeypatch.setattr(working, "deliver_remote", deliver_slowly)
    assert run_shop().outbox_events == 2
    assert world.run_worker().outbox_events == 5


def test_a_worker_makes_no_round_more_than_it_needs(
    world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]
) -> None:
    rounds, real = list[int](), working.beat

    def count(work_done: WorkDone) -> None:
        rounds.append(work_done.work)
        real(work_done)

    monkeypatch.setattr(working, "beat", count)
    many(world, 2)
    world.run_worker()
    assert rounds == [2], "all was done"
    many(world, 2)
    run_worker(limit=1)
    assert rounds == [2, 1], "the limit was reached"
    world.run_worker()
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 1)
    for _ in range(3):
        operations.enqueue_remote(world.shop.plugin, world.start(world.order()).order.key, "invoice")
    rounds.clear()
    run_worker(stop=lambda: bool(rounds))
    assert rounds == [2], "it was asked to stop"
    world.run_worker()
    gateway["*"] = silent
    last = many(world, 6)[-1]
    rounds.clear()
    world.run_worker()
    assert len(rounds) == 1, "the gateway fell silent"
    operations.enqueue_remote(world.shop.plugin, last.order.key, "invoice")
    rounds.clear()
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 2)
    world.run_worker()
    assert rounds == [1], "the account rests"


def test_what_a_worker_runs_looks_bring_is_done_by_the_same_worker_however_much_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 2)
    real = hooks.call_owner

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_payment_paid":
            operations.enqueue_remote(plugin, arguments["payment"].order.key, "invoice")
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    for payment in many(world, 5):
        world.shopper_pays(payment)
    assert world.run_worker() == WorkDone(polled=5, changed=5, outbox_events=10)
    assert set(TimelineEntry.objects.filter(event="payment.paid").values_list("actor", flat=True)) == {"worker"}


def test_an_order_is_told_unpaid_when_its_time_is_over_and_not_once_another_worker_was_quicker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations.open_order(world.shop.plugin, world.order())
    order, work_done = Order.objects.get(), WorkDone()
    check_at = order.unpaid_check_at
    assert check_at
    for now, queued in ((check_at - timedelta(microseconds=1), 0), (check_at, 1), (check_at, 1)):
        monkeypatch.setattr(clock, "now", lambda now=now: now)
        working._queue_unpaid(order.pk, work_done)
        assert (work_done.orders_unpaid, OutboxEvent.objects.count()) == (queued, queued)


@pytest.mark.parametrize(
    ("broken", "about"),
    [
        ("mark_lost", "lost refund {lost}"),
        ("_queue_unpaid", "order {order}"),
        ("deliver_now", "outbox events of order {told}"),
        ("deliver_remote", "remote outbox events of order {told}"),
        ("send_refund", "refund {queued}"),
        ("_payments", "payments of default"),
        ("apply_answer", "payment {reference}"),
        ("conclude", "reviews"),
        ("mail_reviews", "mail"),
    ],
)
def test_a_failure_is_told_with_what_it_happened_to(world: World, monkeypatch: pytest.MonkeyPatch, broken: str, about: str) -> None:
    paid, payment = world.paid_payment(), world.start(world.order())
    with world.failing_handler("tillgate_payment_paid"):
        told = world.paid_payment()
    queued, lost = queue(paid), queue(paid)
    refunds._claim(lost.pk)
    operations.enqueue_remote(world.shop.plugin, told.order.key, "invoice")
    Order.objects.filter(pk=paid.order_id).update(unpaid_check_at=clock.now())
    world.shopper_pays(payment)
    world.time.advance(minutes=16)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(working, broken, fail)
    subject = about.format(queued=queued.pk, lost=lost.pk, order=paid.order_id, told=told.order_id, reference=payment.reference)
    faults = set(world.run_worker().faults)
    if broken == "deliver_now":  # it delivers what the other work leads to, too
        faults = {fault for fault in faults if fault.startswith(f"{subject}:")}
    assert faults == {f"{subject}: RuntimeError: a bug"}


def test_a_look_that_cannot_be_put_back_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 1)
    real, looks = QuerySet.update, list[datetime]()

    def update(rows: QuerySet[Any], **changes: Any) -> int:
        if "next_poll_at" in changes:
            looks.append(changes["next_poll_at"])
            if len(looks) > 1:  # after the claim
                raise RuntimeError("a bug")
        return real(rows, **changes)

    monkeypatch.setattr(QuerySet, "update", update)
    assert world.run_worker().faults == ["putting back: RuntimeError: a bug"]


def test_a_worker_keeps_twenty_failures_at_most_and_the_beginning_of_each() -> None:
    work_done = WorkDone()
    for number in range(25):
        work_done.note(ValueError("x" * 400), f"payment {number}")
    assert work_done.faults == [f"payment {number}: ValueError: {'x' * 400}"[:300] for number in range(20)]
    work_done.add(WorkDone(faults=["one more"]))
    assert len(work_done.faults) == 20


# The heartbeat ----------------------------------------------------------------------------------------------------------------------------


def test_every_worker_leaves_a_heartbeat_that_says_what_was_done(world: World) -> None:
    world.run_worker()
    first = Heartbeat.objects.get(name=WORKER)
    many(world, 3)
    world.time.advance(minutes=1)
    world.run_worker()
    second = Heartbeat.objects.get(name=WORKER)
    assert second.at - first.at >= timedelta(minutes=1)
    assert (first.detail["polled"], second.detail["polled"]) == (0, 3)


def test_a_heartbeat_says_five_failures_at_most_and_everything_that_was_counted(world: World) -> None:
    faults = [f"payment {number}: a bug" for number in range(6)]
    counts = {name: number for number, name in enumerate(WorkDone.__dataclass_fields__) if name != "faults"}
    beat(WorkDone(**counts, faults=faults))
    assert Heartbeat.objects.get(name=WORKER).detail == {**counts, "faults": faults[:5]}


# Mail -------------------------------------------------------------------------------------------------------------------------------------


def raise_one(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    operations.refund(payment.pk, "1.00")


def test_what_an_answer_raised_is_taken_back_when_a_later_answer_is_in_order(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.notification(payment)
    assert (world.reviews(), world.shop.is_paid(payment.order.key)) == (["amount-mismatch"], False)
    world.time.advance(minutes=6)
    world.run_worker()
    assert (world.reviews(), world.shop.is_paid(payment.order.key)) == ([], True)
    assert Review.objects.get().resolved_by == "tillgate"


def test_wrong_credentials_are_taken_back_when_the_payment_that_met_them_is_answered(world: World, configure: Callable[..., None]) -> None:
    met, other = world.start(world.order()), world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notification(met)
    configure()
    world.notification(other)
    assert world.reviews() == ["wrong-credentials"]
    world.time.advance(minutes=6)
    world.run_worker()
    assert world.reviews() == []


def test_what_an_answer_raised_stays_while_the_answers_are_the_same(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    for _ in range(2):
        world.sandbox.control.fault("wrong_amount", occasion="query")
        world.time.advance(minutes=16)
        world.run_worker()
        assert world.reviews() == ["amount-mismatch"]
    assert Review.objects.count() == 1


def mismatched(world: World, count: int) -> list[Payment]:
    """Return payments of which persons were told that the gateway has another amount; they are due again."""
    payments = many(world, count)
    for payment in payments:
        world.shopper_pays(payment)
    for _ in payments:
        world.sandbox.control.fault("wrong_amount", occasion="query")
    run_account("default")
    assert world.reviews() == ["amount-mismatch"] * count
    make_due(*payments)
    for _ in payments:
        world.sandbox.control.fault("wrong_amount", occasion="query")
    return payments


def test_a_worker_run_searches_for_the_first_event_of_each_order_only_where_one_is_due(world: World) -> None:
    with world.failing_handler("tillgate_payment_paid"):
        world.paid_payment()
    world.time.advance(minutes=1)
    searches = []
    for _ in range(2):
        with CaptureQueriesContext(connections["default"]) as captured:
            world.run_worker()
        searches.append(sum("NOT EXISTS" in query["sql"] for query in captured))
    due, idle = searches
    assert due > idle == 0


def test_a_look_that_finds_what_persons_were_told_of_costs_one_statement_at_most(world: World) -> None:
    statements = {}
    for count in (2, 20):
        payments = mismatched(world, count)
        with CaptureQueriesContext(connections["default"]) as captured:
            work_done = run_account("default")
        statements[count] = len(captured)
        assert (work_done.polled, work_done.faults) == (count, [])
        last_polled_at = Payment.objects.filter(pk__in=[payment.pk for payment in payments])
        assert not last_polled_at.filter(next_poll_at__lte=clock.now()).exists()
        Review.objects.all().delete()
        Payment.objects.update(next_poll_at=None)  # on a slow machine they are due again
    assert statements[20] - statements[2] <= 18


def test_what_a_person_resolved_is_told_again_when_the_next_look_finds_it_still(world: World) -> None:
    one, other = mismatched(world, 2)
    operations.resolve(Review.objects.get(payment=one).pk, "polled", "clerk")
    run_account("default")
    told = Review.objects.filter(resolved_at__isnull=True).values_list("payment", flat=True)
    assert sorted(told) == sorted([one.pk, other.pk])
    assert Review.objects.count() == 3


@pytest.mark.parametrize(
    ("reason", "answered", "microseconds_later", "is_over"),
    [
        ("amount-mismatch", "found", 1, True),
        ("amount-mismatch", "found", 0, False),
        ("amount-mismatch", "not found", 1, False),
        ("wrong-credentials", "not found", 1, True),
        ("wrong-credentials", "not found", 0, False),
        ("wrong-credentials", "a doubt", 1, True),
        ("payment-unknown", "a doubt", 1, True),
        ("changed-after-paid", "found", 1, False),
        ("payment-unanswered", "not found", 1, True),
        ("payment-unknown", "not found", 1, False),
        ("payment-unknown", "found", 0, False),
    ],
)
def test_what_was_told_of_a_payment_is_over_when_what_was_asked_later_settles_it(
    world: World, reason: str, answered: str, microseconds_later: int, is_over: bool
) -> None:
    payment, other = world.start(world.order()), world.start(world.order())
    opened_at = clock.now()
    for about in (payment, other):
        Review.objects.create(reason=reason, payment=about, facts={"detail": "Look."}, opened_at=opened_at, open_key=about.pk)
    asked_at = opened_at + timedelta(microseconds=microseconds_later)
    found = working.ask(payment)
    assert isinstance(found, Found)
    answer = NotFound(asked_at=asked_at) if answered == "not found" else replace(found, asked_at=asked_at)
    conclude([Heard(payment, answer, is_in_order=answered != "a doubt")])
    said = dict(Review.objects.values_list("payment", "resolution"))
    assert said == {payment.pk: "a later answer of the gateway has ended it" if is_over else "", other.pk: ""}


def test_a_charge_back_waits_for_a_person_whatever_the_gateway_says_later(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    operations.poll_now(payment, "anna")
    assert world.reviews() == ["changed-after-paid"]
    world.sandbox.control.service.find(payment.reference).status = "paid"
    world.time.advance(days=2)
    world.run_worker()
    assert world.reviews() == ["changed-after-paid"]


@contextmanager
def held_by_a_hanging_transaction(orders: list[Order]) -> Iterator[None]:
    """Let somebody hold orders, and this connection wait for a second at most."""
    is_held, is_over = threading.Event(), threading.Event()

    def hang() -> None:
        with transaction.atomic():
            list(Order.objects.select_for_update().filter(pk__in=[order.pk for order in orders]))
            is_held.set()
            is_over.wait(30)
        connections.close_all()

    hanging = threading.Thread(target=hang)
    hanging.start()
    is_held.wait()
    with connections["default"].cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'" if project.DATABASE == "postgresql" else "SET innodb_lock_wait_timeout = 1")
    try:
        yield
    finally:
        connections["default"].close()
        is_over.set()
        hanging.join()


@pytest.mark.skipif(project.DATABASE == "sqlite", reason="SQLite locks no single row")
def test_an_order_that_a_hanging_transaction_holds_keeps_no_other_waiting_longer_than_the_database_waits(world: World) -> None:
    held, other = (world.start(world.order()) for _ in range(2))
    for payment in (held, other):
        world.shopper_pays(payment)
    world.time.advance(seconds=30)
    with held_by_a_hanging_transaction([held.order]):
        work_done = world.run_worker()
    assert [fault.startswith(f"payment {held.reference}: OrderHeld") for fault in work_done.faults] == [True]
    assert world.shop.is_paid(other.order.key)
    world.time.advance(hours=1)
    world.run_worker()
    assert world.shop.is_paid(held.order.key)


@pytest.mark.skipif(project.DATABASE == "sqlite", reason="SQLite locks no single row")
@pytest.mark.parametrize("kind", ["outbox event", "unpaid order", "lost refund", "refund"])
def test_i2_of_many_orders_that_hanging_transactions_hold_one_is_waited_for_and_whatever_else_is_due_is_done(
    world: World, kind: str
) -> None:
    if kind == "unpaid order":
        for _ in range(4):
            operations.open_order(world.shop.plugin, world.order())
    elif kind == "outbox event":
        with world.failing_handler("tillgate_payment_paid", times=4):
            for _ in range(4):
                world.paid_payment()
    else:
        waiting = [queue(world.paid_payment()) for _ in range(4)]
        if kind == "lost refund":
            for refund in waiting:
                refunds._claim(refund.pk)
    world.time.advance(minutes=61)
    held, last = Order.objects.order_by("pk")[:3], Order.objects.order_by("pk")[3]
    with held_by_a_hanging_transaction(list(held)):
        work_done = WorkDone()
        if kind == "refund":
            working._account("default", work_done, bounds.PollLimit(0), working._quiet, bounds.never)
        else:
            work_done.add(run_shop())
    assert [fault.partition(": ")[2].partition(":")[0] for fault in work_done.faults] == ["OrderHeld"]
    assert work_done.work == (2 if kind == "unpaid order" else 1), "a released order's event is delivered in the same run"
    world.run_worker()
    assert world.run_worker().faults == []
    assert not OutboxEvent.objects.filter(done_at=None).exists()
    assert not Refund.objects.filter(status__in=("queued", "sending")).exists()
    assert not Order.objects.filter(unpaid_check_at__isnull=False, pk=last.pk).exists()


def test_what_has_been_due_longest_is_done_first_so_that_what_fails_holds_up_nothing_newer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.failing_handler("tillgate_payment_paid", times=2):
        first, second = (world.paid_payment() for _ in range(2))
    told = list[int]()

    def tell(order_id: int) -> int:
        told.append(order_id)
        return 0

    monkeypatch.setattr(working, "deliver_now", tell)
    for longest, other in ((second, first), (first, second)):
        for payment, minutes in ((longest, 2), (other, 1)):
            OutboxEvent.objects.filter(payment=payment).update(due_at=clock.now() - timedelta(minutes=minutes))
        run_shop()
        assert told == [longest.order_id, other.order_id]
        told.clear()


@pytest.mark.parametrize("kind", ["remote", "local"])
def test_what_stands_behind_an_outbox_event_that_fails_holds_up_no_other_orders(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 2)
    failing, other = (world.paid_payment() for _ in range(2))
    OutboxEvent.objects.all().delete()

    def deliver(payment: Payment) -> str:
        return operations.enqueue_remote(world.shop.plugin, payment.order.key, "invoice")

    for _ in range(4):
        deliver(failing)
    first = OutboxEvent.objects.earliest("pk")
    if kind == "local":
        OutboxEvent.objects.update(kind="refund-changed")
        OutboxEvent.objects.filter(pk=first.pk).update(kind="review-opened")  # of nothing: it fails
    else:
        real = hooks.call_owner

        def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
            if hook == "tillgate_deliver" and arguments["outbox_event"].order.key == failing.order.key:
                raise RuntimeError("the other side is gone")
            return real(plugin, hook, **arguments)

        monkeypatch.setattr(hooks, "call_owner", call_owner)
    world.run_worker()
    assert OutboxEvent.objects.get(pk=first.pk).attempts == 1
    world.time.advance(seconds=5)
    behind = deliver(other)
    if kind == "local":
        OutboxEvent.objects.filter(event_id=behind).update(kind="order-unpaid")
    world.run_worker()
    assert OutboxEvent.objects.get(event_id=behind).done_at
    assert OutboxEvent.objects.filter(order=failing.order, done_at=None).count() == 4, "in order, each after the one before"


@pytest.mark.usefixtures("two_accounts")
def test_the_account_that_has_waited_longest_has_its_turn_first(world: World) -> None:
    first, second = many(world, 2), many(world, 1, "other")
    for payments, minutes in ((first, 1), (second, 2)):
        Payment.objects.filter(pk__in=[payment.pk for payment in payments]).update(next_poll_at=clock.now() - timedelta(minutes=minutes))
    assert accounts_due() == ["other", "default"]
    Payment.objects.filter(pk=first[0].pk).update(next_poll_at=clock.now() - timedelta(minutes=3))
    assert accounts_due() == ["default", "other"]
    refund = queue(world.paid_payment())
    Refund.objects.filter(pk=refund.pk).update(due_at=clock.now() - timedelta(minutes=4))
    Payment.objects.filter(pk=refund.payment_id).update(account="third")
    assert accounts_due() == ["third", "default", "other"]
    Payment.objects.filter(pk=refund.payment_id).update(account="other")
    assert accounts_due() == ["other", "default"]


def test_accounts_that_bring_no_news_keep_no_other_out_of_the_rounds(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]
) -> None:
    """What they could not learn is due as before, and longer than what others have."""
    names = [f"silent-{number}" for number in range(4)]
    default = settings.TILLGATE["ACCOUNTS"]["default"]
    settings.TILLGATE = {**settings.TILLGATE, "POLL_CONNECTIONS": 1, "ACCOUNTS": {"default": default} | dict.fromkeys(names, default)}

    def slow() -> None:
        world.time.advance(seconds=30)
        silent()

    for name in names:
        for payment in many(world, 8, name):
            gateway[payment.reference] = slow
    world.time.advance(minutes=1)
    (live,) = many(world, 1)
    monkeypatch.setattr(working, "_LANES", 1)
    monkeypatch.setattr(bounds, "time", SimpleNamespace(monotonic=lambda: world.time.offset.total_seconds() + 0))
    began, asked_at = clock.now(), list[datetime]()
    gateway[live.reference] = lambda: asked_at.append(clock.now())
    world.run_worker()
    assert asked_at[0] - began < timedelta(minutes=5), "each of the others has had one turn"


def test_however_many_accounts_there_are_the_shop_has_its_turn_in_between(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]
) -> None:
    names = [f"account-{number}" for number in range(5)]
    default = settings.TILLGATE["ACCOUNTS"]["default"]
    settings.TILLGATE = {**settings.TILLGATE, "ACCOUNTS": {"default": default} | dict.fromkeys(names, default)}
    for name in names:
        many(world, 1, name)
    seconds, rounds, real = [0.0], list[int](), working.beat

    def slow() -> None:
        seconds[0] += 40

    def count(work_done: WorkDone) -> None:
        rounds.append(work_done.polled)
        real(work_done)

    gateway["*"] = slow
    monkeypatch.setattr(bounds, "time", SimpleNamespace(monotonic=lambda: seconds[0], sleep=time.sleep))
    monkeypatch.setattr(working, "_LANES", 1)
    monkeypatch.setattr(working, "beat", count)
    world.run_worker()
    assert rounds == [2, 4, 5]


@pytest.mark.usefixtures("two_accounts")
def test_an_account_for_which_there_is_no_connection_left_ends_the_worker_of_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = many(world, 1)[0], many(world, 1, "other")[0]
    real = working._account

    def account(alias: str, *rest: Any) -> Any:
        if alias == "other" and threading.current_thread() is not threading.main_thread():
            raise OperationalError("too many connections")
        return real(alias, *rest)

    monkeypatch.setattr(working, "_account", account)
    work_done = world.run_worker()
    assert work_done.faults == ["account other: OperationalError: too many connections"]
    assert Heartbeat.objects.get(name=WORKER).detail["faults"] == work_done.faults
    assert list(asked(world)) == [first.reference, second.reference], "the other one in the next round, by the thread that has a connection"


@pytest.mark.parametrize("said", ["\0", "\ud800"], ids=["nul", "half a surrogate"])
def test_a_fault_whose_words_no_database_keeps_leaves_the_worker_alive(world: World, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    def send() -> int:
        raise RuntimeError(f"the mail service says {said}")

    monkeypatch.setattr(working, "mail_reviews", send)
    monkeypatch.setattr(working._log, "disabled", True)  # workers of a test run cannot send each other half a surrogate either
    assert run_mail().faults == world.run_worker().faults == ["mail: RuntimeError: the mail service says \ufffd"]
    assert Heartbeat.objects.get(name=WORKER).detail["faults"] == ["mail: RuntimeError: the mail service says \ufffd"]


def test_what_needs_a_person_is_mailed_and_not_more_often_than_set(world: World, configure: Callable[..., None]) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"], REVIEW_MAIL_MINUTES=30)
    raise_one(world)
    assert world.run_worker().mails == 1
    raise_one(world)
    raise_one(world)
    assert world.run_worker().mails == 0
    world.time.advance(minutes=31)
    assert world.run_worker().mails == 1
    world.time.advance(minutes=31)
    assert world.run_worker().mails == 0
    first, second = mail.outbox
    assert (first.to, first.subject) == (["owner@shop.example"], "1 payment needs review")
    assert second.subject == "2 payments need review"
    assert second.body.count("- Refund of unknown outcome: USD") == 2


def test_the_mail_leads_to_what_needs_a_person(world: World, configure: Callable[..., None], settings: Any) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"], PUBLIC_URL="https://shop.example")
    raise_one(world)
    assert world.run_worker().mails == 1
    assert mail.outbox[0].body.endswith("All open reviews: https://shop.example/admin/tillgate/review/")
    settings.ROOT_URLCONF = (  # a shop without the admin
        path("payments/", include("tillgate.django.urls")),
        path("orders/<str:key>/", order_page),
    )
    raise_one(world)
    world.time.advance(minutes=61)
    assert world.run_worker().mails == 1
    assert mail.outbox[1].body.endswith("See “Needs review” on the staff pages.")


def test_the_managers_are_mailed_when_nobody_else_is_named(world: World, settings: Any) -> None:
    raise_one(world)
    settings.MANAGERS = []
    assert world.run_worker().mails == 0
    settings.MANAGERS = [("Ann", "ann@shop.example")]
    assert world.run_worker().mails == 1
    assert mail.outbox[0].to == ["ann@shop.example"]


def test_what_was_resolved_meanwhile_is_not_mailed(world: World, configure: Callable[..., None]) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    raise_one(world)
    operations.resolve(Review.objects.get().pk, "seen", "ann")
    assert world.run_worker().mails == 0


def test_many_matters_make_one_mail_of_bounded_length(world: World, configure: Callable[..., None]) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    for number in range(50):
        Review.objects.create(reason="underpaid", facts={"detail": f"Matter {number}."}, open_key=str(number), opened_at=clock.now())
    assert world.run_worker().mails == 1
    assert mail.outbox[0].subject.startswith("50 ")
    assert "... and 30 more." in mail.outbox[0].body
    assert Review.objects.filter(mailed_at__isnull=True).count() == 0


def test_a_mail_server_that_is_away_is_tried_again_later(
    world: World, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    raise_one(world)

    def refuse(_: object) -> None:
        raise ConnectionRefusedError("no mail today")

    with monkeypatch.context() as patch:
        patch.setattr("django.core.mail.EmailMessage.send", refuse)
        assert "no mail today" in world.run_worker().faults[0]
    assert world.run_worker().mails == 0
    world.time.advance(minutes=16)
    assert world.run_worker().mails == 1


def test_workers_at_once_send_one_mail(world: World, configure: Callable[..., None]) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    raise_one(world)

    def work() -> int:
        try:
            return run_mail().mails
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: work(), range(4))) == [0, 0, 0, 1]
    assert len(mail.outbox) == 1


def unusable() -> None:
    raise OutcomeUnknown("query", "x", "HTTP 500", 500)


@pytest.mark.parametrize("count", [1, 4])
def test_i2_a_gateway_that_answers_a_quiet_shop_nothing_usable_is_told_to_a_person(
    world: World, gateway: dict[str, Callable[[], object]], count: int
) -> None:
    for payment in many(world, count):
        gateway[payment.reference] = unusable
    for _ in range(25):
        world.run_worker()
        world.time.advance(minutes=2)
    assert world.reviews() == ["gateway-silent"]
    gateway.clear()
    world.run_worker()
    assert world.reviews() == []


@pytest.mark.parametrize("answers", [True, False])
def test_i2_what_was_once_wrong_with_an_account_hides_no_payment_that_stays_unanswered_while_the_account_answers(
    world: World, gateway: dict[str, Callable[[], object]], answers: bool
) -> None:
    lost = world.start(world.order())
    gateway[lost.reference if answers else "*"] = unusable
    for reason in ("signature-mismatch", "gateway-silent"):
        key = f"{reason}:account:default"
        Review.objects.create(reason=reason, account="default", facts={"detail": "Once."}, open_key=key, opened_at=clock.now())
    for _ in range(40):
        world.start(world.order())  # that payments can be begun says nothing of queries
        world.run_worker()
        world.time.advance(minutes=15)
    assert ("payment-unanswered" in world.reviews()) is answers


@pytest.mark.parametrize(
    ("fields", "is_hidden"),
    [
        ({}, True),
        ({"account": "another"}, False),
        ({"reason": "forged-notifications"}, False),
        ({"resolved_at": timedelta()}, False),
    ],
)
def test_i2_only_what_is_wrong_with_the_account_now_hides_a_payment_that_no_answer_settles(
    world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], is_hidden: bool
) -> None:
    payment, now = world.start(world.order()), clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    moments = {name: now + value for name, value in fields.items() if isinstance(value, timedelta)}
    known = {"reason": "signature-mismatch", "account": "default", "facts": {"detail": "Once."}, "opened_at": now}
    Review.objects.create(**{**known, **fields, **moments})
    working._tell_of_unanswered([payment])
    assert Review.objects.filter(reason="payment-unanswered").exists() is not is_hidden


def test_a_payment_that_somebody_has_settled_meanwhile_is_not_told_to_be_unanswered(world: World) -> None:
    settled, other = world.start(world.order()), world.start(world.order())
    Payment.objects.update(order=settled.order)
    Payment.objects.filter(pk=settled.pk).update(status="failed")
    working._tell_of_unanswered([settled])
    assert world.reviews() == []
    other.refresh_from_db()
    working._tell_of_unanswered([other])
    told = Review.objects.get()
    assert (told.payment, told.order, told.account) == (other, settled.order, "default")
    assert TimelineEntry.objects.get(event="review.opened").actor == "worker"


@pytest.mark.once
def test_i2_a_payment_that_the_gateway_never_tells_anything_usable_about_is_told_to_a_person(
    world: World, gateway: dict[str, Callable[[], object]]
) -> None:
    lost = world.start(world.order())
    world.shopper_pays(lost)
    gateway[lost.reference] = unusable
    for _ in range(30):
        world.start(world.order())  # of which the gateway tells
        world.run_worker()
        world.time.advance(minutes=15)
    assert world.reviews() == []
    for _ in range(8):
        world.start(world.order())
        world.run_worker()
        world.time.advance(minutes=15)
    assert world.reviews() == ["payment-unanswered"]
    told = Review.objects.get()
    assert (told.payment, told.order) == (lost, lost.order)
    del gateway[lost.reference]
    world.time.advance(hours=1)
    world.run_worker()
    world.time.advance(hours=2)
    world.run_worker()
    assert (world.fresh(lost).status, world.reviews()) == ("paid", [])


@pytest.mark.once
def test_payments_of_an_account_that_is_silent_as_a_whole_are_not_told_one_by_one(
    world: World, gateway: dict[str, Callable[[], object]]
) -> None:
    many(world, 8)
    gateway["*"] = silent
    for _ in range(60):
        world.run_worker()
        world.time.advance(minutes=15)
    assert world.reviews() == ["gateway-silent"]


def test_an_answer_that_was_asked_before_the_payment_was_paid_contradicts_nothing(world: World) -> None:
    payment = world.start(world.order())
    Payment.objects.update(status="created", transaction_no=None, payment_url="")
    asked = world.fresh(payment)
    answer = operations.payments.ask(asked)
    world.shopper_pays(payment)
    assert operations.reconcile(world.fresh(payment), "notification").status == "paid"
    operations.payments.apply_answer(asked, answer, "worker")
    assert (world.fresh(payment).status, world.reviews()) == ("paid", [])


def test_a_payment_whose_answers_cannot_be_applied_is_told_in_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)

    def bug(*_: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(working, "apply_answer", bug)
    for _ in range(10):
        world.time.advance(hours=1)
        world.run_worker()
    assert world.reviews() == ["payment-unanswered"]


def test_an_account_whose_plugin_raises_is_told_to_be_silent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 5)

    def broken(_: str) -> Any:
        raise RuntimeError("the key of the accounts is lost")

    monkeypatch.setattr(working, "find_account", broken)
    monkeypatch.setattr(operations.payments, "account_of", broken)
    for _ in range(8):
        world.time.advance(minutes=15)
        assert world.run_worker().faults == []
    assert world.reviews() == ["gateway-silent"]


def test_i2_what_was_accepted_is_told_again_when_it_comes_again_after_an_answer_in_order(world: World) -> None:
    payment = world.paid_payment()
    for hours, word in ((2, "reversed"), (30, "success"), (8 * 24, "reversed")):
        world.sandbox.control.set_options({"word_paid": word})
        world.time.advance(hours=hours)
        world.run_worker()
        if word == "reversed":
            [told] = Review.objects.filter(resolved_at__isnull=True)
            assert told.reason == "changed-after-paid"
            operations.resolve(told.pk, "we contest it", "ann", dismissed=True)
    assert Review.objects.filter(payment=payment).count() == 2


def test_i2_a_paid_payment_that_the_gateway_forgot_at_its_last_look_is_asked_about_again(world: World) -> None:
    payment = world.paid_payment()
    world.time.advance(days=8)
    world.run_worker()
    world.sandbox.control.fault("denied", occasion="query")
    world.time.advance(days=23)
    world.run_worker()
    assert world.reviews() == ["payment-unknown"]
    assert world.fresh(payment).next_poll_at
    world.time.advance(days=2)
    world.run_worker()
    assert world.reviews() == []


def test_a_paid_payment_that_is_unknown_is_nobodys_matter_once_all_of_it_was_given_back(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("denied", occasion="query", times=100)
    world.time.advance(hours=2)
    world.run_worker()
    assert world.reviews() == ["payment-unknown"]
    operations.refund(payment.pk, payment.amount)
    world.time.advance(days=2)
    world.run_worker()
    assert world.reviews() == []


@pytest.mark.parametrize("minutes", [1, 119.99, 125])
def test_i2_only_what_was_known_until_its_time_was_over_is_forgotten_for_its_age(
    world: World, configure: Callable[..., None], minutes: float
) -> None:
    """What a gateway loses while it can be paid may be paid, whatever it does with what is old."""
    configure({"DIALECT": replace(REFERENCE, expired_is_forgotten=True)})
    order = world.order()
    payment = world.start(order)
    world.time.advance(minutes=minutes)
    world.sandbox.control.fault("denied", occasion="query", times=100)
    for hours in (0, 3, 3):
        world.time.advance(hours=hours)
        world.run_worker()
    was_known = minutes > 120
    assert world.reviews() == ([] if was_known else ["payment-unknown"])
    assert world.fresh(payment).is_open is not was_known
    assert world.shop.is_released(order) is was_known
    world.time.advance(minutes=1)
    assert operations.poll_now(world.fresh(payment), "ann").resolved is was_known
    assert [one.kind for one in operations.audit(payment.created_at, clock.now())] == ([] if was_known else ["unknown-there"])
