"""Shops and cores that are broken on purpose, each in one way, and the scenario that must catch
it.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.template.defaulttags import CsrfTokenNode
from django.utils import timezone

from tests.smallest_shop import driver, plugin
from tests.smallest_shop.models import ShopOrder
from tillgate import hooks, lifecycle, shop
from tillgate.account import Account
from tillgate.django.models import OutboxEventKind, Payment, Refund
from tillgate.django.orders import registering
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.orders.values import payment_value
from tillgate.django.outbox import delivering, handlers
from tillgate.django.pages import gateways, shoppers
from tillgate.django.payments import creating, keeping, notifications, reconciling, starting
from tillgate.django.refunds import queueing, sending
from tillgate.django.worker import chores, polls
from tillgate.django.worker.runner import Run
from tillgate.lifecycle import Decision, Found, NotFound, PaymentFacts, PaymentStatus, RefundStatus
from tillgate.wire.details import PaymentDetails
from tillgate.wire.dialects import TransactionStatus
from tillgate.wire.messages import CreatedPayment, PaymentRequest, Refunded, Transaction
from tillgate.wire.notifications import read_notification

__all__ = [
    "MUTANTS",
    "MUTANTS_OF_ROW_LOCKS",
    "MUTANTS_OF_THE_KIT",
    "MUTANTS_OF_THE_SIMULATOR",
    "Mutant",
    "misfits",
]

# the package gives its function under the same name
interpreting: Any = sys.modules["tillgate.lifecycle.interpret"]
_log = logging.getLogger("tillgate")  # the logger of the core, which the judge must hear


def misfits(text: str) -> bool:
    """Tell whether a mutant failed because its signature differs from the original's."""
    return (
        re.search(
            r"unexpected keyword argument|required positional argument|positional arguments? but",
            text,
        )
        is not None
    )


@dataclass(frozen=True)
class Mutant:
    """The broken part, the scenario that catches it, how to break it, and the error raised if not
    an assertion.
    """

    name: str
    scenario: str
    breaks: Callable[[pytest.MonkeyPatch], None]
    raises: type[BaseException]


MUTANTS: list[Mutant] = []
MUTANTS_OF_THE_KIT: list[Mutant] = []
"""Mutants of things that the simulator does not play: it looks at no page, sells in one way, places
no order wrongly, edits no order during an outbox event, repeats no idempotency key, asks about
released orders only in the end, and its gateway takes every payment in its currency, whichever it
names.
"""
MUTANTS_OF_ROW_LOCKS: list[Mutant] = []
"""Those that only a database shows on which several transactions write at a time: not SQLite."""
MUTANTS_OF_THE_SIMULATOR: list[Mutant] = []
"""Mutants of things that the kit does not play, without a scenario: no driver makes its shop's own
code swallow a failure, and no gateway of the kit names a payer.
"""
_Breaks = Callable[[pytest.MonkeyPatch], None]


def mutant(
    scenario: str,
    raises: type[BaseException] = AssertionError,
    among: list[Mutant] = MUTANTS,
    name: str = "",
) -> Callable[[_Breaks], _Breaks]:
    """Add one; its name is the function's, unless one is given."""

    def add(breaks: _Breaks) -> _Breaks:
        among.append(Mutant(name or breaks.__name__.replace("_", " "), scenario, breaks, raises))
        return breaks

    return add


def use(patch: pytest.MonkeyPatch, hook: str, function: Callable[..., Any]) -> None:
    """Give the smallest shop another function for a hook."""
    implementations = getattr(hooks.plugin_manager().hook, hook).get_hookimpls()
    patch.setattr(
        next(one for one in implementations if one.plugin is plugin),
        "function",
        function,
    )


def orders(payment: hooks.Payment) -> Any:
    return ShopOrder.objects.filter(pk=payment.order.key)


# Shops --------------------------------------------------------------------------------------------


@mutant("notification_only")
def marks_the_order_paid_twice(patch: pytest.MonkeyPatch) -> None:
    def paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        orders(payment).update(status="paid", times_paid=F("times_paid") + 2)
        return hooks.PaidOutcome.APPLIED

    use(patch, "tillgate_payment_paid", paid)


