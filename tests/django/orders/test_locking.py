"""Transactions of ours: never nested in the host's, never open while the network is used (I12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.core.mail import EmailMessage
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

from tests.django import project
from tests.django.conftest import World
from tillgate import hooks
from tillgate.django import accounts
from tillgate.django.models import Order, Payment, Refund, Review, database
from tillgate.django.orders.locking import (
    InsideTransaction,
    durable,
    locked_order,
    outside_transactions,
    without_atomic_requests,
)
from tillgate.django.payments import reconciling, starting
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import open_review
from tillgate.django.worker.mail import mail_reviews
from tillgate.django.worker.run import run_worker
from tillgate.lifecycle import ReviewReason


class KeptElsewhere:
    """A router of a project that keeps Tillgate's rows in a database of their own."""

    def db_for_write(self, model: type[Any], **hints: object) -> str | None:
        return "elsewhere" if model._meta.app_label == "tillgate" else None


@pytest.fixture
def elsewhere(settings: Any) -> Iterator[str]:
    """A second database, where Tillgate's rows are."""
    alias = "elsewhere"
    given = {
        DEFAULT_DB_ALIAS: connections.settings[DEFAULT_DB_ALIAS],
        alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    }
    connections.settings[alias] = connections.configure_settings(given)[alias]
    connections[
        alias
        # by ourselves: pytest-django lets no test connect to a database that it has not prepared
    ].connect()
    settings.DATABASE_ROUTERS = [KeptElsewhere()]
    yield alias
    connections[alias].close()
    del connections[alias], connections.settings[alias]


def test_i12_network_operation_explains_its_misuse() -> None:
    """The error names the call's place and the remedy."""
    outside_transactions("refund")
    with pytest.raises(InsideTransaction) as caught, transaction.atomic():
        outside_transactions("refund")
    assert str(caught.value) == (
        "refund uses the network and was called inside a transaction of database 'default': "
        "call it after the transaction, queue the work, or exempt the view from ATOMIC_REQUESTS"
    )


@contextmanager
def by_hand() -> Iterator[None]:
    """Let the host begin and end its transactions itself."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_i6_manual_commit_sends_nothing(
    world: World,
) -> None:
    """If the host commits by hand, its rollback would forget a sent request."""
    payment = world.paid_payment()
    for send in (
        lambda: queueing.refund(payment.pk, "1.00"),
        lambda: world.start(world.order()),
        run_worker,
    ):
        with (
            by_hand(),
            pytest.raises(InsideTransaction, match="while autocommit of database 'default' is off"),
        ):
            send()
    assert (world.refunded_amount(payment), Refund.objects.count(), Payment.objects.count()) == (
        Decimal(0),
        0,
        1,
    )


@pytest.mark.parametrize(
    ("action", "operation"),
    [(lambda: outside_transactions("refund"), "refund"), (durable, "this")],
)
def test_manual_commit_error_explains_itself(
    world: World,
    action: Callable[[], object],
    operation: str,
) -> None:
    """It names the place of the operation's call and the remedy."""
    with by_hand(), pytest.raises(InsideTransaction) as caught:
        action()
    assert str(caught.value) == (
        f"{operation} must be kept at once, and was called while autocommit of database 'default' "
        "is off: "
        "turn it on (transaction.set_autocommit(True), and no AUTOCOMMIT in the settings), or "
        "queue the work"
    )


