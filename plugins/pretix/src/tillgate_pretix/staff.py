"""What staff do in pretix, which lacks Django's admin: the page with the open reviews of an event
and their actions, and what they can ask and find of a payment.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import get_template
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.generic import TemplateView, View
from pretix.base.models import Order
from pretix.control.permissions import EventPermissionRequiredMixin

from tillgate import Money, TillgateError, shop
from tillgate.shop import OpenReview, RefundForm, ReviewAction, money
from tillgate_pretix.accounts import prefixes_of
from tillgate_pretix.configuration import PLUGIN
from tillgate_pretix.orders import payments_of, refunded_soon, reviews_of

PERMISSION: Final = "event.orders:write"


@dataclass(frozen=True, slots=True)
class _Card:
    """One review as the page shows it, with the order that it is about."""

    review: OpenReview
    order: Any

    @property
    def actions(self) -> list[tuple[str, str, str, bool]]:
        """The actions with their labels, what each does, and whether it is the recommended one."""
        review = self.review
        return [
            (one.value, review.label(one), review.explanation(one), one is review.recommended)
            for one in review.actions
        ]

    @property
    def refundable(self) -> str:
        """The amount that a refund suggests: all that is left of the payment."""
        if ReviewAction.REFUND not in self.review.actions:
            return ""
        payment = shop.find_payment(PLUGIN, payment_id=self.review.payment_id)
        return str(payment.refundable_amount) if payment else ""


def reviews_of_event(event: Any) -> list[OpenReview]:
    """Return the open reviews of an event, the oldest first: about its accounts, their payments, or
    its orders.
    """
    about_accounts = [
        review
        for prefix in prefixes_of(event)
        for review in shop.open_reviews(PLUGIN, account_prefix=prefix)
    ]
    without_payment = [review for review in shop.open_reviews(PLUGIN) if not review.payment_id]
    numbers = {_number_of(review.order_key) for review in without_payment}
    here = {str(pk) for pk in event.orders.filter(pk__in=numbers).values_list("pk", flat=True)}
    of_orders = [one for one in without_payment if _number_of(one.order_key) in here]
    found = {review.id: review for review in [*about_accounts, *of_orders]}
    return sorted(found.values(), key=lambda review: int(review.id))


def _number_of(bill: str) -> str:
    """Return the number of pretix's order from the key of one of its bills."""
    return bill.partition("/")[0]


def page_url(event: Any) -> str:
    """Return the address of the page."""
    return reverse(
        "plugins:tillgate_pretix:review",
        kwargs={"organizer": event.organizer.slug, "event": event.slug},
    )


def poll_url(order: Any, request: Any) -> str:
    """Return the address that asks the payment service about a payment of an order, or an empty
    string for staff without the permission.
    """
    event, user = order.event, request.user
    if not user.has_event_permission(event.organizer, event, PERMISSION, request=request):
        return ""
    return reverse(
        "plugins:tillgate_pretix:poll",
        kwargs={"organizer": event.organizer.slug, "event": event.slug, "order": order.code},
    )


def orders_like(query: str) -> Q:
    """Return the condition for orders with a payment of this reference, number at the payment
    service, amount, or last four digits of a card.
    """
    return Q(pk__in={_number_of(bill) for bill in shop.find_orders(PLUGIN, query)})


def order_panel(order: Any, request: HttpRequest) -> str:
    """Return the HTML for the page of an order that needs review, or an empty string."""
    cards = [_Card(review, order) for review in reviews_of(order)]
    if not cards:
        return ""
    context = {"cards": cards, "page_url": page_url(order.event)}
    return str(get_template("tillgate_pretix/order_panel.html").render(context, request))


def _card(review: OpenReview) -> _Card:
    return _Card(
        review,
        Order.objects.filter(pk=_number_of(review.order_key)).first() if review.order_key else None,
    )


