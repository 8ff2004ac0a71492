"""`{% load tillgate_admin %}`: the count of open reviews, for the admin's index."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context

register = template.Library()


@register.inclusion_tag("tillgate/admin/needs_review.html", takes_context=True)
def review_banner(context: Context) -> dict[str, Any]:
    """Show the count of open reviews, and the way to the health page, on Tillgate's page of the
    admin's index.
    """
    from tillgate.django.pages.admin.base import (
        # here: Django loads every module of tags, also in projects without the admin
        banner_context,
    )

    return banner_context(context["request"])
