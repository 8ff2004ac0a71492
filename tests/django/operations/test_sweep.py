"""The sweeper: what is due is done once, whatever is slow, silent or dead."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core import mail
from django.db import OperationalError, connections, transaction
from django.urls import include, path

from tests.django import project
from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import NotSent, OutcomeUnknown, hooks
from tillgate.account import Account
from tillgate.django import clock, operations
from tillgate.django.models import Attention, Delivery, Heartbeat, Payment, Refund
from tillgate.django.operations import turns
from tillgate.django.operations.locking import InsideTransaction, durable
from tillgate.django.operations.sweep import SWEEPER, Swept, accounts_due, sweep, sweep_account, sweep_mail, sweep_shop
from tillgate.lifecycle import Found
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN

sweeping: Any = sys.modules["tillgate.django.operations.sweep"]  # the package gives its function under the same name


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_BATCH", 4)


def many(world: World, count: int, account: str = "default") -> list[Payment]:
    """Return payments that are due; nobody has paid them."""
    orders = [world.order() for _ in range(count)]
    payments = [operations.start(world.shop.plugin, order, vendor="alipay", account=account).payment for order in orders]
    make_due(*payments)
    return payments


def make_due(*payments: Payment) -> None:
    Payment.objects.filter(pk__in=[payment.pk for payment in payments]).update(next_look_at=clock.now())


def asked(world: World) -> Counter[str]:
    """Return how often the gateway was asked about each reference."""
    entries = world.sandbox.service.journal.all()
    return Counter(entry.reference for entry in entries if entry.operation == "query" and entry.direction == "in")


def due_in(world: World, payment: Payment) -> float:
    """Return in how many seconds a payment is due."""
    due = world.fresh(payment).next_look_at
    assert due
    return (due - clock.now()).total_seconds()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[[], object]]]:
    """What happens first when an account is queried, by its merchant number's place in the settings; the sandbox answers after it."""
    before: dict[str, Callable[[], object]] = {}
    real = hooks.query

    def query(account: Account, reference: str) -> Any:
        before.get("*", lambda: None)()
        before.get(account.base_url.rpartition("//")[2].partition(":")[0], lambda: None)()
        return real(account, reference)

    monkeypatch.setattr("tillgate.hooks.query", query)
    return before  # type: ignore[return-value]


def silent() -> None:
    raise NotSent("query", "x", "connection refused")


# The schedule -----------------------------------------------------------------------------------------------------------------------------


def test_an_open_payment_is_watched_closely_at_first_and_then_every_ten_minutes(world: World) -> None:
    payment = world.start(world.order())
    looks = []
    for _ in range(60 * 4):
        world.time.advance(seconds=15)
        before = world.queries()
        world.sweep()
        looks += [world.time.offset.total_seconds()] * (world.queries() - before)
        if looks and looks[-1] > 35 * 60:
            break
    assert looks[:6] == [15, 30, 60, 120, 300, 900]
    assert {later - earlier for earlier, later in pairwise(looks[5:])} <= {600, 615}
    assert due_in(world, payment) > 0


def test_what_is_not_due_is_left_alone(world: World) -> None:
    world.start(world.order())
    assert world.sweep() == Swept()
    assert world.queries() == 0


def test_tail_looks_go_on_for_thirty_days_and_then_end(world: World) -> None:
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    world.notice(payment)
    days = []
    for day in range(1, 40):
        world.time.advance(days=1)
        if world.sweep().looked:
            days.append(day)
    assert days == [1, 7, 30]
    assert world.fresh(payment).next_look_at is None


# Leases -----------------------------------------------------------------------------------------------------------------------------------


