"""The payment methods that a shopper chooses, each a payment provider of pretix.

None of them uses the network, because pretix may call them anywhere. They redirect the shopper to
the view that starts the payment.
"""

from __future__ import annotations

from typing import Any, Final

from django.db import transaction
from django.http import HttpRequest
from django.template.loader import get_template
from django.utils.html import strip_tags
from django.utils.translation import gettext_lazy as _
from pretix.base.models import OrderPayment
from pretix.base.payment import BasePaymentProvider, PaymentException
from pretix.base.settings import SettingsSandbox
from pretix.base.views.redirect import safelink
from pretix.helpers import OF_SELF
from pretix.multidomain.urlreverse import eventreverse, eventreverse_absolute

from tillgate import ConfigurationError, shop
from tillgate.shop import PaymentState, StartOutcome
from tillgate_pretix import accounts, personal, refunds, staff
from tillgate_pretix.configuration import PLUGIN
from tillgate_pretix.orders import METHODS, OPEN, identifier_of, method_of, payments_of

_POLL_SECONDS: Final = 5
_POLL_TIMES: Final = 60


class MethodProvider(BasePaymentProvider):  # type: ignore[misc]  # pretix has no types
    """Pays with one payment method. Each payment method has a subclass."""

    method: str

    def __init__(self, event: Any) -> None:
        super().__init__(event)
        self.settings = SettingsSandbox("payment", accounts.HOLDER, event)  # one for all

    # Whether it is offered ------------------------------------------------------------------------

    @property
    def verbose_name(self) -> str:
        """The name for staff."""
        return f"{self.public_name} (Tillgate)"

    @property
    def public_name(self) -> str:
        """The name for shoppers."""
        return shop.method_label(self.method)

    @property
    def settings_form_fields(self) -> dict[str, Any]:
        """No fields: the settings provider stores them."""
        return {}

    @property
    def is_enabled(self) -> bool:
        """Whether the event takes payments through Tillgate, and this method is offered by the
        event and by the whole installation.
        """
        chosen = self.settings.get(accounts.setting_of(self.method), as_type=bool)
        return bool(
            self.settings.get("_enabled", as_type=bool) and chosen and self.method in _offered(),
        )

    def is_allowed(self, request: HttpRequest, total: Any = None) -> bool:
        """Whether a cart can be paid this way."""
        return bool(super().is_allowed(request, total)) and self._can_take(
            request,
            total,
            testmode=self.event.testmode,
        )

    def order_change_allowed(self, order: Any, request: HttpRequest | None = None) -> bool:
        """Whether an order that exists can be paid this way."""
        return bool(super().order_change_allowed(order, request)) and self._can_take(
            request,
            order.pending_sum,
            testmode=order.testmode,
        )

    def _can_take(self, request: HttpRequest | None, total: Any, *, testmode: bool) -> bool:
        """Tell whether the method is one of those that take the total. A request asks for all
        methods, and the account is read once.
        """
        known = vars(request).setdefault("_tillgate_methods", {}) if request is not None else {}
        asked = self.event.pk, total, testmode
        if asked not in known:
            known[asked] = accounts.methods_that_take(self.event, total, testmode=testmode)
        return self.method in known[asked]

    @property
    def test_mode_message(self) -> str | None:
        """The message for shoppers in test mode."""
        if accounts.is_complete(self.event, testmode=True):
            return str(
                _(
                    "In test mode the test account of the payment service is used, and no money "
                    "moves.",
                ),
            )
        return None

    # Paying ---------------------------------------------------------------------------------------

    def payment_form_render(
        self,
        request: HttpRequest,
        total: Any = None,
        order: Any = None,
    ) -> str:
        """Show the shopper the next step."""
        return _rendered("choose.html", request, method=self.public_name)

    def checkout_prepare(self, request: HttpRequest, cart: Any) -> bool:
        """Accept without a question."""
        return True

    def payment_is_valid_session(self, request: HttpRequest) -> bool:
        """Accept and store nothing."""
        return True

    def checkout_confirm_render(
        self,
        request: HttpRequest,
        order: Any = None,
        info_data: Any = None,
    ) -> str:
        """Show the shopper the next step."""
        return _rendered("choose.html", request, method=self.public_name)

    def payment_prepare(self, request: HttpRequest, payment: Any) -> str:
        """Continue immediately: the order exists, and the payment page shows its amount."""
        return self.execute_payment(request, payment)

    def execute_payment(self, request: HttpRequest, payment: Any) -> str:
        """Return the address that starts the payment, outside the widget's frame if the shop is in
        one. It is the same on every call.
        """
        start = str(
            eventreverse_absolute(
                self.event,
                "plugins:tillgate_pretix:start",
                kwargs=_named(payment),
            ),
        )
        return (
            str(safelink(start, framebreak=True))
            if request.session.get("iframe_session")
            else start
        )

    @property
    def abort_pending_allowed(self) -> bool:
        """Whether another payment may start: always, because Tillgate detects money that this
        payment still brings.
        """
        return True

    def payment_pending_render(self, request: HttpRequest, payment: Any) -> str:
        """Show the shopper the state of the payment."""
        newest = _newest(payment)
        context: dict[str, Any] = {"payment": newest, "method": self.public_name}
        if newest is not None and newest.is_open:
            # A shopper who was never led to a payment page has paid nothing there.
            context |= (
                {"poll": _poll(payment.order)}
                if newest.payment_url
                else {"no_page": StartOutcome.REFUSED.message}
            )
        return _rendered(
            "pending.html",
            request,
            is_under_review=newest is not None and newest.reported_paid,
            **context,
        )

    def payment_presale_render(self, payment: Any) -> str:
        """Name the card or wallet that paid, such as "Visa ending 4242"."""
        ours = refunds.paid_payment_of(payment)
        return (ours.paid_with if ours else "") or self.public_name

    # For staff ------------------------------------------------------------------------------------

    def payment_control_render(self, request: HttpRequest, payment: Any) -> str:
        """Show staff what is known about a payment, and let them ask the payment service."""
        ours = refunds.paid_payment_of(payment) or _newest(payment)
        context: dict[str, Any] = {"payment": ours}
        if ours is not None:
            context |= {
                "summary": shop.payment_summary(PLUGIN, ours.id),
                "poll_url": staff.poll_url(payment.order, request),
            }
        return str(get_template("tillgate_pretix/control.html").render(context, request))

    def payment_control_render_short(self, payment: Any) -> str:
        """Return the transaction number for lists."""
        return self.matching_id(payment) or ""

    def refund_control_render(self, request: HttpRequest, refund: Any) -> str:
        """Show staff how a refund stands at the payment service."""
        ours = refunds.refund_of_row(refund)
        if ours is None:
            return ""
        context = {"refund": ours, "status": strip_tags(shop.badge_of(ours)).strip()}
        return str(get_template("tillgate_pretix/refund_control.html").render(context, request))

    def refund_matching_id(self, refund: Any) -> str | None:
        """Return the payment service's own number of a refund."""
        ours = refunds.refund_of_row(refund)
        return ours.refund_no if ours else None

    def matching_id(self, payment: Any) -> str | None:
        """Return the payment service's own number of a payment."""
        return payment.info_data.get("transaction_no") or None

    def api_payment_details(self, payment: Any) -> dict[str, Any]:
        """Return the data of a payment for the REST API."""
        return {
            "reference": payment.info_data.get("reference"),
            "transaction_no": self.matching_id(payment),
        }

    def shred_payment_info(self, obj: Any) -> None:
        """Keep the numbers, which identify no person and are necessary for refunds; remove
        everything else, at Tillgate too.
        """
        kept = {
            name: value
            for name, value in obj.info_data.items()
            if name in ("reference", "transaction_no", "refund")
        }
        obj.info_data = kept
        obj.save(update_fields=["info"])
        personal.erase(obj.order)

    # Refunding ------------------------------------------------------------------------------------

    def cancel_payment(self, payment: Any) -> None:
        """Cancel a payment, unless it is paid: pretix may hold an older copy, and would overwrite
        the paid status.
        """
        with transaction.atomic():
            state = OrderPayment.objects.select_for_update(of=OF_SELF).get(pk=payment.pk).state
            if state in (OrderPayment.PAYMENT_STATE_CONFIRMED, OrderPayment.PAYMENT_STATE_REFUNDED):
                raise PaymentException(
                    _("This payment was received in the meantime and cannot be canceled any more."),
                )
            super().cancel_payment(payment)

    def payment_refund_supported(self, payment: Any) -> bool:
        """Whether a payment can be refunded: always, if Tillgate made it."""
        return refunds.paid_payment_of(payment) is not None

    def payment_partial_refund_supported(self, payment: Any) -> bool:
        """Whether a part can be refunded: the same."""
        return self.payment_refund_supported(payment)

    def execute_refund(self, refund: Any) -> None:
        """Refund money. A refund with an unknown result stays in transit."""
        refunds.execute(refund)


