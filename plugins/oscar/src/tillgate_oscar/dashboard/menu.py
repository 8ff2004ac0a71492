"""The entries of the dashboard's menu: the open reviews with their count, and the health of the payments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext
from oscar.core.loading import get_class

from tillgate import shop

__all__ = ["with_needs_person"]

_PAGE: Final = "admin:tillgate_review_changelist"
_HEALTH: Final = "admin:tillgate_review_health"


def with_needs_person(get_nodes: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """Return Oscar's function that lists the menu's entries, with ours at the end."""

    def get_nodes_and_ours(user: Any) -> list[Any]:
        return [*get_nodes(user), *_needs_person(user)]

    return get_nodes_and_ours


def _needs_person(user: Any) -> list[Any]:
    """Return the entries for users with the permission to see their pages, which are the admin's."""
    if not (user.is_staff and user.has_perm("tillgate.view_review")):
        return []
    try:
        reverse(_PAGE)
    except NoReverseMatch:  # a shop without the admin
        return []
    count = shop.count_open_reviews()
    label = gettext("Needs review (%(count)s)") % {"count": count} if count else gettext("Needs review")
    node = get_class("dashboard.nav", "Node")
    entries = [node(label=label, url_name=_PAGE, icon="fas fa-bell")]
    if user.has_perm("tillgate.view_payment"):
        entries.append(node(label=gettext("Payment health"), url_name=_HEALTH, icon="fas fa-heartbeat"))
    return entries