def test_i2_what_a_dead_worker_held_is_looked_at_by_another_after_the_lease(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    make_due(payment)
    claimed, leased_until = sweeping._claim("default", clock.now(), 10)
    assert [row.pk for row in claimed] == [payment.pk]
    assert world.sweep().looked == 0
    world.time.advance(seconds=(leased_until - clock.now()).total_seconds() + 1)
    assert world.sweep().changed == 1
    assert world.shop.is_paid(order)


def test_the_lease_is_longer_than_a_turn_and_the_longest_call_that_may_begin_at_its_end(
    world: World, configure: Callable[..., None]
) -> None:
    configure({"DEADLINE_SECONDS": 500})
    assert sweeping._lease("default") > timedelta(seconds=60 + 500)
    assert sweeping._lease("nobody knows it") > timedelta(seconds=60 + 600)


def test_i7_a_notice_that_comes_while_the_sweeper_asks_is_not_forgotten(
    world: World, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(NOTICE_THROTTLE_SECONDS=5)
    payment = many(world, 1)[0]
    world.time.advance(minutes=30)  # from now on it is looked at every ten minutes
    real = sweeping.ask

    def answer_and_then_a_notice(asked_about: Payment) -> Any:
        answer = real(asked_about)
        world.notice(payment)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "ask", answer_and_then_a_notice)
        world.sweep()
    assert due_in(world, payment) <= 5


def test_i3_the_lease_that_ran_out_in_the_middle_does_no_harm(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    make_due(payment)
    batch, leased_until = sweeping._claim("default", clock.now(), 10)
    answer = sweeping.ask(batch[0])
    assert isinstance(answer, Found)
    world.time.advance(hours=1)
    world.sweep()
    assert world.shop.times_paid(order) == 1
    sweeping._apply(batch, [answer], leased_until, Swept())
    assert world.shop.times_paid(order) == 1
    assert Delivery.objects.count() == 1


# Bounds -----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_limit_bounds_the_payments_looked_at_and_begins_with_those_due_longest(world: World) -> None:
    payments = many(world, 10)
    for late, payment in enumerate(reversed(payments)):
        Payment.objects.filter(pk=payment.pk).update(next_look_at=clock.now() - timedelta(minutes=late))
    assert sweep(limit=7).looked == 7
    assert set(asked(world)) == {payment.reference for payment in payments[:7]}
    assert sweep(limit=7).looked == 3


@pytest.mark.usefixtures("small_batches", "two_accounts")
def test_the_limit_is_shared_by_all_accounts_and_what_one_does_not_need_is_for_the_others(world: World) -> None:
    many(world, 2, "other")
    many(world, 20)
    assert sweep(limit=10).looked == 10


@pytest.mark.usefixtures("small_batches")
def test_a_sweep_that_is_asked_to_stop_finishes_what_is_under_way_and_gives_the_rest_back(world: World) -> None:
    payments = many(world, 20)
    heard: list[int] = []
    swept = sweep(progress=lambda done: heard.append(done.looked), stop=lambda: bool(heard) and heard[-1] >= 4)
    assert 4 <= swept.looked < 20
    assert Payment.objects.filter(next_look_at__lte=clock.now()).count() == 20 - swept.looked
    assert sweep().looked == 20 - swept.looked
    assert asked(world) == {payment.reference: 1 for payment in payments}


def test_the_rate_of_queries_is_bounded_per_account(world: World, configure: Callable[..., None]) -> None:
    configure(QUERIES_PER_SECOND=50)
    many(world, 26)
    began = time.monotonic()
    assert world.sweep().looked == 26
    assert time.monotonic() - began >= 25 / 50


def test_the_connections_to_a_gateway_are_bounded(
    world: World, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(SWEEP_CONNECTIONS=3)
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
    world.sweep()
    assert most[0] == 3


@pytest.mark.usefixtures("small_batches")
def test_a_turn_ends_and_what_was_not_reached_is_due_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], gateway: dict[str, Callable[[], object]]
) -> None:
    configure(SWEEP_CONNECTIONS=1)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.2)
    gateway["*"] = lambda: time.sleep(0.15)
    many(world, 4)
    looked = sweep_account("default").looked
    assert 1 <= looked <= 2, "a look that would begin after the turn's end is not begun"
    assert Payment.objects.filter(next_look_at__lte=clock.now()).count() == 4 - looked
    assert sweep().looked == 4 - looked  # in as many turns as it takes


# Several workers --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_i3_sweepers_at_once_look_at_each_payment_once_and_tell_the_shop_once(world: World) -> None:
    payments = many(world, 32)
    for payment in payments:
        world.shopper_pays(payment)
    together = threading.Barrier(4)

    def work() -> Swept:
        try:
            together.wait()
            return sweep()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        done = [future.result() for future in [pool.submit(work) for _ in range(4)]]
    assert asked(world) == {payment.reference: 1 for payment in payments}
    assert sum(one.looked for one in done) == 32
    assert [fault for one in done for fault in one.faults] == []
    assert set(ShopOrder.objects.values_list("times_paid", flat=True)) == {1}


