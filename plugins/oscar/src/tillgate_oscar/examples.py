"""Every mail to shoppers about an invented order, for `manage.py tillgate mails`. It is not stored:
the shop's own code would hear of it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from oscar.core.loading import get_model

from tillgate import shop
from tillgate.gateways import NextStep
from tillgate.hooks import ExampleMail
from tillgate_oscar import mail
from tillgate_oscar.confirmation import name_method

_NUMBER: Final = "100042"
_CURRENCY: Final = "EUR"


def example_mails() -> list[ExampleMail]:
    """Return Oscar's mail about a paid order, and ours."""
    order = _example_order()
    method = shop.method_label("paypal")
    facts = {
        "pay_url": shop.absolute_url("tillgate:pay", "example"),
        "kept_until": shop.now() + timedelta(minutes=40),
        "amount": shop.money_text(order.total_incl_tax, _CURRENCY),
        "method": method,
        "awaited": shop.Awaited.of_step(None),
    }
    voucher = NextStep(url="https://pay.example/voucher", until=shop.now() + timedelta(days=3))
    facts_of_voucher = {**facts, "awaited": shop.Awaited.of_step(voucher)}
    return [
        _shown(order, "ORDER_PLACED", facts, paid_with=method),
        *(_shown(order, code, facts) for code in mail.EVENT_TYPES),
        replace(_shown(order, "TILLGATE_PAYMENT_WAITS", facts_of_voucher), name="voucher-waits"),
    ]


def _shown(
    order: Any,
    code: str,
    facts: dict[str, Any],
    *,
    paid_with: str = "",
) -> ExampleMail:
    dispatcher = mail.dispatcher_of(order).dispatcher
    name_method(dispatcher, paid_with)
    messages = dispatcher.get_messages(code, {**mail.context_of(order), **facts})
    return ExampleMail(
        name=code.lower().removeprefix("tillgate_").replace("_", "-"),
        subject=messages["subject"].strip(),
        text=messages["body"],
        html=messages["html"] or "",
    )


def _example_order() -> Any:
    """Return an order with lines that has no row; its lines are given as if they had been read."""
    model, line = get_model("order", "Order"), get_model("order", "Line")
    order = model(
        pk=0,
        number=_NUMBER,
        currency=_CURRENCY,
        total_incl_tax=Decimal("29.90"),
        total_excl_tax=Decimal("29.90"),
        shipping_incl_tax=Decimal("4.90"),
        shipping_excl_tax=Decimal("4.90"),
        guest_email="ada@shopper.example",
        shipping_address=get_model("order", "ShippingAddress")(
            first_name="Ada",
            last_name="Moss",
            line1="1 Mill Lane",
            line4="Springfield",
        ),
    )
    bought = (("Green tea", 2, "17.00"), ("Teapot", 1, "8.00"))
    lines = line._default_manager.none()
    lines._result_cache = [
        line(
            order=order,
            title=title,
            quantity=quantity,
            line_price_incl_tax=Decimal(price),
            line_price_excl_tax=Decimal(price),
        )
        for title, quantity, price in bought
    ]
    order._prefetched_objects_cache = {"lines": lines}
    return order
