"""pretix's orders as Tillgate sees them: each of Tillgate's orders is a *bill*, the amount due on a
pretix order until it is paid.

pretix makes a new payment each time that a shopper tries to pay. A paid pretix order may owe money
again, after a change or a refund. Exactly one payment of a bill counts, whichever payment of pretix
it was started for. Any amount due afterwards is the next bill.

All this code runs under Tillgate's lock of the bill and touches the database only. It also locks
pretix's order before it changes that.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urljoin

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django_scopes import scope, scopes_disabled
from pretix.base.models import Order, OrderFee, OrderPayment, OrderRefund, Quota
from pretix.base.services.orders import mark_order_expired
from pretix.helpers import OF_SELF
from pretix.multidomain.urlreverse import eventreverse_absolute

from tillgate import Goods, PaymentMethod, shop
from tillgate.hooks import (
    Customer,
    OrderDescription,
    PaidOutcome,
    Payment,
    PaymentStatus,
    RefundStatus,
    Review,
)
from tillgate.hooks import Order as Bill
from tillgate.shop import (
    MONEY_REASONS,
    OpenReview,
    OrderState,
    PaymentState,
    RefundState,
    ReviewAction,
    ReviewReason,
    money,
)
from tillgate_pretix.accounts import HOLDER, event_of_alias, settings_of
from tillgate_pretix.configuration import APP, PLUGIN
from tillgate_pretix.mail import FAILED, tell_of_held_money, tell_of_second_payment

_log = logging.getLogger("tillgate")

RETURN_TAG: Final = "tillgate:return"
"""The tag in the address of an order's page: the address alone gives no authority over the
order.
"""

CHOOSE: Final = "choose"
"""The parameter of that address with which a shopper asks for another payment method."""

REVIEW_LOGGED: Final = "tillgate_pretix.review"
"""The type of the entry in an order's history that a review opened."""

OPEN: Final = (OrderPayment.PAYMENT_STATE_CREATED, OrderPayment.PAYMENT_STATE_PENDING)
"""The states in which a payment of pretix may still be paid."""
_REFUNDED_WITHIN: Final = timedelta(minutes=10)
"""The time for the refund of a cancelled order, before a review asks for it."""
_REVIEWED_WITHIN: Final = timedelta(days=7)
UNDER_WAY: Final = (OrderRefund.REFUND_STATE_CREATED, OrderRefund.REFUND_STATE_TRANSIT)
"""The states of a pretix refund without a known result."""
_HELD: Final = (OrderPayment.PAYMENT_STATE_CONFIRMED, OrderPayment.PAYMENT_STATE_REFUNDED)
_DUE: Final = (Order.STATUS_PENDING, Order.STATUS_EXPIRED)
_SAID_PAID: Final = "pretix.event.order.paid"
_SAID_UNPAID: Final = "pretix.event.order.unpaid"
_SAID_CONFIRMED: Final = "pretix.event.order.payment.confirmed"


# Bills and payments -------------------------------------------------------------------------------


def bill_of(order: Any) -> str:
    """Return the key of the bill that is to be paid now: the last one, or the one after it when
    that is paid.
    """
    numbers = {int(bill.key.partition("/")[2] or 0): bill for bill in bills_of(order)}
    last = max(numbers, default=0)
    return _key(order, last + 1 if numbers and numbers[last].paid_by else last)


def bills_of(order: Any) -> list[OrderState]:
    """Return the bills of an order."""
    return shop.order_states(PLUGIN, [_key(order, 0)], prefix=f"{order.pk}/")


def payments_of(order: Any) -> list[PaymentState]:
    """Return the payments of all bills of an order."""
    return [payment for bill in bills_of(order) for payment in bill.payments]


def reviews_of(order: Any, reasons: Collection[ReviewReason] = ()) -> tuple[OpenReview, ...]:
    """Return the open reviews of an order, of some reasons or of all."""
    return shop.open_reviews(
        PLUGIN,
        order_keys=[_key(order, 0)],
        prefix=f"{order.pk}/",
        reasons=reasons,
    )


