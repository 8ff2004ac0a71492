"""The simulator's judge reads the log as production prints it, and finds a payer's name that is
stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from proving.simulation.gateway import PAYER_NAME, NamingService
from proving.simulation.judge import Judge
from proving.simulation.network import Violated
from proving.simulation.stand_ins import log_that_is_read
from tests.smallest_shop.driver import SmallestShopDriver
from tillgate.django.models import Heartbeat, Order, TimelineEntry
from tillgate.django.orders.locking import InsideTransaction
from tillgate.lifecycle import PAYMENT_TRANSITIONS, IllegalTransition, PaymentStatus, move
from tillgate.sandbox.options import Options

KEY = "0123456789abcdef0123456789abcdef"
PAGE = f"https://gateway.example/cashier/{KEY}"


@pytest.fixture
def judge() -> Iterator[Judge]:
    """Return a judge that reads the log."""
    network: Any = SimpleNamespace(heard=[])
    judge = Judge(
        SmallestShopDriver(),
        NamingService(Options(), clock=lambda: 0.0),
        network,
        Decimal("0.01"),
    )
    with log_that_is_read(judge):
        yield judge


def verdict(judge: Judge) -> str:
    """Return the judge's verdict, or nothing."""
    if not judge.has_heard:
        return ""
    with pytest.raises(Violated) as caught:
        judge.after_a_step()
    return str(caught.value)


def fail_over(cause: str) -> None:
    """Fail because of another failure, which says more."""
    try:
        raise ValueError(cause)
    except ValueError as error:
        raise RuntimeError("the page of the shop failed") from error


@pytest.mark.parametrize("logger", ["tillgate", "tillgate.events", "httpx", "shop"])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.CRITICAL])
def test_judge_hears_every_production_logger(
    judge: Judge,
    logger: str,
    level: int,
) -> None:
    """Every level that production may print is heard."""
    logging.getLogger(logger).log(level, "the shopper goes to %s", PAGE)
    assert (
        verdict(judge) == "I11: a secret or a signature is logged: the shopper goes to "
        "https://gateway.example/cashier/..."
    )


def test_the_judge_hears_a_payers_name(judge: Judge) -> None:
    logging.getLogger("tillgate").info("received %s", urlencode({"payerName": PAYER_NAME.upper()}))
    assert verdict(judge) == "personal data: a payer's name is logged: received payerName=ANN+..."


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (PAGE, "I11: a secret or a signature is logged: "),
        (PAYER_NAME, "personal data: a payer's name is logged: "),
    ],
)
@pytest.mark.parametrize("logger", ["tillgate", "shop"])
def test_judge_hears_cause_in_traceback(
    judge: Judge,
    logger: str,
    cause: str,
    said: str,
) -> None:
    try:
        fail_over(cause)
    except RuntimeError:  # whose own text does not say it
        logging.getLogger(logger).exception("the order could not be described")
    heard = verdict(judge)
    assert heard.startswith(f"{said}ValueError: ")
    assert cause not in heard


def test_judge_hears_call_inside_transaction(judge: Judge) -> None:
    try:
        raise InsideTransaction("a call within a transaction")
    except InsideTransaction:
        logging.getLogger("tillgate").exception("a query failed")
    assert verdict(judge).startswith("I12: ")


def test_judge_hears_refused_payment_transition(judge: Judge) -> None:
    """The table of payments does not allow it."""
    try:
        move(PAYMENT_TRANSITIONS, PaymentStatus.PAID, PaymentStatus.FAILED)
    except IllegalTransition:
        logging.getLogger("tillgate").exception("the worker run failed")
    assert verdict(judge) == "I9: PaymentStatus does not move from paid to failed"


def test_judge_ignores_log_without_secret(judge: Judge) -> None:
    try:
        fail_over("the database is away")
    except RuntimeError:
        logging.getLogger("tillgate").exception(
            "the query of %s failed in a plugin",
            "100017-7Q2MZK4RXW3DA",
        )
    assert verdict(judge) == ""


@pytest.mark.django_db
def test_judge_finds_stored_payer_name(judge: Judge) -> None:
    """It may be in a text or in JSON."""
    judge.of_personal_data()
    order = Order.objects.create(plugin="smallest_shop", key="1", created_at=timezone.now())
    line = TimelineEntry.objects.create(
        order=order,
        at=timezone.now(),
        event="payment.paid",
        actor="worker",
        message="paid by the payer",
    )
    judge.of_personal_data()
    TimelineEntry.objects.filter(pk=line.pk).update(message=f"paid by {PAYER_NAME.lower()}")
    with pytest.raises(Violated, match=r"^personal data: a payer's name is stored in message of "):
        judge.of_personal_data()
    TimelineEntry.objects.filter(pk=line.pk).delete()
    Heartbeat.objects.create(name="worker", at=timezone.now(), detail={"faults": [PAYER_NAME]})
    with pytest.raises(
        Violated,
        match=r"^personal data: a payer's name is stored in detail of heartbeat worker$",
    ):
        judge.of_personal_data()
