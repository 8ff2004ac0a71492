"""The message of a review, rendered from its facts at display: it can be reworded and translated, and no code reads it (I13)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tillgate.django.amounts import money_text
from tillgate.lifecycle.review import POLICIES, UNRECOGNISED, ReviewReason, Scope

__all__ = ["message_of", "shown_amount"]

_R: Final = ReviewReason
_AMOUNTS: Final = frozenset({"amount", "found", "expected"})
"""The facts that are amounts where the facts have a currency."""

_CLAUSES: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        _R.AMOUNT_MISMATCH: gettext_lazy("the amount is %(found)s instead of %(expected)s"),
        _R.AMOUNT_MISSING: gettext_lazy("the gateway says paid without an amount"),
        f"{_R.AMOUNT_MISSING}:found": gettext_lazy("the gateway says paid, and its amount '%(found)s' is no exact amount"),
        _R.CURRENCY_MISMATCH: gettext_lazy("the %(field)s is missing instead of %(expected)s"),
        f"{_R.CURRENCY_MISMATCH}:found": gettext_lazy("the %(field)s is %(found)s instead of %(expected)s"),
        _R.TRANSACTION_NO_MISMATCH: gettext_lazy("the transaction is %(expected)s, and the answer is about %(found)s"),
        _R.TRANSACTION_NO_MISSING: gettext_lazy("the gateway says paid without a transactionNo"),
        _R.REFERENCE_MISMATCH: gettext_lazy("the answer is about '%(found)s'"),
        _R.UNRECOGNISED_STATUS: gettext_lazy("the gateway says '%(unrecognised)s', which is not a status we know"),
        _R.CHANGED_AFTER_PAID: gettext_lazy("it was paid, and now the gateway says '%(status)s'"),
        f"{_R.DISPUTED}:open": gettext_lazy("the shopper's bank asks %(amount)s back (dispute %(dispute_no)s); answer it at the gateway"),
        f"{_R.DISPUTED}:deadline": gettext_lazy(
            "the shopper's bank asks %(amount)s back (dispute %(dispute_no)s); answer it at the gateway before %(respond_by)s"
        ),
        f"{_R.DISPUTED}:lost": gettext_lazy(
            "the shopper's bank took %(amount)s back (dispute %(dispute_no)s); record it as an external refund"
        ),
        _R.PAYMENT_UNKNOWN: gettext_lazy("the gateway does not know it, though it gave it transaction %(transaction_no)s"),
        f"{_R.PAYMENT_UNKNOWN}:reported-paid": gettext_lazy("the gateway does not know it, though it reported it paid"),
        _R.PAYMENT_UNANSWERED: gettext_lazy("its time to pay is long over, and the gateway gives no usable answer about it"),
        _R.GATEWAY_SILENT: gettext_lazy("its gateway has not answered for %(minutes)s minutes (%(error)s)"),
        f"{_R.ACCOUNT_GONE}:refund": gettext_lazy(
            "it could not be found, or is another merchant's by now, when a notification came of the refund of %(amount)s "
            "of payment %(payment)s. If it does not come again, see at the gateway whether it was done"
        ),
        _R.SECOND_PAYMENT: gettext_lazy("the order was paid by another payment already; this one can be refunded"),
        f"{_R.PAID_NOT_PAYABLE}:unknown": gettext_lazy("it was paid, but the shop does not know the order any more"),
        f"{_R.PAID_NOT_PAYABLE}:closed": gettext_lazy("it was paid, but the shop closed the order"),
        f"{_R.PAID_NOT_PAYABLE}:shop": gettext_lazy("it was paid, but %(because)s"),
        f"{_R.PAID_NOT_PAYABLE}:currency": gettext_lazy("it was paid in %(found)s, and the order is in %(expected)s by now"),
        f"{_R.PAID_NOT_PAYABLE}:outcome": gettext_lazy("it was paid, and the shop says: %(outcome)s"),
        f"{_R.UNDERPAID}:outcome": gettext_lazy("it was paid, and the shop says: %(outcome)s"),
        _R.UNDERPAID: gettext_lazy("%(found)s was paid, and the order costs %(expected)s by now"),
        _R.OVERPAID: gettext_lazy("%(found)s was paid, and the order costs %(expected)s by now"),
        _R.FORGED_NOTIFICATIONS: gettext_lazy("%(count)s notifications were not signed with the account's token"),
    }
)
"""A clause by the reason, or by the reason and its case: what follows "Payment X: " or "Account X: "."""

_SENTENCES: Final[Mapping[str, str | Promise]] = MappingProxyType(
    {
        _R.DUPLICATE_TRANSACTION_NO: gettext_lazy("The gateway gave transaction %(transaction_no)s to %(payment)s and to %(other)s."),
        _R.REFUND_UNKNOWN: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: nobody knows whether it went out (%(answer)s). "
            "It is never sent again by itself. Look at the gateway and say whether it was done."
        ),
        _R.REFUND_RETURNED: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it was done, and then failed at the shopper's bank. The money is yours again. "
            "Refund the shopper in another way, and close this review."
        ),
        _R.REFUND_LATE: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: the gateway has accepted it, and has not finished it for %(days)s days "
            "(%(answer)s). Look at the gateway and say whether it was done."
        ),
        _R.REFUND_NOT_SENT: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it could not be sent for %(hours)s hours (%(answer)s). "
            "It is tried again at least every hour."
        ),
        _R.REFUND_CONTRADICTED: gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it was held to be refused (%(answer)s), and the gateway's answer says that "
            "it was done. If the money went out, enter it as a refund made elsewhere."
        ),
        f"{_R.REFUND_CONTRADICTED}:notification": gettext_lazy(
            "Refund of %(amount)s of payment %(payment)s: it was held to be refused (%(answer)s), and the gateway's notification says "
            "that it was done. If the money went out, enter it as a refund made elsewhere."
        ),
        _R.DELIVERY_FAILING: gettext_lazy("The shop could not be told %(kind)s of order %(order)s: %(error)s"),
        f"{_R.DELIVERY_FAILING}:remote": gettext_lazy("The shop could not send %(name)s of order %(order)s: %(error)s"),
    }
)
"""Whole sentences, of reasons that are not about a payment or an account alone."""


def message_of(reason: str, facts: Mapping[str, Any], *, reported_paid: bool = False) -> str:
    """Return the message of a review in the active language. A plugin's own text stands under `detail`."""
    case = str(facts.get("case") or ("found" if facts.get("found") else ""))
    keys = [f"{reason}:{case}", reason] if case else [reason]
    for key in keys:
        if key in _SENTENCES:
            return str(_SENTENCES[key]) % _Facts(facts)
    clause = next((str(_CLAUSES[key]) % _Facts(facts) for key in keys if key in _CLAUSES and "detail" not in facts), "")
    clause = clause or str(facts.get("detail") or facts.get("error") or reason)
    if reason in POLICIES and POLICIES[ReviewReason(reason)].updates:
        clause = _in_context(ReviewReason(reason), facts, clause, reported_paid=reported_paid)
    if "subject" not in facts:
        return clause
    if reason in POLICIES and POLICIES[ReviewReason(reason)].scope is Scope.ACCOUNT:
        return _("Account %(subject)s: %(clause)s.") % {"subject": facts["subject"], "clause": clause}
    return _("Payment %(subject)s: %(clause)s.") % {"subject": facts["subject"], "clause": clause}


def _in_context(reason: ReviewReason, facts: Mapping[str, Any], clause: str, *, reported_paid: bool) -> str:
    if reported_paid and not POLICIES[reason].reported_paid:
        return _("the gateway says that it is paid, but %(clause)s") % {"clause": clause}
    if UNRECOGNISED in facts and reason is not ReviewReason.UNRECOGNISED_STATUS:
        said = str(_CLAUSES[ReviewReason.UNRECOGNISED_STATUS]) % _Facts(facts)
        return _("%(said)s, and %(clause)s") % {"said": said, "clause": clause}
    return clause


def shown_amount(amount: object, facts: Mapping[str, Any]) -> str:
    """Return an amount of the facts with their currency, in the active language; without a currency it is shown as it is stored."""
    text = "" if amount is None else str(amount)
    try:
        return money_text(Decimal(text), facts["currency"]) if "currency" in facts else text
    except InvalidOperation:
        return text


class _Facts(dict[str, Any]):
    """Facts for a template: amounts have their currency, and a fact that an older row lacks shows as a question mark."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return shown_amount(value, self) if name in _AMOUNTS else value

    def __missing__(self, name: str) -> str:
        return "?"
