"""Payments of another plugin are imported whole, verified and once, to be refundable here."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError

from tests.django.conftest import World
from tests.django.test_commands import run
from tillgate import Account, OutcomeUnknown, Transaction, hooks
from tillgate.django.accounts import find_account
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.wire import signing

OLD = ["100000123at1605000000", "4711:alipay:1605000000", "123e4567-e89b-12d3-a456-426614174000"]
"""References as other plugins make them."""


def made_elsewhere(
    world: World,
    reference: str,
    amount: str = "12.50",
    *,
    is_paid: bool = True,
) -> str:
    """Let another plugin make a payment, and return its transaction number."""
    account = find_account("default")
    address = "https://old.example/x"
    sent = {
        "merchantNo": account.merchant_no,
        "currency": "USD",
        "amount": amount,
        "vendor": "alipay",
        "reference": reference,
    }
    sent |= {"terminal": "ONLINE", "ipnUrl": address, "callbackUrl": address}
    sent["verifySign"] = signing.sign(sent, account.token.get_secret_value())
    answer = httpx.post(f"{world.sandbox.base_url}/online/v1/secure-pay", json=sent).json()
    assert answer["ret_code"] == "000100", answer
    if is_paid:
        world.sandbox.control.pay(reference)
    return str(answer["result"]["transactionNo"])


@pytest.fixture
def csv(tmp_path: Path) -> Any:
    """Write a file and return its path."""

    def write(*lines: str, columns: str = "reference,amount,currency") -> str:
        path = tmp_path / "payments.csv"
        path.write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8-sig")
        return str(path)

    return write


def imported(*words: str) -> tuple[str, int]:
    return run("import-payments", *words)


@pytest.mark.parametrize(
    ("columns", "lines", "says"),
    [
        ("reference,amount", ["A,1.00"], ["line 1: column 'currency' is missing"]),
        (
            "reference,ammount,currency",
            ["A,1.00,USD"],
            ["column 'ammount'", "did you mean 'amount'?"],
        ),
        (
            "reference,amount,currency,amount",
            ["A,1.00,USD,2.00"],
            ["column 'amount' is unknown or comes twice"],
        ),
        (
            "reference,amount,currency",
            ["A,1.00,USD", "A,1.00,USD"],
            ["line 3: reference 'A' stands in line 2 already"],
        ),
        ("reference,amount,currency", ["A,1.005,USD"], ["line 2: amount '1.005'"]),
        (
            "reference,amount,currency",
            ["A,-1,USD", "B,12,50,USD"],
            ["line 2: amount '-1'", "line 3: line '...' has more or fewer"],
        ),
        (
            "reference,amount,currency",
            ["A,1.00,EUR"],
            ["line 2: currency 'EUR'", "one of the account's currencies: USD"],
        ),
        ("reference,amount,currency", ["A,1.00,usd"], ["line 2: currency 'usd'"]),
        (
            "reference,amount,currency",
            ["A B,1.00,USD", "C=D,1.00,USD"],
            ["line 2: reference 'A B'", "line 3: reference 'C=D'"],
        ),
        (
            "reference,amount,currency,paid_at",
            ["A,1.00,USD,yesterday"],
            ["line 2: paid_at 'yesterday'"],
        ),
        (
            "reference,amount,currency,paid_at",
            ["A,1.00,USD,2099-01-01"],
            ["line 2: paid_at '2099-01-01'"],
        ),
    ],
)
def test_wrong_file_imports_nothing(
    world: World,
    csv: Any,
    columns: str,
    lines: list[str],
    says: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names line, field and value."""
    monkeypatch.setattr(
        hooks,
        "query",
        lambda *_, **__: pytest.fail("the gateway was asked about a wrong file"),
    )
    text, code = imported(csv(*lines, columns=columns), "--apply")
    assert code == 1
    for part in says:
        assert part in text
    assert not Payment.objects.exists()


def test_unconfirmed_payment_stops_whole_import(
    world: World,
    csv: Any,
) -> None:
    for reference in OLD:
        made_elsewhere(world, reference, is_paid=reference != OLD[1])
    file = csv(
        f"{OLD[0]},12.50,USD",
        f"{OLD[1]},12.50,USD",
        f"{OLD[2]},13.50,USD",
        "NOSUCH,1.00,USD",
    )
    text, code = imported(file, "--apply")
    assert code == 1
    assert f"line 3: reference '{OLD[1]}' cannot be imported" in text
    assert (
        f"line 4: reference '{OLD[2]}' cannot be imported: the gateway says that it is paid, but "
        "the amount is USD 12.50" in text
    )
    assert "line 5: reference 'NOSUCH' is not known to the gateway" in text
    assert not Payment.objects.exists()
    assert not Order.objects.exists()
    text, code = imported(file, "--apply", "--skip")
    assert code == 0
    assert [payment.reference for payment in Payment.objects.all()] == [OLD[0]]


