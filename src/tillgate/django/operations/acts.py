"""The acts by which a person resolves what needs one: one table says which act fits which reason, and nothing else is done.

An act that the network takes part in runs outside transactions like every other operation; one that comes too late, because somebody else
resolved the matter in the meantime, changes nothing and says who it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from django.db.models import QuerySet

from tillgate.django import clock
from tillgate.django.models import Attention, Delivery, DeliveryKind, Order, Payment, Refund
from tillgate.django.operations.attention import ITSELF, SAID_REASONS, is_over, resolve
from tillgate.django.operations.deliveries import AGAIN, deliver, deliver_remote, give_up, retry
from tillgate.django.operations.locking import database, in_the_shops_hands, locked_order, outside_transactions
from tillgate.django.operations.payments import apply_answer, ask, claim_look, decide_about, let_expire
from tillgate.django.operations.refunds import enter_external_refund, refund, refundable, settle_by_person, withdraw
from tillgate.django.operations.timeline import record
from tillgate.hooks import PaidOutcome, call_owner
from tillgate.lifecycle import UNTOLD_REASONS, Answer, AttentionReason, PaymentStatus, RefundStatus
from tillgate.wire.texts import storable

__all__ = ["Act", "ActNotPossible", "Done", "acts_for", "look_again", "perform", "to_withdraw"]


class Act(StrEnum):
    """What a person can do about an attention."""

    QUERY = "query"
    """Ask the gateway again; resolved when its answer is in order."""
    RETRY = "retry"
    """Try the failing delivery again at once; resolved when it succeeds."""
    TELL_AGAIN = "tell-again"
    """Tell the shop once more that the payment is paid, after it reopened or corrected the order; resolved when it applies it."""
    REFUND = "refund"
    """Give money back; resolved when all of it is (an overpaid order: when some of it is)."""
    REFUND_DONE = "refund-done"
    """The refund of unknown outcome was done, as a person saw at the gateway."""
    REFUND_NOT_DONE = "refund-not-done"
    """The refund of unknown outcome was not done, as a person saw at the gateway."""
    WITHDRAW = "withdraw"
    """Give up a refund that waits to be sent."""
    ENTER_REFUND = "enter-refund"
    """Enter the amount of a refund that was made elsewhere."""
    LET_EXPIRE = "let-expire"
    """Let the payment expire, since nobody paid it or its money is settled elsewhere; should money come all the same, it is found."""
    ACCEPT = "accept"
    """Leave it as it is, with a note that says why. The same is not told again, and what the network would not carry not tried."""


_ASK: Final = (Act.QUERY, Act.ACCEPT)
_ASK_OR_END: Final = (Act.QUERY, Act.LET_EXPIRE, Act.ACCEPT)

_AS_READ: Final = frozenset({Act.LET_EXPIRE, Act.ENTER_REFUND, Act.ACCEPT})
"""Acts by which a person answers for what the matter says."""
_FITTING: Final[Mapping[str, tuple[Act, ...]]] = MappingProxyType(
    {
        AttentionReason.AMOUNT_MISMATCH: _ASK_OR_END,
        AttentionReason.AMOUNT_MISSING: _ASK_OR_END,
        AttentionReason.CURRENCY_MISMATCH: _ASK_OR_END,
        AttentionReason.TRANSACTION_NO_MISMATCH: _ASK_OR_END,
        AttentionReason.TRANSACTION_NO_MISSING: _ASK_OR_END,
        AttentionReason.REFERENCE_MISMATCH: _ASK_OR_END,
        AttentionReason.UNRECOGNISED_STATUS: _ASK_OR_END,
        AttentionReason.CHANGED_AFTER_PAID: (Act.QUERY, Act.ENTER_REFUND, Act.ACCEPT),
        AttentionReason.WRONG_CREDENTIALS: _ASK,
        AttentionReason.SIGNATURE_MISMATCH: _ASK,
        AttentionReason.ACCOUNT_GONE: _ASK,
        AttentionReason.GATEWAY_SILENT: _ASK,
        AttentionReason.SECOND_PAYMENT: (Act.REFUND, Act.WITHDRAW, Act.ACCEPT),
        AttentionReason.PAID_NOT_PAYABLE: (Act.REFUND, Act.WITHDRAW, Act.TELL_AGAIN, Act.ACCEPT),
        AttentionReason.UNDERPAID: (Act.REFUND, Act.WITHDRAW, Act.TELL_AGAIN, Act.ACCEPT),
        AttentionReason.OVERPAID: (Act.REFUND, Act.WITHDRAW, Act.ACCEPT),
        AttentionReason.DUPLICATE_TRANSACTION_NO: (Act.REFUND, Act.WITHDRAW, Act.ACCEPT),
        # Its amount stays blocked until somebody knows, so no accepting.
        AttentionReason.REFUND_UNKNOWN: (Act.REFUND_DONE, Act.REFUND_NOT_DONE),
        AttentionReason.REFUND_CONTRADICTED: (Act.ENTER_REFUND, Act.ACCEPT),
        AttentionReason.REFUND_NOT_SENT: (Act.WITHDRAW,),  # its amount stays blocked as well
        AttentionReason.PAYMENT_UNKNOWN: _ASK_OR_END,
        AttentionReason.PAYMENT_UNANSWERED: _ASK_OR_END,
        AttentionReason.DELIVERY_FAILING: (Act.RETRY, Act.ACCEPT),
        AttentionReason.FORGED_NOTICES: (Act.ACCEPT,),
    }
)


class ActNotPossible(Exception):
    """The act does not fit; the message says why, to a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of an act: whether the matter is resolved now, a sentence, and the refund if one was asked for."""

    resolved: bool
    sentence: str
    refund: Refund | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a person gave with the act."""

    person: str
    note: str
    amount: Decimal | str | None
    press: str
    seen: int | None
    read: str
    withdraws: int | None


