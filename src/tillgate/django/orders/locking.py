"""Transactions and the order's lock (I12)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from tillgate.django.models import Order, database
from tillgate.errors import TillgateError

_PATIENCE_SECONDS: Final = 1.0
"""For the order's lock: other operations hold it for milliseconds, and a shop's handler that hangs
for ever.
"""
AFTER_A_CALL_SECONDS: Final = 10.0
"""The same for the writing of a gateway's answer, which no other process has."""
_IS_LOCKED: Final = frozenset({"55P03", 1205, 3572})
"""The codes of PostgreSQL, MariaDB and MySQL for a lock that another transaction holds."""

_View = TypeVar("_View", bound=Callable[..., Any])


class InsideTransaction(RuntimeError):
    """An operation that uses the network was called inside a transaction, or where the host commits
    by hand; nothing was sent.
    """


class OrderHeld(OperationalError, TillgateError):
    """Another transaction holds the order's lock for longer than an operation waits. Nothing was
    changed; the page asks staff to try again.
    """


def durable() -> transaction.Atomic:
    """Return a transaction that is committed when it ends: it is not nested in the host's, and the
    host does not commit it by hand.
    """
    _refuse_by_hand("this")
    return transaction.atomic(using=database(), durable=True)


def _refuse_by_hand(operation: str) -> None:
    """Raise where autocommit is off: Django then leaves even a durable transaction open, for the
    host to commit or to roll back.
    """
    connection = connections[database()]
    is_on = (
        connection.autocommit if connection.connection else connection.settings_dict["AUTOCOMMIT"]
    )
    if not is_on and not connection.in_atomic_block:
        raise InsideTransaction(
            f"{operation} must be kept at once, and was called while autocommit of database "
            f"{connection.alias!r} is off: "
            "turn it on (transaction.set_autocommit(True), and no AUTOCOMMIT in the settings), or "
            "queue the work",
        )


def outside_transactions(operation: str) -> None:
    """Raise unless no transaction of ours or the host's is open, since the network is about to be
    used.
    """
    _refuse_by_hand(operation)
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            raise InsideTransaction(
                f"{operation} uses the network and was called inside a transaction of database "
                f"{connection.alias!r}: "
                "call it after the transaction, queue the work, or exempt the view from "
                "ATOMIC_REQUESTS",
            )


@contextmanager
def network() -> Iterator[None]:
    """Use the network, and reconnect to the database afterwards: the result must be kept, though
    the connection was cut.
    """
    try:
        yield
    finally:
        reconnect_if_cut()


def reconnect_if_cut() -> None:
    """Let go of a connection that a restart, a failover or a proxy has cut while something else was
    waited for.
    """
    connection = connections[database()]
    if (
        connection.connection is not None
        and not connection.in_atomic_block
        and not connection.is_usable()
    ):
        connection.close()


def without_atomic_requests(view: _View) -> _View:
    """Exempt a view from ATOMIC_REQUESTS of every database: it uses the network, and Django's own
    decorator exempts one.
    """
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


@contextmanager
def shop_savepoint() -> Iterator[None]:
    """Run shop code in a savepoint; raise if it swallowed a database error.

    Its writes would be undone silently: Django goes back to the savepoint where a statement had
    failed, and at a deadlock InnoDB rolls the whole transaction back, so that the savepoint is gone
    and leaving it fails.
    """
    with transaction.atomic(using=database()):
        yield
        if transaction.get_rollback(using=database()):
            raise transaction.TransactionManagementError(
                "a failure of the database was swallowed, and the changes are undone",
            )


@contextmanager
def locked_order(order_id: int, *, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[Order]:
    """Hold an order's lock in a durable transaction; read everything about its payments again under
    it.

    Raise `OrderHeld` where another transaction keeps it for longer than `patience_seconds`: a page
    must not wait for a handler that hangs. SQLite locks no single row: there a transaction waits
    for as long as the connection's `timeout` says.
    """
    with locked(Order.objects.filter(pk=order_id), patience_seconds=patience_seconds) as order:
        yield order


@contextmanager
def locked(
    only: QuerySet[Order],
    *,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Iterator[Order]:
    """Do the same with the order that a query finds."""
    until = time.monotonic() + patience_seconds
    while (begun := _begin(only)) is None:
        if time.monotonic() > until:
            raise OrderHeld(
                f"another transaction holds the order for more than {patience_seconds:g} s: try "
                "again in a moment",
            )
        time.sleep(random.uniform(0.01, 0.05))  # noqa: S311  # spreads the tries, guards nothing
    transaction_, order = begun
    with transaction_:
        yield order


@contextmanager
def joined_order(order_id: int) -> Iterator[Order]:
    """Hold an order's lock in the transaction that is open, which waits as long as the database
    lets it, else like `locked_order`.
    """
    if not connections[database()].in_atomic_block:
        with locked_order(order_id) as order:
            yield order
        return
    with transaction.atomic(using=database()):
        yield Order.objects.select_for_update().get(pk=order_id)


def _begin(only: QuerySet[Order]) -> tuple[ExitStack, Order] | None:
    """Begin a durable transaction that has an order's lock; None where another one has it."""
    nowait = connections[database()].features.has_select_for_update_nowait
    try:
        with ExitStack() as stack:
            stack.enter_context(durable())
            order = only.select_for_update(nowait=nowait).get()
            return stack.pop_all(), order
    except OperationalError as error:
        if nowait and not _IS_LOCKED.isdisjoint(_codes(error)):
            return None
        raise


def _codes(error: OperationalError) -> list[object]:
    """Return the codes that the drivers give an error."""
    return [
        getattr(error.__cause__, "sqlstate", None),
        getattr(error.__cause__, "pgcode", None),
        *error.args[:1],
    ]
