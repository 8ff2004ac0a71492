"""A gateway plugin's return values are checked once at the hook: a wrong value is a clear error,
and never becomes a status.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.hooks.test_hooks import FIRST, created, request
from tillgate import (
    Account,
    ConfigurationError,
    CreatedPayment,
    Method,
    Money,
    OutcomeUnknown,
    Refunded,
    RefundRequest,
    Transaction,
    TransactionStatus,
    hooks,
)
from tillgate.gateways import DeclineReason, GatewayProfile, NextStep, PaidWith
from tillgate.hooks import (
    DisputeStatus,
    ReportedDispute,
    ReportedRefund,
    build_plugin_manager,
    hookimpl,
)
from tillgate.wire.details import PaymentDetails

PAID = Transaction(
    reference="A-1",
    status=TransactionStatus.PAID,
    status_text="success",
    transaction_no="T-1",
    amount=Decimal("12.50"),
    currency="USD",
    settle_currency="USD",
    raw={},
)
WRONG_NUMBERS = [12, "", "9" * 256, "T\n1", b"T"]
WRONG_AMOUNTS = [12.5, "12.50", 12, Decimal("NaN"), Decimal("Infinity")]


class Canned:
    """A gateway plugin that returns the test's values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @hookimpl
    def tillgate_pay(self) -> Any:
        return self.value

    @hookimpl
    def tillgate_query(self) -> Any:
        return self.value

    @hookimpl
    def tillgate_refund(self) -> Any:
        return self.value

    @hookimpl
    def tillgate_query_refund(self) -> Any:
        return self.value


@pytest.fixture(autouse=True)
def own_manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A manager that the tests may change."""
    manager = build_plugin_manager(entry_points=False)
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
    return manager


MINE = Account(
    base_url=FIRST.base_url,
    token="first-token",
    dialect=GatewayProfile(
        name="my-gateway",
        currencies=("USD",),
        methods=(Method(code="alipay"),),
    ),
)


def answering(manager: Any, value: Any) -> None:
    manager.register(Canned(value), name="my-gateway")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "paid"),
        ("status", None),
        ("status_text", None),
        ("reference", None),
        ("raw", None),
        *(("transaction_no", number) for number in WRONG_NUMBERS),
        *(("amount", amount) for amount in WRONG_AMOUNTS),
        ("currency", 840),
        ("settle_currency", ""),
    ],
)
def test_wrong_query_value_proves_nothing(
    own_manager: Any,
    field: str,
    value: Any,
) -> None:
    """The error names the plugin, the field and the value."""
    answering(own_manager, replace(PAID, **{field: value}))
    with pytest.raises(ConfigurationError) as caught:
        hooks.query(MINE, "A-1")
    assert "my-gateway" in caught.value.field
    assert caught.value.field.endswith(field)
    assert caught.value.value == repr(value)[:80]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("transaction_no", number) for number in WRONG_NUMBERS),
        *(("amount", amount) for amount in WRONG_AMOUNTS),
        *(
            ("payment_url", url)
            for url in ("", "javascript:alert(1)", "/pay/1", "http://first.example/pay", None)
        ),
        ("currency", 840),
    ],
)
def test_i6_wrong_creation_value_means_unknown(
    own_manager: Any,
    field: str,
    value: Any,
) -> None:
    """The payment stays watched."""
    answering(own_manager, replace(created(FIRST), **{field: value}))
    with pytest.raises(OutcomeUnknown, match=f"my-gateway returned {field}"):
        hooks.pay(MINE, request())


@pytest.mark.parametrize(
    ("field", "value"),
    [*(("amount", amount) for amount in WRONG_AMOUNTS), ("ret_msg", None)],
)
def test_i6_wrong_refund_value_means_unknown(
    own_manager: Any,
    field: str,
    value: Any,
) -> None:
    answering(
        own_manager,
        replace(Refunded(reference="A-1", amount=Decimal("1.00"), ret_msg=""), **{field: value}),
    )
    with pytest.raises(OutcomeUnknown, match=f"my-gateway returned {field}"):
        hooks.refund(MINE, RefundRequest(reference="A-1", currency="USD", amount="1.00"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("reference", "B-2"), ("amount", Decimal("12.49")), ("currency", "EUR")],
)
def test_i6_creation_of_something_else_means_unknown(
    own_manager: Any,
    field: str,
    value: Any,
) -> None:
    """The gateway's answer is about another reference or amount than was asked for."""
    answering(own_manager, replace(created(FIRST), **{field: value}))
    with pytest.raises(OutcomeUnknown, match=f"my-gateway returned {field}"):
        hooks.pay(MINE, request())


