"""Payments that another plugin has made: read from a file, verified by our own query, and written
all together or not at all (I1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware

from tillgate import money
from tillgate.account import Account
from tillgate.django.accounting.settlement import FileFault
from tillgate.django.accounts import find_account
from tillgate.django.models import MOST_DIGITS, NOTHING, Order, Payment, database
from tillgate.django.orders.locking import outside_transactions
from tillgate.django.orders.status import mark_order_paid, write_status
from tillgate.django.orders.timeline import IMPORTED, record
from tillgate.django.orders.times import disputable
from tillgate.django.payments.reconciling import ask, facts_of
from tillgate.django.refunds.external import enter_external
from tillgate.django.worker.calls import Calls
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import (
    Answer,
    Found,
    Inconclusive,
    NotFound,
    PaymentStatus,
    interpret,
    next_poll,
)
from tillgate.money import Money
from tillgate.wire.dialects import RefundOutcome
from tillgate.wire.messages import Transaction
from tillgate.wire.references import any_reference

_REQUIRED: Final = ("reference", "amount", "currency")
_COLUMNS: Final = (*_REQUIRED, "order", "transaction_no", "method", "paid_at")
_LONGEST: Final = {"order": 128, "transaction_no": 255, "method": 32}
_BATCH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRow:
    """A payment of the file. Without an order, the reference stands for it."""

    line: int
    reference: str
    price: Money
    order_key: str
    transaction_no: str | None
    method: str
    paid_at: datetime


def read_rows(
    lines: Iterable[Mapping[str | None, Any]],
    columns: Sequence[str],
    alias: str,
) -> tuple[list[ImportRow], list[FileFault], int]:
    """Read the lines of a file, and return its payments, all faults, and how many payments are here
    already.

    A payment that is here already with the same amount is left out, so that an import can be run
    again.
    """
    account = find_account(alias)
    if fault := _fault_of_columns(columns):
        return [], [fault], 0
    rows: list[ImportRow] = []
    faults: list[FileFault] = []
    seen: dict[str, int] = {}
    for line, cells in enumerate(lines, 2):
        try:
            row = _read(line, cells, account)
            if row.reference in seen:
                raise InvalidRequest(
                    "reference",
                    row.reference,
                    f"stands in line {seen[row.reference]} already",
                )
        except InvalidRequest as error:
            faults.append(
                FileFault(
                    line=line,
                    field=error.field,
                    value=str(error.value)[:80],
                    remedy=error.remedy,
                ),
            )
        else:
            seen[row.reference] = line
            rows.append(row)
    known = _known([row.reference for row in rows])
    for row in rows:
        if row.reference in known and known[row.reference] != row.price:
            remedy = f"is here already, with {known[row.reference]}"
            faults.append(
                FileFault(line=row.line, field="reference", value=row.reference, remedy=remedy),
            )
    return (
        [row for row in rows if row.reference not in known],
        sorted(faults, key=lambda fault: fault.line),
        len(known),
    )


def _fault_of_columns(columns: Sequence[str]) -> FileFault | None:
    for name in columns:
        if name not in _COLUMNS or columns.count(name) > 1:
            near = difflib.get_close_matches(name.lower(), _COLUMNS, n=1)
            meant = f": did you mean {near[0]!r}?" if near and near[0] != name else ""
            return FileFault(
                line=1,
                field="column",
                value=name,
                remedy=f"is unknown or comes twice{meant} The columns are {', '.join(_COLUMNS)}",
            )
    if missing := next((name for name in _REQUIRED if name not in columns), None):
        return FileFault(line=1, field="column", value=missing, remedy="is missing")
    return None


def _read(line: int, cells: Mapping[str | None, Any], account: Account) -> ImportRow:
    if cells.get(None) or None in cells.values():
        raise InvalidRequest(
            "line",
            "...",
            "has more or fewer values than the first line has columns",
        )
    texts = {str(name): str(value).strip() for name, value in cells.items()}
    for name, longest in _LONGEST.items():
        if len(texts.get(name, "")) > longest:
            raise InvalidRequest(name, texts[name], f"is longer than {longest} characters")
    currency = money.currency_code(texts["currency"])
    if currency not in account.taken_currencies:
        raise InvalidRequest(
            "currency",
            currency,
            f"is not one of the account's currencies: {', '.join(account.taken_currencies)}",
        )
    amount = money.amount(texts["amount"], currency)
    if amount >= Decimal(10) ** (MOST_DIGITS - money.MOST_DECIMALS):
        raise InvalidRequest("amount", texts["amount"], "is more than can be recorded exactly")
    reference = any_reference(texts["reference"])
    return ImportRow(
        line=line,
        reference=reference,
        price=Money(amount, currency),
        order_key=texts.get("order") or reference,
        transaction_no=texts.get("transaction_no") or None,
        method=texts.get("method", ""),
        paid_at=_read_time(texts.get("paid_at", "")),
    )


def _read_time(text: str) -> datetime:
    now = timezone.now()
    if not text:
        return now
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise InvalidRequest("paid_at", text, "is not a time such as 2026-01-31T18:00:00+01:00")
    if is_naive(moment) and not is_naive(now):
        moment = make_aware(moment)
    if moment > now:
        raise InvalidRequest("paid_at", text, "is in the future")
    return moment


def _known(references: list[str]) -> dict[str, Money]:
    known: dict[str, Money] = {}
    for start in range(0, len(references), _BATCH):
        rows = Payment.objects.filter(reference__in=references[start : start + _BATCH])
        known |= {
            reference: Money(amount, currency)
            for reference, amount, currency in rows.values_list("reference", "amount", "currency")
        }
    return known


def verify_rows(
    rows: Sequence[ImportRow],
    alias: str,
    plugin: str,
) -> Iterator[tuple[ImportRow, Payment, Transaction | FileFault]]:
    """Query the gateway about each payment, and yield it with the answer, or with the fault that
    the gateway's answer shows.

    At most `TILLGATE["QUERIES_PER_SECOND"]` queries are sent in a second. Uses no database
    transaction.
    """
    outside_transactions("verify_rows")
    account = find_account(alias)
    with Calls(ask) as calls:
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            payments = [_unsaved(row, account, alias, plugin) for row in batch]
            for row, payment, answer in zip(batch, payments, calls.answers(payments), strict=True):
                yield row, payment, _verified(row, payment, answer)


def _unsaved(row: ImportRow, account: Account, alias: str, plugin: str) -> Payment:
    return Payment(
        order=Order(plugin=plugin, key=row.order_key, created_at=row.paid_at),
        reference=row.reference,
        account=alias,
        merchant_no=account.merchant_no,
        base_url=account.base_url,
        sandbox=account.sandbox,
        method=row.method,
        amount=row.price.amount,
        currency=row.price.currency,
        transaction_no=row.transaction_no,
        created_at=row.paid_at,
        page_closes_at=row.paid_at,
        expires_at=row.paid_at,
        status_since=row.paid_at,
    )


def _verified(row: ImportRow, payment: Payment, answer: Answer | None) -> Transaction | FileFault:
    """Return the gateway's transaction if it says paid for the right money, else the fault."""
    remedy = "was not asked about: the gateway answers no more"
    if isinstance(answer, Found):
        decision = interpret(facts_of(payment, NOTHING), (), answer)
        if decision.status is PaymentStatus.PAID and decision.is_in_order:
            return answer.transaction
        remedy = f"cannot be imported: {decision.detail}"
    elif isinstance(answer, NotFound):
        remedy = "is not known to the gateway: is it of another account?"
    elif isinstance(answer, Inconclusive):
        remedy = f"could not be verified: {answer.detail}"
    return FileFault(line=row.line, field="reference", value=row.reference, remedy=remedy)


