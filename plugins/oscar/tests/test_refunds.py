"""Refunds through Oscar's event handler: nothing is written before the money has moved, and then
once.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.utils import timezone
from oscar.apps.order.exceptions import InvalidPaymentEvent, InvalidShippingEvent
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_class, get_model

from tests.shopper import Shopper
from tillgate import shop
from tillgate.django import actions
from tillgate.django.models import NOTHING, Refund, Review
from tillgate.django.orders.locking import OrderHeld
from tillgate.django.orders.values import refund_value
from tillgate.django.refunds import queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.shop import states
from tillgate.testing.world import World, together
from tillgate_oscar import refunds
from tillgate_oscar.refunds import changed, refund_event_type

Order = get_model("order", "Order")
PaymentEventType = get_model("order", "PaymentEventType")


class Bought:
    """An order of three teas and a pot that is paid."""

    def __init__(self, world: World, product: Callable[..., Any]) -> None:
        shopper = Shopper()
        shopper.adds(product("4.00", "Tea", stock=9), 3)
        shopper.adds(product("20.00", "Pot"))
        shopper.says_where()
        shopper.chooses()
        shopper.places()
        self.world = world
        self.payment = world.start(self.order.number)
        world.shopper_pays(self.payment)
        world.notification(self.payment)
        assert self.order.status == "Paid"

    @property
    def order(self) -> Any:
        return Order.objects.latest("pk")

    @property
    def tea(self) -> Any:
        return self.order.lines.get(title="Tea")

    @property
    def pot(self) -> Any:
        return self.order.lines.get(title="Pot")

    def ask(
        self,
        amount: Any,
        quantities: dict[Any, int] | None = None,
        user: User | None = None,
        **more: Any,
    ) -> Any:
        """Ask Oscar's event handler for a refund, as a shop's code does."""
        handler = get_class("order.processing", "EventHandler")(user)
        lines, wanted = list(quantities or ()), list((quantities or {}).values())
        return handler.handle_payment_event(
            self.order,
            refund_event_type(),
            amount,
            lines,
            wanted,
            **more,
        )

    def events(self) -> list[tuple[Decimal, dict[str, int]]]:
        """Return the refunds in Oscar's events: the money, and the quantity of each line."""
        written = self.order.payment_events.filter(event_type=refund_event_type()).order_by("pk")
        return [
            (event.amount, {one.line.title: one.quantity for one in event.line_quantities.all()})
            for event in written
        ]

    def notes(self) -> list[str]:
        return list(self.order.notes.order_by("pk").values_list("message", flat=True))

    def refunded_amount(self) -> Decimal:
        """Return the refunded amount, which is the same at the gateway and in the shop."""
        told = self.world.shop.refunded(self.order.number)
        assert told == self.world.refunded_amount(self.payment)
        return told


@pytest.fixture
def bought(world: World, product: Callable[..., Any]) -> Bought:
    return Bought(world, product)


def test_line_refund_is_written_once(bought: Bought) -> None:
    bought.ask(Decimal("8.00"), {bought.tea: 2})
    assert bought.refunded_amount() == Decimal("8.00")
    assert bought.events() == [(Decimal("8.00"), {"Tea": 2})]
    bought.world.a_day_passes()
    assert bought.events() == [(Decimal("8.00"), {"Tea": 2})]
    source = bought.order.sources.get()
    assert (source.amount_debited, source.amount_refunded) == (Decimal("32.00"), Decimal("8.00"))
    refund = Refund.objects.get()
    reference = f"{bought.payment.reference}/{refund.pk}"
    written = source.transactions.get(txn_type="Refund")
    assert (written.reference, written.status) == (reference, "refunded")
    assert bought.order.payment_events.get(event_type=refund_event_type()).reference == reference


def test_several_refunds_give_back_all_of_it(bought: Bought) -> None:
    bought.ask(Decimal("4.00"), {bought.tea: 1})
    bought.ask(Decimal("28.00"), {bought.tea: 2, bought.pot: 1})
    assert bought.refunded_amount() == Decimal("32.00")
    assert bought.events() == [
        (Decimal("4.00"), {"Tea": 1}),
        (Decimal("28.00"), {"Tea": 2, "Pot": 1}),
    ]