def _key(order: Any, number: int) -> str:
    return f"{order.pk}/{number}" if number else str(order.pk)


def identifier_of(method: str) -> str:
    """Return the identifier of a payment method's payment provider."""
    return f"{HOLDER}_{method}"


METHODS: Final = tuple(
    dict.fromkeys(
        [
            *map(str, PaymentMethod),
            *(getattr(settings, "TILLGATE", {}).get("PAYMENT_METHODS") or ()),
        ],
    ),
)
"""The payment methods with a payment provider of pretix: those of the interface, and those that
pretix.cfg adds. pretix reads them once.
"""


def method_of(identifier: str | None) -> str | None:
    """Return the payment method of a payment provider, or None when it is not one of ours."""
    holder, _, method = (identifier or "").partition("_")
    return method if holder == HOLDER and method in METHODS else None


@contextmanager
def found(key: str, *, lock: bool = False) -> Iterator[Any]:
    """Yield pretix's order of a bill's key, with access to its organizer's data, or None when it is
    gone.
    """
    number = key.partition("/")[0]
    with scopes_disabled():
        rows = Order.objects.select_for_update(of=OF_SELF) if lock else Order.objects
        order = (
            rows.select_related("event__organizer").filter(pk=number).first()
            if number.isdecimal()
            else None
        )
    if order is None:
        yield None
        return
    with scope(organizer=order.event.organizer):
        yield order


def booked_payment(order: Any, payment: Payment) -> Any:
    """Return pretix's payment that holds the money of one of Tillgate's, or None."""
    held = order.payments.filter(provider=identifier_of(payment.method), state__in=_HELD)
    return next(
        (theirs for theirs in held if theirs.info_data.get("reference") == payment.reference),
        None,
    )


def _payment_for(order: Any, payment: Payment) -> Any:
    """Return pretix's payment for the money of one of Tillgate's; create one if there is none.

    If a shopper pressed twice, two payments of pretix lead to the same payment page: then the
    newest open one counts.
    """
    # staff may confirm it by hand in this moment
    locked = order.payments.select_for_update(of=OF_SELF)
    ours = locked.filter(provider=identifier_of(payment.method), amount=payment.amount).exclude(
        state__in=_HELD,
    )
    theirs = (
        ours.filter(state__in=OPEN).order_by("-pk").first()
        or ours.filter(pk=payment.data.get("payment")).first()
    )
    return theirs or order.payments.create(
        state=OrderPayment.PAYMENT_STATE_CREATED,
        provider=identifier_of(payment.method),
        amount=payment.amount,
        process_initiated=True,
    )


# Before a payment ---------------------------------------------------------------------------------


def describe(order_key: str) -> OrderDescription | None:
    """Return the amount due on an order and its lines."""
    with found(order_key) as order:
        if order is None:
            return None
        goods = Counter(
            str(position.item.name) for position in order.positions.select_related("item")
        )
        again = _redelivered(order, order_key)
        detail = why_not(order) if again is None else _why_not_with(order, again)
        return OrderDescription(
            number=f"{order.code}-{order.event.slug.upper()}",
            amount=money.total([order.pending_sum, again.amount]) if again else order.pending_sum,
            currency=order.event.currency,
            lines=tuple(Goods.named(name, quantity) for name, quantity in goods.items()),
            not_payable_detail=detail
            or (None if order_key == bill_of(order) else _("the order is paid")),
            email=order.email or None,
            customer=_customer(order),
            staff_url=_staff_url(order),
            payable_until=_payable_until(order),
            choose_url=_choose_url(order),
            is_cancelled=is_cancelled(order)
            and (order.pending_sum < 0 or not any(bill.paid_by for bill in bills_of(order))),
        )


