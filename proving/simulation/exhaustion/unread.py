"""Keep from an actor the columns that it loads and never reads: two places that differ only in
those are one.

A query for a model loads all columns, and most of them play no part in the process after it. The
tables here name them, and the code holds to that: a process that reads one ends the exploration
with an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from unittest import mock

from django.db.models import DEFERRED, Model
from django.db.models.query_utils import DeferredAttribute

from proving.simulation.exhaustion.rows import OUTBOX_EVENTS, columns_of
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, TimelineEntry

__all__ = ["keeping", "without_unread"]

_Columns = dict[type[Model], tuple[str, ...]]
_OF_AN_ORDER: Final = ("unpaid_check_at",)
_OF_A_REFUND: Final = ("due_at", "notifications", "status_since")
_OF_A_OUTBOX_EVENT: Final = ("fault", "outcome")
_UNREAD: Final[dict[str, _Columns]] = {
    "shopper": {Order: _OF_AN_ORDER},
    "payer": {Order: _OF_AN_ORDER},
    "clerk": {
        Order: _OF_AN_ORDER,
        Payment: (
            "last_notification",
            "last_polled_at",
            "last_returned_at",
            "next_poll_at",
            "notifications",
            "status_since",
        ),
        Refund: _OF_A_REFUND,
        OutboxEvent: _OF_A_OUTBOX_EVENT,
    },
    "payment notification": {
        Order: _OF_AN_ORDER,
        Refund: _OF_A_REFUND,
        OutboxEvent: _OF_A_OUTBOX_EVENT,
    },
    "refund notification": {
        Order: _OF_AN_ORDER,
        Payment: (
            "last_notification",
            "last_polled_at",
            "last_returned_at",
            "next_poll_at",
            "notifications",
            "status_since",
        ),
        Refund: _OF_A_REFUND,
    },
}
"""The columns that an actor never reads, by kind of actor."""
_OF_A_DELIVERED_PAYMENT: Final = (
    "last_notification",
    "last_polled_at",
    "last_returned_at",
    "next_poll_at",
    "notifications",
    "repeated_notifications",
    "status_since",
)
"""Columns of a payment that is loaded with the event for the shop and with the reason why it is
paid; no process reads these.
"""
_NEW_ENTRY: Final = f'INSERT INTO "{TimelineEntry._meta.db_table}" '
_KEPT: Final = datetime.min.replace(tzinfo=UTC)
"""Marks a hidden column in a row; a moment, which the driver's converters leave as it is.
"""
_COLUMN: Final = re.compile(r'"(\w+)"\."(\w+)"')
_PUNCTUATION: Final = re.compile(r"\(|\)|, | FROM ")


def without_unread(actor: str, sql: str, read: Any) -> Any:
    """Return the rows that an actor reads, one or several, without the columns that it never
    reads.
    """
    places = _places(actor, sql)
    if not places or not isinstance(read, list | tuple):
        return read
    if isinstance(read, list):
        return [_without(row, places) for row in read]
    return _without(read, places)


def _columns_read(sql: str) -> list[tuple[str, ...]]:
    """Return the table and column of each cell of a row that a query reads; of one that is
    reckoned, nothing.
    """
    depth, ends, cells = 0, 0, list[str]()
    for mark in _PUNCTUATION.finditer(sql):
        depth += {"(": 1, ")": -1}.get(mark[0], 0)
        if depth == 0 and mark[0] in (", ", " FROM "):
            cells.append(sql[ends : mark.start()])
            ends = mark.end()
            if mark[0] == " FROM ":
                break
    return [
        match.groups() if (match := _COLUMN.fullmatch(cell.removeprefix("SELECT "))) else ("", "")
        for cell in cells
    ]


def _without(row: tuple[Any, ...], places: frozenset[int]) -> tuple[Any, ...]:
    return tuple(_KEPT if place in places else cell for place, cell in enumerate(row))


@cache
def _places(actor: str, sql: str) -> frozenset[int]:
    """Return where in a row of a query that loads models the columns stand that are kept; a query
    for single columns looks at them.
    """
    unread = next((columns for kind, columns in _UNREAD.items() if kind in actor), None)
    if sql.startswith(_NEW_ENTRY):
        return frozenset({0})  # the number that it was given, for which no operation asks
    if unread is None or not sql.startswith("SELECT "):
        return frozenset()
    columns = _columns_read(sql)
    if columns[0][0] == OUTBOX_EVENTS:
        unread = unread | {Payment: _OF_A_DELIVERED_PAYMENT}
    places: set[int] = set()
    for model, names in unread.items():
        table = model._meta.db_table
        if all((table, name) in columns for name in columns_of(table)):
            places |= {columns.index((table, name)) for name in names}
    return frozenset(places)


@contextmanager
def keeping() -> Iterator[None]:
    """Let models load without the hidden columns, and raise when code reads one."""
    from_db: Callable[..., Model] = Model.from_db.__func__  # type: ignore[attr-defined]
    refresh, is_loaded_again = Model.refresh_from_db, False

    def loaded(model: type[Model], using: str | None, names: Any, values: Any) -> Model:
        if is_loaded_again and any(value is _KEPT for value in values):
            raise _LookedAt(
                f"a {model.__name__} is loaded again as a whole, of which something is kept: name "
                "the fields, or take it out of _UNREAD",
            )
        return from_db(
            model,
            using,
            names,
            [DEFERRED if value is _KEPT else value for value in values],
        )

    def last_polled_at(
        attribute: DeferredAttribute,
        instance: Model | None,
        owner: object = None,
    ) -> Any:
        if instance is None:
            return attribute
        name = attribute.field.attname
        if name not in vars(instance):
            raise _LookedAt(
                f"{attribute.field} is kept from an actor that looks at it: take it out of _UNREAD",
            )
        return vars(instance)[name]

    def loading_again(
        instance: Model,
        using: str | None = None,
        fields: Any = None,
        **named: Any,
    ) -> None:
        nonlocal is_loaded_again
        is_loaded_again = fields is None
        try:
            refresh(instance, using, fields, **named)
        finally:
            is_loaded_again = False

    with (
        mock.patch.object(Model, "from_db", classmethod(loaded)),
        mock.patch.object(DeferredAttribute, "__get__", last_polled_at),
        mock.patch.object(Model, "refresh_from_db", loading_again),
    ):
        yield


class _LookedAt(BaseException):
    """An actor read a hidden column; no handler of errors may hide that."""
