"""The audit: every kind of difference is made and found, nothing else is, and nothing is changed by
looking.
"""

from __future__ import annotations

import importlib
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connections, transaction
from django.db.models.signals import post_init
from django.utils import timezone

from tests.django.conftest import World
from tests.django.gateway import many
from tests.smallest_shop.models import ShopOrder
from tillgate import hooks
from tillgate.django.accounting.audit import Audited, audit
from tillgate.django.accounting.differences import Difference, DifferenceKind
from tillgate.django.actions import take_action
from tillgate.django.models import (
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
    database,
)
from tillgate.django.orders import registering
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.payments.reconciling import ask
from tillgate.django.refunds import external, queueing
from tillgate.django.worker import calls
from tillgate.lifecycle import Answer, Found, Inconclusive
from tillgate.wire.dialects import TransactionStatus
from tillgate.wire.messages import Transaction

auditing: Any = importlib.import_module("tillgate.django.accounting.audit")


def look(**options: Any) -> list[Difference]:
    """Return the differences of a whole audit."""
    now = timezone.now()
    return list(audit(now - timedelta(days=100), now + timedelta(seconds=1), **options))


def kinds(**options: Any) -> list[str]:
    return [str(difference.kind) for difference in look(**options)]


def only(**options: Any) -> Difference:
    [difference] = look(**options)
    return difference


def rewrite(row: Any, **fields: Any) -> None:
    """Change a row by hand, behind the operations' back."""
    type(row)._default_manager.filter(pk=row.pk).update(**fields)


