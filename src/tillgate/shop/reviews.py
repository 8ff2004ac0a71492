"""Reviews of an order or an account: shown to the shop's staff, opened by the plugin, and closed by
an action of staff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from tillgate.django import actions, words
from tillgate.django.actions import ActionNotPossible
from tillgate.django.amounts import money_text
from tillgate.django.masking import Mask
from tillgate.django.models import Payment, Review
from tillgate.django.orders.locking import joined_order
from tillgate.django.pages.showing import row_id
from tillgate.django.refunds.limits import RefundNotPossible
from tillgate.django.review_text import ACTIONS, EXPLANATIONS, recommendation_of, recommended
from tillgate.django.reviews import closing, opening, taking
from tillgate.lifecycle import ReviewAction, ReviewReason
from tillgate.shop.refunds import key_text, known_id
from tillgate.shop.states import RefundState, refund_state

__all__ = [
    "MONEY_REASONS",
    "ActionResult",
    "OpenReview",
    "ReviewAction",
    "ReviewReason",
    "close_reviews",
    "count_open_reviews",
    "newest_reviews",
    "open_review",
    "open_reviews",
    "resolve_review",
    "take_review",
]

MONEY_REASONS: Final = opening.HELD_REASONS - {ReviewReason.CANCELLED_HELD}
"""The reasons of reviews about paid money that did not pay its order, or is more or less than the
order costs.
"""

_WITH_NOTE: Final = frozenset(
    {ReviewAction.DISMISS, ReviewAction.FORCE_EXPIRE, ReviewAction.ENTER_NUMBER},
)
_WITH_AMOUNT: Final = frozenset({ReviewAction.REFUND, ReviewAction.RECORD_EXTERNAL_REFUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReview:
    """An open review as staff read it, with its actions in order.

    `version` and `newest_refund` go back with the action: when the review says something else by
    then, or there is a newer refund, the action is refused. `title` and `message` are in the active
    language, without secrets. `plugin` and `order_key` are empty for a review of an account,
    `payment_id` and `reference` for a review without a payment. `recommendation` is the recommended
    first step with its reason, in the active language; its action, if it is one, is `recommended`.
    `withdraws` is the refund that the action "withdraw" withdraws. `taken_by` is the user name of
    the clerk in charge of it, or empty.
    """

    id: str
    reason: ReviewReason
    title: str
    message: str
    version: str
    opened_at: datetime
    reported_paid: bool
    plugin: str
    order_key: str
    account: str
    payment_id: str
    reference: str
    newest_refund: str
    actions: tuple[ReviewAction, ...]
    recommended: ReviewAction | None
    recommendation: str
    withdraws: RefundState | None
    taken_by: str

    @property
    def takes_note(self) -> bool:
        """Whether an action of it takes a note."""
        return not _WITH_NOTE.isdisjoint(self.actions)

    @property
    def takes_amount(self) -> bool:
        """Whether an action of it takes an amount."""
        return not _WITH_AMOUNT.isdisjoint(self.actions)

    def label(self, action: ReviewAction) -> str:
        """Return an action's label in the active language."""
        text = str(ACTIONS[action])
        if action is not ReviewAction.WITHDRAW or not self.withdraws:
            return text
        return f"{text} ({money_text(self.withdraws.amount, self.withdraws.payment.currency)})"

    def explanation(self, action: ReviewAction) -> str:
        """Return the effect of an action, in the active language."""
        return str(EXPLANATIONS[action])


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of a review action: whether the review is closed now, and a message for staff
    without secrets.
    """

    resolved: bool
    message: str


def open_reviews(
    plugin: str,
    *,
    order_keys: Iterable[str] = (),
    prefix: str = "",
    accounts: Iterable[str] = (),
    account_prefix: str = "",
    reasons: Iterable[ReviewReason] = (),
) -> tuple[OpenReview, ...]:
    """Return open reviews, the oldest first: all of the plugin's orders, or those of the named
    orders and accounts.

    `order_keys` and `prefix` choose orders by their keys. `accounts` and `account_prefix` choose
    reviews of accounts, their payments and the orders of those. `reasons` keeps those of some
    reasons.
    """
    chosen = [Q(order__plugin=plugin, order__key=key) for key in order_keys]
    if prefix:
        chosen.append(Q(order__plugin=plugin, order__key__startswith=prefix))
    for name in ("account", "payment__account", "order__payments__account"):
        chosen += [Q(**{name: alias}) for alias in accounts]
        if account_prefix:
            chosen.append(Q(**{f"{name}__startswith": account_prefix}))
    found = Review.objects.filter(
        reduce(or_, chosen) if chosen else Q(order__plugin=plugin),
        resolved_at__isnull=True,
    ).distinct()
    if wanted := list(reasons):
        found = found.filter(reason__in=wanted)
    return tuple(map(_value, _with_subjects(found).order_by("pk")))


def newest_reviews(
    plugin: str,
    *,
    prefix: str,
    accounts: Iterable[str],
    at_most: int,
) -> tuple[int, tuple[OpenReview, ...]]:
    """Return how many reviews are open, and the newest of them, the newest first.

    It takes the reviews of orders with keys that begin with `prefix`, and of accounts; not those of
    other orders of the same accounts.
    """
    chosen = Q(order__plugin=plugin, order__key__startswith=prefix) | Q(
        order__isnull=True,
        account__in=list(accounts),
    )
    found = Review.objects.filter(chosen, resolved_at__isnull=True).order_by("-opened_at", "-pk")
    shown = _with_subjects(found)[:at_most]
    return found.count(), tuple(map(_value, shown))


def count_open_reviews() -> int:
    """Return the number of all open reviews: of every plugin's orders, and of accounts."""
    return Review.objects.filter(resolved_at__isnull=True).count()