def test_creation_may_be_answered_without_amount(own_manager: Any) -> None:
    made: CreatedPayment = replace(created(FIRST), amount=None, currency=None)
    answering(own_manager, made)
    assert hooks.pay(MINE, request()) == made


@pytest.mark.parametrize(("field", "value"), [("reference", "B-2"), ("amount", Decimal("0.99"))])
def test_i6_refund_of_something_else_means_unknown(
    own_manager: Any,
    field: str,
    value: Any,
) -> None:
    """A refund of less than was asked for is never booked as the whole one."""
    done = Refunded(reference="A-1", amount=Decimal("1.00"), ret_msg="")
    answering(own_manager, replace(done, **{field: value}))
    with pytest.raises(OutcomeUnknown, match=f"my-gateway returned {field}"):
        hooks.refund(MINE, RefundRequest(reference="A-1", currency="USD", amount="1.00"))


@pytest.mark.parametrize(("field", "value"), [("reference", "B-2"), ("amount", Decimal("0.99"))])
def test_query_of_other_refund_proves_nothing(
    own_manager: Any,
    field: str,
    value: Any,
) -> None:
    done = Refunded(reference="A-1", amount=Decimal("1.00"), ret_msg="")
    answering(own_manager, replace(done, **{field: value}))
    with pytest.raises(ConfigurationError) as caught:
        hooks.query_refund(MINE, RefundRequest(reference="A-1", currency="USD", amount="1.00"))
    assert caught.value.field.endswith(field)


def test_i11_error_shortens_payment_page_address(own_manager: Any) -> None:
    answering(
        own_manager,
        replace(created(FIRST), payment_url="http://first.example/pay?key=secret"),
    )
    with pytest.raises(OutcomeUnknown) as caught:
        hooks.pay(MINE, request())
    assert "secret" not in str(caught.value)


def test_sandbox_may_use_http_payment_page(own_manager: Any) -> None:
    """All other correct values pass as well."""
    page = "http://127.0.0.1:8000/pay"
    sandbox = MINE.model_copy(update={"base_url": "http://127.0.0.1:8000", "sandbox": True})
    made: CreatedPayment = replace(created(FIRST), payment_url=page, transaction_no="c" * 255)
    answering(own_manager, made)
    assert hooks.pay(sandbox, request()) == made
    own_manager.unregister(name="my-gateway")
    answering(own_manager, PAID)
    assert hooks.query(MINE, "A-1") == PAID


UNTIL = datetime(2026, 12, 1, tzinfo=UTC)
PAGE = "https://gateway.example/p/1"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"fee": Money("0.35", "EUR")}, "fee"),
        ({"net": Money("12.15", "EUR")}, "net"),
        ({"fee": Decimal("0.35")}, "fee"),
        ({"dashboard_url": "http://gateway.example/p/1"}, "dashboard_url"),
        ({"dashboard_url": "p/1"}, "dashboard_url"),
        ({"next_step": PAGE}, "next_step"),
        ({"paid_with": PaidWith(method="card", last4="12345")}, "paid_with: last4"),
        ({"paid_with": PaidWith(method="")}, "paid_with: method"),
        ({"decline_reason": DeclineReason(code="")}, "decline_reason: code"),
        ({"decline_reason": DeclineReason(code="x", for_shopper="yes")}, "decline_reason: for"),  # type: ignore[arg-type]
        ({"numbers": ["pi_1"]}, "numbers"),
        ({"numbers": ("",)}, "numbers"),
    ],
)
def test_faulty_detail_blocks_no_money(
    own_manager: Any,
    caplog: pytest.LogCaptureFixture,
    change: Any,
    field: str,
) -> None:
    """The detail is left out, and a warning names plugin, field, value and remedy."""
    answering(own_manager, replace(PAID, **change))
    assert hooks.query(MINE, "A-1") == PAID
    [record] = caplog.records
    assert record.levelname == "WARNING"
    said = record.getMessage()
    assert said.startswith(f"tillgate_query of my-gateway returned {field}")
    assert "which is left out: it must be" in said