def everything() -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all tables."""
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for model in apps.get_models()
    }


def on_the_way(world: World) -> Payment:
    return world.start(world.order())


def given_up(world: World) -> Payment:
    payment = world.start(world.order())
    world.time.advance(hours=4)
    world.run_worker()
    return world.fresh(payment)


def second_payment(world: World) -> Payment:
    """Return the second of two payments that are paid for one order."""
    order = world.order()
    first, second = world.start(order, "alipay"), world.start(order, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notification(payment)
    return world.fresh(second)


# Nothing differs ----------------------------------------------------------------------------------


def test_agreeing_books_show_no_difference(world: World) -> None:
    """Paid, refunded, failed and closed payments can all agree with the gateway."""
    refunded, partly = world.paid_payment(), world.paid_payment()
    queueing.refund(refunded.pk, "12.50")
    queueing.refund(partly.pk, "2.50")
    world.sandbox.control.fault("refused", occasion="refund")
    queueing.refund(partly.pk, "1.00")
    second_payment(world)
    given_up(world)
    declined, closed, late = (on_the_way(world) for _ in range(3))
    world.sandbox.control.decline(declined.reference)
    world.notification(declined)
    registering.close_order(closed.order.plugin, closed.order.key)
    world.shopper_pays(closed)
    world.notification(closed)
    world.sandbox.control.decline(late.reference)
    world.notification(late)
    world.pays_late(late)
    world.notification(late)
    world.sandbox.control.fault("refused", occasion="pay")
    on_the_way(world)
    world.sandbox.control.fault("lost_request", occasion="pay")
    on_the_way(world)
    on_the_way(world)
    world.paid_payment()
    assert Counter(Payment.objects.values_list("status", flat=True)) == {
        "paid": 7,
        "failed": 2,
        "closed": 1,
        "created": 1,
        "pending": 1,
    }
    assert look() == []


def test_audit_sums_totals_of_both_sides(world: World) -> None:
    payment, _, before = (
        world.paid_payment("12.50"),
        world.paid_payment("0.10"),
        world.paid_payment("5.00"),
    )
    for one, amount in ((payment, "2.50"), (payment, "0.25"), (before, "5.00")):
        queueing.refund(one.pk, amount)
    world.sandbox.control.fault("refused", occasion="refund")
    queueing.refund(payment.pk, "1.00")
    rewrite(before, created_at=timezone.now() - timedelta(days=101))
    for _ in range(2):
        world.shopper_pays(on_the_way(world))
    heard: list[Audited] = []
    assert kinds(progress=heard.append) == ["paid-there", "paid-there"]
    assert heard[-1] == Audited(
        total=4,
        payments=4,
        compared=4,
        paid_here=2,
        paid_here_amounts={"USD": Decimal("12.60")},
        paid_there=4,
        paid_there_amounts={"USD": Decimal("37.60")},
        refunds=2,
        refunded_amounts={"USD": Decimal("2.75")},
        differences=2,
    )


def test_audit_selects_by_start_and_account(
    world: World,
    configure: Callable[..., None],
) -> None:
    """The period is the time in which payments were started."""
    began = timezone.now()
    world.shopper_pays(on_the_way(world))
    later = timezone.now()
    world.shopper_pays(on_the_way(world))
    end = timezone.now()
    for since, until, count in (
        (began, end, 2),
        (began, later, 1),
        (later, end, 1),
        (end, end + timedelta(days=1), 0),
    ):
        assert len(list(audit(since, until))) == count
    first, second = Payment.objects.order_by("pk").values_list("created_at", flat=True)
    # a moment is the beginning of one period and not also the end of another
    assert len(list(audit(first, second))) == 1
    assert len(look(account="default")) == 2
    assert look(account="another") == []


# The gateway says something else ------------------------------------------------------------------


def test_what_is_paid_there_and_not_here(world: World) -> None:
    payment = on_the_way(world)
    world.shopper_pays(payment)
    found = only()
    assert (found.kind, found.reference, found.order) == (
        DifferenceKind.PAID_THERE,
        payment.reference,
        str(payment.order),
    )
    assert found.here.startswith("pending, USD 12.50, transaction ")
    assert found.there.startswith("the gateway says 'success', USD 12.50, transaction ")
    assert found.remedy.startswith("“Poll now” in the admin; the worker looks next at ")
    assert found.told == ""
    world.notification(payment)
    assert look() == []


def test_audit_finds_money_after_polling_ended(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(DISPUTABLE_DAYS=30)
    payment = given_up(world)
    world.time.advance(days=31)
    world.run_worker()
    assert world.fresh(payment).next_poll_at is None
    world.pays_late(payment)
    found = only()
    assert found.kind is DifferenceKind.PAID_THERE
    assert found.here.startswith("closed")
    assert found.remedy.endswith("the worker does not look any more")


def test_what_is_over_there_and_open_here(world: World) -> None:
    world.sandbox.control.decline(on_the_way(world).reference)
    assert kinds() == ["open-here"]
    world.run_worker()
    world.time.advance(minutes=1)
    world.run_worker()
    assert look() == []


def test_unpaid_payment_past_expiry_differs(world: World) -> None:
    """It is still open in our books."""
    on_the_way(world)
    world.time.advance(hours=4)
    assert kinds() == ["open-here"]


@pytest.mark.parametrize("status", ["pending", "paid"])
def test_created_payment_unknown_to_gateway_differs(world: World, status: str) -> None:
    payment = on_the_way(world)
    if status == "paid":
        world.shopper_pays(payment)
        world.notification(payment)
    world.sandbox.control.reset()
    found = only()
    assert (found.kind, found.there) == (
        DifferenceKind.UNKNOWN_THERE,
        "the gateway knows no such reference",
    )
    assert "doctor" in found.remedy
    world.time.advance(minutes=20)
    world.time.advance(hours=2)
    world.run_worker()
    assert world.reviews() == ["payment-unknown"]
    found = only()
    assert found.told.startswith("needs review since ")
    assert found.remedy == "settle it under “needs review” in the admin"


def test_unknown_payment_has_its_own_review(world: World) -> None:
    """A review opens for each payment that the gateway does not know."""
    for _ in range(2):
        world.paid_payment()
    world.sandbox.control.reset()
    world.time.advance(hours=2)
    world.run_worker()
    assert world.reviews() == ["payment-unknown"] * 2
    assert [bool(found.told) for found in look()] == [True, True]


def test_review_covers_only_its_own_subject(world: World) -> None:
    """A review of another payment or account does not count for this payment."""
    other = world.paid_payment()
    payment = world.paid_payment()
    raised: dict[str, Any] = {"facts": {"detail": "x"}, "opened_at": timezone.now()}
    Review.objects.create(
        payment=other,
        account="default",
        reason="amount-mismatch",
        open_key="1",
        **raised,
    )
    Review.objects.create(account="another", reason="wrong-credentials", open_key="2", **raised)
    by_reference = {one.reference: one.told for one in look(ask=saying(amount=Decimal("12.49")))}
    assert by_reference[other.reference].startswith("needs review since ")
    assert by_reference[payment.reference] == ""
    world.sandbox.control.reset()
    assert [found.told for found in look()] == ["", ""]


def transaction_like(payment: Payment, **differing: Any) -> Transaction:
    agreeing = {
        "reference": payment.reference,
        "status": TransactionStatus.PAID,
        "status_text": "success",
        "transaction_no": payment.transaction_no,
        "amount": payment.amount,
        "currency": "USD",
        "settle_currency": "USD",
        "raw": {},
    }
    return Transaction(**{**agreeing, **differing})


def saying(**differing: Any) -> Callable[[Payment], Answer]:
    return lambda payment: Found(
        transaction=transaction_like(payment, **differing),
        asked_at=timezone.now(),
    )


@pytest.mark.parametrize("status", ["pending", "paid"])
@pytest.mark.parametrize(
    ("differing", "kind", "there"),
    [
        ({"amount": Decimal("12.49")}, "amount-mismatch", "USD 12.49"),
        ({"amount": Decimal("0.00")}, "amount-mismatch", "USD 0.00"),
        ({"amount": None}, "amount-missing", "USD without an amount"),
        ({"currency": "EUR"}, "currency-mismatch", "EUR 12.50, settled in USD"),
        ({"settle_currency": None}, "currency-mismatch", "settled in nothing"),
        ({"transaction_no": "another"}, "transaction-no-mismatch", "transaction another"),
        ({"transaction_no": None}, "transaction-no-missing", "no transactionNo"),
        ({"reference": "ANOTHER"}, "reference-mismatch", "'success'"),
    ],
)
def test_paid_money_must_agree_in_everything(
    world: World,
    status: str,
    differing: dict[str, Any],
    kind: str,
    there: str,
) -> None:
    payment = world.paid_payment() if status == "paid" else on_the_way(world)
    assert (
        look(
            ask=saying(
                **(
                    {}
                    if status == "paid"
                    else {"status": TransactionStatus.PENDING, "status_text": "pending"}
                ),
            ),
        )
        == []
    )
    found = only(ask=saying(**differing))
    assert (str(found.kind), found.reference) == (kind, payment.reference)
    assert there in found.there
    assert found.remedy.endswith("that puts it under “needs review”")


def test_paid_payment_changed_at_gateway_differs(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    assert kinds() == ["changed-after-paid"]
    world.time.advance(hours=2)
    world.run_worker()
    assert only().told.startswith("needs review since ")
    take_action(Review.objects.get().pk, "dismiss", staff="ann", note="the bank took it back")
    found = only()
    assert found.told == "ann resolved it: the bank took it back"
    assert found.remedy.startswith("nothing, if that still holds; otherwise: ")


def test_status_word_reveals_external_refund(world: World) -> None:
    """A refund made elsewhere shows only if the gateway's status word changes."""
    payment = world.paid_payment()
    world.sandbox.control.set_options({"word_partly_refunded": "partly refunded"})
    world.sandbox.control.refund(payment.reference, "2.50")
    found = only()
    assert str(found.kind) == "changed-after-paid"
    assert "'partly refunded'" in found.there
    # unspecified 18: then it is unknown
    world.sandbox.control.set_options({"word_partly_refunded": "success"})
    assert look() == []