@pytest.mark.skipif(project.DATABASE == "sqlite", reason="SQLite has no SKIP LOCKED: its writers take turns")
def test_a_sweeper_passes_by_what_another_is_claiming(world: World) -> None:
    many(world, 6)
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with durable():
                due = Payment.objects.filter(account="default", next_look_at__lte=clock.now()).order_by("next_look_at")
                list(due.select_for_update()[:2])
                is_held.set()
                may_go.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert is_held.wait(30)
        claimed, _ = sweeping._claim("default", clock.now(), 10)
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


@pytest.mark.usefixtures("two_accounts", "small_batches")
def test_a_slow_account_starves_no_other(world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.3)
    slow, quick = many(world, 40), many(world, 3, "other")
    gateway["127.0.0.1"] = lambda: time.sleep(0.1)
    later: list[Payment] = []

    def watch(swept: Swept) -> None:
        if not later and swept.looked > len(quick):
            later.extend(many(world, 1, "other"))  # falls due while the slow one is being swept

    sweep(progress=watch)
    order_of_asking = [entry.reference for entry in world.sandbox.service.journal.all() if entry.operation == "query"]
    assert set(order_of_asking) == {payment.reference for payment in (*slow, *quick, *later)}, "a slow machine may ask some twice"
    assert order_of_asking.index(later[0].reference) < order_of_asking.index(slow[-1].reference)
    assert max(order_of_asking.index(payment.reference) for payment in quick) < order_of_asking.index(slow[-1].reference)


@pytest.mark.usefixtures("two_accounts")
def test_a_silent_gateway_pauses_its_account_and_no_other(world: World, gateway: dict[str, Callable[[], object]]) -> None:
    lost, found = many(world, 40), many(world, 20, "other")
    gateway["127.0.0.1"] = silent
    before, swept = clock.now(), world.sweep()
    assert sum(asked(world)[payment.reference] for payment in found) == 20
    assert swept.no_news <= 5 + 8  # those that were under way when it was noticed
    assert accounts_due() == []
    assert world.sweep().looked == 0
    assert Payment.objects.filter(account="default", next_look_at__lte=before).count() == 40 - swept.no_news
    del gateway["127.0.0.1"]
    world.time.advance(minutes=5)
    world.sweep()
    assert {payment.reference for payment in lost} <= set(asked(world))
    assert not Heartbeat.objects.filter(name__startswith="silent:").exists()


def test_a_gateway_that_was_away_is_tried_again_within_five_minutes(world: World, gateway: dict[str, Callable[[], object]]) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.time.advance(minutes=30)
    gateway["*"] = silent
    world.sweep()
    assert world.fresh(payment).status == "pending"
    del gateway["*"]
    world.time.advance(minutes=5)
    world.sweep()
    assert world.shop.is_paid(order)


def test_payments_that_never_bring_news_do_not_keep_the_others_from_being_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    configure(SWEEP_CONNECTIONS=1)
    payments = many(world, 20)
    hopeless = {payment.reference for payment in payments[:8]}
    real = hooks.query

    def query(account: Account, reference: str) -> Any:
        if reference in hopeless:
            raise OutcomeUnknown("query", reference, "HTTP 500", 500)
        return real(account, reference)

    monkeypatch.setattr("tillgate.hooks.query", query)
    for _ in range(4):
        world.sweep()
        world.time.advance(minutes=2, seconds=1)
    assert set(asked(world)) == {payment.reference for payment in payments[8:]}


def test_a_long_silence_is_told_once_and_taken_back_when_the_gateway_answers(
    world: World, gateway: dict[str, Callable[[], object]]
) -> None:
    many(world, 10)
    gateway["*"] = silent
    for _ in range(20):
        world.sweep()
        world.time.advance(minutes=3)
    assert world.attentions() == ["gateway-silent"]
    assert "connection refused" in Attention.objects.get().sentence
    del gateway["*"]
    world.sweep()
    assert world.attentions() == []
    assert Attention.objects.get().resolution == "the gateway answers again"


def test_a_refusing_gateway_is_told_as_such_and_not_as_silent(world: World, configure: Callable[..., None]) -> None:
    many(world, 10)
    configure({"TOKEN": "another token"})
    for _ in range(20):
        world.sweep()
        world.time.advance(minutes=3)
    assert world.attentions() == ["wrong-credentials"]


