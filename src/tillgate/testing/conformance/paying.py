"""Paying: the acts of the shopper, and Tillgate's three ways to find the money."""

from __future__ import annotations

from decimal import Decimal
from unittest import mock
from urllib.parse import SplitResult, urlsplit

from django.db import connections
from django.test import Client
from django.urls import reverse

from tillgate import hooks
from tillgate.django.models import Payment
from tillgate.django.orders import registering
from tillgate.testing.conformance.judging import (
    asked_for,
    at_gateway,
    at_payment_page,
    expect_landing,
    expect_no_payment_page,
    expect_paid_once,
    expect_released,
    expect_still_waiting,
    expect_unpaid,
    needs_review,
    paid_at_gateway,
    pay,
    token_on,
)
from tillgate.testing.world import World, together


class Paying:
    """Scenarios of a shopper who pays, leaves, comes back or does not."""

    def test_pay_and_return(self, world: World) -> None:
        """A shopper that pays and comes back lands in the shop with a paid order, even if no
        notification arrived.
        """
        order = world.order()
        browser = Client(enforce_csrf_checks=True)
        page = world.see_pay_page(order, browser)
        assert page.status_code == 200, f"the page to pay on answers HTTP {page.status_code}"
        payment = world.pay_page(order, client=browser, **token_on(page, browser))
        back = _way_back(world, payment)
        answer = browser.get(f"{back.path}?{back.query}")
        expect_paid_once(world, order)
        expect_landing(browser, answer)

    def test_notification_only(self, world: World) -> None:
        """The gateway's notification alone pays the order: the shopper never comes back."""
        earlier, order, later = (
            world.order(),
            world.shop.place_order(Decimal("12.50")),
            world.order(),
        )
        # the shop's page is read only now: it must not lead to the order that was placed last
        payment = world.pay_page(order)
        world.shopper_pays(payment)
        assert [answer.content for answer in world.gateway_notification(payment)] == [
            world.acknowledgement,
        ]
        expect_paid_once(world, order)
        for other in (earlier, later):
            expect_still_waiting(world, other)

    def test_return_in_another_browser(self, world: World) -> None:
        """A wallet brings the shopper back by POST in a browser that the shop has never seen, and
        the order is paid.
        """
        order, payment = at_payment_page(world)
        back = _way_back(world, payment)
        stranger = Client(enforce_csrf_checks=True)
        answer = stranger.post(f"{back.path}?{back.query}")
        expect_landing(stranger, answer)
        expect_paid_once(world, order)

    def test_neither_notification_nor_return(self, world: World) -> None:
        """A worker run finds the money if the shopper closed the tab after paying and the
        notification was lost.
        """
        order = world.order()
        world.shopper_pays(world.pay_page(order))
        world.time.advance(seconds=10)
        assert world.run_worker().faults == []
        expect_paid_once(world, order)

    def test_found_paid_when_paying_again(self, world: World) -> None:
        """A second attempt to pay a paid order charges nothing, even if the notification was
        lost.
        """
        order = world.order()
        world.shopper_pays(world.pay_page(order))
        expect_no_payment_page(world, order, world.gateway.other_method)
        expect_paid_once(world, order)
        assert len(at_gateway(world, order)) == 1

    def test_decline(self, world: World) -> None:
        """A declined payment leaves the order unpaid and payable, and with another payment method
        it is paid.
        """
        order, declined = at_payment_page(world)
        world.gateway.decline(declined.reference)
        world.gateway_notification(declined)
        expect_unpaid(world, order)
        assert world.shop.is_payable(order), "the shopper cannot try again"
        pay(world, order, world.gateway.other_method)
        expect_paid_once(world, order)

    def test_leave_and_pay_again(self, world: World) -> None:
        """After leaving the payment page, the shopper pays with another payment method, under a new
        reference.
        """
        order, left = at_payment_page(world)
        world.gateway.leave(left.reference)
        world.come_back(left)
        expect_unpaid(world, order)
        payment = world.pay_page(order, world.gateway.other_method)
        assert payment.reference != left.reference
        world.shopper_pays(payment)
        world.gateway_notification(payment)
        expect_paid_once(world, order)
        world.a_day_passes()
        expect_paid_once(world, order)
        assert world.reviews() == []

    def test_expiry(self, world: World) -> None:
        """An unpaid order is released, once, after the payment page has closed and the time to try
        again has passed.
        """
        order, abandoned = world.order(), world.order()
        world.pay_page(order)
        world.time.advance(minutes=50)
        world.run_worker()
        assert world.shop.is_payable(order)
        assert not world.shop.is_released(order), (
            "the order was released while the payment page was open"
        )
        other = world.order()
        world.pay_page(other)
        # the first order's payment page has closed, then the time to try again has passed
        for minutes in (
            85,
            65,
        ):
            world.time.advance(minutes=minutes)
            world.run_worker()
        expect_released(world, order)
        expect_still_waiting(world, other)
        world.a_day_passes()
        for unpaid in (order, other):
            expect_released(world, unpaid)
            expect_unpaid(world, unpaid)
        if world.shop.waits_once_placed:
            assert world.shop.is_released(abandoned), (
                "the shop never released an order that nobody began to pay: its own code must "
                "register each order that it places with "
                "open_order, under the order's key"
            )
        assert world.reviews() == []

    def test_kept_while_another_payment_is_open(self, world: World) -> None:
        """An order is not released while another payment of it is open, and money from that payment
        pays it.
        """
        order, declined = at_payment_page(world)
        world.time.advance(minutes=30)
        open_ = world.pay_page(order, world.gateway.other_method)
        world.gateway.decline(declined.reference)
        world.gateway_notification(declined)
        world.time.advance(minutes=65)
        world.run_worker()
        assert not world.shop.is_released(order), (
            "the order was released while a payment of it was open"
        )
        world.shopper_pays(open_)
        world.gateway_notification(open_)
        expect_paid_once(world, order)

    def test_double_click(self, world: World) -> None:
        """A second press of the same button leads to the same payment page: one payment, not
        two.
        """
        order = world.order()
        assert world.pay_page(order).pk == world.pay_page(order).pk
        assert len(at_gateway(world, order)) == 1

    def test_double_click_at_once(self, world: World) -> None:
        """Two presses at the same moment lead to the same payment page."""
        order = world.order()
        first, second = together(*[lambda: world.pay_page(order, client=Client()).pk] * 2)
        assert first == second
        assert len(at_gateway(world, order)) == 1

    def test_nothing_starts_on_a_paid_order(self, world: World) -> None:
        """A paid order never leads to the payment page."""
        order = world.order()
        pay(world, order)
        for method in (world.gateway.method, world.gateway.other_method):
            expect_no_payment_page(world, order, method)
        assert len(at_gateway(world, order)) == 1

    def test_nothing_starts_on_a_closed_order(self, world: World) -> None:
        """An order that the staff closed never leads to the payment page."""
        order = world.order()
        world.shop.close_order(order)
        expect_no_payment_page(world, order)
        assert at_gateway(world, order) == []
        world.a_day_passes()
        # `tillgate_order_unpaid` is called for a closed order too, and must not raise
        needs_review(world)

    def test_order_that_costs_nothing(self, world: World) -> None:
        """An order that costs nothing, from the start or after an edit, never leads to the payment
        page and is never released.
        """
        free, edited = world.shop.place_free_order(), world.order()
        assert world.shop.is_paid(free), (
            "the order costs nothing, and the shop waits for money: let it be paid where it is "
            "placed"
        )
        world.shop.edit_total(edited, Decimal("0.00"))
        for order in (free, edited):
            expect_no_payment_page(world, order)
            assert at_gateway(world, order) == []
        world.a_day_passes()
        for order in (free, edited):
            assert not world.shop.is_released(order), (
                "there was nothing to pay, and the shop released the order"
            )
            assert not world.shop.paid_amount(order), "money was booked, and none came"
        needs_review(world)

    def test_order_in_another_currency(self, world: World) -> None:
        """An order in another currency never leads to the payment page, which would take its total
        in the account's currency.
        """
        order = world.shop.place_order_in("EUR", Decimal("12.50"))
        for method in (world.gateway.method, world.gateway.other_method):
            expect_no_payment_page(world, order, method)
        assert at_gateway(world, order) == []
        expect_unpaid(world, order)

    def test_method_that_is_not_offered(self, world: World) -> None:
        """A payment method that is unknown or not offered leads to a page instead of an error, and
        creates nothing.
        """
        order, other = world.order(), world.gateway.other_method
        world.configure(PAYMENT_METHODS=[other])
        for method in (world.gateway.method, "no-such-method", "", f"{other}' OR 1=1 --"):
            expect_no_payment_page(world, order, method)
        assert at_gateway(world, order) == []
        assert world.pay_page(order, other).method == other

    def test_amounts_are_exact(self, world: World) -> None:
        """Tillgate asks the gateway for exactly the price of the order, to the cent."""
        account = world.gateway.account("USD")
        assert account is not None
        method = next(
            one for one in hooks.payment_methods(account) if one.code == world.gateway.method
        )
        totals = [
            total
            for total in ("0.01", "0.29", "12.10", "99.99", "1234.56")
            if method.fault(Decimal(total), "USD") is None
        ]
        assert len(totals) > 2, "the payment method takes hardly any amount"
        for total in totals:
            order = world.order(total)
            payment = world.pay_page(order)
            currency, amount = asked_for(world, payment)
            assert (currency, amount) == ("USD", Decimal(total)), (
                f"the order costs USD {total}, and the gateway was asked for {currency} {amount}"
            )

    def test_atomic_requests(self, world: World) -> None:
        """A project that runs every request in a transaction can take money, and no transaction is
        open during a network call.
        """
        with mock.patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True):
            (notified, first), (returned, second) = paid_at_gateway(world), paid_at_gateway(world)
            world.gateway_notification(first)
            world.come_back(second)
        expect_paid_once(world, notified)
        expect_paid_once(world, returned)

    def test_other_payment_methods_are_undisturbed(self, world: World) -> None:
        """An order that is paid otherwise stays as the shop has it, and no request about it reaches
        the gateway.
        """
        order = world.shop.place_order_paid_otherwise(Decimal("12.50"))
        shop = world.shop
        before = (
            shop.is_paid(order),
            shop.times_paid(order),
            shop.is_released(order),
            shop.refunded(order),
        )
        assert before[0], "the driver says that the order is not paid"
        expect_no_payment_page(world, order)
        # the shopper began to pay with Tillgate, and then chose another way
        registering.open_order(world.shop.plugin, order)
        world.a_day_passes()
        after = (
            shop.is_paid(order),
            shop.times_paid(order),
            shop.is_released(order),
            shop.refunded(order),
        )
        assert after == before, (
            f"an order that was paid otherwise was {before} (paid, how often, released, refunded) "
            f"and is {after} now: the hooks, "
            "tillgate_order_unpaid first of all, must change open orders only"
        )
        received = [world.gateway.received(operation) for operation in ("pay", "query", "refund")]
        assert not any(received), (
            "the gateway received a request about an order that is paid otherwise"
        )

    def test_returning_with_an_address_that_nobody_has(self, world: World) -> None:
        """Unknown addresses are not found, and leave nothing behind."""
        order = world.order()
        world.pay_page(order)
        for name in ("payment-notification", "refund-notification", "return", "status"):
            assert world.client.get(
                reverse(f"tillgate:{name}", args=["no-such-key"]),
            ).status_code in (404, 405)
        expect_unpaid(world, order)
        assert world.queries() == 0
        assert world.run_worker().news["changed"] == 0


def _way_back(world: World, payment: Payment) -> SplitResult:
    """Pay, and return the address that the shopper is sent back to."""
    return urlsplit(
        world.shopper_pays(payment)
        or world.gateway.lacks("say where a shopper who has paid is sent to"),
    )
