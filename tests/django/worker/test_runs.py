"""The worker: due work is done once, past slow, silent or dead gateways and processes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core import mail
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import include, path
from django.utils import timezone

from tests.django import project
from tests.django.conftest import World
from tests.django.gateway import due_in, make_due, many, queue, silent
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.views import order_page
from tillgate import OutcomeUnknown, hooks
from tillgate.account import Account
from tillgate.django import actions
from tillgate.django.accounting.audit import audit
from tillgate.django.heartbeats import WORKER
from tillgate.django.models import (
    Heartbeat,
    Lane,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.django.outbox import remote
from tillgate.django.payments import reconciling, starting
from tillgate.django.refunds import queueing
from tillgate.django.reviews import closing
from tillgate.django.reviews.closing import AppliedAnswer, conclude
from tillgate.django.worker import runner
from tillgate.django.worker.lanes import rest
from tillgate.django.worker.run import run_lane, run_worker, wake
from tillgate.django.worker.runner import WorkDone
from tillgate.lifecycle import Found, NotFound
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
from tillgate.wire.dialects import REFERENCE


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "AT_ONCE", 4)


def asked(world: World) -> Counter[str]:
    """Return how often the gateway was asked about each reference."""
    entries = world.sandbox.service.journal.all()
    return Counter(
        entry.reference
        for entry in entries
        if entry.operation == "query" and entry.direction == "in"
    )


def accounts_due() -> list[str]:
    """Return the accounts that a worker would give a turn now."""
    return [lane for lane in wake() if not lane.startswith(":")]


# The schedule -------------------------------------------------------------------------------------


@pytest.mark.once
def test_open_payment_polls_slow_down(
    world: World,
) -> None:
    """A payment is watched closely at first and then every ten minutes."""
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
    assert world.run_worker().work == 0
    assert world.queries() == 0


def test_disputable_payment_is_polled_monthly(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(DISPUTABLE_DAYS=60)
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    world.notification(payment)
    days = []
    for day in range(1, 95):
        world.time.advance(days=1)
        if day % 30 in (1, 7, 8, 0) and world.run_worker().counts["payments"]:
            days.append(day)
    assert days == [1, 7, 30, 60]
    assert world.fresh(payment).next_poll_at is None


# Leases -------------------------------------------------------------------------------------------


def test_poll_holds_up_no_notification(world: World, configure: Callable[..., None]) -> None:
    """The throttle counts the queries that notifications and returns caused, not the worker's own
    (I7).
    """
    configure(NOTIFICATION_THROTTLE_SECONDS=60)
    payment, moved = many(world, 2)
    world.shopper_pays(moved)
    assert world.run_worker().counts["payments"] == 2
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
    [handler] = [
        one
        for one in hooks.plugin_manager().hook.tillgate_payment_paid.get_hookimpls()
        if one.plugin is owner
    ]
    real, queried = handler.function, list[int]()

    def count(*arguments: Any) -> Any:
        queried.append(world.queries())
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "function", count)
        assert run_lane("default").counts["events"] == 12
    assert queried == [4] * 4 + [8] * 4 + [12] * 4


# Bounds -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_turn_covers_all_due_in_batches(world: World) -> None:
    many(world, 10)
    assert run_lane("default").counts["payments"] == 10


@pytest.mark.usefixtures("small_batches")
def test_answering_account_rests_no_more(world: World) -> None:
    many(world, 8)
    rest("default", "time-out", has_review=False)
    world.time.advance(minutes=3)
    assert run_worker().counts["payments"] == 8
    assert not Lane.objects.filter(silent_since__isnull=False).exists()


@pytest.mark.usefixtures("small_batches")
def test_stopped_worker_returns_unstarted_work(
    world: World,
) -> None:
    """It finishes the work under way."""
    payments = many(world, 20)
    heard: list[int] = []
    work_done = run_worker(
        progress=lambda done: heard.append(done.counts["payments"]),
        stop=lambda: bool(heard) and heard[-1] >= 4,
    )
    assert (4 <= work_done.counts["payments"] < 20, work_done.faults) == (True, [])
    assert (
        Payment.objects.filter(next_poll_at__lte=timezone.now()).count()
        == 20 - work_done.counts["payments"]
    )
    assert run_worker().counts["payments"] == 20 - work_done.counts["payments"]
    assert asked(world) == {payment.reference: 1 for payment in payments}


def test_query_rate_is_bounded_per_account(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(QUERIES_PER_SECOND=50)
    many(world, 26)
    began = time.monotonic()
    assert world.run_worker().counts["payments"] == 26
    assert time.monotonic() - began >= 25 / 50


def test_the_connections_to_a_gateway_are_bounded(
    world: World,
    configure: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
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
def test_ended_turn_leaves_rest_due(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    configure: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
) -> None:
    configure(POLL_CONNECTIONS=1)
    monkeypatch.setattr(runner, "TURN_SECONDS", 0.2)
    gateway["*"] = lambda: time.sleep(0.15)
    many(world, 4)
    polled = run_lane("default").counts["payments"]
    assert 1 <= polled <= 2, "a look that would begin after the turn's end is not begun"
    assert Payment.objects.filter(next_poll_at__lte=timezone.now()).count() == 4 - polled
    assert run_worker().counts["payments"] == 4 - polled  # in as many turns as it takes


# Several workers ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_i3_parallel_workers_act_once_per_payment(world: World) -> None:
    """Each payment is polled once, and one event is delivered."""
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
    assert sum(one.counts["payments"] for one in done) == 32
    assert [fault for one in done for fault in one.faults] == []
    assert set(ShopOrder.objects.values_list("times_paid", flat=True)) == {1}


# Slow and silent gateways -------------------------------------------------------------------------


@pytest.fixture
def two_accounts(settings: Any, sandbox: Any, configure: Callable[..., None]) -> None:
    """The sandbox under two addresses: `default` at 127.0.0.1 and `other` at localhost."""
    other = {
        "BASE_URL": sandbox.base_url.replace("127.0.0.1", "localhost"),
        "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
        "TOKEN": PUBLISHED_TEST_TOKEN,
        "SANDBOX": True,
    }
    settings.TILLGATE = {
        **settings.TILLGATE,
        "ACCOUNTS": {**settings.TILLGATE["ACCOUNTS"], "other": other},
    }


@pytest.mark.usefixtures("two_accounts")
@pytest.mark.once
def test_silent_gateway_pauses_only_its_account(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    lost, found = many(world, 40), many(world, 20, "other")
    gateway["127.0.0.1"] = silent
    before, work_done = timezone.now(), world.run_worker()
    assert sum(asked(world)[payment.reference] for payment in found) == 20
    assert work_done.news["inconclusive"] <= 5 + 8  # those that were under way when it was noticed
    assert accounts_due() == []
    assert world.run_worker().counts["payments"] == 0
    assert (
        Payment.objects.filter(account="default", next_poll_at__lte=before).count()
        == 40 - work_done.news["inconclusive"]
    )
    del gateway["127.0.0.1"]
    world.time.advance(minutes=5)
    world.run_worker()
    assert {payment.reference for payment in lost} <= set(asked(world))
    assert not Lane.objects.filter(silent_since__isnull=False).exists()


def test_silent_gateway_is_retried_in_minutes(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """A gateway that was away is tried again within five minutes."""
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


def test_quiet_payments_do_not_starve_others(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    configure: Callable[..., None],
) -> None:
    """Payments without change do not keep others from being polled."""
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


def test_long_silence_is_reported_once(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """The review closes when the gateway answers again."""
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


def test_refusing_gateway_is_not_called_silent(
    world: World,
    configure: Callable[..., None],
) -> None:
    many(world, 10)
    configure({"TOKEN": "another token"})
    for _ in range(20):
        world.run_worker()
        world.time.advance(minutes=3)
    assert world.reviews() == ["wrong-credentials"]


def test_refunds_wait_while_the_gateway_is_silent(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    paid = world.paid_payment()
    many(world, 10)
    gateway["*"] = silent
    world.run_worker()
    refund = queue(paid)
    world.run_worker()
    assert Refund.objects.get(pk=refund.pk).status == "queued"
    gateway.clear()
    world.time.advance(minutes=3)
    world.run_worker()
    assert Refund.objects.get(pk=refund.pk).status == "succeeded"


# Everything else that is due ----------------------------------------------------------------------


def test_refunds_orders_and_outbox_events_are_handled(world: World) -> None:
    payment = world.paid_payment()
    queue(payment, "2.50")
    declined = world.start(world.order())
    world.sandbox.control.decline(declined.reference)
    world.notification(declined)
    world.time.advance(minutes=61)
    work_done = world.run_worker()
    assert (work_done.counts["refunds to send"], work_done.counts["unpaid orders"]) == (1, 1)
    assert work_done.counts["events"] == 1, "beside the refund's, which was delivered with it"
    assert str(world.shop.refunded(payment.order.key)) == "2.50"
    assert world.shop.is_released(declined.order.key)


@pytest.mark.usefixtures("two_accounts")
def test_turn_handles_only_its_account(
    world: World,
) -> None:
    """It sends the account's refunds and looks at its payments."""
    ours = world.paid_payment()
    theirs = starting.start_payment(
        world.shop.plugin,
        world.order(),
        method="alipay",
        account="other",
    ).payment
    world.shopper_pays(theirs)
    world.notification(theirs)
    for payment in (ours, ours, theirs):
        queue(payment)
    last_polled_at = many(world, 3)
    many(world, 2, "other")
    before = asked(world)
    work_done = run_lane("default")
    assert work_done.counts == {"payments": 3, "refunds to send": 2}
    polled = {payment.reference: 1 for payment in last_polled_at}
    assert asked(world) - before == polled | {ours.reference: 2}, "one query before each refund"
    assert Refund.objects.get(payment=theirs).status == "queued"
    assert accounts_due() == ["other"]


