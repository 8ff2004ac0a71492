"""What a gateway plugin returns is checked once at the hook: a wrong value is a clear error, and
never becomes a status.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.hooks.test_hooks import FIRST, created, request
from tillgate import (
    Account,
    ConfigurationError,
    CreatedPayment,
    OutcomeUnknown,
    Refunded,
    RefundRequest,
    Transaction,
    TransactionStatus,
    hooks,
)
from tillgate.hooks import build_plugin_manager, hookimpl

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
    """A gateway plugin that returns what a test gives it."""

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


@pytest.fixture(autouse=True)
def own_manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A manager that the tests may change."""
    manager = build_plugin_manager(entry_points=False)
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
    return manager


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
        hooks.query(FIRST, "A-1")
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
        hooks.pay(FIRST, request())


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
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="1.00"))


def test_i11_error_shortens_payment_page_address(own_manager: Any) -> None:
    answering(
        own_manager,
        replace(created(FIRST), payment_url="http://first.example/pay?key=secret"),
    )
    with pytest.raises(OutcomeUnknown) as caught:
        hooks.pay(FIRST, request())
    assert "secret" not in str(caught.value)


def test_sandbox_may_use_http_payment_page(own_manager: Any) -> None:
    """All other correct values pass as well."""
    page = "http://127.0.0.1:8000/pay"
    sandbox = Account(
        base_url="http://127.0.0.1:8000",
        merchant_no="1",
        token="first-token",
        sandbox=True,
    )
    made: CreatedPayment = replace(created(FIRST), payment_url=page, transaction_no="c" * 255)
    answering(own_manager, made)
    assert hooks.pay(sandbox, request()) == made
    own_manager.unregister(name="my-gateway")
    answering(own_manager, PAID)
    assert hooks.query(FIRST, "A-1") == PAID
