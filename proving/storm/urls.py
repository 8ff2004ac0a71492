"""The shop's own page, which sends a shopper on with the authority to pay one order, and
Tillgate's.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseRedirect
from django.urls import include, path

from tillgate.django.pages.tickets import pay_url


def check_out(request: HttpRequest, order_key: str) -> HttpResponseRedirect:
    """Send the shopper to where the order can be paid."""
    return HttpResponseRedirect(pay_url("benchmark-shop", order_key))


urlpatterns = [
    path("checkout/<slug:order_key>/", check_out),
    path("payments/", include("tillgate.django.urls")),
]
