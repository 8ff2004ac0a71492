"""The actors of a simulated world: shoppers, staff, the gateway's notifications, its back office,
attackers and workers.

Each acts at a moment of its own, by its own stream of chance. Acts on the shop run as a process of
the shop, which may be killed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from functools import partial
from http import HTTPStatus
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

from django.core.handlers.base import BaseHandler
from django.db import Error as DatabaseFault
from django.db import IntegrityError, transaction
from django.http import Http404, HttpResponseBase
from django.test import Client, RequestFactory
from django.urls import ResolverMatch, resolve, reverse

from proving.simulation.database import Interposed
from proving.simulation.gateway import SLOW_MONEY
from proving.simulation.judge import Prepared
from proving.simulation.network import NOTIFICATION_FAULTS, Violated, key_of
from tillgate import money
from tillgate.django import actions
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review
from tillgate.django.orders import registering
from tillgate.django.payments import admission, creating, starting
from tillgate.django.refunds import queueing
from tillgate.django.worker.run import run_lane, run_worker, wake
from tillgate.django.worker.runner import WorkDone
from tillgate.errors import TillgateError
from tillgate.lifecycle import ReviewAction
from tillgate.sandbox import NotificationAttempt
from tillgate.sandbox.errors import NotPossible
from tillgate.sandbox.faults import FAULTS
from tillgate.sandbox.notifications import acknowledges
from tillgate.sandbox.requests import Refusal
from tillgate.sandbox.transactions import Transaction
from tillgate.shop import pay_path
from tillgate.testing.crashes import Crash
from tillgate.testing.world import ShopIsDown

if TYPE_CHECKING:
    from proving.simulation.world import SimulatedWorld

__all__ = ["People"]


_T = TypeVar("_T")

_METHODS: Final = ("alipay", "wechatpay", "paypal", "creditcard")
_RETURN_FAULTS: Final = tuple(
    name for name, fault in FAULTS.items() if "callback" in fault.occasions
)
_DECISION_FAULTS: Final = tuple(
    name
    for name, fault in FAULTS.items()
    # slow money is drawn separately
    if "decision" in fault.occasions and name not in SLOW_MONEY
)
_MONEY_MAY_BE_LATE: Final = 0.2
_DAY: Final = 86_400.0
_LONGEST_PAUSE: Final = 300.0
_FORM: Final = "application/x-www-form-urlencoded"
_REFUSALS: Final = (admission.NotPayable, TillgateError, ShopIsDown)
"""The errors with which an operation refuses; nothing was done."""


class People:
    """The acts of each actor."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._requests = RequestFactory()
        self._handler = BaseHandler()
        self._dues = [
            Prepared(
                rows.filter(pk__gt=0, **{f"{due}__isnull": False})
                .order_by(due)
                .values_list(due)[:1],
            )
            for rows, due in (
                (Payment.objects.all(), "next_poll_at"),
                (Refund.objects.all(), "due_at"),
                (OutboxEvent.objects.filter(done_at__isnull=True), "due_at"),
                (Order.objects.all(), "unpaid_check_at"),
            )
        ]

    # Processes of the shop ------------------------------------------------------------------------

    def process(
        self,
        what: str,
        action: Callable[[], _T],
        *,
        is_drivers: bool = False,
    ) -> _T | None:
        """Let the actor have a process of the shop do something; None when it died, its database
        failed, or it refused.

        During the driver's own work, `is_drivers`, any error may follow from a fault: a framework
        that cannot write its session raises its own.
        """
        scheduler = self._world.scheduler
        actor = scheduler.actor
        assert actor
        actor.is_mortal, struck = True, actor.struck
        try:
            result = action()
        except Crash as crash:
            scheduler.tell(f"{what}: {crash}")
        except IntegrityError as error:
            raise Violated(f"{what} wrote what must not be written: {error}") from error
        except DatabaseFault as error:
            scheduler.tell(f"{what}: {error}")
        except _REFUSALS as error:
            scheduler.tell(f"{what}: {type(error).__name__}: {error}")
        except Violated:
            raise
        except Exception as error:
            if not is_drivers or actor.struck == struck:
                raise
            scheduler.tell(f"{what}: {type(error).__name__} after a fault")
        else:
            scheduler.tell(f"{what}: {_short(result)}")
            if actor.proof and actor.proof[1] == actor.struck:
                self._world.judge.hear_of_proof(actor.proof[0])
            return result
        finally:
            actor.is_mortal = actor.is_dead = False
            actor.proof = None
        return None

    def visit(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        content_type: str = _FORM,
    ) -> tuple[int, bytes]:
        """Send the shop an HTTP request; return the status and the body of its answer."""
        actor = self._world.scheduler.actor
        assert actor
        actor.path = urlsplit(url).path
        try:
            found = resolve(urlsplit(url).path)
            answer = self.process(
                f"{method} {url[-40:]}",
                lambda: self._answer(found, method, url, body, content_type),
                is_drivers="tillgate" not in found.namespaces,
            )
        finally:
            actor.path = ""
        return (
            (500, b"") if answer is None else (answer.status_code, getattr(answer, "content", b""))
        )

    def _answer(
        self,
        found: ResolverMatch,
        method: str,
        url: str,
        body: bytes,
        content_type: str,
    ) -> HttpResponseBase:
        path, query = urlsplit(url).path, urlsplit(url).query
        # a page of the shop needs its middleware, sessions for one
        if "tillgate" not in found.namespaces:
            shops: HttpResponseBase = Client().generic(
                method,
                path,
                body,
                content_type,
                QUERY_STRING=query,
            )
            return shops
        request = self._requests.generic(method, path, body, content_type, QUERY_STRING=query)
        vars(request)["_dont_enforce_csrf_checks"] = (
            True  # as Django's own test client asks for; tests of their own are about that
        )
        try:
            answer: HttpResponseBase = self._handler.make_view_atomic(found.func)(
                request,
                *found.args,
                **found.kwargs,
            )
        except Http404:
            return HttpResponseBase(status=404)
        return answer

    # The shopper ----------------------------------------------------------------------------------

    def shopper(self, story: str) -> None:
        """Place an order, try to pay it, now and then in a confused way, and perhaps come back."""
        world, chance = self._world, self._chance()
        total = world.price(chance)
        key = world.place_order(total, story)
        if chance.random() < 0.3:
            self.process("expect", lambda: registering.open_order(world.shop.plugin, key))
        self._beside(story, key, chance.random)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            method, account = chance.choice(_METHODS), chance.choice(world.accounts)
            if chance.random() < 0.1:
                world.scheduler.spawn(
                    f"double click {story}",
                    # it begins before the next turn
                    lambda: self.start(key, method, account),  # noqa: B023
                    story=story,
                )
            payment = (
                self.press(key, method)
                if chance.random() < 0.1
                else self.start(key, method, account)
            )
            if payment is None:
                world.scheduler.pause(chance.uniform(5, 200))
                continue
            if chance.random() < world.faults.rates["unusable"] and not world.faults.is_calm:
                world.network.unusable.add(payment.reference)
                world.faults.note("unusable_answers")
            world.scheduler.pause(chance.expovariate(1 / 60))
            self._at_payment_page(payment.reference, payment.merchant_no)
            world.scheduler.pause(chance.uniform(1, 300))

    def _beside(self, story: str, key: str, draw: Callable[[], float]) -> None:
        """Let others have to do with an order as well."""
        spawn = self._world.scheduler.spawn
        if draw() < 0.1:
            spawn(
                f"editor {story}",
                lambda: self.editor(key),
                story=story,
                after=draw() ** 2 * 1800,
            )
        if draw() < 0.05:
            spawn(f"closer {story}", lambda: self.closer(key), story=story, after=draw() * 3600)
        if draw() < 0.25:
            spawn(f"clerk {story}", lambda: self.clerk(key), story=story, after=draw() * 2 * _DAY)
            if draw() < 0.3:
                spawn(
                    f"other clerk {story}",
                    lambda: self.clerk(key),
                    story=story,
                    after=draw() * 2 * _DAY,
                )
        if draw() < 0.1:
            spawn(f"attacker {story}", lambda: self.attacker(key), story=story, after=draw() * 3600)
        # drawn in any case: leaving this out must change nothing else in the story
        drawn, later = (
            draw(),
            draw() * 1800,
        )
        if drawn < self._world.faults.rates["currencies"]:
            spawn(f"mover {story}", lambda: self.mover(key), story=story, after=later)
        if draw() < 0.03:
            spawn(
                f"back office {story}",
                lambda: self.back_office(key),
                story=story,
                after=draw() * 3 * _DAY,
            )

    def start(self, key: str, method: str, account: str) -> Payment | None:
        """Start a payment of an order, and return it if its payment page is to be gone to."""
        world, plugin = self._world, self._world.shop.plugin
        paid, actor = self._paid_there(key), world.scheduler.actor
        assert actor
        struck = actor.struck
        started = self.process(
            f"start {key} {method}",
            lambda: starting.start_payment(plugin, key, method=method, account=account),
        )
        if started is None or started.outcome != creating.StartOutcome.REDIRECT:
            return None
        if actor.struck == struck:
            world.judge.hear_of_start(started.payment, paid)
        return started.payment

    def _paid_there(self, key: str) -> str:
        """Return the open payment of an order that the shop can learn to be paid: it was some time
        ago.
        """
        world = self._world
        for reference, merchant_no, amount in Payment.objects.filter(
            order__key=key,
            status="pending",
        ).values_list("reference", "merchant_no", "amount"):
            there = world.service.known(merchant_no, reference)
            if (
                there
                and there.status == "paid"
                and there.units == amount / world.unit
                and (there.decided_at or 0) < world.scheduler.seconds - 15
            ):
                return str(reference)
        return ""

    def press(self, key: str, method: str) -> Payment | None:
        """Start a payment on the page where one is chosen, and return it if its payment page is to
        be gone to.
        """
        world = self._world
        # a shopper who has kept the address of a closed order
        way = world.shop.pay_path(key) or pay_path(world.shop.plugin, key)
        status, _ = self.visit(
            "POST",
            urljoin(world.public_url, way),
            urlencode({"method": method}).encode(),
        )
        pressed = (
            Payment.objects.filter(order__key=key, method=method, status="pending")
            .order_by("-pk")
            .first()
        )
        return pressed if status == HTTPStatus.FOUND else None

    def _at_payment_page(self, reference: str, merchant_no: str) -> None:
        world, chance = self._world, self._chance()
        there = world.service.known(merchant_no, reference)
        if there is None:
            return
        decision = chance.choices(("pay", "decline", "leave", "stay", "late"), (70, 10, 8, 8, 4))[0]
        if decision == "stay":
            return
        if decision == "late":
            world.scheduler.pause(chance.uniform(0, 3 * _DAY))
        if chance.random() < world.faults.rates["amounts"] and not world.faults.is_calm:
            # no fault's wrong amount, which would make it right again
            there.units += chance.choice((-7, 700)) if there.units > 7 else 7
            there.amount = str(there.units * world.unit)
            world.faults.note("pays_another_amount")
        world.plan(reference, "callback", *_RETURN_FAULTS)
        world.plan(reference, "notification", *NOTIFICATION_FAULTS)
        if chance.random() < _MONEY_MAY_BE_LATE:
            world.plan(reference, "decision", *_DECISION_FAULTS)
        if decision == "pay":
            self._plan_slow_money(reference)
        try:
            way_back = world.service.decide(
                there.transaction_no,
                "pay" if decision == "late" else decision,  # type: ignore[arg-type]
                late=decision == "late",
            )
        except NotPossible as error:
            world.scheduler.tell(f"at the payment page: {error}")
            return
        finally:
            world.forget_plans()
        world.scheduler.tell(f"chose {decision} for {reference}: {there.status}")
        if there.status == "processing":
            self._await_money(there)
        if way_back and chance.random() < 0.7:
            world.scheduler.pause(chance.uniform(0.2, 20))
            for _ in range(chance.choice((1, 1, 2))):
                self.visit(chance.choice(("GET", "GET", "POST")), way_back)
                world.scheduler.pause(chance.uniform(1, 5))

    # Slow money -----------------------------------------------------------------------------------

    def _plan_slow_money(self, reference: str) -> None:
        """Let the shopper pay by a debit or a voucher, now and then."""
        world = self._world
        # a stream of its own: leaving it out must change nothing else in the story
        chance = Random(f"{world.scheduler.seed}:{reference}:slow")  # repeatable on purpose
        rate = world.faults.rates["slow"]
        if not world.faults.is_calm and chance.random() < rate:
            fault = chance.choice(SLOW_MONEY)
            world.service.faults.plan(fault, occasion="decision", reference=reference)
            world.faults.note(fault)

    def _await_money(self, there: Transaction) -> None:
        """Let others act on a payment whose money is under way."""
        world, seconds = self._world, self._world.scheduler.seconds
        chance = Random(f"{world.scheduler.seed}:{there.reference}:awaited")  # repeatable
        actor = world.scheduler.actor
        assert actor
        drawn, last_day = chance.random(), chance.uniform(0.7, 1.02)
        if there.voucher_until is not None and drawn < 0.5:
            world.scheduler.spawn(
                f"voucher {actor.story}",
                lambda: self._pay_voucher(there),
                story=actor.story,
                after=last_day * (there.voucher_until - seconds),
            )
        elif there.voucher_until is None and drawn < 0.3:
            world.scheduler.spawn(
                f"bank {actor.story}",
                lambda: self._say_failed(there),
                story=actor.story,
                after=chance.uniform(0, 6 * _DAY),
            )

    def _pay_voucher(self, there: Transaction) -> None:
        """Pay a voucher on its last day, or find that it has ended."""
        world = self._world
        try:
            world.service.decide(there.transaction_no, "pay")
        except NotPossible as error:
            world.scheduler.tell(f"voucher of {there.reference}: {error}")
        else:
            world.scheduler.tell(f"paid the voucher of {there.reference}")

    def _say_failed(self, there: Transaction) -> None:
        """Let the gateway notify that a payment failed, with its money in any state; now and then
        the bank takes money that came back.
        """
        world, chance = self._world, self._chance()
        if there.status == "paid" and not there.refunds and chance.random() < 0.3:
            world.service.reverse(there.transaction_no)
            world.scheduler.tell(f"the bank took the money of {there.reference} back")
        world.service.notify(there, status=world.service.options.word_failed)

    # The shop's staff -----------------------------------------------------------------------------

    def editor(self, key: str) -> None:
        """Change an order's price."""
        world, total = self._world, self._world.price(self._chance())
        world.judge.hear_of_price(key, total, is_settled=False)
        world.shop.edit_total(key, total)
        world.judge.hear_of_price(key, total)
        world.scheduler.tell(f"order {key} costs {total} now")

    def mover(self, key: str) -> None:
        """Move an order to another currency."""
        world = self._world
        if not world.faults.is_calm:
            world.moved[key] = "EUR"
            world.judge.hear_of_move(key)
            world.faults.note("other_currency")
            world.scheduler.tell(f"order {key} is in EUR now")

    def closer(self, key: str) -> None:
        """Close an order that awaits payment. A shop may refuse to close one that was paid in
        between, with an error of its own.
        """
        shop = self._world.shop

        def close() -> str | None:
            if not shop.is_payable(key):
                return "not to be closed"
            try:
                shop.close_order(key)
            except (DatabaseFault, Violated):
                raise
            except Exception as error:
                if shop.is_payable(key):
                    raise
                return f"refused: {type(error).__name__}"
            return None

        self.process(f"close {key}", close, is_drivers=True)

    def clerk(self, key: str) -> None:
        """Give money back, in part, in whole or more than there is, in one way or another."""
        chance, amount = self._chance(), Decimal(0)
        for _ in range(chance.choice((1, 1, 2, 3))):
            payment = Payment.objects.filter(order__key=key, status="paid").order_by("-pk").first()
            if payment is None:
                return
            amount = chance.choice(
                (payment.amount, payment.amount, self._world.price(chance), payment.amount / 2),
            )
            amount = max(self._world.unit, amount.quantize(self._world.unit, ROUND_DOWN))
            action = chance.choice((queueing.refund, self._queued))
            # done before the next turn
            self.process(f"refund {amount}", lambda: action(payment.pk, amount, staff="clerk"))  # noqa: B023
            self._world.scheduler.pause(chance.uniform(0, 600))

    def _queued(self, payment_id: int, amount: Decimal, *, staff: str) -> Refund:
        with transaction.atomic():
            return queueing.queue_refund(payment_id, amount, staff=staff)

    def owner(self) -> None:
        """Look at the reviews now and then, and settle some of them by the gateway's pages."""
        world, chance = self._world, self._chance()
        while not world.is_quiet:
            world.scheduler.pause(chance.uniform(_DAY / 24, _DAY))
            for review in Review.objects.filter(resolved_at__isnull=True).order_by("pk")[:20]:
                if chance.random() < 0.5:
                    self.settle(review)

    def settle(self, review: Review) -> bool:
        """Settle one review by the gateway's book, and tell whether there was a way."""
        fitting = [
            action for action in actions.actions_for(review) if self._is_true(review, action)
        ]
        if self._errs() and ReviewAction.REFUND_DONE in fitting:
            fitting = [ReviewAction.REFUND_NOT_DONE]
            self._world.faults.note("wrong_button")
        if not fitting:
            return False
        chance = self._chance()
        action = chance.choice(fitting)
        amount = self._amount(review, action)
        note = "polled"
        self.process(
            f"{review.reason}: {action}",
            lambda: actions.take_action(review.pk, action, staff="owner", note=note, amount=amount),
        )
        return True

    def _errs(self) -> bool:
        """Tell whether staff press the wrong button."""
        rate = self._world.faults.rates["errors"]
        return bool(rate) and not self._world.faults.is_calm and self._chance().random() < rate

    def _is_true(self, review: Review, action: ReviewAction) -> bool:
        if action in (ReviewAction.REFUND_DONE, ReviewAction.REFUND_NOT_DONE):
            return self._was_done(review) is (action is ReviewAction.REFUND_DONE)
        if action is ReviewAction.FORCE_EXPIRE:
            return not self._may_be_paid(review)
        if action in (ReviewAction.ACCEPT_AS_PAID, ReviewAction.REFUND_REPORTED):
            # The gateway's pages show the true amount. An answer with another one is a fault, which
            # no staff accept.
            return False
        if action in (ReviewAction.RECORD_EXTERNAL_REFUND, ReviewAction.REFUND):
            return bool(self._amount(review, action))
        if action is ReviewAction.DISMISS and review.reason in (
            "changed-after-paid",
            "refund-contradicted",
        ):
            return not self._amount(review, ReviewAction.RECORD_EXTERNAL_REFUND)
        # In the end every event that failed can be delivered.
        return action is not ReviewAction.DISMISS or review.reason != "delivery-failing"

    def _may_be_paid(self, review: Review) -> bool:
        """Tell whether the gateway's pages show money of a payment, or that it is under way."""
        payment = review.payment
        assert payment
        there = self._world.service.known(payment.merchant_no, payment.reference)
        return there is not None and there.status in ("paid", "processing")

    def _was_done(self, review: Review) -> bool:
        refund = review.refund
        assert refund
        there = self._world.service.known(refund.payment.merchant_no, refund.payment.reference)
        return (
            any(key_of(one.ipn_url) == refund.notification_key for one in there.refunds)
            if there
            else False
        )

    def _amount(self, review: Review, action: ReviewAction) -> Decimal | None:
        """Return how much more the gateway has refunded than the ledger says, or how much there is
        to refund.
        """
        payment = review.payment
        if payment is None or action not in (
            ReviewAction.RECORD_EXTERNAL_REFUND,
            ReviewAction.REFUND,
        ):
            return None
        taken = payment.refunds.filter(
            status__in=("succeeded", "pending", "unknown", "sending", "queued"),
        ).values_list("amount", flat=True)
        if action is ReviewAction.REFUND:
            return money.left_of(payment.amount, taken) or None
        there = self._world.service.known(payment.merchant_no, payment.reference)
        known = set(
            payment.refunds.exclude(status="failed").values_list("notification_key", flat=True),
        )
        made = (
            sum(one.units for one in there.refunds if key_of(one.ipn_url) not in known)
            if there
            else 0
        )
        entered = payment.refunds.filter(external=True).values_list("amount", flat=True)
        missing = money.left_of(made * self._world.unit, entered)
        if review.reason == "refund-contradicted" and review.refund:  # each is entered separately
            missing = min(missing, review.refund.amount)
        return missing or None

    # Others ---------------------------------------------------------------------------------------

    def carry(self, attempt: NotificationAttempt) -> None:
        """Carry a notification of the gateway to the shop."""
        written = Interposed.written
        key = key_of(attempt.url)
        was_refused = (
            attempt.kind == "refund"
            and Refund.objects.filter(notification_key=key, status="failed").exists()
        )
        status, body = self.visit(
            attempt.method,
            attempt.url,
            attempt.body,
            attempt.content_type or _FORM,
        )
        if (
            acknowledges(status, body, self._world.service.options.acknowledgement)
            and Interposed.written == written
        ):
            raise Violated(
                f"I2: a notification of {attempt.transaction_no} was acknowledged, and nothing of "
                "it was kept",
            )
        if was_refused and status == HTTPStatus.OK and self._world.is_genuine(attempt):
            self._world.judge.hear_of_proof(key)
        self._world.service.notification_answered(attempt, status, body)

    def attacker(self, key: str) -> None:
        """Lie to every address of a payment, and to addresses that do not exist."""
        chance = self._chance()
        payment = Payment.objects.filter(order__key=key).order_by("pk").first()
        public = self._world.public_url
        lie = {"status": "success", "amount": "0.01", "transactionNo": "1", "verifySign": "0" * 32}
        addresses = [
            reverse("tillgate:payment-notification", args=["nobody-has-this-key-at-all-0000"]),
        ]
        if payment:
            lie |= {"reference": payment.reference, "amount": f"{payment.amount}"}
            addresses.append(
                reverse("tillgate:payment-notification", args=[payment.notification_key]),
            )
            addresses.append(
                reverse("tillgate:return", args=[payment.return_key]) + "?" + urlencode(lie),
            )
            addresses += [reverse("tillgate:refund-notification", args=[payment.notification_key])]
        for _ in range(chance.randint(1, 6)):
            self.visit("POST", public + chance.choice(addresses), urlencode(lie).encode())
            self._world.scheduler.pause(chance.uniform(0, 30))

    def back_office(self, key: str) -> None:
        """Give money back at the gateway itself, or take the payment back, behind the shop's
        back.
        """
        world, chance = self._world, self._chance()
        payment = Payment.objects.filter(order__key=key, status="paid").first()
        there = world.service.known(payment.merchant_no, payment.reference) if payment else None
        if there is None or not there.refundable_units:
            return
        cents = chance.choice((there.refundable_units, chance.randint(1, there.refundable_units)))
        try:
            world.service.give_back(there, cents)
        except Refusal as error:
            world.scheduler.tell(f"back office: {error}")
        else:
            world.scheduler.tell(f"back office refunded {cents} cents of {there.reference}")

    def worker(self) -> None:
        """Run the worker when something is due, at the world's pace at most, without end."""
        world, chance = self._world, self._chance()
        vain = 0
        while True:
            work = self._worker()
            due = self._next_due()
            if due is None and world.is_quiet:
                return
            # Due work that waits for an absent gateway is tried less and less often.
            vain = 0 if work else vain + 1
            shortest, longest = self._rest()
            wait = (due - world.scheduler.now()).total_seconds() if due else _DAY
            world.scheduler.pause(
                min(max(wait, shortest * 2**vain), longest) + chance.uniform(0, shortest),
            )

    def _worker(self) -> int:
        """Worker run in one process or, as Celery's tasks do, each part in one of its own; return
        how much was done.
        """
        if not self._world.has_tasks:
            work_done = self.process("worker", run_worker)
            return work_done.work if work_done else 0
        parts = [
            self.process("worker", partial(run_lane, lane))
            for lane in self.process("wake", wake) or ()
        ]
        return sum(part.work for part in parts if part)

    def _rest(self) -> tuple[float, float]:
        """Return how long a worker rests at least, and at most."""
        world = self._world
        if world.is_busy:
            return world.limiter, _LONGEST_PAUSE
        if world.is_settled:
            return _DAY, 5 * _DAY
        return world.slow_pace, 5 * _DAY if world.is_quiet else _DAY / 4

    def _next_due(self) -> datetime | None:
        """Return when something is due next, if anything ever will be."""
        return min((due for rows in self._dues for (due,) in rows.about(0)), default=None)

    def _chance(self) -> Random:
        actor = self._world.scheduler.actor
        assert actor
        return actor.chance


def _short(result: object) -> str:
    """Return the trace's text about a result: no row's number, since a rolled-back row uses one up
    in some databases only.
    """
    if isinstance(result, creating.Started):
        return f"{result.outcome} {result.payment.reference}"
    if isinstance(result, HttpResponseBase):
        return f"HTTP {result.status_code}"
    if isinstance(result, Refund):
        return f"refund of {result.amount} {result.status} {result.answer}"
    if isinstance(result, WorkDone):
        return str(
            {**result.summary(), "faults": [fault.partition(": ")[2] for fault in result.faults]},
        )[:200]
    if isinstance(result, actions.Done):
        return f"{result.message}{'' if result.resolved else ', not resolved'}"
    return str(result)[:200]