def test_what_is_told_twice_is_written_once(bought: Bought) -> None:
    with bought.world.failing_handler("tillgate_refund_changed", late=True) as failures:
        bought.ask(Decimal("4.00"), {bought.tea: 1})
        assert bought.events() == []
        bought.world.a_day_passes()
    assert len(failures) == 1
    assert bought.events() == [(Decimal("4.00"), {"Tea": 1})]
    with transaction.atomic():
        changed(refund_value(Refund.objects.select_related("payment__order").get()))
    assert bought.events() == [(Decimal("4.00"), {"Tea": 1})]
    assert bought.refunded_amount() == Decimal("4.00")


def test_refund_waits_for_host_commit(
    bought: Bought,
) -> None:
    """Nothing is sent or written before the host's transaction is committed."""
    with transaction.atomic():
        queued = bought.ask(Decimal("4.00"), {bought.tea: 1})
        assert (queued.status, bought.events(), bought.world.refunded_amount(bought.payment)) == (
            "queued",
            [],
            NOTHING,
        )
    assert bought.events() == [(Decimal("4.00"), {"Tea": 1})]


def test_host_rollback_requests_no_refund(bought: Bought) -> None:
    with transaction.atomic():
        bought.ask(Decimal("4.00"))
        transaction.set_rollback(True)
    bought.world.a_day_passes()
    assert bought.refunded_amount() == 0
    assert not Refund.objects.exists()


def test_i2_worker_sends_refund_after_crash(
    bought: Bought,
) -> None:
    with transaction.atomic():
        bought.ask(Decimal("4.00"), {bought.tea: 1})
        transaction.get_connection().run_on_commit.clear()  # the process died before it could send
    assert (bought.refunded_amount(), bought.events()) == (NOTHING, [])
    bought.world.a_day_passes()
    assert bought.refunded_amount() == Decimal("4.00")
    assert bought.events() == [(Decimal("4.00"), {"Tea": 1})]


def test_i6_unknown_refund_blocks_money_and_lines(
    bought: Bought,
) -> None:
    """Nothing is written while the outcome is unknown."""
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    refund = bought.ask(Decimal("8.00"), {bought.tea: 2})
    assert bought.events() == []
    assert bought.order.sources.get().amount_refunded == 0
    assert bought.world.reviews() == ["refund-unknown"]
    assert "It is not known whether USD 8.00 was refunded" in bought.notes()[-1]
    with pytest.raises(InvalidPaymentEvent, match="on its way"):
        bought.ask(Decimal("8.00"), {bought.tea: 2})
    with pytest.raises(PaymentError, match=r"USD 24\.01 is more than the USD 24\.00"):
        bought.ask(Decimal("24.01"))
    assert Refund.objects.count() == 1
    shop.settle_refund(refund.id, done=True, staff="ann")
    assert bought.refunded_amount() == Decimal("8.00")
    assert bought.events() == [(Decimal("8.00"), {"Tea": 2})]
    assert "USD 8.00 was refunded after all" in bought.notes()[-1]


@pytest.mark.parametrize(
    ("outcome", "events"),
    [("succeeded", [(Decimal("8.00"), {"Tea": 2})]), ("failed", [])],
)
def test_slow_refund_blocks_lines_until_done(
    bought: Bought,
    outcome: str,
    events: list[Any],
) -> None:
    """It is written when the service finishes it."""
    world = bought.world
    world.configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    world.sandbox.control.set_options({"refund_outcome": "pending", "refund_info": "status"})
    bought.ask(Decimal("8.00"), {bought.tea: 2})
    assert (bought.events(), bought.order.sources.get().amount_refunded, world.reviews()) == (
        [],
        0,
        [],
    )
    with pytest.raises(InvalidPaymentEvent, match="on its way"):
        bought.ask(Decimal("8.00"), {bought.tea: 2})
    world.sandbox.control.finish_refund(bought.payment.reference, outcome)
    world.a_day_passes()
    assert bought.events() == events
    assert bought.order.sources.get().amount_refunded == sum(amount for amount, _ in events)


