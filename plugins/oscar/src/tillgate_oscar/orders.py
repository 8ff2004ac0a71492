"""Oscar's orders as Tillgate sees them: found by number, described for a payment, and reached by
signed addresses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings as project
from django.core import signing
from django.db.models import Q
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from oscar.core.loading import get_model

from tillgate import Goods, InvalidRequest, shop
from tillgate.hooks import (
    Customer,
    OrderDescription,
    Payment,
    PaymentStatus,
    ShippingAddress,
)
from tillgate.shop import money
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.stock import RELEASED, missing

_STATUS_SALT: Final = "tillgate_oscar.order"
_CHANGE_SALT: Final = "tillgate_oscar.change"
_CHANGE_VALID_FOR: Final = timedelta(hours=1)
_PREVIEW_SALT: Final = "tillgate_oscar.preview"
_PREVIEW_VALID_FOR: Final = timedelta(hours=1)

LINK_UNTIL: Final = "link_until"
"""The key in the data of Tillgate's order: the end of its payment link."""

_NOTHING: Final = Decimal("0.00")

SESSION_KEY: Final = "checkout_order_id"
"""The session key under which Oscar keeps the order that this browser placed last, for its
thank-you page.
"""


def find(number: str) -> Any:
    """Return the order of a number, which is its key at Tillgate, or None."""
    return get_model("order", "Order")._default_manager.filter(number=number).first()


def describe(order_key: str) -> OrderDescription | None:
    """Return an order's amount, less the money of other payment sources, and its lines; it may be
    paid while it has the pending status.
    """
    order = find(order_key)
    if order is None:
        return None
    sources = _other_sources(order)
    detail = _why_not(order, sources)
    return OrderDescription(
        number=order.number,
        amount=_left_by(sources, order),
        currency=order.currency,
        lines=tuple(_goods(line) for line in order.lines.all()),
        description=f"Order {order.number}",
        not_payable_detail=detail,
        is_cancelled=order.status == get_settings().cancelled_status,
        email=order.email or None,
        customer=_customer(order),
        staff_url=_staff_url(order),
        shipping=_shipping(order),
        change_url=_change_url_at_home(order)
        if detail is None or may_be_ordered_again(order, state_of(order))
        else None,
    )


def _shipping(order: Any) -> ShippingAddress | None:
    address = order.shipping_address
    if address is None or not (address.line1 and address.country_id):
        return None
    return ShippingAddress(
        name=address.name,
        line1=address.line1,
        line2=address.line2,
        city=address.line4,
        region=address.state,
        postal_code=address.postcode,
        country=address.country_id,
    )


def search(text: str, limit: int) -> list[str]:
    """Return the numbers of orders of a number, an e-mail address, or the beginnings of names.

    Oscar has no index of names and addresses: each table is read by itself, and none for a text
    with a digit, which is a number.
    """
    if "@" in text:
        wanted = Q(guest_email__iexact=text) | _of("user", Q(email__iexact=text), limit)
    elif is_number(text):
        wanted = Q(number=text)
    elif words := text.split():
        named = _named(words)
        rows = ("billing_address", "shipping_address", "user")
        wanted = reduce(or_, (_of(row, named, limit) for row in rows))
    else:
        return []
    orders = get_model("order", "Order")._default_manager.filter(wanted).order_by("-pk")
    return list(orders.values_list("number", flat=True)[:limit])


def is_number(text: str) -> bool:
    """Tell whether a text can be a number or an amount, and no name or e-mail address."""
    return "@" not in text and any(char.isdigit() for char in text)


def _of(row: str, condition: Q, limit: int) -> Q:
    """Return the condition that an order is of the newest users or addresses that meet another."""
    kind = get_model("order", "Order")._meta.get_field(row).related_model
    found = kind._default_manager.filter(condition).order_by("-pk")
    return Q(**{f"{row}__in": list(found.values_list("pk", flat=True)[:limit])})