def search(text: str, limit: int) -> list[str]:
    """Return the keys of the bills of orders of a code, with or without its event, of an e-mail
    address, or of a name.
    """
    code, _dash, event = text.partition("-")
    wanted = Q(code__iexact=code, event__slug__iexact=event) if event else Q(code__iexact=code)
    wanted |= (
        Q(email__iexact=text)
        if "@" in text
        else Q(invoice_address__name_cached__icontains=text)
        | Q(customer__name_cached__icontains=text)
    )
    with scopes_disabled():
        orders = list(Order.objects.filter(wanted).order_by("-pk")[:limit])
    return [bill.key for order in orders for bill in bills_of(order)][:limit]


def customers(order_keys: Sequence[str]) -> dict[str, Customer]:
    """Return the shoppers of several bills."""
    numbers = {key: key.partition("/")[0] for key in order_keys}
    chosen = [number for number in numbers.values() if number.isdecimal()]
    with scopes_disabled():
        rows = Order.objects.filter(pk__in=chosen).select_related("invoice_address", "customer")
        found = {str(order.pk): _customer(order) for order in rows}
    return {key: found[number] for key, number in numbers.items() if number in found}


def _customer(order: Any) -> Customer:
    """Return the shopper by the invoice address, else by the name of the customer's account."""
    address = getattr(order, "invoice_address", None)
    name = (address.name if address else "") or (order.customer.name if order.customer else "")
    return Customer(name=name or "", email=order.email or "")


def _staff_url(order: Any) -> str:
    """Return the order's page in pretix's control pages."""
    names = {"organizer": order.event.organizer.slug, "event": order.event.slug}
    path = reverse("control:event.order", kwargs={**names, "code": order.code})
    return str(urljoin(settings.SITE_URL, path))


def _choose_url(order: Any) -> str | None:
    """Return the address that leads this order's shopper to pretix's page for another payment
    method.
    """
    url = _page_of(order)
    return f"{url}?{CHOOSE}=yes" if url else None


def _payable_until(order: Any) -> datetime | None:
    """Return when pretix's payment term ends, if pretix takes no money afterwards."""
    term = order.event.settings
    ends_by_itself = term.get("payment_term_expire_automatically", as_type=bool) and not term.get(
        "payment_term_accept_late",
        as_type=bool,
    )
    ends = [order.payment_term_last, order.payment_term_expire_date if ends_by_itself else None]
    return min(filter(None, ends), default=None)


def why_not(order: Any) -> str | None:
    """Return why pretix would not take money for an order now, or None when it would."""
    if order.status == Order.STATUS_CANCELED:
        return _("the order was cancelled")
    if order.status not in _DUE or order.pending_sum <= 0:
        return _("the order is paid")
    can_be_paid = order._can_be_paid()
    return None if can_be_paid is True else str(can_be_paid).rstrip(".")


def _redelivered(order: Any, key: str) -> Any:
    """Return pretix's payment if staff are redelivering the event of booked money, or None.

    The money was booked when it came, although it paid nothing. So the amount that it can pay now
    is the amount due without it.
    """
    payment = shop.redelivered_payment(PLUGIN, key)
    return booked_payment(order, payment) if payment else None


def _why_not_with(order: Any, booked: Any) -> str | None:
    """Return why an order is not paid by money that is booked already, or None when it is, or may
    be.
    """
    if order.status == Order.STATUS_CANCELED:
        return _("the order was cancelled")
    if money.total([order.pending_sum, booked.amount]) <= 0:
        return _("the order is paid")
    can_be_paid = order.status == Order.STATUS_PAID or order._can_be_paid()
    return None if can_be_paid is True else str(can_be_paid).rstrip(".")


# After a payment ----------------------------------------------------------------------------------


