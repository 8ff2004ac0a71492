"""Oscar's orders as Tillgate sees them: found by number, described for a payment, and reached by signed addresses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.core import signing
from django.db.models import F, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from oscar.core.loading import get_model

from tillgate import Goods
from tillgate.django.models import Order as PaidOrder
from tillgate.django.models import Payment
from tillgate.django.operations.starting import is_under_review
from tillgate.django.tickets import pay_url as ticket_to_pay
from tillgate.django.tickets import start_url as ticket_to_start
from tillgate.errors import InvalidRequest
from tillgate.hooks import OrderDescription
from tillgate.lifecycle import PaymentStatus
from tillgate.wire.money import CURRENCY
from tillgate_oscar.conf import get_settings
from tillgate_oscar.plugin import PLUGIN

__all__ = [
    "describe",
    "find",
    "held_payment",
    "is_expected",
    "is_held_back",
    "is_marked_paid",
    "is_of_shopper",
    "paid_by",
    "pay_url",
    "read_preview",
    "read_status",
    "sign_preview",
    "start_url",
    "status_once_paid",
    "status_url",
    "statuses_of_unpaid",
    "waits_for_payment",
]

_STATUS_SALT: Final = "tillgate_oscar.order"
_PREVIEW_SALT: Final = "tillgate_oscar.preview"
_PREVIEW_VALID_FOR: Final = timedelta(hours=1)

SESSION_KEY: Final = "checkout_order_id"
"""The session key under which Oscar keeps the order that this browser placed last, for its thank-you page."""


def find(number: str) -> Any:
    """Return the order of a number, which is its key at Tillgate, or None."""
    return get_model("order", "Order")._default_manager.filter(number=number).first()


def describe(number: str) -> OrderDescription | None:
    """Return an order's amount and lines; it may be paid while it has the pending status."""
    order = find(number)
    if order is None:
        return None
    return OrderDescription(
        number=order.number,
        amount=order.total_incl_tax,
        currency=order.currency,
        lines=tuple(_goods(line) for line in order.lines.all()),
        description=f"Order {order.number}",
        not_payable_detail=_why_not(order),
    )


def _goods(line: Any) -> Goods:
    """Return a line of an order, which is for people to read: a line that staff set to zero does not block the payment."""
    try:
        return Goods.named(line.title, line.quantity)
    except InvalidRequest:
        return Goods.named(f"{line.title} x {line.quantity}")


def _why_not(order: Any) -> str | None:
    settings = get_settings()
    if order.status == settings.paid_status:
        return _("the order is paid")
    if order.status == settings.cancelled_status:
        return _("the order was cancelled")
    if order.status != settings.pending_status:
        return _("the order has the status “%(status)s”") % {"status": order.status}
    if order.currency != CURRENCY:
        return _("the order is in %(currency)s, and only US dollars can be paid") % {"currency": order.currency}
    return None


def is_expected(order: Any) -> bool:
    """Tell whether an order is to be paid through Tillgate; a shop may take other payments too."""
    return PaidOrder.objects.filter(plugin=PLUGIN, key=order.number).exists()


def held_payment(order: Any) -> Payment | None:
    """Return a paid payment of the order that is not entirely refunded, or None. Its shop event may not be delivered yet."""
    payments = Payment.objects.select_related("order").filter(order__plugin=PLUGIN, order__key=order.number)
    paid = payments.filter(status=PaymentStatus.PAID).order_by("pk")
    return next((payment for payment in paid if payment.refunded_amount < payment.amount), None)


def paid_by(order: Any) -> Payment | None:
    """Return the payment that paid an order, or None if there is none or it was refunded entirely."""
    payment = Payment.objects.filter(order__plugin=PLUGIN, order__key=order.number, order__paid_by=F("pk")).first()
    return payment if payment and payment.refunded_amount < payment.amount else None


