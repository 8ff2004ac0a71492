"""A settlement file of the gateway, compared with payments and refunds: each side's missing ones,
and other differences. Reads only.

A line is a payment, or a refund if its amount is negative or its type says so. A wrong line is a
fault with its line number and field, and no other line is lost by it.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple

from django.db.models import Q

from tillgate import money
from tillgate.django.accounting.figures import Kind, payments_between, refunds_between
from tillgate.django.models import NOTHING, Payment, Refund
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import PaymentStatus, RefundStatus
from tillgate.wire.texts import storable

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "reference": (
        "reference",
        "merchantreference",
        "paymentreference",
        "orderreference",
        "outtradeno",
        "transactionno",
        "transactionid",
    ),
    "amount": ("amount", "grossamount", "gross", "transactionamount", "paymentamount"),
    "fee": ("fee", "fees", "feeamount", "transactionfee", "servicefee"),
    "currency": ("currency", "currencycode", "transactioncurrency", "paymentcurrency"),
    "type": ("type", "transactiontype", "kind"),
}
"""The fields of a line, and the names of columns that are understood, without regard to capitals,
spaces and signs.
"""

_REQUIRED: Final = ("reference", "amount")
_MOST_LINES_BEFORE: Final = 20
"""Some files begin with a title and the merchant's name."""
_BATCH: Final = 2000
_DELIMITERS: Final = ";\t|,"
"""The comma comes last: where another sign delimits, it may be in an amount."""
_SIGNS: Final = re.compile(r"[\W_]+")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SPACES: Final = re.compile(r"[\s']")
_LONGEST_NUMBER: Final = 30
_FORMS: Final = {
    "en": re.compile(r"(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?|\.\d+", re.ASCII),
    "de": re.compile(r"(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d*)?|,\d+", re.ASCII),
}
"""The languages with known ways to write numbers: 1,234.50 and 1.234,50."""


