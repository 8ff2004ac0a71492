"""The order's page: how it stands, and the way to pay it, first or again."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from tests.smallest_shop.models import ShopOrder
from tillgate import shop

__all__ = ["order_page"]


@login_not_required
def order_page(request: HttpRequest, key: str) -> HttpResponse:
    """Show an order. Other shops' tests lead their shoppers here too: of an order that is none of
    ours the page says nothing.
    """
    order = ShopOrder.objects.filter(pk=key).first() if key.isdecimal() else None
    page = "<p>Your order.</p>"
    if order and order.status == "open":
        page += format_html(
            '<p><a href="{}">Pay</a></p>',
            shop.pay_path("smallest-shop", str(order.pk)),
        )
    return HttpResponse(page)
