"""The search box of the dashboard's first page and of its list of orders, and the filter for money
in doubt.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from django.conf import settings as project
from django.db.models import Q
from django.http import HttpRequest
from django.template.loader import select_template
from django.utils.translation import gettext as _
from oscar.core.loading import get_model

from tillgate import TillgateError, shop
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.orders import is_number, search

SEARCH: Final = "find"
IN_DOUBT: Final = "in_doubt"
_LONGEST: Final = 255
"""The longest text of any column that is searched."""
_MOST: Final = 200


class IndexMixin:
    """Puts the search box on the dashboard's first page: most of a clerk's tasks begin with it."""

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add the shop's own first page, which ours extends."""
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        return {**context, "index_page": select_template(super().get_template_names())}  # type: ignore[misc]

    def get_template_names(self) -> list[str]:
        """Show the shop's first page below the search box."""
        return ["tillgate_oscar/dashboard/index.html"]


def text_of(request: HttpRequest) -> str:
    """Return the text that staff typed into the search box, or an empty text."""
    return request.GET.get(SEARCH, "").replace("\0", "").strip()


def chosen(request: HttpRequest) -> Q:
    """Return the condition of the orders that the search and the filter of a request leave."""
    condition = Q()
    if text := text_of(request):
        condition &= Q(number__in=_meant(request, text) if len(text) <= _LONGEST else [])
    if request.GET.get(IN_DOUBT):
        settings = get_settings()
        over = (settings.cancelled_status, settings.refunded_status)
        condition &= Q(number__in=shop.orders_in_doubt(PLUGIN))
        condition &= ~Q(status__in=[status for status in over if status])
    return condition


def _meant(request: HttpRequest, text: str) -> list[str]:
    """Return the numbers of orders that a text means: by their number, the shopper, the total, or
    their payments for staff that may see payments.
    """
    text = text.removeprefix("#").strip()
    numbers = search(text, _MOST)
    if numbers or not is_number(text):
        return numbers
    if request.user.has_perm("tillgate.view_payment"):
        numbers += shop.find_orders(PLUGIN, text)
    with contextlib.suppress(TillgateError):  # it is no amount
        total = shop.read_typed(text, project.OSCAR_DEFAULT_CURRENCY)
        same = get_model("order", "Order")._default_manager.filter(total_incl_tax=total)
        numbers += same.order_by("-pk").values_list("number", flat=True)[:_MOST]
    return numbers


def filters_of(request: HttpRequest) -> list[str]:
    """Return the words of the search and the filter, for the list's own line of filters."""
    said = []
    if text := text_of(request):
        said.append(_("Found by “%(text)s”") % {"text": text[:60]})
    if request.GET.get(IN_DOUBT):
        said.append(_("Money in doubt"))
    return said
