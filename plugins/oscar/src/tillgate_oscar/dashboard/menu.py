"""The entries of the dashboard's menu, which lead to pages of the admin: reviews with their count,
health and figures of the payments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from oscar.core.loading import get_class

from tillgate import shop

_REVIEWS: Final = "admin:tillgate_review_changelist"
_PAGES: Final[tuple[tuple[str, str | Promise, str, tuple[str, ...]], ...]] = (
    (_REVIEWS, _("Needs review"), "fas fa-bell", ("view_review",)),
    (
        "admin:tillgate_review_health",
        _("Payment health"),
        "fas fa-heartbeat",
        ("view_review", "view_payment"),
    ),
    ("admin:tillgate_payment_figures", _("Payment figures"), "fas fa-chart-bar", ("view_payment",)),
)
"""Each page, its label and icon, and the permissions that it needs."""


def with_pages(get_nodes: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """Return Oscar's function that lists the menu's entries, with ours at the end."""

    def get_nodes_and_ours(user: Any) -> list[Any]:
        node = get_class("dashboard.nav", "Node")
        ours = [
            (page, label, icon)
            for page, label, icon, needed in _PAGES
            if _may_see(user, page, needed)
        ]
        return [
            *get_nodes(user),
            *(
                node(label=_counted(page, label), url_name=page, icon=icon)
                for page, label, icon in ours
            ),
        ]

    return get_nodes_and_ours


def _counted(page: str, label: str | Promise) -> str:
    count = shop.count_open_reviews() if page == _REVIEWS else 0
    return gettext("Needs review (%(count)s)") % {"count": count} if count else str(label)


def _may_see(user: Any, page: str, needed: tuple[str, ...]) -> bool:
    """Tell whether the user has the permissions to see a page of the admin, and the shop has the
    admin.
    """
    try:
        reverse(page)
    except NoReverseMatch:
        return False
    return bool(user.is_staff and user.has_perms([f"tillgate.{name}" for name in needed]))
