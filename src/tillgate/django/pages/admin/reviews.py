"""Reviews: the message of each, its evidence, and the actions that resolve it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from tillgate import money
from tillgate.django import actions, words
from tillgate.django.amounts import money_text, read_typed, typed_text
from tillgate.django.masking import Mask
from tillgate.django.models import Refund, Review, TimelineEntry
from tillgate.django.pages.admin.base import NewestFilter, ReadOnlyAdmin, need
from tillgate.django.pages.admin.health_page import health_url
from tillgate.django.pages.clerks import clerk_lines
from tillgate.django.pages.searching import Found
from tillgate.django.pages.showing import MAY_RESOLVE, needed_for, row_id, staff_of, timeline_of
from tillgate.django.pages.summaries import PaymentSummary, summary_of
from tillgate.django.review_text import (
    ACTIONS,
    EXPLANATIONS,
    recommendation_of,
    recommended,
    shown_amount,
)
from tillgate.django.reviews.taking import take
from tillgate.errors import TillgateError
from tillgate.lifecycle import RefundStatus, ReviewAction, ReviewReason

_TRIED = "tried"
"""The parameter that names the action that was just taken in vain."""


@dataclass(frozen=True, slots=True)
class _Button:
    action: str
    label: str
    explanation: str
    is_recommended: bool
    url: str


@dataclass(frozen=True, slots=True)
class _Card:
    row: Review
    reason: str
    message: str
    amount: str
    recommendation: str
    evidence: list[tuple[str, str]]
    buttons: list[_Button]
    page_url: str
    payment_url: str
    order_url: str
    seen: int
    made: str
    """The amount of the review's refund, which the gateway may have made, or nothing, as staff
    would type it.
    """
    reported_amount: str
    """The amount that the gateway reports, with its currency, or nothing."""
    refunded_amount: Decimal
    """The amount of the payment that Tillgate has as refunded."""
    waiting: Refund | None
    """The refund that staff can withdraw."""
    known: PaymentSummary | None
    gateway_url: str
    """The gateway's page to look at first, where no action is recommended."""
    is_dispute: bool
    """Whether it is the page about a dispute."""
    take_url: str