def test_portal_refund_is_written_once(bought: Bought) -> None:
    world = bought.world
    world.configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    world.sandbox.control.refund(bought.payment.reference, "4.00")
    for _ in range(2):
        world.time.advance(days=8)
        world.run_worker()
    assert bought.events() == [(Decimal("4.00"), {})]
    assert bought.order.sources.get().amount_refunded == Decimal("4.00")


def test_refused_refund_is_noted_and_repeatable(bought: Bought) -> None:
    bought.world.sandbox.control.fault("refused", occasion="refund")
    bought.ask(Decimal("12.00"), {bought.tea: 3})
    assert bought.events() == []
    assert "USD 12.00 was not refunded" in bought.notes()[-1]
    bought.ask(Decimal("12.00"), {bought.tea: 3})
    assert bought.events() == [(Decimal("12.00"), {"Tea": 3})]
    assert bought.refunded_amount() == Decimal("12.00")


@pytest.mark.parametrize("amount", ["0.00", "-1.00", "0.001", "NaN", "Infinity", "1E+30", "32.01"])
def test_unrefundable_amount_is_payment_error(
    bought: Bought,
    amount: str,
) -> None:
    with pytest.raises(
        PaymentError,
        match=r"is not an amount of USD|is not above zero|is more than the USD 32\.00",
    ):
        bought.ask(Decimal(amount))
    assert not Refund.objects.exists()


