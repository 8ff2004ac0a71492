"""`tillgate.shop`: all that a shop plugin lives on, as values and functions."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.messages import get_messages
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, transaction
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import unregistered
from tillgate import ConfigurationError, InvalidRequest, TillgateError, hooks, shop
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review
from tillgate.django.payments import starting
from tillgate.django.payments.admission import CreationState
from tillgate.hooks import PaymentStatus, RefundStatus
from tillgate.shop import ReviewAction, ReviewReason
from tillgate.testing.world import together

PLUGIN = "smallest-shop"
CENT = Decimal("0.01")


def state(key: str) -> shop.OrderState:
    found = shop.order_state(PLUGIN, key)
    assert found is not None
    return found


def paid_order(world: World, total: str = "10.00") -> str:
    key = world.order(total)
    payment = world.start(key)
    world.shopper_pays(payment)
    world.notification(payment)
    return key


def test_package_offers_names_of_its_modules() -> None:
    modules = [one.name for one in pkgutil.iter_modules(shop.__path__) if one.name[0] != "_"]
    names = {
        name
        for module in modules
        if module != "http"  # httpx is heavy
        for name in import_module(f"tillgate.shop.{module}").__all__
    }
    assert set(shop.__all__) == names | {"money"}


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("", "imported before the apps are loaded: in apps.py import it inside AppConfig.ready()"),
        (
            "import django.conf; django.conf.settings.configure(); django.setup(); ",
            'add "tillgate.django" to INSTALLED_APPS',
        ),
    ],
    ids=["before the apps are loaded", "without the app"],
)
def test_import_without_models_says_remedy(setup: str, said: str) -> None:
    script = f"{setup}import tillgate.shop"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in done.stderr


# Registration -------------------------------------------------------------------------------------


class Registered:
    @hooks.hookimpl
    def tillgate_return_url(self, payment: object) -> str:
        return "/"


def register(plugin: object, name: str) -> None:
    """Register a plugin as `AppConfig.ready()` does, while Django is being set up."""
    with pytest.MonkeyPatch.context() as loading:
        loading.setattr("django.apps.apps.ready", False)
        shop.register(plugin, name)


@pytest.fixture
def registered() -> Iterator[Registered]:
    plugin = Registered()
    register(plugin, "book-shop")
    yield plugin
    hooks.plugin_manager().unregister(plugin)


def test_plugin_is_registered_by_name(registered: Registered) -> None:
    assert hooks.plugin_manager().get_plugin("book-shop") is registered


def test_same_plugin_may_register_again(registered: Registered) -> None:
    register(registered, "book-shop")
    shop.register(registered, "book-shop")
    assert hooks.plugin_manager().get_plugin("book-shop") is registered


def test_taken_name_or_second_name_is_refused(registered: Registered) -> None:
    with pytest.raises(ConfigurationError, match="'book-shop' is registered twice"):
        register(Registered(), "book-shop")
    with pytest.raises(
        ConfigurationError, match="'hat-shop' is registered already, as 'book-shop'"
    ):
        register(registered, "hat-shop")


def test_registration_after_start_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"call tillgate\.shop\.register in AppConfig"):
        shop.register(Registered(), "book-shop")
    assert hooks.plugin_manager().get_plugin("book-shop") is None


def test_plugin_with_unknown_argument_is_not_registered() -> None:
    class Misspelt:
        @hooks.hookimpl
        def tillgate_return_url(self, paymend: object) -> str:
            return "/"

    with pytest.raises(ConfigurationError, match=r"'book-shop' cannot be used: .*paymend"):
        register(Misspelt(), "book-shop")
    assert hooks.plugin_manager().get_plugin("book-shop") is None


def test_uninstalled_plugin_names_app_to_add() -> None:
    with pytest.raises(
        ConfigurationError, match="add 'tillgate_oscar' to INSTALLED_APPS; loaded: smallest"
    ):
        hooks.call_owner("oscar", "tillgate_return_url", payment=None)


# Orders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [shop.open_order, shop.close_order, shop.pay_url])
@pytest.mark.parametrize(("plugin", "key"), [("no-such-plugin", "1"), (PLUGIN, "987654321")])
def test_unknown_plugin_or_order_fails_early(
    world: World,
    call: Any,
    plugin: str,
    key: str,
) -> None:
    with pytest.raises(ConfigurationError, match=f"{plugin}|{key}"):
        call(plugin, key)
    assert not Order.objects.exists()


@pytest.mark.parametrize(
    "call",
    [
        shop.open_order,
        shop.close_order,
        shop.pay_url,
        shop.pay_path,
        lambda plugin, key: shop.pay_path(plugin, key, "alipay"),
    ],
)
def test_non_text_order_key_is_refused(world: World, call: Any) -> None:
    """The error says how to correct the key."""
    key = UUID(int=7)
    with pytest.raises(
        InvalidRequest,
        match=r"order_key: .* is not text: give str\(\.\.\.\) of it",
    ) as wrong:
        call(PLUGIN, key)
    assert (wrong.value.field, wrong.value.value) == ("order_key", key)


def test_pay_address_is_absolute(world: World) -> None:
    """The address leads to the pay page of the order."""
    key = world.order("13.43")
    address = shop.pay_url(PLUGIN, key)
    assert address.startswith("http")
    for one in (address, shop.pay_path(PLUGIN, key)):
        assert "13.43" in world.client.get(one).content.decode()


def test_unknown_order_has_no_state(world: World) -> None:
    """An order that Tillgate does not know cannot be locked either."""
    key = unregistered("10.00")
    assert shop.order_state(PLUGIN, key) is None
    with pytest.raises(ObjectDoesNotExist), shop.locked_order(PLUGIN, key):
        pass


def test_only_open_order_waits_for_money(world: World) -> None:
    key = world.order("10.00")
    shop.open_order(PLUGIN, key)
    assert (state(key).is_closed, state(key).waits_since is None, state(key).is_paid) == (
        False,
        False,
        False,
    )
    shop.close_order(PLUGIN, key)
    assert state(key).is_closed
    assert shop.start_payment(PLUGIN, key, "alipay").redirect_url == ""


def declined(world: World, payment: Payment) -> None:
    world.sandbox.control.decline(payment.reference)
    world.notification(payment)


def opened(world: World) -> str:
    key = world.order("10.00")
    shop.open_order(PLUGIN, key)
    return key


def kept_until(key: str) -> datetime:
    until = state(key).kept_until
    assert until is not None
    assert until.tzinfo is not None
    return until


def move_to(world: World, moment: datetime) -> None:
    world.time.advance(seconds=(moment - world.time.now()).total_seconds())
    world.run_worker()


@pytest.mark.parametrize("tries", [0, 1, 3])
def test_order_is_payable_until_kept_time(
    world: World,
    tries: int,
) -> None:
    """The order is released after that time."""
    key = opened(world)
    for _ in range(tries):
        world.time.advance(minutes=20)
        declined(world, world.start(key))
    until = kept_until(key)
    assert timedelta(minutes=59) < until - world.time.now() <= timedelta(minutes=60)
    move_to(world, until - timedelta(seconds=20))
    assert (ShopOrder.objects.get().status, kept_until(key)) == ("open", until)
    assert shop.start_payment(PLUGIN, key, "alipay").redirect_url
    declined(world, Payment.objects.latest("pk"))
    until = kept_until(key)
    move_to(world, until + timedelta(seconds=1))
    assert (ShopOrder.objects.get().status, state(key).kept_until) == ("cancelled", None)
    assert not shop.start_payment(PLUGIN, key, "alipay").redirect_url


def test_order_is_never_released_early(
    world: World,
) -> None:
    """An order is kept until every stated time, however often the shopper tries to pay."""
    world.configure(ORDER_UNPAID_AFTER_MINUTES=60, ORDER_PAYABLE_FOR_MINUTES=150)
    key, stated = opened(world), []
    for _ in range(3):
        stated.append(kept_until(key))
        payment = world.start(key)
        assert state(key).kept_until is None, "an open payment keeps it longer"
        world.time.advance(minutes=40)
        declined(world, payment)
    stated.append(kept_until(key))
    assert stated == sorted(stated)
    assert stated[-1] - stated[-2] < timedelta(minutes=40), (
        "the time of the first payment bounds them all"
    )
    move_to(world, stated[-1] - timedelta(seconds=20))
    assert ShopOrder.objects.get().status == "open"
    move_to(world, stated[-1] + timedelta(seconds=1))
    assert ShopOrder.objects.get().status == "cancelled"


def test_no_time_is_stated_that_has_passed(world: World) -> None:
    world.configure(ORDER_UNPAID_AFTER_MINUTES=60, ORDER_PAYABLE_FOR_MINUTES=60)
    key = world.order("10.00")
    payment = world.start(key)
    world.time.advance(minutes=90)
    declined(world, payment)
    assert (state(key).waits_since is None, state(key).kept_until) == (False, None)
    world.run_worker()
    assert ShopOrder.objects.get().status == "cancelled"


def test_settled_order_is_never_released(
    world: World,
) -> None:
    """Nothing releases an order while it is paid, closed or holds money."""
    paid, closed, held = paid_order(world), opened(world), opened(world)
    shop.close_order(PLUGIN, closed)
    ShopOrder.objects.filter(pk=held).update(total="11.00")
    payment = world.start(held)
    ShopOrder.objects.filter(pk=held).update(total="12.00")
    world.shopper_pays(payment)
    world.notification(payment)
    assert [state(key).kept_until for key in (paid, closed, held)] == [None, None, None]
    assert (state(held).is_paid, state(held).held_amount) == (False, Decimal("11.00"))
    world.time.advance(hours=30)
    world.run_worker()
    assert ShopOrder.objects.get(pk=held).status == "open"
    shop.refund(str(payment.pk), "11.00")
    move_to(world, kept_until(held) + timedelta(seconds=1))
    assert ShopOrder.objects.get(pk=held).status == "cancelled"


def test_time_has_zone_without_use_tz(world: World, settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    key = opened(world)
    # as Django stores it there
    Order.objects.update(unpaid_check_at=datetime(2099, 7, 1, 12, 0))  # noqa: DTZ001
    assert kept_until(key).isoformat() == "2099-07-01T12:00:00+02:00"


def test_closed_order_can_be_released_again(world: World) -> None:
    """A closed order that holds its stock again is reported unpaid once more."""
    key = world.order("10.00")
    shop.open_order(PLUGIN, key)
    shop.close_order(PLUGIN, key)
    Order.objects.update(unpaid_check_at=None)
    shop.open_order(PLUGIN, key, even_if_closed=True)
    assert state(key).waits_since is not None
    assert state(key).is_closed


def test_partly_refunded_order_adds_up(world: World) -> None:
    key = paid_order(world)
    assert (state(key).held_amount, state(key).refundable_amount, state(key).is_paid) == (
        Decimal("10.00"),
        Decimal("10.00"),
        True,
    )
    shop.refund_order(PLUGIN, key, "3.00", staff="ann", reason="late")
    now = state(key)
    assert (now.held_amount, now.refunded_amount, now.refundable_amount) == (
        Decimal("7.00"),
        Decimal("3.00"),
        Decimal("7.00"),
    )
    assert now.paid_by is not None
    assert (now.paid_by.status, now.paid_by.paid_the_order, now.held == (now.paid_by,)) == (
        PaymentStatus.PAID,
        True,
        True,
    )
    assert [(one.amount, one.requested_by, one.status) for one in now.paid_by.refunds] == [
        (Decimal("3.00"), "ann", RefundStatus.SUCCEEDED),
    ]


def test_unknown_refund_cannot_be_repeated(
    world: World,
) -> None:
    """The money of a refund with an unknown outcome still counts as held."""
    key = paid_order(world)
    world.sandbox.control.fault("lost_response", occasion="refund", times=1)
    asked = shop.refund_order(PLUGIN, key, "10.00")
    assert asked.status is RefundStatus.UNKNOWN
    assert (state(key).held_amount, state(key).refundable_amount) == (
        Decimal("10.00"),
        Decimal("0.00"),
    )
    shop.settle_refund(asked.id, done=True, staff="ann")
    assert (state(key).held_amount, state(key).is_paid) == (Decimal("0.00"), True)


def test_second_payment_does_not_pay_order(world: World) -> None:
    """The money of the second payment is held."""
    key = world.order("10.00")
    first, second = world.start(key), world.start(key, method="paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notification(payment)
    assert [payment.paid_the_order for payment in state(key).payments] == [True, False]
    assert state(key).held_amount == Decimal("20.00")
    refunded = shop.refund(str(second.pk), "10.00")
    assert refunded.payment_paid_the_order is False
    assert [payment.reference for payment in state(key).held] == [first.reference]


def test_paid_order_awaits_delivery(world: World) -> None:
    """Delivery is pending until the shop has applied the payment."""
    key = world.order("10.00")
    payment = world.start(key)
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid"):
        world.notification(payment)
    waiting = state(key).payment(str(payment.pk))
    assert waiting is not None
    assert (waiting.awaits_delivery, waiting.paid_the_order, state(key).is_paid) == (
        True,
        False,
        True,
    )
    newest = shop.last_change_at(waiting.id)
    assert newest is not None
    assert newest >= waiting.status_since
    world.time.advance(hours=1)
    world.run_worker()
    assert [(one.awaits_delivery, one.paid_the_order) for one in state(key).payments] == [
        (False, True),
    ]
    assert state(key).payment("987654321") is None


def test_many_states_need_no_more_statements(
    world: World,
    django_assert_num_queries: Callable[..., Any],
) -> None:
    keys = [paid_order(world), paid_order(world), world.order("1.00")]
    world.start(keys[2])
    with django_assert_num_queries(3):  # orders, payments, refunds
        assert len(shop.order_states(PLUGIN, keys)) == 3
    with django_assert_num_queries(2):  # an unpaid payment has no refunds
        assert state(keys[2]).open_payments


def test_states_found_by_keys_or_prefix(world: World) -> None:
    keys = [world.order("1.00"), world.order("2.00"), world.order("3.00")]
    for key in keys:
        shop.open_order(PLUGIN, key)
    assert [one.key for one in shop.order_states(PLUGIN, keys[:2])] == keys[:2]
    assert {one.key for one in shop.order_states(PLUGIN, prefix=keys[2])} == {
        key for key in keys if key.startswith(keys[2])
    }
    assert shop.order_states("another", keys) == []


def test_plugin_data_stays_with_order(world: World) -> None:
    key = world.order("10.00")
    shop.open_order(PLUGIN, key)
    shop.set_order_data(PLUGIN, key, released={"1": 2}, note="x")
    shop.set_order_data(PLUGIN, key, note=None)
    with shop.locked_order(PLUGIN, key) as locked:
        assert locked.data == {"released": {"1": 2}}


# Payments -----------------------------------------------------------------------------------------


def test_started_payment_redirects_to_payment_page(
    world: World,
) -> None:
    """An order that is already paid redirects to its own page."""
    key = world.order("10.00")
    started = shop.start_payment(PLUGIN, key, "alipay", data={"language": "de"})
    assert started.payment is not None
    assert (started.redirect_url, started.message) == (started.payment.payment_url, "")
    assert (started.payment.data, started.payment.is_open) == ({"language": "de"}, True)
    assert shop.start_payment(PLUGIN, key, "alipay").payment == started.payment, (
        "a double click makes one payment"
    )
    payment = Payment.objects.get(order__key=key)
    world.shopper_pays(payment)
    assert shop.poll(started.payment.id, actor="test").status is PaymentStatus.PAID
    assert shop.start_payment(PLUGIN, key, "alipay").redirect_url == ""


def test_start_problem_becomes_translated_message(
    world: World,
) -> None:
    """Shoppers read in their own language why a payment cannot start."""
    key = world.order("10.00")
    world.sandbox.control.fault("server_error", occasion="pay", times=5)
    unknown = shop.start_payment(PLUGIN, key, "alipay")
    assert unknown.outcome is shop.StartOutcome.UNKNOWN
    with translation.override("de"):
        assert shop.start_payment(PLUGIN, "987654321", "alipay").message != unknown.message
        assert shop.start_payment(PLUGIN, key, "no-such-method").message.startswith("Die Zahlung")


def test_plugin_hears_that_nothing_was_charged(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = world.order("10.00")
    with monkeypatch.context() as patch:
        patch.setattr(starting, "creation_state", lambda *_: CreationState.RESTS)
        told = shop.start_payment(PLUGIN, key, "alipay")
    assert (told.redirect_url, told.payment, told.outcome) == ("", None, None)
    assert "nothing was charged" in told.message
    assert not Payment.objects.exists()
    assert shop.start_payment(PLUGIN, key, "alipay").redirect_url


def test_payment_methods_keep_owner_order(world: World, settings: Any) -> None:
    settings.TILLGATE = {**settings.TILLGATE, "PAYMENT_METHODS": ["paypal", "alipay"]}
    assert [(one.code, one.label, one.currencies) for one in shop.payment_methods()] == [
        ("paypal", "PayPal", ("USD",)),
        ("alipay", "Alipay", ("USD",)),
    ]


def test_payments_found_only_for_own_orders(
    world: World,
) -> None:
    """A plugin finds payments by id or reference only among its own orders."""
    key = paid_order(world)
    payment = state(key).payments[0]
    assert (
        shop.find_payment(PLUGIN, payment_id=payment.id)
        == shop.find_payment(PLUGIN, reference=payment.reference)
        == payment
    )
    assert shop.find_payment(PLUGIN, paid_order=key) == payment
    unpaid = world.start(world.order("1.00"))
    assert shop.find_payment(PLUGIN, paid_order=unpaid.order.key) is None
    assert shop.find_payment("another", payment_id=payment.id) is None
    assert shop.find_payment(PLUGIN, reference="100017-AAAAAAAAAAAAA") is None


def test_account_has_payments_once_started(world: World) -> None:
    key = world.order("10.00")
    assert not shop.has_payments("default")
    world.start(key)
    assert (shop.has_payments("default"), shop.has_payments("another")) == (True, False)


def test_paid_orders_found_by_start_time(world: World) -> None:
    """The time is that of the start of the payment."""
    before = shop.now()
    world.time.advance(minutes=1)
    key = paid_order(world)
    world.start(world.order("1.00"))
    assert shop.paid_order_keys(PLUGIN, before) == (key,)
    assert shop.paid_order_keys("another", before) == ()
    world.time.advance(minutes=1)
    assert shop.paid_order_keys(PLUGIN, shop.now()) == ()


def test_the_worker_polls_what_is_due(world: World) -> None:
    key = world.order("10.00")
    world.shopper_pays(world.start(key))
    world.time.advance(hours=1)
    shop.run_worker(seconds=60)
    assert state(key).is_paid


# Refunds ------------------------------------------------------------------------------------------


def test_refund_is_sent_after_commit(world: World) -> None:
    """Inside a transaction the refund is only queued."""
    key = paid_order(world)
    with transaction.atomic():
        queued = shop.refund_order(PLUGIN, key, "4.00")
        assert queued.status is RefundStatus.QUEUED
    found = shop.find_refund(PLUGIN, queued.id)
    assert found is not None
    assert found.status is RefundStatus.SUCCEEDED


def test_impossible_refund_is_refused(
    world: World,
) -> None:
    """Too high an amount, a newer refund and an unpaid order are all refused."""
    key = paid_order(world)
    with pytest.raises(InvalidRequest, match=r"10\.01"):
        shop.refund_order(PLUGIN, key, "10.01")
    shop.refund_order(PLUGIN, key, "1.00", newest_refund="")
    with pytest.raises(shop.RefundNotPossible):
        shop.refund_order(PLUGIN, key, "1.00", newest_refund="")
    with pytest.raises(shop.RefundNotPossible, match="no payment has paid"):
        shop.refund_order(PLUGIN, world.order("1.00"), "1.00")
    assert Refund.objects.count() == 1


@pytest.mark.parametrize("given", ["", "0x1", "-1", "1e3", "9" * 30, "٣"])
def test_impossible_newest_refund_counts_as_none(world: World, given: str) -> None:
    key = paid_order(world)
    assert (
        shop.refund_order(PLUGIN, key, "1.00", newest_refund=given).status is RefundStatus.SUCCEEDED
    )
    with pytest.raises(shop.RefundNotPossible):
        shop.refund_order(PLUGIN, key, "1.00", newest_refund=given)


def test_only_waiting_refund_can_be_withdrawn(world: World) -> None:
    key = paid_order(world)
    with transaction.atomic():
        queued = shop.refund_order(PLUGIN, key, "4.00")
        transaction.get_connection().run_on_commit.clear()
    assert not shop.was_withdrawn(queued.id)
    assert shop.withdraw_refund(queued.id, staff="ann").status is RefundStatus.FAILED
    assert shop.was_withdrawn(queued.id)
    sent = shop.refund_order(PLUGIN, key, "4.00")
    with pytest.raises(shop.RefundNotPossible):
        shop.withdraw_refund(sent.id, staff="ann")


def test_refused_refund_was_not_withdrawn(world: World) -> None:
    key = paid_order(world)
    world.sandbox.control.fault("refused", occasion="refund")
    refused = shop.refund_order(PLUGIN, key, "4.00")
    assert (refused.status, shop.was_withdrawn(refused.id)) == (RefundStatus.FAILED, False)


def test_repeated_key_returns_first_refund(world: World) -> None:
    """In any status: on its way, failed, or succeeded long ago."""
    key = paid_order(world)
    with transaction.atomic():
        queued = shop.refund_order(PLUGIN, key, "4.00", idempotency_key="return 1")
        assert shop.refund_order(PLUGIN, key, Decimal(4), idempotency_key="return 1") == queued
    sent = shop.refund_order(PLUGIN, key, "4.00", idempotency_key="return 1", newest_refund="")
    assert (sent.id, sent.status, sent.idempotency_key) == (
        queued.id,
        RefundStatus.SUCCEEDED,
        "return 1",
    )
    world.sandbox.control.fault("refused", occasion="refund")
    refused = [shop.refund_order(PLUGIN, key, "6.00", idempotency_key="return 2") for _ in range(2)]
    assert [(one.id, one.status) for one in refused] == [(refused[0].id, RefundStatus.FAILED)] * 2
    assert (
        shop.refund_order(PLUGIN, key, "6.00", idempotency_key="return 3").status
        is RefundStatus.SUCCEEDED
    )
    assert shop.refund_order(PLUGIN, key, "4.00", idempotency_key="return 1").id == queued.id
    assert state(key).refunded_amount == Decimal("10.00")


def test_rest_is_refunded_once(world: World) -> None:
    """Refunds that are done or under way count; a repeated key returns the refund of the rest."""
    key = paid_order(world)
    shop.refund_order(PLUGIN, key, "4.00")
    rest = [shop.refund_rest(PLUGIN, key, staff="ann", idempotency_key="rest") for _ in range(2)]
    assert [(one.id, one.amount) for one in rest] == [(rest[0].id, Decimal("6.00"))] * 2
    with pytest.raises(shop.RefundNotPossible, match=r"nothing of payment .* is left") as error:
        shop.refund_rest(PLUGIN, key)
    assert error.value.for_staff == "nothing is left to refund"
    with pytest.raises(shop.RefundNotPossible, match="no payment has paid"):
        shop.refund_rest(PLUGIN, world.order("1.00"))
    assert state(key).refunded_amount == Decimal("10.00")


def test_rest_is_refunded_by_one_of_two(world: World) -> None:
    key = paid_order(world)

    def press() -> str:
        try:
            return shop.refund_rest(PLUGIN, key).status.value
        except shop.RefundNotPossible:
            return "refused"

    assert sorted(map(str, together(press, press))) == ["refused", "succeeded"]
    assert Refund.objects.get().amount == Decimal("10.00")


def test_cancelled_order_with_money_needs_review(world: World) -> None:
    """A full refund ends the review; a second cancellation opens no other."""
    key = paid_order(world)
    shop.refund_order(PLUGIN, key, "2.00")
    for _ in range(2):
        shop.close_order(PLUGIN, key)
    (review,) = shop.open_reviews(PLUGIN, order_keys=[key])
    assert review.reason is ReviewReason.CANCELLED_HELD
    assert review.message.endswith(": the order was cancelled, and USD 8.00 is still held.")
    assert review.actions == (ReviewAction.REFUND, ReviewAction.DISMISS)
    shop.refund_rest(PLUGIN, key)
    assert shop.open_reviews(PLUGIN, order_keys=[key]) == ()
    shop.close_order(PLUGIN, key)
    assert shop.open_reviews(PLUGIN, order_keys=[key]) == ()


def test_kept_money_of_cancelled_order_needs_no_review(world: World) -> None:
    key = paid_order(world)
    shop.keep_money(PLUGIN, key, staff="ann", note="for the work")
    shop.close_order(PLUGIN, key)
    assert shop.open_reviews(PLUGIN, order_keys=[key]) == ()
    review = Review.objects.get()
    assert (review.status, review.resolved_by, review.resolution) == (
        "dismissed",
        "ann",
        "for the work",
    )
    other = paid_order(world)
    shop.close_order(PLUGIN, other)
    shop.keep_money(PLUGIN, other, staff="ann", note="for the work")
    assert shop.open_reviews(PLUGIN, order_keys=[other]) == ()
    for unpaid in (world.order("1.00"), "404"):
        with pytest.raises(shop.RefundNotPossible, match="no payment has paid"):
            shop.keep_money(PLUGIN, unpaid, staff="ann", note="for the work")


def test_repeated_key_refuses_another_amount(world: World) -> None:
    key = paid_order(world)
    shop.refund_order(PLUGIN, key, "4.00", idempotency_key="return 1")
    said = (
        "idempotency key 'return 1' already names a refund of USD 4.00 of .*choose a new key "
        "to refund USD 5.00 as well"
    )
    with pytest.raises(shop.RefundNotPossible, match=said):
        shop.refund_order(PLUGIN, key, "5.00", idempotency_key="return 1")
    assert Refund.objects.count() == 1


def test_key_names_refund_of_one_payment(world: World) -> None:
    for key in (paid_order(world), paid_order(world)):
        assert (
            shop.refund_order(PLUGIN, key, "4.00", idempotency_key="same").status
            is RefundStatus.SUCCEEDED
        )
    shop.refund_order(PLUGIN, key, "1.00", idempotency_key="SAME")
    for _ in range(2):  # without a key each call is a wish of its own
        shop.refund_order(PLUGIN, key, "1.00")
    assert state(key).refunded_amount == Decimal("7.00")


@pytest.mark.parametrize("wrong", ["", "k" * 256, "k\0"])
def test_unusable_key_names_its_field(world: World, wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="1 to 255 characters") as refused:
        shop.refund_order(PLUGIN, paid_order(world), "4.00", idempotency_key=wrong)
    assert refused.value.field == "idempotency_key"
    assert not Refund.objects.exists()


def test_uuid_is_idempotency_key(world: World) -> None:
    key, made = paid_order(world), UUID(int=7)
    sent = [shop.refund_order(PLUGIN, key, "4.00", idempotency_key=made) for _ in range(2)]
    assert [one.idempotency_key for one in sent] == [str(made)] * 2
    assert Refund.objects.count() == 1


@pytest.mark.parametrize("wrong", [17, b"key", ["key"]])
def test_key_that_is_no_text_names_its_field(world: World, wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="give a text or a UUID") as refused:
        shop.refund_order(PLUGIN, paid_order(world), "4.00", idempotency_key=wrong)
    assert refused.value.field == "idempotency_key"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda one: shop.refund(one, "1.00"), "payment_id"),
        (lambda one: shop.withdraw_refund(one, staff="ann"), "refund_id"),
        (lambda one: shop.settle_refund(one, done=True, staff="ann"), "refund_id"),
        (lambda one: shop.resolve_review(one, ReviewAction.POLL, staff="ann"), "review_id"),
    ],
)
@pytest.mark.parametrize("unknown", ["99999", 99999, "x", ""])
def test_unknown_id_names_its_field(world: World, call: Any, field: str, unknown: Any) -> None:
    with pytest.raises(InvalidRequest, match="is the id of no") as refused:
        call(unknown)
    assert refused.value.field == field


# Reviews ------------------------------------------------------------------------------------------


def test_repeated_key_of_review_refunds_once(world: World) -> None:
    key = world.order("10.00")
    payment = world.start(key)
    shop.close_order(PLUGIN, key)
    world.shopper_pays(payment)
    world.notification(payment)
    (review,) = shop.open_reviews(PLUGIN, order_keys=[key])
    given: dict[str, Any] = {"staff": "ann", "amount": "5.00", "idempotency_key": "same-key"}
    for _ in range(2):
        done = shop.resolve_review(review.id, ReviewAction.REFUND, **given)
        assert (done.resolved, done.message) == (False, "refund success")
    assert state(key).refunded_amount == Decimal("5.00")
    without = {name: value for name, value in given.items() if name != "amount"}
    assert shop.resolve_review(review.id, ReviewAction.REFUND, **without) == done
    with pytest.raises(shop.RefundNotPossible, match=r"already names a refund of USD 5\.00"):
        shop.resolve_review(review.id, ReviewAction.REFUND, **given | {"amount": "4.00"})
    rest = [
        shop.resolve_review(review.id, ReviewAction.REFUND, **given | {"idempotency_key": "rest"})
        for _ in range(2)
    ]
    assert rest == [shop.ActionResult(resolved=True, message="refund success")] * 2
    with_key = shop.resolve_review(review.id, ReviewAction.REFUND, **without)
    assert (with_key.resolved, with_key.message) == (True, "refund success")
    with pytest.raises(shop.RefundNotPossible, match=r"already names a refund of USD 5\.00"):
        shop.resolve_review(review.id, ReviewAction.REFUND, **given | {"amount": "4.00"})
    assert shop.resolve_review(
        review.id,
        ReviewAction.REFUND,
        **given | {"idempotency_key": "more"},
    ).message.startswith("ann had resolved")
    assert state(key).refunded_amount == Decimal("10.00")


def test_order_in_doubt_can_be_accepted(world: World) -> None:
    """The order says that it is in doubt, and staff can accept its review."""
    key = world.order("13.43")
    payment = world.start(key)
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.notification(payment)
    assert (state(key).reported_paid, state(key).is_paid) == (True, False)
    (review,) = shop.open_reviews(PLUGIN, order_keys=[key])
    assert (review.reason, review.reference, review.order_key) == (
        ReviewReason.AMOUNT_MISMATCH,
        payment.reference,
        key,
    )
    assert review.actions[0] is ReviewAction.ACCEPT_AS_PAID
    with pytest.raises(TillgateError):
        shop.resolve_review(
            review.id,
            ReviewAction.ACCEPT_AS_PAID,
            staff="ann",
            version="read-long-ago",
        )
    assert shop.resolve_review(
        review.id,
        ReviewAction.ACCEPT_AS_PAID,
        staff="ann",
        version=review.version,
    ).resolved
    assert state(key).held_amount == Decimal("13.44")
    assert review.id not in {one.id for one in shop.open_reviews(PLUGIN, order_keys=[key])}


def test_reviews_found_by_order_and_reason(world: World) -> None:
    """Reviews can also be found by key prefix and account."""
    key = paid_order(world)
    shop.open_review(state(key).payments[0].id, "The seat was sold twice.", actor=PLUGIN)
    (review,) = shop.open_reviews(PLUGIN)
    assert review.message == "The seat was sold twice."
    for chosen in (
        {"order_keys": [key]},
        {"prefix": key},
        {"accounts": ["default"]},
        {"account_prefix": "def"},
    ):
        assert shop.open_reviews(PLUGIN, **chosen) == (review,), chosen
    assert shop.open_reviews(PLUGIN, order_keys=[f"{key}0"]) == ()
    assert shop.open_reviews(PLUGIN, reasons=[ReviewReason.UNDERPAID]) == ()
    assert shop.open_reviews("another") == ()


def test_more_open_reviews_cost_no_more_statements(world: World) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            shop.open_reviews(PLUGIN)
        return len(captured)

    counts = []
    for _ in range(2):
        shop.open_review(
            state(paid_order(world)).payments[0].id, "The seat was sold twice.", actor=PLUGIN
        )
        counts.append(statements())
    assert counts == [2, 2]


def test_review_names_withdrawable_refund(
    world: World,
) -> None:
    """The review names the newest refund and the queued one that staff can withdraw."""
    key = paid_order(world)
    payment = state(key).payments[0]
    sent = shop.refund(payment.id, "1.00")
    shop.open_review(payment.id, "The seat was sold twice.", actor=PLUGIN)
    (review,) = shop.open_reviews(PLUGIN)
    assert (review.newest_refund, review.withdraws) == (sent.id, None)
    assert ReviewAction.WITHDRAW not in review.actions
    with transaction.atomic():
        queued = shop.refund(payment.id, "2.00")
        transaction.get_connection().run_on_commit.clear()
    (review,) = shop.open_reviews(PLUGIN)
    assert (review.newest_refund, review.withdraws) == (queued.id, queued)
    assert ReviewAction.WITHDRAW in review.actions


def test_same_case_opens_one_review(world: World) -> None:
    """The shop can close the review without staff."""
    key = paid_order(world)
    for _ in range(2):
        shop.open_review(state(key).payments[0].id, "The seat was sold twice.", actor=PLUGIN)
    (review,) = shop.open_reviews(PLUGIN)
    assert shop.count_open_reviews() == 1
    shop.close_reviews([review.id], "the seat is free again")
    assert shop.count_open_reviews() == 0
    assert Review.objects.get().resolution == "the seat is free again"


def test_i11_shop_values_show_no_secret(
    world: World,
    settings: Any,
) -> None:
    """No review, result or timeline contains a secret."""
    key = paid_order(world)
    payment = Payment.objects.get(order__key=key)
    shop.open_review(str(payment.pk), f"Look at {payment.notification_key}.", actor=PLUGIN)
    (review,) = shop.open_reviews(PLUGIN)
    assert payment.notification_key not in review.message
    shown = str([(line.message, line.evidence) for line in shop.timeline(PLUGIN, key)])
    assert shown
    assert payment.notification_key not in shown


def test_newest_reviews_are_limited_but_counted(
    world: World,
) -> None:
    """Prefix and accounts select the reviews, and the count includes all of them."""
    keys = [paid_order(world), paid_order(world)]
    for key in keys:
        world.time.advance(minutes=1)
        shop.open_review(state(key).payments[0].id, "The seat was sold twice.", actor=PLUGIN)
    Review.objects.create(
        reason="account-gone",
        account="default",
        facts={"detail": "It is gone."},
        opened_at=shop.now(),
    )
    count, reviews = shop.newest_reviews(PLUGIN, prefix="", accounts=["default"], at_most=2)
    assert (count, [review.order_key for review in reviews]) == (3, ["", keys[1]])
    count, reviews = shop.newest_reviews(PLUGIN, prefix=keys[0], accounts=["another"], at_most=2)
    assert (count, [review.order_key for review in reviews]) == (1, [keys[0]])


# Remote events ------------------------------------------------------------------------------------


def test_remote_events_keep_status_and_data(
    world: World,
) -> None:
    """A shop can find its remote events and add data to them."""
    key = paid_order(world)
    payment = state(key).payments[0]
    event = shop.enqueue_remote(PLUGIN, key, "mail", payment_id=payment.id, data={"to": "ann"})
    shop.set_remote_data(event, dropped=True)
    (mail,) = shop.remote_events(PLUGIN, order_key=key, name="mail")
    assert (mail.event_id, mail.data, mail.status) == (
        event,
        {"to": "ann", "dropped": True},
        "waiting",
    )
    assert shop.remote_events(PLUGIN, payment_id=payment.id) == (mail,)
    assert shop.remote_events(PLUGIN, order_key=key, name="other") == ()
    assert OutboxEvent.objects.get(event_id=event).done_at is None


# Staff pages and views ----------------------------------------------------------------------------


def test_badge_names_payment_or_refund_status(world: World) -> None:
    key = paid_order(world)
    asked = shop.refund_order(PLUGIN, key, CENT)
    assert "refunded" in shop.badge_of(asked)
    assert "paid" in shop.badge_of(state(key).payments[0])


def test_staff_learn_outcome_of_refund(world: World, rf: RequestFactory) -> None:
    asked = shop.refund_order(PLUGIN, paid_order(world), CENT)
    request = rf.get("/")
    request.session = {}  # type: ignore[assignment]
    from django.contrib.messages.storage.cookie import CookieStorage

    request._messages = CookieStorage(request)  # type: ignore[attr-defined]
    shop.say_refund(request, asked.id)
    assert ["0.01" in str(message) for message in get_messages(request)] == [True]


def test_admin_address_needs_permission(rf: RequestFactory) -> None:
    """Only a user who may view the record gets its address in the admin."""
    request = rf.get("/")
    request.user = SimpleNamespace(is_staff=True, has_perm=lambda _: False)  # type: ignore[assignment]
    assert shop.admin_url(request, "payment", "1") == ""
    request.user = SimpleNamespace(
        is_staff=True,
        has_perm=lambda name: name == "tillgate.view_payment",
    )  # type: ignore[assignment]
    assert shop.admin_url(request, "payment", "1").endswith("/payment/1/change/")


def test_notification_at_own_address_is_hint(
    world: World,
    rf: RequestFactory,
) -> None:
    """A notification at an address of the shop is checked by a query as well."""
    key = world.order("10.00")
    payment = world.start(key)
    world.shopper_pays(payment)
    request = rf.post("/hook/", {"reference": payment.reference, "status": "failed"})
    shop.receive_notification(str(payment.pk), shop.read_request(request), "POST")
    assert state(key).is_paid
    assert shop.acknowledge(str(payment.pk)).status_code == 200
    assert world.client.get(shop.return_path(str(payment.pk))).status_code in (200, 302)


def test_shopper_continues_only_on_open_page(world: World) -> None:
    key = world.order("10.00")
    payment = world.start(key)
    assert shop.may_continue(str(payment.pk))
    assert not shop.wait_for_creation(str(payment.pk)), "it was created already"
    shop.close_order(PLUGIN, key)
    assert not shop.may_continue(str(payment.pk))


def test_payment_being_created_is_waited_for(world: World) -> None:
    payment = world.start(world.order("10.00"))
    page = payment.payment_url
    Payment.objects.filter(pk=payment.pk).update(payment_url="")

    def create() -> None:
        time.sleep(0.3)
        Payment.objects.filter(pk=payment.pk).update(payment_url=page)

    waited, _ = together(lambda: shop.wait_for_creation(str(payment.pk)), create)
    assert waited is True


# Accounts -----------------------------------------------------------------------------------------


def test_account_check_moves_no_money(world: World) -> None:
    """An account is found by its name and can be checked."""
    account = shop.find_account("default")
    assert shop.check_account(account, seconds=5).passed
    stranger = account.model_copy(
        update={"token": type(account.token)("of somebody else, and long enough to be one")},
    )
    check = shop.check_account(stranger, seconds=5)
    assert not check.passed
    assert "token" in check.finding
    with pytest.raises(ConfigurationError, match="gone"):
        shop.find_account("gone")


# Settings and checks ------------------------------------------------------------------------------


def test_unknown_settings_key_suggests_nearest(
    settings: Any,
) -> None:
    """A model reads the settings, and the error suggests the key that was meant."""
    from pydantic import BaseModel

    class Model(BaseModel):
        paid_status: str = "Paid"

    load = shop.SettingsLoader("SHOP_TEST", Model)
    assert load().paid_status == "Paid"
    settings.SHOP_TEST = {"PAID_STATUS": "Done"}
    assert load().paid_status == "Done"
    for wrong, remedy in (
        (["x"], "must be a dictionary"),
        ({"PAID_STATSU": "x"}, "PAID_STATUS"),
        ({"PAID_STATUS": 1}, "PAID_STATUS"),
    ):
        settings.SHOP_TEST = wrong
        with pytest.raises(ConfigurationError, match=remedy):
            load()


def test_inner_setting_error_names_place(settings: Any) -> None:
    """The error does not show a secret."""
    from pydantic import BaseModel, Field, field_validator

    class Inner(BaseModel):
        colour: str

    class Outer(BaseModel):
        inner: Inner | None = None
        key: int = Field(default=0, repr=False)

        @field_validator("inner", mode="before")
        @classmethod
        def _read(cls, given: object) -> Inner:
            return shop.read_settings("SHOP_TEST['INNER']", given, Inner)

    load = shop.SettingsLoader("SHOP_TEST", Outer)
    settings.SHOP_TEST = {"INNER": {"COLOR": "red"}}
    with pytest.raises(ConfigurationError, match=r"SHOP_TEST\['INNER'\].*COLOUR"):
        load()
    settings.SHOP_TEST = {"KEY": "a secret"}
    with pytest.raises(ConfigurationError, match="KEY") as raised:
        load()
    assert "a secret" not in str(raised.value) + repr(raised.value)
    settings.SHOP_TEST = {"INNER": {"COLOUR": "red"}}
    assert load().inner == Inner(colour="red")


def test_check_set_runs_for_own_app() -> None:
    """The checks run when their app is chosen and when all apps are."""
    found = shop.CheckSet("shop_test")

    @found.area
    def check_colour() -> shop.Found:
        yield found.error(1, "The colour is missing.", "Set it.")

    @found.database_area
    def check_rows() -> shop.Found:
        yield found.warning(2, "A row is missing.", "Add it.")

    assert [one.id for one in found.run(None)] == ["shop_test.E001"]
    assert found.run([SimpleNamespace(label="another")]) == []
    assert [one.id for one in found.run_on_databases(None, ["default"])] == ["shop_test.W002"]
    assert found.run_on_databases(None, None) == []
