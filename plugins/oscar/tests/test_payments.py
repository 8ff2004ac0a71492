"""The changes of a paid and an unpaid order in Oscar's records."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.db import connection, models, transaction
from django.test.utils import CaptureQueriesContext
from django.utils.module_loading import import_string
from oscar.core.loading import get_class, get_model

from tests.goods import make_offer, make_voucher
from tests.shopper import Shopper
from tillgate import hooks
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import Payment
from tillgate.django.orders.values import payment_value
from tillgate.django.refunds import queueing
from tillgate.hooks import PaidOutcome
from tillgate.testing.world import World
from tillgate_oscar import payments

Order = get_model("order", "Order")
Make = Callable[..., Any]


@pytest.fixture
def payment(world: World, shopper: Shopper, product: Make) -> Payment:
    """A payment that the shopper is about to make, for two kinds of things."""
    shopper.adds(product("10.00"), 2)
    shopper.get(shopper.buys(product("5.50"), shipping="courier")["Location"])
    return Payment.objects.select_related("order").get()


def test_money_is_recorded_once_per_order(
    world: World,
    payment: Payment,
) -> None:
    """Sources, transactions and events are written once, with every line."""
    world.shopper_pays(payment)
    for _ in range(3):
        world.notification(payment)
        world.come_back(payment)
        world.run_worker()
    order = Order.objects.get()
    source = order.sources.get()
    paid = Decimal("30.49")
    assert (source.source_type.name, source.label, source.reference) == (
        "Online payment",
        "Alipay",
        payment.reference,
    )
    assert (
        source.currency,
        source.amount_allocated,
        source.amount_debited,
        source.amount_refunded,
    ) == ("USD", paid, paid, 0)
    transactions = sorted(
        source.transactions.values_list("txn_type", "amount", "reference", "status"),
    )
    assert transactions == [("Debit", paid, payment.reference, "paid")]
    event = order.payment_events.get()
    assert (event.event_type.name, event.amount, event.reference) == (
        "Paid",
        paid,
        payment.reference,
    )
    assert sorted(event.line_quantities.values_list("line__title", "quantity")) == [
        ("Green tea", 1),
        ("Green tea", 2),
    ]
    assert list(order.status_changes.values_list("old_status", "new_status")) == [
        ("Pending payment", "Paid"),
    ]
    assert [line.num_allocated for line in order.lines.all()] == [2, 1], "shipping will consume it"


def test_duplicate_source_types_prevent_no_payment(
    world: World,
    payment: Payment,
) -> None:
    for _ in range(
        2,
        # as two first payments of a shop leave them that are delivered at the same moment: the name
        # is not unique
    ):
        get_model("payment", "SourceType").objects.create(name="Online payment")
    world.shopper_pays(payment)
    world.notification(payment)
    assert Order.objects.get().status == "Paid"
    assert get_model("payment", "SourceType").objects.count() == 2


def test_repeated_paid_hook_changes_nothing(
    world: World,
    payment: Payment,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    with transaction.atomic():
        assert payments.paid(payment_value(world.fresh(payment))) is PaidOutcome.APPLIED
    assert Order.objects.get().sources.get().transactions.count() == 1


def test_missing_order_was_not_paid(world: World, payment: Payment) -> None:
    Order.objects.all().delete()
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.reviews() == ["paid-not-payable"]
    with transaction.atomic():
        assert payments.paid(payment_value(world.fresh(payment))) is PaidOutcome.NOT_PAYABLE


def test_dearer_order_stays_pending(
    world: World,
    payment: Payment,
) -> None:
    """An order that became more expensive counts as underpaid."""
    Order.objects.update(total_incl_tax=Decimal("30.50"))
    with transaction.atomic():
        assert payments.paid(payment_value(payment)) is PaidOutcome.UNDERPAID
    assert not Order.objects.get().sources.exists()


def test_shop_names_statuses_and_sources(
    world: World,
    payment: Payment,
    settings: Any,
) -> None:
    """The shop chooses the names of statuses, sources and events."""
    settings.TILLGATE_OSCAR = {
        "PAID_STATUS": "Shipped",
        "SOURCE_TYPE": "Wallet",
        "PAID_EVENT": "Settled",
    }
    Order.pipeline["Pending payment"] = ("Shipped", "Cancelled")
    try:
        world.shopper_pays(payment)
        world.notification(payment)
    finally:
        Order.pipeline["Pending payment"] = ("Paid", "Cancelled")
    order = Order.objects.get()
    assert (order.status, order.sources.get().source_type.name) == ("Shipped", "Wallet")
    assert order.payment_events.get().event_type.name == "Settled"


def test_pipeline_without_paid_raises_review(
    world: World,
    payment: Payment,
) -> None:
    """The order is paid once the pipeline leads to paid."""
    Order.pipeline["Pending payment"] = ("Cancelled",)
    try:
        world.shopper_pays(payment)
        world.notification(payment)
        for _ in range(3):
            world.time.advance(hours=2)
            world.run_worker()
        assert "delivery-failing" in world.reviews()
        assert Order.objects.get().status == "Pending payment"
        assert not Order.objects.get().sources.exists()
    finally:
        Order.pipeline["Pending payment"] = ("Paid", "Cancelled")
    world.time.advance(hours=2)
    world.run_worker()
    assert Order.objects.get().status == "Paid"


# Unpaid orders ------------------------------------------------------------------------------------


def counters(voucher: Any) -> dict[str, Any]:
    voucher.refresh_from_db()
    offer = voucher.offers.get()
    return {
        "voucher orders": voucher.num_orders,
        "voucher discount": voucher.total_discount,
        "uses": voucher.applications.count(),
        "offer applications": offer.num_applications,
        "offer discount": offer.total_discount,
        "offer orders": offer.num_orders,
        "stock": sorted(
            get_model("partner", "StockRecord").objects.values_list("num_allocated", flat=True),
        ),
    }


def test_unpaid_order_gives_everything_back(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Stock, vouchers and offers are released, and the order is cancelled."""
    voucher, tea = make_voucher("TEN"), product("10.00")
    before = counters(voucher) | {"stock": [0]}
    shopper.adds(tea, 2)
    shopper.uses_voucher("TEN")
    shopper.says_where()
    shopper.chooses()
    shopper.get(shopper.places()["Location"])
    assert (
        counters(voucher)["uses"],
        counters(voucher)["stock"],
        counters(voucher)["offer discount"],
    ) == (1, [2], Decimal("2.00"))
    world.a_day_passes()
    order = Order.objects.get()
    assert order.status == "Cancelled"
    assert counters(voucher) == before
    assert order.total_incl_tax == Decimal("18.00"), "what was ordered stays on record"
    again = Shopper()
    again.adds(tea)
    again.uses_voucher("TEN")
    again.says_where()
    again.chooses()
    again.places()
    assert Order.objects.latest("pk").total_incl_tax == Decimal("9.00"), (
        "the voucher is for single use, and can be used"
    )