class SettlementKind(StrEnum):
    """The kinds of differences."""

    MISSING_HERE = "missing-here"
    """The file has it, and Tillgate does not know it."""
    MISSING_IN_FILE = "missing-in-file"
    """It is paid, or refunded, and the file does not have it."""
    NOT_DONE_HERE = "not-done-here"
    """The file has it, and here it is not paid, or not refunded."""
    AMOUNT = "amount"
    """Amount or currency differ."""
    DUPLICATE = "duplicate"
    """The file has it twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFault:
    """The fault of a line of a file: the field, its value and the remedy. `reference` is that of
    the line, where it has one.
    """

    line: int
    field: str
    value: str
    remedy: str
    reference: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.field} {self.value!r} {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementRow:
    """A payment or refund of the file. An amount is positive; without a currency it is of the
    payment's own.
    """

    line: int
    kind: Kind
    reference: str
    amount: Decimal
    currency: str
    fee: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementDifference:
    """One difference: the amount and currency here, with the status, and those in the file, with
    the line.
    """

    kind: SettlementKind
    about: Kind
    reference: str
    here: tuple[Decimal, str] | None = None
    status: str = ""
    there: tuple[Decimal, str] | None = None
    line: int = 0
    payment_id: int | None = None


@dataclass(slots=True, kw_only=True)
class Checked:
    """The result: sums of the file by currency, differences and faults. Without a period nothing
    can be missing in the file.
    """

    since: datetime | None
    until: datetime | None
    rows: int = 0
    paid: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: NOTHING))
    refunded: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: NOTHING))
    fees: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: NOTHING))
    matched: int = 0
    differences: list[SettlementDifference] = field(default_factory=list)
    faults: list[FileFault] = field(default_factory=list)

    @property
    def sums(self) -> tuple[Mapping[str, Decimal], ...]:
        """The sums of the file: paid, refunded and fees."""
        return self.paid, self.refunded, self.fees

    @property
    def is_clean(self) -> bool:
        """Whether file and rows agree, and every line could be read."""
        return not self.differences and not self.faults


# The file -----------------------------------------------------------------------------------------


def read_file(
    content: bytes,
    columns: Mapping[str, str],
) -> tuple[list[SettlementRow], list[FileFault]]:
    """Return the rows of a file, and everything that is wrong with it. `columns` names a field's
    column if its name is another.
    """
    text = _decoded(content)
    for delimiter in _DELIMITERS:
        lines = _numbered(text, delimiter)
        for _, cells in itertools.islice(lines, _MOST_LINES_BEFORE):
            if places := _places(cells, columns):
                return _read(lines, places)
    wanted = " and ".join(columns.get(name) or name for name in _REQUIRED)
    first = next((line for line in text.splitlines() if line.strip()), "")
    return [], [
        FileFault(line=1, field="columns", value=first[:200], remedy=f"do not include {wanted}"),
    ]


def _read(
    lines: Iterable[tuple[int, list[str]]],
    places: Mapping[str, int],
) -> tuple[list[SettlementRow], list[FileFault]]:
    rows, faults = [], []
    read = [
        (line, {name: cells[place] if place < len(cells) else "" for name, place in places.items()})
        for line, cells in lines
        if any(cells)
    ]
    forms = _forms([texts.get(name, "") for _, texts in read for name in ("amount", "fee")])
    for line, texts in read:
        try:
            rows.append(_row(line, texts, forms))
        except InvalidRequest as error:
            value, reference = str(error.value)[:80], texts["reference"]
            faults.append(
                FileFault(
                    line=line,
                    field=error.field,
                    value=value,
                    remedy=error.remedy,
                    reference=reference,
                ),
            )
    return rows, faults


def _decoded(content: bytes) -> str:
    """Return the text: UTF-8, UTF-16 with its mark, or the letters of old spreadsheets."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _numbered(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line with its number. Each line is read alone: a quotation mark that
    is not closed loses no other line.
    """
    for number, line in enumerate(_LINE_END.split(text), 1):
        try:
            cells = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # a cell of 128 KiB: without a reference, the line becomes a fault
            cells = ["", "\ufffd"]
        yield number, [cell.strip() for cell in cells]


def _places(cells: Sequence[str], columns: Mapping[str, str]) -> dict[str, int] | None:
    """Return the place of each field if the cells are names of columns."""
    names = [_plain(cell) for cell in cells]
    places = {}
    for name, known in COLUMNS.items():
        wanted = (_plain(columns[name]),) if columns.get(name) else known
        place = next((names.index(one) for one in wanted if one in names), None)
        if place is not None:
            places[name] = place
        elif columns.get(name) or name in _REQUIRED:
            return None
    return places


def _plain(name: str) -> str:
    return _SIGNS.sub("", name).casefold()


def _row(line: int, texts: Mapping[str, str], forms: Sequence[str]) -> SettlementRow:
    reference = texts["reference"].lstrip("'`")  # exports for spreadsheets begin a number so
    if not reference:
        raise InvalidRequest("reference", reference, "is empty")
    if storable(reference) != reference:  # no database could look for it
        raise InvalidRequest(
            "reference",
            storable(reference),
            "has a character that no reference has",
        )
    currency = texts.get("currency", "").upper()
    amount = _number("amount", texts["amount"], forms)
    if currency and money.read_amount(amount.copy_abs(), money.currency_code(currency)) is None:
        raise InvalidRequest("amount", texts["amount"], f"is not an amount of {currency}")
    is_refund = amount < 0 or "refund" in texts.get("type", "").casefold()
    return SettlementRow(
        line=line,
        kind=Kind.REFUND if is_refund else Kind.PAYMENT,
        reference=reference,
        amount=amount.copy_abs(),
        currency=currency,
        fee=_number("fee", texts["fee"], forms) if texts.get("fee") else NOTHING,
    )


def _forms(cells: Iterable[str]) -> Sequence[str]:
    """Return the forms in which the file writes numbers: one, if a cell shows which."""
    shown = {
        fitting[0]
        for cell in set(cells)
        if len(fitting := [form for form in _FORMS if _value(_digits(cell), form) is not None]) == 1
    }
    return list(shown) if len(shown) == 1 else list(_FORMS)


def _digits(text: str) -> str:
    return _SPACES.sub("", text).lstrip("+-")


def _value(digits: str, form: str) -> Decimal | None:
    if not (len(digits) <= _LONGEST_NUMBER and _FORMS[form].fullmatch(digits)):
        return None
    separator = "," if form == "en" else "."
    return Decimal(digits.replace(separator, "").replace(",", "."))


def _number(name: str, text: str, forms: Iterable[str]) -> Decimal:
    """Return an exact number: "1,234.50", "1.234,50", "-12". One that may mean two is refused."""
    text = text.replace("\u2212", "-")
    values = {value for form in forms if (value := _value(_digits(text), form)) is not None}
    if len(values) != 1:
        raise InvalidRequest(
            name,
            text,
            "may mean two numbers" if values else "is not an amount such as 12.50",
        )
    (value,) = values
    return -value if text.lstrip().startswith("-") else value


# The comparison -----------------------------------------------------------------------------------


class _Found(NamedTuple):
    """The rows that a line of the file may mean."""

    payments: Mapping[str, Payment]
    refunds: Mapping[str, Refund]
    refunds_of: Mapping[int, list[Refund]]


def check_settlement(
    rows: Sequence[SettlementRow],
    faults: Sequence[FileFault] = (),
    *,
    account: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Checked:
    """Compare the rows of a file with payments and refunds.

    The file must have every payment and refund of the period: without one, from its own first
    payment to its last. `account` limits this to one account. A test payment must be there only if
    the file has test payments.
    """
    checked = Checked(since=since, until=until, rows=len(rows), faults=list(faults))
    matched: dict[Kind, dict[int, Any]] = {Kind.PAYMENT: {}, Kind.REFUND: {}}
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        found = _find(batch)
        for row in batch:
            _compare(row, found, matched[row.kind], checked)
    _add_missing(checked, matched, account)
    return checked


def _find(rows: Sequence[SettlementRow]) -> _Found:
    names = {row.reference for row in rows}
    payments: dict[str, Payment] = {}
    for payment in Payment.objects.filter(
        Q(reference__in=names) | Q(transaction_no__in=names),
    ).order_by("-id"):
        payments |= {name: payment for name in (payment.transaction_no, payment.reference) if name}
    refunds: dict[str, Refund] = {}
    refunds_of: dict[int, list[Refund]] = defaultdict(list)
    names = {row.reference for row in rows if row.kind is Kind.REFUND}
    paid = {payment.pk for name, payment in payments.items() if name in names}
    asked = Q(refund_id__in=names) | Q(refund_no__in=names) | Q(payment__in=paid)
    for refund in Refund.objects.filter(asked).select_related("payment").order_by("id"):
        refunds |= {name: refund for name in (refund.refund_no, refund.refund_id) if name}
        refunds_of[refund.payment_id].append(refund)
    return _Found(payments, refunds, refunds_of)


def _compare(row: SettlementRow, found: _Found, matched: dict[int, Any], checked: Checked) -> None:
    own = (
        found.payments.get(row.reference)
        if row.kind is Kind.PAYMENT
        else _refund_of(row, found, matched)
    )
    currency = row.currency or _currency_of(own or found.payments.get(row.reference))
    sums = checked.paid if row.kind is Kind.PAYMENT else checked.refunded
    sums[currency] = money.EXACT.add(sums[currency], row.amount)
    checked.fees[currency] = money.EXACT.add(checked.fees[currency], row.fee)
    kind = _kind(row, currency, own, matched)
    if own is not None:
        matched[own.pk] = own
    if kind is None:
        checked.matched += 1
    else:
        checked.differences.append(
            _difference(
                kind,
                row.kind,
                row.reference,
                own,
                there=(row.amount, currency),
                line=row.line,
            ),
        )


def _kind(
    row: SettlementRow,
    currency: str,
    own: Payment | Refund | None,
    matched: Mapping[int, Any],
) -> SettlementKind | None:
    if own is None:
        return SettlementKind.MISSING_HERE
    if own.pk in matched:
        return SettlementKind.DUPLICATE
    if own.status not in (PaymentStatus.PAID, RefundStatus.SUCCEEDED):
        return SettlementKind.NOT_DONE_HERE
    return (
        None if (own.amount, _currency_of(own)) == (row.amount, currency) else SettlementKind.AMOUNT
    )


def _refund_of(row: SettlementRow, found: _Found, matched: Mapping[int, Any]) -> Refund | None:
    """Return the refund of that name or, where the file names the payment, its next refund of the
    same amount.
    """
    payment = found.payments.get(row.reference)
    if payment is None:
        return found.refunds.get(row.reference)
    free = [
        one
        for one in found.refunds_of[payment.pk]
        if one.pk not in matched and one.amount == row.amount
    ]
    return min(free, key=lambda one: one.status != RefundStatus.SUCCEEDED, default=None)


def _currency_of(own: Payment | Refund | None) -> str:
    if own is None:
        return ""
    return str(own.payment.currency if isinstance(own, Refund) else own.currency)


def _add_missing(
    checked: Checked,
    matched: Mapping[Kind, Mapping[int, Any]],
    account: str | None,
) -> None:
    """Add the paid payments, and the refunds if the file has any, that the file lacks."""
    payments = [one for one in matched[Kind.PAYMENT].values() if one.status == PaymentStatus.PAID]
    times = sorted(one.status_since for one in payments)
    if times:
        checked.since, checked.until = checked.since or times[0], checked.until or times[-1]
    if checked.since is None or checked.until is None:
        return
    tests = {one.sandbox for one in payments} or {False}
    chosen = {"sandbox__in": tests} | ({"account": account} if account else {})
    unread = {fault.reference for fault in checked.faults}
    for payment in (
        payments_between(checked.since, checked.until)
        .filter(status=PaymentStatus.PAID, **chosen)
        .order_by("id")
        .iterator()
    ):
        if payment.pk not in matched[Kind.PAYMENT] and not unread & {
            payment.reference,
            payment.transaction_no,
        }:
            checked.differences.append(
                _difference(
                    SettlementKind.MISSING_IN_FILE,
                    Kind.PAYMENT,
                    payment.reference,
                    payment,
                ),
            )
    if not checked.refunded:
        return
    of_payments = {f"payment__{name}": value for name, value in chosen.items()}
    refunds = refunds_between(checked.since, checked.until).filter(
        status=RefundStatus.SUCCEEDED,
        **of_payments,
    )
    for refund in refunds.select_related("payment").order_by("id").iterator():
        if refund.pk not in matched[Kind.REFUND]:
            checked.differences.append(
                _difference(
                    SettlementKind.MISSING_IN_FILE,
                    Kind.REFUND,
                    refund.payment.reference,
                    refund,
                ),
            )


def _difference(
    kind: SettlementKind,
    about: Kind,
    reference: str,
    own: Payment | Refund | None,
    **there: Any,
) -> SettlementDifference:
    if own is None:
        return SettlementDifference(kind=kind, about=about, reference=reference, **there)
    payment_id = own.payment_id if isinstance(own, Refund) else own.pk
    here = (own.amount, _currency_of(own))
    return SettlementDifference(
        kind=kind,
        about=about,
        reference=reference,
        here=here,
        status=own.status,
        payment_id=payment_id,
        **there,
    )
