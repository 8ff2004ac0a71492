"""The admin with Tillgate's pages, and another with Django's own list of the payments."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from tillgate.django.models import Payment


class PlainAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic only for the type checker
    """The list of payments that Django gives for these options."""

    list_display = (
        "reference",
        "created_at",
        "amount",
        "method",
        "status",
        "order",
        "account",
    )
    list_filter = ("status", "method", "account", "created_at")
    search_fields = ("reference", "order__key", "transaction_no", "numbers__number", "last4")
    list_select_related = ("order",)
    list_per_page = 50
    ordering = ("-id",)


plain = admin.AdminSite("plain")
plain.register(Payment, PlainAdmin)

urlpatterns = [
    path("admin/", admin.site.urls),
    path("plain/", plain.urls),
    path("payments/", include("tillgate.django.urls")),
]
