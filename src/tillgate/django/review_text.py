"""The texts of a review: its message, rendered from its facts at display, the recommendation, and
the effect of each action.

They can be reworded and translated, and no code reads them (I13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tillgate.django import dates
from tillgate.django.amounts import money_text
from tillgate.django.methods import label_of
from tillgate.lifecycle.review import POLICIES, UNRECOGNISED, ReviewAction, ReviewReason, Scope

_A: Final = ReviewAction
_R: Final = ReviewReason
_AMOUNTS: Final = frozenset({"amount", "found", "expected"})
"""The facts that are amounts where the facts have a currency."""

_CLAUSES: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        _R.AMOUNT_MISMATCH: gettext_lazy("the amount is %(found)s instead of %(expected)s"),
        _R.AMOUNT_MISSING: gettext_lazy("the gateway says paid without an amount"),
        f"{_R.AMOUNT_MISSING}:found": gettext_lazy(
            "the gateway says paid, and its amount '%(found)s' is no exact amount",
        ),
        _R.CURRENCY_MISMATCH: gettext_lazy("the %(field)s is missing instead of %(expected)s"),
        f"{_R.CURRENCY_MISMATCH}:found": gettext_lazy(
            "the %(field)s is %(found)s instead of %(expected)s",
        ),
        _R.TRANSACTION_NO_MISMATCH: gettext_lazy(
            "the transaction is %(expected)s, and the answer is about %(found)s",
        ),
        _R.TRANSACTION_NO_MISSING: gettext_lazy("the gateway says paid without a transactionNo"),
        _R.REFERENCE_MISMATCH: gettext_lazy("the answer is about '%(found)s'"),
        _R.UNRECOGNISED_STATUS: gettext_lazy(
            "the gateway says '%(unrecognised)s', which is not a status we know",
        ),
        _R.CHANGED_AFTER_PAID: gettext_lazy(
            "it was paid, and now the gateway says '%(status)s': the shopper's bank took the "
            "money back (charge-back), or it was refunded in the gateway's own pages",
        ),
        f"{_R.DISPUTED}:open": gettext_lazy(
            "the shopper's bank asks %(amount)s back (dispute %(dispute_no)s); answer it at the "
            "gateway",
        ),
        f"{_R.DISPUTED}:deadline": gettext_lazy(
            "the shopper's bank asks %(amount)s back (dispute %(dispute_no)s); answer it at the "
            "gateway before %(respond_by)s",
        ),
        f"{_R.DISPUTED}:lost": gettext_lazy(
            "the shopper's bank took %(amount)s back (dispute %(dispute_no)s); record it as an "
            "external refund",
        ),
        _R.MANUAL_REVIEW: gettext_lazy(
            "the gateway waits for somebody to review the payment by hand (%(found)s); do not ship "
            "before that",
        ),
        _R.PAYMENT_UNKNOWN: gettext_lazy(
            "the gateway does not know it, though it gave it transaction %(transaction_no)s",
        ),
        f"{_R.PAYMENT_UNKNOWN}:reported-paid": gettext_lazy(
            "the gateway does not know it, though it reported it paid",
        ),
        _R.PAYMENT_UNANSWERED: gettext_lazy(
            "its time to pay is long over, and the gateway gives no usable answer about it",
        ),
        f"{_R.PAYMENT_UNANSWERED}:error": gettext_lazy(
            "its time to pay is long over, and the gateway gives no usable answer about it "
            "(%(error)s)",
        ),
        _R.GATEWAY_SILENT: gettext_lazy(
            "its gateway has not answered for %(minutes)s minutes (%(error)s)",
        ),
        _R.CREATIONS_REFUSED: gettext_lazy(
            "several payments in a row with %(method)s could not be created (%(error)s)",
        ),
        f"{_R.ACCOUNT_GONE}:refund": gettext_lazy(
            "it could not be found, or is another merchant's by now, when a notification came of "
            "the refund of %(amount)s "
            "of payment %(payment)s. If it does not come again, see at the gateway whether it was "
            "done",
        ),
        _R.SECOND_PAYMENT: gettext_lazy(
            "the order was paid by another payment already; this one can be refunded",
        ),
        f"{_R.PAID_NOT_PAYABLE}:unknown": gettext_lazy(
            "it was paid, but the shop does not know the order any more",
        ),
        f"{_R.PAID_NOT_PAYABLE}:closed": gettext_lazy("it was paid, but the shop closed the order"),
        f"{_R.PAID_NOT_PAYABLE}:shop": gettext_lazy("it was paid, but %(because)s"),
        f"{_R.PAID_NOT_PAYABLE}:currency": gettext_lazy(
            "it was paid in %(found)s, and the order is in %(expected)s by now",
        ),
        f"{_R.PAID_NOT_PAYABLE}:outcome": gettext_lazy(
            "it was paid, and the shop says: %(outcome)s",
        ),
        f"{_R.UNDERPAID}:outcome": gettext_lazy("it was paid, and the shop says: %(outcome)s"),
        _R.UNDERPAID: gettext_lazy("%(found)s was paid, and the order costs %(expected)s by now"),
        _R.OVERPAID: gettext_lazy("%(found)s was paid, and the order costs %(expected)s by now"),
        _R.CANCELLED_HELD: gettext_lazy(
            "the order was cancelled, and %(amount)s is still held",
        ),
        _R.FORGED_NOTIFICATIONS: gettext_lazy(
            "%(count)s notifications were not signed with the account's token",
        ),
    },
)
"""A clause by the reason, or by the reason and its case. It follows "Payment X: " or "Account X: ".
"""

_SENTENCES: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        f"{_R.FORGED_NOTIFICATIONS}:account": gettext_lazy(
            "Account %(account)s: the newest %(count)s notifications were signed with none of its "
            "secrets, since %(since)s.",
        ),
        _R.DUPLICATE_TRANSACTION_NO: gettext_lazy(
            "The gateway gave transaction %(transaction_no)s to %(payment)s and to %(other)s.",
        ),
        _R.REFUND_UNKNOWN: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: nobody knows whether it went out "
            "(%(answer)s). It is never sent again by itself.",
        ),
        _R.REFUND_RETURNED: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it was done, and then failed at the "
            "shopper's bank. The money is yours again.",
        ),
        _R.REFUND_LATE: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: the gateway has accepted it, and has "
            "not finished it for %(days)s days "
            "(%(answer)s).",
        ),
        _R.REFUND_NOT_SENT: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it could not be sent for %(hours)s "
            "hours (%(answer)s). "
            "It is tried again at least every hour.",
        ),
        _R.REFUND_CONTRADICTED: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it was held to be refused (%(answer)s), "
            "and the gateway's answer says that "
            "it was done.",
        ),
        f"{_R.REFUND_CONTRADICTED}:notification": gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it was held to be refused (%(answer)s), "
            "and the gateway's notification says "
            "that it was done.",
        ),
        _R.ROWS_LOST: gettext_lazy(
            "The database was restored, or another server took over: changes after %(since)s may "
            "be lost. Queued refunds whose outcome is "
            "unknown now: %(refunds)s.",
        ),
        f"{_R.ROWS_LOST}:payment": gettext_lazy(
            "The gateway reports payment %(reference)s of %(amount)s, and the database does not "
            "have it: it was lost, or is another shop's.",
        ),
        _R.DELIVERY_FAILING: gettext_lazy(
            "The shop could not be told %(kind)s of order %(order)s: %(error)s",
        ),
        f"{_R.DELIVERY_FAILING}:remote": gettext_lazy(
            "The shop could not send %(name)s of order %(order)s: %(error)s",
        ),
        _R.WORKER_LATE: gettext_lazy(
            "The worker has not run since %(since)s: payments whose notification was lost stay "
            "unpaid.",
        ),
        f"{_R.WORKER_LATE}:queue": gettext_lazy(
            "The shop event of order %(order)s waits since %(since)s, and nothing delivers it.",
        ),
    },
)
"""Whole sentences, of reasons that are not about a payment or an account alone."""

ACTIONS: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        _A.POLL: gettext_lazy("Poll now"),
        _A.REOPEN: gettext_lazy("Reopen and deliver"),
        _A.REDELIVER: gettext_lazy("Deliver again"),
        _A.REFUND: gettext_lazy("Refund…"),
        _A.REFUND_DONE: gettext_lazy("The refund was done"),
        _A.REFUND_NOT_DONE: gettext_lazy("The refund was not done"),
        _A.WITHDRAW: gettext_lazy("Withdraw the refund"),
        _A.RECORD_EXTERNAL_REFUND: gettext_lazy("Record an external refund"),
        _A.ACCEPT_AS_PAID: gettext_lazy("Accept as paid"),
        _A.REFUND_REPORTED: gettext_lazy("Refund all of it"),
        _A.ENTER_NUMBER: gettext_lazy("Enter the gateway's number"),
        _A.FORCE_EXPIRE: gettext_lazy("Mark as expired"),
        _A.DISMISS: gettext_lazy("Dismiss with a note"),
    },
)

EXPLANATIONS: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        _A.POLL: gettext_lazy("Asks the gateway and applies its answer. No money moves."),
        _A.REDELIVER: gettext_lazy(
            "Tells the shop once more. Press it when you have mended the cause.",
        ),
        _A.REOPEN: gettext_lazy(
            "The shop takes the order back, and this payment pays it. A note names goods that are "
            "gone by now.",
        ),
        _A.REFUND: gettext_lazy(
            "You see the amount and confirm it on the next page. Nothing is sent before.",
        ),
        _A.REFUND_DONE: gettext_lazy(
            "The refund counts as done. Press it if the gateway's own pages show it.",
        ),
        _A.REFUND_NOT_DONE: gettext_lazy(
            "The amount can be refunded again. Press it if the gateway's own pages do not show "
            "the refund.",
        ),
        _A.WITHDRAW: gettext_lazy(
            "The refund that waits is not sent. The money stays with the shop.",
        ),
        _A.RECORD_EXTERNAL_REFUND: gettext_lazy(
            "Records a refund that was made in the gateway's own pages. No money moves.",
        ),
        _A.ACCEPT_AS_PAID: gettext_lazy(
            "The payment is paid with the amount that the gateway reports. The shop decides "
            "whether it is enough.",
        ),
        _A.REFUND_REPORTED: gettext_lazy(
            "Refunds what the gateway reports, in one press. The order stays unpaid.",
        ),
        _A.ENTER_NUMBER: gettext_lazy(
            "Asks by the number that the gateway's own pages show. It is kept if the answer is "
            "about this payment.",
        ),
        _A.FORCE_EXPIRE: gettext_lazy(
            "Ends the payment as unpaid, so that the shop can release the order. The worker still "
            "finds late money.",
        ),
        _A.DISMISS: gettext_lazy(
            "Closes the review and changes nothing else. The same case is not reported again.",
        ),
    },
)
"""The effect of each action, for the text beside its button."""

_LATER: Final = gettext_lazy(
    "The answer does not fit the payment, so nothing was booked. A later answer may fit. If not, "
    "look at the gateway's own pages.",
)
_ADVICE: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        _R.AMOUNT_MISMATCH: _LATER,
        f"{_R.AMOUNT_MISMATCH}:{_A.ACCEPT_AS_PAID}": gettext_lazy(
            "The shopper has paid, but another amount. If the gateway's own pages show the same "
            "amount, accept it, or refund all of it.",
        ),
        _R.AMOUNT_MISSING: _LATER,
        _R.CURRENCY_MISMATCH: _LATER,
        _R.TRANSACTION_NO_MISMATCH: _LATER,
        _R.TRANSACTION_NO_MISSING: _LATER,
        _R.REFERENCE_MISMATCH: _LATER,
        _R.UNRECOGNISED_STATUS: gettext_lazy(
            "A later answer may say paid or unpaid. If it does not, ask the gateway what the word "
            "means.",
        ),
        _R.PAYMENT_UNKNOWN: gettext_lazy(
            "The gateway may find the payment later. If its own pages do not show it, mark it as "
            "expired when its time to pay is over.",
        ),
        _R.PAYMENT_UNANSWERED: gettext_lazy(
            "The gateway may answer by now. If it does not, look for the payment in its own "
            "pages: enter its number, or mark it as expired if it is unpaid there.",
        ),
        _R.CHANGED_AFTER_PAID: gettext_lazy(
            "Do not ship. Open the payment in the gateway's own pages: answer a charge-back "
            "there, and record here how much of the money has left.",
        ),
        _R.DISPUTED: gettext_lazy(
            "Answer the dispute in the gateway's own pages first. A later answer says how the "
            "dispute ended.",
        ),
        _R.MANUAL_REVIEW: gettext_lazy(
            "Look at the payment in the gateway's own pages. Approve it there, and this closes; or "
            "refund it.",
        ),
        f"{_R.DISPUTED}:{_A.RECORD_EXTERNAL_REFUND}": gettext_lazy(
            "The bank has taken the money. The shop's books agree with the gateway again when you "
            "have recorded it.",
        ),
        _R.WRONG_CREDENTIALS: gettext_lazy(
            "Correct the merchant number and the token of the account first. The review closes "
            "when the gateway answers the next query.",
        ),
        _R.SIGNATURE_MISMATCH: gettext_lazy(
            "Correct the token of the account first. The review closes when the next answer has "
            "the right signature.",
        ),
        f"{_R.SIGNATURE_MISMATCH}:{_A.DISMISS}": gettext_lazy(
            "Correct the token of the account first, and start a payment. Dismiss the review when "
            "that works.",
        ),
        _R.ACCOUNT_GONE: gettext_lazy(
            "Configure the account again first, with the merchant number and the address that it "
            "had.",
        ),
        _R.GATEWAY_SILENT: gettext_lazy(
            "The worker tries again by itself. If the gateway stays silent, ask its support.",
        ),
        _R.CREATIONS_REFUSED: gettext_lazy(
            "Nobody can pay in this way. Correct what the gateway complains about. The review "
            "closes when it creates a payment.",
        ),
        _R.SECOND_PAYMENT: gettext_lazy(
            "Another payment has paid the order. The money of this one is the shopper's.",
        ),
        _R.PAID_NOT_PAYABLE: gettext_lazy(
            "The money pays for no order. If you want to deliver all the same, reopen the order "
            "in the shop, and press “Deliver again”.",
        ),
        f"{_R.PAID_NOT_PAYABLE}:{_A.REOPEN}": gettext_lazy(
            "The money pays for no order. If you want to deliver all the same, press “Reopen and "
            "deliver”.",
        ),
        _R.CANCELLED_HELD: gettext_lazy(
            "Refund what is the shopper's. If you keep the money, dismiss the review and say why.",
        ),
        _R.UNDERPAID: gettext_lazy(
            "The money does not pay the order. If it is enough for you, correct the order in the "
            "shop, and press “Deliver again”.",
        ),
        _R.OVERPAID: gettext_lazy("The order is paid. Refund only the difference."),
        _R.DUPLICATE_TRANSACTION_NO: gettext_lazy(
            "Look at the gateway's own pages before you ship. If there is only one transaction, "
            "it pays one order: cancel the other.",
        ),
        _R.REFUND_UNKNOWN: gettext_lazy(
            "Look for the refund in the gateway's own pages, and press the button that agrees.",
        ),
        _R.REFUND_LATE: gettext_lazy(
            "The refund may be finished by now. If it is not, look at the gateway's own pages, "
            "and press the button that agrees.",
        ),
        _R.REFUND_NOT_SENT: gettext_lazy(
            "Correct what keeps the refund from leaving: the worker tries again. Withdraw it if "
            "it shall not leave any more.",
        ),
        _R.REFUND_CONTRADICTED: gettext_lazy(
            "If the gateway's own pages show that the money went out, record it. Then it is not "
            "refunded twice.",
        ),
        _R.REFUND_RETURNED: gettext_lazy(
            "Refund the shopper in another way, such as a bank transfer, and then dismiss the "
            "review.",
        ),
        _R.DELIVERY_FAILING: gettext_lazy(
            "Correct the cause in the shop first: the evidence has its error. The worker tries "
            "again too.",
        ),
        _R.ROWS_LOST: gettext_lazy(
            "Compare the gateway's own pages with the shop. Give a lost payment its order, or "
            "refund it there. Then dismiss the review.",
        ),
        _R.WORKER_LATE: gettext_lazy(
            "Start the worker again, and read its log. If an event waits although it runs, a "
            "handler or a transaction of the shop hangs.",
        ),
        _R.FORGED_NOTIFICATIONS: gettext_lazy(
            "No payment is in danger: Tillgate believes only its own query. "
            "If the gateway sent them, correct the token of the account, or its WEBHOOK_SECRETS.",
        ),
    },
)
"""Why the first action of a reason is recommended, or the step before it. A row with an action is
for reviews that begin with it, and that of "reopen" for reviews that have it.
"""


_AFTER: Final[Mapping[ReviewAction, str | Promise]] = MappingProxyType(
    {
        _A.POLL: gettext_lazy(
            "The gateway was asked just now, and nothing has changed. Look at the gateway's own "
            "pages, and choose below what agrees with them.",
        ),
        _A.REDELIVER: gettext_lazy(
            "The shop was told just now, and it has not taken it. Correct the cause in the shop "
            "first.",
        ),
    },
)
"""The next step when the recommended action was tried just now, and the review is still open."""


def recommended(
    reason: str,
    actions: Sequence[ReviewAction],
    pressed: str = "",
) -> ReviewAction | None:
    """Return the recommended one of the actions that fit a review, or None where staff must look at
    the gateway first. `pressed` was tried just now in vain.
    """
    if not actions or reason not in POLICIES or not POLICIES[ReviewReason(reason)].recommends:
        return None
    return actions[0] if actions[0] != pressed else None


def recommendation_of(reason: str, actions: Sequence[ReviewAction], pressed: str = "") -> str:
    """Return the recommended action and why, in the active language; "" for a resolved review.
    After an action in vain, return the step after it.
    """
    if not actions:
        return ""
    if pressed == actions[0] and pressed in _AFTER:
        return str(_AFTER[_A(pressed)])
    telling = [actions[0], *(one for one in actions if one is _A.REOPEN)]
    rows = [*(f"{reason}:{action}" for action in telling), reason]
    why = str(next((_ADVICE[row] for row in rows if row in _ADVICE), ""))
    if action := recommended(reason, actions):
        return _("Recommended: “%(action)s”. %(why)s") % {"action": ACTIONS[action], "why": why}
    return _("Recommended: %(why)s") % {"why": why} if why else ""


def message_of(reason: str, facts: Mapping[str, Any], *, reported_paid: bool = False) -> str:
    """Return the message of a review in the active language. A plugin's own text stands under
    `detail`.
    """
    case = str(facts.get("case") or ("found" if facts.get("found") else ""))
    keys = [f"{reason}:{case}", reason] if case else [reason]
    for key in keys:
        if key in _SENTENCES:
            return str(_SENTENCES[key]) % _Facts(facts)
    clause = next(
        (
            str(_CLAUSES[key]) % _Facts(facts)
            for key in keys
            if key in _CLAUSES and "detail" not in facts
        ),
        "",
    )
    clause = clause or str(facts.get("detail") or facts.get("error") or reason)
    if reason in POLICIES and POLICIES[ReviewReason(reason)].updates:
        clause = _in_context(ReviewReason(reason), facts, clause, reported_paid=reported_paid)
    if "subject" not in facts:
        return clause
    clause = clause.removesuffix(".")  # such as that of "p.m."
    if reason in POLICIES and POLICIES[ReviewReason(reason)].scope is Scope.ACCOUNT:
        return _("Account %(subject)s: %(clause)s.") % {
            "subject": facts["subject"],
            "clause": clause,
        }
    return _("Payment %(subject)s: %(clause)s.") % {"subject": facts["subject"], "clause": clause}


def _in_context(
    reason: ReviewReason,
    facts: Mapping[str, Any],
    clause: str,
    *,
    reported_paid: bool,
) -> str:
    if reported_paid and not POLICIES[reason].reported_paid:
        return _("the gateway says that it is paid, but %(clause)s") % {"clause": clause}
    if UNRECOGNISED in facts and reason is not ReviewReason.UNRECOGNISED_STATUS:
        said = str(_CLAUSES[ReviewReason.UNRECOGNISED_STATUS]) % _Facts(facts)
        return _("%(said)s, and %(clause)s") % {"said": said, "clause": clause}
    return clause


def shown_amount(amount: object, facts: Mapping[str, Any]) -> str:
    """Return an amount of the facts with their currency, in the active language; without a currency
    it is shown as it is stored.
    """
    text = "" if amount is None else str(amount)
    try:
        return money_text(Decimal(text), facts["currency"]) if "currency" in facts else text
    except InvalidOperation:
        return text


def _local(text: str) -> str:
    """Return a moment that the facts keep in UTC, in the project's time zone and the active
    language.
    """
    try:
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    except ValueError:
        return text
    return date_format(dates.local(moment), "DATETIME_FORMAT")


class _Facts(dict[str, Any]):
    """Facts for a template: amounts with their currency, methods by their labels, moments in the
    shop's time zone, and a question mark for a fact that is missing.
    """

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name == "method":
            return label_of(value)
        if name == "respond_by":
            return _local(value)
        return shown_amount(value, self) if name in _AMOUNTS else value

    def __missing__(self, name: str) -> str:
        return "?"