def paid(payment: Payment) -> PaidOutcome:
    """Confirm pretix's payment, and return whether the order became paid.

    pretix's `confirm` returns without an error if the order was cancelled, was paid in another way,
    or the money is not enough. So this code checks the order before, under its lock, and again
    afterwards.
    """
    with found(payment.order.key, lock=True) as order:
        if order is None:
            return PaidOutcome.NOT_PAYABLE
        if booked := booked_payment(order, payment):
            return _apply(order, booked)
        if order.event.currency != payment.currency or why_not(order) is not None:
            return PaidOutcome.NOT_PAYABLE
        if order.pending_sum > payment.amount:
            return PaidOutcome.UNDERPAID
        theirs = _payment_for(order, payment)
        theirs.info_data = _info(payment)
        try:
            theirs.confirm()
        except (
            Quota.QuotaExceededException
        ):  # sold out since the order expired; the money is booked, and staff decide
            return PaidOutcome.NOT_PAYABLE
        order.refresh_from_db()
        if order.status != Order.STATUS_PAID:
            return PaidOutcome.NOT_PAYABLE
        _drop_open_payments(order)
        conclude(order)
        return PaidOutcome.APPLIED


def _apply(order: Any, booked: Any) -> PaidOutcome:
    """Mark an order paid by booked money: its staff reopened it for payment, or marked it paid
    themselves.
    """
    if _why_not_with(order, booked) is not None or order.pending_sum > 0:
        return PaidOutcome.NOT_PAYABLE
    if order.status != Order.STATUS_PAID:
        try:
            with transaction.atomic():  # as pretix does where nothing is due any more
                booked._mark_order_paid(payment_refund_sum=order.payment_refund_sum)
        except Quota.QuotaExceededException:
            return PaidOutcome.NOT_PAYABLE
        _drop_open_payments(order)
    conclude(order)
    return PaidOutcome.APPLIED


def stays_paid(order_id: int) -> None:
    """Mark an order paid again that pretix just marked unpaid.

    pretix's `expire_orders` and `extend_order` read an order without a lock and write its status
    later. They silently overwrite the status of an order that was paid in between. The history
    shows if staff marked the order as not paid, or if money came afterwards. If a seat was taken in
    between, a review opens: pretix sells no seat twice.
    """
    with transaction.atomic(), found(str(order_id), lock=True) as order:
        if order is None or order.status not in _DUE:
            return
        was = (
            order.all_logentries()
            .filter(action_type__in=(_SAID_PAID, _SAID_UNPAID))
            .order_by("-pk")
            .first()
        )
        payment = order.payments.filter(state__in=_HELD).order_by("-pk").first()
        paid_by = next((bill.paid_by for bill in reversed(bills_of(order)) if bill.paid_by), None)
        if was is None or was.action_type != _SAID_PAID or payment is None or paid_by is None:
            return
        if money.total([order.pending_sum, _came_since(order, was)]) > 0:
            return
        # Its tickets are sent: it keeps its places, even if another order got them in between, and
        # sends no second mail.
        options = {
            "force": True,
            "ignore_date": True,
            "send_mail": False,
            "payment_refund_sum": order.payment_refund_sum,
        }
        try:
            with transaction.atomic():
                payment._mark_order_paid(**options)
        except Quota.QuotaExceededException as detail:
            message = (
                f"Payment {paid_by.reference}: it has paid order {order.code}, which pretix "
                f"called unpaid afterwards: {detail}"
            )
        else:
            message = ""
    if message:
        shop.open_review(paid_by.id, message, actor=PLUGIN)


def _came_since(order: Any, entry: Any) -> Decimal:
    """Return the money that came after an entry in an order's history: it is booked, so that pretix
    can refund it, and paid nothing.
    """
    entries = order.all_logentries().filter(action_type=_SAID_CONFIRMED, pk__gt=entry.pk)
    numbers = [later.parsed_data.get("local_id") for later in entries]
    came = order.payments.filter(local_id__in=numbers, state__in=_HELD)
    return money.total([theirs.amount - theirs.refunded_amount for theirs in came])


def all_stay_paid() -> None:
    """Call `stays_paid` for all orders that were paid in the last days, in case a process died
    before it could.
    """
    lately = now() - timedelta(days=3)
    numbers = {key.partition("/")[0] for key in shop.paid_order_keys(PLUGIN, lately)}
    with scopes_disabled():
        called_unpaid = list(
            Order.objects.filter(pk__in=numbers, status__in=_DUE).values_list("pk", flat=True),
        )
    for order_id in called_unpaid:
        try:
            stays_paid(order_id)
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            _log.exception("order %s of pretix could not be checked", order_id)


