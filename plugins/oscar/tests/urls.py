"""The addresses of the test shop, as the README gives them."""

from django.apps import apps
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("i18n/", include("django.conf.urls.i18n")),
    path("admin/", admin.site.urls),
    path("payments/", include("tillgate_oscar.urls")),
    *([path("api/", include("oscarapi.urls"))] if apps.is_installed("oscarapi") else []),
    # of Oscar's config
    path("", include(apps.get_app_config("oscar").urls[0])),  # type: ignore[attr-defined]
]
