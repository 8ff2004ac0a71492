"""Money that does not fit: paid twice, too late, too little, in another currency, or with an
unknown status word.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from typing import Final

from django.db import connection, connections, transaction

from tillgate import InvalidRequest, hooks
from tillgate.django.models import Payment
from tillgate.django.refunds import queueing
from tillgate.testing.conformance.judging import (
    asked_for,
    at_gateway,
    at_payment_page,
    expect_no_payment_page,
    expect_paid_once,
    expect_right_books,
    expect_unpaid,
    needs_review,
    paid_at_gateway,
    pay,
)
from tillgate.testing.gateway_driver import Fault
from tillgate.testing.world import WRITES, World

_NO_NEWS: Final[tuple[Fault, ...]] = (
    "server_error",
    "lost_response",
    "broken_json",
    "html_body",
    "rate_limited",
    "system_error",
    "unknown_code",
)
_LOCK_SECONDS: Final = 0.2
"""How long staff may wait for a lock before the handler goes on."""


class Money:
    """Scenarios in which the order or the gateway's answer is not as it should be."""

    def test_paid_twice(self, world: World) -> None:
        """Of two paid payments of one order, one pays the order; the other opens a review, and one
        step refunds it.
        """
        order = world.order()
        first, second = world.pay_page(order), world.pay_page(order, world.gateway.other_method)
        for payment in (first, second):
            world.shopper_pays(payment)
            world.gateway_notification(payment)
        expect_paid_once(world, order)
        needs_review(world, "second-payment")
        assert queueing.refund(second.pk, second.amount).status == "succeeded"
        assert world.refunded_amount(second) == second.amount
        expect_paid_once(world, order)
        assert queueing.refund(first.pk, "2.50").status == "succeeded"
        expect_paid_once(world, order)
        needs_review(world)

    def test_paid_after_close(self, world: World) -> None:
        """Money for a closed order opens a review and does not open the order again; one step
        refunds it.
        """
        order, payment = at_payment_page(world)
        world.shop.close_order(order)
        world.shopper_pays(payment)
        world.gateway_notification(payment)
        assert world.fresh(payment).status == "paid"
        expect_unpaid(world, order)
        needs_review(world, "paid-not-payable")
        assert queueing.refund(payment.pk, payment.amount).status == "succeeded"
        assert world.refunded_amount(payment) == payment.amount
        expect_right_books(world, order)
        needs_review(world)

    def test_handler_refuses_a_closed_order(self, world: World) -> None:
        """The plugin's own handler says NOT_PAYABLE of an order that was closed in the same moment,
        and changes nothing.
        """
        order, payment = at_payment_page(world)
        world.shop.close_order(order)
        outcome = _tell_paid(payment)
        assert outcome == hooks.PaidOutcome.NOT_PAYABLE, (
            f"the handler said {outcome!r} of a closed order"
        )
        expect_unpaid(world, order)

    def test_handler_pays_an_order_once(self, world: World) -> None:
        """The plugin's own handler does not mark a paid order as paid again."""
        order = world.order()
        payment = pay(world, order)
        _tell_paid(payment)
        expect_paid_once(world, order)

    def test_order_became_dearer(self, world: World) -> None:
        """Money does not pay an order that has become dearer; a review opens."""
        order, payment = at_payment_page(world)
        world.shop.edit_total(order, Decimal("20.00"))
        # as if the order was edited just after Tillgate had read its price
        outcome = _tell_paid(payment)
        assert outcome in (hooks.PaidOutcome.UNDERPAID, hooks.PaidOutcome.NOT_PAYABLE), (
            f"the handler said {outcome!r} of a dearer order"
        )
        expect_unpaid(world, order)
        world.shopper_pays(payment)
        world.gateway_notification(payment)
        expect_unpaid(world, order)
        needs_review(world, "underpaid")
        assert world.fresh(payment).status == "paid"
        # else the database lets one transaction write at a time
        if connection.features.has_select_for_update:
            _edited_meanwhile(world)

    def test_order_became_cheaper(self, world: World) -> None:
        """Money pays an order that has become cheaper, and a review names the difference."""
        order, payment = at_payment_page(world)
        world.shop.edit_total(order, Decimal("10.00"))
        world.shopper_pays(payment)
        world.gateway_notification(payment)
        expect_paid_once(world, order)
        needs_review(world, "overpaid")

    def test_edited_order_is_paid_anew(self, world: World) -> None:
        """After an edit the payment page asks for the new total, and paying that pays the order."""
        order, old = at_payment_page(world)
        world.shop.edit_total(order, Decimal("20.00"))
        new = world.pay_page(order)
        assert new.pk != old.pk, "the old payment page was handed out for the new total"
        assert asked_for(world, new) == ("USD", Decimal("20.00"))
        world.shopper_pays(new)
        world.gateway_notification(new)
        expect_paid_once(world, order)

    def test_amount_mismatch(self, world: World) -> None:
        """An answer that says paid with another amount, or with none, pays nothing and opens a
        review; the right one pays.
        """
        _disagrees(world, "wrong_amount", "amount-mismatch")
        _disagrees(world, "missing_amount", "amount-missing")

    def test_currency_mismatch(self, world: World) -> None:
        """An answer that says paid in another currency, or in none, pays nothing and opens a
        review; the right one pays.
        """
        faults: tuple[Fault, ...] = ("wrong_currency", "missing_currency", "wrong_settle_currency")
        for fault in faults:
            _disagrees(world, fault, "currency-mismatch")

    def test_currency_without_decimals(self, world: World) -> None:
        """With an account that takes it, an order in won is paid and refunded to the won, and a
        part of a won is refused.
        """
        world.configure(world.gateway.account_settings("KRW"))
        order = world.shop.place_order_in("KRW", Decimal(12500))
        payment = world.pay_page(order, _method_for(world, "KRW", Decimal(12500)))
        currency, amount = asked_for(world, payment)
        assert (currency, str(amount)) == ("KRW", "12500"), (
            f"the gateway was asked for {amount} {currency}"
        )
        world.shopper_pays(payment)
        world.gateway_notification(payment)
        expect_paid_once(world, order)
        assert queueing.refund(payment.pk, "5000").status == "succeeded"
        assert world.shop.refunded(order) == Decimal(5000), (
            f"5,000 won were refunded, and the shop says {world.shop.refunded(order)}"
        )
        try:
            queueing.refund(payment.pk, "0.5")
        except InvalidRequest:
            return
        raise AssertionError("half a won was refunded")

    def test_answer_about_another_payment(self, world: World) -> None:
        """An answer about another transaction or reference pays nothing and opens a review; the
        right one pays.
        """
        _disagrees(world, "wrong_transaction_no", "transaction-no-mismatch")
        _disagrees(world, "other_reference")

    def test_unrecognised_status(self, world: World) -> None:
        """An unknown status does not pay or release the order; past expiry a review opens, and late
        money still counts.
        """
        order, payment = at_payment_page(world)
        world.gateway.use_strange_words()
        world.gateway_notification(payment)
        world.a_day_passes()
        expect_unpaid(world, order)
        assert not world.shop.is_released(order), (
            "the order was released because of an unknown status word"
        )
        needs_review(world, "unrecognised-status")
        world.pays_late(payment)
        world.gateway_notification(payment)
        expect_paid_once(world, order)

    def test_changed_after_paid(self, world: World) -> None:
        """A payment that the gateway takes back later stays paid in the shop, and a review
        opens.
        """
        order = world.order()
        payment = pay(world, order)
        world.gateway.reverse(payment.reference)
        world.gateway_notification(payment)
        world.a_day_passes()
        expect_paid_once(world, order)
        assert world.fresh(payment).status == "paid"
        needs_review(world, "changed-after-paid")

    def test_wrong_credentials(self, world: World) -> None:
        """A wrong token closes no order and opens one review; with the right token the money is
        found.
        """
        paid, waiting = world.order(), world.order()
        payment = world.pay_page(paid)
        world.pay_page(waiting)
        world.shopper_pays(payment)
        world.configure({"TOKEN": "f" * 33})
        world.gateway_notification(payment)
        world.a_day_passes()
        for order in (paid, waiting):
            expect_unpaid(world, order)
            assert not world.shop.is_released(order), (
                "the order was released because of a wrong token"
            )
        assert "wrong-credentials" in world.reviews()
        world.configure()
        world.time.advance(minutes=20)
        world.run_worker()
        expect_paid_once(world, paid)

    def test_order_not_found_at_the_gateway(self, world: World) -> None:
        """A gateway that denies its own payment, as under a wrong merchantNo, closes no order; a
        review opens.
        """
        order, payment = paid_at_gateway(world)
        world.gateway.fault("denied", "query", times=10_000)
        world.gateway_notification(payment)
        world.a_day_passes()
        expect_unpaid(world, order)
        assert not world.shop.is_released(order), (
            "the order was released because the gateway denied it"
        )
        needs_review(world, "payment-unknown")
        world.gateway.clear_faults()
        world.time.advance(hours=2)
        world.run_worker()
        expect_paid_once(world, order)

    def test_gateway_brings_no_news(self, world: World) -> None:
        """Errors, missing answers and nonsense are inconclusive: the order stays as it is until
        there is an answer.
        """
        order, payment = paid_at_gateway(world)
        for fault in _NO_NEWS:
            asked = world.queries()
            world.gateway.fault(fault, "query")
            assert world.come_back(payment).status_code == 200
            expect_unpaid(world, order)
            assert world.queries() == asked + 1
        world.come_back(payment)
        expect_paid_once(world, order)

    def test_unknown_outcome_of_pay(self, world: World) -> None:
        """After a creation without an answer, the shopper may try again immediately, and money for
        the lost payment is found.
        """
        order = world.order()
        world.gateway.lose_answer("pay")
        expect_no_payment_page(world, order)
        (lost,) = at_gateway(world, order)
        world.pay_page(order, world.gateway.other_method)
        world.shopper_pays(lost)
        world.time.advance(minutes=1)
        world.run_worker()
        expect_paid_once(world, order)

    def test_refused_creation(self, world: World) -> None:
        """A creation that the gateway refuses leads to a page, the order stays payable, and the
        next try pays it.
        """
        order = world.order()
        world.gateway.fault("refused", "pay")
        expect_no_payment_page(world, order)
        assert world.shop.is_payable(order)
        pay(world, order)
        expect_paid_once(world, order)