def acts_for(attention: Attention, refunds: Iterable[Refund] | None = None) -> tuple[Act, ...]:
    """Return the acts that fit an attention, the likeliest first; none once it is resolved.

    `refunds` are those of its payment, where they are at hand: of a payment whose refunds have all been sent, none can be withdrawn.
    """
    if attention.resolved_at:
        return ()
    fitting = tuple(act for act in _fitting(attention) if act is not _unfit(attention))
    if Act.REFUND not in fitting or any(one.status == RefundStatus.QUEUED for one in (_unsent(attention) if refunds is None else refunds)):
        return fitting
    return tuple(act for act in fitting if act is not Act.WITHDRAW)


def _fitting(attention: Attention) -> tuple[Act, ...]:
    if attention.reason == AttentionReason.SIGNATURE_MISMATCH and attention.payment_id is None:
        return (Act.ACCEPT,)  # a creation met it, and what a query says proves nothing of how creations are signed
    return _FITTING.get(attention.reason, (Act.ACCEPT,))


def _unfit(attention: Attention) -> Act | None:
    """Return the act that is no end of what no answer has settled: a payment that stays open keeps its order waiting for ever."""
    if attention.reason not in SAID_REASONS | UNTOLD_REASONS or attention.payment is None:
        return None
    return Act.ACCEPT if attention.payment.is_open else Act.LET_EXPIRE


def _unsent(attention: Attention) -> QuerySet[Refund]:
    """Return the refunds of the payment in question of which nobody has heard yet, and that may still go out."""
    unsent = (RefundStatus.QUEUED, RefundStatus.SENDING)
    return Refund.objects.using(database()).filter(payment=attention.payment_id, status__in=unsent).order_by("-pk")


def to_withdraw(attention: Attention, refunds: Iterable[Refund] | None = None) -> Refund | None:
    """Return what `withdraw` gives up: the refund in question, or of a payment the newest that waits. `refunds` are as in `acts_for`."""
    unsent = _unsent(attention) if refunds is None else sorted(refunds, key=lambda one: -one.pk)
    return attention.refund or next((one for one in unsent if one.status == RefundStatus.QUEUED), None)


def perform(
    attention_id: int,
    act: str,
    *,
    person: str,
    note: str = "",
    amount: Decimal | str | None = None,
    press: str = "",
    seen: int | None = None,
    read: str = "",
    withdraws: int | None = None,
) -> Done:
    """Do what a person chose about an attention.

    `amount` is for the two acts about refunds, `note` for accepting and for letting expire; `seen` is as in `refund`, and `press` is kept
    with the refund. `read` is the attention's `mark` when it was shown: what says something else by now is not resolved by a person's word.
    `withdraws` is the refund that was shown to be withdrawn, which `to_withdraw` says: pressed twice, no other is.

    Raises `ActNotPossible`, `RefundNotPossible` or `InvalidRequest`, and nothing was done.
    """
    outside_transactions("perform")
    rows = Attention.objects.using(database()).select_related("order", "payment__order", "refund__payment", "delivery")
    attention = rows.get(pk=attention_id)
    if attention.resolved_at:
        return _too_late(attention)
    if act not in _fitting(attention):
        raise ActNotPossible(f"{act!r} does not resolve {attention.reason!r}")
    if act == Act.ACCEPT == _unfit(attention):
        remedy = "ask again, or let it expire once its time is over, if nobody paid it or its money is settled elsewhere"
        raise ActNotPossible(f"its payment is open: {remedy}")
    if read and read != attention.mark and act in _AS_READ:
        raise _says_something_else(attention)
    given = _Given(person=person, note=storable(note.strip()), amount=amount, press=press, seen=seen, read=read, withdraws=withdraws)
    return _ACTS[Act(act)](attention, given)