def open_review(
    payment_id: str,
    message: str,
    *,
    actor: str,
    reason: ReviewReason = ReviewReason.PAID_NOT_PAYABLE,
) -> None:
    """Open a review about a paid payment, with a message of the plugin's own; nothing happens where
    the same case is open.

    Takes the order's lock and touches the database only. `actor` is the plugin's name.
    """
    payment = Payment.objects.select_related("order").get(pk=int(payment_id))
    with joined_order(payment.order_id):
        opening.open_review(reason, message, actor, payment)


def close_reviews(review_ids: Iterable[str], resolution: str) -> None:
    """Close reviews of cases that have ended without staff; `resolution` says why. Each takes the
    lock of its order.
    """
    closing.settle(Review.objects.filter(pk__in=[int(one) for one in review_ids]), resolution)


def resolve_review(
    review_id: str,
    action: ReviewAction | str,
    *,
    staff: str,
    note: str = "",
    amount: Decimal | str | None = None,
    version: str = "",
    newest_refund: str | None = None,
    withdraws: str = "",
    idempotency_key: str | UUID | None = None,
) -> ActionResult:
    """Run the action that staff chose for a review, and return the result. Call it outside any
    transaction.

    The `note` of the action "enter-number" is the gateway's number of the payment.
    `idempotency_key` is for the action "refund", and is as in `refund`: a repeated key returns the
    result of the refund that it made, and needs no amount. Raises a `TillgateError` that says why
    nothing was done: `InvalidRequest` for an id that no review has.
    """
    given: dict[str, Any] = {
        "newest_refund": None if newest_refund is None else row_id(newest_refund),
        "withdraws": row_id(withdraws) or None,
        "idempotency_key": key_text(idempotency_key),
        "expected_version": version,
    }
    with known_id(Review, "review_id", review_id) as number:
        mask = _mask(Review.objects.select_related("payment", "refund").get(pk=number))
    try:
        done = actions.take_action(
            number,
            str(action),
            staff=staff,
            note=note,
            amount=amount,
            **given,
        )
    except RefundNotPossible as error:
        raise RefundNotPossible(mask(str(error)), mask(error.for_staff)) from None
    except ActionNotPossible as error:
        raise ActionNotPossible(mask(str(error))) from None
    return ActionResult(resolved=done.resolved, message=mask(done.message))


def take_review(review_id: str, *, staff: str, taken_by: str = "") -> None:
    """Give a review to one of the staff, so colleagues see that it is in work; with an empty
    `staff` it has no clerk again. All staff can still resolve it. `taken_by` is the clerk that the
    form shows. Raises `InvalidRequest` where another has it by now, where it is resolved, and for
    an id that no review has.
    """
    with known_id(Review, "review_id", review_id) as number:
        taking.take(number, staff, taken_by=taken_by)


def _mask(row: Review) -> Callable[[str], str]:
    return Mask([row.payment], [row.refund]).text


def _with_subjects(reviews: QuerySet[Review]) -> QuerySet[Review]:
    """Read with the reviews, in one more statement, all that `_value` needs."""
    return reviews.select_related(
        "order",
        "payment__order",
        "refund__payment__order",
        "outbox_event",
    ).prefetch_related("payment__refunds")


def _value(row: Review) -> OpenReview:
    refunds = list(row.payment.refunds.all()) if row.payment else []
    withdraws = actions.to_withdraw(row, refunds)
    newest = max((refund.pk for refund in refunds), default="")
    fitting = actions.actions_for(row, refunds)
    return OpenReview(
        id=str(row.pk),
        reason=ReviewReason(row.reason),
        title=words.reason(row.reason),
        message=_mask(row)(row.message),
        version=row.version,
        opened_at=row.opened_at,
        reported_paid=row.reported_paid,
        plugin=row.order.plugin if row.order else "",
        order_key=row.order.key if row.order else "",
        account=row.account,
        payment_id=str(row.payment_id or ""),
        reference=row.payment.reference if row.payment else "",
        newest_refund=str(newest),
        actions=fitting,
        recommended=recommended(row.reason, fitting),
        recommendation=recommendation_of(row.reason, fitting),
        withdraws=refund_state(withdraws) if withdraws else None,
        taken_by=row.taken_by,
    )