def _named(words: list[str]) -> Q:
    """Return the condition that each word begins a name."""
    return reduce(
        and_,
        (Q(first_name__istartswith=word) | Q(last_name__istartswith=word) for word in words),
    )


def customers(order_keys: Sequence[str]) -> dict[str, Customer]:
    """Return the shoppers of several orders."""
    found = get_model("order", "Order")._default_manager.filter(number__in=list(order_keys))
    rows = found.select_related("billing_address", "shipping_address", "user")
    return {order.number: _customer(order) for order in rows}


def _customer(order: Any) -> Customer:
    """Return the shopper by the billing address, else by the shipping address or the user."""
    address = order.billing_address or order.shipping_address
    name = address.name if address else order.user.get_full_name() if order.user else ""
    return Customer(name=name.strip(), email=order.email or "")


def _staff_url(order: Any) -> str | None:
    """Return the order's page in the dashboard, if the shop has it."""
    with contextlib.suppress(NoReverseMatch):
        return str(reverse("dashboard:order-detail", kwargs={"number": order.number}))
    return None


def outstanding(order: Any, sources: list[Any] | None = None) -> Decimal:
    """Return the part of an order's total that no other payment source holds, such as a gift card
    or an account. `sources` are all of the order's, if they were read already.
    """
    return _left_by(_other_sources(order, sources), order)


def _other_sources(order: Any, sources: list[Any] | None = None) -> list[Any]:
    """Return the payment sources of an order that do not hold the money of a Tillgate payment."""
    return [
        source
        for source in (order.sources.all() if sources is None else sources)
        if not source.reference or not shop.find_payment(PLUGIN, reference=source.reference)
    ]


def _left_by(sources: list[Any], order: Any) -> Decimal:
    if not sources:
        return Decimal(order.total_incl_tax)
    held = [
        max(source.amount_allocated, source.amount_debited) - source.amount_refunded
        for source in sources
    ]
    return max(
        _NOTHING,
        money.left_of(order.total_incl_tax, [amount for amount in held if amount > 0]),
    )


def _goods(line: Any) -> Goods:
    """Return a line of an order, which is for people to read: a line that staff set to zero does
    not block the payment.
    """
    try:
        return Goods.named(line.title, line.quantity)
    except InvalidRequest:
        return Goods.named(f"{line.title} x {line.quantity}")


def _why_not(order: Any, sources: list[Any]) -> str | None:
    settings = get_settings()
    if order.status == settings.paid_status:
        return _("the order is paid")
    if order.status == settings.cancelled_status:
        return _("the order was cancelled")
    if order.status != settings.pending_status:
        return _("the order has the status “%(status)s”") % {"status": order.status}
    if any(source.currency != order.currency for source in sources):
        return _("a part of it was paid in another currency")
    if sources and not _left_by(sources, order):
        return _("it is paid in another way")
    if gone := _gone_meanwhile(order):
        return _("Not available any more: %(products)s.") % {"products": ", ".join(gone)}
    return None


def _gone_meanwhile(order: Any) -> list[str]:
    """Return the items that are gone from an order with released goods and a valid payment link."""
    data = shop.order_data(PLUGIN, order.number)
    return missing(order, data[RELEASED]) if RELEASED in data and LINK_UNTIL in data else []


def state_of(order: Any) -> shop.OrderState | None:
    """Return Tillgate's state of an order, or None for an order that is not to be paid through
    Tillgate.
    """
    return shop.order_state(PLUGIN, order.number)


def is_expected(order: Any) -> bool:
    """Tell whether an order is to be paid through Tillgate; a shop may take other payments too."""
    return state_of(order) is not None


def paid_by(ours: shop.OrderState | None) -> shop.PaymentState | None:
    """Return the payment that paid an order, or None if there is none or it was refunded
    entirely.
    """
    payment = ours.paid_by if ours else None
    return payment if payment and payment.held_amount > 0 else None


