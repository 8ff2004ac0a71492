"""The entries of the dashboard's menu: the open reviews, counted, and the figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext
from oscar.core.loading import get_class

from tillgate import shop

__all__ = ["with_needs_person"]

_PAGE: Final = "admin:tillgate_review_changelist"
_FIGURES: Final = "admin:tillgate_payment_figures"


def with_needs_person(get_nodes: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """Return Oscar's function that lists the menu's entries, with ours at the end."""

    def get_nodes_and_ours(user: Any) -> list[Any]:
        return [*get_nodes(user), *_needs_person(user), *_figures(user)]

    return get_nodes_and_ours


def _needs_person(user: Any) -> list[Any]:
    if not _may_see(user, "tillgate.view_review", _PAGE):
        return []
    count = shop.count_open_reviews()
    label = gettext("Needs review (%(count)s)") % {"count": count} if count else gettext("Needs review")
    return [get_class("dashboard.nav", "Node")(label=label, url_name=_PAGE, icon="fas fa-bell")]


def _figures(user: Any) -> list[Any]:
    if not _may_see(user, "tillgate.view_payment", _FIGURES):
        return []
    return [get_class("dashboard.nav", "Node")(label=gettext("Payment figures"), url_name=_FIGURES, icon="fas fa-chart-bar")]


def _may_see(user: Any, permission: str, page: str) -> bool:
    """Tell whether the user has the permission to see a page of the admin, and the shop has the admin."""
    try:
        reverse(page)
    except NoReverseMatch:
        return False
    return bool(user.is_staff and user.has_perm(permission))
