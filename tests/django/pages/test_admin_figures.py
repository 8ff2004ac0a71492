"""The admin's figures and its check of a settlement file: their permissions, and that no input
breaks them.
"""

from __future__ import annotations

import csv
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.django.bookings import payment, refund
from tests.django.pages.test_admin import staff
from tillgate.django.pages.admin import figures_pages as pages

FIGURES, SETTLEMENT, INDEX = (
    "/admin/tillgate/payment/figures/",
    "/admin/tillgate/payment/settlement/",
    "/admin/tillgate/",
)
MARCH = {"since": "2026-03-01", "until": "2026-03-31"}


def _csv(client: Client, name: str, **query: str) -> list[dict[str, str]]:
    answer: Any = client.get(FIGURES, {**MARCH, "csv": name, **query})
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    return list(csv.DictReader(text.splitlines()))


def _upload(client: Client, content: bytes, **fields: str) -> Any:
    return client.post(SETTLEMENT, {"file": SimpleUploadedFile("march.csv", content), **fields})


def test_figures_require_view_payment_permission() -> None:
    """Other staff do not see the link either."""
    for path in (FIGURES, f"{FIGURES}?since=2026-03-01&until=2026-03-31&csv=payments", SETTLEMENT):
        assert Client().get(path)["Location"].startswith("/admin/login/")
    reviewer, viewer = staff("view_review", name="reviewer"), staff("view_payment", name="viewer")
    for path in (FIGURES, f"{FIGURES}?since=2026-03-01&until=2026-03-31&csv=payments", SETTLEMENT):
        assert reviewer.get(path).status_code == 403
        assert viewer.get(path).status_code == 200
    assert _upload(reviewer, b"reference,amount\n").status_code == 403
    assert FIGURES not in reviewer.get(INDEX).content.decode()
    assert FIGURES in viewer.get(INDEX).content.decode()
    assert FIGURES in viewer.get("/admin/tillgate/payment/").content.decode()


def test_downloads_hold_real_money_of_period() -> None:
    client = staff("view_payment")
    paid = payment("A", "10.00", "2026-03-02T10:00+00:00")
    refund(paid, "4.00", "2026-03-03T10:00+00:00")
    payment("APRIL", "10.00", "2026-04-02T10:00+00:00")
    payment("TEST", "7.00", "2026-03-02T10:00+00:00", sandbox=True)
    assert [(one["Day"], one["Kind"], one["Amount"]) for one in _csv(client, "figures")] == [
        ("2026-03-02", "payment", "10.00"),
        ("2026-03-03", "refund", "4.00"),
    ]
    assert [(one["Reference"], one["Refunded"]) for one in _csv(client, "payments")] == [
        ("A", "4.00"),
    ]
    assert [(one["Reference"], one["Amount"]) for one in _csv(client, "refunds")] == [("A", "4.00")]
    assert [one["Reference"] for one in _csv(client, "payments", tests="on")] == ["TEST"]


def test_download_follows_chosen_style() -> None:
    client = staff("view_payment")
    payment("A", "1234.50", "2026-03-02T10:00+00:00")
    for style, text in (
        ("comma", '"1234,50";'),
        ("point", '"1234.50",'),
        ("nonsense", '"1234.50",'),
    ):
        given = {**MARCH, "csv": "payments", "style": style}
        answer: Any = client.get(FIGURES, given)
        assert text in b"".join(answer.streaming_content).decode(), style


def test_long_period_is_grouped_by_month() -> None:
    """A new shop sees its test payments."""
    client = staff("view_payment")
    for number, month in enumerate((1, 2, 2)):
        payment(f"A{number}", "10.00", f"2026-0{month}-02T10:00+00:00", sandbox=True)
    context = client.get(
        FIGURES,
        {"since": "2026-01-01", "until": "2026-12-31", "tests": "on"},
    ).context
    (part,) = context["parts"]
    assert [str(one.paid) for _, one in part.tables[0][3]] == ["10.00", "20.00"]
    assert part.width == "120"
    assert client.get(FIGURES).context["tests"] is True


@pytest.mark.parametrize(
    "query",
    [
        {"since": "", "until": ""},
        {"since": "yesterday", "until": "2026-03-01"},
        {"since": "2026-03-02", "until": "2026-03-01"},
        {"since": "2020-01-01", "until": "2026-03-01"},
        {"since": "0001-01-01", "until": "0001-01-02"},
        {"since": "9999-12-31", "until": "9999-12-31"},
        {"since": "2026-03-01\0", "until": "2026-03-01"},
    ],
)
def test_invalid_period_is_named_counts_nothing(query: dict[str, str]) -> None:
    client = staff("view_payment")
    for more in ({}, {"csv": "payments"}):
        answer = client.get(FIGURES, {**query, **more})
        assert answer.status_code == 200
        assert answer.context["form"].errors
        assert "parts" not in answer.context


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(
    ("since", "until"),
    [("9998-12-31", "9998-12-31"), ("9998-01-01", "9998-12-31"), ("1900-01-01", "1900-12-31")],
)
def test_first_and_last_years_are_shown(settings: Any, zone: str, since: str, until: str) -> None:
    settings.TIME_ZONE = zone
    client = staff("view_payment")
    for more in ({}, {"csv": "payments"}, {"csv": "figures"}):
        answer = client.get(FIGURES, {"since": since, "until": until, **more})
        assert answer.status_code == 200
        if not more:
            assert not answer.context["form"].errors


def test_settlement_differences_link_to_payments() -> None:
    client = staff("view_payment")
    paid = payment("A", "10.00", "2026-03-02T10:00+00:00")
    missing = payment("B", "10.00", "2026-03-03T10:00+00:00")
    answer = _upload(client, b"reference,amount,fee\nA,9.00,0.10\n<script>,1.00,\n", **MARCH)
    assert [(kind, count) for kind, _, _, count, _ in answer.context["groups"]] == [
        ("missing-in-file", 1),
        ("missing-here", 1),
        ("amount", 1),
    ]
    page = answer.content.decode()
    assert f"/admin/tillgate/payment/{paid.pk}/change/" in page
    assert f"/admin/tillgate/payment/{missing.pk}/change/" in page
    assert "<script>,1.00" not in page
    assert "&lt;script&gt;" in page
    assert _upload(client, b"reference,amount\nA,10.00\nB,10.00\n").context["checked"].is_clean


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 99,
        b"\xff\xfe\0",
        b"%PDF-1.7\n\x80\x81",
        b"a,b\n" * 99,
        b'reference,amount\n"' + b"x" * 200_000,
    ],
)
def test_unreadable_file_is_named_without_error(content: bytes) -> None:
    client = staff("view_payment")
    answer = _upload(client, content)
    assert answer.status_code == 200
    assert answer.context["form"].errors or answer.context["checked"].faults


def test_oversized_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST_BYTES", 20)
    answer = _upload(staff("view_payment"), b"reference,amount\nA,10.00\n")
    assert answer.context["form"].errors["file"]
    assert "checked" not in answer.context