def write_payments(
    verified: Sequence[tuple[ImportRow, Payment, Transaction]],
    actor: str,
) -> list[FileFault]:
    """Write verified payments with their orders and refunds, all or none, and return the faults for
    which none was written.

    The shop hears nothing: it knows that its orders are paid.
    """
    faults: list[FileFault] = []
    with transaction.atomic(using=database()):
        for row, payment, found in verified:
            order, _ = Order.objects.get_or_create(
                plugin=payment.order.plugin,
                key=payment.order.key,
                defaults={"created_at": payment.created_at, "purge_check_at": timezone.now()},
            )
            order = Order.objects.select_for_update().get(pk=order.pk)
            if order.paid_by_id is not None or order.closed_at is not None:
                remedy = (
                    "is here already, and another payment has paid it"
                    if order.paid_by_id
                    else "is here already, and closed"
                )
                faults.append(
                    FileFault(line=row.line, field="order", value=order.key, remedy=remedy),
                )
                continue
            payment.order = order
            try:
                _write(order, payment, found, actor)
            except InvalidRequest as error:  # the gateway lists more refunds than the payment has
                faults.append(
                    FileFault(
                        line=row.line,
                        field=error.field,
                        value=str(error.value),
                        remedy=error.remedy,
                    ),
                )
        if faults:
            transaction.set_rollback(True, using=database())
    return faults


def _write(order: Order, payment: Payment, found: Transaction, actor: str) -> None:
    payment.transaction_no = found.transaction_no
    write_status(payment, PaymentStatus.PAID, payment.status_since)
    payment.next_poll_at = next_poll(
        PaymentStatus.PAID,
        payment.status_since,
        payment.expires_at,
        timezone.now(),
        disputable(),
    )
    payment.save(force_insert=True)
    mark_order_paid(order, payment)
    message = f"{payment.money} of another plugin, transaction {payment.transaction_no}"
    record(IMPORTED, order, actor, message, payment=payment, evidence=dict(found.raw))
    for reported in found.refunds or ():
        if reported.outcome is RefundOutcome.SUCCEEDED:
            enter_external(order, payment, reported.amount, actor, refund_no=reported.refund_no)