def is_paid_here(order: Any) -> bool:
    """Tell whether a payment paid an order and was not refunded entirely; in one statement where
    none did.
    """
    payment = shop.find_payment(PLUGIN, paid_order=order.number)
    return payment is not None and payment.held_amount > 0


def waits_for_payment(order: Any, ours: shop.OrderState | None) -> bool:
    """Tell whether a shopper should pay an order through Tillgate now.

    An order that was closed, or that a payment has paid, cannot be paid again, even if staff
    reopened it by hand. An order that the gateway reports paid must not be paid again either: staff
    review it.
    """
    if order.status != get_settings().pending_status or ours is None:
        return False
    return not (ours.is_closed or ours.paid_by or ours.held or ours.reported_paid)


def is_free(order: Any) -> bool:
    """Tell whether nothing of an order is left to pay: staff have reduced it, or another source
    holds all of it.
    """
    return outstanding(order) <= 0


def needs_payment(order: Any, ours: shop.OrderState | None) -> bool:
    """Tell whether an order waits for payment and something is left to pay."""
    return waits_for_payment(order, ours) and not is_free(order)


def may_be_cancelled(order: Any, ours: shop.OrderState | None) -> bool:
    """Tell whether its shopper may cancel an order: it waits for payment, and no money is on its
    way.
    """
    if ours is None or not waits_for_payment(order, ours) or _why_not(order, _other_sources(order)):
        return False
    return not any(payment.is_processing for payment in ours.payments)


def may_be_ordered_again(order: Any, ours: shop.OrderState | None) -> bool:
    """Tell whether a shopper is offered the items of a cancelled order again: no money of it is
    here or on its way.
    """
    if (
        ours is None
        or order.status != get_settings().cancelled_status
        or ours.held
        or ours.reported_paid
    ):
        return False
    return not any(payment.is_processing for payment in ours.payments)


def is_uncharged(ours: shop.OrderState | None) -> bool:
    """Tell whether no payment of an order is paid or can still be paid, as far as the gateway's
    answers say.
    """
    if ours is None or ours.reported_paid:
        return False
    return not any(one.is_open or one.status == PaymentStatus.PAID for one in ours.payments)


def kept_until(ours: shop.OrderState | None) -> datetime | None:
    """Return until when the goods of an unpaid order are kept at least: while a payment page is
    open, until it closes. None where that is not known, or they are released.
    """
    if ours is None or RELEASED in ours.data:
        return None
    if ours.kept_until:
        return ours.kept_until
    closing = [one.page_closes_at for one in ours.open_payments]
    return max((end for end in closing if end > timezone.now()), default=None)


def open_pages(ours: shop.OrderState | None) -> list[dict[str, Any]]:
    """Return the amount, the method and the end of each payment page that may still take money for
    an order, or that the gateway has closed before its time.
    """
    return [
        {
            "price": payment.amount,
            "amount": shop.money_text(payment.amount, payment.currency),
            "method": shop.method_label(payment.method),
            "closes_at": payment.page_closes_at,
            "is_closed": payment.page_closed_at is not None,
        }
        for payment in (ours.payments if ours else ())
        if payment.page_closes_at > timezone.now()
        and (
            payment.status != PaymentStatus.PAID
            if payment.page_closed_at
            else payment.is_open and payment.payment_url
        )
    ]


def needless_pages(order: Any, ours: shop.OrderState | None) -> list[dict[str, Any]]:
    """Return the open payment pages that should take no payment: the order waits for another
    amount, or for none.
    """
    due = outstanding(order) if needs_payment(order, ours) else None
    return [page for page in open_pages(ours) if page["price"] != due]


def is_held_back(order: Any, ours: shop.OrderState | None) -> bool:
    """Tell whether an unpaid order of Tillgate's has a status of the shop's own, without a payment
    and not permanently marked paid.
    """
    settings = get_settings()
    if (
        ours is None
        or ours.paid_by
        or order.status
        in (settings.pending_status, settings.paid_status, settings.cancelled_status)
    ):
        return False
    return not is_marked_paid(order)


