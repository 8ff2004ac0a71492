"""`{% load tillgate_admin %}`: the style and the count of open reviews, for the admin's pages."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def admin_css() -> SafeString:
    """Return the link to the style of our pages in the admin."""
    return format_html('<link rel="stylesheet" href="{}">', static("tillgate/admin.css"))


@register.inclusion_tag("tillgate/admin/needs_review.html", takes_context=True)
def review_banner(context: Context) -> dict[str, Any]:
    """Show the count of open reviews, and the way to the health page, on Tillgate's page of the admin's index."""
    from django.contrib.admin import site  # here, since Django loads every module of tags, also in projects without the admin

    from tillgate.django.admin.base import banner_context

    request = context["request"]
    return banner_context(request, getattr(request, "current_app", site.name))