def test_refunds_wait_while_the_gateway_is_silent(world: World, gateway: dict[str, Callable[[], object]]) -> None:
    paid = world.paid_payment()
    many(world, 10)
    gateway["*"] = silent
    world.sweep()
    with transaction.atomic():
        refund = operations.queue_refund(paid.pk, "1.00")
        transaction.get_connection().run_on_commit.clear()
    world.sweep()
    assert Refund.objects.get(pk=refund.pk).status == "queued"
    world.time.advance(minutes=3)
    world.sweep()
    assert Refund.objects.get(pk=refund.pk).status == "succeeded"


# Everything else that is due --------------------------------------------------------------------------------------------------------------


def test_refunds_orders_and_deliveries_are_handled(world: World) -> None:
    payment = world.paid_payment()
    with transaction.atomic():
        operations.queue_refund(payment.pk, "2.50")
        transaction.get_connection().run_on_commit.clear()  # the process died before it could send
    declined = world.start(world.order())
    world.sandbox.control.decline(declined.reference)
    world.notice(declined)
    world.time.advance(minutes=61)
    swept = world.sweep()
    assert (swept.refunds_sent, swept.orders_unpaid) == (1, 1)
    assert swept.deliveries == 1
    assert str(world.shop.refunded(payment.order.key)) == "2.50"
    assert world.shop.is_released(declined.order.key)


def test_one_that_fails_keeps_no_other_from_being_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.paid_payment(), world.paid_payment()
    for payment in (first, second):
        with transaction.atomic():
            operations.queue_refund(payment.pk, "1.00")
            transaction.get_connection().run_on_commit.clear()
    real = sweeping.send_refund

    def fail_first(pk: int) -> Any:
        if pk == Refund.objects.order_by("pk").values_list("pk", flat=True)[0]:
            raise RuntimeError("a bug")
        return real(pk)

    monkeypatch.setattr(sweeping, "send_refund", fail_first)
    swept = world.sweep()
    assert swept.refunds_sent == 1
    assert ["a bug" in fault for fault in swept.faults] == [True]
    assert Heartbeat.objects.get(name=SWEEPER).detail["faults"] == swept.faults


def test_a_plugin_that_raises_about_its_account_is_no_news(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = many(world, 1)[0]

    def ask(_: Payment) -> Any:
        raise RuntimeError("the plugin's own table is away")

    monkeypatch.setattr(sweeping, "ask", ask)
    assert world.sweep().no_news == 1
    assert 0 < due_in(world, payment) <= 300


def test_a_database_that_is_away_ends_the_sweep_instead_of_failing_at_every_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        world.paid_payment()
    Delivery.objects.update(done_at=None, due_at=clock.now())
    tried: list[int] = []

    def away(order_id: int) -> Any:
        tried.append(order_id)
        raise OperationalError("server closed the connection unexpectedly")

    def unreachable() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(sweeping, "deliver", away)
    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "_reconnect", unreachable)
        with pytest.raises(OperationalError, match="refused"):
            world.sweep()
    assert len(tried) == 1
    assert len(world.sweep().faults) == 3, "each of three, and once, since no payment brought anything"


def test_i12_nothing_is_swept_inside_a_transaction(world: World) -> None:
    for act in (sweep, sweep_shop, lambda: sweep_account("default"), sweep_mail):
        with pytest.raises(InsideTransaction), transaction.atomic():
            act()


# The heartbeat ----------------------------------------------------------------------------------------------------------------------------


def test_every_sweep_leaves_a_heartbeat_that_says_what_was_done(world: World) -> None:
    world.sweep()
    first = Heartbeat.objects.get(name=SWEEPER)
    many(world, 3)
    world.time.advance(minutes=1)
    world.sweep()
    second = Heartbeat.objects.get(name=SWEEPER)
    assert second.at - first.at >= timedelta(minutes=1)
    assert (first.detail["looked"], second.detail["looked"]) == (0, 3)


# Mail -------------------------------------------------------------------------------------------------------------------------------------


