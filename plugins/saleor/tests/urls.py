"""The App's addresses, and those of a storefront that stands for any."""

from django.contrib import admin
from django.urls import include, path

from tests import storefront

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("tillgate_saleor.urls")),
    path("payments/", include("tillgate.django.urls")),
    path("storefront/<str:source_id>/pay/", storefront.pay, name="storefront-pay"),
    path("storefront/back/", storefront.back, name="storefront-back"),
]