def test_full_refund_explains_any_status_word(
    world: World,
) -> None:
    """A fully refunded payment needs only one query."""
    payment = world.paid_payment()
    for amount in ("2.50", "10.00"):
        queueing.refund(payment.pk, amount)
    world.sandbox.control.set_options({"word_refunded": "refunded"})
    before = world.queries()
    assert look() == []
    assert world.queries() == before + 1


def test_accepted_refund_explains_word_refunded(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not yet counted in the refunded total."""
    world.sandbox.control.set_options({"word_partly_refunded": "refunded"})
    refund = queueing.refund(world.paid_payment().pk, "2.50")
    rewrite(refund, status="pending")
    TimelineEntry.objects.filter(refund=refund, event="refund.succeeded").update(
        event="refund.pending",
    )
    heard: list[Audited] = []
    assert look(progress=heard.append) == []
    assert (heard[-1].refunds, dict(heard[-1].refunded_amounts)) == (0, {})


def test_unchanged_difference_needs_one_query(world: World) -> None:
    """The gateway is asked again only about payments that changed during the audit."""
    payment = world.paid_payment()
    queueing.refund(payment.pk, "2.50")
    rewrite(payment, status="pending")
    before = world.queries()
    assert "paid-there" in kinds()
    assert world.queries() == before + 1


def test_a_word_that_nobody_knows(world: World) -> None:
    on_the_way(world)
    strange = saying(status=TransactionStatus.UNRECOGNISED, status_text="\x1b[31mfrozen")
    assert look(ask=strange) == []  # while it is open, it may be a step on the way
    world.time.advance(hours=4)
    found = only(ask=strange)
    assert str(found.kind) == "unrecognised-status"
    assert "'\\x1b[31mfrozen'" in found.there


def test_automatically_resolved_review_is_not_reported(world: World) -> None:
    """A review that resolved itself does not count as known to staff."""
    payment = on_the_way(world)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.reviews() == ["amount-mismatch"]
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.reviews() == []
    assert only(ask=saying(amount=Decimal("1.00"))).told == ""


# Gateways without answers--------------------------------------------------------------------------


def test_silent_account_is_reported_only_once(world: World) -> None:
    """After a few failed queries the audit stops asking its gateway."""
    many(world, 30)
    asked: list[str] = []

    def silent(payment: Payment) -> Answer:
        asked.append(payment.reference)
        return Inconclusive(detail="connection refused")

    found = only(ask=silent, connections=1)
    assert found.kind is DifferenceKind.NOT_ASKED
    assert found.here.startswith("30 payments: ")
    assert found.here.endswith(", …")
    assert found.there == "the gateway of account default could not be asked: connection refused"
    assert len(asked) == 5


@pytest.mark.parametrize(("count", "rest"), [(5, ""), (6, ", …")])
def test_difference_names_five_unasked_payments(
    world: World,
    count: int,
    rest: str,
) -> None:
    """Payments that could not be queried share one difference naming the first five."""
    payments = many(world, count)
    assert only(
        ask=lambda _: Inconclusive(detail="connection refused"),
        connections=1,
    ) == Difference(
        kind=DifferenceKind.NOT_ASKED,
        reference="",
        order="",
        here=f"{count} payments: {', '.join(payment.reference for payment in payments[:5])}{rest}",
        there="the gateway of account default could not be asked: connection refused",
        remedy="run `manage.py tillgate doctor`, and the audit again",
    )


def test_inconclusive_answer_counts_as_not_asked(world: World) -> None:
    world.paid_payment()
    world.sandbox.control.fault("server_error", occasion="query", times=9)
    found = only()
    assert found.kind is DifferenceKind.NOT_ASKED
    assert found.here.startswith("1 payment: ")


def test_reports_missing_account_and_failing_shop(
    world: World,
    settings: Any,
) -> None:
    payment = world.paid_payment()
    rewrite(payment, account="gone")
    with world.failing_handler("tillgate_describe_order", times=9):
        shop, gateway = look()[::-1]
    assert (shop.kind, gateway.kind) == (DifferenceKind.NOT_ASKED, DifferenceKind.NOT_ASKED)
    assert "plugin smallest-shop" in shop.there
    assert "ShopIsDown" in shop.there
    assert "account gone could not be asked: account: 'gone' is not in TILLGATE" in gateway.there


def test_failing_shop_is_reported_only_once(
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The difference lists its orders, and the log names the first."""
    first, second = world.paid_payment(), world.paid_payment()
    with world.failing_handler("tillgate_describe_order", times=9):
        found = only()
    assert found.here == f"2 orders: {first.order}, {second.order}"
    detail = "ShopIsDown: tillgate_describe_order was made to fail by the test"
    assert found.there == f"the shop, plugin smallest-shop, could not be asked: {detail}"
    logged = [record.getMessage() for record in caplog.records if record.exc_info]
    assert logged == [f"order {first.order} could not be described"]


def test_silent_gateway_is_not_asked_again(
    world: World,
) -> None:
    """Even a payment that has changed causes no further query."""
    changed, *_ = many(world, 6)

    def falling_silent(payment: Payment) -> Answer:
        if payment.pk != changed.pk:
            return Inconclusive(detail="connection refused")
        world.shopper_pays(payment)
        world.notification(payment)
        return ask(payment)

    found = only(ask=falling_silent, connections=1)
    assert found.here.startswith(f"6 payments: {changed.reference}, ")
    assert found.there == "the gateway of account default could not be asked: connection refused"


def test_interrupted_audit_reports_unreached_payments(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auditing, "_BATCH", 4)
    many(world, 10)
    asked: list[str] = []

    def count(payment: Payment) -> Answer:
        asked.append(payment.reference)
        return ask(payment)

    in_flight, unreached = look(ask=count, connections=1, stop=lambda: len(asked) >= 6)
    assert len(asked) == 6
    assert in_flight.here.startswith("2 payments: ")
    assert in_flight.there.endswith("the audit was ended")
    assert unreached == Difference(
        kind=DifferenceKind.NOT_ASKED,
        reference="",
        order="",
        here="2 payments",
        there="the audit was ended before it reached them",
        remedy="run the audit again",
    )


def test_stop_after_last_payment_misses_nothing(world: World) -> None:
    many(world, 3)
    asked: list[str] = []

    def count(payment: Payment) -> Answer:
        asked.append(payment.reference)
        return ask(payment)

    assert look(ask=count, connections=1, stop=lambda: len(asked) == 3) == []


# The shop says something else ---------------------------------------------------------------------


def test_shop_waiting_for_paid_money_differs(world: World) -> None:
    payment = world.paid_payment()
    ShopOrder.objects.update(status="open")
    found = only()
    assert (found.kind, found.reference) == (DifferenceKind.SHOP_WAITS, payment.reference)
    assert found.there == "the shop still waits for USD 12.50"


def test_shop_unaware_of_paid_order_differs(world: World) -> None:
    world.paid_payment()
    ShopOrder.objects.all().delete()
    assert kinds() == ["shop-unaware"]


def test_fully_refunded_order_may_sell_again(world: World) -> None:
    payment = world.paid_payment()
    queueing.refund(payment.pk, "12.50")
    ShopOrder.objects.update(status="open")
    assert look() == []


def test_closing_unpaid_order_is_no_difference(world: World) -> None:
    given_up(world)
    ShopOrder.objects.update(status="cancelled")
    assert look() == []


# Our own books ------------------------------------------------------------------------------------


def test_paid_payment_undelivered_to_shop_differs(world: World) -> None:
    with world.failing_handler("tillgate_payment_paid", times=99):
        payment = world.paid_payment()
        found = only()
        assert (found.kind, found.reference) == (DifferenceKind.NOT_DELIVERED, payment.reference)
        assert found.there.startswith("the shop was not told in 1 attempts: ShopIsDown")
        assert (found.told, "the worker tries again at " in found.remedy) == ("", True)
        for _ in range(3):
            world.time.advance(minutes=10)
            world.run_worker()
        assert world.reviews() == ["delivery-failing"]
        assert only().told.startswith("needs review since ")
    world.time.advance(hours=1)
    world.run_worker()
    assert look() == []


def test_paid_payment_without_outbox_event_differs(world: World) -> None:
    payment = world.paid_payment()
    OutboxEvent.objects.all().delete()
    assert kinds() == ["not-delivered"]
    Order.objects.update(paid_by=None)
    found = only()
    assert (found.kind, found.there) == (
        DifferenceKind.NOT_DELIVERED,
        "nothing was ever queued to tell the shop",
    )
    assert found.reference == payment.reference


def test_delivered_event_needs_paid_order(world: World) -> None:
    """An outbox event that is done differs from an order that no payment paid."""
    world.paid_payment()
    Order.objects.update(paid_by=None)
    found = only()
    assert found.kind is DifferenceKind.NOT_RECORDED
    assert found.here.endswith("and the order is paid by nothing")


def test_i4_two_payments_applied_to_order_differ(world: World) -> None:
    second = second_payment(world)
    OutboxEvent.objects.filter(payment=second).update(outcome="applied")
    found = only()
    assert (found.kind, found.reference) == (DifferenceKind.NOT_RECORDED, second.reference)


def test_i4_unreviewed_second_payment_differs(world: World) -> None:
    second = second_payment(world)
    assert look() == []
    Review.objects.all().delete()
    found = only()
    assert (found.kind, found.reference) == (DifferenceKind.NOT_SHOWN, second.reference)
    assert "(second-payment), and no person knows" in found.there


def test_order_paid_by_unpaid_payment_differs(world: World) -> None:
    payment = world.paid_payment()
    rewrite(payment, status="pending")
    assert sorted(kinds()) == ["delivered-unpaid", "paid-there", "timeline"]


def test_order_paid_by_wrong_payment_differs(world: World) -> None:
    """The payment belongs to another order."""
    payment, other = world.paid_payment(), on_the_way(world)
    rewrite(payment.order, paid_by=None)
    rewrite(other.order, paid_by=payment)
    ShopOrder.objects.update(status="paid")
    found = [
        difference for difference in look() if difference.kind is DifferenceKind.DELIVERED_UNPAID
    ]
    assert [(one.reference, one.there) for one in found] == [
        (payment.reference, f"it is a payment of order {payment.order}"),
    ]


def test_status_missing_from_timeline_differs(world: World) -> None:
    payment = on_the_way(world)
    rewrite(payment, status="created")
    found = only()
    assert (found.kind, found.there) == (
        DifferenceKind.TIMELINE,
        "the last entry of its timeline is payment.pending",
    )
    TimelineEntry.objects.all().delete()
    assert only().there == "its timeline is empty"


def test_i5_refunds_above_paid_amount_differ(world: World) -> None:
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "12.00")
    assert look() == []
    rewrite(refund, amount="12.51")
    assert kinds() == ["refunds-exceed"]