def test_locked_order_refund_is_payment_error(
    bought: Bought,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process holds the order."""
    with monkeypatch.context() as patch:
        patch.setattr(
            states,
            "locked",
            Mock(side_effect=OrderHeld("another transaction holds the order")),
        )
        with pytest.raises(PaymentError, match="another transaction holds the order"):
            bought.ask(Decimal("4.00"))
    assert not Refund.objects.exists()


def test_line_refund_stops_at_bought_quantity(bought: Bought) -> None:
    with pytest.raises(InvalidPaymentEvent):
        bought.ask(Decimal("4.00"), {bought.tea: 4})
    bought.ask(Decimal("8.00"), {bought.tea: 2})
    with pytest.raises(InvalidPaymentEvent):
        bought.ask(Decimal("8.00"), {bought.tea: 2})
    bought.world.a_day_passes()
    assert bought.refunded_amount() == Decimal("8.00")


def test_lines_being_refunded_are_counted(
    bought: Bought,
) -> None:
    """A refused request for the same lines leaves nothing queued."""
    with transaction.atomic():
        bought.ask(Decimal("8.00"), {bought.tea: 2})
        with pytest.raises(InvalidPaymentEvent, match="on its way"):
            bought.ask(Decimal("8.00"), {bought.tea: 2})
        bought.ask(Decimal("4.00"), {bought.tea: 1})
    assert bought.events() == [(Decimal("8.00"), {"Tea": 2}), (Decimal("4.00"), {"Tea": 1})]
    assert bought.refunded_amount() == Decimal("12.00")


def test_line_shares_ignore_host_precision() -> None:
    """The shares of a line add up with any decimal precision of the host."""
    line = SimpleNamespace(line_price_incl_tax=Decimal("1234567.89"), quantity=7)
    with decimal.localcontext() as context:
        context.prec = 6
        shares = [refunds._share(line, quantity, Decimal("0.01")) for quantity in range(8)]
    assert [str(shares[quantity]) for quantity in (0, 1, 7)] == ["0.00", "176366.84", "1234567.89"]


def test_concurrent_line_refund_tells_one_person(bought: Bought) -> None:
    """Two clerks refund the same line simultaneously, and one of them gets a message."""
    pot = bought.pot
    done = together(*[lambda: bought.ask(Decimal("5.00"), {pot: 1}).status] * 2)
    assert sorted(isinstance(one, InvalidPaymentEvent) for one in done) == [False, True], done
    assert bought.refunded_amount() == Decimal("5.00")
    assert bought.events() == [(Decimal("5.00"), {"Pot": 1})]


def test_i5_concurrent_excess_sends_one_refund(bought: Bought) -> None:
    """Two simultaneous refunds are too much together."""
    done = together(*[lambda: bought.ask(Decimal("20.00")).status] * 2)
    assert sorted(isinstance(one, PaymentError) for one in done) == [False, True], done
    assert bought.refunded_amount() == Decimal("20.00")


def test_refunding_needs_permission(bought: Bought) -> None:
    ann = User.objects.create_user("ann", is_staff=True)
    with pytest.raises(PaymentError, match="permission"):
        bought.ask(Decimal("4.00"), user=ann)
    assert not Refund.objects.exists()
    ann.user_permissions.add(Permission.objects.get(codename="refund_payment"))
    refund = bought.ask(
        Decimal("4.00"),
        user=User.objects.get(pk=ann.pk),
        reason="a cup was broken",
    )
    assert (refund.requested_by, refund.reason) == ("ann", "a cup was broken")


def test_unpaid_order_is_not_refunded(world: World) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    with pytest.raises(PaymentError, match="nothing has been paid"):
        get_class("order.processing", "EventHandler")().handle_payment_event(
            order,
            refund_event_type(),
            Decimal("1.00"),
        )
    assert not order.payment_events.exists()


def test_external_payment_is_refunded_by_handler(world: World) -> None:
    """The shop's own handler refunds money that was not paid through Tillgate."""
    order = Order.objects.get(number=world.order("12.50"))
    cash = get_model("payment", "SourceType").objects.create(name="Cash")
    order.sources.create(source_type=cash, amount_debited=order.total_incl_tax)
    event = get_class("order.processing", "EventHandler")().handle_payment_event(
        order,
        refund_event_type(),
        Decimal("1.00"),
    )
    assert order.payment_events.get() == event
    assert not Refund.objects.exists()


def test_other_payment_events_go_to_handler(bought: Bought) -> None:
    goodwill = PaymentEventType.objects.create(name="Goodwill")
    handler = get_class("order.processing", "EventHandler")()
    event = handler.handle_payment_event(bought.order, goodwill, Decimal("1.00"), [bought.tea], [1])
    assert event.line_quantities.get().quantity == 1
    assert not Refund.objects.exists()


def test_i4_double_payment_is_refunded_by_review(
    world: World,
) -> None:
    """The payment that paid the order is refunded first; its double waits for a person."""
    number = world.order("12.50")
    first, second = world.start(number), world.start(number, "paypal")
    for payment in (second, first):
        world.shopper_pays(payment)
        world.notification(payment)
    order = Order.objects.get(number=number)
    handler = get_class("order.processing", "EventHandler")()
    handler.handle_payment_event(order, refund_event_type(), Decimal("12.50"))
    assert (world.refunded_amount(second), world.refunded_amount(first)) == (
        Decimal("12.50"),
        NOTHING,
    )
    actions.take_action(Review.objects.get().pk, "refund", staff="ann", amount="12.50")
    assert world.refunded_amount(first) == Decimal("12.50")
    assert world.shop.refunded(number) == Decimal("12.50"), (
        "Oscar's records never held the second payment"
    )
    assert "that did not pay this order was refunded" in order.notes.latest("pk").message


def test_late_money_is_refunded_by_review(
    world: World,
) -> None:
    """The money came for a cancelled order and waits for a person."""
    number = world.order("12.50")
    payment = world.start(number)
    world.shop.close_order(number)
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.reviews() == ["paid-not-payable"]
    order = Order.objects.get(number=number)
    with pytest.raises(PaymentError, match="needs review"):
        get_class("order.processing", "EventHandler")().handle_payment_event(
            order,
            refund_event_type(),
            Decimal("12.50"),
        )
    assert not order.payment_events.exists()


def test_dismissed_money_is_refunded_in_admin(
    world: World,
) -> None:
    """The error says that the money can be refunded on the payment's own page."""
    number = world.order("12.50")
    payment = world.start(number)
    world.shop.close_order(number)
    world.shopper_pays(payment)
    world.notification(payment)
    actions.take_action(
        Review.objects.get().pk,
        "dismiss",
        staff="ann",
        note="the shopper comes for it",
    )
    with pytest.raises(PaymentError, match="it can be refunded on its own page in the admin"):
        get_class("order.processing", "EventHandler")().handle_payment_event(
            Order.objects.get(number=number),
            refund_event_type(),
            Decimal("12.50"),
        )


def test_external_payment_refundable_after_late_refund(
    world: World,
) -> None:
    """The shop's handler refunds it even though we already returned late money of ours."""
    number = world.order("12.50")
    payment = world.start(number)
    order = Order.objects.get(number=number)
    bank = get_model("payment", "SourceType").objects.create(name="Bank transfer")
    order.sources.create(source_type=bank, amount_debited=order.total_incl_tax)
    handler = get_class("order.processing", "EventHandler")()
    handler.handle_order_status_change(order, "Paid")
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.reviews() == ["paid-not-payable"]
    queueing.refund(payment.pk, "2.50")
    with pytest.raises(PaymentError, match="needs review"):
        handler.handle_payment_event(order, refund_event_type(), Decimal("5.00"))
    queueing.refund(payment.pk, "10.00")
    event = handler.handle_payment_event(order, refund_event_type(), Decimal("5.00"))
    assert (order.payment_events.get(), event.amount) == (event, Decimal("5.00"))


def test_returned_late_money_leaves_order_unpaid(
    world: World,
) -> None:
    """Its only payment did not pay it and was refunded."""
    number = world.order("12.50")
    payment = world.start(number)
    world.shop.close_order(number)
    world.shopper_pays(payment)
    world.notification(payment)
    queueing.refund(payment.pk, "12.50")
    order = Order.objects.get(number=number)
    with pytest.raises(PaymentError, match="nothing has been paid"):
        get_class("order.processing", "EventHandler")().handle_payment_event(
            order,
            refund_event_type(),
            Decimal("12.50"),
        )


def test_handler_never_repeats_full_refund(
    bought: Bought,
) -> None:
    bought.ask(Decimal("32.00"))
    with pytest.raises(PaymentError):
        bought.ask(Decimal("1.00"))
    assert bought.events() == [(Decimal("32.00"), {})]


def test_external_refund_is_written(bought: Bought) -> None:
    bought.world.sandbox.control.refund(bought.payment.reference, "2.50")
    record_external_refund(bought.payment.pk, "2.50", staff="ann")
    assert bought.refunded_amount() == Decimal("2.50")
    assert bought.events() == [(Decimal("2.50"), {})]


def test_deleted_line_never_blocks_refund_record(
    bought: Bought,
) -> None:
    with transaction.atomic():
        bought.ask(Decimal("24.00"), {bought.tea: 1, bought.pot: 1})
        bought.pot.delete()
    assert bought.events() == [(Decimal("24.00"), {"Tea": 1})]


def test_deleted_order_refund_still_goes_out(bought: Bought) -> None:
    bought.order.delete()
    assert queueing.refund(bought.payment.pk, "1.00").status == "succeeded"
    bought.world.a_day_passes()
    assert bought.world.reviews() == []


def test_deleted_event_type_is_recreated(bought: Bought) -> None:
    PaymentEventType.objects.filter(name="Refund").delete()
    queueing.refund(bought.payment.pk, "1.00")
    assert bought.events() == [(Decimal("1.00"), {})]


def ships(bought: Bought) -> None:
    kind, _ = get_model("order", "ShippingEventType").objects.get_or_create(name="Shipped")
    get_class("order.processing", "EventHandler")().handle_shipping_event(
        bought.order,
        kind,
        [bought.pot],
        [1],
    )


def test_refunded_order_takes_shop_status(
    bought: Bought,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This needs a pipeline that leads from the current status to the refunded one."""
    settings.TILLGATE_OSCAR = {
        "REFUNDED_STATUS": "Refunded",
        "PARTLY_REFUNDED_STATUS": "Partly refunded",
    }
    for status, after in (
        ("Paid", ("Partly refunded",)),
        ("Partly refunded", ("Refunded",)),
        ("Refunded", ()),
    ):
        monkeypatch.setitem(Order.pipeline, status, after)
    bought.ask(Decimal("8.00"))
    assert bought.order.status == "Partly refunded"
    bought.ask(Decimal("24.00"))
    assert bought.order.status == "Refunded"
    assert (bought.world.reviews(), bought.refunded_amount()) == ([], Decimal("32.00"))


def test_refunded_order_keeps_status_outside_pipeline(
    bought: Bought,
    settings: Any,
) -> None:
    settings.TILLGATE_OSCAR = {"REFUNDED_STATUS": "Refunded"}
    bought.ask(Decimal("32.00"))
    assert (bought.order.status, bought.world.reviews()) == ("Paid", [])


def test_refunded_order_never_ships(
    bought: Bought,
) -> None:
    """This holds even if a part was shipped before."""
    ships(bought)
    bought.ask(Decimal("32.00"))
    with pytest.raises(InvalidShippingEvent, match="do not ship it, cancel it"):
        ships(bought)
    bought.order.shipping_events.all().delete()
    with pytest.raises(InvalidShippingEvent, match="do not ship it, cancel it"):
        ships(bought)


def moves(bought: Bought, status: str) -> str:
    get_class("order.processing", "EventHandler")().handle_order_status_change(bought.order, status)
    return str(bought.order.status)


def test_refunded_order_refuses_other_statuses(
    bought: Bought,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only cancelled and the statuses for refunded orders are allowed."""
    settings.TILLGATE_OSCAR = {"REFUNDED_STATUS": "Refunded"}
    bought.ask(Decimal("32.00"))
    assert bought.order.status == "Paid"
    with pytest.raises(
        PaymentError,
        match=f"order {bought.order.number} was refunded: do not ship it, cancel it",
    ):
        moves(bought, "Shipped")
    assert bought.order.status == "Paid"
    monkeypatch.setitem(Order.pipeline, "Paid", ("Refunded", "Shipped", "Cancelled"))
    monkeypatch.setitem(Order.pipeline, "Refunded", ("Shipped", "Cancelled"))
    assert moves(bought, "Refunded") == "Refunded"
    with pytest.raises(PaymentError, match="do not ship it"):
        moves(bought, "Shipped")
    assert moves(bought, "Cancelled") == "Cancelled"


def test_disputed_order_is_not_shipped(bought: Bought) -> None:
    """The goods of a disputed order stay in the shop."""
    ours = shop.order_state("oscar", bought.order.number)
    assert ours is not None
    assert ours.paid_by is not None
    shop.open_review(ours.paid_by.id, "The bank asks it back.", actor="test")
    Review.objects.update(reason="disputed")
    said = "is in doubt \\(Disputed by the shopper's bank\\): do not ship it"
    with pytest.raises(InvalidShippingEvent, match=said):
        ships(bought)
    with pytest.raises(PaymentError, match=said):
        moves(bought, "Shipped")
    Review.objects.update(resolved_at=timezone.now(), status="resolved")
    ships(bought)
    assert moves(bought, "Shipped") == "Shipped"


@pytest.mark.parametrize(("amount", "ships_on"), [("32.00", False), ("31.99", True)])
def test_only_full_refund_delays_shipping(
    bought: Bought,
    amount: str,
    ships_on: bool,
) -> None:
    """An order waits for the result of a refund only if it returns all the money."""
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask(Decimal(amount))
    if ships_on:
        ships(bought)
        assert moves(bought, "Shipped") == "Shipped"
        return
    with pytest.raises(InvalidShippingEvent, match="wait for the result"):
        ships(bought)
    with pytest.raises(PaymentError, match="wait for the result"):
        moves(bought, "Shipped")
    shop.settle_refund(str(Refund.objects.get().pk), done=False, staff="ann")
    assert moves(bought, "Shipped") == "Shipped"


def test_a_partly_refunded_order_is_shipped(bought: Bought) -> None:
    bought.ask(Decimal("31.99"))
    ships(bought)
    assert moves(bought, "Shipped") == "Shipped"


def test_refunded_total_includes_pending_and_external(bought: Bought) -> None:
    """The total counts other payment sources and refunds under way."""

    def refunded() -> Any:
        return refunds.refunded_of(bought.order, shop.order_state("oscar", bought.order.number))

    assert refunded() is None
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask(Decimal("2.00"))
    assert refunded() is refunds.Refunded.UNDER_WAY
    shop.settle_refund(str(Refund.objects.get().pk), done=True, staff="ann")
    assert refunded() is refunds.Refunded.PARTLY
    bought.ask(Decimal("30.00"))
    assert refunded() is refunds.Refunded.ENTIRELY
    kind = get_model("payment", "SourceType").objects.create(name="Gift card")
    bought.order.sources.create(source_type=kind, currency="USD", amount_allocated=Decimal("5.00"))
    assert refunded() is refunds.Refunded.PARTLY
