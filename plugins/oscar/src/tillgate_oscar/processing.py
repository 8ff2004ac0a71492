"""The mixin on top of Oscar's event handler. Staff and the shop's own code change orders through
that handler.

See `tillgate_oscar.classes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django.db import router, transaction
from django.utils.translation import gettext
from oscar.apps.order.exceptions import InvalidShippingEvent
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_model

from tillgate_oscar import refunds
from tillgate_oscar.conf import get_settings
from tillgate_oscar.orders import is_expected, paid_by, state_of, statuses_of_unpaid
from tillgate_oscar.payments import is_being_paid


class EventHandlerMixin:
    """Refunds payments made through Tillgate, and refuses to change a status from an outdated copy.

    The shop's own handler does everything else.
    """

    user: Any

    def handle_payment_event(
        self,
        order: Any,
        event_type: Any,
        amount: Decimal,
        lines: Iterable[Any] | None = None,
        line_quantities: Sequence[int] | None = None,
        *,
        reason: str = "",
        idempotency_key: str | None = None,
        newest_refund: str | None = None,
        extras: refunds.Extras | None = None,
        **kwargs: Any,
    ) -> Any:
        """Queue a refund, which Tillgate sends after the running transaction commits, and return
        it.

        Tillgate writes Oscar's payment event when the refund succeeded. `reason` is for staff only.
        `newest_refund` is the id of the newest refund that the form showed. A repeated
        `idempotency_key` returns the refund that exists. `extras` has shipping, stock and mail.
        Raises `PaymentError` or
        `InvalidPaymentEvent`, and then nothing is queued.
        """
        if not refunds.is_refund(event_type) or not refunds.refunded_here(order, state_of(order)):
            # a mixin of Oscar's handler
            shops_own = super().handle_payment_event  # type: ignore[misc]
            return shops_own(order, event_type, amount, lines, line_quantities, **kwargs)
        if self.user is not None and not self.user.has_perm(refunds.MAY_REFUND):
            raise PaymentError(
                gettext("refunding money needs the permission “Can refund payments”"),
            )
        quantities = (
            dict(zip(lines, line_quantities, strict=True)) if lines and line_quantities else {}
        )
        # after the first press nothing may be left of the lines
        if refunds.find_repeated(order, idempotency_key) is None:
            self.validate_payment_event(  # type: ignore[attr-defined]  # of Oscar's handler
                order,
                event_type,
                amount,
                list(quantities),
                list(quantities.values()),
                **kwargs,
            )
        staff = self.user.get_username() if self.user is not None else ""
        return refunds.queue(
            order,
            event_type,
            amount,
            quantities,
            staff=staff,
            reason=reason,
            idempotency_key=idempotency_key,
            newest_refund=newest_refund,
            extras=extras,
        )

    def validate_shipping_event(
        self,
        order: Any,
        event_type: Any,
        lines: Any,
        line_quantities: Any,
        **kwargs: Any,
    ) -> Any:
        """Refuse to ship an order that was refunded entirely, or is about to be."""
        if said := refunds.why_not_shipped(order):
            raise InvalidShippingEvent(said)
        # a mixin of Oscar's handler
        shops_own = super().validate_shipping_event  # type: ignore[misc]
        return shops_own(order, event_type, lines, line_quantities, **kwargs)

    def handle_order_status_change(
        self,
        order: Any,
        new_status: str,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """Change the status as Oscar does. Raise `PaymentError` if the caller sets an order to
        waiting or cancelled from an outdated copy.

        An order that was refunded entirely can only be cancelled, or get one of the statuses of
        refunded orders. Oscar writes the whole row as it was read: a payment in between would be
        lost without an error, and the order cancelled. While the money is here, a paid order must
        not wait again, and must not be cancelled where other code has made it wait.
        """
        # a mixin of Oscar's handler
        shops_own = super().handle_order_status_change  # type: ignore[misc]
        if is_being_paid(order.number):  # under the event's lock, by the row as it is
            return shops_own(order, new_status, *arguments, **options)
        settings = get_settings()
        closing = (
            settings.cancelled_status,
            settings.refunded_status,
            settings.partly_refunded_status,
        )
        if new_status not in (*closing, settings.pending_status) and (
            said := refunds.why_not_shipped(order)
        ):
            raise PaymentError(said)
        is_about_waiting = settings.pending_status in (order.status, new_status)
        if not (is_about_waiting or new_status == settings.cancelled_status) or not is_expected(
            order,
        ):
            return shops_own(order, new_status, *arguments, **options)
        # the shop's own handler may refund money, which no transaction may be around
        if not is_about_waiting:
            _refuse_what_has_moved_on(order, lock=False)
            if _was_held_back_unseen(order):
                _refuse_what_was_paid(order, new_status)
            return shops_own(order, new_status, *arguments, **options)
        with transaction.atomic(using=router.db_for_write(type(order))):
            _refuse_what_has_moved_on(order, lock=True)
            _refuse_what_was_paid(order, new_status)
            return shops_own(order, new_status, *arguments, **options)


def _was_held_back_unseen(order: Any) -> bool:
    """Tell whether an order has an unpaid status that its history lacks: an old copy was saved over
    the paid order.
    """
    last = order.status_changes.order_by("-pk").values_list("new_status", flat=True).first()
    return order.status in statuses_of_unpaid(order) and last != order.status


def _refuse_what_has_moved_on(order: Any, *, lock: bool) -> None:
    """Raise when the status of an order is not the one in the caller's copy."""
    orders = get_model("order", "Order")._base_manager
    rows = orders.select_for_update() if lock else orders
    status = rows.values_list("status", flat=True).filter(pk=order.pk).first()
    if status != order.status:
        detail = gettext("the status of order %(number)s is “%(status)s” by now")
        raise PaymentError(detail % {"number": order.number, "status": status or ""})


def _refuse_what_was_paid(order: Any, new_status: str) -> None:
    """Raise when a paid order would wait again, or would be cancelled as a waiting order before its
    money is refunded.
    """
    settings, ours = get_settings(), state_of(order)
    payment = ours.paid_by if ours else None
    if payment is None:
        return
    detail = None
    if paid_by(ours) and new_status in (settings.pending_status, settings.cancelled_status):
        detail = gettext(
            "payment %(reference)s has paid order %(number)s: give the money back first",
        )
    elif new_status == settings.pending_status:
        detail = gettext(
            "payment %(reference)s had paid order %(number)s and was refunded: it cannot be paid "
            "anew, only cancelled",
        )
    if detail:
        raise PaymentError(detail % {"reference": payment.reference, "number": order.number})
