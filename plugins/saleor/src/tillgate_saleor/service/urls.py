"""The addresses of the service."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("payments/", include("tillgate.django.urls")),
    path("", include("tillgate_saleor.urls")),
]
