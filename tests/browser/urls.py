"""The addresses of the shop in the browser: Tillgate's pages under a strict content security
policy, the admin, and an order's page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, include, path

from tests.smallest_shop.models import ShopOrder
from tillgate.django import urls

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri "
    "'none'; frame-ancestors 'none'; "
    "form-action 'self'"
)


def _strict(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    @functools.wraps(view)
    def shown(request: HttpRequest, *arguments: Any, **names: Any) -> HttpResponse:
        response = view(request, *arguments, **names)
        response["Content-Security-Policy"] = POLICY
        return response

    return shown


def _order(request: HttpRequest, key: str) -> HttpResponse:
    order = ShopOrder.objects.get(pk=key)
    page = (
        f'<!doctype html><html lang="en"><title>Order {key}</title><main><h1>Order {key} is '
        f"{order.status}</h1></main></html>"
    )
    return HttpResponse(page)


_ours = [URLPattern(one.pattern, _strict(one.callback), name=one.name) for one in urls.urlpatterns]

urlpatterns = [
    path("admin/", admin.site.urls),
    path("payments/", include((_ours, urls.app_name))),
    path("orders/<str:key>/", _order),
    path("favicon.ico", lambda request: HttpResponse(status=204)),
]
