"""The shop's actions in a process of its own, by `tools.benchmarks.acts`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
from django.db import connection
from django.utils import timezone

from tillgate import shop
from tillgate.django.conf import get_settings
from tillgate.django.models import Order, Payment
from tillgate.django.worker import run
from tillgate.lifecycle import PaymentStatus
from tillgate.wire import exchange
from tools.benchmarks import server
from tools.benchmarks.shop.models import Effect

_BATCH: Final = 2000
_MIX: Final = 200
_AGES: Final = timedelta(minutes=110)
"""So many payments in a row were made evenly over this time, less than a payment page stays open:
all are still open.
"""
_LATER: Final = timedelta(minutes=90)
"""So far ahead lie the looks that are none of a worker run's: not so far that a clock must have
been wrong.
"""


def create() -> None:
    """Create the database, empty; one that a run before left behind is replaced."""
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)


def rest() -> None:
    """Let go of the database, so that only the web server has it."""
    connection.close()


def destroy() -> None:
    """Remove the database."""
    connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def seed(count: int, status: str = "pending", letter: str = "B") -> dict[str, str]:
    """Write payments as they are after their creation or when they were paid; return their
    notification keys by reference.
    """
    account, now = get_settings().accounts["default"], timezone.now()
    keys = {}
    for begin in range(0, count, _BATCH):
        numbers = range(begin, min(begin + _BATCH, count))
        Order.objects.bulk_create(
            [Order(plugin="benchmark-shop", key=str(number), created_at=now) for number in numbers],
        )
        # not every database returns them in one statement
        ids = dict(Order.objects.order_by("-pk").values_list("key", "pk")[: len(numbers)])
        payments = []
        for number in numbers:
            created_at = now - _AGES * ((number % _MIX + 1) / _MIX)
            reference = f"{letter}{number:07}-7Q2MZK4RXW3DA"
            payment = Payment(
                order_id=ids[str(number)],
                reference=reference,
                account="default",
                merchant_no=account.merchant_no,
                base_url=account.base_url,
                sandbox=account.sandbox,
                method="alipay",
                terminal="ONLINE",
                amount="12.50",
                currency="USD",
                status=status,
                transaction_no=server.transaction_no(reference),
                payment_url=f"https://pay.example/cashier/{number}",
                created_at=created_at,
                page_closes_at=created_at + timedelta(minutes=120),
                expires_at=created_at + timedelta(minutes=130),
                status_since=created_at,
                last_polled_at=created_at,
                next_poll_at=now + _LATER,
            )
            payments.append(payment)
            keys[payment.reference] = payment.notification_key
        Payment.objects.bulk_create(payments)
    return keys


def place(count: int) -> list[str]:
    """Place orders; return the paths where their shoppers begin to pay after they have chosen a
    payment method.
    """
    for number in range(count):
        shop.open_order("benchmark-shop", str(number))
    return [shop.pay_path("benchmark-shop", str(number), "alipay") for number in range(count)]


def tidy() -> None:
    """Let the database do its background work now, before the clock runs."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")
    elif connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE TABLE tillgate_payment, tillgate_order")


def run_worker(count: int) -> dict[str, float]:
    """Make so many payments due and worker run them; return its duration."""
    now = timezone.now()
    newest = Payment.objects.order_by("-pk").values_list("pk", flat=True)
    Payment.objects.filter(next_poll_at__lt=now + _LATER / 2).update(next_poll_at=now + _LATER)
    Payment.objects.filter(pk__gte=newest[count - 1]).update(next_poll_at=now)
    tidy()
    wall, cpu = time.perf_counter(), time.process_time()
    work_done = run.run_worker()
    took = {
        "seconds": (time.perf_counter() - wall) / work_done.counts["payments"],
        "cpu": (time.process_time() - cpu) / work_done.counts["payments"],
    }
    # the youngest may be due again before it ends
    if (
        not count <= work_done.counts["payments"] <= count * 1.1
        or work_done.news["inconclusive"]
        or work_done.faults
    ):
        raise RuntimeError(f"the worker run did {work_done} instead of looking at {count}")
    if (
        Payment.objects.exclude(status=PaymentStatus.PENDING).exists()
        or Payment.objects.filter(next_poll_at__lte=now).exists()
    ):
        raise RuntimeError("the worker run left payments otherwise than it should")
    return took


def ask(count: int) -> dict[str, float]:
    """Send the same queries with one bare httpx.Client, from as many threads as the worker has;
    return the duration.
    """
    settings = get_settings()
    credentials = settings.accounts["default"].credentials
    references = Payment.objects.order_by("-pk").values_list("reference", flat=True)[:count]
    requests = [exchange.write_query(credentials, reference) for reference in references]
    headers = {"Content-Type": requests[0].content_type}
    threads = settings.poll_connections
    with httpx.Client(
        limits=httpx.Limits(max_connections=threads, max_keepalive_connections=threads),
    ) as client:

        def post(request: exchange.HttpRequest) -> int:
            return client.post(request.url, content=request.body, headers=headers).status_code

        with ThreadPoolExecutor(threads) as pool:
            wall, cpu = time.perf_counter(), time.process_time()
            statuses = set(pool.map(post, requests))
            took = {
                "seconds": (time.perf_counter() - wall) / count,
                "cpu": (time.process_time() - cpu) / count,
            }
    if statuses != {200}:
        raise RuntimeError(f"the bare queries were answered {statuses}")
    return took


def peak() -> int:
    """Return the most memory that this process has held, in kB. Unlike `ru_maxrss`, it knows
    nothing of the process that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def effects() -> dict[str, int]:
    """Count the effects and the orders that had one."""
    return {
        "effects": Effect._default_manager.count(),
        "orders": Effect._default_manager.values("order_key").distinct().count(),
    }


ACTIONS: Final[dict[str, Callable[..., Any]]] = {
    action.__name__: action
    for action in (create, rest, destroy, seed, place, tidy, run_worker, ask, peak, effects)
}
"""The actions, by name."""
