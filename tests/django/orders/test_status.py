"""One module writes statuses, and it asks the table of the machine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from django.utils import timezone

import tillgate.django
from tests.django.conftest import World
from tillgate.django.models import OutboxEvent, Payment, Review
from tillgate.django.orders import status
from tillgate.lifecycle import IllegalTransition, PaymentStatus, ReviewStatus

SOURCES = sorted(Path(tillgate.django.__file__).parent.rglob("*.py"))


def writes_of_status(source: str) -> list[int]:
    """Return the lines of a source that assign `.status`, or give `status=` to an update of
    rows.
    """
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AugAssign | ast.AnnAssign)
            else []
        )
        flat = [
            one
            for target in targets
            for one in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        lines += [
            one.lineno for one in flat if isinstance(one, ast.Attribute) and one.attr == "status"
        ]
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "update"
        ):
            lines += [node.lineno for keyword in node.keywords if keyword.arg == "status"]
    return lines


def test_no_other_module_writes_a_status() -> None:
    found = {
        path.name: lines
        for path in SOURCES
        if (lines := writes_of_status(path.read_text("utf-8"))) and path.name != "status.py"
    }
    assert found == {}


def test_search_finds_a_status_write() -> None:
    assert writes_of_status(
        "row.status = 'paid'\nrow.a, row.status = 1, "
        "2\nrows.filter(status='x').update(status='y')\nrow.status",
    ) == [
        1,
        2,
        3,
    ]


def test_i9_unlisted_status_change_is_refused(world: World) -> None:
    payment = world.paid_payment()
    with pytest.raises(IllegalTransition, match="from paid to failed"):
        status.write_status(payment, PaymentStatus.FAILED, timezone.now())
    with pytest.raises(IllegalTransition):
        status.write_status_of(
            Payment.objects.filter(pk=payment.pk),
            PaymentStatus.PAID,
            PaymentStatus.PENDING,
        )
    assert world.fresh(payment).status == "paid"


def test_what_is_over_stays_over(world: World) -> None:
    payment = world.paid_payment()
    delivered = OutboxEvent.objects.get(payment=payment)
    with pytest.raises(IllegalTransition):
        status.mark_abandoned(delivered)
    with pytest.raises(IllegalTransition):
        status.mark_order_reopened(world.fresh(payment).order)
    closed = Review(reason="overpaid", status=ReviewStatus.RESOLVED.value)
    with pytest.raises(IllegalTransition):
        status.write_status(closed, ReviewStatus.OPEN)