class _ResolvedFilter(admin.SimpleListFilter):
    """The open reviews, unless the address names others."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("open", _("needs review")), ("resolved", _("resolved")), ("all", _("all"))]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for value, label in self.lookup_choices:
            query = changelist.get_query_string({self.parameter_name: value}, ["p"])
            yield {
                "selected": (self.value() or "open") == value,
                "query_string": query,
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Review]) -> QuerySet[Review]:
        if self.value() == "all":
            return queryset
        return queryset.filter(resolved_at__isnull=self.value() != "resolved")


class _ReasonFilter(NewestFilter):
    title = _("reason")
    parameter_name = "reason"

    def label(self, value: str) -> str:
        return words.reason(value)


class _AccountFilter(NewestFilter):
    title = _("account")
    parameter_name = "account"


@admin.register(Review)
class ReviewAdmin(ReadOnlyAdmin[Review]):
    """Reviews, the oldest first, since it has waited longest."""

    list_display = ("message",)
    list_filter = (_ResolvedFilter, _ReasonFilter, _AccountFilter)
    search_fields = ("payment__reference",)
    ordering = ("id",)
    list_per_page = 25
    change_list_template = "tillgate/admin/review_list.html"
    page_template = "tillgate/admin/review.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Review]:
        """Return reviews with their related rows, in one statement for any number of reviews."""
        reviews: QuerySet[Review] = super().get_queryset(request)
        return reviews.select_related(
            "order",
            "payment__order",
            "refund__payment",
            "outbox_event",
        ).prefetch_related("payment__numbers")

    def condition_of(self, found: Found) -> Q:
        """Return the condition for the reviews of a search."""
        return found.of_reviews

    def changelist_view(
        self,
        request: HttpRequest,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the reviews as cards with buttons."""
        response = super().changelist_view(request, extra_context)
        if (
            isinstance(response, TemplateResponse)
            and response.context_data
            and "cl" in response.context_data
        ):
            rows = list(response.context_data["cl"].result_list)
            response.context_data["cards"] = self._cards(request, rows)
        return response

    def get_urls(self) -> list[URLPattern]:
        """Add the actions, and the health page."""
        return [
            health_url(self),
            self.action_url("action", self.action_view),
            self.action_url("take", self.take_view),
            *super().get_urls(),
        ]

    def page_context(self, request: HttpRequest, row: Review) -> dict[str, Any]:
        """Return one review and the timeline of its subject."""
        entries = TimelineEntry.objects.none()
        if row.order_id:
            entries = TimelineEntry.objects.filter(order_id=row.order_id)
            if row.payment_id:
                entries = entries.filter(Q(payment_id=row.payment_id) | Q(payment__isnull=True))
        return {
            "title": words.reason(row.reason),
            "card": self._cards(request, [row])[0],
            "summary": summary_of(row.payment)
            if row.payment and request.user.has_perm("tillgate.view_payment")
            else None,
            "lines": clerk_lines(row.order, row.payment) if row.order else [],
            "timeline": timeline_of(entries, _mask([row])),
        }

    def take_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the review to the user, or back."""
        review = self.find(request, object_id)
        need(request, MAY_RESOLVE)
        back = self.page_url(review)
        if request.method != "POST":
            return self.ask_to_press_again(request, back)
        staff = staff_of(request) if request.POST.get("take") else ""
        try:
            take(review.pk, staff, taken_by=request.POST.get("taken_by", ""))
        except TillgateError as error:
            return self.refuse(request, error, back, _mask([review]))
        return HttpResponseRedirect(back)

    def action_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take the chosen action."""
        review = self.find(request, object_id)
        if request.method != "POST":
            return self.ask_to_press_again(request, self.page_url(review))
        action = request.POST.get("action", "")
        need(request, *needed_for(action))
        mask, back = _mask([review]), self.page_url(review)
        given: dict[str, Any] = {name: request.POST.get(name, "") for name in ("note", "amount")}
        if given["amount"] and review.payment:
            try:
                given["amount"] = read_typed(given["amount"], review.payment.currency)
            except TillgateError as error:
                return self.refuse(request, error, back, mask)
        given |= {
            "newest_refund": row_id(request.POST.get("seen")),
            "expected_version": request.POST.get("read", ""),
            "withdraws": row_id(request.POST.get("withdraws")) or None,
        }
        try:
            done = actions.take_action(review.pk, action, staff=staff_of(request), **given)
        except TillgateError as error:
            return self.refuse(request, error, back, mask)
        said = (
            gettext("Resolved: %(message)s.")
            if done.resolved
            else gettext("Not resolved yet: %(message)s.")
        )
        level = messages.SUCCESS if done.resolved else messages.WARNING
        messages.add_message(
            request,
            level,
            said % {"message": mask.text(done.message.rstrip("."))},
        )
        tried = "" if done.resolved else f"?{urlencode({_TRIED: action})}"
        return HttpResponseRedirect(back + tried)

    def _cards(self, request: HttpRequest, rows: list[Review]) -> list[_Card]:
        mask = _mask(rows)
        about = [row.payment_id for row in rows if row.payment_id]
        refunds = defaultdict[int | None, list[Refund]](list)
        for refund in (
            Refund.objects.filter(payment_id__in=about)
            .order_by("id")
            .only("payment_id", "status", "amount")
        ):
            refunds[refund.payment_id].append(refund)
        return [self._card(request, row, mask, refunds[row.payment_id]) for row in rows]

    def _card(self, request: HttpRequest, row: Review, mask: Mask, refunds: list[Refund]) -> _Card:
        sees_payment, sees_order = (
            request.user.has_perm("tillgate.view_payment"),
            request.user.has_perm("tillgate.view_order"),
        )
        fitting = actions.actions_for(row, refunds)
        tried = request.GET.get(_TRIED, "")
        first = recommended(row.reason, fitting, tried)
        refunded = money.total(
            refund.amount for refund in refunds if refund.status == RefundStatus.SUCCEEDED
        )
        known = None
        if row.payment and sees_payment:
            known = summary_of(row.payment, asks_shop=False, refunded=refunded)
        dispute = _dispute_url(row, known)
        shown = [one for one in fitting if request.user.has_perms(needed_for(one))]
        if not sees_payment and ReviewAction.REFUND in shown:
            shown.remove(ReviewAction.REFUND)  # its page belongs to the payment
        evidence = mask.evidence(row.evidence)
        if row.outbox_event and row.outbox_event.fault:
            evidence.append((gettext("the shop's error"), mask.text(row.outbox_event.fault)))
        return _Card(
            row=row,
            reason=words.reason(row.reason),
            message=mask.text(row.message),
            amount=money_text(row.money.amount, row.money.currency) if row.money else "",
            recommendation=recommendation_of(row.reason, fitting, tried),
            evidence=evidence,
            buttons=[
                _Button(
                    one,
                    str(ACTIONS[one]),
                    str(EXPLANATIONS[one]),
                    one is first,
                    self._address(one, row),
                )
                for one in shown
            ],
            page_url=self.page_url(row),
            payment_url=self.page_url(row.payment) if row.payment and sees_payment else "",
            order_url=self.page_url(row.order) if row.order and sees_order else "",
            seen=refunds[-1].pk if refunds else 0,
            made=typed_text(row.refund.amount, row.payment.currency)
            if row.refund and row.payment
            else "",
            reported_amount=shown_amount(row.facts.get("found"), row.facts),
            refunded_amount=refunded,
            waiting=actions.to_withdraw(row, refunds),
            known=known,
            gateway_url=_first_look(known, dispute, has_action=first is not None),
            is_dispute=bool(dispute),
            take_url=self.action_address("take", row),
        )

    def _address(self, action: ReviewAction, row: Review) -> str:
        """Return the address of an action. A refund has a page of its own, for confirmation."""
        if action is not ReviewAction.REFUND or row.payment is None:
            return self.action_address("action", row)
        refund = reverse(
            "admin:tillgate_payment_refund",
            args=[row.payment.pk],
            current_app=self.admin_site.name,
        )
        return f"{refund}?review={row.pk}"


def _dispute_url(row: Review, known: PaymentSummary | None) -> str:
    """Return the gateway's page about the dispute that a review is about, or ""."""
    if known is None or row.reason not in (
        ReviewReason.DISPUTED,
        ReviewReason.CHANGED_AFTER_PAID,
    ):
        return ""
    return next((one.url for one in known.disputes if one.url), "")


def _first_look(known: PaymentSummary | None, dispute: str, *, has_action: bool) -> str:
    """Return the page at the gateway to look at before any action, or ""."""
    if dispute:
        return dispute
    return known.gateway_url if known and not has_action else ""


def _mask(rows: list[Review]) -> Mask:
    return Mask([row.payment for row in rows], [row.refund for row in rows])
