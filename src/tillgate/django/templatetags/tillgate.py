"""`{% load tillgate %}`: the payment method choice, amounts, the shop, the test mode, and the
address where an order can be paid.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.urls import get_script_prefix

from tillgate.django.accounts import find_account
from tillgate.django.amounts import money_text
from tillgate.django.conf import get_settings
from tillgate.django.pages.assets import asset_url
from tillgate.django.pages.forms import MethodForm
from tillgate.django.pages.tickets import pay_url
from tillgate.errors import TillgateError

register = template.Library()


@register.inclusion_tag("tillgate/method_choice.html")
def method_choice(form: MethodForm | None = None) -> dict[str, Any]:
    """Render the choice of payment methods as a fieldset of radio buttons, for a form of the shop's
    own.
    """
    return {"form": form or MethodForm()}


@register.inclusion_tag("tillgate/test_mode.html", name="test_mode")
def say_test_mode(sandbox: object = "") -> dict[str, bool]:
    """Say that no money moves, on a page of a sandbox's payment. Without a payment the account
    `default` decides.
    """
    if isinstance(sandbox, bool):
        return {"is_test": sandbox}
    with suppress(TillgateError):  # a shop that names the accounts of payments needs no `default`
        return {"is_test": find_account("default").sandbox}
    return {"is_test": False}


@register.simple_tag
def shop() -> dict[str, str]:
    """Return the name of the shop, and its front page on this host: several sites may share a
    database.
    """
    settings = get_settings()
    return {
        "name": settings.shop_name or urlsplit(settings.public_url).netloc,
        "url": get_script_prefix(),
    }


register.filter("money", money_text)
register.simple_tag(pay_url, name="pay_url")
register.simple_tag(asset_url, name="asset_url")