@pytest.mark.parametrize(
    ("step", "kept", "field"),
    [
        ({"url": PAGE, "until": "soon"}, NextStep(url=PAGE), "until"),
        ({"url": PAGE, "until": datetime(2026, 12, 1)}, NextStep(url=PAGE), "until"),  # noqa: DTZ001
        ({"url": "javascript:alert(1)", "until": UNTIL}, NextStep(until=UNTIL), "url"),
        ({"url": "http://x.example", "until": "soon"}, NextStep(), "url"),
        ({"url": PAGE, "is_transfer": "yes"}, NextStep(url=PAGE), "is_transfer"),
    ],
)
def test_faulty_step_is_still_a_step(
    own_manager: Any,
    caplog: pytest.LogCaptureFixture,
    step: Any,
    kept: NextStep,
    field: str,
) -> None:
    """A voucher without its link must still be paid: only the faulty fields are left out."""
    answering(own_manager, replace(PAID, next_step=NextStep(**step)))
    assert hooks.query(MINE, "A-1") == replace(PAID, next_step=kept)
    assert f"returned next_step: {field}" in caplog.text


DISPUTE = ReportedDispute(amount=Decimal(12), status=DisputeStatus.OPEN, dispute_no="du_1")
NAIVE = datetime(2026, 12, 1)  # noqa: DTZ001
REFUND = ReportedRefund(amount=Decimal(1), refund_no="re_1")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"disputes": (replace(DISPUTE, reason="\n"),)}, "disputes: reason"),
        ({"disputes": (replace(DISPUTE, url="http://x.example"),)}, "disputes: url"),
        ({"disputes": (replace(DISPUTE, respond_by=NAIVE),)}, "disputes: respond_by"),
        ({"refunds": (replace(REFUND, dashboard_url=""),)}, "refunds: dashboard_url ''"),
    ],
)
def test_faulty_detail_keeps_dispute_and_refund(
    own_manager: Any,
    caplog: pytest.LogCaptureFixture,
    change: Any,
    field: str,
) -> None:
    answering(own_manager, replace(PAID, **change))
    found = hooks.query(MINE, "A-1")
    assert (found.disputes, found.refunds) in (((DISPUTE,), None), ((), (REFUND,)))
    assert f"my-gateway returned {field}" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"disputes": (replace(DISPUTE, amount=Decimal("NaN")),)},
        {"disputes": (replace(DISPUTE, dispute_no=""),)},
        {"disputes": [DISPUTE]},
        {"refunds": (replace(REFUND, amount=Decimal("NaN")),)},
        {"refunds": (7,)},
    ],
)
def test_faulty_dispute_or_refund_proves_nothing(own_manager: Any, change: Any) -> None:
    answering(own_manager, replace(PAID, **change))
    with pytest.raises(ConfigurationError, match=r"my-gateway: (disputes|refunds)"):
        hooks.query(MINE, "A-1")


def test_faulty_page_of_refund_keeps_refund(own_manager: Any) -> None:
    made = Refunded(reference="A-1", amount=Decimal("1.00"), ret_msg="")
    answering(own_manager, replace(made, dashboard_url="p/1"))
    asked = RefundRequest(reference="A-1", currency="USD", amount="1.00")
    assert hooks.refund(MINE, asked) == made


def test_details_that_are_right_pass(own_manager: Any) -> None:
    told = replace(
        PAID,
        paid_with=PaidWith(method="card", brand="visa", last4="4242"),
        fee=Money("0.35", "USD"),
        net=Money("12.15", "USD"),
        available_on=UNTIL,
        decline_reason=DeclineReason(code="insufficient_funds", text="no money"),
        next_step=NextStep(url=PAGE, until=UNTIL),
        dashboard_url=PAGE,
        numbers=("pi_1", "ch_1"),
        disputes=(
            ReportedDispute(
                amount=Decimal(12),
                status=DisputeStatus.OPEN,
                dispute_no="du_1",
                respond_by=UNTIL,
                reason="fraudulent",
                url=PAGE,
            ),
        ),
        refunds=(ReportedRefund(amount=Decimal(1), refund_no="re_1", dashboard_url=PAGE),),
    )
    answering(own_manager, told)
    assert hooks.query(MINE, "A-1") == told
    details = PaymentDetails.of(told)
    assert PaymentDetails.read(json.loads(json.dumps(details.as_json()))) == details
    assert details.refund_pages == {"re_1": PAGE}
    assert PaymentDetails.of(PAID).as_json() == {}
