"""The page with the open reviews of an event and their actions. pretix lacks Django's admin, which shows them otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import get_template
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.generic import TemplateView
from pretix.base.models import Order
from pretix.control.permissions import EventPermissionRequiredMixin

from tillgate.django import operations
from tillgate.django.forms import RefundForm
from tillgate.django.models import NOTHING, Refund, Review
from tillgate.django.operations.refunds import refundable
from tillgate.django.staff import words
from tillgate.django.staff.masking import Mask
from tillgate.django.staff.showing import row_id
from tillgate.errors import TillgateError
from tillgate.wire import money
from tillgate_pretix.accounts import of_event
from tillgate_pretix.orders import bills_of, on_its_way_back
from tillgate_pretix.plugin import PLUGIN

__all__ = ["PERMISSION", "ReviewsView", "order_panel", "page_url"]

PERMISSION = "event.orders:write"

_WITH_NOTE: Final = frozenset({operations.ReviewAction.DISMISS, operations.ReviewAction.FORCE_EXPIRE})
_WITH_AMOUNT: Final = frozenset({operations.ReviewAction.REFUND, operations.ReviewAction.RECORD_EXTERNAL_REFUND})


@dataclass(frozen=True, slots=True)
class _Card:
    """One review as the page shows it."""

    row: Review
    reason: str
    message: str
    actions: list[tuple[str, str]]
    order: Any
    seen: int
    waiting: Refund | None
    """The refund that the action withdraws, if any."""
    takes_note: bool
    takes_amount: bool


def open_matters(event: Any) -> QuerySet[Review]:
    """Return the open reviews of an event, the oldest first: about its accounts, their payments, or its orders."""
    about = Q(order__in=_never_begun(event))
    for account in ("account", "payment__account", "order__payments__account"):
        about |= of_event(event, account)
    return Review.objects.filter(about, resolved_at__isnull=True).distinct().order_by("pk")


def _never_begun(event: Any) -> list[int]:
    """Return Tillgate's orders of an event that need review and have no payment: without one, no account links them to the event."""
    waiting = Review.objects.filter(order__plugin=PLUGIN, order__payments__isnull=True, resolved_at__isnull=True)
    numbers = {pk: int(key.partition("/")[0]) for pk, key in waiting.values_list("order_id", "order__key")}
    here = set(event.orders.filter(pk__in=set(numbers.values())).values_list("pk", flat=True))
    return [pk for pk, number in numbers.items() if number in here]


def page_url(event: Any) -> str:
    """Return the address of the page."""
    return reverse("plugins:tillgate_pretix:review", kwargs={"organizer": event.organizer.slug, "event": event.slug})


def order_panel(order: Any, request: HttpRequest) -> str:
    """Return the HTML for the page of an order that needs review, or an empty string."""
    matters = Review.objects.filter(order__in=bills_of(order), resolved_at__isnull=True).order_by("pk")
    cards = [_card(row) for row in matters.select_related("payment", "refund")]
    if not cards:
        return ""
    context = {"cards": cards, "page_url": page_url(order.event)}
    return str(get_template("tillgate_pretix/order_panel.html").render(context, request))


def _card(row: Review) -> _Card:
    number = row.order.key.partition("/")[0] if row.order else ""
    waiting, actions = operations.to_withdraw(row), operations.actions_for(row)
    return _Card(
        row=row,
        reason=words.reason(row.reason),
        message=Mask([row.payment], [row.refund]).text(row.message),
        actions=[(action.value, _label(action, waiting)) for action in actions],
        order=Order.objects.filter(pk=number).first() if number else None,
        seen=_newest_refund(row),
        waiting=waiting,
        takes_note=not _WITH_NOTE.isdisjoint(actions),
        takes_amount=not _WITH_AMOUNT.isdisjoint(actions),
    )


def _newest_refund(row: Review) -> int:
    newest = row.payment.refunds.order_by("-pk").first() if row.payment else None
    return newest.pk if newest else 0


def _label(action: operations.ReviewAction, waiting: Refund | None) -> str:
    return (
        f"{words.ACTIONS[action]} (USD {waiting.amount})"
        if action is operations.ReviewAction.WITHDRAW and waiting
        else str(words.ACTIONS[action])
    )


class ReviewsView(EventPermissionRequiredMixin, TemplateView):  # type: ignore[misc]  # pretix has no types
    """Shows the open reviews, and runs the chosen review action."""

    permission = PERMISSION
    template_name = "tillgate_pretix/review.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the open reviews."""
        request: Any = self.request  # pretix puts the event there
        matters = open_matters(request.event).select_related("payment", "refund", "order")
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {"cards": [_card(row) for row in matters]}

    def post(self, request: Any, **_kwargs: Any) -> HttpResponse:
        """Run the chosen review action."""
        given: dict[str, Any] = {name: request.POST.get(name, "").strip() for name in ("action", "note", "amount", "read")}
        given |= {"seen": row_id(request.POST.get("seen")), "withdraws": row_id(request.POST.get("withdraws")) or None}
        review = get_object_or_404(open_matters(request.event), pk=row_id(request.POST.get("review")))
        back = on_its_way_back(review) if given["action"] == operations.ReviewAction.REFUND else NOTHING
        if back:
            messages.error(
                request, _("Nothing was done: USD %(amount)s is on its way back, and with it there is not too much.") % {"amount": back}
            )
            return redirect(page_url(request.event))
        if given["action"] == operations.ReviewAction.REFUND and not request.POST.get("is_sure"):
            return self._ask_to_refund(review, given["amount"], given["seen"])
        mask = Mask([review.payment], [review.refund])
        try:
            done = operations.take_action(review.pk, staff=request.user.get_username(), **given)
        except (operations.ActionNotPossible, operations.RefundNotPossible, TillgateError) as error:
            messages.error(request, _("Nothing was done: %(detail)s.") % {"detail": mask.text(str(error)).rstrip(".")})
        else:
            said = _("Resolved: %(message)s.") if done.resolved else _("Not resolved yet: %(message)s.")
            level = messages.SUCCESS if done.resolved else messages.WARNING
            messages.add_message(request, level, said % {"message": mask.text(done.message).rstrip(".")})
        return redirect(page_url(request.event))

    def _ask_to_refund(self, review: Review, amount: str, seen: int) -> HttpResponse:
        """Show the refund before it is requested. The second press confirms it, and sends the same `seen` as the first."""
        request: Any = self.request
        payment = review.payment
        left = refundable(payment) if payment else NOTHING
        form = RefundForm(left, {"amount": amount})
        if not form.is_valid():
            errors = " ".join(str(error) for error in form.errors["amount"])
            messages.error(request, _("Nothing was done: %(detail)s.") % {"detail": errors.rstrip(".")})
            return redirect(page_url(request.event))
        given = form.cleaned_data["amount"]
        context = {
            "card": _card(review),
            "seen": seen,
            "payment": payment,
            "amount": given,
            "left": left,
            "left_after": money.left_of(left, [given]),
            "page_url": page_url(request.event),
        }
        return render(request, "tillgate_pretix/refund.html", context)
