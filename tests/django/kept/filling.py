"""The acts of shopper, gateway, staff and worker that fill the kept database."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

from django.apps import apps
from django.core import serializers
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from tests.django.kept.gateway import ANSWERS, PLUGIN, Answering, Moment, failing_shop, running
from tests.django.notifying import confirming
from tests.smallest_shop.models import ShopOrder
from tillgate import (
    NotSent,
    OutcomeUnknown,
    PaymentRequest,
    Refused,
    SignatureMismatch,
    TransactionStatus,
    read_notification,
)
from tillgate.django.heartbeats import beat
from tillgate.django.models import Payment
from tillgate.django.orders.locking import durable, locked_order
from tillgate.django.outbox import remote
from tillgate.django.outbox.remote import deliver_remote
from tillgate.django.payments import notifications, reconciling, starting
from tillgate.django.payments.restores import note_restored
from tillgate.django.refunds import queueing, sending
from tillgate.django.refunds.cancelled import review_cancelled
from tillgate.django.refunds.sending import poll_refund
from tillgate.django.reviews.opening import UNAPPLIED_REASONS, open_review
from tillgate.django.worker.run import run_lane
from tillgate.django.worker.watch import look_at_worker
from tillgate.hooks import DisputeStatus, RefundOutcome, ReportedRefund
from tillgate.lifecycle import ReviewReason

__all__ = ["fill", "same_everywhere", "serialized"]

_FAILED = {"status": TransactionStatus.FAILED, "status_text": "failed"}
_PENDING = {"status": TransactionStatus.PENDING, "status_text": "pending"}


@contextmanager
def same_everywhere() -> Iterator[None]:
    """Let keys, references and event ids be the same in every run, and let the database not name
    its server, which PostgreSQL does.
    """
    source = random.Random(1)
    no_server = mock.patch("tillgate.django.payments.restores._server", return_value="")
    with (
        mock.patch("os.urandom", source.randbytes),
        mock.patch("random._urandom", source.randbytes),
        no_server,
    ):
        yield


def serialized(number: str) -> str:
    """Return all rows of the shop and of Tillgate as a fixture that fits the migration of a number,
    its fields sorted by name.
    """
    rows: list[Any] = []
    for label in ("smallest_shop", "tillgate"):
        for model in apps.get_app_config(label).get_models():
            rows += model._default_manager.order_by("pk")
    written = json.loads(serializers.serialize("json", rows))
    loader = MigrationLoader(None)
    state = loader.project_state(
        [("tillgate", loader.get_migration_by_prefix("tillgate", number).name)],
    )
    kept = []
    for row in written:
        label, _, name = row["model"].partition(".")
        if label == "tillgate":  # the upgrade adds the tables and columns of later migrations
            if (label, name) not in state.models:
                continue
            row["fields"] = {
                field: row["fields"][field]
                for field in state.models[label, name].fields
                if field in row["fields"]
            }
        kept.append(row)
    return json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def fill() -> None:
    """Open reviews of every reason in an empty database."""
    moment = Moment()
    with running(moment) as gateway:
        acts = _Acts(moment, gateway)
        acts.answers_that_do_not_fit()
        acts.accounts_that_do_not_answer()
        for has_refund in (False, True):
            acts.money_that_is_held(has_refund=has_refund)
        acts.refunds_in_doubt()
        acts.failing_deliveries()
        acts.forged_notification()
        acts.lost_rows()
        acts.late_worker()
        acts.refused_creations()
        lost = acts.start(account="closed")
    with running(moment, without="closed"):
        reconciling.reconcile(lost, "return")


class _Acts:
    def __init__(self, moment: Moment, gateway: Answering) -> None:
        self.moment, self.gateway = moment, gateway

    def lost_rows(self) -> None:
        """Restore the database, which had no row at that time, and hear of a payment that it does
        not have.
        """
        self.moment.advance(minutes=1)
        note_restored(timezone.now() - timedelta(days=365), "restored")
        with durable():
            facts = {
                "case": "payment",
                "reference": "S1-LOST2LOST2LOS",
                "amount": "12.50",
                "currency": "USD",
            }
            open_review(ReviewReason.ROWS_LOST, facts, "webhook", account="default")

    def late_worker(self) -> None:
        """Let the worker stay away for a day."""
        beat({})
        self.moment.advance(days=1)
        look_at_worker()

    def refused_creations(self) -> None:
        """Let the gateway refuse each new payment of an account."""
        with mock.patch.object(
            self.gateway,
            "creates",
            side_effect=Refused("000020", "not allowed", 400),
        ):
            for _ in range(3):
                self.start(account="refusing")

    def start(self, *, key: str = "", account: str = "default", method: str = "alipay") -> Payment:
        """Start a payment of an order that costs 12.50: of a new one unless a key is given."""
        self.moment.advance(minutes=1)
        order_key = key or str(ShopOrder.objects.create(total=Decimal("12.50")).pk)
        return starting.start_payment(PLUGIN, order_key, method=method, account=account).payment

    def hear(self, payment: Payment, said: Mapping[str, Any] | Exception) -> Payment:
        """Let a notification come, and the gateway answer the query after it."""
        self.gateway.says[payment.reference] = said
        self.moment.advance(seconds=5)
        heard = notifications.receive_payment_notification(
            payment.notification_key,
            read_notification,
            "POST",
        )
        assert heard
        return heard

    def paid(self) -> Payment:
        return self.hear(self.start(), {})

    def answers_that_do_not_fit(self) -> None:
        """Open a review of each answer that is not applied, about an open payment and about one
        that has ended.
        """
        for reason in sorted(UNAPPLIED_REASONS - {ReviewReason.PAYMENT_UNANSWERED}):
            payment = self.start()
            if reason is ReviewReason.UNRECOGNISED_STATUS:
                self.moment.advance(hours=3)  # an unknown word counts after the time to pay
            self.hear(payment, ANSWERS[reason])
            payment = self.start()
            self.hear(payment, _FAILED)
            self.hear(payment, ANSWERS[reason])
        for reason in (
            ReviewReason.CHANGED_AFTER_PAID,
            ReviewReason.DISPUTED,
            ReviewReason.MANUAL_REVIEW,
            ReviewReason.PAYMENT_UNKNOWN,
        ):
            payment = self.paid()
            self.gateway.says[payment.reference] = ANSWERS[reason]
            self.moment.advance(seconds=5)
            reconciling.reconcile(payment, "worker")
        payment = self.paid()
        # it is no error
        (dispute,) = ANSWERS[ReviewReason.DISPUTED]["disputes"]  # type: ignore[index]
        self.gateway.says[payment.reference] = {
            "disputes": (replace(dispute, status=DisputeStatus.LOST),),
        }
        self.moment.advance(seconds=5)
        reconciling.reconcile(payment, "worker")
        unknown = OutcomeUnknown("pay", "R", "the connection broke")
        with mock.patch.object(self.gateway, "creates", side_effect=unknown):
            numberless = self.start(account="unanswered")
        for payment in (self.start(account="unanswered"), numberless):
            self.gateway.says[payment.reference] = ANSWERS[ReviewReason.PAYMENT_UNANSWERED]
        self.moment.advance(hours=9)
        run_lane("unanswered")
        payment = self.hear(self.start(), _FAILED)
        with locked_order(
            payment.order_id,
        ):  # no other operation leaves this review open when its payment ends
            open_review(ReviewReason.PAYMENT_UNANSWERED, {}, "worker", payment)

    def accounts_that_do_not_answer(self) -> None:
        """Open reviews of accounts whose gateway refuses queries, signs wrongly or is silent."""
        self.hear(self.start(account="unknown-merchant"), ANSWERS[ReviewReason.WRONG_CREDENTIALS])
        self.hear(self.start(account="unsigned"), ANSWERS[ReviewReason.SIGNATURE_MISMATCH])

        def unsigned(request: PaymentRequest) -> str:
            raise OutcomeUnknown(
                "pay",
                request.reference,
                "its answer is not signed",
            ) from SignatureMismatch("the answer is not signed")

        with mock.patch.object(self.gateway, "creates", unsigned):
            self.start(account="unsigned-creation")
        payment = self.start(account="silent")
        self.gateway.says[payment.reference] = NotSent(
            "query",
            payment.reference,
            "connection refused",
        )
        for _ in range(6):
            self.moment.advance(minutes=10)
            run_lane("silent")

    def money_that_is_held(self, *, has_refund: bool) -> None:
        """Open reviews of paid payments whose money pays nothing or too much; on request, a refund
        of each waits to be sent.
        """
        first = self.start()
        self.gateway.says[first.reference] = _PENDING
        second = self.start(key=first.order.key, method="gcash")
        self.hear(first, {})
        held = [self.hear(second, {})]
        for change in (
            {"status": "cancelled"},
            {"total": Decimal("15.00")},
            {"total": Decimal("10.00")},
        ):
            payment = self.start()
            ShopOrder.objects.filter(pk=payment.order.key).update(**change)
            held.append(self.hear(payment, {}))
        cancelled = self.paid()
        ShopOrder.objects.filter(pk=cancelled.order.key).update(status="cancelled")
        with locked_order(cancelled.order_id) as order:
            review_cancelled(order, "shop")
        held.append(cancelled)
        with mock.patch.object(
            self.gateway,
            "creates",
            return_value="T-TWICE-2" if has_refund else "T-TWICE-1",
        ):
            one, other = self.start(), self.start()
        self.hear(one, {})
        held.append(self.hear(other, {}))
        with self.refunds_end_with(NotSent("refund", "R", "no route to host")):
            for payment in held if has_refund else ():
                queueing.refund(payment.pk, "1.00", staff="ann")

    @contextmanager
    def refunds_end_with(self, error: Exception) -> Iterator[None]:
        with mock.patch.object(self.gateway, "refunds", error):
            yield

    def refunds_in_doubt(self) -> None:
        """Open reviews of refunds: of unknown outcome, unable to leave, accepted for days, refused
        but done, and done but failed later.
        """
        with self.refunds_end_with(OutcomeUnknown("refund", "R", "the connection broke")):
            queueing.refund(self.paid().pk, "2.50", staff="ann")
        with self.refunds_end_with(NotSent("refund", "R", "no route to host")):
            waiting = queueing.refund(self.paid().pk, "2.50", staff="ann")
            self.moment.advance(hours=4)
            sending.send_refund(waiting.pk)
        with mock.patch.object(self.gateway, "refund_outcome", RefundOutcome.PENDING):
            late = queueing.refund(self.paid().pk, "2.50", staff="ann")
            self.moment.advance(days=8)
            poll_refund(late.pk)
        with self.refunds_end_with(Refused("000020", "not allowed", 400)):
            refused = queueing.refund(self.paid().pk, "2.50", staff="ann")
        done = read_notification(query=confirming(refused))
        notifications.receive_refund_notification(refused.notification_key, lambda: done, "POST")
        returned = queueing.refund(self.paid().pk, "2.50", staff="ann")
        failed = ReportedRefund(
            amount=Decimal("2.50"),
            refund_id=returned.refund_id,
            outcome=RefundOutcome.FAILED,
        )
        self.gateway.says[returned.payment.reference] = {"refunds": (failed,)}
        self.moment.advance(seconds=5)
        reconciling.reconcile(returned.payment, "worker")

    def failing_deliveries(self) -> None:
        """Open reviews of shop events that fail: in the shop, and over the network."""
        with failing_shop("tillgate_payment_paid"):
            self.paid()
        payment = self.paid()
        remote.enqueue_remote(PLUGIN, payment.order.key, "invoice")
        with failing_shop("tillgate_deliver"):
            deliver_remote(payment.order_id)

    def forged_notification(self) -> None:
        """Open the review of notifications that are signed wrongly."""
        forged = read_notification(query="status=success&verifySign=0000")
        payment = self.start()
        self.gateway.says[payment.reference] = _PENDING
        notifications.receive_payment_notification(payment.notification_key, lambda: forged, "POST")