def _info(payment: Payment) -> dict[str, str]:
    return {"reference": payment.reference, "transaction_no": payment.transaction_no or ""}


def _drop_open_payments(order: Any) -> None:
    """Cancel the shopper's other open payments, as pretix does when another payment starts."""
    for theirs in order.payments.filter(state__in=OPEN):
        # Staff may confirm it by hand in this moment, for cash.
        if method_of(theirs.provider) and order.payments.filter(
            pk=theirs.pk,
            state__in=OPEN,
        ).update(state=OrderPayment.PAYMENT_STATE_CANCELED):
            order.log_action(
                "pretix.event.order.payment.canceled",
                {"local_id": theirs.local_id, "provider": theirs.provider},
            )


def unpaid(order: Bill) -> None:
    """Set the unpaid payments to failed, and release the places unless the event waits for pretix's
    own term.

    A shopper with another open payment, such as a bank transfer, keeps the places.
    """
    with found(order.key, lock=True) as theirs:
        if theirs is None or theirs.status != Order.STATUS_PENDING:
            return
        state = shop.order_state(PLUGIN, order.key)
        is_told = state is not None and bool(state.payments) and FAILED.key not in state.data
        for payment in theirs.payments.filter(state__in=OPEN):
            if method_of(payment.provider):
                # a shopper who began none has no failed payment, or has our mail about it
                payment.fail(log_data={"reason": "nobody paid"}, send_mail=is_told)
        if not _is_wanted(theirs) and _expires_unpaid(theirs):
            mark_order_expired(theirs)


def _is_wanted(order: Any) -> bool:
    return bool(
        order.payments.filter(state__in=(*OPEN, *_HELD)).exists()
        # pretix keeps these too
        or order.valid_if_pending
        or order.fees.filter(fee_type=OrderFee.FEE_TYPE_CANCELLATION).exists(),
    )


def _expires_unpaid(order: Any) -> bool:
    """Tell whether the event frees the places of an order once it cannot be paid any more."""
    kept = settings_of(order.event)
    return bool(kept.get("expire_unpaid", as_type=bool, default=False))


def kept_until(order: Any, bill: OrderState) -> datetime | None:
    """Return how long an order that waits for another payment keeps its places, if that time is
    known and has not passed.
    """
    until = bill.kept_until if _expires_unpaid(order) else order.expires
    return until if until and until > now() else None


_PAID_NOTHING: Final = MONEY_REASONS - {ReviewReason.OVERPAID}
NOT_OVER: Final = (
    RefundStatus.QUEUED,
    RefundStatus.SENDING,
    RefundStatus.PENDING,
    RefundStatus.UNKNOWN,
)
"""The statuses of a refund without a known result."""


def review_opened(review: Review) -> None:
    """Show the review in the order's history, book money that did not pay the order, and tell the
    shopper.

    pretix shows such an order as overpaid, or as paid in part, and can refund the money. Staff
    decide about its status.
    """
    if review.order is None:
        return
    with found(review.order.key, lock=True) as order:
        if order is None:
            return
        held = review.payment
        facts = {"reference": held.reference} if held is not None else {}
        data = {"reason": review.reason, "message": review.message, **facts}
        order.log_action(REVIEW_LOGGED, data)
        if (
            held is not None
            and review.reason in _PAID_NOTHING
            and held.status == PaymentStatus.PAID
        ):
            _book(order, held)
            if not _is_second(order, held, review):
                tell_of_held_money(order, held)
        if held is not None and _is_second(order, held, review):
            tell_of_second_payment(order, held)


def _is_second(order: Any, payment: Payment, review: Review) -> bool:
    """Tell whether another payment has paid the order before: one of Tillgate's, or one of another
    provider, such as a bank transfer.
    """
    if review.reason != ReviewReason.PAID_NOT_PAYABLE:
        return review.reason == ReviewReason.SECOND_PAYMENT
    if order.status != Order.STATUS_PAID or order.pending_sum >= 0:
        return False
    held = order.payments.filter(state=OrderPayment.PAYMENT_STATE_CONFIRMED, amount__gt=0)
    return any(theirs.info_data.get("reference") != payment.reference for theirs in held)


