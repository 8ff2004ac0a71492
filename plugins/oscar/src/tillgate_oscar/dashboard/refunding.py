"""The refund of an order's money by staff: the page that chooses items, shipping or an amount and
shows them once more, and the one function that asks for a refund.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from oscar.apps.order.exceptions import InvalidPaymentEvent
from oscar.apps.payment.exceptions import PaymentError

from tillgate import InvalidRequest, shop
from tillgate.shop import money
from tillgate_oscar.orders import state_of
from tillgate_oscar.refunds import (
    MAY_REFUND,
    Extras,
    charge_name,
    charges_left,
    find_repeated,
    lines_left,
    paid_for,
    refund_event_type,
)
from tillgate_oscar.stock import restockable

KEY: Final = "tillgate_idempotency_key"
RESTOCK: Final = "tillgate_restock"
"""The session key that remembers whether staff last put items back in stock."""
_NOTHING: Final = Decimal("0.00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A refund that staff want: its amount, so many of each line, and the extras."""

    amount: Decimal
    quantities: dict[Any, int]
    extras: Extras


def marks(payment: shop.PaymentState | None) -> dict[str, Any]:
    """Return the hidden values of a form that keep a press from refunding twice."""
    refunds = payment.refunds if payment else ()
    return {
        "tillgate_just_refunded": shop.just_refunded(payment) if payment else "",
        "tillgate_idempotency_key": secrets.token_urlsafe(12),
        "tillgate_seen": refunds[-1].id if refunds else "",
    }


def refund_now(
    view: Any,
    request: HttpRequest,
    order: Any,
    read: Callable[[shop.RefundState | None], Wish],
) -> HttpResponse:
    """Ask for a refund, and say its result. `read` returns the wish, and gets the refund that the
    form's key has made before: nothing may be left of its items.
    """
    key, seen = request.POST.get(KEY), request.POST.get("tillgate_seen")
    repeated = find_repeated(order, key)
    try:
        wish = read(repeated)
        if not repeated and not request.POST.get("tillgate_again"):
            _refuse_second_press(order, wish.amount, seen)
        refund = view.get_handler().handle_payment_event(
            order,
            refund_event_type(),
            wish.amount,
            list(wish.quantities) or None,
            list(wish.quantities.values()) or None,
            reason=request.POST.get("reason", ""),
            idempotency_key=key,
            newest_refund=seen,
            extras=wish.extras,
        )
    except (PaymentError, InvalidPaymentEvent, InvalidRequest) as error:
        messages.error(
            request,
            gettext("Nothing was refunded: %(detail)s.") % {"detail": detail_of(error).rstrip(".")},
        )
    else:
        # With ATOMIC_REQUESTS the refund is sent after the request's transaction: its result is
        # known only then.
        transaction.on_commit(
            partial(shop.say_refund, request, refund.id, repeated=repeated is not None),
            using=shop.database(),
        )
    # of Oscar's view
    response: HttpResponse = view.reload_page(fragment="payment")
    return response


def _refuse_second_press(order: Any, amount: Decimal, seen: str | None) -> None:
    """Raise where the same amount was refunded a moment ago, and staff have not ticked that they
    want it again.
    """
    ours = state_of(order)
    payment = ours.paid_by if ours else None
    if payment is None or not payment.refunds or seen not in (None, payment.refunds[-1].id):
        return  # a newer refund than the page showed refuses this one with its own words
    if said := shop.just_refunded(payment, amount):
        remedy = gettext("To refund it again, tick “%(again)s” before you press the button.")
        raise PaymentError(f"{said} {remedy % {'again': gettext('Refund it again')}}")


def detail_of(error: Exception) -> str:
    """Return the words of an error for staff."""
    if isinstance(error, InvalidRequest):
        return f"“{error.value}” {error.remedy}"
    # Oscar raises some of its errors without a message
    return str(error) or gettext("more was asked for than was bought")


# The page -----------------------------------------------------------------------------------------


