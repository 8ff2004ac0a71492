"""Tillgate's pages, and the bare view."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from tools.benchmarks.shop.models import Posted


@csrf_exempt
def bare(request: HttpRequest) -> HttpResponse:
    """Insert the posted text and acknowledge it: the least work of any shop that keeps
    notifications.
    """
    Posted(at=timezone.now(), body=request.body.decode()).save(force_insert=True)
    return HttpResponse("success", content_type="text/plain")


def page(request: HttpRequest) -> HttpResponse:
    """Answer immediately: the page of a visitor that buys nothing."""
    return HttpResponse("a page of the shop", content_type="text/plain")


urlpatterns = [
    path("bare/", bare),
    path("page/", page),
    path("payments/", include("tillgate.django.urls")),
]
