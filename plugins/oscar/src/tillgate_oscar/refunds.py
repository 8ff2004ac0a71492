"""Refunds: Oscar's event handler requests them, Tillgate sends them after its transaction, and one
function records those that succeeded.

Oscar writes a payment event as soon as a refund is requested. But a requested refund has moved no
money yet: the gateway may reject it, and its result may be unknown for a while. So the handler only
queues it. Tillgate calls `changed` once for every change of the refund, and that function writes
the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from typing import Any, Final

from django.utils.translation import gettext, gettext_lazy
from oscar.apps.order.exceptions import InvalidPaymentEvent
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_class, get_model

from tillgate import InvalidRequest, TillgateError, shop
from tillgate.hooks import Refund, RefundStatus
from tillgate.shop import money
from tillgate_oscar import mail
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.orders import outstanding, state_of
from tillgate_oscar.payments import locked, source_of
from tillgate_oscar.stock import restock

MAY_REFUND: Final = "tillgate.refund_payment"
"""Tillgate's permission for staff that refund money."""

_NOTHING: Final = Decimal("0.00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The extras of a refund: its parts for shipping and surcharges, the items to put back
    in stock once the money has moved, and whether the shopper is mailed. `is_rest`: the refund
    takes all that is left.
    """

    charges: Mapping[str, Decimal] = field(default_factory=dict)
    restock: Mapping[int, int] = field(default_factory=dict)
    tells_shopper: bool = True
    is_rest: bool = False

    def data(self, quantities: Mapping[Any, int]) -> dict[str, Any]:
        """Return the data that the refund carries until it has succeeded."""
        lines = {str(line.pk): quantity for line, quantity in quantities.items()}
        restock = {str(line): quantity for line, quantity in self.restock.items()}
        return {
            **({"lines": lines} if lines else {}),
            **{name: str(amount) for name, amount in self.charges.items() if amount},
            **({"restock": restock} if restock else {}),
            **({} if self.tells_shopper else {"quiet": True}),
        }


def queue(
    order: Any,
    event_type: Any,
    amount: Decimal,
    quantities: dict[Any, int],
    *,
    staff: str,
    reason: str,
    idempotency_key: str | None,
    newest_refund: str | None,
    extras: Extras | None = None,
) -> shop.RefundState:
    """Queue a refund of money and of so many of each line; raise `PaymentError` or
    `InvalidPaymentEvent`, and then nothing is queued.

    The refund belongs to the payment that paid the order. Staff handle other payments of the same
    order in their reviews.
    """
    extras = extras or Extras()
    data = extras.data(quantities)
    about: dict[str, Any] = {
        "staff": staff,
        "reason": reason,
        "data": data,
        "idempotency_key": idempotency_key,
        "newest_refund": newest_refund,
    }
    try:
        with shop.locked_order(PLUGIN, order.number) as ours:
            if ours.paid_by is None:
                raise PaymentError(_why_nothing_is_refunded(order, ours))
            queued = (
                shop.refund_rest(PLUGIN, order.number, **about)
                if extras.is_rest
                else shop.refund(ours.paid_by.id, amount, **about)
            )
            # else it is repeated, and its lines are counted already
            if queued.id not in {one.id for one in ours.paid_by.refunds}:
                _check_quantities(order, event_type, quantities, ours.paid_by.refunds)
                _check_charges(order, extras, ours.paid_by.refunds)
    except InvalidRequest as error:
        raise PaymentError(f"{error.value} {error.remedy}") from None
    except shop.RefundNotPossible as error:
        raise PaymentError(error.for_staff) from None
    except TillgateError as error:  # another process has the order
        raise PaymentError(str(error)) from None
    return queued


def find_repeated(order: Any, idempotency_key: str | None) -> shop.RefundState | None:
    """Return the refund of the order's money that the same key has made before, or None."""
    ours = state_of(order) if idempotency_key else None
    refunds = ours.paid_by.refunds if ours and ours.paid_by else ()
    return next((refund for refund in refunds if refund.idempotency_key == idempotency_key), None)


class Refunded(StrEnum):
    """How much of a paid order's money was refunded."""

    ENTIRELY = "entirely"
    PARTLY = "partly"
    UNDER_WAY = "under way"
    """A refund has started and not finished, or its result is unknown."""


MARKS: Final = {
    Refunded.ENTIRELY: gettext_lazy("refunded"),
    Refunded.PARTLY: gettext_lazy("partly refunded"),
    Refunded.UNDER_WAY: gettext_lazy("refund under way"),
}
"""The words of the badges in the dashboard."""
_CHARGES: Final = {
    "shipping": gettext_lazy("Shipping"),
    "surcharges": gettext_lazy("Surcharges"),
}
"""The names of what an order costs beside its lines, by the keys of a refund's data."""
_FINISHED: Final = (RefundStatus.SUCCEEDED, RefundStatus.FAILED)
_ABOUT_REFUNDS: Final = (
    shop.ShippingDoubtKind.REFUNDED,
    shop.ShippingDoubtKind.REFUND_UNDER_WAY,
)


def refunded_of(order: Any, ours: shop.OrderState | None) -> Refunded | None:
    """Return how much of the money of a paid order was refunded, or None. An order that another
    source paid in part is refunded in part.
    """
    payment = ours.paid_by if ours else None
    if payment is None or not payment.refunds:
        return None
    if any(refund.status not in _FINISHED for refund in payment.refunds):
        return Refunded.UNDER_WAY
    if not payment.refunded_amount:
        return None
    return (
        Refunded.PARTLY
        if payment.held_amount or outstanding(order) < order.total_incl_tax
        else Refunded.ENTIRELY
    )


def doubts_of(orders: Iterable[Any], states: Iterable[shop.OrderState]) -> dict[str, list[str]]:
    """Return the words of the reasons against shipping orders, beside their refunds."""
    numbers = [order.number for order in orders]
    found = shop.against_shipping(PLUGIN, numbers, states=states)
    return {
        number: words
        for number, doubts in found.items()
        if (words := [one.text for one in doubts if one.kind not in _ABOUT_REFUNDS])
    }


def refunded_entirely(order: Any, ours: shop.OrderState | None) -> Refunded | None:
    """Return whether all the money of a paid order was refunded, or will be once the refunds under
    way succeed; None if a part stays.
    """
    refunded, payment = refunded_of(order, ours), ours.paid_by if ours else None
    if refunded is not Refunded.UNDER_WAY or payment is None:
        return refunded if refunded is Refunded.ENTIRELY else None
    takes_all = not payment.refundable_amount and outstanding(order) >= order.total_incl_tax
    return refunded if takes_all else None


def why_not_shipped(order: Any) -> str | None:
    """Return why an order must not be shipped, and the remedy; None for one with money that is here
    and not in doubt.
    """
    ours = state_of(order)
    refunded = refunded_entirely(order, ours)
    if refunded is Refunded.ENTIRELY:
        return gettext("order %(number)s was refunded: do not ship it, cancel it") % {
            "number": order.number,
        }
    if refunded is Refunded.UNDER_WAY:
        said = gettext(
            "a refund of all the money of order %(number)s is under way: do not ship it, and wait "
            "for the result of the refund",
        )
        return said % {"number": order.number}
    if doubts := doubts_of([order], [ours] if ours else []).get(order.number):
        said = gettext(
            "the money of order %(number)s is in doubt (%(doubts)s): do not ship it before its "
            "review is resolved",
        )
        return said % {"number": order.number, "doubts": ", ".join(doubts)}
    return None


def is_refund(event_type: Any) -> bool:
    """Tell whether a type of Oscar's payment events is the one for money refunded."""
    # Compare rows, not names: to MariaDB and MySQL the name equals "refund", which a shop may have
    # had before.
    return bool(event_type.pk == refund_event_type().pk)


def refund_event_type() -> Any:
    """Return the type of Oscar's payment event for money refunded. The dashboard offers it, so it
    is made where a shop lacks it.
    """
    return get_model("order", "PaymentEventType")._default_manager.get_or_create(
        name=get_settings().refund_event,
    )[0]


def refunded_here(order: Any, ours: shop.OrderState | None) -> bool:
    """Tell whether Tillgate refunds this order. The shop's own handler refunds orders that were
    paid in another way.

    A payment that did not pay the order and was refunded entirely, such as a late one, does not
    count.
    """
    return ours is not None and bool(ours.paid_by or ours.held or not order.sources.exists())


def _why_nothing_is_refunded(order: Any, ours: shop.OrderState) -> str:
    if not ours.held:
        return gettext("nothing has been paid for order %(number)s") % {"number": order.number}
    held = ours.held[0]
    if any(
        review.payment_id == held.id for review in shop.open_reviews(PLUGIN, order_keys=[ours.key])
    ):
        detail = gettext(
            "payment %(reference)s did not pay order %(number)s: it waits under “needs review”, "
            "where it can be refunded",
        )
    else:  # staff closed its review
        detail = gettext(
            "payment %(reference)s did not pay order %(number)s: it can be refunded on its own "
            "page in the admin",
        )
    return detail % {"reference": held.reference, "number": order.number}


def _check_quantities(
    order: Any,
    event_type: Any,
    quantities: dict[Any, int],
    others: Iterable[shop.RefundState],
) -> None:
    """Raise when more of a line would be refunded than was bought. Refunds that are still on their
    way count too.

    The caller read the other refunds under the order's lock, so if two people refund the same line,
    the second gets the error.
    """
    on_their_way = _quantities_on_their_way(order, others)
    for line, quantity in quantities.items():
        if not line.is_payment_event_permitted(event_type, quantity + on_their_way[line.pk]):
            detail = gettext(
                "a refund of line #%(line)s is on its way, and together they are more than were "
                "bought",
            )
            raise InvalidPaymentEvent(detail % {"line": line.pk})


def _check_charges(order: Any, extras: Extras, others: Iterable[shop.RefundState]) -> None:
    left = charges_left(order, others)
    for name, amount in extras.charges.items():
        if amount > left[name]:
            said = gettext("refunded already: %(name)s")
            raise InvalidPaymentEvent(said % {"name": _CHARGES[name]})


def paid_for(order: Any, lines: Iterable[Any], quantities: Iterable[int]) -> Decimal:
    """Return the amount paid for so many of each line, beyond those that were refunded before or
    are on their way.

    Each item has its share of the line's price, so that all refunds of a line add up to it. The
    prices of single items, which Oscar keeps too, are rounded with tax and discounts: together they
    may be more than the shopper paid.
    """
    ours = state_of(order)
    on_their_way = _quantities_on_their_way(
        order,
        [one for payment in ours.payments for one in payment.refunds] if ours else [],
    )
    total = _NOTHING
    smallest = Decimal(1).scaleb(-money.decimals_of(order.currency))
    for line, quantity in zip(lines, quantities, strict=True):
        before = line.payment_event_quantity(refund_event_type()) + on_their_way[line.pk]
        total = money.total(
            [
                total,
                money.left_of(
                    _share(line, before + quantity, smallest),
                    [_share(line, before, smallest)],
                ),
            ],
        )
    return total


def _share(line: Any, quantity: int, smallest: Decimal) -> Decimal:
    if not quantity:  # the line may have none either
        return _NOTHING
    share = money.EXACT.divide(
        money.EXACT.multiply(line.line_price_incl_tax, quantity),
        line.quantity,
    )
    return share.quantize(smallest, ROUND_HALF_UP, money.EXACT)


def _quantities_on_their_way(order: Any, refunds: Iterable[shop.RefundState]) -> Counter[int]:
    """Return how many of each line are in refunds that may have moved money and are not written in
    Oscar's events yet.
    """
    written = set(order.payment_events.values_list("reference", flat=True))
    counted: Counter[int] = Counter()
    for refund in refunds:
        if refund.status is not RefundStatus.FAILED and _reference(refund) not in written:
            counted.update(_lines_of(refund))
    return counted


def _lines_of(refund: Refund, name: str = "lines") -> dict[int, int]:
    return {int(line): quantity for line, quantity in refund.data.get(name, {}).items()}


def charges_left(order: Any, refunds: Iterable[shop.RefundState]) -> dict[str, Decimal]:
    """Return how much of an order's shipping and surcharges was not refunded; refunds on their way
    count too.
    """
    taken = [one.data for one in refunds if one.status is not RefundStatus.FAILED]
    paid = {"shipping": order.shipping_incl_tax, "surcharges": order.surcharge_incl_tax}
    return {
        name: max(
            _NOTHING,
            money.left_of(Decimal(amount), [Decimal(data.get(name, "0")) for data in taken]),
        )
        for name, amount in paid.items()
    }


def charge_name(name: str) -> str:
    """Return what a page calls the shipping or the surcharges."""
    return str(_CHARGES[name])


def lines_left(order: Any, refunds: Iterable[shop.RefundState]) -> dict[Any, int]:
    """Return how many of each line were not refunded; refunds on their way count too."""
    on_their_way, event_type = _quantities_on_their_way(order, refunds), refund_event_type()
    return {
        line: line.quantity - line.payment_event_quantity(event_type) - on_their_way[line.pk]
        for line in order.lines.all()
    }


def _reference(refund: Refund) -> str:
    """Return the name of a refund in Oscar's records: the same however often it is reported."""
    return f"{refund.payment.reference}/{refund.id}"


_NOTES: Final = {
    RefundStatus.FAILED: gettext_lazy("%(amount)s was not refunded (%(reference)s)."),
    RefundStatus.UNKNOWN: gettext_lazy(
        "It is not known whether %(amount)s was refunded (%(reference)s): staff will settle it.",
    ),
}


def changed(refund: Refund) -> None:
    """Record the result of a refund in Oscar: the money and the lines if it succeeded, else a note.
    It does so once per refund.
    """
    order = locked(refund.payment.order.key)
    if order is None:  # deleted, and its records with it
        return
    handler = get_class("order.processing", "EventHandler")()
    reference, amount = _reference(refund), shop.money_text(refund.amount, refund.payment.currency)
    if refund.status is not RefundStatus.SUCCEEDED:
        handler.create_note(
            order,
            str(_NOTES[refund.status]) % {"amount": amount, "reference": reference},
        )
        if order.status == get_settings().cancelled_status:
            shop.close_order(PLUGIN, order.number, actor="refund")  # its money is still here
        return
    if "quiet" not in refund.data:
        mail.tell_of_refund(refund)
    if order.notes.filter(
        message__contains=f"({reference})",
    ).exists():  # a failed or unknown refund
        said = gettext("%(amount)s was refunded after all (%(reference)s).")
        handler.create_note(order, said % {"amount": amount, "reference": reference})
    source = source_of(order, refund.payment.reference)
    # it never paid the order, so Oscar's records do not contain the refunded money
    if source is None:
        said = gettext("%(amount)s that did not pay this order was refunded (%(reference)s).")
        handler.create_note(order, said % {"amount": amount, "reference": reference})
        return
    if source.transactions.filter(reference=reference).exists():
        return
    source.refund(refund.amount, reference=reference, status="refunded")
    asked = _lines_of(refund)
    lines = list(order.lines.filter(pk__in=asked))
    quantities = [asked[line.pk] for line in lines]
    handler.create_payment_event(
        order,
        refund_event_type(),
        refund.amount,
        lines,
        quantities,
        reference=reference,
    )
    restock(order, _lines_of(refund, "restock"))
    _set_status(order, handler)


def _set_status(order: Any, handler: Any) -> None:
    """Give an order the shop's status for refunded orders, where it has one and the pipeline leads
    there.
    """
    settings = get_settings()
    statuses = {
        Refunded.ENTIRELY: settings.refunded_status,
        Refunded.PARTLY: settings.partly_refunded_status,
    }
    # None is no key
    status = statuses.get(refunded_of(order, state_of(order)))  # type: ignore[arg-type]
    if status and status in order.available_statuses():
        handler.handle_order_status_change(order, status)