def _pays_whatever(payment: hooks.Payment) -> hooks.PaidOutcome:
    orders(payment).update(status="paid", times_paid=F("times_paid") + 1)
    return hooks.PaidOutcome.APPLIED


@mutant("notification_only")
def marks_every_open_order_paid(patch: pytest.MonkeyPatch) -> None:
    def paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        outcome = plugin.tillgate_payment_paid(payment)
        ShopOrder.objects.filter(status="open").update(
            status="paid",
            times_paid=F("times_paid") + 1,
        )
        return outcome

    use(patch, "tillgate_payment_paid", paid)


@mutant("handler_refuses_a_closed_order")
def marks_a_closed_order_paid(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_payment_paid", _pays_whatever)


@mutant("handler_pays_an_order_once")
def marks_a_paid_order_paid(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_payment_paid", _pays_whatever)


@mutant("late_money_for_a_released_order")
def calls_every_order_payable(patch: pytest.MonkeyPatch) -> None:
    def describe(order_key: str) -> Any:
        described = plugin.tillgate_describe_order(order_key)
        return described and dataclasses.replace(described, not_payable_detail=None)

    use(patch, "tillgate_describe_order", describe)
    use(patch, "tillgate_payment_paid", _pays_whatever)


@mutant("notification_only")
def says_applied_and_does_nothing(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_payment_paid", lambda payment: hooks.PaidOutcome.APPLIED)


@mutant("full_refund")
def ignores_refunds(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_refund_changed", lambda refund: None)


@mutant("full_refund")
def books_a_refund_on_every_paid_order(patch: pytest.MonkeyPatch) -> None:
    def changed(refund: hooks.Refund) -> None:
        if refund.status is RefundStatus.SUCCEEDED:
            ShopOrder.objects.filter(status="paid").update(refunded=F("refunded") + refund.amount)

    use(patch, "tillgate_refund_changed", changed)


@mutant("unknown_outcome_of_refund")
def books_refunds_of_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    def changed(refund: hooks.Refund) -> None:
        orders(refund.payment).update(refunded=F("refunded") + refund.amount)

    use(patch, "tillgate_refund_changed", changed)


@mutant("partial_refunds")
def takes_every_refund_for_a_full_one(patch: pytest.MonkeyPatch) -> None:
    def changed(refund: hooks.Refund) -> None:
        orders(refund.payment).update(refunded=refund.payment.amount)

    use(patch, "tillgate_refund_changed", changed)


@mutant("expiry")
def keeps_what_nobody_paid(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_order_unpaid", lambda order: None)


@mutant("expiry", among=MUTANTS_OF_THE_KIT)
def gives_up_every_open_order(patch: pytest.MonkeyPatch) -> None:
    def unpaid(order: hooks.Order) -> None:
        ShopOrder.objects.filter(status="open").update(
            status="cancelled",
            times_released=F("times_released") + 1,
        )

    use(patch, "tillgate_order_unpaid", unpaid)


@mutant("amounts_are_exact")
def loses_cents_in_a_float(patch: pytest.MonkeyPatch) -> None:
    def describe(order_key: str) -> Any:
        described = plugin.tillgate_describe_order(order_key)
        return described and dataclasses.replace(
            described,
            amount=Decimal(int(float(described.amount) * 100)) / 100,
        )

    use(patch, "tillgate_describe_order", describe)


@mutant("order_became_dearer")
def remembers_the_first_total(patch: pytest.MonkeyPatch) -> None:
    totals: dict[str, Decimal] = {}

    def describe(order_key: str) -> Any:
        described = plugin.tillgate_describe_order(order_key)
        return described and dataclasses.replace(
            described,
            amount=totals.setdefault(order_key, described.amount),
        )

    def paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        changed = (
            orders(payment)
            .filter(status="open")
            .update(status="paid", times_paid=F("times_paid") + 1)
        )
        return hooks.PaidOutcome.APPLIED if changed else hooks.PaidOutcome.NOT_PAYABLE

    use(patch, "tillgate_describe_order", describe)
    use(patch, "tillgate_payment_paid", paid)


@mutant("order_became_dearer", among=MUTANTS_OF_THE_KIT)
def does_not_look_at_the_price_when_it_marks_an_order_paid(patch: pytest.MonkeyPatch) -> None:
    def paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        changed = (
            orders(payment)
            .filter(status="open")
            .update(status="paid", times_paid=F("times_paid") + 1)
        )
        return hooks.PaidOutcome.APPLIED if changed else hooks.PaidOutcome.NOT_PAYABLE

    use(patch, "tillgate_payment_paid", paid)


@mutant("order_in_another_currency", among=MUTANTS_OF_THE_KIT)
def does_not_say_in_which_currency_an_order_is(patch: pytest.MonkeyPatch) -> None:
    def describe(order_key: str) -> hooks.OrderDescription | None:
        described = plugin.tillgate_describe_order(order_key)
        return dataclasses.replace(described, currency="USD") if described else None

    use(patch, "tillgate_describe_order", describe)


@mutant("other_payment_methods_are_undisturbed", among=MUTANTS_OF_THE_KIT)
def gives_up_an_order_that_was_paid_otherwise(patch: pytest.MonkeyPatch) -> None:
    def unpaid(order: hooks.Order) -> None:
        ShopOrder.objects.filter(pk=order.key).update(status="cancelled")

    use(patch, "tillgate_order_unpaid", unpaid)


@mutant("expiry")
def frees_twice_what_nobody_paid(patch: pytest.MonkeyPatch) -> None:
    def unpaid(order: hooks.Order) -> None:
        for _ in range(2):
            ShopOrder.objects.filter(pk=order.key).exclude(status="paid").update(
                status="cancelled",
                times_released=F("times_released") + 1,
            )

    use(patch, "tillgate_order_unpaid", unpaid)


@mutant("pay_and_return", among=MUTANTS_OF_THE_KIT)
def brings_shoppers_back_to_a_page_that_is_not_there(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_return_url", lambda payment: "/no/such/page/")


@mutant("pay_and_return", among=MUTANTS_OF_THE_KIT)
def forgets_the_token_in_the_form_of_its_pay_page(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CsrfTokenNode, "render", lambda node, context: "")


@mutant("return_in_another_browser", among=MUTANTS_OF_THE_KIT)
def brings_a_wallets_browser_to_a_page_that_is_not_there(patch: pytest.MonkeyPatch) -> None:
    use(patch, "tillgate_return_url", lambda payment: "/no/such/page/")


@mutant("order_that_cannot_be_described")
def says_that_it_does_not_know_an_order_that_it_could_not_read(patch: pytest.MonkeyPatch) -> None:
    manager = hooks.plugin_manager()
    real = manager.subset_hook_caller

    def quiet(name: str, others: Any) -> Callable[..., Any]:
        caller = real(name, others)

        def call(**arguments: Any) -> Any:
            try:
                return caller(**arguments)
            except Exception:
                if name == "tillgate_describe_order":
                    return None
                raise

        return call

    patch.setattr(manager, "subset_hook_caller", quiet)


@mutant("atomic_requests", InsideTransaction)
def pays_in_a_view_that_is_a_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(shoppers.pay, "_non_atomic_requests")


@mutant("other_payment_methods_are_undisturbed", among=MUTANTS_OF_THE_KIT)
def lets_an_order_be_paid_that_was_paid_otherwise(patch: pytest.MonkeyPatch) -> None:
    def describe(order_key: str) -> hooks.OrderDescription | None:
        described = plugin.tillgate_describe_order(order_key)
        is_paid = ShopOrder.objects.filter(pk=order_key, status="paid").exists()
        return (
            dataclasses.replace(described, not_payable_detail=None)
            if described and is_paid
            else described
        )

    use(patch, "tillgate_describe_order", describe)


@mutant("late_money_for_a_released_order", among=MUTANTS_OF_THE_KIT)
def releases_a_released_order_again(patch: pytest.MonkeyPatch) -> None:
    def unpaid(order: hooks.Order) -> None:
        unpaid = ShopOrder.objects.filter(pk=order.key).exclude(status="paid")
        unpaid.update(status="cancelled", times_released=F("times_released") + 1)

    use(patch, "tillgate_order_unpaid", unpaid)


@mutant("partial_refunds", among=MUTANTS_OF_THE_KIT)
def takes_partial_refunds_of_the_whole_for_none(patch: pytest.MonkeyPatch) -> None:
    def changed(refund: hooks.Refund) -> None:
        plugin.tillgate_refund_changed(refund)
        if refund.status is RefundStatus.SUCCEEDED and refund.amount == refund.payment.amount:
            orders(refund.payment).update(status="refunded")

    use(patch, "tillgate_refund_changed", changed)


@mutant("nothing_starts_on_a_closed_order", among=MUTANTS_OF_THE_KIT)
def raises_at_the_release_of_a_closed_order(patch: pytest.MonkeyPatch) -> None:
    def unpaid(order: hooks.Order) -> None:
        ShopOrder.objects.get(pk=order.key, status="open")
        plugin.tillgate_order_unpaid(order)

    use(patch, "tillgate_order_unpaid", unpaid)


@mutant("order_that_costs_nothing", among=MUTANTS_OF_THE_KIT)
def lets_a_free_order_wait_for_money(patch: pytest.MonkeyPatch) -> None:
    _places(patch, lambda order: str(order.pk))


# Shops that register, link, book or lock wrongly --------------------------------------------------


def _places(patch: pytest.MonkeyPatch, key_of: Callable[[ShopOrder], str | None]) -> None:
    """Let the shop register the orders that it places under other keys, or not at all."""

    def place(total: Decimal, currency: str = "USD", plugin: str = "") -> ShopOrder:
        order: ShopOrder = ShopOrder.objects.create(total=total, currency=currency)
        if key := key_of(order):
            registering.open_order(plugin, key)
        return order

    patch.setattr(driver, "place", place)


@mutant("expiry", among=MUTANTS_OF_THE_KIT)
def never_registers_its_orders(patch: pytest.MonkeyPatch) -> None:
    _places(patch, lambda order: None)


@mutant("crash_while_placing", among=MUTANTS_OF_THE_KIT)
def registers_its_orders_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    _places(patch, lambda order: str(order.pk))


@mutant("expiry", among=MUTANTS_OF_THE_KIT)
def registers_another_order(patch: pytest.MonkeyPatch) -> None:
    _places(
        patch,
        lambda order: str(ShopOrder.objects.order_by("pk").values_list("pk", flat=True)[0]),
    )


@mutant("expiry", among=MUTANTS_OF_THE_KIT)
def registers_under_a_key_that_pays_nothing(patch: pytest.MonkeyPatch) -> None:
    _places(patch, lambda order: f"0{order.pk}")  # the database finds the same row by it


@mutant("notification_only", among=MUTANTS_OF_THE_KIT)
def leads_to_the_payment_of_another_order(patch: pytest.MonkeyPatch) -> None:
    real = shop.pay_path
    patch.setattr(
        shop,
        "pay_path",
        lambda plugin, key: real(
            plugin,
            str(ShopOrder.objects.order_by("pk").values_list("pk", flat=True)[0]),
        ),
    )


@mutant("notification_only", among=MUTANTS_OF_THE_KIT)
def leads_to_the_payment_of_an_order_under_another_key(patch: pytest.MonkeyPatch) -> None:
    real = shop.pay_path
    patch.setattr(shop, "pay_path", lambda plugin, key: real(plugin, f"0{key}"))


@mutant("notification_only", among=MUTANTS_OF_THE_KIT)
def leads_to_the_payment_of_the_newest_order(patch: pytest.MonkeyPatch) -> None:
    real = shop.pay_path
    patch.setattr(
        shop,
        "pay_path",
        lambda plugin, key: real(plugin, str(ShopOrder.objects.latest("pk").pk)),
    )


@mutant("notification_only", among=MUTANTS_OF_THE_KIT)
def leads_nobody_to_a_payment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shop, "pay_path", lambda plugin, key: f"/orders/{key}/")


@mutant("order_became_cheaper", among=MUTANTS_OF_THE_KIT)
def books_the_total_instead_of_the_money(patch: pytest.MonkeyPatch) -> None:
    def paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        outcome = plugin.tillgate_payment_paid(payment)
        orders(payment).filter(status="paid").update(paid_amount=F("total"))
        return outcome

    use(patch, "tillgate_payment_paid", paid)


@mutant("paid_twice")
def takes_the_refund_of_a_second_payment_for_one_of_the_order(patch: pytest.MonkeyPatch) -> None:
    def changed(refund: hooks.Refund) -> None:
        if refund.status is RefundStatus.SUCCEEDED:
            orders(refund.payment).update(refunded=F("refunded") + refund.amount)

    use(patch, "tillgate_refund_changed", changed)


@mutant("order_became_dearer", among=MUTANTS_OF_ROW_LOCKS)
def locks_no_row(patch: pytest.MonkeyPatch) -> None:
    def paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        order = orders(payment).get()
        if order.status != "open":
            return hooks.PaidOutcome.NOT_PAYABLE
        if order.total > payment.amount:
            return hooks.PaidOutcome.UNDERPAID
        order.status, order.paid_amount, order.times_paid = (
            "paid",
            payment.amount,
            order.times_paid + 1,
        )
        order.save()
        return hooks.PaidOutcome.APPLIED

    use(patch, "tillgate_payment_paid", paid)


def _swallows(
    patch: pytest.MonkeyPatch,
    hook: str,
    answer: object,
    key_of: Callable[[Any], str],
) -> None:
    """Let a function read its order first, and hide every failure."""
    real = getattr(plugin, hook)

    def hushed(value: Any) -> object:
        try:
            ShopOrder.objects.select_for_update().get(pk=key_of(value))
            return real(value)
        except Exception:  # noqa: BLE001  # the fault of this mutant
            _log.exception("never mind")
            return answer

    use(patch, hook, hushed)


@mutant("paid_handler_raises", among=MUTANTS_OF_THE_KIT)
def swallows_errors_and_says_applied(patch: pytest.MonkeyPatch) -> None:
    _swallows(
        patch,
        "tillgate_payment_paid",
        hooks.PaidOutcome.APPLIED,
        lambda payment: payment.order.key,
    )


@mutant("paid_handler_raises", among=MUTANTS_OF_THE_KIT)
def swallows_errors_and_says_not_payable(patch: pytest.MonkeyPatch) -> None:
    _swallows(
        patch,
        "tillgate_payment_paid",
        hooks.PaidOutcome.NOT_PAYABLE,
        lambda payment: payment.order.key,
    )


@mutant("unpaid_handler_raises", among=MUTANTS_OF_THE_KIT)
def swallows_errors_of_a_release(patch: pytest.MonkeyPatch) -> None:
    _swallows(patch, "tillgate_order_unpaid", None, lambda order: order.key)


@mutant("refund_handler_raises", among=MUTANTS_OF_THE_KIT)
def swallows_errors_of_a_refund(patch: pytest.MonkeyPatch) -> None:
    _swallows(patch, "tillgate_refund_changed", None, lambda refund: refund.payment.order.key)


@mutant("order_that_cannot_be_described", among=MUTANTS_OF_THE_KIT)
def swallows_errors_of_a_description(patch: pytest.MonkeyPatch) -> None:
    _swallows(patch, "tillgate_describe_order", None, lambda order_key: order_key)


# Cores --------------------------------------------------------------------------------------------


def _paid_by_word(payment: Payment) -> None:
    said = Transaction(
        reference=payment.reference,
        transaction_no=payment.transaction_no,
        amount=payment.amount,
        currency="USD",
        settle_currency="USD",
        status=TransactionStatus.PAID,
        status_text="success",
        raw={},
    )
    reconciling.apply_answer(payment, Found(transaction=said, asked_at=timezone.now()), "a word")


def _trusting(receive: Callable[..., Payment | None]) -> Callable[..., Payment | None]:
    def trusting(key: str, read: Any, method: str, *more: Any) -> Payment | None:
        read = functools.cache(read)
        payment = receive(key, read, method, *more)
        if payment and read().evidence().get("status") == "success":
            _paid_by_word(payment)
        return payment

    return trusting


@mutant("lying_return")
def trusts_the_status_in_the_callback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(notifications, "receive_return", _trusting(notifications.receive_return))


@mutant("forged_notifications")
def trusts_the_status_in_a_notification(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        notifications,
        "receive_payment_notification",
        _trusting(notifications.receive_payment_notification),
    )


@mutant("forged_notifications")
def asks_at_every_notification(patch: pytest.MonkeyPatch) -> None:
    real = reconciling._claim
    patch.setattr(
        reconciling,
        "_claim",
        lambda *claimed, **options: (real(*claimed, **options)[0], True),
    )


@mutant("amount_mismatch")
def ignores_the_amount(patch: pytest.MonkeyPatch) -> None:
    _compare_after(patch, lambda facts, found: dataclasses.replace(found, amount=facts.amount))


@mutant("currency_mismatch", among=MUTANTS_OF_THE_KIT)
def ignores_the_currency(patch: pytest.MonkeyPatch) -> None:
    _compare_after(
        patch,
        lambda facts, found: dataclasses.replace(
            found,
            currency=facts.currency,
            settle_currency=facts.currency,
        ),
    )


def _compare_after(patch: pytest.MonkeyPatch, made_equal: Callable[[Any, Any], Any]) -> None:
    compare = interpreting._contradiction
    patch.setattr(
        interpreting,
        "_contradiction",
        lambda facts, found, **given: compare(facts, made_equal(facts, found), **given),
    )


@mutant("notification_is_kept_before_it_is_acknowledged")
def acknowledges_before_storing(patch: pytest.MonkeyPatch) -> None:
    receive = notifications.receive_payment_notification

    def hasty(key: str, *given: Any) -> Payment | None:
        try:
            return receive(key, *given)
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            _log.exception("later, perhaps")
            return Payment.objects.filter(notification_key=key).first()

    patch.setattr(notifications, "receive_payment_notification", hasty)


@mutant("unknown_outcome_of_refund")
def sends_an_unknown_refund_again(patch: pytest.MonkeyPatch) -> None:
    def hopeful(outcome: Any) -> RefundStatus:
        return RefundStatus.SUCCEEDED if isinstance(outcome, Refunded) else RefundStatus.QUEUED

    patch.setattr(sending, "decide_refund", hopeful)


@mutant("crash_while_refunding")
def sends_a_refund_again_that_was_cut_off(patch: pytest.MonkeyPatch) -> None:
    def queue_again(pk: int) -> None:
        Refund.objects.filter(pk=pk).update(status="queued", due_at=timezone.now(), confirmed=False)

    patch.setattr(chores, "mark_lost", queue_again)


@mutant("over_refund", pytest.fail.Exception)
def lets_refunds_exceed_the_payment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queueing, "refundable", lambda payment, rows=None: Decimal(10**6))


@mutant("duplicate_notifications")
def runs_the_handler_twice(patch: pytest.MonkeyPatch) -> None:
    def twice(order: Any, outbox_event: Any) -> str:
        handlers._payment_paid(order, outbox_event)
        return handlers._payment_paid(order, outbox_event)

    patch.setitem(handlers.HANDLERS, OutboxEventKind.PAYMENT_PAID, twice)


@mutant("paid_handler_raises")
def takes_a_handler_that_raised_for_done(patch: pytest.MonkeyPatch) -> None:
    def hushed(order: Any, outbox_event: Any) -> str:
        try:
            with transaction.atomic():
                return handlers._payment_paid(order, outbox_event)
        except Exception as error:  # noqa: BLE001  # any error of the project's code
            return type(error).__name__

    patch.setitem(handlers.HANDLERS, OutboxEventKind.PAYMENT_PAID, hushed)


@mutant("paid_handler_raises")
def keeps_half_of_what_a_handler_did_that_raised(patch: pytest.MonkeyPatch) -> None:
    def half(order: Any, outbox_event: Any) -> None:
        try:
            handlers._payment_paid(order, outbox_event)
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            outbox_event.save(update_fields=["attempts"])
        else:
            outbox_event.done_at, outbox_event.due_at = timezone.now(), None
            outbox_event.save(update_fields=["done_at", "due_at"])

    patch.setattr(delivering, "_carry_out", half)


@mutant("paid_twice")
def delivers_every_paid_payment(patch: pytest.MonkeyPatch) -> None:
    def deliver(order: Any, outbox_event: Any) -> str:
        outbox_event.payment.order = order
        value = payment_value(outbox_event.payment)
        return str(hooks.call_owner(order.plugin, "tillgate_payment_paid", payment=value))

    patch.setitem(handlers.HANDLERS, OutboxEventKind.PAYMENT_PAID, deliver)


def _deciding(
    patch: pytest.MonkeyPatch,
    change: Callable[[PaymentFacts, Any, Decision], PaymentStatus | None],
) -> None:
    """Let `change` move a payment where the lifecycle does not."""
    for module in (reconciling, polls):
        real = module.interpret

        def interpret(
            facts: PaymentFacts,
            reviews: Any,
            answer: Any,
            real: Callable[..., Decision] = real,
        ) -> Decision:
            decision = real(facts, reviews, answer)
            status = change(facts, answer, decision)
            return (
                decision
                if status is None
                else dataclasses.replace(decision, status=status, review=None, is_conclusive=True)
            )

        patch.setattr(module, "interpret", interpret)


@mutant("changed_after_paid")
def downgrades_a_paid_payment(patch: pytest.MonkeyPatch) -> None:
    def change(facts: PaymentFacts, answer: Any, _: Decision) -> PaymentStatus | None:
        is_other = (
            isinstance(answer, Found) and answer.transaction.status is not TransactionStatus.PAID
        )
        return PaymentStatus.FAILED if is_other and facts.status is PaymentStatus.PAID else None

    _deciding(patch, change)


@mutant("late_money")
def drops_a_late_payment(patch: pytest.MonkeyPatch) -> None:
    ended = (PaymentStatus.FAILED, PaymentStatus.CLOSED, PaymentStatus.EXPIRED)
    _deciding(
        patch,
        lambda facts, answer, decision: facts.status if facts.status in ended else None,
    )


@mutant("unrecognised_status")
def takes_an_unknown_word_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    def change(_: PaymentFacts, answer: Any, __: Decision) -> PaymentStatus | None:
        is_unknown = (
            isinstance(answer, Found)
            and answer.transaction.status is TransactionStatus.UNRECOGNISED
        )
        return PaymentStatus.FAILED if is_unknown else None

    _deciding(patch, change)


@mutant("order_not_found_at_the_gateway")
def closes_orders_on_a_wrong_merchant_number(patch: pytest.MonkeyPatch) -> None:
    def change(facts: PaymentFacts, answer: Any, _: Decision) -> PaymentStatus | None:
        is_late = isinstance(answer, NotFound) and answer.asked_at >= facts.expires_at
        return PaymentStatus.EXPIRED if is_late else None

    _deciding(patch, change)


@mutant("leave_and_pay_again", IntegrityError)
def reuses_a_reference(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(creating, "new_reference", lambda number: f"{number}-AAAAAAAAAAAAA")


@mutant("double_click")
def makes_a_payment_of_every_press(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(starting, "duplicate_of", lambda *_: None)


@mutant("repeated_refund", among=MUTANTS_OF_THE_KIT)
def looks_for_no_key_of_a_refund(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queueing, "_refund_of_key", lambda *_: None)


@mutant("found_paid_when_paying_again")
def starts_without_looking_at_open_payments(patch: pytest.MonkeyPatch) -> None:
    real = starting._look_up
    patch.setattr(starting, "_look_up", lambda plugin_name, key: (real(plugin_name, key)[0], []))


@mutant("pay_and_return")
def holds_a_transaction_across_the_query(patch: pytest.MonkeyPatch) -> None:
    real = hooks.query

    def query(account: Account, reference: str, **bounds: Any) -> Transaction:
        with transaction.atomic():
            return real(account, reference, **bounds)

    patch.setattr(hooks, "query", query)


@mutant("no_secret_in_logs")
def logs_the_token(patch: pytest.MonkeyPatch) -> None:
    real = hooks.query

    def query(account: Account, reference: str, **bounds: Any) -> Transaction:
        _log.debug("asking as %s", account.token.get_secret_value())
        return real(account, reference, **bounds)

    patch.setattr(hooks, "query", query)


@mutant("no_secret_in_logs")
def logs_what_a_notification_says(patch: pytest.MonkeyPatch) -> None:
    def read(content_type: str, query: str, body: bytes) -> Any:
        _log.debug("received %s", body)
        return read_notification(content_type, query, body)

    patch.setattr(gateways, "read_notification", read)


@mutant("kept_while_another_payment_is_open")
def gives_up_an_order_while_a_payment_of_it_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        handlers,
        "is_unpaid",
        lambda order: not order.payments.filter(status="paid").exists(),
    )


@mutant("neither_notification_nor_return")
def never_asks_by_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "take_accounts", lambda _: False)


@mutant("crash_at_a_notification")
def queues_the_outbox_event_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    real = reconciling.after_change
    patch.setattr(
        reconciling,
        "after_change",
        lambda order, payment: transaction.on_commit(lambda: real(order, payment)),
    )


@mutant("crash_while_starting")
def does_not_watch_a_payment_until_the_gateway_has_answered(patch: pytest.MonkeyPatch) -> None:
    real = lifecycle.next_poll

    def look(status: PaymentStatus, *moments: Any) -> Any:
        return None if status is PaymentStatus.CREATED else real(status, *moments)

    patch.setattr(creating, "next_poll", look)


@mutant("", among=MUTANTS_OF_THE_SIMULATOR)
def takes_what_a_handler_swallowed_for_told(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def trusting() -> Iterator[None]:
        with transaction.atomic():
            yield

    patch.setattr(delivering, "shop_savepoint", trusting)


@mutant("", among=MUTANTS_OF_THE_SIMULATOR, name="logs a payment page's key")
def logs_the_key_of_a_payment_page(patch: pytest.MonkeyPatch) -> None:
    real = hooks.pay

    def pay(
        account: Account,
        request: PaymentRequest,
        *,
        deadline_seconds: float | None = None,
    ) -> CreatedPayment:
        created = real(account, request, deadline_seconds=deadline_seconds)
        _log.info("the shopper of %s goes to %s", request.reference, created.payment_url)
        return created

    patch.setattr(hooks, "pay", pay)


@mutant("", among=MUTANTS_OF_THE_SIMULATOR, name="logs a payer's name")
def logs_the_name_of_a_payer(patch: pytest.MonkeyPatch) -> None:
    real = hooks.query

    def query(account: Account, reference: str, **bounds: Any) -> Transaction:
        found = real(account, reference, **bounds)
        _log.info("%s is %s, by %s", reference, found.status_text, found.raw.get("payerName"))
        return found

    patch.setattr(hooks, "query", query)


@mutant("", among=MUTANTS_OF_THE_SIMULATOR, name="stores a payer's name")
def stores_the_name_of_a_payer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keeping, "kept_texts", lambda message, names: dict(message))


# Slow money ---------------------------------------------------------------------------------------


@mutant("days_until_failed", among=MUTANTS_OF_THE_KIT)
def counts_the_time_of_slow_money(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciling, "note_under_way", lambda order: None)


@mutant("days_until_paid")
def takes_money_under_way_for_none(patch: pytest.MonkeyPatch) -> None:
    real = interpreting.interpret

    def interpret(facts: PaymentFacts, reviews: Any, answer: Any) -> Decision:
        if isinstance(answer, Found) and answer.transaction.status is TransactionStatus.PROCESSING:
            waits = dataclasses.replace(answer.transaction, status=TransactionStatus.PENDING)
            answer = dataclasses.replace(answer, transaction=waits)
        decision: Decision = real(facts, reviews, answer)
        return decision

    for module in (reconciling, polls):
        patch.setattr(module, "interpret", interpret)


@mutant("days_until_paid", among=MUTANTS_OF_THE_KIT)
def releases_while_money_is_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        handlers,
        "is_unpaid",
        lambda order: not order.paid_by_id and not order.payments.filter(status="paid").exists(),
    )


@mutant("voucher_that_nobody_pays", among=MUTANTS_OF_THE_KIT)
def calls_a_voucher_finished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Payment, "known", PaymentDetails())


@mutant("voucher_and_another_payment", among=MUTANTS_OF_THE_KIT)
def hides_the_second_payment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handlers, "_hold", lambda payment, reason, facts: None)
