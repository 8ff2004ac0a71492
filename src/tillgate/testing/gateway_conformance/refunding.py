"""Scenarios of refunds: full, partial, too much, pending, failing, lost, repeated, and made in the
portal.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Final

import pytest

from tillgate import hooks
from tillgate.errors import (
    ConfigurationError,
    GatewayError,
    InvalidRequest,
    NotSent,
    OutcomeUnknown,
    Refused,
)
from tillgate.money import decimals_of
from tillgate.testing.gateway_conformance.judging import (
    PATIENCE_SECONDS,
    SLOW_SECONDS,
    Payment,
    expect_paid,
    in_time,
    paid,
    refunded,
    settled,
    start,
)
from tillgate.testing.gateway_driver import GatewayDriver
from tillgate.wire.dialects import RefundOutcome
from tillgate.wire.messages import RefundRequest

_NOTHING_DONE: Final = (Refused, NotSent, InvalidRequest, ConfigurationError)
"""The errors that say that nothing was refunded."""


class Refunding:
    """Scenarios of refunding: once, exactly, and never called done before it is."""

    def test_full_refund(self, gateway: GatewayDriver) -> None:
        """A full refund returns the whole amount, once; the payment is still known as paid."""
        payment = paid(gateway)
        refunded(payment, payment.refund_request(payment.total))
        payment.expect_refunds(payment.total)
        expect_paid(payment)

    def test_partial_refunds(self, gateway: GatewayDriver) -> None:
        """Partial refunds follow each other, two of one amount too, each is sent once, and a
        listing names each once.
        """
        payment = paid(gateway)
        parts = [payment.part, payment.part, payment.total - 2 * payment.part]
        for name, part in enumerate(parts):
            refunded(payment, payment.refund_request(part, str(name)))
            payment.expect_refunds(*parts[: name + 1])
        _expect_listed(payment, *parts)
        ids = sorted(one.refund_id for one in payment.query().refunds or () if one.refund_id)
        sent = [f"{payment.request.reference}-{name}" for name, _ in enumerate(parts)]
        assert ids in ([], sent), f"the refunds have the ids {sent}, and the answer lists {ids}"

    def test_more_than_was_paid(self, gateway: GatewayDriver) -> None:
        """More than was paid is never refunded: not of an open payment, and not in one refund or in
        several.
        """
        unpaid = start(gateway)
        _fails(unpaid, unpaid.refund_request(unpaid.part))
        payment = paid(gateway)
        _fails(payment, payment.refund_request(payment.total + payment.part))
        refunded(payment, payment.refund_request(payment.part, "2"))
        _fails(payment, payment.refund_request(payment.total, "3"), payment.part)

    def test_refund_that_fails(self, gateway: GatewayDriver) -> None:
        """A refund that the gateway refuses or cannot make is failed, nothing is refunded, and a
        new one succeeds.
        """
        payment = paid(gateway)
        gateway.fail_refund()
        _fails(payment, payment.refund_request(payment.part))
        refunded(payment, payment.refund_request(payment.part, "2"))
        payment.expect_refunds(payment.part)

    def test_pending_refund_succeeds(self, gateway: GatewayDriver) -> None:
        """A pending refund is called pending until the gateway finishes it; a query of the refund
        then says that it succeeded.
        """
        payment = _ends_pending_refund(gateway, RefundOutcome.SUCCEEDED)
        payment.expect_refunds(payment.part)

    def test_pending_refund_fails(self, gateway: GatewayDriver) -> None:
        """A pending refund that the gateway cannot finish is failed, never succeeded."""
        _ends_pending_refund(gateway, RefundOutcome.FAILED).expect_refunds()

    def test_lost_refund(self, gateway: GatewayDriver) -> None:
        """After a refund without an answer the outcome is unknown; a query of the refund finds it,
        where the gateway has one.
        """
        payment, request = _lost(gateway)
        found = hooks.query_refund(payment.account, request)
        assert found is None or found.outcome is RefundOutcome.SUCCEEDED, (
            f"the refund succeeded, and the query says {found}"
        )
        payment.expect_refunds(payment.part)

    def test_slow_refund(self, gateway: GatewayDriver) -> None:
        """A refund that the gateway answers too late ends in the account's time, and its outcome is
        unknown.
        """
        payment = paid(gateway)
        hasty = payment.account.model_copy(update={"deadline_seconds": PATIENCE_SECONDS})
        gateway.answer_slowly("refund", SLOW_SECONDS)
        with in_time("refund"), pytest.raises(OutcomeUnknown):
            hooks.refund(hasty, payment.refund_request(payment.part))
        payment.expect_refunds(payment.part)

    def test_lost_refund_that_was_not_done(self, gateway: GatewayDriver) -> None:
        """Of two refunds of one amount the first is done, and the second lost on its way: its
        outcome is unknown, and a query of it does not find the first.
        """
        payment = paid(gateway)
        done, lost = (payment.refund_request(payment.part, name) for name in "12")
        refunded(payment, done)
        gateway.fault("lost_request", "refund")
        with pytest.raises(OutcomeUnknown):
            hooks.refund(payment.account, lost)
        with suppress(GatewayError):
            found = hooks.query_refund(payment.account, lost)
            assert found is None or found.outcome is RefundOutcome.FAILED, (
                f"the refund never arrived, and the query says {found}"
            )
        payment.expect_refunds(payment.part)

    def test_refund_without_a_number(self, gateway: GatewayDriver) -> None:
        """A refund without a transaction number refunds this payment by its reference, or certainly
        nothing.
        """
        payment, other = paid(gateway), paid(gateway)
        request = payment.refund_request(payment.part).model_copy(update={"transaction_no": None})
        try:
            hooks.refund(payment.account, request)
        except _NOTHING_DONE:
            payment.expect_refunds()
        else:
            payment.expect_refunds(payment.part)
        other.expect_refunds()

    def test_refund_in_another_currency(self, gateway: GatewayDriver) -> None:
        """A refund in another currency than that of the payment refunds nothing."""
        payment = paid(gateway)
        own = payment.request.currency
        known = (*payment.account.taken_currencies, "EUR", "USD", "JPY", "KRW", "KWD", "BHD")
        decimals = decimals_of(own)
        currency = next(one for one in known if one != own and decimals_of(one) == decimals)
        request = payment.refund_request(payment.part).model_copy(update={"currency": currency})
        try:
            outcome = hooks.refund(payment.account, request).outcome
        except _NOTHING_DONE:
            outcome = RefundOutcome.FAILED
        payment.expect_refunds()
        assert outcome is RefundOutcome.FAILED, (
            f"nothing was refunded, and the answer says {outcome}"
        )

    def test_same_refund_id(self, gateway: GatewayDriver) -> None:
        """A refund that is sent again under its id, after its answer was lost, refunds nothing
        more.
        """
        payment, request = _lost(gateway)
        with suppress(Refused):
            hooks.refund(payment.account, request)
        payment.expect_refunds(payment.part)

    def test_refund_in_the_portal(self, gateway: GatewayDriver) -> None:
        """A refund that staff made in the portal leaves the payment paid, is listed where the
        gateway lists any, and counts.
        """
        payment = paid(gateway)
        gateway.refund_in_portal(payment.request.reference, payment.part)
        payment.expect_refunds(payment.part)
        expect_paid(payment)
        _expect_listed(payment, payment.part)
        _fails(payment, payment.refund_request(payment.total), payment.part)


def _fails(payment: Payment, request: RefundRequest, *already: Decimal) -> None:
    """Refund in vain: the plugin raises `Refused` or says that the refund failed, and the gateway
    holds no more refunds than already.
    """
    try:
        done = hooks.refund(payment.account, request)
        outcome = settled(payment, request, done, RefundOutcome.FAILED)
    except Refused:
        outcome = RefundOutcome.FAILED
    payment.expect_refunds(*already)
    assert outcome is RefundOutcome.FAILED, (
        f"the gateway refunded nothing, and the answer says {outcome}"
    )


def _lost(gateway: GatewayDriver) -> tuple[Payment, RefundRequest]:
    """Refund a part and lose the answer."""
    payment = paid(gateway)
    request = payment.refund_request(payment.part)
    gateway.lose_answer("refund")
    with pytest.raises(OutcomeUnknown):
        hooks.refund(payment.account, request)
    payment.expect_refunds(payment.part)
    return payment, request


def _ends_pending_refund(gateway: GatewayDriver, outcome: RefundOutcome) -> Payment:
    payment = paid(gateway)
    request = payment.refund_request(payment.part)
    gateway.hold_refund()
    said = hooks.refund(payment.account, request)
    assert said.outcome is RefundOutcome.PENDING, (
        f"the gateway has not finished the refund, and the answer says {said.outcome}"
    )
    for expected in (RefundOutcome.PENDING, outcome):
        if expected is not RefundOutcome.PENDING:
            gateway.finish_refund(payment.request.reference, outcome)
        found = hooks.query_refund(payment.account, request, said.refund_no)
        assert found or expected is RefundOutcome.PENDING, (
            "the plugin cannot query the refund, so a pending one never ends"
        )
        assert found is None or found.outcome is expected, (
            f"the refund is {expected}, and the query says {found.outcome}"
        )
        listed = [one.outcome for one in payment.query().refunds or ()]
        assert set(listed) <= {expected}, (
            f"the refund is {expected}, and the payment's answer lists {listed}"
        )
    return payment


def _expect_listed(payment: Payment, *amounts: Decimal) -> None:
    """Fail unless the payment's answer lists exactly these refunds, where it lists any."""
    listed = payment.query().refunds
    assert listed is None or sorted(one.amount for one in listed) == sorted(amounts), (
        f"of refunds {amounts} the answer lists {listed}"
    )