def test_worker_finishes_all_resulting_work(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """News found by a worker is handled by the same worker, however much it is."""
    monkeypatch.setattr(runner, "AT_ONCE", 2)
    real = hooks.call_owner

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_payment_paid":
            remote.enqueue_remote(plugin, arguments["payment"].order.key, "invoice")
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    for payment in many(world, 5):
        world.shopper_pays(payment)
    work_done = world.run_worker()
    assert (
        work_done.counts["payments"],
        work_done.news["changed"],
        work_done.counts["events"],
    ) == (5, 5, 5)
    assert (work_done.counts["remote events"], work_done.faults) == (5, [])
    assert set(
        TimelineEntry.objects.filter(event="payment.paid").values_list("actor", flat=True),
    ) == {"worker"}


# The heartbeat ------------------------------------------------------------------------------------


def test_heartbeat_says_what_worker_did(world: World) -> None:
    world.run_worker()
    first = Heartbeat.objects.get(name=WORKER)
    many(world, 3)
    world.time.advance(minutes=1)
    world.run_worker()
    second = Heartbeat.objects.get(name=WORKER)
    assert second.at - first.at >= timedelta(minutes=1)
    assert (first.detail.get("payments", 0), second.detail.get("payments", 0)) == (0, 3)


# Mail ---------------------------------------------------------------------------------------------


def raise_one(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(payment.pk, "1.00")


def test_good_answer_closes_earlier_review(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.notification(payment)
    assert (world.reviews(), world.shop.is_paid(payment.order.key)) == (["amount-mismatch"], False)
    world.time.advance(minutes=6)
    world.run_worker()
    assert (world.reviews(), world.shop.is_paid(payment.order.key)) == ([], True)
    assert Review.objects.get().resolved_by == "tillgate"


def test_answered_payment_closes_credentials_review(
    world: World,
    configure: Callable[..., None],
) -> None:
    """The payment is the one that met the wrong credentials."""
    met, other = world.start(world.order()), world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notification(met)
    configure()
    world.notification(other)
    assert world.reviews() == ["wrong-credentials"]
    world.time.advance(minutes=6)
    world.run_worker()
    assert world.reviews() == []


def test_same_answer_keeps_review_open(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    for _ in range(2):
        world.sandbox.control.fault("wrong_amount", occasion="query")
        world.time.advance(minutes=16)
        world.run_worker()
        assert world.reviews() == ["amount-mismatch"]
    assert Review.objects.count() == 1


def mismatched(world: World, count: int) -> list[Payment]:
    """Return payments with a review about another amount at the gateway; they are due again."""
    payments = many(world, count)
    for payment in payments:
        world.shopper_pays(payment)
    for _ in payments:
        world.sandbox.control.fault("wrong_amount", occasion="query")
    run_lane("default")
    assert world.reviews() == ["amount-mismatch"] * count
    make_due(*payments)
    for _ in payments:
        world.sandbox.control.fault("wrong_amount", occasion="query")
    return payments


def test_known_problem_costs_one_statement(
    world: World,
) -> None:
    """Finding a problem that has a review already costs one statement at most."""
    statements = {}
    for count in (2, 20):
        payments = mismatched(world, count)
        with CaptureQueriesContext(connections["default"]) as captured:
            work_done = run_lane("default")
        statements[count] = len(captured)
        assert (work_done.counts["payments"], work_done.faults) == (count, [])
        last_polled_at = Payment.objects.filter(pk__in=[payment.pk for payment in payments])
        assert not last_polled_at.filter(next_poll_at__lte=timezone.now()).exists()
        Review.objects.all().delete()
        Payment.objects.update(next_poll_at=None)  # on a slow machine they are due again
    assert statements[20] - statements[2] <= 18


def test_persisting_problem_is_reported_again(
    world: World,
) -> None:
    """Staff resolved the review, but the next look still finds the problem."""
    one, other = mismatched(world, 2)
    closing.resolve(Review.objects.get(payment=one).pk, "polled", "clerk")
    run_lane("default")
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
def test_later_query_settles_earlier_review(
    world: World,
    reason: str,
    answered: str,
    microseconds_later: int,
    is_over: bool,
) -> None:
    payment, other = world.start(world.order()), world.start(world.order())
    opened_at = timezone.now()
    for about in (payment, other):
        Review.objects.create(
            reason=reason,
            payment=about,
            facts={"detail": "Look."},
            opened_at=opened_at,
            open_key=about.pk,
        )
    asked_at = opened_at + timedelta(microseconds=microseconds_later)
    found = reconciling.ask(payment)
    assert isinstance(found, Found)
    answer = (
        NotFound(asked_at=asked_at)
        if answered == "not found"
        else replace(found, asked_at=asked_at)
    )
    conclude([AppliedAnswer(payment, answer, is_in_order=answered != "a doubt")])
    said = dict(Review.objects.values_list("payment", "resolution"))
    assert said == {
        payment.pk: "a later answer of the gateway has ended it" if is_over else "",
        other.pk: "",
    }


def test_charge_back_always_waits_for_staff(world: World) -> None:
    """No later answer of the gateway closes the review."""
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    actions.poll_now(payment, "anna")
    assert world.reviews() == ["changed-after-paid"]
    world.sandbox.control.service.find(payment.reference).status = "paid"
    world.time.advance(days=2)
    world.run_worker()
    assert world.reviews() == ["changed-after-paid"]


@contextmanager
def held_by_a_hanging_transaction(orders: list[Order]) -> Iterator[None]:
    """Let another connection hold orders, and this one wait for a second at most."""
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
        cursor.execute(
            "SET lock_timeout = '1s'"
            if project.DATABASE == "postgresql"
            else "SET innodb_lock_wait_timeout = 1",
        )
    try:
        yield
    finally:
        connections["default"].close()
        is_over.set()
        hanging.join()


@pytest.mark.parametrize("kind", ["remote", "local"])
def test_failing_event_blocks_no_other_orders(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(runner, "AT_ONCE", 2)
    failing, other = (world.paid_payment() for _ in range(2))
    OutboxEvent.objects.all().delete()

    def deliver(payment: Payment) -> str:
        return remote.enqueue_remote(world.shop.plugin, payment.order.key, "invoice")

    for _ in range(4):
        deliver(failing)
    first = OutboxEvent.objects.earliest("pk")
    if kind == "local":
        OutboxEvent.objects.update(kind="refund-changed")
        OutboxEvent.objects.filter(pk=first.pk).update(kind="review-opened")  # of nothing: it fails
    else:
        real = hooks.call_owner

        def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
            if (
                hook == "tillgate_deliver"
                and arguments["outbox_event"].order.key == failing.order.key
            ):
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
    assert OutboxEvent.objects.filter(order=failing.order, done_at=None).count() == 4, (
        "in order, each after the one before"
    )


@pytest.mark.usefixtures("two_accounts")
def test_longest_waiting_account_goes_first(world: World) -> None:
    first, second = many(world, 2), many(world, 1, "other")
    for payments, minutes in ((first, 1), (second, 2)):
        Payment.objects.filter(pk__in=[payment.pk for payment in payments]).update(
            next_poll_at=timezone.now() - timedelta(minutes=minutes),
        )
    assert accounts_due() == ["other", "default"]
    Payment.objects.filter(pk=first[0].pk).update(
        next_poll_at=timezone.now() - timedelta(minutes=3),
    )
    assert accounts_due() == ["default", "other"]
    refund = queue(world.paid_payment())
    Refund.objects.filter(pk=refund.pk).update(due_at=timezone.now() - timedelta(minutes=4))
    Payment.objects.filter(pk=refund.payment_id).update(account="third")
    assert accounts_due() == ["third", "default", "other"]
    Payment.objects.filter(pk=refund.payment_id).update(account="other")
    assert accounts_due() == ["other", "default"]


@pytest.mark.parametrize("said", ["\0", "\ud800"], ids=["nul", "half a surrogate"])
def test_unstorable_fault_text_spares_worker(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
) -> None:
    """No database can store the text of the error; the worker goes on."""

    def send() -> int:
        raise RuntimeError(f"the mail service says {said}")

    monkeypatch.setattr("tillgate.django.worker.run.STAFF_WORK", (("mail", send),))
    # Workers of a test run cannot send each other half a surrogate either.
    monkeypatch.setattr(logging.getLogger("tillgate"), "disabled", True)
    assert (
        run_lane(":staff").faults
        == world.run_worker().faults
        == ["mail: RuntimeError: the mail service says \ufffd"]
    )
    assert Heartbeat.objects.get(name=WORKER).detail["faults"] == [
        "mail: RuntimeError: the mail service says \ufffd",
    ]


def test_open_reviews_are_mailed_sparingly(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Mails are sent no more often than the setting allows."""
    configure(REVIEW_MAIL_TO=["owner@shop.example"], REVIEW_MAIL_MINUTES=30)
    raise_one(world)
    assert world.run_worker().counts["mail"] == 1
    raise_one(world)
    raise_one(world)
    assert world.run_worker().counts["mail"] == 0
    world.time.advance(minutes=31)
    assert world.run_worker().counts["mail"] == 1
    world.time.advance(minutes=31)
    assert world.run_worker().counts["mail"] == 0
    first, second = mail.outbox
    assert (first.to, first.subject) == (["owner@shop.example"], "1 payment needs review")
    assert second.subject == "2 payments need review"
    assert second.body.count("- Refund of unknown outcome: USD") == 2


def test_review_mail_links_to_reviews(
    world: World,
    configure: Callable[..., None],
    settings: Any,
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"], PUBLIC_URL="https://shop.example")
    raise_one(world)
    assert world.run_worker().counts["mail"] == 1
    assert mail.outbox[0].body.endswith(
        "All open reviews: https://shop.example/admin/tillgate/review/",
    )
    settings.ROOT_URLCONF = (  # a shop without the admin
        path("payments/", include("tillgate.django.urls")),
        path("orders/<str:key>/", order_page),
    )
    raise_one(world)
    world.time.advance(minutes=61)
    assert world.run_worker().counts["mail"] == 1
    assert mail.outbox[1].body.endswith("See “Needs review” on the staff pages.")


def test_managers_get_review_mail_by_default(world: World, settings: Any) -> None:
    raise_one(world)
    settings.MANAGERS = []
    assert world.run_worker().counts["mail"] == 0
    settings.MANAGERS = [("Ann", "ann@shop.example")]
    assert world.run_worker().counts["mail"] == 1
    assert mail.outbox[0].to == ["ann@shop.example"]


def test_what_was_resolved_meanwhile_is_not_mailed(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    raise_one(world)
    closing.resolve(Review.objects.get().pk, "seen", "ann")
    assert world.run_worker().counts["mail"] == 0


def test_many_reviews_make_one_short_mail(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    for number in range(50):
        Review.objects.create(
            reason="underpaid",
            facts={"detail": f"Matter {number}."},
            open_key=str(number),
            opened_at=timezone.now(),
        )
    assert world.run_worker().counts["mail"] == 1
    assert mail.outbox[0].subject.startswith("50 ")
    assert "... and 30 more." in mail.outbox[0].body
    assert Review.objects.filter(mailed_at__isnull=True).count() == 0


def test_absent_mail_server_is_retried(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    raise_one(world)

    def refuse(_: object) -> None:
        raise ConnectionRefusedError("no mail today")

    with monkeypatch.context() as patch:
        patch.setattr("django.core.mail.EmailMessage.send", refuse)
        assert "no mail today" in world.run_worker().faults[0]
    assert world.run_worker().counts["mail"] == 0
    world.time.advance(minutes=16)
    assert world.run_worker().counts["mail"] == 1


def test_workers_at_once_send_one_mail(world: World, configure: Callable[..., None]) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    raise_one(world)

    def work() -> int:
        try:
            return run_lane(":staff").counts["mail"]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: work(), range(4))) == [0, 0, 0, 1]
    assert len(mail.outbox) == 1


def unusable() -> None:
    raise OutcomeUnknown("query", "x", "HTTP 500", 500)


@pytest.mark.parametrize("count", [1, 4])
def test_i2_quiet_shop_hears_of_unusable_gateway(
    world: World,
    gateway: dict[str, Callable[[], object]],
    count: int,
) -> None:
    """Even a shop with few payments learns that the gateway answers nothing usable."""
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
def test_i2_old_account_review_hides_no_payment(
    world: World,
    gateway: dict[str, Callable[[], object]],
    answers: bool,
) -> None:
    """An unanswered payment is reported as long as the account answers others."""
    lost = world.start(world.order())
    gateway[lost.reference if answers else "*"] = unusable
    for reason in ("signature-mismatch", "gateway-silent"):
        key = f"{reason}:account:default"
        Review.objects.create(
            reason=reason,
            account="default",
            facts={"detail": "Once."},
            open_key=key,
            opened_at=timezone.now(),
        )
    for _ in range(40):
        world.start(world.order())  # that payments can be begun says nothing of queries
        world.run_worker()
        world.time.advance(minutes=15)
    assert ("payment-unanswered" in world.reviews()) is answers


@pytest.mark.once
def test_i2_never_answered_payment_opens_review(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """The gateway never says anything usable about the payment."""
    lost = world.start(world.order())
    world.shopper_pays(lost)
    gateway[lost.reference] = unusable
    for _ in range(30):
        world.start(world.order())  # the gateway notifies of it
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
def test_silent_account_opens_one_review(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """Its payments are not reported one by one."""
    many(world, 8)
    gateway["*"] = silent
    for _ in range(60):
        world.run_worker()
        world.time.advance(minutes=15)
    assert world.reviews() == ["gateway-silent"]


def test_early_answer_contradicts_no_payment(
    world: World,
) -> None:
    """The answer was asked for before the payment was paid."""
    payment = world.start(world.order())
    Payment.objects.update(status="created", transaction_no=None, payment_url="")
    asked = world.fresh(payment)
    answer = reconciling.ask(asked)
    world.shopper_pays(payment)
    assert reconciling.reconcile(world.fresh(payment), "notification").status == "paid"
    reconciling.apply_answer(asked, answer, "worker")
    assert (world.fresh(payment).status, world.reviews()) == ("paid", [])


def test_raising_plugin_counts_as_silent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many(world, 5)

    def broken(_: str) -> Any:
        raise RuntimeError("the key of the accounts is lost")

    monkeypatch.setattr(reconciling, "account_of", broken)
    for _ in range(8):
        world.time.advance(minutes=15)
        assert world.run_worker().faults == []
    assert world.reviews() == ["gateway-silent"]


def test_i2_returning_accepted_problem_is_reported(
    world: World,
) -> None:
    """Staff accepted the problem, and a normal answer came in between."""
    payment = world.paid_payment()
    for hours, word in ((2, "reversed"), (30, "success"), (8 * 24, "reversed")):
        world.sandbox.control.set_options({"word_paid": word})
        world.time.advance(hours=hours)
        world.run_worker()
        if word == "reversed":
            [told] = Review.objects.filter(resolved_at__isnull=True)
            assert told.reason == "changed-after-paid"
            closing.resolve(told.pk, "we contest it", "ann", dismissed=True)
    assert Review.objects.filter(payment=payment).count() == 2


def test_i2_forgotten_paid_payment_is_asked_again(
    world: World,
) -> None:
    """The gateway did not know the payment at its last scheduled look."""
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


def test_full_refund_closes_unknown_payment_review(
    world: World,
) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("denied", occasion="query", times=100)
    world.time.advance(hours=2)
    world.run_worker()
    assert world.reviews() == ["payment-unknown"]
    queueing.refund(payment.pk, payment.amount)
    world.time.advance(days=2)
    world.run_worker()
    assert world.reviews() == []


@pytest.mark.parametrize("minutes", [1, 119.99, 125])
def test_i2_only_expired_payments_may_be_forgotten(
    world: World,
    configure: Callable[..., None],
    minutes: float,
) -> None:
    """A payment that a gateway loses while it can be paid may be paid, even at a gateway that
    forgets expired ones.
    """
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
    assert actions.poll_now(world.fresh(payment), "ann").resolved is was_known
    assert [one.kind for one in audit(payment.created_at, timezone.now())] == (
        [] if was_known else ["unknown-there"]
    )
