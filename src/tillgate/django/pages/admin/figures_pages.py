"""The figures of a period, with a chart, tables and CSV, and the check of a settlement file. Both
pages belong to the payments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django import forms
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from tillgate import money
from tillgate.django import dates, words
from tillgate.django.accounting.figures import (
    Figure,
    Kind,
    Sum,
    figures,
    is_tested_only,
    payments_between,
    refunds_between,
    sums_by,
)
from tillgate.django.accounting.settlement import (
    COLUMNS,
    Checked,
    SettlementDifference,
    SettlementKind,
    check_settlement,
    read_file,
)
from tillgate.django.accounting.sheets import Sheet
from tillgate.django.amounts import money_text
from tillgate.django.models import NOTHING, Payment
from tillgate.django.pages.admin.base import ReadOnlyAdmin
from tillgate.django.pages.showing import MOST_SHOWN

_MOST_DAYS: Final = 366
_MOST_BARS: Final = 62
"""The days of a longer period are shown by month."""
_MOST_BYTES: Final = 5 * 2**20
_YEARS: Final = [MinValueValidator(date(1900, 1, 1)), MaxValueValidator(date(9998, 12, 31))]
_SLOT, _HEIGHT = 10, 100
"""The size of a day in the chart's own units."""

_KINDS: Final = {Kind.PAYMENT: _("payment"), Kind.REFUND: _("refund")}
_STATUSES: Final = {Kind.PAYMENT: words.PAYMENT_STATUSES, Kind.REFUND: words.REFUND_STATUSES}

_DIFFERENCES: Final[dict[SettlementKind, tuple[str | Promise, str | Promise]]] = {
    SettlementKind.MISSING_IN_FILE: (
        _("Missing in the file"),
        _(
            "Tillgate has them as paid or refunded. They may be in the file before or after this "
            "one. Otherwise ask the gateway for them.",
        ),
    ),
    SettlementKind.MISSING_HERE: (
        _("Missing in Tillgate"),
        _(
            "The file has them, and Tillgate does not know them. Another shop may use the same "
            "account. Otherwise ask the gateway.",
        ),
    ),
    SettlementKind.NOT_DONE_HERE: (
        _("Not paid or not refunded here"),
        _(
            "The file has them, and here they are not finished. Open the payment and press “Poll "
            "now”.",
        ),
    ),
    SettlementKind.AMOUNT: (
        _("Other amounts"),
        _("Compare them with the gateway's own pages. Then ask the gateway."),
    ),
    SettlementKind.DUPLICATE: (
        _("Twice in the file"),
        _("Ask the gateway whether it paid them out twice."),
    ),
}
"""The heading of each kind, and the next step of staff."""


def _day_field(label: Any, **options: Any) -> forms.DateField:
    widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    return forms.DateField(
        label=label,
        widget=widget,
        input_formats=["%Y-%m-%d"],
        validators=_YEARS,
        **options,
    )


class PeriodForm(forms.Form):
    """The first and the last day, and the choice between real money and tests."""

    since = _day_field(_("From"))
    until = _day_field(_("Until"))
    tests = forms.BooleanField(label=_("Test payments instead of real money"), required=False)

    def clean(self) -> dict[str, Any]:
        """Refuse a period that ends before it begins, or is too long for one page."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        since, until = cleaned.get("since"), cleaned.get("until")
        if since and until and not 0 <= (until - since).days < _MOST_DAYS:
            self.add_error("until", _("Choose a day after the first one, at most a year later."))
        return cleaned


class SettlementForm(forms.Form):
    """A settlement file, its columns, and the payments that it must have."""

    file = forms.FileField(label=_("Settlement file (CSV)"))
    account = forms.ChoiceField(label=_("Account"), required=False)
    since = _day_field(_("From"), required=False)
    until = _day_field(_("Until"), required=False)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        used = Payment.objects.order_by("account").values_list("account", flat=True).distinct()
        account = self.fields["account"]
        assert isinstance(account, forms.ChoiceField)
        account.choices = [("", _("All accounts")), *((alias, alias) for alias in used)]
        for name, label in _COLUMN_LABELS.items():
            self.fields[f"column_{name}"] = forms.CharField(
                label=label,
                required=False,
                max_length=100,
            )

    @property
    def main(self) -> list[forms.BoundField]:
        """The other inputs."""
        return [self[name] for name in ("file", "account", "since", "until")]

    @property
    def columns(self) -> list[forms.BoundField]:
        """The inputs for the names of columns."""
        return [self[f"column_{name}"] for name in _COLUMN_LABELS]

    def clean_file(self) -> Any:
        """Refuse a file that is too large for a page."""
        file = self.cleaned_data["file"]
        if file.size > _MOST_BYTES:
            raise forms.ValidationError(
                _("The file is larger than 5 MB. Use the command check-settlement for it."),
            )
        return file


_COLUMN_LABELS: Final = {
    "reference": _("Column of the reference"),
    "amount": _("Column of the amount"),
    "fee": _("Column of the fee"),
    "currency": _("Column of the currency"),
    "type": _("Column of the type (payment or refund)"),
}
assert set(_COLUMN_LABELS) == set(COLUMNS)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of the chart. Numbers are text, so that no language writes them with separators."""

    tone: str
    x: str
    y: str
    height: str
    title: str


