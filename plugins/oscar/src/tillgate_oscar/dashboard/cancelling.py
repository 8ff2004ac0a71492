"""The page where staff cancel a paid order, and decide about its money and its items."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from oscar.apps.order.exceptions import InvalidOrderStatus, InvalidPaymentEvent
from oscar.apps.payment.exceptions import PaymentError

from tillgate import Money, TillgateError, shop
from tillgate_oscar import mail
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.dashboard.refunding import KEY, detail_of, marks, remember, remembered
from tillgate_oscar.orders import paid_by, state_of, statuses_of_unpaid
from tillgate_oscar.payments import hold_released, locked
from tillgate_oscar.refunds import MAY_REFUND, Extras, refund_event_type
from tillgate_oscar.stock import restock, restockable

_REFUND: Final = "refund"
_KEEP: Final = "keep"
_LATER: Final = "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    money: str
    amount: Decimal
    note: str
    key: str | None
    seen: str | None
    tells_shopper: bool
    restock: dict[int, int] = field(default_factory=dict)


def needs_choice(order: Any, new_status: str) -> bool:
    """Tell whether a new status cancels an order with money of the shopper: staff are asked first.
    An order that other code has made wait is refused by the handler.
    """
    return (
        new_status == get_settings().cancelled_status
        and order.status not in statuses_of_unpaid(order)
        and paid_by(state_of(order)) is not None
    )


def show_cancellation(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Ask staff about the money and the items of a paid order before they cancel it."""
    settings, ours = get_settings(), state_of(order)
    payment = paid_by(ours)
    if payment is None or settings.cancelled_status not in order.available_statuses():
        return _not_cancelled(view, request, _why_not(order))
    left = payment.refundable_amount
    stock = restockable(order)
    page = {
        "order": order,
        "left": left,
        "may_decide": request.user.has_perm(MAY_REFUND),
        "form": shop.RefundForm(
            Money(left, order.currency),
            initial={"amount": left},
            auto_id="tillgate_%s",
        ),
        "rows": [(line, stock[line.pk]) for line in order.lines.all() if line.pk in stock],
        "restocks": remembered(request),
        **marks(payment),
    }
    return render(request, "tillgate_oscar/dashboard/cancel.html", page)


def cancel_paid(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Cancel a paid order as staff chose: refund, keep or leave its money, and put items back."""
    settings = get_settings()
    if order.status == settings.cancelled_status:  # a second press
        return _not_cancelled(view, request, _why_not(order))
    try:
        choice = _read(request, order)
        with shop.locked_order(PLUGIN, order.number) as ours:
            _cancel(view.get_handler(), request, order, ours, choice)
    except (PaymentError, InvalidPaymentEvent, InvalidOrderStatus, TillgateError) as error:
        return _not_cancelled(view, request, getattr(error, "for_staff", detail_of(error)))
    messages.success(
        request,
        gettext("Order %(number)s was cancelled.") % {"number": order.number},
    )
    response: HttpResponse = view.reload_page(fragment="payment")
    return response


def _cancel(
    handler: Any,
    request: HttpRequest,
    order: Any,
    ours: shop.OrderState,
    choice: _Choice,
) -> None:
    """Write all of it in the running transaction, under the order's lock; the refund is sent after
    its commit.
    """
    if ours.paid_by is None:
        raise PaymentError(gettext("no payment has paid the order"))
    staff = request.user.get_username()
    if choice.money == _REFUND:
        handler.handle_payment_event(
            order,
            refund_event_type(),
            choice.amount,
            reason=choice.note,
            idempotency_key=choice.key,
            newest_refund=choice.seen,
            extras=Extras(tells_shopper=choice.tells_shopper),
        )
    if choice.money in (_REFUND, _KEEP):  # the rest stays
        note = choice.note or gettext("kept when the order was cancelled")
        shop.keep_money(PLUGIN, order.number, staff=staff, note=note)
    if choice.restock and (found := locked(order.number)):
        hold_released(found, restock(found, choice.restock))
    said = gettext("Cancelled by %(staff)s.") % {"staff": staff}
    handler.handle_order_status_change(order, get_settings().cancelled_status, note_msg=said)
    if choice.tells_shopper:
        mail.tell_of_cancellation(order.number, ours.paid_by.id)


def _read(request: HttpRequest, order: Any) -> _Choice:
    """Return the choice of staff; raise `PaymentError` or `InvalidRequest` where it is not allowed
    or not complete.
    """
    given, wanted = request.POST, request.POST.get("money", "")
    if wanted not in (_REFUND, _KEEP, _LATER):
        raise PaymentError(gettext("say what happens to the money"))
    note = given.get("reason", "").strip()[:255]
    if wanted != _LATER and not request.user.has_perm(MAY_REFUND):
        raise PaymentError(gettext("refunding money needs the permission “Can refund payments”"))
    if wanted == _KEEP and not note:
        raise PaymentError(gettext("say why the shop keeps the money"))
    amount = Decimal(0)
    if wanted == _REFUND:
        amount = shop.read_typed(given.get("amount", "").strip(), order.currency)
    stock = restockable(order)
    ticked = {pk: left for pk, left in stock.items() if given.get(f"restock_{pk}")}
    if stock:
        remember(request, is_wanted=bool(ticked))
    return _Choice(
        money=wanted,
        amount=amount,
        note=note,
        key=given.get(KEY),
        seen=given.get("tillgate_seen"),
        tells_shopper=bool(given.get("tell")),
        restock=ticked,
    )


def _why_not(order: Any) -> str:
    if order.status == get_settings().cancelled_status:
        return gettext("it is cancelled already")
    if paid_by(state_of(order)) is None:
        return gettext("no money of it is here: change its status")
    return gettext("its status “%(status)s” does not lead there") % {"status": order.status}


def _not_cancelled(view: Any, request: HttpRequest, why: str) -> HttpResponse:
    said = gettext("The order was not cancelled: %(detail)s.")
    messages.error(request, said % {"detail": why.rstrip(".")})
    response: HttpResponse = view.reload_page()
    return response
