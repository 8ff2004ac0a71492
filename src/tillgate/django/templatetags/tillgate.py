"""`{% load tillgate %}`: the vendor choice, and the address where an order can be paid."""

from __future__ import annotations

from typing import Any

from django import template

from tillgate.django.assets import asset_url
from tillgate.django.forms import VendorForm
from tillgate.django.tickets import pay_url

register = template.Library()


@register.inclusion_tag("tillgate/vendor_choice.html")
def vendor_choice(form: VendorForm | None = None) -> dict[str, Any]:
    """Render the choice of vendors as a fieldset of radio buttons, for a form of the shop's own."""
    return {"form": form or VendorForm()}


register.simple_tag(pay_url, name="pay_url")
register.simple_tag(asset_url, name="asset_url")
