"""Paying: the requests of a storefront through Saleor, from the payment methods to the result, and
of staff except refunds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from django.utils.translation import gettext as _

from tillgate import InvalidRequest, Money, Terminal
from tillgate.hooks import PaymentStatus
from tillgate.shop import (
    MethodChoice,
    PaymentState,
    StartedPayment,
    StartOutcome,
    find_account,
    locked_order,
    may_continue,
    money,
    now,
    order_state,
    order_states,
    payment_methods,
    poll,
    start_payment,
    wait_for_creation,
)
from tillgate_saleor import bodies
from tillgate_saleor.answers import Answer, answer, failure
from tillgate_saleor.conf import PLUGIN, Channel, get_settings, origin_of
from tillgate_saleor.costs import kept_for, left_to_pay, note_costs, paid_for, parts_of
from tillgate_saleor.deadline import ANSWER_WITHIN_SECONDS, TooLate, within
from tillgate_saleor.facts import gateway_page, paid_text
from tillgate_saleor.models import Installation, Purchase, Transaction
from tillgate_saleor.transactions import (
    DATA_KEY,
    attach,
    find_purchase,
    find_transaction,
    is_reported,
    note,
    paid_at,
    payment_id_of,
    payment_of,
    source_of,
    transaction_of,
)
from tillgate_saleor.unwanted import PAID_CHARGE_STATUSES, tell_if_unwanted, unwanted_detail

_CHARGE: Final = "CHARGE"
"""The kind of every payment: the money moves immediately, regardless of the channel's strategy. No
payment is only authorized.
"""
_LONGEST_URL: Final = 2000


class _Refused(Exception):
    """The payment cannot start; the message explains it to a storefront."""


# Payment methods ----------------------------------------------------------------------------------


def channel_of(installation: Installation, slug: str) -> Channel:
    """Return the settings of a channel. If its Saleor was removed from the settings, the channel
    offers nothing: it has no account.
    """
    saleor = get_settings().saleor(installation.api_url)
    return Channel(payment_methods=()) if saleor is None else saleor.channels.get(slug) or Channel()


def methods_of(channel: Channel, price: Money | None = None) -> tuple[MethodChoice, ...]:
    """Return the payment methods that a channel offers, in display order; those alone that can take
    a price, if it is given.
    """
    offered = {
        method.code: method
        for method in payment_methods(channel.account, price)
        if not method.problem
    }
    chosen = offered if channel.payment_methods is None else channel.payment_methods
    return tuple(offered[code] for code in chosen if code in offered)


def currencies_of(channel: Channel) -> tuple[str, ...]:
    """Return the currencies that the channel's account takes."""
    return find_account(channel.account).taken_currencies


def initialize_gateway(installation: Installation, body: bodies.GatewayInitialize) -> Answer:
    """Offer the channel's payment methods; none if it sells in another currency. Store the present
    total of a purchase that has started.
    """
    source = body.source_object
    bill = _noted(installation, source)
    if bill.costs is None:
        _note_amount(bill, body.amount)
    channel, currency = channel_of(installation, source.channel.slug), source.channel.currency_code
    is_ours = channel.payment_methods != () and (
        currency is None or currency in currencies_of(channel)
    )
    methods = methods_of(channel) if is_ours else ()
    return {"data": {"methods": [{"id": method.code, "name": method.label} for method in methods]}}


@dataclass(frozen=True, slots=True)
class _Bill:
    """A checkout or order as Saleor describes it: the name under which it is paid here, its total
    if Saleor sends it, and its parts.
    """

    source: bodies.Source
    name: str
    costs: Decimal | None
    parts: list[Purchase]

    @property
    def left(self) -> Decimal | None:
        """The unpaid amount, or None if Saleor does not send the total."""
        return None if self.costs is None else left_to_pay(self.costs, self.parts)


def _noted(installation: Installation, source: bodies.Source) -> _Bill:
    """Store the present total of a checkout or order, before the gateway's answer is applied."""
    name = source_of(installation, source)
    costs = note_costs(installation, source, name)
    return _Bill(source, name, costs, parts_of(installation.pk, name))


def _note_amount(bill: _Bill, amount: object) -> None:
    """Store the requested amount if Saleor sends no total: a cart may have changed since its
    payment started.

    Skip this if Saleor has an insufficient payment of ours: the request then contains the unpaid
    rest, and not the amount that this payment had to cover.
    """
    wanted = money.read_amount(amount, None)
    for part in bill.parts:
        # otherwise there is nothing to pay, or Saleor does not send it
        if wanted and not part.paid_reference and not kept_for([part]):
            Purchase.objects.filter(pk=part.pk, paid_reference="").update(amount=wanted, costs=None)


