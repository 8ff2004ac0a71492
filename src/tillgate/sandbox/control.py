"""The acts of a test or a developer on a running emulator: one lock around the service, and a bell
that wakes the sender.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

from .answers import Answer
from .clock import Clock
from .errors import NotPossible, WrongOption
from .faults import Planned
from .ledger import Decision
from .money import text_of, units_of
from .notifications import NotificationAttempt, NotificationKind
from .options import Options
from .requests import Refusal
from .service import Service
from .transactions import Transaction


class Control:
    """Every act on a running emulator, safe from any thread."""

    def __init__(self, service: Service, clock: Clock, *, public: bool = False) -> None:
        self.service = service
        self.clock = clock
        # strangers can reach it, and could make it send notifications to hosts that only it can
        # reach
        self.public = public
        self.lock = threading.RLock()
        self.ring: Callable[[], None] = lambda: None  # set by the sender of notifications
        self.wakes_at = 0.0

    # The three calls of the interface, and the sender's calls.

    def handle(self, path: str, content_type: str, body: bytes) -> Answer:
        """Answer one call of a client."""
        with self._acting():
            return self.service.handle(path, content_type, body)

    def due_notifications(self) -> tuple[list[NotificationAttempt], float | None]:
        """Take the notifications that are due now; return them with the seconds until the next
        one.
        """
        with self.lock:
            now = self.clock()
            attempts = self.service.due_notifications(now)
            due = self.service.next_due()
            self.wakes_at = float("inf") if due is None else due
            return attempts, None if due is None else max(0.0, due - now)

    def notification_answered(
        self,
        attempt: NotificationAttempt,
        http_status: int | None,
        body: bytes,
        error: str,
    ) -> None:
        """Record the result of one sending."""
        with self._acting():
            self.service.notification_answered(attempt, http_status, body, error)

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Hold the lock, and then wake the sender if something is due earlier than it waits for:
        most acts cause nothing soon.
        """
        with self.lock:
            yield
            due = self.service.next_due()
            if due is not None and due < self.wakes_at:
                self.ring()

    # Acts on a transaction, named by its number or its reference.

    def decide(self, key: str, decision: Decision) -> str | None:
        """Decide in the shopper's place, and return the shopper's next address. A failed or expired
        payment can be paid late.
        """
        with self._acting():
            return self.service.decide(self.service.find(key).transaction_no, decision, late=True)

    def pay(self, key: str) -> str | None:
        """Pay in the shopper's place."""
        return self.decide(key, "pay")

    def decline(self, key: str) -> str | None:
        """Decline in the shopper's place."""
        return self.decide(key, "decline")

    def leave(self, key: str) -> str | None:
        """Leave the payment page in the shopper's place: nothing is paid, the payment stays
        open.
        """
        return self.decide(key, "leave")

    def settle_at_payment_page(self, transaction: Transaction, decision: Decision) -> str | None:
        """Do the action of the shopper's own button; only an open payment allows it."""
        with self._acting():
            return self.service.decide(transaction.transaction_no, decision)

    def expire(self, key: str) -> None:
        """Let the time-out pass now."""
        with self._acting():
            self.service.expire(self.service.find(key).transaction_no)

    def reverse(self, key: str) -> None:
        """Take the payment back, as a charge-back does."""
        with self._acting():
            self.service.reverse(self.service.find(key).transaction_no)

    def refund(self, key: str, amount: str) -> None:
        """Refund behind the merchant's back, as the staff of the gateway's back office can do."""
        with self.lock:
            transaction = self.service.find(key)
            units = units_of(amount, transaction.currency)
            if not units:
                raise WrongOption("amount", amount, "a plain decimal above 0")
            try:
                self.service.give_back(transaction, units)
            except Refusal as refusal:
                raise NotPossible(refusal.message) from refusal

    def finish_refund(self, key: str, outcome: str = "succeeded") -> None:
        """Finish the oldest pending refund of a transaction: `succeeded` or `failed`."""
        if outcome not in ("succeeded", "failed"):
            raise WrongOption("outcome", outcome, "succeeded or failed")
        with self._acting():
            self.service.finish_refund(
                self.service.find(key).transaction_no,
                "failed" if outcome == "failed" else "succeeded",
            )

    def notify(self, key: str, kind: NotificationKind = "payment", *, status: str = "") -> None:
        """Send a notification now: true (`payment`, `refund`), `forged`, or `stale`, which says
        pending; `status` changes its word.
        """
        with self.lock:
            self.service.notify(self.service.find(key), kind, status=status)
            self.ring()

    # Acts on the emulator.

    def advance(self, seconds: float) -> None:
        """Move the clock ahead and settle everything that falls due until then."""
        with self.lock:
            self.clock.advance(seconds)
            self.service.settle(self.clock())
            self.ring()

    def set_options(self, changes: Mapping[str, object]) -> Options:
        """Change options, by the names of `Options` or of faults. The seed and the address are
        fixed while the emulator runs.
        """
        for name in ("seed", "public_url", "journal_entries"):
            if name in changes:
                raise WrongOption(name, changes[name], "no change while the emulator runs")
        with self.lock:
            self.service.use(Options.read(changes, self.service.options))
            return self.service.options

    def fault(
        self,
        name: str,
        *,
        occasion: str | None = None,
        reference: str | None = None,
        times: int = 1,
    ) -> Planned:
        """Plan a fault for the next fitting calls or moments."""
        with self.lock:
            return self.service.faults.plan(
                name,
                occasion=occasion,
                reference=reference,
                times=times,
            )

    def clear_faults(self) -> None:
        """Remove the planned faults and the probabilities of faults."""
        with self.lock:
            self.service.faults.planned.clear()
            self.service.use(Options.read({"faults": {}}, self.service.options))

    def reset(self) -> None:
        """Forget every transaction, notification and planned fault; the options and the clock
        stay.
        """
        with self.lock:
            self.service.reset()
            self.ring()

    def wait_for_notifications(self, timeout_seconds: float = 5.0) -> bool:
        """Wait until nothing is due or being sent, and return whether that happened in time."""
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            with self.lock:
                due = self.service.outbox.next_due()
                if not self.service.outbox.in_flight() and (due is None or due > self.clock()):
                    return True
            time.sleep(0.005)
        return False

    # The state, as tests see it.

    def state(self) -> dict[str, object]:
        """Return the whole state that a test may need, as JSON can carry it, without tokens and
        signatures.
        """
        with self.lock:
            service = self.service
            options = {
                item.name: getattr(service.options, item.name) for item in fields(service.options)
            }
            options |= {
                "merchants": sorted(service.options.merchants),
                "faults": dict(service.options.faults),
            }
            return {
                "now": self.clock(),
                "options": options,
                "planned_faults": [
                    {
                        "fault": one.fault.name,
                        "occasion": one.occasion,
                        "reference": one.reference,
                        "times": one.times,
                    }
                    for one in service.faults.planned
                ],
                "notifications": {
                    "waiting_until": service.outbox.next_due(),
                    "sending": service.outbox.in_flight(),
                },
                "transactions": [self.describe(one) for one in service.transactions()],
            }

    def describe(self, transaction: Transaction) -> dict[str, object]:
        """Return one transaction as JSON can carry it."""
        return {
            "transactionNo": transaction.transaction_no,
            "merchantNo": transaction.merchant_no,
            "reference": transaction.reference,
            "amount": transaction.amount,
            "currency": transaction.currency,
            "vendor": transaction.vendor,
            "status": transaction.status,
            "word": self.service.word(transaction),
            "refunded": text_of(transaction.refunded_units, transaction.currency),
            "refunds": [
                {
                    "refundNo": one.refund_no,
                    "refundReference": one.reference,
                    "amount": one.amount,
                    "status": one.status,
                    "at": one.at,
                }
                for one in transaction.refunds
            ],
            "cashierUrl": self.service.payment_url(transaction),
            "createdAt": transaction.created_at,
            "expiresAt": transaction.expires_at,
            "decidedAt": transaction.decided_at,
        }