def test_settings_tell_manual_commit_before_connecting(
    elsewhere: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(connections[elsewhere], "connection", None)
        outside_transactions("refund")
        patch.setitem(connections[elsewhere].settings_dict, "AUTOCOMMIT", False)
        with pytest.raises(
            InsideTransaction,
            match="while autocommit of database 'elsewhere' is off",
        ):
            outside_transactions("refund")


def test_manual_commit_acknowledges_nothing_unsaved(
    world: World,
) -> None:
    """While the host commits by hand, a notification is not acknowledged."""
    payment = world.start(world.order())
    with (
        by_hand(),
        pytest.raises(InsideTransaction, match="while autocommit of database 'default' is off"),
    ):
        world.notification(payment)
    assert world.fresh(payment).notifications == 0


def test_manual_commit_queues_refunds(
    world: World,
) -> None:
    """The refund is queued with the host's commit."""
    payment = world.paid_payment()
    transaction.set_autocommit(False)
    try:
        queueing.queue_refund(payment.pk, "1.00")
        assert Refund.objects.get().status == "queued"
    finally:
        transaction.commit()
        transaction.set_autocommit(True)
    assert Refund.objects.get().status == "succeeded"
    assert world.refunded_amount(payment) == 1


def test_own_transactions_are_never_nested(world: World) -> None:
    order = world.start(world.order()).order
    with locked_order(order.pk) as locked:
        assert locked == order
        assert transaction.get_connection(database()).in_atomic_block
    for ours in (durable, lambda: locked_order(order.pk)):
        with transaction.atomic(), pytest.raises(RuntimeError, match="durable"), ours():
            pass
    with durable():
        Order.objects.update(plugin="another")
        transaction.set_rollback(True, using=database())
    assert Order.objects.get().plugin == world.shop.plugin


def test_view_skips_every_databases_transactions() -> None:
    view = without_atomic_requests(lambda request: None)
    assert vars(view)["_non_atomic_requests"] == {"default"}


def test_own_transactions_use_own_database(elsewhere: str) -> None:
    assert database() == elsewhere
    with durable():
        assert connections[elsewhere].in_atomic_block
        assert not connections[DEFAULT_DB_ALIAS].in_atomic_block
    with durable(), pytest.raises(InsideTransaction, match="of database 'elsewhere'"):
        outside_transactions("refund")


def test_view_skips_both_databases_transactions(
    elsewhere: str,
) -> None:
    """These are the host's database and ours."""
    view = without_atomic_requests(lambda request: None)
    assert vars(view)["_non_atomic_requests"] == {DEFAULT_DB_ALIAS, elsewhere}


# A connection that is cut while the network is used -----------------------------------------------

cut = pytest.mark.skipif(
    project.DATABASE == "sqlite",
    reason="SQLite has no connection that could be cut",
)


def cut_connection() -> None:
    """Let the server end this thread's connection, as when it restarts or a proxy takes it for
    idle.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_backend_pid()"
            if connection.vendor == "postgresql"
            else "SELECT CONNECTION_ID()",
        )
        (number,) = cursor.fetchone()

    def kill() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    f"SELECT pg_terminate_backend({number})"
                    if connection.vendor == "postgresql"
                    else f"KILL {number}",
                )
        finally:
            connections.close_all()

    killer = threading.Thread(target=kill)
    killer.start()
    killer.join()


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the connection be cut at each call to the gateway, before its answer is there."""

    def call(real: Callable[..., Any], *arguments: Any, **bounds: Any) -> Any:
        answer = real(*arguments, **bounds)
        cut_connection()
        return answer

    for name in ("pay", "query", "refund"):
        monkeypatch.setattr(hooks, name, partial(call, getattr(hooks, name)))


@cut
@pytest.mark.usefixtures("cutting")
def test_gateway_answer_survives_cut_connection(
    world: World,
) -> None:
    order = world.order()
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert (started.payment.status, bool(started.payment.payment_url)) == ("pending", True)
    world.shopper_pays(started.payment)
    assert reconciling.reconcile(world.fresh(started.payment), "staff:ann").status == "paid"
    assert world.shop.is_paid(order)
    assert queueing.refund(started.payment.pk, "1.00").status == "succeeded"


@cut
@pytest.mark.usefixtures("cutting")
def test_worker_results_survive_cut_connection(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(POLL_CONNECTIONS=1)
    payments = [world.start(world.order()) for _ in range(2)]
    for payment in payments:
        world.shopper_pays(payment)
    world.time.advance(minutes=1)
    assert world.run_worker().news["changed"] == 2
    assert {world.fresh(payment).status for payment in payments} == {"paid"}


@cut
def test_unsent_refund_survives_cut_connection(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is cut just before sending, and the refund is sent later."""
    payment = world.paid_payment()
    cuts = [cut_connection]

    def account_of(payment: Payment) -> Any:
        if cuts:
            cuts.pop()()
        return accounts.account_of(payment)

    monkeypatch.setattr("tillgate.django.refunds.sending.account_of", account_of)
    refund = queueing.refund(payment.pk, "1.00")
    assert (refund.status, world.refunded_amount(payment)) == ("queued", Decimal(0))
    world.a_day_passes()
    assert (Refund.objects.get().status, world.refunded_amount(payment)) == (
        "succeeded",
        Decimal("1.00"),
    )


@cut
def test_cut_connection_repeats_no_mail(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    real = EmailMessage.send

    def send(mail: EmailMessage) -> int:
        cut_connection()
        return real(mail)

    monkeypatch.setattr(EmailMessage, "send", send)
    with durable():
        open_review(ReviewReason.GATEWAY_SILENT, "Silent.", "worker", account="default")
    assert mail_reviews() == 1
    assert Review.objects.get().mailed_at is not None