@dataclass(frozen=True, slots=True)
class _Part:
    """Everything about one currency."""

    currency: str
    total: Sum
    tables: list[tuple[str, str, str, list[tuple[str, Sum]]]]
    """Of each a name, the heading, the heading of the first column, and the rows."""
    statuses: Sequence[tuple[str | Promise, words.Word, int, Decimal]]
    bars: list[_Bar]
    width: str
    first: str
    last: str
    highest: Decimal


class FiguresAdmin(ReadOnlyAdmin[Payment]):
    """The two pages, for the admin of payments."""

    change_list_template = "tillgate/admin/payment_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the pages."""
        site = self.admin_site
        return [
            path("figures/", site.admin_view(self.figures_view), name="tillgate_payment_figures"),
            path(
                "settlement/",
                site.admin_view(self.settlement_view),
                name="tillgate_payment_settlement",
            ),
            *super().get_urls(),
        ]

    def figures_view(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """Show the figures of a period, or send them as CSV."""
        self._need(request)
        today = dates.local(timezone.now()).date()
        tests = is_tested_only()
        chosen = {"since": today - timedelta(days=29), "until": today, "tests": tests}
        form = PeriodForm(request.GET if "since" in request.GET else chosen)
        context: dict[str, Any] = {"form": form}
        if form.is_valid():
            since, until, tests = (form.cleaned_data[name] for name in ("since", "until", "tests"))
            if "csv" in request.GET:
                style = request.GET.get("style", "")
                return _download(request.GET["csv"], since, until, style, tests=tests)
            found = figures(since, until, sandbox=tests, by_month=_is_long(since, until))
            context |= {
                "parts": [
                    _part(currency, found, since, until)
                    for currency in sorted({one.currency for one in found})
                ],
                "since": since,
                "until": until,
                "tests": tests,
            }
        context["shortcuts"] = [
            (label, _query(since, until, tests=tests)) for label, since, until in _shortcuts(today)
        ]
        return self.show(request, "tillgate/admin/figures.html", gettext("Figures"), context)

    def settlement_view(self, request: HttpRequest) -> HttpResponse:
        """Check a settlement file, and show the result."""
        self._need(request)
        form = SettlementForm(request.POST or None, request.FILES or None)
        context: dict[str, Any] = {"form": form}
        if request.method == "POST" and form.is_valid():
            given = form.cleaned_data
            rows, faults = read_file(
                given["file"].read(),
                {name: given[f"column_{name}"] for name in COLUMNS},
            )
            since, until = given["since"], given["until"]
            checked = check_settlement(
                rows,
                faults,
                account=given["account"] or None,
                since=dates.start_of(since) if since else None,
                until=dates.start_of(until + timedelta(days=1)) if until else None,
            )
            context |= self._result(checked)
        return self.show(
            request,
            "tillgate/admin/settlement.html",
            gettext("Check a settlement file"),
            context,
        )

    def _need(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _result(self, checked: Checked) -> dict[str, Any]:
        groups = []
        for kind, (heading, remedy) in _DIFFERENCES.items():
            found = [one for one in checked.differences if one.kind is kind]
            if found:
                groups.append(
                    (
                        kind,
                        heading,
                        remedy,
                        len(found),
                        [self._difference(one) for one in found[:MOST_SHOWN]],
                    ),
                )
        return {
            "checked": checked,
            "sums": [
                (
                    currency or gettext("unknown currency"),
                    *(money_text(sums[currency], currency).strip() for sums in checked.sums),
                )
                for currency in sorted(checked.fees)
            ],
            "faults": checked.faults[:MOST_SHOWN],
            "groups": groups,
            "most": MOST_SHOWN,
        }

    def _difference(self, one: SettlementDifference) -> dict[str, Any]:
        return {
            "reference": one.reference,
            "url": self.page_url(Payment(pk=one.payment_id)) if one.payment_id else "",
            "about": _KINDS[one.about],
            "line": str(one.line or ""),
            "here": money_text(*one.here) if one.here else "",
            "word": _STATUSES[one.about][one.status] if one.status else None,
            "there": money_text(*one.there).strip() if one.there else "",
        }


def _query(since: date, until: date, *, tests: bool) -> str:
    return "?" + urlencode(
        {"since": str(since), "until": str(until)} | ({"tests": "on"} if tests else {}),
    )


def _shortcuts(today: date) -> Iterator[tuple[str, date, date]]:
    month = today.replace(day=1)
    last_month = month - timedelta(days=1)
    yield gettext("Today"), today, today
    yield gettext("Last 7 days"), today - timedelta(days=6), today
    yield gettext("This month"), month, today
    yield gettext("Last month"), last_month.replace(day=1), last_month
    yield gettext("This year"), today.replace(month=1, day=1), today


def _download(
    chosen: str,
    since: date,
    until: date,
    style: str,
    *,
    tests: bool,
) -> StreamingHttpResponse:
    start, end = dates.start_of(since), dates.start_of(until + timedelta(days=1))
    sheet = Sheet(get_language() or settings.LANGUAGE_CODE, style)
    if chosen == "payments":
        lines = sheet.payments(payments_between(start, end).filter(sandbox=tests))
    elif chosen == "refunds":
        lines = sheet.refunds(refunds_between(start, end).filter(payment__sandbox=tests))
    else:
        chosen, lines = "figures", sheet.figures(figures(since, until, sandbox=tests))

    def content() -> Iterator[str]:
        yield "\ufeff"  # by this mark spreadsheets know UTF-8
        yield from lines

    name = f"{chosen}-{since}-{until}.csv"
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(
        content(),
        content_type="text/csv; charset=utf-8",
        headers=disposition,
    )


def _part(currency: str, found: list[Figure], since: date, until: date) -> _Part:
    own = [one for one in found if one.currency == currency]
    by_month = _is_long(since, until)
    days = _periods(since, until, by_month=by_month)
    by_day = sums_by(own, lambda one: one.day)
    names = {method: words.method_name(method) for method in {one.method for one in own}}
    by_method = sums_by(own, lambda one: names[one.method])
    label = partial(date_format, format="YEAR_MONTH_FORMAT" if by_month else "DATE_FORMAT")
    headings = (
        (gettext("By month"), gettext("Month")) if by_month else (gettext("By day"), gettext("Day"))
    )
    highest = max(
        (amount for one in by_day.values() for amount in (one.paid, one.refunded)),
        default=NOTHING,
    )
    statuses = []
    for kind, known in _STATUSES.items():
        for status, word in known.items():
            some = [one for one in own if one.kind is kind and one.status == status]
            if some:
                statuses.append(
                    (
                        _KINDS[kind],
                        word,
                        sum(one.count for one in some),
                        money.total(one.amount for one in some),
                    ),
                )
    return _Part(
        currency=currency,
        total=sums_by(own, lambda one: one.currency)[currency],
        tables=[
            ("day", *headings, [(label(day), one) for day, one in by_day.items() if one.is_any]),
            (
                "method",
                gettext("By payment method"),
                gettext("Payment method"),
                [(name, one) for name, one in sorted(by_method.items()) if one.is_any],
            ),
        ],
        statuses=statuses,
        bars=[
            bar
            for place, day in enumerate(days)
            if day in by_day
            for bar in _bars(place, label(day), by_day[day], currency, highest)
        ],
        width=str(len(days) * _SLOT),
        first=label(days[0]),
        last=label(days[-1]),
        highest=highest,
    )


def _is_long(since: date, until: date) -> bool:
    """Tell whether a period is shown by month."""
    return (until - since).days >= _MOST_BARS


def _periods(since: date, until: date, *, by_month: bool) -> list[date]:
    """Return every day of the period, or the first day of every month."""
    days = (since + timedelta(days=number) for number in range((until - since).days + 1))
    return list(dict.fromkeys(day.replace(day=1) for day in days)) if by_month else list(days)


def _bars(place: int, label: str, day: Sum, currency: str, highest: Decimal) -> Iterator[_Bar]:
    """Yield the bars of a day: paid, and beside it refunded."""
    for tone, word, amount, offset in (
        ("paid", gettext("paid"), day.paid, 1),
        ("refunded", gettext("refunded"), day.refunded, 5),
    ):
        if amount:
            height = max(1, int(amount * _HEIGHT / highest))
            title = f"{label}: {money_text(amount, currency)} {word}"
            yield _Bar(tone, str(place * _SLOT + offset), str(_HEIGHT - height), str(height), title)