def review_url(review: Review) -> str | None:
    """Return the address of the page with a review, or None when its event is gone, or is none of
    pretix's.
    """
    if review.order is None:
        event = event_of_alias(review.account or "")
    else:
        with found(review.order.key) as order:
            event = order and order.event
    if event is None:
        return None
    return (
        shop.absolute_url("plugins:tillgate_pretix:review", event.organizer.slug, event.slug)
        + f"#review-{review.id}"
    )


def conclude(order: Any) -> None:
    """Resolve the reviews about money once pretix's balance of the order is even: otherwise staff
    might refund it twice.

    This covers booked money only: pretix's sums lack money that is about to be booked. It waits
    while a refund is under way: pretix counts that money as gone, but the refund may fail.
    """
    order.refresh_from_db()
    _conclude_cancelled(order)
    if order.status != Order.STATUS_PAID or order.pending_sum != 0:
        return
    if _under_way(order) or any(
        method_of(refund.provider) for refund in order.refunds.filter(state__in=UNDER_WAY)
    ):
        return
    payments = {payment.id: payment for payment in payments_of(order)}
    about = (
        (review.id, payments.get(review.payment_id)) for review in reviews_of(order, MONEY_REASONS)
    )
    booked = [
        review_id for review_id, payment in about if payment and booked_payment(order, payment)
    ]
    if booked:  # each under the lock of its own bill, so after the lock of this one
        transaction.on_commit(
            lambda: shop.close_reviews(booked, "pretix counts as much as the order costs"),
        )


# After a cancellation ----------------------------------------------------------------------------


def is_cancelled(order: Any) -> bool:
    """Tell whether an order is cancelled: pretix calls one paid that keeps a cancellation fee."""
    if order.status == Order.STATUS_CANCELED:
        return True
    has_fee = order.cancellation_date is not None and order.status == Order.STATUS_PAID
    return has_fee and not order.positions.exists()


def review_cancelled_orders() -> None:
    """Open a review about each order that was cancelled some time ago and keeps more than its
    cancellation fee.

    Refunds follow a cancellation: pretix's own at once, those of staff on the next page. So a
    review waits for them.
    """
    since, until = now() - _REVIEWED_WITHIN, now() - _REFUNDED_WITHIN
    with scopes_disabled():
        numbers = list(
            Order.objects.filter(
                cancellation_date__range=(since, until),
                payments__provider__startswith=f"{HOLDER}_",
                payments__state__in=_HELD,
            )
            .distinct()
            .values_list("pk", flat=True),
        )
    for number in numbers:
        try:
            _review_cancelled(number)
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            _log.exception("order %s of pretix, which was cancelled, is not reviewed", number)


def _review_cancelled(order_id: int) -> None:
    with found(str(order_id)) as order:
        if order is None or not is_cancelled(order) or _under_way(order):
            return
        left = -order.pending_sum
        for bill in reversed(bills_of(order)):
            payment = bill.paid_by
            held = min(left, payment.refundable_amount) if payment else Decimal(0)
            if payment and held > 0:
                kept = money.left_of(payment.refundable_amount, [held])
                shop.close_order(PLUGIN, bill.key, actor=PLUGIN, kept=kept)
                left = money.left_of(left, [held])


def _conclude_cancelled(order: Any) -> None:
    """Resolve the reviews of a cancelled order that keeps no more than its fee, or is none any
    more.
    """
    asked = reviews_of(order, {ReviewReason.CANCELLED_HELD})
    is_over = not is_cancelled(order) or (order.pending_sum >= 0 and not _under_way(order))
    if asked and is_over:
        closed = [review.id for review in asked]
        transaction.on_commit(
            lambda: shop.close_reviews(closed, "pretix keeps no more than the order costs"),
        )


