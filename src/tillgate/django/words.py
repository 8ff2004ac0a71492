"""The words that staff read for stored words: a label, an icon and a tone for each, so that no
meaning depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from tillgate.django.methods import label_of, with_last_digits
from tillgate.lifecycle import PaymentStatus, RefundStatus, ReviewReason
from tillgate.wire.details import PaidWith
from tillgate.wire.profile import DisputeStatus

_ICONS: Final = {
    "plus": "M12 5v14M5 12h14",
    "clock": "M12 7v5l3 2M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z",
    "check": "M5 12.5l4.5 4.5L19 7.5",
    "cross": "M6 6l12 12M18 6L6 18",
    "minus": "M5 12h14",
    "question": "M9 9a3 3 0 1 1 4.6 2.5c-1 .7-1.6 1.3-1.6 2.5M12 17.6v.1",
    "back": "M9 6L4 11l5 5M4 11h10a5 5 0 0 1 0 10h-2",
    "bell": "M6 16v-5a6 6 0 0 1 12 0v5l1.5 2h-15zM10 21h4",
    "send": "M4 11l16-7-6 16-3-7zM11 13l4-4",
    "lock": "M8 11V8a4 4 0 0 1 8 0v3M5 11h14v9H5z",
    "staff": "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c1-4 4-6 8-6s7 2 8 6",
    "chart": "M4 20h16M7 20v-6M12 20V5M17 20v-9",
    "dot": "M12 13a1 1 0 1 0 0-2 1 1 0 0 0 0 2z",
}


@dataclass(frozen=True, slots=True)
class Word:
    """The display of a stored word. `tone` is one of good, bad, wait, ask and plain."""

    label: str | Promise
    icon: str = "dot"
    tone: str = "plain"


PAYMENT_STATUSES: Final[Mapping[str, Word]] = {
    PaymentStatus.CREATED: Word(_("created"), "plus", "wait"),
    PaymentStatus.PENDING: Word(_("waiting"), "clock", "wait"),
    PaymentStatus.PAID: Word(_("paid"), "check", "good"),
    PaymentStatus.FAILED: Word(_("failed"), "cross", "bad"),
    PaymentStatus.CLOSED: Word(_("closed"), "lock"),
    PaymentStatus.EXPIRED: Word(_("expired"), "minus"),
}

REFUND_STATUSES: Final[Mapping[str, Word]] = {
    RefundStatus.QUEUED: Word(_("queued"), "clock", "wait"),
    RefundStatus.SENDING: Word(_("being sent"), "send", "wait"),
    RefundStatus.PENDING: Word(_("accepted by the gateway"), "clock", "wait"),
    RefundStatus.SUCCEEDED: Word(_("refunded"), "check", "good"),
    RefundStatus.FAILED: Word(_("not refunded"), "cross", "bad"),
    RefundStatus.UNKNOWN: Word(_("unknown outcome"), "question", "ask"),
}

EVENTS: Final[Mapping[str, Word]] = {
    "payment.created": Word(_("Payment started"), "plus", "wait"),
    "payment.pending": Word(_("Waiting for the shopper"), "clock", "wait"),
    "payment.processing": Word(_("The money is on its way"), "clock", "wait"),
    "payment.next-step": Word(_("A voucher or transfer is to be paid"), "clock", "wait"),
    "payment.paid": Word(_("Paid"), "check", "good"),
    "payment.failed": Word(_("Payment failed"), "cross", "bad"),
    "payment.closed": Word(_("Payment closed"), "lock"),
    "payment.expired": Word(_("Payment expired"), "minus"),
    "payment.accepted": Word(_("Accepted as paid"), "check", "good"),
    "payment.imported": Word(_("Imported as paid"), "check", "good"),
    "payment.force-expired": Word(_("Staff marked the payment as expired"), "minus"),
    "payment.noted": Word(_("Note of staff"), "staff"),
    "payment.page-closed": Word(_("Payment page closed"), "dot"),
    "payment.page-not-closed": Word(_("Payment page could not be closed"), "dot"),
    "payment.identified": Word(_("Transaction number learnt"), "dot"),
    "payment.outcome-unknown": Word(_("Unknown whether the gateway created it"), "question", "ask"),
    "payment.answered-late": Word(_("The gateway answered after its notification"), "dot"),
    "refund.queued": Word(_("Refund requested"), "back", "wait"),
    "refund.sending": Word(_("Refund being sent"), "send", "wait"),
    "refund.pending": Word(_("Refund accepted by the gateway"), "clock", "wait"),
    "refund.succeeded": Word(_("Money refunded"), "back", "good"),
    "refund.failed": Word(_("Refund not done"), "cross", "bad"),
    "refund.unknown": Word(_("Outcome of the refund unknown"), "question", "ask"),
    "refund.external": Word(_("External refund"), "back", "good"),
    "review.opened": Word(_("Needs review"), "bell", "ask"),
    "review.resolved": Word(_("Resolved"), "staff", "good"),
    "event.delivered": Word(_("Event delivered to the shop"), "send", "good"),
    "event.abandoned": Word(_("Remote event abandoned"), "send", "wait"),
    "event.requeued": Word(_("Event queued again"), "send", "wait"),
    "order.opened": Word(_("Order placed"), "plus"),
    "order.closed": Word(_("Order closed by the shop"), "lock"),
    "order.reopened": Word(_("Order reopened by the shop"), "plus"),
    "order.erased": Word(_("Details erased"), "minus"),
}

REASONS: Final[Mapping[str, str | Promise]] = {
    ReviewReason.AMOUNT_MISMATCH: _("Wrong amount"),
    ReviewReason.AMOUNT_MISSING: _("Paid without an amount"),
    ReviewReason.CURRENCY_MISMATCH: _("Wrong currency"),
    ReviewReason.TRANSACTION_NO_MISMATCH: _("Wrong transaction number"),
    ReviewReason.TRANSACTION_NO_MISSING: _("Paid without a transaction number"),
    ReviewReason.REFERENCE_MISMATCH: _("Answer about another payment"),
    ReviewReason.UNRECOGNISED_STATUS: _("Unknown status"),
    ReviewReason.CHANGED_AFTER_PAID: _("Charge-back or refund at the gateway"),
    ReviewReason.DISPUTED: _("Disputed by the shopper's bank"),
    ReviewReason.MANUAL_REVIEW: _("Under review at the gateway"),
    ReviewReason.WRONG_CREDENTIALS: _("The gateway refuses the account"),
    ReviewReason.PAYMENT_UNKNOWN: _("The gateway does not know its own payment"),
    ReviewReason.SIGNATURE_MISMATCH: _("Wrong signature"),
    ReviewReason.SECOND_PAYMENT: _("Paid twice"),
    ReviewReason.PAID_NOT_PAYABLE: _("Paid, but the order takes no payment"),
    ReviewReason.UNDERPAID: _("Paid too little"),
    ReviewReason.OVERPAID: _("Paid too much"),
    ReviewReason.CANCELLED_HELD: _("Cancelled, and its money is still here"),
    ReviewReason.DUPLICATE_TRANSACTION_NO: _("One transaction number, two payments"),
    ReviewReason.REFUND_UNKNOWN: _("Refund of unknown outcome"),
    ReviewReason.REFUND_CONTRADICTED: _("A refused refund that was made"),
    ReviewReason.REFUND_RETURNED: _("A refund came back"),
    ReviewReason.REFUND_LATE: _("A refund takes long"),
    ReviewReason.REFUND_NOT_SENT: _("A refund cannot be sent"),
    ReviewReason.PAYMENT_UNANSWERED: _("No usable answer about a payment"),
    ReviewReason.DELIVERY_FAILING: _("Delivery to the shop fails"),
    ReviewReason.ACCOUNT_GONE: _("Account missing or changed"),
    ReviewReason.FORGED_NOTIFICATIONS: _("Forged notifications"),
    ReviewReason.GATEWAY_SILENT: _("The gateway does not answer"),
    ReviewReason.CREATIONS_REFUSED: _("New payments are refused"),
    ReviewReason.ROWS_LOST: _("The database lost changes"),
    ReviewReason.WORKER_LATE: _("The worker is late"),
}

_BRANDS: Final[Mapping[str, str]] = {
    "amex": "American Express",
    "cartes_bancaires": "Cartes Bancaires",
    "diners": "Diners Club",
    "diners_club": "Diners Club",
    "eftpos_au": "eftpos",
    "jcb": "JCB",
    "mastercard": "Mastercard",
    "unionpay": "UnionPay",
}
"""The brands of cards with names other than their codes with a capital."""

_DISPUTES: Final[Mapping[str, str | Promise]] = {
    DisputeStatus.OPEN: _("waits for your answer at the gateway"),
    DisputeStatus.WON: _("won: the money stays yours"),
    DisputeStatus.LOST: _("lost: the bank has taken the money"),
}

_ACTORS: Final[Mapping[str, str | Promise]] = {
    "start": _("the shopper started to pay"),
    "webhook": _("a notification of the gateway"),
    "return": _("the shopper came back"),
    "worker": _("the worker"),
    "watch": _("the watch over the worker"),
    "refund": _("the refund"),
    "outbox": _("the outbox event to the shop"),
    "shop": _("the shop"),
}


def event(name: str) -> Word:
    """Return the display of a timeline event; an unknown event shows its own name."""
    return EVENTS.get(name, Word(name))


def reason(stored: str) -> str:
    """Return the display of a review reason."""
    return str(REASONS.get(stored, stored))


def method_name(stored: str) -> str:
    """Return the display of a payment method."""
    return label_of(stored)


def brand_name(code: str) -> str:
    """Return the name of a card's brand; an unknown one by its code with a capital."""
    return _BRANDS.get(code.lower()) or code[:1].upper() + code[1:]


def paid_with(method: str, used: PaidWith | None) -> str:
    """Return the card or wallet that paid, such as "Visa ending 4242", or the name of the chosen
    method.
    """
    if used is None:
        return method_name(method)
    name = brand_name(used.brand) if used.brand else method_name(used.method)
    return with_last_digits(name, used.last4) if used.last4 else name


def dispute(status: str) -> str:
    """Return how a dispute stands, in words."""
    return str(_DISPUTES[status])


def actor_of(stored: str) -> str:
    """Return the actor of a timeline entry, in words."""
    kind, colon, who = stored.partition(":")
    if kind == "staff" and colon:
        return who
    return str(_ACTORS.get(kind, stored))


def icon(name: str) -> SafeString:
    """Return an icon. It stands beside its word, which says the same."""
    path = _ICONS[name]
    return mark_safe(  # noqa: S308  # both parts are constants of this file
        '<svg class="tillgate-icon" viewBox="0 0 24 24" width="16" height="16" '
        f'aria-hidden="true"><path d="{path}"/></svg>',
    )
