"""The reviews of an order on its page of the dashboard, with the buttons that resolve them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext

from tillgate import Money, TillgateError, shop
from tillgate.shop import OpenReview, ReviewAction
from tillgate_oscar.conf import PLUGIN
from tillgate_oscar.dashboard.refunding import KEY
from tillgate_oscar.orders import state_of

_REFUNDING: Final = (ReviewAction.REFUND, ReviewAction.REFUND_REPORTED)
"""The actions that send money to the shopper."""


@dataclass(frozen=True, slots=True)
class Card:
    """One review as the page shows it to a user: with the actions that they may take."""

    review: OpenReview
    admin_url: str
    actions: list[tuple[ReviewAction, str, str, bool]]
    """Each action with its label and its effect, and whether it is the recommended one."""
    refundable: str
    """The amount that a refund suggests, as staff would type it; empty where none is offered."""
    key: str

    @property
    def takes_amount(self) -> bool:
        """Whether an action that is offered may take an amount."""
        return bool(self.actions) and self.review.takes_amount

    @property
    def takes_note(self) -> bool:
        """Whether an action that is offered may take a note."""
        return bool(self.actions) and self.review.takes_note

    @property
    def refunds(self) -> bool:
        """Whether a refund is offered: staff confirm it."""
        return any(one in _REFUNDING for one, *_ in self.actions)


def cards_of(request: HttpRequest, ours: shop.OrderState) -> list[Card]:
    """Return the open reviews of an order for the page of a user."""
    return [
        _card(request, review, ours) for review in shop.open_reviews(PLUGIN, order_keys=[ours.key])
    ]


def _card(request: HttpRequest, review: OpenReview, ours: shop.OrderState) -> Card:
    may = [one for one in review.actions if shop.may_act(request.user, one)]
    payment = ours.payment(review.payment_id)
    return Card(
        review=review,
        admin_url=shop.admin_url(request, "review", review.id),
        actions=[
            (
                one,
                review.label(one),
                # it speaks of a page of the admin; here the amount and a tick stand beside it
                "" if one is ReviewAction.REFUND else review.explanation(one),
                one is review.recommended,
            )
            for one in may
        ],
        refundable=_typed(payment) if payment and ReviewAction.REFUND in may else "",
        key=secrets.token_urlsafe(12),
    )


def _typed(payment: shop.PaymentState) -> str:
    """Return the money that is left as staff would type it."""
    left = Money(payment.refundable_amount, payment.currency)
    return str(shop.RefundForm(left, initial={"amount": left.amount})["amount"].value())


def resolve(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Take the action that staff chose in a review of the order, and show its result."""
    given = request.POST
    response: HttpResponse = view.reload_page()
    review = next(
        (
            one
            for one in shop.open_reviews(PLUGIN, order_keys=[order.number])
            if one.id == given.get("review")
        ),
        None,
    )
    action = given.get("action", "")
    if review is None:
        messages.info(request, gettext("Nothing was done: somebody has resolved it already."))
        return response
    if action not in review.actions or not shop.may_act(request.user, action):
        messages.error(request, gettext("Nothing was done: you may not do this."))
        return response
    if action in _REFUNDING and not given.get("meant"):
        messages.error(request, gettext("Nothing was done: tick that you mean the refund."))
        return response
    # with ATOMIC_REQUESTS after the request's transaction: an action may ask the gateway
    transaction.on_commit(
        partial(_resolve_now, request, order, review, action),
        using=shop.database(),
    )
    return response


def _resolve_now(request: HttpRequest, order: Any, review: OpenReview, action: str) -> None:
    try:
        done = _take(request, order, review, action)
    except TillgateError as error:
        said = getattr(error, "for_staff", str(error)).rstrip(".")
        messages.error(request, gettext("Nothing was done: %(detail)s.") % {"detail": said})
        return
    said = (
        gettext("Resolved: %(message)s.")
        if done.resolved
        else gettext("Not resolved yet: %(message)s.")
    )
    level = messages.SUCCESS if done.resolved else messages.WARNING
    messages.add_message(request, level, said % {"message": done.message.rstrip(".")})


def _take(
    request: HttpRequest,
    order: Any,
    review: OpenReview,
    action: str,
) -> shop.ActionResult:
    given, ours = request.POST, state_of(order)
    payment = ours.payment(review.payment_id) if ours else None
    typed = given.get("amount", "").strip()
    amount = shop.read_typed(typed, payment.currency) if typed and payment else None
    return shop.resolve_review(
        review.id,
        action,
        staff=request.user.get_username(),
        note=given.get("note", "").strip(),
        amount=amount,
        version=given.get("version", ""),
        newest_refund=given.get("newest_refund"),
        withdraws=given.get("withdraws", ""),
        idempotency_key=given.get(KEY) if action == ReviewAction.REFUND else None,
    )
