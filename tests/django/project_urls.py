"""The addresses of the test project: Tillgate's pages, the admin, and the page of an order that the
smallest shop leads back to.
"""

from django.contrib import admin
from django.urls import include, path

from tests.smallest_shop.views import order_page

urlpatterns = [
    path("admin/", admin.site.urls),
    path("payments/", include("tillgate.django.urls")),
    path("orders/<str:key>/", order_page),
]
