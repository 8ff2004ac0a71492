"""The common part of the three admins: read-only pages, the count of open reviews, and actions by
POST.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import DataError, models
from django.db.models import Q, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.clickjacking import xframe_options_deny

from tillgate.django.masking import Mask
from tillgate.django.models import Review
from tillgate.django.orders.locking import without_atomic_requests
from tillgate.django.pages.searching import Found, search
from tillgate.django.pages.showing import MAY_REFUND, MAY_RESOLVE
from tillgate.django.refunds.limits import RefundNotPossible
from tillgate.errors import InvalidRequest

Row = TypeVar("Row", bound=models.Model)

_NEWEST: Final = 1000
"""The rows whose values a filter offers."""
_MOST_LISTED: Final = 2000
"""The rows that the pages of one list hold."""
SEES_HEALTH: Final = ("tillgate.view_payment", "tillgate.view_review")


class ValueFilter(admin.SimpleListFilter):
    """A filter by one value of the column that `parameter_name` names. A subclass gives the
    values.
    """

    def queryset(self, request: HttpRequest, queryset: QuerySet[Row]) -> QuerySet[Row]:
        """Return the rows with the chosen value."""
        return (
            queryset.filter(**{str(self.parameter_name): self.value()})
            if self.value()
            else queryset
        )


class NewestFilter(ValueFilter):
    """A filter by a column of few values: those of the newest rows. To find every value, the
    database would read the whole table for each page.
    """

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the values of the newest rows, and the chosen one."""
        column = str(self.parameter_name)
        newest = model_admin.model.objects.order_by("-pk").values_list(column, flat=True)
        found = {*newest[:_NEWEST], request.GET.get(column, "")} - {"", None}
        return [(value, self.label(value)) for value in sorted(found)]

    def label(self, value: str) -> str:
        """Return the name of a value."""
        return value


class FirstPages(Paginator):  # type: ignore[type-arg]  # generic only for the type checker
    """The pages of the first rows of a list. To count all rows, or to skip most of them, the
    database would read the whole table for one page.
    """

    @cached_property
    def count(self) -> int:
        """Return the number of the rows that the pages hold."""
        return min(self._found, _MOST_LISTED)

    @property
    def is_cut(self) -> bool:
        """Tell whether the list has more rows."""
        return self._found > _MOST_LISTED

    @cached_property
    def _found(self) -> int:
        # Only the number of the row is wanted, and any rows will do.
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[: _MOST_LISTED + 1].count())


# generic only for the type checker
class ReadOnlyAdmin(admin.ModelAdmin, Generic[Row]):  # type: ignore[type-arg]
    """Read-only pages. The admin never adds, edits or deletes a row: only operations change
    rows.
    """

    actions = None
    change_list_template = "tillgate/admin/change_list.html"
    page_template: ClassVar[str]
    show_full_result_count = False
    paginator = FirstPages
    list_per_page = 50
    search_help_text = _(
        "Order number, name, e-mail address, amount with its decimals, our reference, a number of "
        "the gateway, or the last four digits of the card",
    )

    class Media:
        css: ClassVar = {"all": ("tillgate/admin.css",)}

    def _has_no_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _has_no_permission

    def changelist_view(
        self,
        request: HttpRequest,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the list with the count of open reviews."""
        context = {"title": capfirst(self.opts.verbose_name_plural), **banner_context(request)}
        return _unframed(super().changelist_view(request, {**context, **(extra_context or {})}))

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list for an address. An invalid filter value, such as NUL on PostgreSQL, leads
        to the whole list.
        """
        try:
            return super().get_changelist_instance(request)
        except (ValueError, OverflowError, DataError) as error:
            raise IncorrectLookupParameters(error) from error

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: QuerySet[Row],
        search_term: str,
    ) -> tuple[QuerySet[Row], bool]:
        """Search by all that staff may have at hand."""
        if not search_term.strip():
            return queryset, False
        found = search(search_term)
        if found.hint:
            messages.info(request, found.hint)
        return queryset.filter(self.condition_of(found)), False

    def condition_of(self, found: Found) -> Q:
        """Return the condition for the rows of a search."""
        raise NotImplementedError

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one row's page."""
        row = self.find(request, object_id)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        return self.show(request, self.page_template, str(row), self.page_context(request, row))

    def find(self, request: HttpRequest, object_id: str) -> Row:
        """Return a row, if it exists and the user may view it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row: Row | None = self.get_object(request, object_id)
        if row is None:
            raise Http404
        return row

    def page_context(self, request: HttpRequest, row: Row) -> dict[str, Any]:
        """Return the context of a row's page."""
        raise NotImplementedError

    def show(
        self,
        request: HttpRequest,
        template: str,
        title: str,
        context: dict[str, Any],
    ) -> HttpResponse:
        """Answer with a page in the admin's frame that no other site may frame."""
        request.current_app = self.admin_site.name  # Django's own admin views set it too
        frame = {
            **self.admin_site.each_context(request),
            "may_refund": request.user.has_perm(MAY_REFUND),
            "may_resolve": request.user.has_perm(MAY_RESOLVE),
            "opts": self.opts,
            "title": title,
            **context,
        }
        return _unframed(TemplateResponse(request, template, frame))

    def action_url(self, suffix: str, view: Callable[..., HttpResponse]) -> URLPattern:
        """Return the URL pattern of an action on a row. Its view runs outside transactions, because
        actions use the network (I12).
        """
        guarded = without_atomic_requests(self.admin_site.admin_view(xframe_options_deny(view)))
        name = f"{self.opts.app_label}_{self.opts.model_name}_{suffix}"
        return path(f"<path:object_id>/{suffix}/", guarded, name=name)

    def action_address(self, suffix: str, row: Row) -> str:
        """Return the address of an action on a row."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{suffix}"
        return reverse(name, args=[row.pk], current_app=self.admin_site.name)

    def page_url(self, row: models.Model) -> str:
        """Return the address of a row's page."""
        name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
        return reverse(name, args=[row.pk], current_app=self.admin_site.name)

    def ask_to_press_again(self, request: HttpRequest, back: str) -> HttpResponse:
        """Redirect with a message: after a new login, the browser sends GET without the form's
        data.
        """
        messages.warning(request, gettext("Nothing was done. Please press the button again."))
        return HttpResponseRedirect(back)

    def refuse(self, request: HttpRequest, error: Exception, back: str, mask: Mask) -> HttpResponse:
        """Redirect with the error as a message."""
        messages.error(request, mask.text(staff_detail(error)))
        return HttpResponseRedirect(back)


def staff_detail(error: Exception) -> str:
    """Return an error as staff read it."""
    if isinstance(error, InvalidRequest) and error.field == "amount":
        return f"{error.value} {error.remedy}"
    return error.for_staff if isinstance(error, RefundNotPossible) else str(error)


def banner_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the lists: the count of open reviews, and whether the user may see the
    health page.
    """
    may_look = request.user.has_perm("tillgate.view_review")
    return {
        "needs_review": Review.objects.filter(resolved_at__isnull=True).count() if may_look else 0,
        "sees_health": request.user.has_perms(SEES_HEALTH),
    }


def _unframed(response: HttpResponse) -> HttpResponse:
    """Forbid every site, our own included, to show a page within another, where a press could be
    stolen.
    """
    response["X-Frame-Options"] = "DENY"
    return response


def need(request: HttpRequest, *permissions: str) -> None:
    """Raise unless the user has all of the permissions."""
    if not request.user.has_perms(permissions):
        raise PermissionDenied
