"""Scenarios of creating and querying payments: the shopper, the network and the currencies."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import pytest

from tillgate import hooks
from tillgate.account import Account
from tillgate.errors import (
    AnswerNotUnderstood,
    GatewayError,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
)
from tillgate.money import decimals_of
from tillgate.testing.gateway_conformance.judging import (
    CANCELLED,
    PATIENCE_SECONDS,
    SLOW_SECONDS,
    Payment,
    any_account,
    expect_paid,
    held,
    in_time,
    paid,
    request_for,
    start,
    stranger_of,
)
from tillgate.testing.gateway_driver import GatewayDriver
from tillgate.wire.dialects import DisputeStatus, TransactionStatus
from tillgate.wire.messages import PaymentRequest, Transaction
from tillgate.wire.urls import is_https, is_web_address

_CURRENCIES: Final = {
    2: ("USD", "EUR", "GBP", "CNY"),
    0: ("JPY", "KRW", "VND", "CLP"),
    3: ("KWD", "BHD", "JOD", "OMR", "TND"),
}
"""The currencies in which amounts are proven, by their decimals, where the account's own have
others; the first that an account takes.
"""


class PayingAtGateway:
    """Scenarios of paying: created, paid, declined, expired, and unknown after a fault."""

    def test_created_payment(self, gateway: GatewayDriver) -> None:
        """A new payment has a transaction number and an absolute payment page, which is https
        unless the account is a sandbox's.
        """
        payment = start(gateway)
        url = payment.created.payment_url
        assert is_web_address(url), "the payment page is no absolute address"
        assert is_https(url) or payment.account.sandbox, "the payment page is not https"
        assert payment.query().status is TransactionStatus.PENDING, (
            "nobody has paid, and the answer says otherwise"
        )

    def test_paid_payment(self, gateway: GatewayDriver) -> None:
        """A payment is open until the shopper has paid, is paid then, and remains so."""
        payment = start(gateway)
        assert payment.query().status is TransactionStatus.PENDING, "nobody has paid"
        gateway.pay(payment.request.reference)
        expect_paid(payment)
        expect_paid(payment)

    def test_payments_are_kept_apart(self, gateway: GatewayDriver) -> None:
        """Of two payments, each has its own transaction number, and paying one does not pay the
        other.
        """
        other, payment = start(gateway), start(gateway)
        gateway.pay(payment.request.reference)
        expect_paid(payment)
        assert other.query().status is TransactionStatus.PENDING, "another payment was paid"
        assert other.created.transaction_no != payment.created.transaction_no, (
            "two payments have one transaction number"
        )

    def test_money_on_its_way(self, gateway: GatewayDriver) -> None:
        """While the shopper has finished and the money is on its way, a payment is processing or
        open.
        """
        payment = start(gateway)
        gateway.pay_slowly(payment.request.reference)
        status = payment.query().status
        assert status in (TransactionStatus.PROCESSING, TransactionStatus.PENDING), (
            f"the money has not arrived, and the answer says {status}"
        )

    def test_money_taken_back(self, gateway: GatewayDriver) -> None:
        """A paid payment that the shopper's bank takes back is no longer simply paid: the answer
        has a dispute, or another status.
        """
        payment = paid(gateway)
        gateway.reverse(payment.request.reference)
        answer = payment.query()
        open_disputes = [one for one in answer.disputes if one.status is not DisputeStatus.WON]
        assert answer.status is not TransactionStatus.PAID or open_disputes, (
            "the bank took the money back, and the answer says paid, without a dispute"
        )

    def test_declined_payment(self, gateway: GatewayDriver) -> None:
        """A declined payment is failed, closed or still open, and never paid."""
        payment = start(gateway)
        gateway.decline(payment.request.reference)
        status = payment.query().status
        assert status in {*CANCELLED, TransactionStatus.PENDING}, (
            f"the payment was declined, and the answer says {status}"
        )

    def test_expired_payment(self, gateway: GatewayDriver) -> None:
        """A payment after its time is failed or closed, or the gateway has forgotten it."""
        payment = start(gateway)
        gateway.expire(payment.request.reference)
        try:
            status = payment.query().status
        except OrderNotFound:
            return
        assert status in CANCELLED, f"the payment has expired, and the answer says {status}"

    def test_unknown_reference(self, gateway: GatewayDriver) -> None:
        """A reference that the gateway has never seen is not found, which is an error of its
        own.
        """
        account = any_account(gateway)
        start(gateway, account)
        with pytest.raises(OrderNotFound):
            hooks.query(account, request_for(account).reference)

    def test_unreachable_gateway(self, gateway: GatewayDriver) -> None:
        """Without a connection nothing is sent, the plugin says so of each operation, and a payment
        is not called unknown.
        """
        payment, account = paid(gateway), gateway.unreachable()
        request = request_for(account)
        with pytest.raises(NotSent):
            hooks.pay(account, request)
        assert gateway.held(request.reference) is None, (
            "the plugin said that nothing was sent, and the gateway has the payment"
        )
        with pytest.raises(NotSent):
            hooks.refund(account, payment.refund_request(payment.part))
        payment.expect_refunds()
        with pytest.raises(GatewayError) as caught:
            replace(payment, account=account).asked()
        assert not isinstance(caught.value, OrderNotFound), (
            "no gateway was reached, and the plugin said that there is no such payment"
        )

    def test_wrong_credentials(self, gateway: GatewayDriver) -> None:
        """An account with unknown secrets is refused each time, also while another works: nothing
        is created or refunded, and a payment is not called unknown.
        """
        payment = paid(gateway)
        stranger = stranger_of(payment.account)
        request = request_for(stranger)
        with pytest.raises(GatewayError):
            hooks.pay(stranger, request)
        assert gateway.held(request.reference) is None, "a payment was created without rights"
        with pytest.raises(GatewayError) as caught:
            replace(payment, account=stranger).asked()
        assert not isinstance(caught.value, OrderNotFound), (
            "the account has no rights, and the plugin said that there is no such payment"
        )
        with pytest.raises(GatewayError):
            hooks.refund(stranger, payment.refund_request(payment.part))
        payment.expect_refunds()

    def test_lost_creation(self, gateway: GatewayDriver) -> None:
        """After a creation without an answer the outcome is unknown; a query by the reference alone
        never says that there is no such payment.
        """
        account, request = _lost(gateway)
        gateway.pay(request.reference)
        with suppress(AnswerNotUnderstood, OutcomeUnknown):
            _expect_found(gateway, request, hooks.query(account, request.reference, attempts=1))

    def test_lookup_by_reference(self, gateway: GatewayDriver) -> None:
        """A payment without an answer to its creation is found by its reference alone, among
        others.
        """
        paid(gateway)
        account, request = _lost(gateway)
        paid(gateway)
        answer = hooks.query(account, request.reference)
        assert answer.status is TransactionStatus.PENDING, (
            f"nobody has paid, and the answer says {answer.status}"
        )
        gateway.pay(request.reference)
        _expect_found(gateway, request, hooks.query(account, request.reference))

    def test_slow_creation(self, gateway: GatewayDriver) -> None:
        """A creation that the gateway answers too late ends in time, and its outcome is unknown."""
        account = any_account(gateway)
        gateway.answer_slowly("pay", SLOW_SECONDS)
        with in_time("creation"), pytest.raises(OutcomeUnknown):
            hooks.pay(account, request_for(account), deadline_seconds=PATIENCE_SECONDS)

    def test_closed_page(self, gateway: GatewayDriver) -> None:
        """A payment that Tillgate closes can no longer be paid, also when it is closed twice; a
        paid one stays paid, and nothing of it is refunded.
        """
        payment, money = start(gateway), paid(gateway)
        if _close(payment) is None:
            pytest.skip("the plugin closes no payment")
        assert _close(payment) is True, "the page is closed, and closing it again says no"
        assert payment.query().status in CANCELLED, "the page is closed, and the payment is open"
        with suppress(Exception):  # the emulator may refuse
            gateway.pay(payment.request.reference)
        assert payment.query().status is not TransactionStatus.PAID, "a closed page was paid"
        assert _close(money) is False, "a paid payment cannot be closed"
        money.expect_refunds()
        expect_paid(money)

    def test_slow_query(self, gateway: GatewayDriver) -> None:
        """A query ends within its deadline and proves nothing then."""
        payment = paid(gateway)
        gateway.answer_slowly("query", SLOW_SECONDS)
        with in_time("query"), pytest.raises(GatewayError) as caught:
            payment.asked(PATIENCE_SECONDS)
        assert not isinstance(caught.value, OrderNotFound), (
            "the gateway did not answer, and the plugin said that there is no such payment"
        )

    def test_exact_amount_with_two_decimals(self, gateway: GatewayDriver) -> None:
        """12.50 of the account's first currency with two decimals, or else of USD, EUR, GBP or CNY,
        is asked for, answered and refunded exactly.
        """
        _is_exact(gateway, 2)

    def test_exact_amount_without_decimals(self, gateway: GatewayDriver) -> None:
        """1250 of the account's first currency without decimals, or else of JPY, KRW, VND or CLP,
        is asked for, answered and refunded exactly.
        """
        _is_exact(gateway, 0)

    def test_exact_amount_with_three_decimals(self, gateway: GatewayDriver) -> None:
        """1.234 of the account's first currency with three decimals, or else of KWD, BHD, JOD, OMR
        or TND, or as much as the gateway's steps allow, is exact.
        """
        _is_exact(gateway, 3)

    def test_methods_and_currencies(self, gateway: GatewayDriver) -> None:
        """Every payment method takes a currency of the account, and every currency of the account
        has a method.
        """
        account = any_account(gateway)
        methods = hooks.payment_methods(account)
        for method in methods:
            for currency in method.currencies:
                decimals_of(currency)
            shared = set(method.currencies) & set(account.taken_currencies)
            assert shared or not method.currencies, (
                f"{method.code} takes no currency of the account"
            )
        for currency in account.taken_currencies:
            takes = any(
                currency in method.currencies or not method.currencies for method in methods
            )
            assert takes, f"no payment method takes {currency}, and the account does"


def _close(payment: Payment) -> bool | None:
    return hooks.close(
        payment.account,
        payment.request.reference,
        transaction_no=payment.created.transaction_no,
    )


def _lost(gateway: GatewayDriver) -> tuple[Account, PaymentRequest]:
    """Create a payment and lose the answer."""
    account = any_account(gateway)
    request = request_for(account)
    gateway.lose_answer("pay")
    with pytest.raises(OutcomeUnknown):
        hooks.pay(account, request)
    held(gateway, request)
    return account, request


def _expect_found(gateway: GatewayDriver, request: PaymentRequest, answer: Transaction) -> None:
    number = held(gateway, request).transaction_no
    assert (answer.reference, answer.transaction_no) == (request.reference, number), (
        "the query found another payment"
    )
    assert answer.status is TransactionStatus.PAID, (
        f"the shopper paid, and the answer says {answer.status}"
    )


def _is_exact(gateway: GatewayDriver, decimals: int) -> None:
    """Pay and refund in the first own currency of an account that has so many decimals, or else in
    one of the list.
    """
    own = any_account(gateway).taken_currencies
    listed = [one for one in own if decimals_of(one) == decimals]
    listed += [one for one in _CURRENCIES[decimals] if gateway.account(one)]
    if not listed:
        pytest.skip(f"no account takes {', '.join(_CURRENCIES[decimals])}")
    account = gateway.account(listed[0])
    assert account is not None, f"the driver has no account for {listed[0]}, its own currency"
    payment = paid(gateway, account, listed[0])
    done = hooks.refund(payment.account, payment.refund_request(payment.part))
    assert done.amount == payment.part, (
        f"{payment.part} were refunded, and the answer says {done.amount}"
    )
    payment.expect_refunds(payment.part)