def show_refund(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Show the items of an order, its shipping, its surcharges and the refundable amount."""
    payment = _payment(request, order)
    if payment is None:
        return _refused(view, request, order)
    left, stock = lines_left(order, payment.refunds), restockable(order)
    page = {
        "order": order,
        "rows": [
            {"line": line, "left": max(0, number), "can_restock": line.pk in stock}
            for line, number in left.items()
        ],
        "charges": _named(charges_left(order, payment.refunds)),
        "left": payment.refundable_amount,
        "restocks": remembered(request),
        **marks(payment),
    }
    return render(request, "tillgate_oscar/dashboard/refund.html", page)


def refund_items(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Show a refund of items once more, or ask for it once it is confirmed."""
    payment = _payment(request, order)
    if payment is None and find_repeated(order, request.POST.get(KEY)) is None:
        return _refused(view, request, order)
    if request.POST.get("confirmed"):
        return refund_now(view, request, order, partial(_wish, request, order))
    try:
        wish = _wish(request, order)
        assert payment is not None
        if wish.amount > payment.refundable_amount:
            said = gettext("%(amount)s is more than the %(left)s that can still be refunded")
            raise PaymentError(
                said
                % {
                    "amount": shop.money_text(wish.amount, order.currency),
                    "left": shop.money_text(payment.refundable_amount, order.currency),
                },
            )
    except (PaymentError, InvalidRequest) as error:
        messages.error(
            request,
            gettext("Nothing was refunded: %(detail)s.") % {"detail": detail_of(error).rstrip(".")},
        )
        return show_refund(view, request, order)
    page = {
        "order": order,
        "wish": wish,
        "restock": [
            (line, wish.extras.restock[line.pk])
            for line in wish.quantities
            if line.pk in wish.extras.restock
        ],
        "charges": _named(wish.extras.charges),
        "left_after": money.left_of(payment.refundable_amount, [wish.amount]),
        "fields": _carried(request),
        "reason": request.POST.get("reason", ""),
        **marks(payment),
    }
    return render(request, "tillgate_oscar/dashboard/refund_confirm.html", page)


def refund_rest(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Refund all that is left, with all items that are left."""
    payment = _payment(request, order)
    if payment is None and find_repeated(order, request.POST.get(KEY)) is None:
        return _refused(view, request, order)

    def read(repeated: shop.RefundState | None) -> Wish:
        if repeated or payment is None:
            amount = repeated.amount if repeated else _NOTHING
            return Wish(amount=amount, quantities={}, extras=Extras(is_rest=True))
        left = {line: n for line, n in lines_left(order, payment.refunds).items() if n > 0}
        extras = Extras(
            charges=charges_left(order, payment.refunds),
            restock=_restock_all(request, order, left),
            tells_shopper=bool(request.POST.get("tell")),
            is_rest=True,
        )
        return Wish(amount=payment.refundable_amount, quantities=left, extras=extras)

    return refund_now(view, request, order, read)


def _restock_all(request: HttpRequest, order: Any, left: dict[Any, int]) -> dict[int, int]:
    remember(request, is_wanted=bool(request.POST.get("restock")))
    if not remembered(request):
        return {}
    stock = restockable(order)
    return {line.pk: min(n, stock[line.pk]) for line, n in left.items() if line.pk in stock}


def remembered(request: HttpRequest) -> bool:
    """Return whether this clerk last put items back in stock; at first that is so."""
    return bool(request.session.get(RESTOCK, True))


def remember(request: HttpRequest, *, is_wanted: bool) -> None:
    """Remember whether a clerk put items back in stock."""
    if remembered(request) is not is_wanted:
        request.session[RESTOCK] = is_wanted


def _payment(request: HttpRequest, order: Any) -> shop.PaymentState | None:
    """Return the payment that this user may refund, if something is left."""
    ours = state_of(order)
    if not request.user.has_perm(MAY_REFUND) or ours is None or not ours.refundable_amount:
        return None
    return ours.paid_by


def _refused(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    said = (
        gettext("nothing is left to refund")
        if request.user.has_perm(MAY_REFUND)
        else gettext("refunding money needs the permission “Can refund payments”")
    )
    messages.error(request, gettext("Nothing was refunded: %(detail)s.") % {"detail": said})
    response: HttpResponse = view.reload_page(fragment="payment")
    return response


def _wish(request: HttpRequest, order: Any, repeated: shop.RefundState | None = None) -> Wish:
    """Return the refund that a form asks for; raise `PaymentError` or `InvalidRequest` where it
    asks for more than there is.
    """
    if repeated:
        return Wish(amount=repeated.amount, quantities={}, extras=Extras())
    ours = state_of(order)
    refunds = ours.paid_by.refunds if ours and ours.paid_by else ()
    quantities = {
        line: wanted
        for line, left in lines_left(order, refunds).items()
        if (wanted := _read_quantity(request, line, left))
    }
    charges = {
        name: left for name, left in charges_left(order, refunds).items() if request.POST.get(name)
    }
    typed = request.POST.get("amount", "").strip()
    amount = (
        shop.read_typed(typed, order.currency)
        if typed
        else money.total(
            [paid_for(order, list(quantities), list(quantities.values())), *charges.values()],
        )
    )
    if not amount:
        raise PaymentError(gettext("choose items, the shipping, or an amount"))
    stock = restockable(order)
    ticked = [line for line in quantities if request.POST.get(f"restock_{line.pk}")]
    if quantities and stock:
        remember(request, is_wanted=bool(ticked))
    extras = Extras(
        charges=charges,
        restock={
            line.pk: min(quantities[line], stock[line.pk]) for line in ticked if line.pk in stock
        },
        tells_shopper=bool(request.POST.get("tell")),
    )
    return Wish(amount=amount, quantities=quantities, extras=extras)


def _named(charges: Mapping[str, Decimal]) -> list[tuple[str, str, Decimal]]:
    """Return the charges that are not nothing, each with its key and its name."""
    return [(key, charge_name(key), amount) for key, amount in charges.items() if amount]


def _read_quantity(request: HttpRequest, line: Any, left: int) -> int:
    text = request.POST.get(f"quantity_{line.pk}", "").strip() or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        said = gettext("“%(text)s” is no number of items")
        raise PaymentError(said % {"text": text[:20]})
    if (wanted := int(text)) > left:
        said = gettext("%(wanted)s x %(product)s is more than the %(left)s that were not refunded")
        raise PaymentError(
            said % {"wanted": wanted, "product": line.title, "left": max(0, left)},
        )
    return wanted


def _carried(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the fields of the form that its confirmation sends again."""
    names = ("quantity_", "restock_", "shipping", "surcharges", "amount", "reason", "tell")
    return [(name, str(value)) for name, value in request.POST.items() if name.startswith(names)]