def stored_methods(installation: Installation, body: bodies.StoredMethods) -> Answer:
    """Offer nothing: no method of a customer is ever stored."""
    return {"paymentMethods": []}


# Starting -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    method: str
    price: Money
    return_url: str
    terminal: str


def initialize(installation: Installation, body: bodies.Initialize) -> Answer:
    """Start a payment and answer with its payment page. A repeated request for the transaction gets
    the same payment.
    """
    bill = _noted(installation, body.source_object)
    begun = find_transaction(installation, body.transaction.id)
    payment_id = payment_id_of(begun)
    if begun and payment_id:  # regardless of the present offer
        # While the first request creates the payment, this one waits, for less than Saleor's
        # time-out. A failure here is a failure there too, because to Saleor it is one payment.
        payment = payment_of(begun) if wait_for_creation(payment_id) else None
        return _standing(begun, payment or poll(payment_id, actor=PLUGIN), body, bill)
    channel = channel_of(installation, body.source_object.channel.slug)
    try:
        wanted = _wanted(installation, body, channel, bill)
    except _Refused as refused:
        return failure(_CHARGE, str(refused))

    def start() -> StartedPayment:
        _poll_earlier_parts(installation, bill.name)
        begun = note(installation, body, wanted.method, wanted.price, wanted.return_url)
        key, data = begun.purchase.key, {DATA_KEY: begun.pk}
        return start_payment(
            PLUGIN,
            key,
            wanted.method,
            terminal=wanted.terminal,
            account=channel.account,
            data=data,
            actor=PLUGIN,
        )

    try:
        started = within(ANSWER_WITHIN_SECONDS, start, installation.pk)
    except TooLate:
        payment = payment_of(find_transaction(installation, body.transaction.id))
        return _not_begun(payment) if payment else failure(_CHARGE, StartOutcome.UNKNOWN.message)
    return _started(installation, body, started, bill)


def _poll_earlier_parts(installation: Installation, source: str) -> None:
    """Poll the earlier parts: the amount of this request must not count as their price."""
    saleor = get_settings().saleor(installation.api_url)
    if saleor is None or not saleor.parts:
        return
    unpaid = [part.key for part in parts_of(installation.pk, source) if not part.paid_reference]
    for order in order_states(PLUGIN, unpaid):
        for payment in order.open_payments:
            poll(payment.id, actor=PLUGIN)


def _wanted(
    installation: Installation,
    body: bodies.Initialize,
    channel: Channel,
    bill: _Bill,
) -> _Wanted:
    """Return the parsed request of a storefront, or raise `_Refused` with the problem."""
    if detail := _why_over(installation, bill):
        raise _Refused(detail)
    currency, ours = str(body.action.currency), currencies_of(channel)
    if currency not in ours:
        raise _Refused(
            _("Currency %(given)s is not supported, only %(ours)s is.")
            % {"given": body.action.currency, "ours": ", ".join(ours)},
        )
    try:
        amount = money.amount(body.action.amount, currency)
    except InvalidRequest:
        raise _Refused(
            _("The amount must be above zero, with no more decimals than its currency has."),
        ) from None
    amount = _amount_of(bill, amount, currency)
    if any(
        order.reported_paid for order in order_states(PLUGIN, [part.key for part in bill.parts])
    ):
        detail = _(
            "The payment service says that this has been paid, and something about it is not in "
            "order.",
        )
        raise _Refused(detail + " " + _("Please ask the shop before you pay again."))
    if not isinstance(body.data, Mapping):
        raise _Refused(
            _('data must be an object with the payment method, such as {"method": "alipay"}.'),
        )
    offered = [method.code for method in methods_of(channel, Money(amount, currency))]
    if not offered:
        raise _Refused(_("No way of paying is offered in this channel."))
    # `vendor` is the service's own word, as in the recorded run
    method = body.data.get("method", body.data.get("vendor"))
    if not isinstance(method, str) or method not in offered:
        raise _Refused(
            _("data.method must be one of: %(methods)s.") % {"methods": ", ".join(offered)},
        )
    terminal = body.data.get("terminal", Terminal.ONLINE)
    terminals = find_account(channel.account).dialect.terminals
    if not isinstance(terminal, str) or terminal not in terminals:
        raise _Refused(
            _("data.terminal must be one of: %(terminals)s.") % {"terminals": ", ".join(terminals)},
        )
    return _Wanted(
        method,
        Money(amount, currency),
        _return_url(installation, body.data.get("returnUrl")),
        str(terminal),
    )


