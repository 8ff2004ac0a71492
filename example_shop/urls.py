"""The shop's addresses. The second line of `urlpatterns` is all that Tillgate needs."""

from django.apps import apps
from django.conf import settings
from django.conf.urls.static import static
from django.contrib import admin
from django.urls import include, path
from oscar.views import handler403, handler404, handler500

from example_shop.views import Home

__all__ = ["handler403", "handler404", "handler500", "urlpatterns"]

urlpatterns = [
    path("", Home.as_view(), name="home"),
    path("payments/", include("tillgate_oscar.urls")),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    # Oscar's own
    path("", include(apps.get_app_config("oscar").urls[0])),  # type: ignore[attr-defined]
    # with DEBUG on only; else the web server's work
    *static(settings.MEDIA_URL, document_root=settings.MEDIA_ROOT),
]