def test_silent_gateway_confirms_no_payment(
    world: World,
    csv: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(account: Account, reference: str, **_: Any) -> Transaction:
        raise OutcomeUnknown("query", reference, "timed out")

    monkeypatch.setattr(hooks, "query", silent)
    text, code = imported(csv("A,1.00,USD"), "--apply")
    assert (code, Payment.objects.count()) == (1, 0)
    assert "could not be verified" in text


def test_without_apply_nothing_is_written(world: World, csv: Any) -> None:
    made_elsewhere(world, OLD[0])
    text, code = imported(csv(f"{OLD[0]},12.50,USD"))
    assert (code, Payment.objects.count()) == (0, 0)
    assert "USD 12.50" in text
    assert "--apply" in text


def test_imported_payment_is_paid_and_refundable(
    world: World,
    csv: Any,
) -> None:
    """The shop gets no event about the payment."""
    number = made_elsewhere(world, OLD[0])
    imported(csv(f"{OLD[0]},12.50,USD"), "--apply")
    payment = Payment.objects.get(reference=OLD[0])
    assert (payment.status, str(payment.money), payment.transaction_no) == (
        "paid",
        "USD 12.50",
        number,
    )
    assert payment.order.paid_by_id == payment.pk
    assert not OutboxEvent.objects.exists()
    assert TimelineEntry.objects.get().event == "payment.imported"
    refund = queueing.refund(payment.pk, "2.50", staff="anna")
    assert refund.status == "succeeded"
    world.run_worker()
    assert not OutboxEvent.objects.filter(done_at__isnull=True).exists()


def test_shop_hears_of_imported_payments_refunds(
    world: World,
    csv: Any,
) -> None:
    made_elsewhere(world, OLD[0])
    key = world.order()
    imported(
        csv(f"{OLD[0]},12.50,USD,{key}", columns="reference,amount,currency,order"),
        "--plugin",
        "smallest-shop",
        "--apply",
    )
    order = Order.objects.get(plugin="smallest-shop", key=key)
    assert order.paid_by is not None
    queueing.refund(order.paid_by.pk, "2.50", staff="anna")
    assert OutboxEvent.objects.get().kind == "refund-changed"


def test_import_refuses_order_paid_otherwise(world: World, csv: Any) -> None:
    made_elsewhere(world, OLD[0])
    paid = world.paid_payment()
    columns = "reference,amount,currency,order"
    text, code = imported(
        csv(f"{OLD[0]},12.50,USD,{paid.order.key}", columns=columns),
        "--plugin",
        "smallest-shop",
        "--apply",
    )
    assert (code, Payment.objects.count()) == (1, 1)
    assert (
        f"line 2: order '{paid.order.key}' is here already, and another payment has paid it" in text
    )


def test_repeated_import_adds_nothing(
    world: World,
    csv: Any,
) -> None:
    """An import that stopped is finished."""
    for reference in OLD[:2]:
        made_elsewhere(world, reference)
    imported(csv(f"{OLD[0]},12.50,USD"), "--apply")
    text, code = imported(csv(f"{OLD[0]},12.50,USD", f"{OLD[1]},12.50,USD"), "--apply")
    assert (code, Payment.objects.count()) == (0, 2)
    assert "1 were here already" in text
    text, code = imported(csv(f"{OLD[0]},9.00,USD"), "--apply")
    assert code == 1
    assert "is here already, with USD 12.50" in text


def test_listed_refunds_come_with_payment(
    world: World,
    csv: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_elsewhere(world, OLD[0])
    real = hooks.query

    def with_refunds(*arguments: Any, **options: Any) -> Transaction:
        found = real(*arguments, **options)
        return replace(
            found,
            refunds=(hooks.ReportedRefund(amount=Decimal("12.50"), refund_no="R-77"),),
        )

    monkeypatch.setattr(hooks, "query", with_refunds)
    imported(csv(f"{OLD[0]},12.50,USD"), "--apply")
    refund = Refund.objects.get()
    assert (refund.refund_no, str(refund.money), refund.status, refund.external) == (
        "R-77",
        "USD 12.50",
        "succeeded",
        True,
    )


def test_i5_excessive_listed_refunds_stop_import(
    world: World,
    csv: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for reference in OLD[:2]:
        made_elsewhere(world, reference)
    real = hooks.query

    def with_refunds(account: Account, reference: str, **options: Any) -> Transaction:
        refund = hooks.ReportedRefund(amount=Decimal("12.51"), refund_no="R-77")
        return replace(
            real(account, reference, **options),
            refunds=(refund,) if reference == OLD[1] else None,
        )

    monkeypatch.setattr(hooks, "query", with_refunds)
    text, code = imported(csv(f"{OLD[0]},12.50,USD", f"{OLD[1]},12.50,USD"), "--apply")
    assert (code, Payment.objects.count(), Refund.objects.count()) == (1, 0, 0)
    assert "line 3: amount 'USD 12.51' is more than the USD 12.50" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--account", "nobody"], "nobody"),
        (["--plugin", "nobody"], "there is no such plugin"),
    ],
)
def test_an_unknown_account_or_plugin_is_named(
    world: World,
    csv: Any,
    words: list[str],
    says: str,
) -> None:
    with pytest.raises(CommandError, match=says):
        imported(csv("A,1.00,USD"), *words)


def test_non_text_file_is_named(world: World, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"reference,amount,currency\n\xff\xfe,1,USD\n")
    for file in (path, tmp_path / "missing.csv"):
        with pytest.raises(CommandError, match="cannot be read as CSV"):
            imported(str(file))