def waits_for_payment(order: Any) -> bool:
    """Tell whether a shopper should pay an order through Tillgate now.

    An order that was closed, or that a payment has paid, cannot be paid again, even if staff reopened it by hand. An order that the gateway
    reports paid must not be paid again either: staff review it.
    """
    ours = PaidOrder.objects.filter(plugin=PLUGIN, key=order.number, closed_at__isnull=True, paid_by__isnull=True)
    if order.status != get_settings().pending_status or not ours.exists():
        return False
    return held_payment(order) is None and not is_under_review(PLUGIN, order.number)


def is_held_back(order: Any) -> bool:
    """Tell whether an unpaid order of Tillgate's has a status of the shop's own, without a payment and not permanently marked paid."""
    settings = get_settings()
    if order.status in (settings.pending_status, settings.paid_status, settings.cancelled_status):
        return False
    if not PaidOrder.objects.filter(plugin=PLUGIN, key=order.number, paid_by__isnull=True).exists():
        return False
    return not is_marked_paid(order)


def is_marked_paid(order: Any) -> bool:
    """Tell whether an order was marked paid, by its history, and has not been set back to waiting since.

    The actor and the reason do not count.
    """
    settings = get_settings()
    telling = (settings.pending_status, settings.paid_status)
    last = order.status_changes.filter(Q(old_status__in=telling) | Q(new_status__in=telling)).order_by("-pk").first()
    if last is None or settings.pending_status == last.new_status:
        return False
    return settings.paid_status in (last.old_status, last.new_status)  # the history lacks changes that a plain `save()` wrote


def status_once_paid(order: Any) -> str:
    """Return the last status of an order that only a paid order may have: a paid order may already be on its way."""
    changes = order.status_changes.exclude(new_status__in=statuses_of_unpaid(order))
    return str(changes.order_by("-pk").values_list("new_status", flat=True).first() or get_settings().paid_status)


def statuses_of_unpaid(order: Any) -> set[str]:
    """Return the statuses that an unpaid order can have in the shop's pipeline, including the cancelled status."""
    settings, pipeline = get_settings(), order.pipeline
    paid, ahead = {settings.paid_status}, [settings.paid_status]
    while ahead:
        further = set(pipeline.get(ahead.pop(), ())) - paid - {settings.pending_status, settings.cancelled_status}
        paid |= further
        ahead += further
    return ({settings.pending_status, settings.cancelled_status} | set(pipeline.get(settings.pending_status, ()))) - paid


def is_of_shopper(order: Any, request: HttpRequest) -> bool:
    """Tell whether this request is from the order's shopper, by the browser's session or the login."""
    if request.session.get(SESSION_KEY) == order.pk:
        return True
    return bool(request.user.is_authenticated and order.user_id == request.user.pk)


def pay_url(order: Any) -> str:
    """Return the address where an order can be paid, or paid again; hand it only to its shopper."""
    return ticket_to_pay(PLUGIN, order.number)


def start_url(order: Any, method: str) -> str:
    """Return the address that starts the payment with the method that the shopper just chose."""
    return ticket_to_start(PLUGIN, order.number, method)


def sign_preview(basket: Any, method: str) -> str:
    """Return a ticket that proves for an hour that its holder saw the preview of a basket with a payment method."""
    return signing.dumps([basket.pk, method], salt=_PREVIEW_SALT)


def read_preview(ticket: str) -> tuple[int, str] | None:
    """Return a basket's id and a payment method, or None when the ticket is forged or too old."""
    try:
        basket, method = signing.loads(ticket, salt=_PREVIEW_SALT, max_age=_PREVIEW_VALID_FOR)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return int(basket), str(method)


def status_url(number: str) -> str:
    """Return the address that shows the state of an order, and nothing else of it, to every holder of the address."""
    return reverse("tillgate_oscar:order", args=[signing.Signer(salt=_STATUS_SALT).sign_object(number)])


def read_status(ticket: str) -> str | None:
    """Return an order's number, or None when the ticket is forged."""
    try:
        return str(signing.Signer(salt=_STATUS_SALT).unsign_object(ticket))
    except (signing.BadSignature, ValueError):
        return None