def raise_one(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    operations.refund(payment.pk, "1.00")


def test_what_an_answer_raised_is_taken_back_when_a_later_answer_is_in_order(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.notice(payment)
    assert (world.attentions(), world.shop.is_paid(payment.order.key)) == (["amount-mismatch"], False)
    world.time.advance(minutes=6)
    world.sweep()
    assert (world.attentions(), world.shop.is_paid(payment.order.key)) == ([], True)
    assert Attention.objects.get().resolved_by == "tillgate"


def test_wrong_credentials_are_taken_back_when_the_payment_that_met_them_is_answered(world: World, configure: Callable[..., None]) -> None:
    met, other = world.start(world.order()), world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notice(met)
    configure()
    world.notice(other)
    assert world.attentions() == ["wrong-credentials"]
    world.time.advance(minutes=6)
    world.sweep()
    assert world.attentions() == []


def test_a_charge_back_waits_for_a_person_whatever_the_gateway_says_later(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    operations.look_again(payment, "anna")
    assert world.attentions() == ["changed-after-paid"]
    world.sandbox.control.service.find(payment.reference).status = "paid"
    world.time.advance(days=2)
    world.sweep()
    assert world.attentions() == ["changed-after-paid"]


def test_what_needs_a_person_is_mailed_and_not_more_often_than_set(world: World, configure: Callable[..., None]) -> None:
    configure(ATTENTION_MAIL_TO=["owner@shop.example"], ATTENTION_MAIL_MINUTES=30)
    raise_one(world)
    assert world.sweep().mails == 1
    raise_one(world)
    raise_one(world)
    assert world.sweep().mails == 0
    world.time.advance(minutes=31)
    assert world.sweep().mails == 1
    world.time.advance(minutes=31)
    assert world.sweep().mails == 0
    first, second = mail.outbox
    assert (first.to, first.subject) == (["owner@shop.example"], "1 payment matter needs a person")
    assert second.subject == "2 payment matters need a person"
    assert second.body.count("- Refund of USD") == 2


def test_the_mail_leads_to_what_needs_a_person(world: World, configure: Callable[..., None], settings: Any) -> None:
    configure(ATTENTION_MAIL_TO=["owner@shop.example"], PUBLIC_URL="https://shop.example")
    raise_one(world)
    assert world.sweep().mails == 1
    assert mail.outbox[0].body.endswith("See “needs a person” in the admin: https://shop.example/admin/tillgate/attention/")
    settings.ROOT_URLCONF = (path("payments/", include("tillgate.django.urls")),)  # a shop without the admin
    raise_one(world)
    world.time.advance(minutes=61)
    assert world.sweep().mails == 1
    assert mail.outbox[1].body.endswith("See “needs a person” in the admin.")


def test_the_managers_are_mailed_when_nobody_else_is_named(world: World, settings: Any) -> None:
    raise_one(world)
    settings.MANAGERS = []
    assert world.sweep().mails == 0
    settings.MANAGERS = [("Ann", "ann@shop.example")]
    assert world.sweep().mails == 1
    assert mail.outbox[0].to == ["ann@shop.example"]


def test_what_was_resolved_meanwhile_is_not_mailed(world: World, configure: Callable[..., None]) -> None:
    configure(ATTENTION_MAIL_TO=["owner@shop.example"])
    raise_one(world)
    operations.resolve(Attention.objects.get().pk, "seen", "ann")
    assert world.sweep().mails == 0


def test_many_matters_make_one_mail_of_bounded_length(world: World, configure: Callable[..., None]) -> None:
    configure(ATTENTION_MAIL_TO=["owner@shop.example"])
    for number in range(50):
        Attention.objects.create(reason="underpaid", sentence=f"Matter {number}.", open_key=str(number), raised_at=clock.now())
    assert world.sweep().mails == 1
    assert mail.outbox[0].subject.startswith("50 ")
    assert "... and 30 more." in mail.outbox[0].body
    assert Attention.objects.filter(mailed_at__isnull=True).count() == 0


def test_a_mail_server_that_is_away_is_tried_again_later(
    world: World, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(ATTENTION_MAIL_TO=["owner@shop.example"])
    raise_one(world)

    def refuse(_: object) -> None:
        raise ConnectionRefusedError("no mail today")

    with monkeypatch.context() as patch:
        patch.setattr("django.core.mail.EmailMessage.send", refuse)
        assert "no mail today" in world.sweep().faults[0]
    assert world.sweep().mails == 0
    world.time.advance(minutes=16)
    assert world.sweep().mails == 1


def test_sweepers_at_once_send_one_mail(world: World, configure: Callable[..., None]) -> None:
    configure(ATTENTION_MAIL_TO=["owner@shop.example"])
    raise_one(world)

    def work() -> int:
        try:
            return sweep_mail().mails
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: work(), range(4))) == [0, 0, 0, 1]
    assert len(mail.outbox) == 1