def holds_money(order: Any) -> bool:
    """Tell whether an order has money from Tillgate that staff must decide about."""
    return bool(reviews_of(order, _PAID_NOTHING))


def _under_way(order: Any) -> list[RefundState]:
    """Return Tillgate's refunds without a known result."""
    return [
        refund
        for payment in payments_of(order)
        for refund in payment.refunds
        if refund.status in NOT_OVER
    ]


def refunded_soon(review: OpenReview) -> Decimal:
    """Return the amount of the refunds under way if the order is not overpaid after them, or zero.
    Another refund would be too much.
    """
    if review.reason not in MONEY_REASONS or not review.order_key:
        return Decimal(0)
    with found(review.order_key) as order:
        if order is None or order.status != Order.STATUS_PAID:
            return Decimal(0)
        under_way = _under_way(order)
        # pretix has already subtracted the refunds that it requested, and those of unknown outcome
        # that it has in transit.
        in_transit = {
            row.info_data.get("refund") for row in order.refunds.filter(state__in=UNDER_WAY)
        }
        unknown_to_pretix = [
            one.amount for one in under_way if "refund" not in one.data and one.id not in in_transit
        ]
        is_enough = money.total([order.pending_sum, *unknown_to_pretix]) >= 0
        return money.total(one.amount for one in under_way) if is_enough else Decimal(0)


def conclude_all() -> None:
    """Run `conclude` for each order with such a review: a process may have died before it could."""
    for number in sorted(
        {
            int(review.order_key.partition("/")[0])
            for review in shop.open_reviews(
                PLUGIN,
                reasons=MONEY_REASONS | {ReviewReason.CANCELLED_HELD},
            )
        },
    ):
        try:
            conclude_order(number)
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            _log.exception("order %s of pretix could not be concluded", number)


def conclude_order(order_id: int) -> None:
    """Run `conclude` for an order that changed without Tillgate, and let booked money pay it once
    staff have reopened it.
    """
    # Locked, because the delivery of a paid payment books it under the same lock.
    with transaction.atomic(), found(str(order_id), lock=True) as order:
        if order is None:
            return
        conclude(order)
        enough = _reviews_of_enough_money(order)
    for review in enough:  # delivered outside the transaction, under the lock of its own bill
        shop.resolve_review(review.id, ReviewAction.REDELIVER, staff=PLUGIN)


def _reviews_of_enough_money(order: Any) -> list[OpenReview]:
    """Return the reviews of booked money that pays an order which staff have reopened, by a later
    deadline for example.
    """
    if order.status != Order.STATUS_PENDING or order.pending_sum > 0 or _under_way(order):
        return []
    payments = {payment.id: payment for payment in payments_of(order)}
    about = (
        (review, payments.get(review.payment_id)) for review in reviews_of(order, _PAID_NOTHING)
    )
    booked = ((review, booked_payment(order, payment)) for review, payment in about if payment)
    return [review for review, theirs in booked if theirs and _why_not_with(order, theirs) is None]


def _book(order: Any, payment: Payment) -> None:
    if booked_payment(order, payment):
        return
    theirs = _payment_for(order, payment)
    theirs.state, theirs.payment_date, theirs.info_data = (
        OrderPayment.PAYMENT_STATE_CONFIRMED,
        now(),
        _info(payment),
    )
    theirs.save(update_fields=["state", "payment_date", "info"])
    order.log_action(_SAID_CONFIRMED, {"local_id": theirs.local_id, "provider": theirs.provider})
    if order.pending_sum < Decimal(0):
        order.log_action("pretix.event.order.overpaid", {})


def return_url(key: str) -> str | None:
    """Return the address of the event's page about an order, or None when the order is gone, or the
    page with the plugin.
    """
    with found(key) as order:
        return _page_of(order) if order is not None else None


def _page_of(order: Any) -> str | None:
    if APP not in order.event.get_plugins():
        return None
    arguments = {"order": order.code, "tag": order.tagged_secret(RETURN_TAG)}
    return str(
        eventreverse_absolute(order.event, "plugins:tillgate_pretix:return", kwargs=arguments),
    )
