"""The provider: the class that django-payments calls for a payment with one of Tillgate's variants.

The shop calls the library inside its own transaction, and the library writes the row from memory
afterwards. So this module never uses the network inside a transaction, and never writes the row:
outbox events write it, in `rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final, NoReturn

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.translation import gettext as _
from payments import PaymentError, PaymentStatus, RedirectNeeded
from payments.core import BasicProvider

from tillgate import ConfigurationError, InvalidRequest, Method, Notification, shop
from tillgate.hooks import RefundStatus
from tillgate.shop import money
from tillgate_django_payments import rows
from tillgate_django_payments.variants import PLUGIN

REFUND_REFUSED: Final = "refund-refused"
"""The code of the `PaymentError` for a refund that failed at the gateway; the shop may request it
again.
"""
REFUND_UNKNOWN: Final = "refund-unknown"
"""The code of the `PaymentError` for a refund that may have succeeded. Staff settle it, and the
shop must not request it again.
"""

_WRITTEN_BY_OUTBOX_EVENTS: Final = frozenset(
    {"status", "message", "captured_amount", "transaction_id", "variant", "modified"},
)


class TillgateProvider(BasicProvider):  # type: ignore[misc]  # the library has no types
    """Pays through Tillgate with one payment `method`, or, without one, with the method that the
    shopper chooses on Tillgate's page.
    """

    pays_with_tillgate = True
    """Tells this provider and its subclasses from others, for `variants`, which it imports."""

    # the library's own argument
    def __init__(self, method: str | None = None, capture: bool = True) -> None:  # noqa: FBT001, FBT002
        super().__init__(capture=capture)
        if method is not None:
            Method(code=method)  # raises where it is no code
        if not capture:
            raise ConfigurationError(
                "capture",
                capture,
                "is not possible: shoppers pay immediately, and nothing is authorized only",
            )
        self.method = method

    # Paying ---------------------------------------------------------------------------------------

    def get_form(self, payment: Any, data: Mapping[str, Any] | None = None) -> NoReturn:
        """Raise `RedirectNeeded` to the address that starts the payment in a request of its own;
        `PaymentError` when it cannot be paid.
        """
        key = str(payment.pk)
        row = rows.find(key) if payment.pk is not None else None
        described = rows.describe(key) if row else None
        if row is None or described is None:
            raise PaymentError(
                _("The payment has not been saved: save it before its form is asked for."),
            )
        # the shopper went back to the page, or pressed twice
        if row.status == PaymentStatus.CONFIRMED:
            raise RedirectNeeded(row.get_success_url())
        detail, ours = described.not_payable_detail, rows.state_of(key)
        if detail is None and ours and ours.is_closed:
            detail = _("it was cancelled")  # although the shop set it to waiting again
        if detail is None and described.is_free:
            # the shop confirms it: the library's default of a forgotten total is zero too
            detail = _("there is nothing to pay")
        if detail is not None:
            raise PaymentError(
                _("Payment %(key)s cannot be paid: %(detail)s.") % {"key": key, "detail": detail},
            )
        taken = shop.find_account("default").taken_currencies
        if described.currency not in taken:
            told = _(
                "currency: “%(given)s” cannot be paid, only %(ours)s can. Offer another way to "
                "pay, or sell in %(ours)s.",
            )
            raise PaymentError(told % {"given": described.currency, "ours": ", ".join(taken)})
        try:
            money.amount(described.amount, described.currency, "total")
        except InvalidRequest as error:
            raise PaymentError(str(error)) from None
        # if the browser dies on its way, the shop learns that the payment is unpaid
        shop.open_order(PLUGIN, key)
        raise RedirectNeeded(shop.pay_path(PLUGIN, key, self.method))

    def process_data(self, payment: Any, request: HttpRequest) -> HttpResponse:
        """Answer requests to the library's own addresses. Tillgate hands out its own addresses
        instead of these.

        A shopper is redirected to Tillgate's return page, which queries the gateway. A POST with a
        reference of the payment is a hint like every notification: Tillgate stores it, and queries
        the gateway after the library's transaction. Other POSTs must not be acknowledged. They come
        from another provider that the shopper used, and an acknowledgement would say that the shop
        knows of the money.
        """
        if request.method in ("GET", "HEAD"):
            ours = rows.state_of(str(payment.pk))
            return HttpResponseRedirect(
                shop.return_path(ours.payments[-1].id)
                if ours and ours.payments
                else rows.home(payment),
            )
        if request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        received = shop.read_request(request)
        named = _named(received)
        if named is None or named.order.key != str(payment.pk):
            return HttpResponse(status=404)
        transaction.on_commit(
            partial(shop.receive_notification, named.id, received, request.method),
        )
        return shop.acknowledge(named.id)

    def get_token_from_request(self, payment: Any, request: HttpRequest) -> str:
        """Return the token of the payment that a notification at a variant's static address names
        by its reference.
        """
        named = _named(shop.read_request(request))
        row = rows.find(named.order.key) if named else None
        if row is None:
            raise PaymentError(_("There is no payment of that reference."), code=404)
        return str(row.token)

    # Not paying -----------------------------------------------------------------------------------

    def cancel(self, payment: Any) -> None:
        """Prevent further payments; `PaymentError` when the payment was paid first, and then
        nothing changes.
        """
        key = str(payment.pk)
        with transaction.atomic(using=rows.database()):
            try:
                # under its lock no outbox event can confirm the row, and later ones will not
                shop.close_order(PLUGIN, key, actor="cancel")
            except ConfigurationError as error:  # the row is gone
                raise PaymentError(str(error)) from None
            row = rows.locked(key)
            if row is None or row.status not in rows.WAITING:
                told = _(
                    "Payment %(key)s cannot be cancelled any more: its status is “%(status)s”.",
                )
                raise PaymentError(
                    told % {"key": key, "status": row.get_status_display() if row else "-"},
                )
            ours = rows.state_of(key)
            # an older copy of the row was saved over its amounts
            if ours and ours.is_paid and ours.held:
                told = _(
                    "Payment %(key)s cannot be cancelled: %(reference)s has paid it. Refund that "
                    "payment first.",
                )
                raise PaymentError(told % {"key": key, "reference": ours.held[0].reference})

    def capture(self, payment: Any, amount: Decimal | None = None) -> NoReturn:
        """Raise: nothing is authorized only."""
        raise PaymentError(
            _("There is nothing to capture: the money is taken when the shopper pays."),
        )

    def release(self, payment: Any) -> NoReturn:
        """Raise: nothing is authorized only."""
        raise PaymentError(
            _(
                "There is nothing to release: the money is taken when the shopper pays. Refund it "
                "instead.",
            ),
        )

    # Refunding ------------------------------------------------------------------------------------

    def refund(self, payment: Any, amount: Decimal | None = None) -> Decimal:
        """Refund part of a payment, or all that is left of it, and return how much.

        Outside transactions, the refund has succeeded, or the gateway accepted it and finishes it
        later, or it is queued because the gateway is unreachable. Inside one it is queued, and sent
        on commit. Raises `PaymentError` otherwise; its code says whether the refund failed or is
        unknown. The row shows the refund once it has succeeded, and never before.
        """
        key = str(payment.pk)
        row, ours = rows.find(key), rows.state_of(key)
        held = ours.paid_by if ours else None
        if row is None or held is None:
            raise PaymentError(
                _("Payment %(key)s was not paid with Tillgate: nothing can be refunded here.")
                % {"key": key},
            )
        # the library checked the copy in memory, which may be older
        if row.status != PaymentStatus.CONFIRMED:
            told = _("Payment %(key)s cannot be refunded any more: its status is “%(status)s”.")
            raise PaymentError(told % {"key": key, "status": row.get_status_display()})
        copy = _Copy(payment, row)  # before money moves: an error must not raise afterwards
        try:
            asked = shop.refund(held.id, held.refundable_amount if amount is None else amount)
        except (InvalidRequest, shop.RefundNotPossible) as error:
            raise PaymentError(str(error)) from None
        facts = {
            "amount": shop.money_text(asked.amount, held.currency),
            "reference": held.reference,
            "answer": asked.answer,
        }
        if asked.status == RefundStatus.UNKNOWN:
            told = _(
                "It is not known whether %(amount)s of %(reference)s was refunded (%(answer)s): "
                "do not repeat it, staff will settle it.",
            )
            raise PaymentError(told % facts, code=REFUND_UNKNOWN, gateway_message=asked.answer)
        if asked.status == RefundStatus.FAILED:
            told = _(
                "%(amount)s of %(reference)s was not refunded: the payment service refused "
                "(%(answer)s).",
            )
            raise PaymentError(told % facts, code=REFUND_REFUSED, gateway_message=asked.answer)
        refunded_amount: Decimal = asked.amount
        copy.leave_the_row_alone(refunded_amount)
        return refunded_amount


def _named(received: Notification) -> shop.PaymentState | None:
    reference = received.parameters.get("reference", "")
    return shop.find_payment(PLUGIN, reference=reference) if reference else None


class _Copy:
    """The copy of a row that the library holds, and the changes that the shop's own code made to it
    since the row was written.

    The model of the copy may have fields that the row of the shop's payment model has not: they
    count as changed.
    """

    def __init__(self, payment: Any, row: Any) -> None:
        unread, known = payment.get_deferred_fields(), vars(row)
        fields = [
            field
            for field in payment._meta.concrete_fields
            if not field.primary_key and field.attname not in unread
        ]
        self._payment = payment
        self._fields = {field.name: field.attname for field in fields}
        self._unchanged = {
            name
            for name, attribute in self._fields.items()
            if attribute in known and getattr(payment, attribute) == known[attribute]
        }

    def leave_the_row_alone(self, amount: Decimal) -> None:
        """Make the library, which now subtracts the amount in memory and saves the whole row, get
        the row's values and write nothing.

        The refund's outbox event writes the row, together with the shop's receivers. It is over,
        comes later, or belongs to another refund at this moment. So this method saves only the
        changes that the shop's own code made to this copy.
        """
        payment, fields = self._payment, self._fields
        payment.refresh_from_db(
            fields=[*self._unchanged.union(_WRITTEN_BY_OUTBOX_EVENTS & fields.keys())],
        )
        saved = {name: getattr(payment, fields[name]) for name in self._unchanged}
        payment.captured_amount = money.total([payment.captured_amount, amount])

        def save(**options: Any) -> None:
            if (
                "update_fields" not in options
                # the library saves the whole of it once; `change_status` of its own two may come
                # first
            ):
                del payment.save
                written = {
                    name
                    for name, attribute in fields.items()
                    if name not in saved or getattr(payment, attribute) != saved[name]
                }
                options["update_fields"] = written - _WRITTEN_BY_OUTBOX_EVENTS
            type(payment).save(payment, **options)

        payment.save = save
