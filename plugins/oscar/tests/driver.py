"""The driver: how tests talk to an Oscar shop."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.test import Client, override_settings
from django.urls import reverse
from oscar.core.loading import get_class, get_model
from oscar.test.factories import create_product

from tests.shopper import Shopper
from tillgate import shop
from tillgate.testing.driver import ShopDriver, pay_link
from tillgate_oscar.conf import get_settings


class OscarDriver(ShopDriver):
    """Places orders through Oscar's own checkout, and looks at Oscar's own records."""

    plugin = "oscar"

    def _order(self, order_key: str) -> Any:
        return get_model("order", "Order").objects.get(number=order_key)

    def place_order(self, total: Decimal) -> str:
        placed = Shopper().buys(
            create_product(price=total, num_in_stock=5),
            method=shop.payment_methods()[0].code,
        )
        assert placed["Location"].startswith("/payments/start/"), placed.content.decode()
        return str(get_model("order", "Order").objects.latest("pk").number)

    def pay_path(self, order_key: str) -> str | None:
        """Look at the order's page, as a guest comes to it: by the link in Oscar's mail, and with
        the address that the mail went to.
        """
        order = self._order(order_key)
        form = reverse("customer:anon-order-form", args=[order_key, order.verification_hash()])
        return pay_link(Client().post(form, {"email": order.guest_email}, follow=True))

    def is_paid(self, order_key: str) -> bool:
        return bool(self._order(order_key).status == get_settings().paid_status)

    def times_paid(self, order_key: str) -> int:
        order = self._order(order_key)
        debits = (
            get_model("payment", "Transaction")
            .objects.filter(source__order=order, txn_type="Debit")
            .count()
        )
        events = order.payment_events.filter(event_type__name=get_settings().paid_event).count()
        changes = order.status_changes.filter(new_status=get_settings().paid_status).count()
        return int(max(debits, events, changes))

    def paid_amount(self, order_key: str) -> Decimal:
        sums = self._order(order_key).sources.aggregate(sum=Sum("amount_debited"))
        return sums["sum"] or Decimal(0)

    def refunded(self, order_key: str) -> Decimal:
        order = self._order(order_key)
        total: Decimal = order.sources.aggregate(sum=Sum("amount_refunded"))["sum"] or Decimal(0)
        events = order.payment_events.filter(
            event_type__name=get_settings().refund_event,
        ).aggregate(sum=Sum("amount"))["sum"]
        assert total == (events or 0), (total, events)
        return total

    def is_payable(self, order_key: str) -> bool:
        return bool(self._order(order_key).status == get_settings().pending_status)

    def is_released(self, order_key: str) -> bool:
        order = self._order(order_key)
        held = sum(line.num_allocated for line in order.lines.all())
        return bool(order.status == get_settings().cancelled_status and held == 0)

    def times_released(self, order_key: str) -> int:
        order = self._order(order_key)
        stock = [line.stockrecord for line in order.lines.all()]
        assert all(record.num_allocated == 0 for record in stock), (
            "a record of the stock allocates less than nothing, or more"
        )
        return int(order.status_changes.filter(new_status=get_settings().cancelled_status).count())

    def close_order(self, order_key: str) -> None:
        with transaction.atomic():
            get_class("order.processing", "EventHandler")().handle_order_status_change(
                self._order(order_key),
                "Cancelled",
            )

    def edit_total(self, order_key: str, total: Decimal) -> None:
        get_model("order", "Order").objects.filter(number=order_key).update(
            total_incl_tax=total,
            total_excl_tax=total,
        )

    def place_free_order(self) -> str:
        """Oscar's own checkout skips the payment step; its status pipeline says where such an order
        goes.
        """
        shopper = Shopper()
        with override_settings(OSCAR_INITIAL_ORDER_STATUS=get_settings().paid_status):
            shopper.adds(create_product(price=Decimal("0.00"), num_in_stock=5))
            shopper.says_where()
            assert shopper.get("/checkout/payment-method/")["Location"] == "/checkout/preview/"
            assert shopper.places()["Location"] == "/checkout/thank-you/"
        return str(get_model("order", "Order").objects.latest("pk").number)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        """One that was placed while the shop sold in that currency: its checkout would not have let
        it be paid with Tillgate.
        """
        order_key = self.place_order(total)
        get_model("order", "Order").objects.filter(number=order_key).update(currency=currency)
        return order_key

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        """Oscar's own checkout takes no money: the staff notes that it came by bank transfer."""
        shopper = Shopper()
        with override_settings(
            TILLGATE_OSCAR={"OTHER_WAYS_TO_PAY": True},
            OSCAR_INITIAL_ORDER_STATUS="Pending payment",
        ):
            shopper.adds(create_product(price=total, num_in_stock=5))
            shopper.says_where()
            assert (
                shopper.get("/checkout/payment-method/?others=1")["Location"]
                == "/checkout/payment-details/"
            )
            assert shopper.get("/checkout/payment-details/").status_code == 200
            assert shopper.places()["Location"] == "/checkout/thank-you/"
        order = get_model("order", "Order").objects.latest("pk")
        with transaction.atomic():
            get_class("order.processing", "EventHandler")().handle_order_status_change(
                order,
                "Paid",
            )
        return str(order.number)