def _why_over(installation: Installation, bill: _Bill) -> str:
    """Return why Saleor wants no money for an order, although a storefront can start to pay it, or
    an empty string.
    """
    source = bill.source
    if source.status == "CANCELED":
        return _("This order was cancelled.")
    if source.status == "EXPIRED":
        return _("This order has expired.")
    saleor = get_settings().saleor(installation.api_url)
    # If parts are allowed, the plugin trusts Saleor to ask for the rest only.
    is_paid = (
        source.charge_status in PAID_CHARGE_STATUSES and saleor is not None and not saleor.parts
    )
    left = bill.left
    if is_paid or (left is not None and left <= 0):
        return _("This is paid already.")
    # Money that staff refunded for an order is not due again. A checkout becomes an order only by
    # its present money.
    if bill.costs is None or source.typename != "Order" or paid_for(bill.parts) < bill.costs:
        return ""
    return (
        _("This is paid already.")
        if kept_for(bill.parts)
        else _("This was paid, and the money was refunded.")
    )


def _amount_of(bill: _Bill, asked: Decimal, currency: str) -> Decimal:
    """Return the amount to pay for a requested amount: the unpaid rest. Raise `_Refused` for less,
    unless parts are allowed.

    A caller of the storefront's API can send any amount, and an amount that Saleor computes
    includes a gift card's money.
    """
    left = bill.left
    if left is None:
        return asked
    if left <= 0:  # paid since the check before
        raise _Refused(_("This is paid already."))
    if asked < left:
        said = _(
            "%(left)s is left to be paid, and this shop takes no part of it: leave the amount out.",
        )
        raise _Refused(said % {"left": Money(left, currency)})
    return left


def _return_url(installation: Installation, given: Any) -> str:
    """Return the return address for the shopper: an address of one of the Saleor's storefronts, or
    none.
    """
    if given is None:
        return ""
    saleor = get_settings().saleor(installation.api_url)
    if (
        not isinstance(given, str)
        or len(given) > _LONGEST_URL
        or saleor is None
        or origin_of(given) not in saleor.storefronts
    ):
        raise _Refused(_("data.returnUrl is not an address of a storefront of this shop."))
    return given


def _started(
    installation: Installation,
    body: bodies.Initialize,
    started: StartedPayment,
    bill: _Bill,
) -> Answer:
    begun, payment = find_transaction(installation, body.transaction.id), started.payment
    if payment is None:
        return failure(_CHARGE, started.message)
    assert begun is not None
    if started.is_paid and payment.data.get(DATA_KEY) != begun.pk:
        return _paid_by_another(begun)
    if not attach(begun, payment):
        return failure(_CHARGE, StartOutcome.UNKNOWN.message)
    if started.outcome is StartOutcome.REFUSED:
        return _failed(payment, started.message)
    # After a double press the earlier transaction leads to the page too, as if the later one came
    # after its answer.
    return _standing(begun, payment, body, bill, is_pressed=True)


# State of a payment -------------------------------------------------------------------------------


def process(installation: Installation, body: bodies.Process) -> Answer:
    """Poll a transaction's payment, and return its state."""
    begun = find_transaction(installation, body.transaction.id)
    payment_id = payment_id_of(begun)
    if not (begun and payment_id):
        return failure(_CHARGE, _("This transaction was never begun."))
    bill = _noted(installation, body.source_object)
    return _standing(begun, poll(payment_id, actor=PLUGIN), body, bill)