def _offered() -> set[str]:
    try:
        return {method.code for method in shop.payment_methods(None)}
    except (
        ConfigurationError
    ):  # the checks report it; a shop with other ways to pay continues without this one
        return set()


def _named(payment: Any) -> dict[str, Any]:
    return {"order": payment.order.code, "secret": payment.order.secret, "payment": payment.pk}


def _newest(payment: Any) -> PaymentState | None:
    """Return the newest of Tillgate's payments for one of pretix's: one that it started, or that a
    second press joined.
    """
    begun = sorted(payments_of(payment.order), key=lambda one: -int(one.id))
    own = (one for one in begun if one.data.get("payment") == payment.pk)
    wanted = (str(method_of(payment.provider)), payment.amount)
    alike = (
        one
        for one in begun
        if payment.state in OPEN and one.is_open and (one.method, one.amount) == wanted
    )
    return next(own, None) or next(alike, None)


def _poll(order: Any) -> dict[str, Any]:
    """Return what Tillgate's script needs to ask how the payment stands, and to show the order's
    page again when there is news.
    """
    arguments = {"order": order.code, "secret": order.secret}
    return {
        "statusUrl": eventreverse(order.event, "plugins:tillgate_pretix:status", kwargs=arguments),
        "settledUrl": eventreverse(order.event, "presale:event.order", kwargs=arguments),
        "seconds": _POLL_SECONDS,
        "times": _POLL_TIMES,
    }


def _rendered(template: str, request: HttpRequest, **context: Any) -> str:
    return str(get_template(f"tillgate_pretix/{template}").render({"request": request, **context}))


def _provider_of(method: str) -> type[MethodProvider]:
    own = {"identifier": identifier_of(method), "method": method, "__module__": __name__}
    return type(f"{method.title()}Provider", (MethodProvider,), own)


PROVIDERS: Final[list[type[Any]]] = [_provider_of(method) for method in METHODS]
"""The providers of the payment methods."""
