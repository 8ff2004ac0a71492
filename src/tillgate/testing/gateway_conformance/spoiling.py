"""Scenarios of answers that prove nothing: overload, broken bodies, and answers that are incomplete
or about another payment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tillgate import hooks
from tillgate.errors import GatewayError, OrderNotFound, OutcomeUnknown, TillgateError
from tillgate.lifecycle import PaymentStatus
from tillgate.testing.gateway_conformance.judging import (
    Payment,
    any_account,
    decided,
    expect_paid,
    held,
    paid,
    request_for,
    sent_once,
    start,
)
from tillgate.testing.gateway_driver import Fault, GatewayDriver
from tillgate.wire.dialects import RefundOutcome, TransactionStatus

PROVE_NOTHING: Final[tuple[Fault, ...]] = (
    "rate_limited",
    "server_error",
    "redirect",
    "html_body",
    "broken_json",
    "cut_body",
)
"""Faults that leave it unknown whether the request was done."""
_UNKNOWN: Final = "after {0!r} the outcome of the {1} is unknown, and the plugin raised {2!r}"


class Spoiling:
    """Scenarios of answers that prove nothing, or that are not about this payment."""

    def test_broken_creation_answers(self, gateway: GatewayDriver) -> None:
        """After HTTP 429, 5xx or a redirect, a page in HTML, and JSON that is broken or cut, the
        outcome of a creation is unknown.
        """
        for fault in PROVE_NOTHING:
            with sent_once(gateway, "pay"):
                _create(gateway, fault)

    def test_broken_query_answers(self, gateway: GatewayDriver) -> None:
        """After the same faults a query proves nothing; it never says that there is no such
        payment, or another status.
        """
        payment = paid(gateway)
        for fault in PROVE_NOTHING:
            gateway.fault(fault, "query")
            try:
                answer = payment.asked()
            except OrderNotFound as error:
                raise AssertionError(
                    f"after {fault!r} the plugin said that there is no such payment",
                ) from error
            except GatewayError:
                gateway.clear_faults()
                continue
            assert answer.status is TransactionStatus.PAID, (
                f"after {fault!r} the answer says {answer.status}, and the payment is paid"
            )
        expect_paid(payment)

    def test_broken_refund_answers(self, gateway: GatewayDriver) -> None:
        """After the same faults the outcome of a refund is unknown, and money has moved once at
        most.
        """
        for fault in PROVE_NOTHING:
            payment = paid(gateway)
            with sent_once(gateway, "refund"):
                _refund(payment, fault)
            if payment.refunds():
                payment.expect_refunds(payment.part)

    def test_answer_about_another_payment(self, gateway: GatewayDriver) -> None:
        """An answer about another payment, a paid one of the same amount, does not pay this
        one.
        """
        paid(gateway)
        payment = start(gateway)
        gateway.pay(payment.request.reference)
        _pays_nothing(payment, "other_reference", "about another payment")
        gateway.clear_faults()
        unnumbered = replace(payment, is_number_known=False)
        _pays_nothing(unnumbered, "other_reference", "about another payment")

    def test_answer_without_currency(self, gateway: GatewayDriver) -> None:
        """An answer without a currency pays nothing."""
        _pays_nothing(paid(gateway), "missing_currency", "without a currency")

    def test_answer_without_amount(self, gateway: GatewayDriver) -> None:
        """An answer without an amount pays nothing."""
        _pays_nothing(paid(gateway), "missing_amount", "without an amount")

    def test_strange_status(self, gateway: GatewayDriver) -> None:
        """A status that no documentation has is unrecognised, or still open: not paid and not at an
        end. A refund with one is not done and not failed.
        """
        _refund_in_strange_words(paid(gateway))
        payment = start(gateway)
        gateway.use_strange_words()
        try:
            status = payment.asked().status
        except OrderNotFound:
            status = TransactionStatus.CLOSED
        except GatewayError:
            return
        assert status in (TransactionStatus.UNRECOGNISED, TransactionStatus.PENDING), (
            f"the gateway used an unknown word, and the answer says {status}"
        )


def _create(gateway: GatewayDriver, fault: Fault) -> None:
    account = any_account(gateway)
    request = request_for(account)
    gateway.fault(fault, "pay")
    try:
        created = hooks.pay(account, request)
    except OutcomeUnknown:
        return
    except Exception as error:
        raise AssertionError(_UNKNOWN.format(fault, "creation", error)) from error
    number = held(gateway, request).transaction_no
    assert created.transaction_no == number, (
        f"after {fault!r} the plugin took {created} for the answer"
    )


def _refund(payment: Payment, fault: Fault) -> None:
    request = payment.refund_request(payment.part)
    payment.gateway.fault(fault, "refund")
    try:
        done = hooks.refund(payment.account, request)
    except OutcomeUnknown:
        return
    except Exception as error:
        raise AssertionError(_UNKNOWN.format(fault, "refund", error)) from error
    raise AssertionError(f"after {fault!r} the plugin took {done} for the answer")


def _refund_in_strange_words(payment: Payment) -> None:
    try:
        payment.gateway.fault("strange_status", "refund")
    except NotImplementedError:
        return  # the emulator has one word for all refunds
    try:
        outcome = hooks.refund(payment.account, payment.refund_request(payment.part)).outcome
    except OutcomeUnknown:
        return
    assert outcome is RefundOutcome.PENDING, (
        f"the gateway used an unknown word for a refund, and the answer says {outcome}"
    )


def _pays_nothing(payment: Payment, fault: Fault, words: str) -> None:
    payment.gateway.fault(fault, "query")
    try:
        answer = payment.asked()
    except OrderNotFound as error:
        raise AssertionError(
            f"after an answer {words} the plugin said that there is no such payment",
        ) from error
    except TillgateError:
        return
    status = decided(payment, answer).status
    assert status is not PaymentStatus.PAID, f"an answer {words} paid the payment"
    assert status is PaymentStatus.PENDING, f"an answer {words} made the payment {status}"