def is_marked_paid(order: Any) -> bool:
    """Tell whether an order was marked paid, by its history, and has not been set back to waiting
    since.

    The actor and the reason do not count.
    """
    settings = get_settings()
    telling = (settings.pending_status, settings.paid_status)
    last = (
        order.status_changes.filter(Q(old_status__in=telling) | Q(new_status__in=telling))
        .order_by("-pk")
        .first()
    )
    if last is None or settings.pending_status == last.new_status:
        return False
    # the history lacks changes that a plain `save()` wrote
    return settings.paid_status in (
        last.old_status,
        last.new_status,
    )


def unpaid_detail(ours: shop.OrderState | None) -> str:
    """Return why the newest payment of an order ended unpaid, as a sentence for the shopper; empty
    where none did.
    """
    return ours.payments[-1].unpaid_detail if ours and ours.payments else ""


def is_test(ours: shop.OrderState | None) -> bool:
    """Tell whether no money moves for an order: its last payment was a sandbox's, or the next one
    will be.
    """
    if ours is None:
        return False
    return ours.payments[-1].sandbox if ours.payments else shop.find_account("default").sandbox


def status_once_paid(order: Any) -> str:
    """Return the last status of an order that only a paid order may have: a paid order may already
    be on its way.
    """
    changes = order.status_changes.exclude(new_status__in=statuses_of_unpaid(order))
    return str(
        changes.order_by("-pk").values_list("new_status", flat=True).first()
        or get_settings().paid_status,
    )


def statuses_of_unpaid(order: Any) -> set[str]:
    """Return the statuses that an unpaid order can have in the shop's pipeline, including the
    cancelled status.
    """
    settings, pipeline = get_settings(), order.pipeline
    paid, ahead = {settings.paid_status}, [settings.paid_status]
    while ahead:
        further = (
            set(pipeline.get(ahead.pop(), ()))
            - paid
            - {settings.pending_status, settings.cancelled_status}
        )
        paid |= further
        ahead += further
    return (
        {settings.pending_status, settings.cancelled_status}
        | set(pipeline.get(settings.pending_status, ()))
    ) - paid


def is_of_shopper(order: Any, request: HttpRequest) -> bool:
    """Tell whether this request is from the order's shopper, by the browser's session or the
    login.
    """
    if request.session.get(SESSION_KEY) == order.pk:
        return True
    return bool(request.user.is_authenticated and order.user_id == request.user.pk)


def sign_preview(basket: Any, method: str) -> str:
    """Return a ticket that proves for an hour that its holder saw the preview of a basket with a
    payment method.
    """
    return signing.dumps([basket.pk, method], salt=_PREVIEW_SALT)


def read_preview(ticket: str) -> tuple[int, str] | None:
    """Return a basket's id and a payment method, or None when the ticket is forged or too old."""
    try:
        basket, method = signing.loads(ticket, salt=_PREVIEW_SALT, max_age=_PREVIEW_VALID_FOR)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return int(basket), str(method)


def status_url(number: str) -> str:
    """Return the address that shows the state of an order, and nothing else of it, to every holder
    of the address.
    """
    return reverse("tillgate_oscar:order", args=[_ticket(number)])


def _ticket(number: str) -> str:
    return _signed(find(number), number, _STATUS_SALT)


def _signed(order: Any, number: str, salt: str) -> str:
    """Return a ticket of an order, by its number and its moment: a restored database may give the
    number to another shopper's order.
    """
    return signing.Signer(salt=salt).sign_object([number, _placed_at(order) if order else None])


def _placed_at(order: Any) -> int:
    # whole seconds: saving an order in Django's admin takes away the rest
    return int(order.date_placed.timestamp())


def refunded_text(ours: shop.OrderState | None) -> str:
    """Return the refunded money of an order with its currency, or "" if there is none."""
    return (
        shop.money_text(ours.refunded_amount, ours.payments[-1].currency)
        if ours and ours.refunded_amount
        else ""
    )