def _says_something_else(attention: Attention) -> ActNotPossible:
    return ActNotPossible(f"it says something else by now: {attention.sentence}")


def _too_late(attention: Attention) -> Done:
    return Done(resolved=True, sentence=f"{attention.resolved_by} had resolved it already: {attention.resolution}")


def _ended(attention: Attention, done: Done, given: _Given) -> Done:
    """Return what came of asking where that, or somebody else meanwhile, has ended the matter."""
    return replace(done, resolved=True) if attention.resolved_by in (given.person, ITSELF) else _too_late(attention)


def look_again(payment: Payment, person: str) -> Done:
    """Ask the gateway about a payment now, and say what it answered; resolved means that the answer is in order."""
    outside_transactions("look_again")
    _, done = _look(payment, person)
    return done


def _look(payment: Payment, person: str) -> tuple[Answer | None, Done]:
    if not claim_look(payment):
        return None, Done(resolved=False, sentence="the gateway was asked a moment ago: try again in a few seconds")
    answer = ask(payment)
    seen = apply_answer(payment, answer, f"person:{person}")
    decision = decide_about(seen, answer)
    return answer, Done(resolved=decision.is_in_order, sentence=decision.because)


def _query(attention: Attention, given: _Given) -> Done:
    # A gateway that is silent to all has none that met it first: its newest is asked about.
    newest = Payment.objects.using(database()).select_related("order").filter(account=attention.account).order_by("-id")
    payment = attention.payment or newest.first()
    if payment is None:
        raise ActNotPossible(f"there is no payment of account {attention.account} to ask about")
    _, done = _ask_about(attention, payment, given)
    return done


def _ask_about(attention: Attention, payment: Payment, given: _Given) -> tuple[Answer | None, Done]:
    """Ask the gateway about a payment now, and end the matter if the answer does."""
    answer, done = _look(payment, given.person)
    attention.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
    if attention.resolved_at:
        return answer, _ended(attention, replace(done, sentence=f"asked again: {done.sentence}"), given)
    payment.refresh_from_db(fields=["status"])
    if answer is None or not is_over(attention.reason, answer, payment, is_in_order=done.resolved):
        return answer, replace(done, resolved=False)
    return answer, _resolved(attention, f"asked again: {done.sentence}", given)


def _retry(attention: Attention, given: _Given) -> Done:
    delivery = attention.delivery
    assert delivery is not None
    retry(delivery.pk)
    (deliver_remote if delivery.kind == DeliveryKind.REMOTE else deliver)(delivery.order_id)
    delivery.refresh_from_db()
    if delivery.done_at is None:
        return Done(resolved=False, sentence=f"it failed again: {delivery.fault}")
    return _resolved(attention, f"the shop was told: {delivery.kind}", given)


def _tell_again(attention: Attention, given: _Given) -> Done:
    """Queue the delivery of a paid payment once more; its handler looks at the order afresh, so that nothing can take effect twice."""
    payment = attention.payment
    assert payment is not None
    with locked_order(payment.order_id) as order:
        attention.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
        if attention.resolved_at:  # in the same moment; whoever resolves it has the order's lock too
            return _too_late(attention)
        payment.refresh_from_db(fields=["status"])
        if order.paid_by_id or payment.status != PaymentStatus.PAID:
            raise ActNotPossible(f"order {order} is paid already" if order.paid_by_id else f"payment {payment.reference} is not paid")
        if refundable(payment) != payment.amount:
            raise ActNotPossible(f"some of payment {payment.reference} was given back, or may have been: the order is not paid by the rest")
        _reopen(order, given)
        delivery = order.deliveries.filter(payment=payment, kind=DeliveryKind.PAYMENT_PAID, done_at__isnull=True).first()
        about = {AGAIN: attention.pk}
        if delivery is not None:
            delivery.data = about  # whatever else it was about may be resolved before it is its turn
            delivery.save(update_fields=["data"])
        else:
            now = clock.now()
            delivery = Delivery(order=order, payment=payment, kind=DeliveryKind.PAYMENT_PAID, data=about, created_at=now, due_at=now)
            delivery.save(force_insert=True)
            record("delivery.repeated", order, f"person:{given.person}", "the shop is told again that it is paid", payment=payment)
    deliver(payment.order_id)
    delivery.refresh_from_db()
    if delivery.outcome == PaidOutcome.APPLIED:
        return _resolved(attention, "the shop was told again, and has applied the payment", given)
    attention.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
    if attention.resolved_at:
        return _too_late(attention)
    return Done(
        resolved=False, sentence=f"the shop says: {delivery.outcome or delivery.fault or 'not yet, an earlier delivery is waiting'}"
    )


