"""The addresses of the test project: Tillgate's pages, the admin, and the page of an order that the smallest shop leads back to."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def order_page(request: HttpRequest, key: str) -> HttpResponse:
    """Show an order."""
    return HttpResponse("Your order.")


urlpatterns = [
    path("admin/", admin.site.urls),
    path("payments/", include("tillgate.django.urls")),
    path("orders/<str:key>/", order_page),
]
