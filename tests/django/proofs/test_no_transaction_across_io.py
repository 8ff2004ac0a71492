"""I12: no database transaction is open while the network is used. The guard is on in every test of
the app; here it is seen to bite.
"""

from __future__ import annotations

import contextlib
import socket

import pytest
from django.db import transaction

from tests.django.conftest import World
from tillgate import hooks
from tillgate.django.accounts import account_of
from tillgate.testing.guard import NetworkInTransaction


def test_i12_guard_catches_connecting_in_transaction(
    world: World,
    network_in_transactions: list[str],
) -> None:
    with pytest.raises(NetworkInTransaction, match="inside a transaction"), transaction.atomic():
        socket.create_connection(("127.0.0.1", world.sandbox.port))
    assert network_in_transactions.pop().startswith("connect to ('127.0.0.1'")


def test_i12_guard_catches_pooled_connection_use(
    world: World,
    network_in_transactions: list[str],
) -> None:
    """It counts only inside a transaction."""
    payment = world.start(world.order())
    with pytest.raises(NetworkInTransaction), transaction.atomic():
        hooks.query(account_of(payment), payment.reference)
    assert network_in_transactions
    network_in_transactions.clear()


def test_i12_the_guard_remembers_what_somebody_swallowed(
    world: World,
    network_in_transactions: list[str],
) -> None:
    with transaction.atomic(), contextlib.suppress(AssertionError):
        socket.create_connection(("127.0.0.1", world.sandbox.port))
    assert len(network_in_transactions) == 1
    network_in_transactions.clear()


def test_i12_guard_allows_separate_network_and_database(
    world: World,
    network_in_transactions: list[str],
) -> None:
    """The network is used outside a transaction and the database inside."""
    socket.create_connection(("127.0.0.1", world.sandbox.port)).close()
    with transaction.atomic():
        world.order()
    assert network_in_transactions == []


def test_i12_all_operations_keep_network_outside(
    world: World,
    network_in_transactions: list[str],
) -> None:
    """Start, notification, return, refund and worker open no transaction around it."""
    payment = world.start(world.order())
    world.start(payment.order.key, "paypal")
    world.come_back(payment)
    world.shopper_pays(payment)
    world.notification(payment)
    from tillgate.django.refunds import queueing

    queueing.refund(payment.pk, "2.50")
    with transaction.atomic():
        queueing.queue_refund(payment.pk, "2.50")
    world.time.advance(days=1)
    world.run_worker()
    assert world.queries() >= 3
    assert network_in_transactions == []
