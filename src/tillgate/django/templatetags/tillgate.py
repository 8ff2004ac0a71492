"""`{% load tillgate %}`: the payment method choice, amounts, and the address where an order can be paid."""

from __future__ import annotations

from typing import Any

from django import template

from tillgate.django.amounts import money_text
from tillgate.django.assets import asset_url
from tillgate.django.forms import MethodForm
from tillgate.django.tickets import pay_url

register = template.Library()


@register.inclusion_tag("tillgate/method_choice.html")
def method_choice(form: MethodForm | None = None) -> dict[str, Any]:
    """Render the choice of payment methods as a fieldset of radio buttons, for a form of the shop's own."""
    return {"form": form or MethodForm()}


register.filter("money", money_text)
register.simple_tag(pay_url, name="pay_url")
register.simple_tag(asset_url, name="asset_url")