def test_abandoned_order_frees_customer_offer(
    world: World,
    product: Make,
) -> None:
    """An offer with a limit per customer can be used again."""
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    voucher = make_voucher("TEN", usage="Multi-use")
    voucher.offers.update(max_user_applications=1)
    shopper = Shopper(world.client)
    shopper.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    shopper.adds(product("10.00"))
    shopper.uses_voucher("TEN")
    shopper.says_where()
    shopper.chooses()
    shopper.places()
    assert voucher.offers.get().get_max_applications(user) == 0
    world.a_day_passes()
    assert voucher.offers.get().get_max_applications(user) == 1


def test_unpaid_order_reopens_limited_offer(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    offer, tea = make_offer("The first order", max_global_applications=1), product("10.00")
    shopper.buys(tea)
    offer.refresh_from_db()
    assert (offer.status, Order.objects.get().total_incl_tax) == ("Consumed", Decimal("9.00"))
    world.a_day_passes()
    offer.refresh_from_db()
    assert offer.status == "Open"
    Shopper().buys(tea)
    assert Order.objects.latest("pk").total_incl_tax == Decimal("9.00")


def test_the_hook_called_again_releases_nothing_twice(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    voucher, tea = make_voucher("TEN", usage="Multi-use"), product("10.00")
    for browser in (shopper, Shopper()):
        browser.adds(tea)
        browser.uses_voucher("TEN")
        browser.says_where()
        browser.chooses()
        browser.places()
    left, kept = Order.objects.order_by("pk")
    for _ in range(2):
        with transaction.atomic():
            payments.unpaid(hooks.Order(plugin="oscar", key=left.number))
    assert counters(voucher) == {
        "voucher orders": 1,
        "voucher discount": Decimal("1.00"),
        "uses": 1,
        "offer applications": 1,
        "offer discount": Decimal("1.00"),
        "offer orders": 1,
        "stock": [1],
    }
    kept.refresh_from_db()
    assert kept.status == "Pending payment"


@pytest.mark.parametrize("first", ["dead", "live"])
def test_i12_released_stock_mails_waiters_once(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    """An address that refuses mail does not keep the stock."""
    sent: list[str] = []

    def send(message: Any, *_: Any, **__: Any) -> int:
        assert not connection.in_atomic_block
        sent.append(message.to[0].partition("@")[0])
        if sent[-1] == "dead":
            raise SMTPRecipientsRefused({message.to[0]: (550, b"no such user")})
        return 1

    monkeypatch.setattr("django.core.mail.message.EmailMessage.send", send)
    pot, alerts = product("11.00", stock=1), get_model("customer", "ProductAlert")
    shopper.buys(pot)
    for who in sorted(("dead", "live"), key=lambda who: who == first):  # the newest is mailed first
        alerts.objects.create(product=pot, email=f"{who}@shopper.example").confirm()
    world.a_day_passes()
    world.a_day_passes()
    assert (Order.objects.get().status, pot.stockrecords.get().num_allocated, world.reviews()) == (
        "Cancelled",
        0,
        [],
    )
    assert sent.count("dead") == 1
    assert sent.count("live") <= 1, "at each try they would hear of it again"


def test_stock_alert_is_immediate_without_transaction(
    world: World,
    product: Make,
) -> None:
    pot, alerts = product("11.00", stock=0), get_model("customer", "ProductAlert")
    alerts.objects.create(product=pot, email="live@shopper.example").confirm()
    record = pot.stockrecords.get()
    record.num_in_stock = 3
    record.save()
    assert [message.to for message in mail.outbox] == [["live@shopper.example"]]


@pytest.mark.django_db(transaction=True)
def test_own_dispatcher_gets_all_arguments(
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []
    dispatcher = import_string("oscar.apps.customer.alerts.utils.AlertsDispatcher")
    monkeypatch.setattr(
        dispatcher,
        "send_product_alert_email_for_user",
        lambda _self, *given, **named: sent.append((given, named)),
    )
    ours, pot = get_class("customer.alerts.utils", "AlertsDispatcher")(), product()
    sent.clear()  # of making it
    ours.send_product_alert_email_for_user(pot, "soon", language="de")
    with transaction.atomic():
        ours.send_product_alert_email_for_user(pot, "soon", language="de")
    assert sent == [((pot, "soon"), {"language": "de"})] * 2


def test_voucher_locks_follow_oscar_sequence(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Vouchers and offers are locked in the same sequence as in Oscar."""
    first, second = make_offer("first"), make_offer("second", exclusive=False, priority=10)
    first.exclusive = False
    first.save()
    first.combinations.add(second)
    second.combinations.add(first)
    for code in ("AAA", "BBB"):
        voucher = make_voucher(code)
        offers = [first, second, *voucher.offers.all()]
        for offer in voucher.offers.all():
            offer.exclusive = False
            offer.save()
            offer.combinations.set([one for one in offers if one != offer])
    shopper.adds(product("10.00"), 2)
    for code in ("AAA", "BBB"):
        shopper.uses_voucher(code)
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()

    def touched(table: str, action: Callable[[], Any]) -> list[str]:
        with CaptureQueriesContext(connection) as asked:
            action()
        name = connection.ops.quote_name(table)
        return [
            query["sql"]
            for query in asked.captured_queries
            if re.match(rf"(UPDATE {name}|SELECT .* FROM {name})", query["sql"])
        ]

    def offers_of(statements: list[str]) -> list[str]:
        ids = [
            re.search(r"WHERE .*id\W* = (\d+)", statement)
            for statement in statements
            if statement.startswith("UPDATE")
        ]
        return list(dict.fromkeys(found[1] for found in ids if found))

    taken = offers_of(touched("offer_conditionaloffer", lambda: shopper.places(preview)))
    assert len(taken) > 1
    order = Order.objects.get()
    with transaction.atomic():
        assert (
            offers_of(
                touched(
                    "offer_conditionaloffer",
                    lambda: payments.unpaid(hooks.Order(plugin="oscar", key=order.number)),
                ),
            )
            == taken
        )
        transaction.set_rollback(True)
    vouchers = touched("voucher_voucher", world.a_day_passes)
    assert Order.objects.get().status == "Cancelled"
    locking = [statement for statement in vouchers if not statement.startswith("UPDATE")]
    assert len(locking) == 1
    assert "date_created" in locking[0].partition("ORDER BY")[2], (
        "Oscar locks all of them by their model's own order"
    )


def test_joining_manager_can_lock_orders(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order manager that joins nullable tables stops no payment and no release."""

    class Joined(models.Manager[Any]):
        def get_queryset(self) -> Any:
            # for which PostgreSQL refuses a lock
            return super().get_queryset().select_related("user", "billing_address")

    manager = Joined()
    manager.model = Order
    monkeypatch.setitem(vars(Order._meta), "default_manager", manager)
    with CaptureQueriesContext(connection) as asked, transaction.atomic():
        assert payments.paid(payment_value(payment)) is PaidOutcome.APPLIED
        transaction.set_rollback(True)
    name = connection.ops.quote_name("order_order")
    assert "JOIN" not in next(
        query["sql"] for query in asked.captured_queries if f"FROM {name}" in query["sql"]
    )
    world.shopper_pays(payment)
    world.notification(payment)
    assert Order.objects.get().status == "Paid"
    queueing.refund(payment.pk, "1.00")
    assert world.shop.refunded(payment.order.key) == 1
    given_up = world.order("5.00")
    world.a_day_passes()
    assert Order.objects.get(number=given_up).status == "Cancelled"


def test_late_money_leaves_order_cancelled(
    world: World,
    payment: Payment,
) -> None:
    """Money for a released order opens a review."""
    world.a_day_passes()
    assert Order.objects.get().status == "Cancelled"
    world.pays_late(payment)
    world.notification(payment)
    assert world.reviews() == ["paid-not-payable"]
    order = Order.objects.get()
    assert (order.status, order.sources.count()) == ("Cancelled", 0)


# Actions of staff ---------------------------------------------------------------------------------


def test_cancelled_order_starts_no_payment(
    world: World,
    payment: Payment,
) -> None:
    """The stock of an order that staff cancelled is released in the end."""
    handler = get_class("order.processing", "EventHandler")()
    handler.handle_order_status_change(Order.objects.get(), "Cancelled")
    assert ExpectedOrder.objects.get().closed_at is not None
    answer = world.client.post(world.way_to_pay(payment.order.key), {"method": "paypal"})
    assert answer.status_code == 409
    assert "the order was cancelled" in answer.content.decode()
    assert Payment.objects.count() == 1
    world.a_day_passes()
    assert [line.num_allocated for line in Order.objects.get().lines.all()] == [0, 0]


def test_order_marked_paid_is_left_alone(
    world: World,
    payment: Payment,
) -> None:
    """An order that staff marked paid is not charged or released."""
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        Order.objects.get(),
        "Paid",
    )
    answer = world.client.post(world.way_to_pay(payment.order.key), {"method": "paypal"})
    assert "the order is paid" in answer.content.decode()
    world.a_day_passes()
    order = Order.objects.get()
    assert order.status == "Paid"
    assert [line.num_allocated for line in order.lines.all()] == [2, 1]


def test_rolled_back_status_closes_nothing(
    world: World,
    payment: Payment,
) -> None:
    with transaction.atomic():
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            Order.objects.get(),
            "Cancelled",
        )
        transaction.set_rollback(True)
    assert ExpectedOrder.objects.get().closed_at is None
    world.shopper_pays(payment)
    world.notification(payment)
    assert Order.objects.get().status == "Paid"


def test_otherwise_paid_order_leaves_no_record(world: World) -> None:
    """Tillgate keeps nothing of an order that is paid in another way."""
    world.shop.place_order_paid_otherwise(Decimal("12.50"))
    assert not ExpectedOrder.objects.exists()