def _reopen(order: Order, given: _Given) -> None:
    """Let an order that the shop had closed be paid once more, if the shop takes money for it again."""
    try:
        with in_the_shops_hands():
            described = call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    except Exception as error:
        raise ActNotPossible(f"the shop cannot say whether it takes money for the order: {type(error).__name__}: {error}") from error
    if order.closed_at and described is not None and described.not_payable_because is None:
        order.closed_at = None
        order.save(update_fields=["closed_at"])
        record("order.reopened", order, f"person:{given.person}", "the shop takes money for it again")


def _refund(attention: Attention, given: _Given) -> Done:
    payment = attention.payment
    assert payment is not None
    data = {"press": given.press} if given.press else {}
    sent = refund(payment.pk, given.amount or "", person=given.person, reason=attention.reason, data=data, seen=given.seen, about=attention)
    attention.refresh_from_db()
    return Done(resolved=attention.resolved_at is not None, sentence=sent.answer, refund=sent)


def _settle(attention: Attention, given: _Given, *, done: bool) -> Done:
    assert attention.refund is not None
    settle_by_person(attention.refund.pk, done=done, person=given.person)
    attention.refresh_from_db()
    return Done(resolved=attention.resolved_at is not None, sentence=attention.resolution)


def _enter(attention: Attention, given: _Given) -> Done:
    assert attention.payment is not None
    entered = enter_external_refund(attention.payment.pk, given.amount or "", person=given.person, seen=given.seen, about=attention)
    return Done(resolved=True, sentence=f"USD {entered.amount} was given back elsewhere", refund=entered)


def _withdraw(attention: Attention, given: _Given) -> Done:
    waiting = to_withdraw(attention)
    if given.withdraws is not None:
        waiting = Refund.objects.using(database()).filter(pk=given.withdraws, payment=attention.payment_id).first()
    if waiting is None:
        raise ActNotPossible("no refund of this payment waits to be sent")
    withdrawn = withdraw(waiting.pk, person=given.person)
    attention.refresh_from_db(fields=["resolved_at"])
    sentence = f"USD {withdrawn.amount}: {withdrawn.answer}"
    return Done(resolved=attention.resolved_at is not None, sentence=sentence, refund=withdrawn)


def _accept(attention: Attention, given: _Given) -> Done:
    if not given.note:
        raise ActNotPossible("a note must say why it can stay as it is")
    if attention.delivery and attention.delivery.kind == DeliveryKind.REMOTE:
        give_up(attention.delivery, given.person, given.note)  # it would fail again, and keep others waiting
    if attention.order_id is None:
        return _resolved(attention, given.note, given, accepted=True)
    with locked_order(attention.order_id):
        attention.refresh_from_db(fields=["sentence"])
        if given.read and given.read != attention.mark:  # the order's lock keeps it from being told anew
            raise _says_something_else(attention)
        # It would go out although the money is to stay.
        if Act.REFUND in _fitting(attention) and (unsent := _unsent(attention).first()):
            remedy = "withdraw it first" if unsent.status == RefundStatus.QUEUED else "look again in a moment"
            raise ActNotPossible(f"a refund of USD {unsent.amount} of this payment is {unsent.status}: {remedy}")
        return _resolved(attention, given.note, given, accepted=True)


def _let_expire(attention: Attention, given: _Given) -> Done:
    assert attention.payment is not None
    if not given.note:
        raise ActNotPossible("a note must say how it is known that nobody paid, or where the money is settled")
    newest = attention.payment.attentions.latest("pk").pk
    # Asked once more, since what a person saw there may be an hour old.
    answer, done = _ask_about(attention, attention.payment, given)
    if answer is None or done.resolved:
        return done
    expired = let_expire(attention, given.person, given.note, newest)
    attention.refresh_from_db(fields=["resolved_at"])
    return Done(resolved=attention.resolved_at is not None, sentence=f"payment {expired.reference} is {expired.status}")


def _resolved(attention: Attention, resolution: str, given: _Given, *, accepted: bool = False) -> Done:
    return Done(resolved=True, sentence=resolve(attention.pk, resolution, given.person, accepted=accepted).resolution)


_ACTS: Final[Mapping[Act, Callable[[Attention, _Given], Done]]] = MappingProxyType(
    {
        Act.QUERY: _query,
        Act.RETRY: _retry,
        Act.TELL_AGAIN: _tell_again,
        Act.REFUND: _refund,
        Act.REFUND_DONE: lambda attention, given: _settle(attention, given, done=True),
        Act.REFUND_NOT_DONE: lambda attention, given: _settle(attention, given, done=False),
        Act.WITHDRAW: _withdraw,
        Act.ENTER_REFUND: _enter,
        Act.LET_EXPIRE: _let_expire,
        Act.ACCEPT: _accept,
    }
)