def _method_for(world: World, currency: str, amount: Decimal) -> str:
    """Return a payment method of the gateway that takes an amount of a currency."""
    account = world.gateway.account(currency)
    assert account is not None
    return next(
        method.code
        for method in hooks.payment_methods(account)
        if method.fault(amount, currency) is None
    )


def _tell_paid(payment: Payment) -> object:
    """Deliver "paid" to the plugin without the checks that Tillgate makes before."""
    from tillgate.django.orders.values import payment_value

    with transaction.atomic():
        return hooks.call_owner(
            payment.order.plugin,
            "tillgate_payment_paid",
            payment=payment_value(payment),
        )


def _edited_meanwhile(world: World) -> None:
    """Let staff raise a price just before the plugin's handler writes. A lock makes them wait;
    without one the handler must look again.
    """
    order, payment = paid_at_gateway(world)
    was_first: list[bool] = []

    def edit() -> None:
        try:
            world.shop.edit_total(order, Decimal("20.00"))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as staff:

        def meanwhile(_: str) -> None:
            editing = staff.submit(edit)
            with suppress(TimeoutError):
                was_first.append(editing.exception(_LOCK_SECONDS) is None)

        with world.interrupted_handler("tillgate_payment_paid", meanwhile, at=WRITES):
            world.gateway_notification(payment)
    if was_first == [True]:
        assert world.shop.times_paid(order) == 0, (
            "staff raised the price between the handler's reading and its writing, and the old "
            "price paid the order: "
            "lock the order's row, or check it in the statement that changes it"
        )
    else:
        assert world.shop.times_paid(order) == 1, (
            "the money came before staff raised the price, and the order is unpaid"
        )


def _disagrees(world: World, fault: Fault, reason: str = "") -> None:
    """Let one answer of the gateway disagree with the payment, and the next be right."""
    order, payment = paid_at_gateway(world)
    before = world.reviews()
    world.gateway.fault(fault, "query")
    world.gateway_notification(payment)
    expect_unpaid(world, order)
    if reason:
        needs_review(world, *before, reason)
    world.gateway_notification(payment)
    expect_paid_once(world, order)