def test_refund_of_unpaid_payment_differs(world: World) -> None:
    payment = on_the_way(world)
    now = timezone.now()
    Refund.objects.create(
        payment=payment,
        amount="1.00",
        status="queued",
        created_at=now,
        status_since=now,
    )
    assert kinds() == ["refunds-exceed", "timeline"]
    assert look()[1].there == "its timeline is empty"


def test_i6_unknown_refund_differs_until_settled(
    world: World,
) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    found = only()
    assert (str(found.kind), found.there) == (
        "refund-unknown",
        "the gateway has not said whether it was done",
    )
    assert found.told.startswith("needs review since ")
    take_action(Review.objects.get().pk, "refund-done", staff="ann")
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert look() == []


def test_refund_undelivered_to_shop_differs(world: World) -> None:
    payment = world.paid_payment()
    with world.failing_handler("tillgate_refund_changed"):
        queueing.refund(payment.pk, "2.50")
    assert kinds() == ["not-delivered"]
    OutboxEvent.objects.filter(kind="refund-changed").delete()
    found = only()
    assert (found.here, found.there) == (
        "refund of USD 2.50: succeeded",
        "nothing was ever queued to tell the shop",
    )


def test_external_refund_entered_by_staff_agrees(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.refund(payment.reference, "2.50")
    external.record_external_refund(payment.pk, "2.50", staff="ann")
    assert look() == []


def test_transaction_paying_two_payments_differs(world: World) -> None:
    first, second = world.paid_payment(), world.paid_payment()
    rewrite(second, transaction_no=first.transaction_no)
    found = [
        difference for difference in look() if str(difference.kind) == "duplicate-transaction-no"
    ]
    assert [(one.reference, one.told) for one in found] == [(second.reference, "")]
    assert f"as is payment {first.reference} of order {first.order}" in found[0].here
    Review.objects.create(
        payment=first,
        reason="duplicate-transaction-no",
        facts={"detail": "x"},
        open_key="x",
        opened_at=timezone.now(),
    )
    found = [
        difference for difference in look() if str(difference.kind) == "duplicate-transaction-no"
    ]
    assert found[0].told.startswith("needs review since ")


def test_sandbox_and_live_may_share_numbers(
    world: World,
) -> None:
    """The same transaction number from a sandbox and a live gateway is no difference."""
    first, second, third = (world.paid_payment() for _ in range(3))
    Payment.objects.filter(pk=first.pk).update(sandbox=False)
    for duplicate in (second, third):
        rewrite(duplicate, transaction_no=first.transaction_no)
    found = [
        difference for difference in look() if str(difference.kind) == "duplicate-transaction-no"
    ]
    assert [one.reference for one in found] == [third.reference]
    assert f"as is payment {second.reference} of order {second.order}" in found[0].here


def test_failed_payment_may_share_transaction(world: World) -> None:
    """A transaction number shared with an unpaid payment is no difference."""
    first, second = world.paid_payment(), world.paid_payment()
    rewrite(second, transaction_no=first.transaction_no, status="failed")
    assert "duplicate-transaction-no" not in kinds()


def test_other_reviews_hide_no_shared_transaction(
    world: World,
) -> None:
    """Only a review of this very duplicate counts as known to staff."""
    first, second, other = (world.paid_payment() for _ in range(3))
    rewrite(second, transaction_no=first.transaction_no)
    raised: dict[str, Any] = {"facts": {"detail": "x"}, "opened_at": timezone.now()}
    Review.objects.create(payment=first, reason="forged-notifications", open_key="1", **raised)
    Review.objects.create(payment=other, reason="duplicate-transaction-no", open_key="2", **raised)
    found = [
        difference for difference in look() if str(difference.kind) == "duplicate-transaction-no"
    ]
    assert [(one.reference, one.told) for one in found] == [(second.reference, "")]


@contextmanager
def rows_as_they_come() -> Iterator[None]:
    """Let SQLite give unordered rows the other way round."""
    connection = connections[database()]

    def set_pragma(value: int) -> None:
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA reverse_unordered_selects = {value}")

    set_pragma(1)
    try:
        yield
    finally:
        set_pragma(0)


def test_books_are_read_in_written_order(world: World) -> None:
    payment = world.paid_payment()
    queueing.refund(payment.pk, "2.50")
    second = second_payment(world)
    with rows_as_they_come():
        assert look() == []
        Review.objects.all().delete()
        now = timezone.now()
        OutboxEvent.objects.create(
            order=second.order,
            payment=second,
            kind="payment-paid",
            created_at=now,
            due_at=now,
            done_at=now,
            outcome="not-payable",
        )
        assert "has not applied its event (not-payable)" in only().there


# Others go on -------------------------------------------------------------------------------------


def test_payment_changed_meanwhile_is_queried_again(
    world: World,
) -> None:
    payment = on_the_way(world)
    asked: list[Answer] = []

    def slow(one: Payment) -> Answer:
        if not asked:  # its answer is older than that of the notification
            world.shopper_pays(payment)
            asked.append(ask(one))
            world.notification(payment)
            return asked[0]
        asked.append(ask(one))
        return asked[-1]

    assert look(ask=slow, connections=1) == []
    assert len(asked) == 2


def test_answer_predating_refund_is_queried_again(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.set_options({"word_refunded": "refunded"})
    asked: list[Answer] = []

    def slow(one: Payment) -> Answer:
        if not asked:
            queueing.refund(payment.pk, "12.50")
        asked.append(ask(one))
        return asked[-1]

    assert look(ask=slow, connections=1) == []
    assert len(asked) == 2


def test_locked_reading_of_order_books_counts(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A difference seen without the order's lock is checked again under it."""
    world.paid_payment()
    real, readings = auditing._read, list[int]()

    def torn(order_ids: list[int]) -> Any:
        """Read a paid payment before its outbox event is there to be seen, but under the lock."""
        ledger = real(order_ids)
        readings.append(len(order_ids))
        if not connections[database()].in_atomic_block:
            ledger[0].outbox_events.clear()
        return ledger

    monkeypatch.setattr(auditing, "_read", torn)
    assert look() == []
    assert readings == [1, 1]


# It only looks ------------------------------------------------------------------------------------


@contextmanager
def every_difference(world: World) -> Iterator[None]:
    """Let nearly everything be wrong."""
    given_up(world)
    world.shopper_pays(on_the_way(world))
    world.sandbox.control.decline(on_the_way(world).reference)
    world.sandbox.control.reverse(world.paid_payment().reference)
    second_payment(world)
    Review.objects.all().delete()
    unpaid, waiting, lost = (world.paid_payment() for _ in range(3))
    rewrite(unpaid, status="pending")
    ShopOrder.objects.filter(pk=waiting.order.key).update(status="open")
    OutboxEvent.objects.filter(order=lost.order).delete()
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(world.paid_payment().pk, "2.50")
    with world.failing_handler("tillgate_payment_paid", times=9):
        world.paid_payment()
        yield


def test_audit_only_reads_and_queries(world: World) -> None:
    with every_difference(world):
        before, sent = everything(), len(world.sandbox.service.journal.all())
        found = kinds()
        assert everything() == before
    assert {
        *(
            "paid-there",
            "open-here",
            "changed-after-paid",
            "not-shown",
            "delivered-unpaid",
            "timeline",
        ),
        *("shop-waits", "not-delivered", "refund-unknown"),
    } == set(found)
    entries = world.sandbox.service.journal.all()[sent:]
    assert {entry.operation for entry in entries} == {"query"}
    world.time.advance(minutes=1)
    assert world.run_worker().news["changed"] >= 2  # the rows are still due


def test_writes_by_shop_description_are_discarded(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.paid_payment()
    real, manager = hooks.call_owner, hooks.plugin_manager()
    assert manager

    def writing(plugin: str, hook: str, **arguments: Any) -> Any:
        ShopOrder.objects.update(total="99.00")
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", writing)
    assert look() == []
    assert ShopOrder.objects.get().total == Decimal("12.50")


def test_i12_gateway_queries_run_outside_transactions(
    world: World,
    network_in_transactions: list[str],
) -> None:
    with every_difference(world):
        states: list[bool] = []

        def watched(payment: Payment) -> Answer:
            states.append(
                any(
                    connection.in_atomic_block
                    for connection in connections.all(initialized_only=True)
                ),
            )
            return ask(payment)

        for one in (1, 4):
            assert look(ask=watched, connections=one)
    assert states
    assert not any(states)
    assert network_in_transactions == []


def test_i12_inside_a_transaction_nothing_is_asked(world: World) -> None:
    world.paid_payment()
    before = world.queries()
    with transaction.atomic(), pytest.raises(InsideTransaction, match="audit uses the network"):
        look()
    assert world.queries() == before


def test_single_connection_uses_one_thread(world: World) -> None:
    many(world, 5)
    threads: set[int] = set()

    def seen(payment: Payment) -> Answer:
        threads.add(threading.get_ident())
        return ask(payment)

    look(ask=seen, connections=1)
    assert threads == {threading.get_ident()}
    look(ask=seen, connections=4)
    assert len(threads) > 1


def test_audit_respects_queries_per_second(
    world: World,
    configure: Callable[..., None],
    monkeypatch: Any,
) -> None:
    many(world, 6)
    configure(QUERIES_PER_SECOND=4)
    circuit_breaker: list[float] = []
    monkeypatch.setattr(
        calls,
        "time",
        SimpleNamespace(sleep=circuit_breaker.append, monotonic=lambda: 1000.0),
    )
    look(connections=1)
    assert circuit_breaker == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]


# Many ---------------------------------------------------------------------------------------------


def paid_in_bulk(count: int, attempts: int = 1) -> None:
    """Write so many paid orders, each with so many payments and the last of them paid, as the
    operations would have left them.
    """
    now = timezone.now()
    ShopOrder.objects.bulk_create(
        [ShopOrder(total="12.50", status="paid", times_paid=1) for _ in range(count)],
    )
    keys = ShopOrder.objects.order_by("pk").values_list("pk", flat=True)
    Order.objects.bulk_create(
        [Order(plugin="smallest-shop", key=str(key), created_at=now) for key in keys],
    )
    orders = list(Order.objects.order_by("pk"))
    payments = [
        Payment(
            order=order,
            reference=f"S{order.pk}-{attempt:013}",
            account="default",
            merchant_no="200043",
            base_url="https://pay.example",
            sandbox=True,
            method="alipay",
            terminal="ONLINE",
            amount="12.50",
            currency="USD",
            status="paid" if attempt == attempts else "failed",
            transaction_no=f"{order.pk}-{attempt}",
            created_at=now + timedelta(microseconds=order.pk // 7),  # some at the same moment
            page_closes_at=now,
            expires_at=now,
            status_since=now,
        )
        for order in orders
        for attempt in range(1, attempts + 1)
    ]
    Payment.objects.bulk_create(payments)
    payments = list(Payment.objects.order_by("pk"))
    paid = [payment for payment in payments if payment.status == "paid"]
    for order, payment in zip(orders, paid, strict=True):
        order.paid_by = payment
    Order.objects.bulk_update(orders, ["paid_by"], batch_size=200)
    shared: Any = {
        "created_at": now,
        "done_at": now,
        "attempts": 1,
        "kind": "payment-paid",
        "outcome": "applied",
    }
    OutboxEvent.objects.bulk_create(
        [OutboxEvent(order_id=one.order_id, payment=one, **shared) for one in paid],
    )
    told: Any = {"at": now, "actor": "test", "message": "as it was"}
    entries = [
        TimelineEntry(order_id=one.order_id, payment=one, event=f"payment.{one.status}", **told)
        for one in payments
    ]
    TimelineEntry.objects.bulk_create(entries)


@contextmanager
def counted_in_memory() -> Iterator[list[int]]:
    """Give the number of payments in memory: now, and at most."""
    counts = [0, 0]

    def begin(instance: Payment, **_: Any) -> None:
        counts[0] += 1
        counts[1] = max(counts)
        weakref.finalize(instance, end)

    def end() -> None:
        counts[0] -= 1

    post_init.connect(begin, sender=Payment)
    try:
        yield counts
    finally:
        post_init.disconnect(begin, sender=Payment)


def test_each_payment_is_queried_only_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batch limits and equal start times do not skip or repeat a payment."""
    monkeypatch.setattr(auditing, "_BATCH", 2)
    paid_in_bulk(9)
    now = timezone.now()
    for place, payment in enumerate(Payment.objects.order_by("pk")):
        rewrite(
            payment,
            created_at=now - timedelta(minutes=place // 4),
            next_poll_at=now - timedelta(minutes=place),
        )
    asked: list[str] = []
    heard: list[tuple[int, int]] = []

    def answer(payment: Payment) -> Answer:
        asked.append(payment.reference)
        return saying()(payment)

    def hear(audited: Audited) -> None:
        heard.append((audited.payments, audited.compared))

    assert look(ask=answer, connections=1, progress=hear, stop=lambda: len(asked) > 20) == []
    assert asked == list(
        Payment.objects.order_by("created_at", "pk").values_list("reference", flat=True),
    )
    assert heard == [(2, 2), (4, 4), (6, 6), (8, 8), (9, 9), (9, 9)]


def test_memory_holds_few_payment_batches(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auditing, "_BATCH", 5)
    paid_in_bulk(80)
    with counted_in_memory() as counts:
        assert look(ask=saying(), connections=1) == []
    assert 5 < counts[1] < 60


@pytest.mark.once
def test_thousands_of_payments_fit_in_batches(
    world: World,
) -> None:
    """The payments are never all in memory together."""
    paid_in_bulk(400, attempts=5)
    late = set(
        Payment.objects.filter(status="failed")
        .order_by("pk")
        .values_list("reference", flat=True)[::400],
    )
    asked: Counter[str] = Counter()
    heard: list[int] = []

    def answer(payment: Payment) -> Answer:
        asked[payment.reference] += 1
        is_paid = payment.status == "paid" or payment.reference in late
        return (
            saying()(payment)
            if is_paid
            else saying(status=TransactionStatus.FAILED, status_text="failed")(payment)
        )

    with counted_in_memory() as counts:
        found = look(
            ask=answer,
            connections=1,
            progress=lambda audited: heard.append(audited.payments),
        )
    assert {one.reference for one in found if one.kind is DifferenceKind.PAID_THERE} == late
    assert len(found) == len(late) == 4
    assert len(asked) == 2_000
    assert set(asked.values()) == {1}
    assert heard == [*range(200, 2_001, 200), 2_000]
    assert 200 < counts[1] < 1_500


def test_larger_batch_needs_no_more_statements(
    world: World,
    django_assert_max_num_queries: Any,
) -> None:
    """Only describing each order needs statements of its own."""
    paid_in_bulk(30)
    descriptions = 30 * 3  # of orders: each in a transaction of its own
    with django_assert_max_num_queries(descriptions + 20):
        assert look(ask=saying(), connections=1) == []