def _standing(
    begun: Transaction,
    payment: PaymentState,
    body: bodies.Initialize | bodies.Process,
    bill: _Bill,
    *,
    is_pressed: bool = False,
) -> Answer:
    """Return the state of a transaction by its payment; `is_pressed` is true if the shopper started
    it just now.
    """
    reference, amount = payment.reference, payment.amount
    if transaction_of(payment) != begun and not (is_pressed and payment.is_open):
        return failure(_CHARGE, _("The shopper has begun again, as another transaction."))
    if payment.status == PaymentStatus.PAID:
        # this answer reports the money to Saleor
        if not (body.transaction.is_charged or is_reported(payment.order.key, reference)):
            source = body.source_object
            tell_if_unwanted(payment, unwanted_detail(source.status, source.charge_status))
        return answer(
            "CHARGE_SUCCESS",
            psp_reference=reference,
            amount=amount,
            at=paid_at(payment),
            message=paid_text(payment),
            actions=["REFUND"],
            external_url=gateway_page(payment.id),
        )
    if not (payment.is_open or payment.reported_paid):
        return _failed(payment, f"{payment.unpaid_detail} {_('Nothing was charged.')}")
    if begun.canceled_at and not payment.reported_paid:
        return _failed(payment, _("This was canceled. Nothing was charged."))
    if _is_paid(payment.order.key):
        return _paid_by_another(begun)  # its payment page would take the money again (I4)
    if payment.is_processing and not payment.reported_paid:
        return _on_its_way(payment)
    if not (payment.payment_url or payment.reported_paid):
        return _not_begun(payment)
    is_live = may_continue(payment.id) and not _why_over(begun.installation, bill)
    return answer(
        "CHARGE_ACTION_REQUIRED",
        psp_reference=reference,
        amount=amount,
        message=_("The shopper pays on the payment page.")
        if is_live
        else _("The payment is being confirmed."),
        data={"cashierUrl": payment.payment_url} if is_live else None,
        actions=[] if payment.reported_paid else ["CANCEL"],
    )


def _on_its_way(payment: PaymentState) -> Answer:
    """Return that the shopper has finished. The payment cannot be cancelled any more, and Saleor
    asks no more: a report says how it ends.
    """
    return answer(
        "CHARGE_REQUEST",
        psp_reference=payment.reference,
        amount=payment.amount,
        message=_("The money is on its way."),
        actions=[],
        external_url=gateway_page(payment.id),
    )


def _is_paid(order_key: str) -> bool:
    order = order_state(PLUGIN, order_key)
    return order is not None and order.is_paid


def _paid_by_another(begun: Transaction) -> Answer:
    purchase = find_purchase(begun.purchase.key)
    # it was too little
    if not ((purchase and purchase.paid_reference) or _is_paid(begun.purchase.key)):
        return failure(
            _CHARGE,
            _(
                "Money for this has just arrived, by another transaction. Please ask again in a "
                "moment.",
            ),
        )
    return failure(_CHARGE, _("This is paid already, by another transaction."))


def _not_begun(payment: PaymentState) -> Answer:
    """Return that it is unknown whether the gateway created it. The worker polls it, and reports
    money that comes.
    """
    return _failed(payment, StartOutcome.UNKNOWN.message)


def _failed(payment: PaymentState, message: str) -> Answer:
    """Return that a payment has failed in its present state: money that comes at this very moment
    counts as later.
    """
    said: dict[str, Any] = {
        "psp_reference": payment.reference,
        "amount": payment.amount,
        "at": payment.status_since,
    }
    return answer("CHARGE_FAILURE", **said, message=message, actions=[])


# Requests of staff --------------------------------------------------------------------------------


def charge(installation: Installation, body: bodies.Charge, raw: bytes) -> Answer:
    """Answer that there is nothing to charge: a paid payment is already charged."""
    return failure(
        "CHARGE",
        _("Nothing is authorized only: what was paid is charged already."),
        raw,
    )


def cancel(installation: Installation, body: bodies.Cancelation, raw: bytes) -> Answer:
    """Cancel an unpaid transaction. Its payment page cannot be closed: money that still comes opens
    a review.
    """
    begun = find_transaction(installation, body.transaction.id)
    payment_id = payment_id_of(begun)
    if not (begun and payment_id):
        return failure("CANCEL", _("This transaction was never begun."), raw)
    payment = poll(payment_id, actor=PLUGIN)
    if payment.reported_paid:
        return failure(
            "CANCEL",
            _(
                "The payment service says that this has been paid, and something about it is not "
                "in order.",
            ),
            raw,
        )
    if not _cancel_unless_paid(begun, payment):
        return failure("CANCEL", _("The shopper has paid. Give the money back instead."), raw)
    message = (
        _("The money is on its way. If it comes, your staff are told.")
        if payment.is_processing
        else _("If the shopper still pays on the payment page, your staff are told.")
    )
    return answer(
        "CANCEL_SUCCESS",
        psp_reference=payment.reference,
        amount=payment.amount,
        message=message,
        actions=[],
    )


def _cancel_unless_paid(begun: Transaction, payment: PaymentState) -> bool:
    """Mark a transaction canceled, and return whether that worked. Money that comes at this moment
    counts as before or after it.
    """
    with locked_order(PLUGIN, payment.order.key) as order:
        if any(one.id == payment.id and one.status == PaymentStatus.PAID for one in order.payments):
            return False
        Transaction.objects.filter(pk=begun.pk, canceled_at__isnull=True).update(canceled_at=now())
        return True
