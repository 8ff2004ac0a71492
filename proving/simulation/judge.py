"""The judge: holds the shop's rows, the shop and the gateway's own book against the invariants, by
none of the code that is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.db import connection
from django.db.models import CharField, JSONField, Max, Q, QuerySet, TextField
from django.db.models.functions import Cast

from proving.simulation.gateway import PAYER_NAME
from proving.simulation.network import Network, Violated, key_of
from tillgate import hooks, money
from tillgate.django.accounting.differences import STATUS_OF_EVENT
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.reviews.opening import ACCOUNT_REASONS
from tillgate.lifecycle import IllegalTransition
from tillgate.sandbox.service import Service
from tillgate.sandbox.transactions import Transaction
from tillgate.testing.books import fault_of_books
from tillgate.testing.driver import ShopDriver

__all__ = ["Judge", "Prepared", "Remembered"]

Remembered = tuple[tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]]

_FORWARD: Final = {
    "created": {"created", "pending", "failed", "closed", "expired", "paid"},
    "pending": {"pending", "failed", "closed", "expired", "paid"},
    "failed": {"failed", "paid"},
    "closed": {"closed", "paid"},
    "expired": {"expired", "paid"},
    "paid": {"paid"},
}
_REFUND_FORWARD: Final = {
    "queued": {"queued", "sending", "succeeded", "failed", "unknown"},
    "sending": {"queued", "sending", "succeeded", "failed", "unknown"},
    "unknown": {"unknown", "succeeded", "failed"},
    "succeeded": {"succeeded"},
    "failed": {"failed"},
}
_TAKEN: Final = ("queued", "sending", "unknown", "succeeded")
_SECRET: Final = re.compile(r"[0-9a-fA-F]{32,}")
"""A token, a signature, or a key in an address: every secret has this form here."""
_NAME: Final = PAYER_NAME.split()[-1]
"""The part of a payer's name that reveals it, in any encoding."""
_PERSONAL: Final = re.compile(_NAME, re.IGNORECASE)
_LONG_ENOUGH: Final = timedelta(minutes=10)
_LONG_UNUSABLE: Final = timedelta(hours=24)
"""So long after its time is over, a payment of unknown status surely has a review."""
_LATELY: Final = timedelta(seconds=15)
"""Longer than the pause in which a payment is not asked about again (I7)."""
_ABOUT_A_PAID_ONE: Final = ("second-payment", "paid-not-payable", "underpaid")


def _must(holds: object, invariant: str, what: str) -> None:
    if not holds:
        raise Violated(f"{invariant}: {what}")


def _went_back(payment_id: int) -> Decimal:
    back = Refund.objects.filter(payment=payment_id, status="succeeded").values_list(
        "amount",
        flat=True,
    )
    return money.total(back)


class _Order(NamedTuple):
    pk: int
    plugin: str
    key: str
    paid_by_id: int | None


class _Payment(NamedTuple):
    pk: int
    reference: str
    merchant_no: str
    status: str
    amount: Decimal


class _Refund(NamedTuple):
    pk: int
    payment_id: int
    status: str
    amount: Decimal
    notification_key: str
    external: bool


class Prepared:
    """A query about one number, compiled once: after every step the same few are asked, and
    compiling would take longest.
    """

    def __init__(self, rows: QuerySet[Any, Any]) -> None:
        compiler = rows.query.get_compiler(connection=connection)
        self._sql, (number, *self._rest) = compiler.as_sql()
        assert number == 0, "the number that changes stands first"
        self._converters = compiler.get_converters([column for column, *_ in compiler.select])
        self._converted = compiler.apply_converters

    def about(self, number: int) -> Iterable[tuple[Any, ...]]:
        """Return the rows that it finds."""
        with connection.cursor() as cursor:
            cursor.execute(self._sql, (number, *self._rest))
            found = cursor.fetchall()
        return map(tuple, self._converted(found, self._converters)) if self._converters else found