# pretix has no types
class PollView(EventPermissionRequiredMixin, View):  # type: ignore[misc]
    """Asks the payment service about a payment of an order, and shows the order again."""

    permission = PERMISSION

    def post(self, request: Any, order: str, **_kwargs: Any) -> HttpResponse:
        """Ask, and say what the payment service answered."""
        theirs = get_object_or_404(request.event.orders, code=order)
        ours = [one for one in payments_of(theirs) if one.id == request.POST.get("payment")]
        if not ours:
            raise Http404
        shop.poll(ours[0].id, actor=f"staff:{request.user.get_username()}")
        summary = shop.payment_summary(PLUGIN, ours[0].id)
        said = _("The payment service was asked. The payment is now: %(status)s.")
        messages.info(request, said % {"status": summary.status if summary else ""})
        names = {"organizer": request.organizer.slug, "event": request.event.slug}
        address = reverse("control:event.order", kwargs={**names, "code": theirs.code})
        return redirect(address)


class ReviewsView(EventPermissionRequiredMixin, TemplateView):  # type: ignore[misc]
    """Shows the open reviews, and runs the chosen review action."""

    permission = PERMISSION
    template_name = "tillgate_pretix/review.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the open reviews."""
        request: Any = self.request  # pretix puts the event there
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {"cards": [_card(review) for review in reviews_of_event(request.event)]}

    def post(self, request: Any, **_kwargs: Any) -> HttpResponse:
        """Run the chosen review action."""
        fields = ("action", "note", "amount", "version", "newest_refund", "withdraws")
        given: dict[str, Any] = {name: request.POST.get(name, "").strip() for name in fields}
        given["idempotency_key"] = request.POST.get("idempotency_key")
        review = next(
            (
                one
                for one in reviews_of_event(request.event)
                if one.id == request.POST.get("review")
            ),
            None,
        )
        if review is None:
            raise Http404
        under_way = refunded_soon(review) if given["action"] == ReviewAction.REFUND else 0
        if under_way:
            messages.error(
                request,
                _(
                    "Nothing was done: refunds of %(amount)s are under way, and after them the "
                    "order is not overpaid.",
                )
                % {"amount": shop.money_text(Decimal(under_way), request.event.currency)},
            )
            return redirect(page_url(request.event))
        if given["action"] == ReviewAction.REFUND and not request.POST.get("is_sure"):
            return self._ask_to_refund(review, given["amount"], given["newest_refund"])
        try:
            if given["amount"]:
                given["amount"] = str(shop.read_typed(given["amount"], request.event.currency))
            done = shop.resolve_review(review.id, staff=request.user.get_username(), **given)
        except TillgateError as error:
            messages.error(
                request,
                _("Nothing was done: %(detail)s.")
                % {"detail": getattr(error, "for_staff", str(error)).rstrip(".")},
            )
        else:
            said = (
                _("Resolved: %(message)s.")
                if done.resolved
                else _("Not resolved yet: %(message)s.")
            )
            level = messages.SUCCESS if done.resolved else messages.WARNING
            messages.add_message(request, level, said % {"message": done.message.rstrip(".")})
        return redirect(page_url(request.event))

    def _ask_to_refund(self, review: OpenReview, amount: str, newest_refund: str) -> HttpResponse:
        """Show the refund before it is requested. The form that confirms it carries an idempotency
        key, and the same `newest_refund`.
        """
        request: Any = self.request
        payment = (
            shop.find_payment(PLUGIN, payment_id=review.payment_id) if review.payment_id else None
        )
        left = payment.refundable_amount if payment else Decimal(0)
        form = RefundForm(
            Money(left, payment.currency if payment else request.event.currency),
            {"amount": amount},
        )
        if not form.is_valid():
            errors = " ".join(str(error) for error in form.errors["amount"])
            messages.error(
                request,
                _("Nothing was done: %(detail)s.") % {"detail": errors.rstrip(".")},
            )
            return redirect(page_url(request.event))
        given = form.cleaned_data["amount"]
        context = {
            "card": _card(review),
            "newest_refund": newest_refund,
            "idempotency_key": secrets.token_urlsafe(12),
            "payment": payment,
            "amount": given,
            "left": left,
            "left_after": money.left_of(left, [given]),
            "page_url": page_url(request.event),
        }
        return render(request, "tillgate_pretix/refund.html", context)
