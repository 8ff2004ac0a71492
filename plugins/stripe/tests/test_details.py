"""The facts about a payment that clerks and shoppers read, on the fake Stripe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from stripe_emulator.driver import account_at
from stripe_emulator.fake import FakeStripe
from stripe_emulator.objects import TRANSFER
from tillgate import (
    Account,
    Money,
    PaymentRequest,
    Transaction,
    TransactionStatus,
    hooks,
    new_reference,
)
from tillgate.gateways import DeclineReason, PaidWith
from tillgate.hooks import DisputeStatus
from tillgate_stripe.details import page_of

VOUCHERS = ("oxxo", "boleto", "konbini", "multibanco")
NEEDED = (
    "checkout_session_write",
    "payment_intent_read",
    "charge_read",
    "refund_write",
    "dispute_read",
)
CURRENCIES = {"oxxo": "MXN", "boleto": "BRL", "konbini": "JPY", "multibanco": "EUR"}


@pytest.fixture
def fake() -> Iterator[FakeStripe]:
    with FakeStripe() as running:
        running.methods += VOUCHERS
        yield running


@pytest.fixture
def account(fake: FakeStripe) -> Account:
    return account_at(fake.url)


def opened(account: Account, currency: str = "USD", amount: str = "100") -> tuple[str, str]:
    reference = new_reference("S1")
    payment = hooks.pay(
        account,
        PaymentRequest(
            reference=reference,
            amount=amount,
            currency=currency,
            method="checkout",
            terminal="ONLINE",
            ipn_url="https://shop.example/ipn",
            callback_url="https://shop.example/return/key/?status={status}",
        ),
    )
    return reference, payment.transaction_no


def query(account: Account, payment: tuple[str, str]) -> Transaction:
    reference, number = payment
    return hooks.query(account, reference, transaction_no=number)


def paid(fake: FakeStripe, account: Account, **fields: str) -> tuple[str, str]:
    payment = opened(account, **fields)
    fake.pay(payment[0])
    return payment


# Paid ---------------------------------------------------------------------------------------------


def test_card_is_named_with_last_digits(fake: FakeStripe, account: Account) -> None:
    found = query(account, paid(fake, account))
    assert found.paid_with == PaidWith(method="card", brand="visa", last4="4242")
    assert found.decline_reason is None
    assert found.next_step is None


def test_bank_debit_under_way_is_named(fake: FakeStripe, account: Account) -> None:
    payment = opened(account, currency="EUR")
    fake.pay_with_delay(payment[0])
    found = query(account, payment)
    assert (found.status, found.paid_with) == (
        TransactionStatus.PROCESSING,
        PaidWith(method="sepa_debit"),
    )


def test_numbers_are_intent_and_charge(fake: FakeStripe, account: Account) -> None:
    payment = paid(fake, account)
    charge = fake.charge_of(payment[0])
    assert query(account, payment).numbers == (charge["payment_intent"], charge["id"])


def test_page_is_in_test_mode(fake: FakeStripe, account: Account) -> None:
    payment = paid(fake, account)
    intent = fake.session_of(payment[0])["payment_intent"]
    url = f"https://dashboard.stripe.com/test/payments/{intent}"
    assert query(account, payment).dashboard_url == url


@pytest.mark.parametrize(
    ("intent", "page"),
    [
        ("pi_1Abc", "https://dashboard.stripe.com/payments/pi_1Abc"),
        ("pi_1/../x", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_live_page_is_of_an_intent_alone(intent: object, page: str | None) -> None:
    assert page_of(intent, sandbox=False) == page


def test_open_payment_has_no_details(account: Account) -> None:
    found = query(account, opened(account))
    assert (found.paid_with, found.dashboard_url, found.numbers) == (None, None, ())
    assert (found.fee, found.net, found.decline_reason, found.next_step) == (None,) * 4


# The fee ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("currency", "amount", "fee", "net"),
    [("USD", "100", "3.20", "96.80"), ("JPY", "1000", "59", "941")],
)
def test_fee_and_net_are_exact(
    fake: FakeStripe,
    account: Account,
    currency: str,
    amount: str,
    fee: str,
    net: str,
) -> None:
    found = query(account, paid(fake, account, currency=currency, amount=amount))
    assert (found.fee, found.net) == (Money(fee, currency), Money(net, currency))


def test_payout_day_is_known_once_paid(fake: FakeStripe, account: Account) -> None:
    payment = paid(fake, account)
    available = query(account, payment).available_on
    assert available is not None
    assert available > datetime.now(UTC)
    assert query(account, opened(account)).available_on is None


def test_fee_in_another_currency_is_left_out(fake: FakeStripe, account: Account) -> None:
    fake.settles_in = "eur"
    found = query(account, paid(fake, account))
    assert (found.status, found.fee, found.net) == (TransactionStatus.PAID, None, None)


def test_key_without_balance_reads_payment(fake: FakeStripe, account: Account) -> None:
    """The permission is for the fee alone."""
    payment = paid(fake, account)
    fake.restrict("rk_test_no_balance", (*NEEDED, "balance_read"))
    assert query(account_at(fake.url, token="rk_test_no_balance"), payment).fee is not None
    fake.restrict("rk_test_no_balance", NEEDED)
    found = query(account_at(fake.url, token="rk_test_no_balance"), payment)
    assert (found.status, found.fee, found.refunds) == (TransactionStatus.PAID, None, ())
    assert found.paid_with is not None


# Declined -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "insufficient_funds",
            DeclineReason(
                code="insufficient_funds",
                text="Your card has insufficient funds.",
                for_shopper=True,
            ),
        ),
        (
            "expired_card",
            DeclineReason(code="expired_card", text="Your card has expired.", for_shopper=True),
        ),
        (
            "stolen_card",
            DeclineReason(
                code="stolen_card",
                text="The bank did not return any further details.",
            ),
        ),
        (
            "a_code_of_tomorrow",
            DeclineReason(
                code="a_code_of_tomorrow",
                text="The bank did not return any further details.",
            ),
        ),
    ],
)
def test_shopper_reads_harmless_declines_only(
    fake: FakeStripe,
    account: Account,
    code: str,
    reason: DeclineReason,
) -> None:
    payment = opened(account)
    fake.decline(payment[0], code=code)
    found = query(account, payment)
    assert (found.decline_reason, found.paid_with) == (reason, None)


def test_decline_is_forgotten_once_paid(fake: FakeStripe, account: Account) -> None:
    payment = opened(account)
    fake.decline(payment[0])
    fake.pay(payment[0])
    assert query(account, payment).decline_reason is None


def test_failed_debit_says_why(fake: FakeStripe, account: Account) -> None:
    payment = opened(account, currency="EUR")
    fake.pay_with_delay(payment[0])
    fake.fail_delayed(payment[0])
    found = query(account, payment)
    assert found.status is TransactionStatus.FAILED
    assert found.decline_reason is not None
    assert found.decline_reason.code == "generic_decline"
    assert found.paid_with == PaidWith(method="sepa_debit")


# Vouchers -----------------------------------------------------------------------------------------


def test_transfer_is_no_voucher(fake: FakeStripe, account: Account) -> None:
    fake.methods.append(TRANSFER)
    payment = opened(account, currency="EUR")
    fake.take_voucher(payment[0], TRANSFER)
    waits = query(account, payment)
    step = waits.next_step
    assert waits.paid_with == PaidWith(method="bank_transfer")
    assert step is not None
    assert (step.is_transfer, step.until) == (True, None)
    assert step.url is not None
    fake.pay_voucher(payment[0])
    assert query(account, payment).paid_with == PaidWith(method="bank_transfer")


def test_voucher_that_ends_has_failed(fake: FakeStripe, account: Account) -> None:
    payment = opened(account, currency="MXN")
    fake.take_voucher(payment[0], "oxxo")
    fake.end_voucher(payment[0])
    found = query(account, payment)
    assert (found.status, found.next_step) == (TransactionStatus.FAILED, None)


@pytest.mark.parametrize("method", VOUCHERS)
def test_voucher_has_page_and_end(fake: FakeStripe, account: Account, method: str) -> None:
    payment = opened(account, currency=CURRENCIES[method])
    fake.take_voucher(payment[0], method)
    found = query(account, payment)
    assert found.status is TransactionStatus.PROCESSING
    assert found.next_step is not None
    assert found.next_step.url is not None
    assert found.next_step.until is not None
    assert found.next_step.is_transfer is False
    assert found.paid_with == PaidWith(method=method)
    assert found.next_step.url.startswith(f"https://payments.stripe.com/{method}/voucher/")
    left = found.next_step.until - datetime.now(UTC)
    assert timedelta(days=2) < left < timedelta(days=4)
    fake.pay_voucher(payment[0])
    after = query(account, payment)
    assert (after.status, after.next_step) == (TransactionStatus.PAID, None)
    assert after.paid_with == PaidWith(method=method)


# Disputes -----------------------------------------------------------------------------------------


def test_dispute_has_reason_and_page(fake: FakeStripe, account: Account) -> None:
    payment = paid(fake, account)
    fake.dispute(payment[0], reason="product_not_received", due_by=1_800_000_000)
    found = query(account, payment)
    [dispute] = found.disputes
    assert (dispute.reason, dispute.url) == ("product_not_received", found.dashboard_url)
    assert dispute.respond_by == datetime.fromtimestamp(1_800_000_000, UTC)


@pytest.mark.parametrize(
    "odd",
    [
        {"reason": None, "evidence_details": None},
        {"reason": 7, "evidence_details": {"due_by": "soon"}},
        {"reason": "x" * 999, "evidence_details": {"due_by": 10**20}},
        {"reason": "", "evidence_details": []},
    ],
)
def test_odd_dispute_still_counts(fake: FakeStripe, account: Account, odd: dict[str, Any]) -> None:
    payment = paid(fake, account)
    number = fake.dispute(payment[0])["id"]
    fake.disputes[number].update(odd)
    [dispute] = query(account, payment).disputes
    assert (dispute.dispute_no, dispute.status) == (number, DisputeStatus.OPEN)
    assert (dispute.amount, dispute.respond_by) == (Decimal("100.00"), None)


# Odd answers --------------------------------------------------------------------------------------


def charge_in(session: dict[str, Any]) -> dict[str, Any]:
    charge: dict[str, Any] = session["payment_intent"]["latest_charge"]
    return charge


ODD_VALUES: tuple[Any, ...] = (
    None,
    7,
    -1,
    True,
    "",
    "x" * 999,
    "\n\u202e",
    [],
    ["x"],
    {},
    {"type": {}},
)
PLACES: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "details": lambda session, odd: charge_in(session).update(payment_method_details=odd),
    "method": lambda session, odd: charge_in(session)["payment_method_details"].update(type=odd),
    "card": lambda session, odd: charge_in(session)["payment_method_details"].update(card=odd),
    "digits": lambda session, odd: charge_in(session)["payment_method_details"]["card"].update(
        last4=odd,
        brand=odd,
    ),
    "moved": lambda session, odd: charge_in(session).update(balance_transaction=odd),
    "fee": lambda session, odd: charge_in(session)["balance_transaction"].update(fee=odd, net=odd),
    "payout": lambda session, odd: charge_in(session)["balance_transaction"].update(
        available_on=odd,
    ),
    "currency": lambda session, odd: charge_in(session)["balance_transaction"].update(currency=odd),
    "error": lambda session, odd: session["payment_intent"].update(last_payment_error=odd),
    "action": lambda session, odd: session["payment_intent"].update(next_action=odd),
}


@pytest.mark.parametrize("odd", ODD_VALUES, ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_odd_details_leave_payment_paid(
    fake: FakeStripe,
    account: Account,
    place: str,
    odd: object,
) -> None:
    payment = paid(fake, account)
    fake.alter_next("retrieve_session", lambda session: PLACES[place](session, odd))
    found = query(account, payment)
    assert (found.status, found.amount) == (TransactionStatus.PAID, Decimal("100.00"))


@pytest.mark.parametrize("name", ["payment_method_details", "balance_transaction", "outcome"])
def test_missing_details_leave_payment_paid(
    fake: FakeStripe,
    account: Account,
    name: str,
) -> None:
    payment = paid(fake, account)
    fake.alter_next("retrieve_session", lambda session: charge_in(session).pop(name))
    assert query(account, payment).status is TransactionStatus.PAID


@pytest.mark.parametrize("odd", ODD_VALUES, ids=repr)
@pytest.mark.parametrize("name", ["decline_code", "code", "message"])
def test_odd_decline_is_read_as_far_as_possible(
    fake: FakeStripe,
    account: Account,
    name: str,
    odd: object,
) -> None:
    payment = opened(account)
    fake.decline(payment[0], code="insufficient_funds")

    def change(session: dict[str, Any]) -> None:
        session["payment_intent"]["last_payment_error"][name] = odd

    fake.alter_next("retrieve_session", change)
    found = query(account, payment)
    assert found.status is TransactionStatus.PENDING
    assert found.decline_reason is not None


@pytest.mark.parametrize(
    "odd",
    [
        *ODD_VALUES,
        "http://payments.stripe.com/oxxo",
        "https://user@payments.stripe.com/oxxo",
        "javascript:alert(1)",
        "https://payments.stripe.com/a b",
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["hosted_voucher_url", "expires_after"])
def test_odd_voucher_is_left_out(
    fake: FakeStripe,
    account: Account,
    name: str,
    odd: object,
) -> None:
    payment = opened(account, currency="MXN")
    fake.take_voucher(payment[0], "oxxo")

    def change(session: dict[str, Any]) -> None:
        session["payment_intent"]["next_action"]["oxxo_display_details"][name] = odd

    fake.alter_next("retrieve_session", change)
    found = query(account, payment)
    assert found.status is TransactionStatus.PROCESSING
    assert found.next_step is not None, "the voucher still has to be paid"
    read = {"hosted_voucher_url": found.next_step.url, "expires_after": found.next_step.until}
    assert read[name] is None or (name, odd) == ("expires_after", 7)
    assert len([one for one in read.values() if one is None]) <= 1
