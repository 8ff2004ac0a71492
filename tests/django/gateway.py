"""Helpers for many tests: a gateway that misbehaves, and payments that are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tillgate import NotSent, hooks
from tillgate.account import Account
from tillgate.django.models import Payment, Refund
from tillgate.django.payments import starting
from tillgate.django.refunds import queueing
from tillgate.testing.world import World


def queue(payment: Payment, amount: str = "1.00") -> Refund:
    """Queue a refund whose process dies before it can send."""
    with transaction.atomic():
        refund = queueing.queue_refund(payment.pk, amount)
        transaction.get_connection().run_on_commit.clear()
    return refund


def many(world: World, count: int, account: str = "default") -> list[Payment]:
    """Return payments that are due and not paid."""
    plugin = world.shop.plugin
    payments = [
        starting.start_payment(plugin, world.order(), method="alipay", account=account).payment
        for _ in range(count)
    ]
    make_due(*payments)
    return payments


def make_due(*payments: Payment) -> None:
    """Let the worker poll payments now."""
    Payment.objects.filter(pk__in=[payment.pk for payment in payments]).update(
        next_poll_at=timezone.now(),
    )


def due_in(world: World, payment: Payment) -> float:
    """Return in how many seconds a payment is due."""
    due = world.fresh(payment).next_poll_at
    assert due
    return (due - timezone.now()).total_seconds()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[[], object]]]:
    """The code that runs first when an account is queried, by its host, or a payment, by its
    reference; then the sandbox answers.
    """
    before: dict[str, Callable[[], object]] = {}
    real = hooks.query

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        before.get("*", lambda: None)()
        before.get(reference, lambda: None)()
        before.get(account.base_url.rpartition("//")[2].partition(":")[0], lambda: None)()
        return real(account, reference, **bounds)

    monkeypatch.setattr("tillgate.hooks.query", query)
    return before  # type: ignore[return-value]


def silent() -> None:
    raise NotSent("query", "x", "connection refused")
