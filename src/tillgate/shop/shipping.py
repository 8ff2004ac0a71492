"""Shipping: the reasons against it while an order's money is in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from tillgate import money
from tillgate.django import words
from tillgate.django.models import Refund, Review
from tillgate.lifecycle import (
    BOUND_REFUND_STATUSES,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
)
from tillgate.shop.states import OrderState, order_states

__all__ = ["ShippingDoubt", "ShippingDoubtKind", "against_shipping", "orders_in_doubt"]

_NEWEST_REFUNDS: Final = 1_000
_FINISHED: Final = (RefundStatus.SUCCEEDED, RefundStatus.FAILED)


class ShippingDoubtKind(StrEnum):
    """A reason not to ship an order."""

    REFUNDED = "refunded"
    REFUND_UNDER_WAY = "refund-under-way"
    """A refund of all its money is under way, or its outcome is unknown."""
    DISPUTED = "disputed"
    MANUAL_REVIEW = "manual-review"
    """The gateway waits for somebody to review the payment by hand."""
    CHANGED_AFTER_PAID = "changed-after-paid"
    UNDERPAID = "underpaid"
    DUPLICATE_NUMBER = "duplicate-number"
    """Another order has a payment with the same number of the gateway."""


_K = ShippingDoubtKind

_OF_REVIEW: Final[Mapping[ReviewReason, ShippingDoubtKind]] = MappingProxyType(
    {
        ReviewReason.DISPUTED: _K.DISPUTED,
        ReviewReason.MANUAL_REVIEW: _K.MANUAL_REVIEW,
        ReviewReason.CHANGED_AFTER_PAID: _K.CHANGED_AFTER_PAID,
        ReviewReason.UNDERPAID: _K.UNDERPAID,
        ReviewReason.DUPLICATE_TRANSACTION_NO: _K.DUPLICATE_NUMBER,
    },
)
"""The open reviews that stand against shipping."""
_TEXTS: Final = {_K.REFUNDED: _("Refunded"), _K.REFUND_UNDER_WAY: _("Refund under way")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingDoubt:
    """One thing that stands against shipping; `text` names it in the active language, for staff."""

    kind: ShippingDoubtKind
    text: str


def against_shipping(
    plugin: str,
    order_keys: Iterable[str],
    *,
    states: Iterable[OrderState] | None = None,
) -> dict[str, tuple[ShippingDoubt, ...]]:
    """Return the reasons not to ship each order; an order without any is left out.

    `states` are the orders' states, if the caller has read them. It takes one statement more. An
    unpaid order is left out too: the shop itself decides whether it ships.
    """
    keys = list(order_keys)
    known = order_states(plugin, keys) if states is None else states
    found = {ours.key: list(_of_refunds(ours)) for ours in known}
    chosen = Review.objects.filter(
        order__plugin=plugin,
        order__key__in=keys,
        reason__in=_OF_REVIEW,
        resolved_at__isnull=True,
    )
    for key, reason in chosen.order_by("pk").values_list("order__key", "reason"):
        found.setdefault(key, []).append(_OF_REVIEW[ReviewReason(reason)])
    return {
        key: tuple(ShippingDoubt(kind=kind, text=_text_of(kind)) for kind in dict.fromkeys(kinds))
        for key, kinds in found.items()
        if kinds
    }


def orders_in_doubt(plugin: str) -> tuple[str, ...]:
    """Return the keys of orders that something stands against shipping, the newest case first: all
    that have an open review of such a reason, and of refunded orders those of the last 1,000
    refunds.
    """
    reviewed = Review.objects.filter(
        order__plugin=plugin,
        reason__in=_OF_REVIEW,
        resolved_at__isnull=True,
    ).order_by("-pk")
    sure = list(reviewed.values_list("order__key", flat=True))
    return tuple(dict.fromkeys([*sure, *_refunded(plugin)]))


def _refunded(plugin: str) -> Iterator[str]:
    """Yield the keys of the orders all of whose money was refunded or is on its way back."""
    refunds = Refund.objects.filter(
        payment__order__plugin=plugin,
        payment__order__paid_by=F("payment"),
        payment__status=PaymentStatus.PAID,
    )
    keys = refunds.order_by("-pk").values_list("payment__order__key", flat=True)
    newest = dict.fromkeys(keys[:_NEWEST_REFUNDS])
    bound = refunds.filter(payment__order__key__in=newest, status__in=BOUND_REFUND_STATUSES)
    left = dict[str, Decimal]()
    for key, amount, taken in bound.values_list("payment__order__key", "payment__amount", "amount"):
        left[key] = money.left_of(left.get(key, amount), [taken])
    yield from (key for key in newest if key in left and left[key] <= 0)


def _of_refunds(ours: OrderState) -> Iterable[ShippingDoubtKind]:
    payment = ours.paid_by
    if payment is None or not payment.refunds:
        return
    if not payment.held_amount:
        yield _K.REFUNDED
    elif not payment.refundable_amount and any(
        refund.status not in _FINISHED for refund in payment.refunds
    ):
        yield _K.REFUND_UNDER_WAY


def _text_of(kind: ShippingDoubtKind) -> str:
    reason = next((reason for reason, other in _OF_REVIEW.items() if other is kind), None)
    return words.reason(reason) if reason else str(_TEXTS[kind])