class Judge:
    """The promises that hold after every step, and those that come true in the end."""

    def __init__(self, shop: ShopDriver, service: Service, network: Network, unit: Decimal) -> None:
        self._unit = unit
        self._shop, self._service, self._network = shop, service, network
        self._seen = 0
        self._statuses: dict[int, str] = {}
        self._refund_statuses: dict[int, str] = {}
        self.judged = 0
        self._prices: dict[str, Decimal] = {}
        self._asked: dict[str, set[Decimal]] = {}
        self._heard: list[Violated] = []
        self._carried: dict[str, hooks.RemoteEvent] = {}
        self._moved: set[str] = set()
        self._proven: set[str] = set()
        self._mailed = 0
        self._mailed_at: datetime | None = None
        self._lines = Prepared(
            TimelineEntry.objects.filter(pk__gt=0).order_by("pk").values_list("pk", "order_id"),
        )
        self._orders = Prepared(
            Order.objects.filter(pk=0).order_by("pk").values_list(*_Order._fields),
        )
        self._payments = Prepared(
            Payment.objects.filter(order=0).order_by("pk").values_list(*_Payment._fields),
        )
        self._refunds = Prepared(
            Refund.objects.filter(payment__order=0).order_by("pk").values_list(*_Refund._fields),
        )
        told = OutboxEvent.objects.filter(order=0).filter(
            kind="payment-paid",
            outcome="applied",
            done_at__isnull=False,
        )
        self._applied = Prepared(told.order_by("pk").values_list("payment_id"))

    def begin(self) -> None:
        """Take note of the state at the start."""
        self._seen = TimelineEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0

    @property
    def remembered(self) -> Remembered:
        """The memory on which the verdict on a next step depends, besides the world itself."""
        return tuple(sorted(self._statuses.items())), tuple(sorted(self._refund_statuses.items()))

    @remembered.setter
    def remembered(self, remembered: Remembered) -> None:
        self._statuses, self._refund_statuses = map(dict, remembered)

    def after_a_step(self) -> None:
        """Judge the orders that a step has touched: each change leaves a line in the timeline
        (I10).
        """
        self._hear()
        touched = list(self._lines.about(self._seen))
        if touched:
            self._seen = touched[-1][0]
            for order_id in sorted({order_id for _, order_id in touched}):
                self._judge(order_id)

    def everything(self) -> None:
        """Judge every order, to find a change that left no line as well."""
        self._hear()
        for order_id in Order.objects.order_by("pk").values_list("pk", flat=True):
            self._judge(order_id)
        _must(
            all(count == 1 for count in self._network.creations.values()),
            "I8",
            "a reference was sent in two creations",
        )

    # Hearing --------------------------------------------------------------------------------------

    def _units(self, amount: Decimal) -> int:
        units = amount / self._unit
        if units != int(units):
            raise Violated(f"{amount} is no whole number of the smallest unit")
        return int(units)

    def hear_of_price(self, order_key: str, total: Decimal, *, is_settled: bool = True) -> None:
        """Take note of an order's present price; during a change of it, either price may hold."""
        self._asked.setdefault(order_key, set()).add(total)
        self._prices[order_key] = total if is_settled else min(total, self._prices[order_key])

    def hear_of_move(self, order_key: str) -> None:
        """Take note that an order is in another currency now."""
        self._moved.add(order_key)

    def hear_of_proof(self, notification_key: str) -> None:
        """Take note that the gateway has said that a refund was made, which was held to be refused
        when it did.
        """
        self._proven.add(notification_key)

    def hear_of_applied(self, payment: hooks.Payment, *, is_payable: bool) -> None:
        """Take note that the shop says a payment has paid an order, and whether the order still
        awaited one at the delivery.
        """
        name, key = payment.reference, payment.order.key
        if not is_payable:
            self._note(f"I4: payment {name} paid order {key}, which was not to be paid", key)
        if key in self._moved:
            self._note(
                f"I1: payment {name} in dollars paid order {key}, which is in another currency",
                key,
            )
        if _went_back(int(payment.id)) >= payment.amount:
            self._note(f"I4: payment {name} paid order {key}, and all of it had been refunded", key)
        if payment.amount < self._prices[key]:
            self._note(
                f"I4: payment {name} of {payment.amount} paid order {key}, which costs "
                f"{self._prices[key]}",
                key,
            )

    def hear_of_start(self, payment: Payment, paid: str) -> None:
        """Take note of a payment that was begun with nothing in the way, and of the open one, if
        any, that the gateway held to be paid.
        """
        lately = Q(last_polled_at__gt=payment.created_at - _LATELY) | Q(reviews__isnull=False)
        if (
            paid
            and paid != payment.reference
            and not Payment.objects.filter(lately, reference=paid).exists()
        ):
            self._note(
                f"I4: payment {payment.reference} was begun, though payment {paid} of its order "
                "was paid by then",
                payment.order.key,
            )
        long = payment.created_at + _LONG_ENOUGH
        same = {
            "order": payment.order_id,
            "method": payment.method,
            "amount": payment.amount,
            "account": payment.account,
        }
        earlier = Payment.objects.filter(
            **same,
            pk__lt=payment.pk,
            status="pending",
            is_processing=False,
            status_since__lt=payment.created_at,
        ).exclude(payment_url="")
        # no shopper is led on to pay again after the gateway reports paid
        is_under_review = Q(reviews__reported_paid=True)
        if duplicate := earlier.filter(page_closes_at__gt=long).exclude(is_under_review).first():
            self._note(
                f"I4: payment {payment.reference} was begun, though the payment page of "
                f"{duplicate.reference} was still open",
                payment.order.key,
            )

    def hear_of_given_up(self, order: hooks.Order) -> None:
        """Take note that the shop gets the event to cancel an order."""
        if still := Payment.objects.filter(
            order__key=order.key,
            status__in=("created", "pending"),
        ).first():
            self._note(
                f"I2: order {order.key} was given up while its payment {still.reference} was "
                f"{still.status}",
                order.key,
            )
        for payment in Payment.objects.filter(order__key=order.key):
            there = self._there(payment)
            # one that the gateway denied looks like none
            is_denied = payment.reference in self._network.denied
            if there and there.status == "processing" and not is_denied:
                self._note(
                    f"I2: order {order.key} was given up while the money of its payment "
                    f"{payment.reference} was under way",
                    order.key,
                )

    def hear_of_call(self, what: str) -> None:
        """Take note that something goes over the network, other than to the gateway."""
        if connection.in_atomic_block:
            self._note(f"I12: {what} goes over the network while a transaction is open")

    def hear_of_arrival(self, outbox_event: hooks.RemoteEvent) -> None:
        """Take note of an arrival over the network: an event that is queued, in its order, and the
        same at each try.
        """
        what, key = (
            f"remote outbox event {outbox_event.name} of order {outbox_event.order.key}",
            outbox_event.order.key,
        )
        row = (
            OutboxEvent.objects.filter(event_id=outbox_event.event_id, kind="remote")
            .values_list("pk", "order", "order__paid_by")
            .first()
        )
        if row is None:
            self._note(f"I3: {what} arrived, and is not queued", key)
            return
        number, order_id, paid_by = row
        if outbox_event.name == "paid" and str(paid_by) != (
            outbox_event.payment.id if outbox_event.payment else ""
        ):
            self._note(f"I3: {what} arrived before the order was paid", key)
        if OutboxEvent.objects.filter(
            order=order_id,
            kind="remote",
            pk__lt=number,
            done_at__isnull=True,
        ).exists():
            self._note(f"I3: {what} arrived before its turn", key)
        first = self._carried.setdefault(outbox_event.event_id, outbox_event)
        if (first.name, first.order.key, first.data) != (outbox_event.name, key, outbox_event.data):
            self._note(f"I3: {what} says another thing under the same event id", key)

    def hear_of_mail(self, told: int, budget: datetime, interval: timedelta) -> None:
        """Take note of a mail about so many reviews; two mails keep the interval of the settings.

        When it is sent says less: a worker may rest between its turn and its mail, as none should.
        """
        before = self._mailed_at or budget - interval
        if budget - before < interval:
            self._note(
                f"mail: {(budget - before).total_seconds():.0f} seconds after the turn of one "
                "mail came that of another",
            )
        self._mailed_at = budget
        self._mailed += told

    def hear_of_log(self, printed: str, error: BaseException | None) -> None:
        """Take note of the log's output, tracebacks and causes included.

        It has no secret and no payer's name, and shows no call within a transaction, and no move
        that a machine's table refused.
        """
        if isinstance(error, InsideTransaction):
            self._note(f"I12: {error}")
        if isinstance(error, IllegalTransition):
            self._note(f"I9: {error}")
        for line in printed.splitlines():
            shown = _PERSONAL.sub("...", _SECRET.sub("...", line.strip()))
            if _SECRET.search(line):
                self._note(f"I11: a secret or a signature is logged: {shown}")
            if _PERSONAL.search(line):
                self._note(f"personal data: a payer's name is logged: {shown}")

    def _note(self, what: str, order_key: str = "") -> None:
        """Keep a violation that was heard of in the middle of a step, where a handler of errors
        might hide it.
        """
        self._heard.append(Violated(what))
        self._heard[-1].order_key = order_key

    @property
    def has_heard(self) -> bool:
        """Whether something was heard of that must not be."""
        return bool(self._heard or self._network.heard)

    def _hear(self) -> None:
        if self.has_heard:
            raise (self._heard or self._network.heard)[0]

    # Rows -----------------------------------------------------------------------------------------

    def of_personal_data(self) -> None:
        """Judge that no row of Tillgate's has the payer's name: the gateway tells it in a field
        that is not kept.
        """
        for model in Order._meta.app_config.get_models():
            for field in model._meta.concrete_fields:
                if isinstance(field, CharField | TextField | JSONField):
                    rows = model._default_manager.annotate(
                        said=Cast(field.name, TextField()),
                    ).filter(said__icontains=_NAME)
                    row = rows.values_list("pk", flat=True).first()
                    _must(
                        row is None,
                        "personal data",
                        f"a payer's name is stored in {field.name} of {model._meta.verbose_name} "
                        f"{row}",
                    )

    # After every step -----------------------------------------------------------------------------

    def _judge(self, order_id: int) -> None:
        self.judged += 1
        [order] = (_Order(*row) for row in self._orders.about(order_id))
        payments = {row[0]: _Payment(*row) for row in self._payments.about(order_id)}
        refunds = [_Refund(*row) for row in self._refunds.about(order_id)]
        applied = [payment_id for (payment_id,) in self._applied.about(order_id)]
        try:
            for payment in payments.values():
                asked = self._asked[order.key]
                _must(
                    payment.amount in asked,
                    "I1",
                    f"payment {payment.reference} asks for {payment.amount}, which its order "
                    "never cost",
                )
                self._payment(
                    payment,
                    [refund for refund in refunds if refund.payment_id == payment.pk],
                )
            self._order(order, payments, refunds, applied)
        except Violated as violated:
            violated.order_key = order.key
            raise

    def _payment(self, payment: _Payment, refunds: list[_Refund]) -> None:
        name = payment.reference
        before = self._statuses.get(payment.pk, "created")
        _must(
            payment.status in _FORWARD[before],
            "I9",
            f"payment {name} went from {before} to {payment.status}",
        )
        self._statuses[payment.pk] = payment.status
        if payment.status == "paid" and before != "paid":
            there = self._there(payment)
            _must(there, "I1", f"payment {name} is paid, and the gateway does not know it")
            assert there
            _must(
                there.status in ("paid", "reversed"),
                "I1",
                f"payment {name} is paid, and at the gateway it is {there.status}",
            )
            _must(
                there.units == self._units(payment.amount),
                "I1",
                f"payment {name} is paid with another amount",
            )
        if payment.status != before:
            events = TimelineEntry.objects.filter(
                payment=payment.pk,
                event__startswith="payment.",
            ).values_list("event", flat=True)
            is_told = payment.status in {STATUS_OF_EVENT.get(event) for event in events}
            _must(
                is_told,
                "I10",
                f"payment {name} became {payment.status} without a line in its timeline",
            )
        taken = sum(self._units(refund.amount) for refund in refunds if refund.status in _TAKEN)
        _must(
            taken <= self._units(payment.amount),
            "I5",
            f"refunds of {name} add up to more than was paid",
        )
        for refund in refunds:
            self._refund(refund, name)

    def _refund(self, refund: _Refund, name: str) -> None:
        before = self._refund_statuses.get(refund.pk, "succeeded" if refund.external else "queued")
        _must(
            refund.status in _REFUND_FORWARD[before],
            "I6",
            f"refund {refund.pk} of {name} went from {before} to {refund.status}",
        )
        self._refund_statuses[refund.pk] = refund.status
        times = self._network.refunds[refund.notification_key]
        _must(times <= 1, "I6", f"refund {refund.pk} of {name} was sent {times} times")

    def _order(
        self,
        order: _Order,
        payments: dict[int, _Payment],
        refunds: list[_Refund],
        applied: list[int],
    ) -> None:
        name = f"{order.plugin} {order.key}"
        _must(len(applied) <= 1, "I4", f"order {name} was paid by {len(applied)} payments")
        _must(
            applied == ([order.paid_by_id] if order.paid_by_id else []),
            "I3",
            f"order {name} is paid by another than was delivered",
        )
        times = self._shop.times_paid(order.key)
        _must(
            times == len(applied),
            "I3",
            f"being paid took effect {times} times in the shop, and was delivered {len(applied)} "
            "times",
        )
        if order.paid_by_id:
            paid_by = payments[order.paid_by_id]
            _must(
                paid_by.status == "paid",
                "I1",
                f"order {name} is paid by a payment that is {paid_by.status}",
            )
            refunded_amount = money.total(
                refund.amount for refund in refunds if refund.status == "succeeded"
            )
            _must(
                self._shop.refunded(order.key) <= refunded_amount,
                "I3",
                f"the shop holds more of order {name} to be refunded than is",
            )

    def _there(self, payment: Payment | _Payment) -> Transaction | None:
        return self._service.known(payment.merchant_no, payment.reference)

    # In the end -----------------------------------------------------------------------------------

    def in_the_end(self) -> None:
        """Judge the promises that come true once the gateway answers and worker runs have
        passed.
        """
        self.everything()
        told = {
            (one.payment_id, one.reason) for one in Review.objects.filter(payment__isnull=False)
        }
        doubted = {payment_id for payment_id, _ in told}
        for payment in Payment.objects.select_related("order").order_by("pk"):
            name, there = payment.reference, self._there(payment)
            if there and there.status == "paid":
                _must(
                    payment.status == "paid" or payment.pk in doubted,
                    "I2",
                    f"payment {name} is paid, and the shop takes it for {payment.status}",
                )
            _must(
                not payment.is_open or payment.pk in doubted,
                "I2",
                f"payment {name} is still {payment.status}, and nobody is told",
            )
            if payment.status == "paid" and payment.order.paid_by_id != payment.pk:
                _must(
                    any((payment.pk, reason) in told for reason in _ABOUT_A_PAID_ONE)
                    or _went_back(payment.pk) >= payment.amount,
                    "I4",
                    f"paid payment {name} paid no order, and nobody is told",
                )
            if (
                payment.status == "paid"
                and not payment.order.paid_by_id
                and not payment.refunds.exists()
            ):
                waits = (
                    payment.order.key not in self._moved
                    and payment.amount >= self._prices[payment.order.key]
                    and self._shop.is_payable(payment.order.key)
                )
                _must(
                    not waits,
                    "I2",
                    f"order {payment.order} still waits for the money of payment {name}, which it "
                    "costs at most",
                )
        undone = OutboxEvent.objects.filter(done_at__isnull=True).count()
        _must(not undone, "I3", f"{undone} outbox events were never done")
        for refund in Refund.objects.select_related("payment"):
            _must(
                refund.status in ("succeeded", "failed", "unknown"),
                "I6",
                f"refund {refund.pk} is still {refund.status}",
            )
        self._refunded_amount()
        self._released()
        for order in Order.objects.order_by("pk"):
            self._told_elsewhere(order)

    def _told_elsewhere(self, order: Order) -> None:
        """The remote systems have received every payment and refund at least once, the first one
        first, and nothing else.
        """
        heard = self._shop.heard_elsewhere(order.key)
        if heard is None:
            return
        queued = list(
            OutboxEvent.objects.filter(order=order, kind="remote")
            .order_by("pk")
            .values_list("event_id", "name"),
        )
        paid = [event_id for event_id, name in queued if name == "paid"]
        _must(
            len(paid) == bool(order.paid_by_id),
            "I3",
            f"that order {order} was paid is to be told elsewhere {len(paid)} times",
        )
        events = [str(event_id) for event_id, _ in queued]
        _must(
            list(dict.fromkeys(heard)) == events,
            "I3",
            f"elsewhere {heard} was heard of order {order}, and {events} was to be",
        )

    def of_slow_money(self, interruptions: int) -> None:
        """Judge that shoppers got word when their money was under way, and when it failed.

        A process that ends between its commit and the code after it loses its messages.
        """
        untold: list[str] = []
        for payment in (
            Payment.objects.filter(
                timeline__event="payment.processing",
            )
            .distinct()
            .order_by("pk")
        ):
            if self._shop.heard_elsewhere(payment.order.key) is None:
                return
            told = list(payment.outbox_events.values_list("name", flat=True))
            by_staff = payment.timeline.filter(event="payment.force-expired").exists()
            is_over = payment.status in ("failed", "closed", "expired") and not by_staff
            for name, is_due in (("waits", True), ("failed", is_over)):
                _must(
                    told.count(name) <= 1,
                    "I3",
                    f"of payment {payment.reference} the shopper is told {told.count(name)} "
                    f"times: {name}",
                )
                if is_due and name not in told:
                    untold.append(f"{payment.reference}: {name}")
        _must(
            len(untold) <= interruptions,
            "I2",
            f"{len(untold)} shoppers were not told of slow money, {untold[:1]}, and "
            f"{interruptions} processes were interrupted",
        )

    def of_mail(self) -> None:
        """Judge that staff got mail about every open review."""
        unmailed = Review.objects.filter(mailed_at__isnull=True, resolved_at__isnull=True).first()
        _must(
            not unmailed,
            "mail",
            f"nobody was mailed of {unmailed and unmailed.reason}: {unmailed and unmailed.message}",
        )
        noted = Review.objects.filter(mailed_at__isnull=False).count()
        _must(
            noted <= self._mailed,
            "mail",
            f"{noted} matters are noted as mailed, and mails told of {self._mailed}",
        )

    def _refunded_amount(self) -> None:
        """Refunds add up, once staff have said how the unknown ones ended."""
        for payment in Payment.objects.filter(status="paid").order_by("pk"):
            there = self._there(payment)
            assert there
            ours = sum(
                (
                    self._units(refund.amount)
                    for refund in payment.refunds.filter(status="succeeded")
                ),
                0,
            )
            unseen = 0
            if (
                self._service.word(there) == self._service.options.word_paid
                # an external refund shows in no answer (unspecified 18), and is ours only once
                # staff have entered it
            ):
                self._contradicted(payment)
                keys = set(
                    payment.refunds.exclude(status="failed").values_list(
                        "notification_key",
                        flat=True,
                    ),
                )
                elsewhere = sum(
                    one.units for one in there.refunds if key_of(one.ipn_url) not in keys
                )
                entered = sum(
                    (
                        self._units(refund.amount)
                        for refund in payment.refunds.filter(external=True)
                    ),
                    0,
                )
                # Version 3 lists them, and one without a name may stand for a refund of ours of the
                # same amount.
                unseen = 0 if there.version == "v3" else max(elsewhere - entered, 0)
                proven = sum(
                    one.units for one in there.refunds if key_of(one.ipn_url) in self._proven - keys
                )
                what = (
                    f"by the gateway's word {proven} cents of {payment.reference} went out and "
                    f"were refused here, {entered} are entered"
                )
                _must(entered >= proven, "I5", what)
            _must(
                ours + unseen == there.refunded_units,
                "I5",
                f"of {payment.reference} {ours} cents were refunded by the ledger, and "
                f"{there.refunded_units} by the gateway's",
            )
        for order in Order.objects.select_related("paid_by").order_by("pk"):
            became_dearer = (
                order.paid_by is not None and self._prices[order.key] > order.paid_by.amount
            )
            fault = fault_of_books(self._shop, order.key, asks_whether_paid=not became_dearer)
            _must(not fault, "I3", fault)

    def _contradicted(self, payment: Payment) -> None:
        """Money that was refunded while the shop holds it is not opens a review once the gateway
        has reported it.
        """
        for refund in payment.refunds.filter(status="failed", notification_key__in=self._proven):
            told = Review.objects.filter(
                payment=payment,
                reason__in=("refund-contradicted", "changed-after-paid"),
            ).exists()
            _must(
                told,
                "I2",
                f"the gateway has made refund {refund.pk} of {payment.reference} and said so; it "
                "is refused, and nobody is told",
            )

    def of_the_unusable(self, references: set[str], now: datetime) -> None:
        """Judge that payments without a usable answer for long have a review."""
        rows = Payment.objects.filter(
            reference__in=references,
            status__in=("created", "pending"),
            expires_at__lt=now - _LONG_UNUSABLE,
        )
        told = Review.objects.filter(reason__in=ACCOUNT_REASONS, resolved_at__isnull=True)
        for silent in rows.filter(reviews__isnull=True).order_by("pk"):
            since = told.filter(account=silent.account).aggregate(since=Max("opened_at"))["since"]
            answered = Payment.objects.filter(
                account=silent.account,
                status__in=("paid", "closed", "expired"),
            )
            is_account = since and not answered.filter(status_since__gt=since).exists()
            _must(
                is_account,
                "I2",
                f"no answer about payment {silent} could be used for hours, and nobody is told",
            )

    def _released(self) -> None:
        for order in Order.objects.filter(paid_by__isnull=True, closed_at__isnull=True).order_by(
            "pk",
        ):
            statuses = set(order.payments.values_list("status", flat=True))
            if statuses & {"created", "pending", "paid"}:
                continue
            said = ", ".join(sorted(statuses))
            _must(
                self._shop.is_released(order.key),
                "I2",
                f"order {order} was never paid ({said}), and never given up",
            )
            times = self._shop.times_released(order.key)
            # Not at all, where staff cancelled it: their shop cancels it without an event.
            _must(
                not times or times == 1,
                "I3",
                f"order {order} was never paid ({said}), and given up {times} times",
            )
