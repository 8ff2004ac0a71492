"""The shop that `nox -s upgrade` upgrades: its plugin and pages, and commands that fill it, act as
its staff and compare its ledger.

The old and the new wheel run this same code: an upgrade must ask for no change of a shop's code.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.utils import timezone

from tests.django import project_urls
from tests.smallest_shop import plugin as smallest
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import place
from tillgate import NotSent, Refunded, RefundRequest, hooks, shop
from tillgate.django.models import OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.hooks import OrderDescription, PaidOutcome, RemoteEvent, hookimpl
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, ReviewAction, ReviewReason

NAME: Final = "telling-shop"
_GATEWAY: Final = os.environ["UPGRADE_GATEWAY"]
_FOLDER: Final = Path(os.environ["UPGRADE_FOLDER"])
_CLOSED: Final = _FOLDER / "closed"
"""While this file exists, the shop fails to mark an order as paid."""
_KEPT: Final = _FOLDER / "kept.json"
_REST_SECONDS: Final = 300.0
_PRICE: Final = Decimal("12.50")
_PART: Final = Decimal("2.50")


class Plugin:
    """The smallest shop's plugin, which can fail, and tells others over the network; what they hear
    is kept in files.
    """

    tillgate_order_unpaid = staticmethod(smallest.tillgate_order_unpaid)
    tillgate_refund_changed = staticmethod(smallest.tillgate_refund_changed)
    tillgate_return_url = staticmethod(smallest.tillgate_return_url)

    @hookimpl
    def tillgate_describe_order(self, order_key: str) -> OrderDescription | None:
        """Describe an order without the fields that an old version may lack."""
        order = ShopOrder.objects.filter(pk=order_key).first()
        if order is None:
            return None
        return OrderDescription(
            number=f"S{order.pk}",
            amount=order.total,
            currency=order.currency,
            not_payable_detail=None if order.status == "open" else f"it is {order.status}",
        )

    @hookimpl
    def tillgate_payment_paid(self, payment: hooks.Payment) -> PaidOutcome:
        """Mark the order as paid, and have others told."""
        if _CLOSED.exists():
            raise ConnectionError("the shop is closed")
        shop.enqueue_remote(NAME, payment.order.key, "paid", payment_id=payment.id)
        return smallest.tillgate_payment_paid(payment)

    @hookimpl
    def tillgate_deliver(self, outbox_event: RemoteEvent) -> None:
        """Tell others."""
        with (_FOLDER / "carried").open("a") as file:
            file.write(f"{outbox_event.event_id}\n")


class Unreachable:
    """A gateway that no refund can be sent to."""

    @hookimpl(wrapper=True)
    def tillgate_refund(self, request: RefundRequest) -> Generator[None, Refunded, Refunded]:
        """Send nothing."""
        yield from ()  # which makes it a wrapper
        raise NotSent("refund", request.reference, "no route to host")


def checkout(request: HttpRequest) -> HttpResponse:
    """Place an order, and lead to its payment."""
    return redirect(shop.pay_path(NAME, str(place(_PRICE, plugin=NAME).pk)))


def refund(request: HttpRequest, key: str) -> HttpResponse:
    """Refund a part of an order, as its staff do."""
    return HttpResponse(shop.refund_order(NAME, key, _PART, staff="ann").status)


urlpatterns = [
    *project_urls.urlpatterns,
    path("checkout/", checkout),
    path("refund/<str:key>/", refund),
]


# The commands -------------------------------------------------------------------------------------


def create() -> None:
    """Create the database and its tables."""
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)


def destroy() -> None:
    """Remove the database."""
    connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def _unfinished() -> dict[str, QuerySet[Any]]:
    """Return the rows with which something has still to happen."""
    return {
        "open payments": Payment.objects.filter(status__in=OPEN_PAYMENT_STATUSES),
        "unfinished refunds": Refund.objects.exclude(status__in=("succeeded", "failed")),
        "undelivered events": OutboxEvent.objects.filter(done_at=None),
        "open reviews": Review.objects.filter(resolved_at=None),
    }


def fill() -> str:
    """Leave open payments, queued refunds, undelivered events and open reviews, and note them."""

    def start() -> hooks.Payment:
        started = shop.start_payment(NAME, str(place(_PRICE, plugin=NAME).pk), "alipay").payment
        assert started
        return started

    def pay(payment: hooks.Payment) -> None:
        _act(payment.reference, "pay")
        shop.poll(payment.id, actor="worker")

    for _ in range(5):
        pay(start())
    hooks.plugin_manager().register(Unreachable(), name="unreachable")
    for _ in range(5):
        pay(payment := start())
        shop.refund(payment.id, _PART, staff="ann")
    hooks.plugin_manager().unregister(name="unreachable")
    for _ in range(4):
        cancelled = start()
        ShopOrder.objects.filter(pk=cancelled.order.key).update(status="cancelled")
        pay(cancelled)
    for _ in range(2):
        doubtful = start()
        body = {"fault": "wrong_amount", "occasion": "query", "reference": doubtful.reference}
        httpx.post(f"{_GATEWAY}/_control/faults", json=body, trust_env=False).raise_for_status()
        pay(doubtful)
    _CLOSED.touch()
    for _ in range(5):
        pay(start())
    _CLOSED.unlink()
    waiting = [start().reference for _ in range(24)]
    for reference in waiting[:6]:
        _act(reference, "pay")  # while nothing hears of it
    kept = {name: list(found.values_list("pk", flat=True)) for name, found in _unfinished().items()}
    if not all(kept.values()) or Refund.objects.exclude(status="queued").exists():
        raise SystemExit(f"something is missing: {kept}")
    _KEPT.write_text(json.dumps({**kept, "waiting": waiting[6:]}), "utf-8")
    return ", ".join(f"{len(found)} {name}" for name, found in kept.items())


def staff(step: int) -> int:
    """Refund the payment of each open review that only staff can close, or of each second one;
    return how many.
    """
    found = shop.open_reviews(NAME, reasons=[ReviewReason.PAID_NOT_PAYABLE])[::step]
    for review in found:
        shop.resolve_review(
            review.id,
            ReviewAction.REFUND,
            staff="ann",
            amount=_PRICE,
            version=review.version,
        )
    return len(found)


def judge() -> str:
    """Wait until nothing is due, and compare what was kept and what came later with the gateway's
    book.
    """
    # otherwise up to ten minutes pass
    _unfinished()["open payments"].update(next_poll_at=timezone.now())
    until = time.monotonic() + _REST_SECONDS
    while any(found.exists() for found in _unfinished().values()) and time.monotonic() < until:
        time.sleep(1)
    left = [
        f"{found.count()} {name} are left"
        for name, found in _unfinished().items()
        if found.exists()
    ]
    if problems := [*left, *_differences()]:
        raise SystemExit("\n".join(problems))
    kept = json.loads(_KEPT.read_text("utf-8"))
    ends = Counter(
        Payment.objects.filter(pk__in=kept["open payments"]).values_list("status", flat=True),
    )
    return (
        "of the kept open payments "
        f"{', '.join(f'{count} are {status}' for status, count in sorted(ends.items()))}; "
        f"{len(kept['unfinished refunds'])} kept refunds were sent once, "
        f"{len(kept['undelivered events'])} kept events delivered once; "
        f"in all {Payment.objects.count()} payments, {Refund.objects.count()} refunds, "
        f"{OutboxEvent.objects.count()} events"
    )


def _differences() -> Iterator[str]:
    """Yield each difference between the shop, Tillgate's rows, the remote side and the gateway's
    book.
    """
    rows = {row.reference: row for row in Payment.objects.select_related("order")}
    book = {
        one["reference"]: one
        for one in httpx.get(f"{_GATEWAY}/_control/state", trust_env=False).json()["transactions"]
    }
    yield from (f"{reference} is known to one side only" for reference in rows.keys() ^ book.keys())
    found_paid = Counter(
        TimelineEntry.objects.filter(event="payment.paid").values_list(
            "payment__reference",
            flat=True,
        ),
    )
    for reference in rows.keys() & book.keys():
        row, there = rows[reference], book[reference]
        if (row.status == "paid") != (there["status"] == "paid") or found_paid[reference] != (
            row.status == "paid"
        ):
            yield (
                f"{reference} is {row.status} here, found paid {found_paid[reference]} times, "
                f"and {there['status']} at the gateway"
            )
        here = sorted(
            f"{amount:.2f}"
            for amount in row.refunds.filter(status="succeeded").values_list("amount", flat=True)
        )
        if here != (sent := sorted(one["amount"] for one in there["refunds"])):
            yield f"{reference} has refunds of {here}, and the gateway was asked for {sent}"
    yield from (f"refund {one} failed" for one in Refund.objects.filter(status="failed"))
    carried = Counter((_FOLDER / "carried").read_text("utf-8").split())
    wanted = Counter(
        str(one)
        for one in OutboxEvent.objects.filter(kind="remote").values_list("event_id", flat=True)
    )
    yield from (
        f"remote event {one} was delivered {carried[one]} times"
        for one in wanted | carried
        if carried[one] != wanted[one]
    )
    paid_keys = {row.order.key for row in rows.values() if row.order.paid_by_id}
    for order in ShopOrder.objects.all():
        if order.times_paid != (str(order.pk) in paid_keys):
            yield f"order {order.pk} was marked as paid {order.times_paid} times"


def _act(reference: str, action: str) -> None:
    """Act at the gateway's emulator in a shopper's place, or let the time run out."""
    httpx.post(
        f"{_GATEWAY}/_control/transactions/{reference}/{action}",
        json={},
        trust_env=False,
    ).raise_for_status()