def return_url(payment: Payment) -> str:
    """Return the address of the order's page for the shopper of a payment, in the shopper's
    language.

    The shopper comes from the host of `PUBLIC_URL`. The session of an order of another site is at
    that site.
    """
    number = payment.order.key
    order = find(number)
    with translation.override(language_of(payment)):
        if order is None or _is_here(order):
            return status_url(number)
        return at_home(order, shop.absolute_url("tillgate_oscar:order", _ticket(number)))


def at_home(order: Any, url: str) -> str:
    """Return an address below `PUBLIC_URL` at the order's own site: several may share a
    database.
    """
    return url if _is_here(order) else urlsplit(url)._replace(netloc=order.site.domain).geturl()


def _is_here(order: Any) -> bool:
    """Tell whether an order belongs to the site of this process, which is at `PUBLIC_URL`."""
    return order.site_id in (None, getattr(project, "SITE_ID", None))


def language_of(payment: Payment | None) -> str:
    """Return the language in which the shopper paid, or else the present one, as one that the
    shop's addresses have.
    """
    of_payment = payment.data.get("language") if payment else None
    for language in (of_payment, translation.get_language()):
        with contextlib.suppress(LookupError):  # the shop may have dropped a language since
            return translation.get_supported_language_variant(language or "")
    return str(project.LANGUAGE_CODE)


def read_status(ticket: str) -> str | None:
    """Return an order's number, or None when the ticket is forged, or of another order that had the
    number.
    """
    return _read(ticket, _STATUS_SALT)


def _read(ticket: str, salt: str) -> str | None:
    try:
        number, moment = signing.Signer(salt=salt).unsign_object(ticket)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    order = find(number)
    return str(number) if order is None or _placed_at(order) == moment else None


def keep_link(order: Any, until: datetime) -> None:
    """Let an order be payable by its payment link until a time, also after its goods were
    released.
    """
    shop.set_order_data(PLUGIN, order.number, **{LINK_UNTIL: until.isoformat()})


def link_until(ours: shop.OrderState | None) -> datetime | None:
    """Return the end of an order's payment link, or None if it has none that is valid."""
    if ours is None or ours.is_closed or LINK_UNTIL not in ours.data:
        return None
    until = datetime.fromisoformat(ours.data[LINK_UNTIL])
    return until if until > timezone.now() else None


def link_url(order: Any, until: datetime) -> str:
    """Return the payment link of an order: give it only to the order's shopper."""
    return at_home(order, shop.pay_url(PLUGIN, order.number, until=until))


def change_url(order: Any) -> str | None:
    """Return the address where the shopper can cancel an unpaid order, valid for an hour. None
    where pages have none.

    The address alone is the authority: give it only to the order's shopper.
    """
    try:
        return reverse("tillgate_oscar:change", args=[_change_ticket(order)])
    except NoReverseMatch:  # a process without the shop's addresses may describe an order too
        return None


def _change_url_at_home(order: Any) -> str | None:
    """Return `change_url` for Tillgate's own pages, which stand at the host of `PUBLIC_URL`: the
    basket is at the order's own site.
    """
    url = change_url(order)
    if url is None or _is_here(order):
        return url
    return at_home(order, shop.absolute_url("tillgate_oscar:change", _change_ticket(order)))


def _change_ticket(order: Any) -> str:
    return signing.dumps([order.number, _placed_at(order)], salt=_CHANGE_SALT)


def read_change(ticket: str) -> tuple[str, bool] | None:
    """Return the number of the order that a ticket of `change_url` may cancel, and whether it still
    may; None as in `read_status`.
    """
    for max_age in (_CHANGE_VALID_FOR, None):
        with contextlib.suppress(signing.BadSignature, ValueError, TypeError):
            number, moment = signing.loads(ticket, salt=_CHANGE_SALT, max_age=max_age)
            order = find(number)
            return (
                (str(number), max_age is not None)
                if order is None or _placed_at(order) == moment
                else None
            )
    return None
