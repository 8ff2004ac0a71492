"""The driver: how tests talk to a real pretix."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import Sum
from django.utils.timezone import now
from django_scopes import scope, scopes_disabled
from pretix.base.models import (
    Event,
    LogEntry,
    Order,
    OrderPayment,
    OrderPosition,
    OrderRefund,
    Organizer,
)
from pretix.base.services.orders import OrderChangeManager, cancel_order
from pretix.base.signals import order_placed
from pretix.multidomain.urlreverse import eventreverse

from tillgate import GatewayProfile
from tillgate.testing.driver import ShopDriver
from tillgate_pretix.accounts import settings_of
from tillgate_pretix.orders import METHODS


class PretixDriver(ShopDriver):
    """One event in test mode, which frees the places of an order as soon as nobody can pay it any
    more, and takes no late money.
    """

    plugin = "pretix"

    def __init__(self) -> None:
        self.account: dict[str, str] = {}

    # What a test needs ----------------------------------------------------------------------------

    def event(self) -> Any:
        """Return the event, with its products. Tests empty the tables, so that it is made anew."""
        with scopes_disabled():
            found = Event.objects.select_related("organizer").filter(slug="conf").first()
        if found is not None:
            return found
        organizer = Organizer.objects.create(name="Organizer", slug="org")
        event = Event.objects.create(
            organizer=organizer,
            name="Conference",
            slug="conf",
            currency="USD",
            date_from=now() + timedelta(days=90),
            plugins="tillgate_pretix,pretix.plugins.banktransfer",
            live=True,
            testmode=True,
        )
        with scope(organizer=organizer):
            quota = event.quotas.create(name="Tickets", size=100)
            quota.items.add(event.items.create(name="Ticket", default_price=Decimal("12.50")))
            return event

    def _configure(self, event: Any) -> None:
        event.settings.payment_term_accept_late = False
        ours = settings_of(event)
        ours.set("_enabled", True)  # pretix's own
        ours.set("expire_unpaid", True)
        for method in METHODS:
            ours.set(f"method_{method}", True)
        for name, value in self.account.items():
            ours.set(name, value)

    def order(self, order_key: str) -> Any:
        """Return pretix's order as it now stands."""
        with scopes_disabled():
            return Order.objects.select_related("event__organizer").get(pk=order_key)

    # What the kit asks for ------------------------------------------------------------------------

    def use_account(self, base_url: str, merchant_no: str, token: str, **options: str) -> None:
        given = {
            "base_url": base_url,
            "merchant_no": merchant_no,
            "token": token,
            "dialect": "",
            "store_no": "",
            "currencies": "",
            **options,
        }
        self.account = {f"test_{name}": value for name, value in given.items()}
        dialect = GatewayProfile.named(given["dialect"] or "reference")
        # pretix asks for no address of such a gateway; the tests' is an emulator
        if dialect and dialect.is_of_plugin:
            for name in ("base_url", "sandbox_url"):
                object.__setattr__(dialect, name, base_url)
        # pretix keeps settings in clear: a log of SQL shows what the owner saves. What is tried is
        # what happens with it afterwards.
        was_logged, connection.force_debug_cursor = connection.force_debug_cursor, False
        try:
            self._configure(self.event())
        finally:
            connection.force_debug_cursor = was_logged

    def place(self, provider: str, total: Decimal) -> Any:
        event = self.event()
        with scope(organizer=event.organizer), transaction.atomic():
            order = Order.objects.create(
                event=event,
                email="shopper@example.org",
                status=Order.STATUS_PENDING,
                testmode=True,
                datetime=now(),
                expires=now() + timedelta(days=10),
                total=total,
                sales_channel=event.organizer.sales_channels.get(identifier="web"),
            )
            OrderPosition.objects.create(
                order=order,
                item=event.items.get(),
                variation=None,
                price=total,
                positionid=1,
            )
            order.create_transactions()
            order.payments.create(
                provider=provider,
                amount=total,
                state=OrderPayment.PAYMENT_STATE_CREATED,
                process_initiated=True,
            )
            order_placed.send(event, order=order, bulk=False)
        return order

    def place_order(self, total: Decimal) -> str:
        return str(self.place("tillgate_alipay", total).pk)

    def pay_path(self, order_key: str) -> str:
        order = self.order(order_key)
        with scope(organizer=order.event.organizer):
            return str(
                eventreverse(
                    order.event,
                    "presale:event.order.pay.change",
                    kwargs={"order": order.code, "secret": order.secret},
                ),
            )

    def is_paid(self, order_key: str) -> bool:
        return bool(self.order(order_key).status == Order.STATUS_PAID)

    def times_paid(self, order_key: str) -> int:
        return int(
            LogEntry.objects.filter(
                action_type="pretix.event.order.paid",
                object_id=order_key,
            ).count(),
        )

    def paid_amount(self, order_key: str) -> Decimal:
        """Add up all money that came for the order: pretix books a second payment too, so that it
        can refund it.
        """
        booked = (OrderPayment.PAYMENT_STATE_CONFIRMED, OrderPayment.PAYMENT_STATE_REFUNDED)
        with scopes_disabled():
            rows = OrderPayment.objects.filter(order_id=order_key, state__in=booked)
            return rows.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)

    def refunded(self, order_key: str) -> Decimal:
        refunded_amount = (OrderRefund.REFUND_STATE_DONE, OrderRefund.REFUND_STATE_EXTERNAL)
        with scopes_disabled():
            rows = OrderRefund.objects.filter(order_id=order_key, state__in=refunded_amount)
            return rows.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)

    def is_payable(self, order_key: str) -> bool:
        order = self.order(order_key)
        with scope(organizer=order.event.organizer):
            return bool(
                order.status == Order.STATUS_PENDING
                and order.pending_sum > 0
                and order._can_be_paid() is True,
            )

    def is_released(self, order_key: str) -> bool:
        return self.order(order_key).status in (Order.STATUS_EXPIRED, Order.STATUS_CANCELED)

    def times_released(self, order_key: str) -> int:
        ends = ("pretix.event.order.expired", "pretix.event.order.canceled")
        return int(LogEntry.objects.filter(action_type__in=ends, object_id=order_key).count())

    def close_order(self, order_key: str) -> None:
        order = self.order(order_key)
        with scope(organizer=order.event.organizer):
            cancel_order(order.pk, send_mail=False)

    def edit_total(self, order_key: str, total: Decimal) -> None:
        order = self.order(order_key)
        with scope(organizer=order.event.organizer):
            change = OrderChangeManager(order, notify=False)
            change.change_price(order.positions.get(), total)
            change.commit()

    def place_free_order(self) -> str:
        """pretix's own provider of free orders confirms them at once."""
        order = self.place("free", Decimal("0.00"))
        with scope(organizer=order.event.organizer):
            order.payments.get().confirm()
        return str(order.pk)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        """Let the event sell in that currency from now on."""
        event = self.event()
        event.currency = currency
        event.save(update_fields=["currency"])
        return str(self.place("manual", total).pk)

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        order = self.place("manual", total)
        with scope(organizer=order.event.organizer):
            order.payments.get().confirm()
        return str(order.pk)
