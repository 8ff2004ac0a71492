"""`{% load tillgate %}`: the payment method choice, and the address where an order can be paid."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import template
from django.template.defaultfilters import floatformat

from tillgate import money
from tillgate.django.assets import asset_url
from tillgate.django.forms import MethodForm
from tillgate.django.tickets import pay_url

register = template.Library()


@register.inclusion_tag("tillgate/method_choice.html")
def method_choice(form: MethodForm | None = None) -> dict[str, Any]:
    """Render the choice of payment methods as a fieldset of radio buttons, for a form of the shop's own."""
    return {"form": form or MethodForm()}


@register.filter
def unrounded(amount: Decimal) -> str:
    """Return an order's amount with its cents and any smaller fractions: Tillgate refuses fractions, and the page must show them."""
    finest = amount.normalize(money.EXACT).as_tuple().exponent
    return str(floatformat(amount, max(2, -finest if isinstance(finest, int) else 0)))


register.simple_tag(pay_url, name="pay_url")
register.simple_tag(asset_url, name="asset_url")
