"""The addresses of the service."""

from django.contrib import admin
from django.urls import include, path

from tillgate_saleor.service.health import health

admin.site.site_url = None  # there is no site beside the admin to link to

urlpatterns = [
    path("admin/", admin.site.urls),
    path("health/", health),
    path("payments/", include("tillgate.django.urls")),
    path("", include("tillgate_saleor.urls")),
]
