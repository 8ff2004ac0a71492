"""A database's rows, as states of the world hold them: without differences that change nothing."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from functools import cache
from typing import Any, Final

from django.apps import apps

from tillgate.django.accounting.differences import STATUS_OF_EVENT
from tillgate.django.models import (
    Heartbeat,
    Lane,
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)

__all__ = [
    "OUTBOX_EVENTS",
    "canonical",
    "columns_of",
    "insert",
    "models_by_table",
    "select",
    "tables_in",
]

_Rows = tuple[tuple[Any, ...], ...]
OUTBOX_EVENTS: Final = OutboxEvent._meta.db_table
_SHOWN: Final = "2026-01-01 00:00:00"
_A_SECOND: Final = len(_SHOWN)
_WHOLE: Final = (":30.500000", ":30.5")
"""The end of an instant to which no tick was added."""
ONLY_SHOWN: Final[dict[Any, dict[str, Any]]] = {
    Order: {"created_at": _SHOWN, "purge_check_at": _SHOWN},
    Payment: {"repeated_notifications": 0},
    OutboxEvent: {
        "created_at": _SHOWN,
        "done_at": _SHOWN,
    },  # whether it is done counts, and not when
    Notification: {"received_at": _SHOWN},
    TimelineEntry: {"at": _SHOWN, "actor": "", "message": "", "evidence": "{}"},
}
_TO_THE_SECOND: Final = {
    Order: ("unpaid_check_at", "tried_since", "under_way_since", "closed_at"),
    Payment: (
        "created_at",
        "expires_at",
        "page_closes_at",
        "last_polled_at",
        "last_returned_at",
        "next_poll_at",
    ),
    Refund: ("created_at", "status_since", "due_at"),
    OutboxEvent: ("due_at", "begun_at"),
    Review: ("opened_at", "mailed_at", "resolved_at"),
    Lane: ("rests_until", "silent_since", "answered_at"),
}
"""Moments that are compared with others at least a second away, or only by later actors."""


@cache
def models_by_table() -> dict[str, Any]:
    """Return the models of every app but Django's own, by their tables."""
    models = [
        model
        for model in apps.get_models(include_auto_created=True)
        if not model.__module__.startswith("django.")
    ]
    return {model._meta.db_table: model for model in models if model._meta.managed}


@cache
def columns_of(table: str) -> tuple[str, ...]:
    """Return the names of a table's columns."""
    return tuple(one.column for one in models_by_table()[table]._meta.concrete_fields)


@cache
def tables_in(sql: str) -> tuple[str, ...]:
    """Return the tables that a statement names."""
    return tuple(name for name in models_by_table() if re.search(rf"\b{name}\b", sql))


def canonical(table: str, rows: list[tuple[Any, ...]]) -> _Rows:
    """Return a table's rows without differences that change nothing."""
    model, columns = models_by_table()[table], columns_of(table)
    if not rows:
        return ()
    for column, shown in ONLY_SHOWN.get(model, {}).items():
        at = columns.index(column)
        rows = [row if row[at] is None else (*row[:at], shown, *row[at + 1 :]) for row in rows]
    for column in _TO_THE_SECOND.get(model, ()):
        at = columns.index(column)
        rows = [
            row if row[at] is None else (*row[:at], row[at][:_A_SECOND], *row[at + 1 :])
            for row in rows
        ]
    if model is Payment and any(
        str(row[columns.index("status_since")]).endswith(_WHOLE) for row in rows
    ):
        raise RuntimeError(
            "a payment's status_since is to the second: name the function that asked for the time "
            "in _TO_THE_TICK",
        )
    if model is Heartbeat:
        worker = importlib.import_module("tillgate.django.heartbeats").WORKER
        rows = [row if row[0] != worker else (worker, _SHOWN, "{}") for row in rows]
    if model is TimelineEntry:
        event, subject = (
            columns.index("event"),
            [columns.index(name) for name in ("order_id", "payment_id", "refund_id")],
        )
        rows = [row for row in rows if row[event] in STATUS_OF_EVENT]
        # stable: in the order in which they came, per payment and refund
        rows.sort(key=lambda row: [row[at] or 0 for at in subject])
        rows = [(number, *row[1:]) for number, row in enumerate(rows, 1)]
    if model is Notification:
        slot, subject = (
            columns.index("slot"),
            [columns.index(name) for name in ("payment_id", "refund_id")],
        )
        rows = [(*row[:slot], 0, *row[slot + 1 :]) for row in rows]
        rows.sort(key=lambda row: [str(cell) for cell in row[1:]])
        counts: Counter[tuple[Any, ...]] = Counter()
        sorted_rows, rows = rows, []
        for number, row in enumerate(sorted_rows, 1):
            of = tuple(row[at] for at in subject)
            rows.append((number, *row[1:slot], counts[of], *row[slot + 1 :]))
            counts[of] += 1
    return tuple(rows)


@cache
def select(table: str) -> str:
    """Return the statement that reads a table whole."""
    # a sign keeps the driver from converting the value that it reads
    columns = ", ".join(f"+{name}" for name in columns_of(table))
    return f"SELECT {columns} FROM {table} ORDER BY 1"  # the apps' own names


@cache
def insert(table: str) -> str:
    """Return the statement that puts a row back."""
    return (
        f"INSERT INTO {table} ({', '.join(columns_of(table))}) VALUES "
        f"({', '.join('?' * len(columns_of(table)))})"
    )
