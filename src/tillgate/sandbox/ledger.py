"""The ledger of transactions: their state, their changes, and the notifications that the changes
cause.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Literal

from . import answers, contract, notifications
from .errors import NotPossible, UnknownTransaction
from .faults import FAULTS, MAGIC, Fault, FaultPlan, Magic, Occasion
from .money import text_of, units_of
from .notifications import NotificationKind, Outbox
from .options import Options
from .requests import Refusal
from .transactions import Journal, Refund, RefundStatus, Status, Transaction

Clock = Callable[[], float]
Decision = Literal["pay", "decline", "leave"]
_SLOW_ENDS: Mapping[str, Status] = MappingProxyType(
    {"slow_money": "paid", "slow_failure": "failed", "voucher": "expired"},
)
"""How money under way ends once its time is over, by the fault that delays it."""


class Ledger:
    """Every transaction and refund, the notifications that they cause, and the changes that time
    will bring.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        clock: Clock,
        random: Random | None = None,
    ) -> None:
        self.options = options or Options()
        self.clock = clock
        self._random = random or Random(self.options.seed or 0)  # noqa: S311  repeatable on purpose
        self.reset()

    def use(self, options: Options) -> None:
        """Use other options from now on; changes that were scheduled under the old ones stay
        scheduled.
        """
        self.options = options
        self.faults.use(options.faults)

    def reset(self) -> None:
        """Forget everything; the streams of random numbers continue."""
        # Numbers and faults have separate streams of random numbers: one more fault does not rename
        # every transaction.
        self._numbers = Random(self._random.getrandbits(64))  # noqa: S311  repeatable on purpose
        self.faults = FaultPlan(self.options.faults, Random(self._random.getrandbits(64)))  # noqa: S311  repeatable on purpose
        self.journal = Journal(self.options.journal_entries)
        self.outbox = Outbox()
        self._transactions: dict[str, Transaction] = {}
        self._by_reference: dict[tuple[str, str], Transaction] = {}
        self._by_token: dict[str, Transaction] = {}
        self._events: list[tuple[float, int, str, Transaction]] = []
        self._event_count = 0

    def add(self, transaction: Transaction) -> None:
        """Enter a new transaction and start its time-out."""
        self._transactions[transaction.transaction_no] = transaction
        self._by_reference[transaction.merchant_no, transaction.reference] = transaction
        self._by_token[transaction.token] = transaction
        self._schedule(transaction.expires_at, "expire", transaction)
        if self._strike("created", transaction):
            self.notify(transaction, "forged")

    def transactions(self) -> list[Transaction]:
        """All transactions, oldest first."""
        self.settle(self.clock())
        return list(self._transactions.values())

    def find(self, key: str) -> Transaction:
        """Find a transaction by its number, or by its reference with the newest first."""
        by_reference = (
            one for one in reversed(self._transactions.values()) if one.reference == key
        )
        found = self._transactions.get(key) or next(by_reference, None)
        if found is None:
            raise UnknownTransaction(key)
        return found

    def known(self, merchant_no: str, reference: str) -> Transaction | None:
        """Return a merchant's transaction in its present state, if there is one with this
        reference.
        """
        return self._by_reference.get((merchant_no, reference))

    def at_payment_page(self, token: str) -> Transaction:
        """Find a transaction by the unguessable part of its payment page address."""
        self.settle(self.clock())
        found = self._by_token.get(token)
        if found is None:
            raise UnknownTransaction("this payment page address")
        return found

    def totals(self) -> dict[str, int]:
        """Return the merchants' money by currency, in its smallest unit: paid less refunded."""
        held: dict[str, int] = {}
        for one in self._transactions.values():
            if one.status == "paid":
                held[one.currency] = held.get(one.currency, 0) + one.units - one.refunded_units
        return dict(sorted(held.items()))

    def payment_url(self, transaction: Transaction) -> str:
        """Return the address of the payment page."""
        return f"{self.options.public_url}/cashier/{transaction.token}"

    def word(self, transaction: Transaction) -> str:
        """Return the status word for the state of a transaction (unspecified behaviour 6, 18 and
        19).
        """
        status: str = transaction.status
        if status == "paid" and transaction.refunded_units:
            status = (
                "refunded" if transaction.refunded_units == transaction.units else "partly_refunded"
            )
        word: str = getattr(self.options, f"word_{status}")
        return word

    def refund_word(self, refund: Refund) -> str:
        """Return the status word for the state of a refund."""
        words = {
            "succeeded": self.options.word_paid,
            "pending": self.options.word_pending,
            "failed": self.options.word_failed,
        }
        return words[refund.status]

    def decide(self, transaction_no: str, decision: Decision, *, late: bool = False) -> str | None:
        """Apply the shopper's decision; return the shopper's next address, if any. `late` pays a
        failed or expired payment.
        """
        now = self.clock()
        self.settle(now)
        transaction = self.find(transaction_no)
        if (
            transaction.status != "pending"
            and not (transaction.has_open_voucher and decision == "pay")
            and not (late and decision == "pay" and transaction.status in ("failed", "expired"))
        ):
            raise NotPossible(
                f"transaction {transaction_no} is {transaction.status}: nothing is left to decide",
            )
        self.journal.add(now, "event", f"the shopper chose {decision}", transaction)
        is_first = decision == "pay" and not transaction.has_open_voucher
        if is_first and (struck := self._strike("decision", transaction)):
            self._delay(transaction, struck.name, now)
        elif decision != "leave":
            self._become(transaction, "paid" if decision == "pay" else "failed", now)
        fault = self._strike("callback", transaction)
        if fault is None:
            return self.way_back(transaction)
        return None if fault.name == "no_return" else transaction.callback_url

    def _delay(self, transaction: Transaction, fault: str, now: float) -> None:
        """Let the money of a payment come, fail or be awaited later than the shopper's decision."""
        if fault == "late_money":
            self._become(transaction, "failed", now)
            self._schedule(now + self.options.late_seconds, fault, transaction)
            return
        ends_at = now + self.options.slow_seconds
        transaction.voucher_until = ends_at if fault == "voucher" else None
        self._become(transaction, "processing", now)
        self._schedule(ends_at, fault, transaction)

    def way_back(self, transaction: Transaction) -> str:
        """Return the callback address for a return of the shopper now."""
        return notifications.way_back(
            transaction,
            self.word(transaction),
            self.options,
            self.clock(),
        )

    def expire(self, transaction_no: str) -> None:
        """Let the time-out of a pending transaction pass now."""
        transaction = self.find(transaction_no)
        if transaction.status != "pending":
            raise NotPossible(
                f"transaction {transaction_no} is {transaction.status}: it cannot expire",
            )
        self._become(transaction, "expired", self.clock())

    def reverse(self, transaction_no: str) -> None:
        """Take a payment back behind the merchant's back, as a charge-back does (unspecified
        behaviour 18).
        """
        transaction = self.find(transaction_no)
        if transaction.status != "paid":
            raise NotPossible(
                f"transaction {transaction_no} is {transaction.status}: it cannot be reversed",
            )
        self._become(transaction, "reversed", self.clock())

    def give_back(
        self,
        transaction: Transaction,
        units: int,
        *,
        amount: str = "",
        ipn_url: str = "",
        reference: str = "",
        status: RefundStatus = "succeeded",
        now: float | None = None,
    ) -> Refund:
        """Refund; also without a call of the merchant, as the staff of the gateway's own back
        office can do.
        """
        at = self.clock() if now is None else now
        if transaction.status != "paid":
            raise Refusal(
                contract.BAD_STATE,
                f"the transaction is {self.word(transaction)}, not paid",
            )
        if units > transaction.refundable_units:
            left = text_of(transaction.refundable_units, transaction.currency)
            raise Refusal(contract.BAD_STATE, f"amount is more than the {left} left to refund")
        amount = amount or text_of(units, transaction.currency)
        refund = Refund(self._number(), amount, units, ipn_url, at, reference, status)
        transaction.refunds.append(refund)
        assert 0 <= transaction.refundable_units < transaction.units or status == "failed"
        self._refund_is(refund, transaction, at)
        return refund

    def finish_refund(self, transaction_no: str, status: RefundStatus = "succeeded") -> Refund:
        """Finish the oldest pending refund of a transaction, and notify it."""
        transaction = self.find(transaction_no)
        refund = next((one for one in transaction.refunds if one.status == "pending"), None)
        if refund is None:
            raise NotPossible(f"transaction {transaction_no} has no pending refund")
        refund.status = status
        self._refund_is(refund, transaction, self.clock())
        return refund

    def _refund_is(self, refund: Refund, transaction: Transaction, at: float) -> None:
        title = {
            "succeeded": "refunded",
            "pending": "accepted a refund of",
            "failed": "failed to refund",
        }[refund.status]
        self.journal.add(at, "event", f"{title} {refund.amount}", transaction)
        if refund.ipn_url and refund.status != "pending" and self.options.notification_on_refund:
            self._put_notification("refund", transaction, refund, at)

    def notify(
        self,
        transaction: Transaction,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> None:
        """Schedule a notification about a transaction, true or false, regardless of the
        switches.
        """
        refund = next((one for one in reversed(transaction.refunds) if one.ipn_url), None)
        if kind == "refund" and refund is None:
            raise NotPossible("no refund of this transaction has named an ipnUrl")
        word = (
            status
            or {"forged": self.options.word_paid, "stale": self.options.word_pending}.get(kind)
            or self.word(transaction)
        )
        self._put_notification(
            kind,
            transaction,
            refund if kind == "refund" else None,
            self.clock(),
            word=word,
        )

    def settle(self, now: float) -> None:
        """Make every change that is due: expiries and late money."""
        while self._events and self._events[0][0] <= now:
            at, _, event, transaction = heapq.heappop(self._events)
            if event == "expire" and transaction.status == "pending":
                self._become(transaction, "expired", at)
            elif event == "late_money" and transaction.status in ("failed", "expired"):
                self._become(transaction, "paid", at)
            elif event in _SLOW_ENDS and transaction.status == "processing":
                self._become(transaction, _SLOW_ENDS[event], at)

    def next_due(self) -> float | None:
        """Return the time of the next scheduled change: an expiry, late money or a notification."""
        while (
            self._events
            and self._events[0][2] == "expire"
            and self._events[0][3].status != "pending"
        ):
            heapq.heappop(self._events)
        change_at = self._events[0][0] if self._events else None
        return min(
            (at for at in (change_at, self.outbox.next_due()) if at is not None),
            default=None,
        )

    def _become(self, transaction: Transaction, status: Status, now: float) -> None:
        transaction.status = status
        transaction.decided_at = now
        self.journal.add(now, "event", f"the transaction is {status}", transaction)
        if getattr(self.options, f"notification_on_{status}", False):
            self._put_notification("payment", transaction, None, now)

    def _put_notification(
        self,
        kind: NotificationKind,
        transaction: Transaction,
        refund: Refund | None,
        at: float,
        *,
        word: str = "",
    ) -> None:
        """Schedule a notification. A fault may strike one that the switches cause (it has no
        `word`).
        """
        fault = None if word else self._strike("notification", transaction)
        struck = fault.name if fault else ""
        if struck == "notification_missing":
            return
        status = word or (
            self.word(transaction)
            if refund is None or refund.status == "succeeded"
            else self.refund_word(refund)
        )
        payload = notifications.payload(transaction, refund, status, at)
        if struck == "notification_wrong_amount":
            for name in payload.keys() & {"amount", "refundAmount"}:
                payload[name] = answers.unit_more(payload[name], transaction.currency)
        wrong = struck == "notification_bad_signature" or kind == "forged"
        url = refund.ipn_url if refund else transaction.ipn_url
        first_at = at + (self.options.late_seconds if struck == "notification_late" else 0)
        signature = "wrong" if wrong else self.options.notification_signature
        for _ in range(2 if struck == "notification_duplicate" else 1):
            self.outbox.put(kind, transaction, url, payload, at=first_at, signature=signature)
        if struck == "notification_reordered":
            stale = payload | {"status": self.options.word_pending}
            self.outbox.put("stale", transaction, url, stale, at=first_at + 1, signature=signature)

    def _magic(
        self,
        occasion: Occasion,
        transaction: Transaction | None,
        amount: str = "",
        currency: str = "",
    ) -> Fault | None:
        """Return the fault that an amount calls for, if it is one of the magic ones."""
        if not self.options.magic_amounts:
            return None
        currency = currency if transaction is None else transaction.currency
        units = (
            units_of(amount, currency)
            if occasion in ("pay", "refund")
            else None
            if transaction is None
            else transaction.units
        )
        magic: Magic | None = MAGIC.get(units) if units is not None else None
        if magic is None or occasion not in FAULTS[magic.fault].occasions:
            return None
        if magic.occasion != occasion and (
            magic.occasion != "carrier" or occasion not in ("pay", "refund")
        ):
            return None
        if magic.times and transaction is not None:
            if transaction.magic_used >= magic.times:
                return None
            transaction.magic_used += 1
        return FAULTS[magic.fault]

    def _strike(self, occasion: Occasion, transaction: Transaction) -> Fault | None:
        fault = self.faults.choose(
            occasion,
            transaction.reference,
            self._magic(occasion, transaction),
        )
        if fault is not None:
            self.journal.add(self.clock(), "fault", fault.name, transaction)
        return fault

    def _schedule(self, at: float, event: str, transaction: Transaction) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (at, self._event_count, event, transaction))

    def _number(self) -> str:
        """Draw a number in the family's shape: eighteen digits."""
        return str(300_000_000_000_000_000 + self._numbers.getrandbits(58))
