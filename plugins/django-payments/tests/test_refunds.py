"""Refunds through the library's own `payment.refund()`: the row shows the money that has moved,
once, even after the library's writes.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from django.db import transaction
from payments import PaymentError

from tests.shop.models import CardPayment, Entry, Order, Payment
from tests.test_provider import attempt_of, bill
from tests.test_rows import bought, listening, started
from tillgate.django.models import Refund
from tillgate.django.refunds import queueing
from tillgate.django.refunds.settling import settle_by_staff, withdraw
from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.testing.crashes import Crash, Points
from tillgate.testing.world import World, together
from tillgate_django_payments.provider import REFUND_REFUSED, REFUND_UNKNOWN, TillgateProvider


def stands(payment: Any) -> tuple[str, Decimal]:
    """Return how the row stands."""
    row: tuple[str, Decimal] = Payment.objects.values_list("status", "captured_amount").get(
        pk=payment.pk,
    )
    return row


def agrees(world: World, payment: Any, refunded_amount: str) -> None:
    """Demand that the gateway, the shop's books and the row say the same."""
    expected = Decimal(refunded_amount)
    assert world.refunded_amount(attempt_of(payment)) == expected
    assert world.shop.refunded(str(payment.pk)) == expected


def test_partial_refund_is_taken_off_once(world: World) -> None:
    """The copy in memory shows it too."""
    payment = bought(world)
    payment.refund(Decimal("5.00"))
    assert stands(payment) == ("confirmed", Decimal("7.50"))
    assert (payment.status, payment.captured_amount) == stands(payment)
    agrees(world, payment, "5.00")
    assert Entry.objects.filter(money__lt=0).count() == 1


def test_partial_refunds_can_return_everything(world: World) -> None:
    """Nothing is left to refund afterwards."""
    payment = bought(world)
    for part in ("0.01", "4.99", "7.50"):
        payment.refund(Decimal(part))
    assert (payment.status, stands(payment)) == ("refunded", ("refunded", Decimal("0.00")))
    agrees(world, payment, "12.50")
    assert [entry.status for entry in Entry.objects.exclude(status="")] == ["confirmed", "refunded"]
    with pytest.raises(ValueError, match="Only charged payments"):
        payment.refund(Decimal("0.01"))


def test_refund_without_amount_returns_the_rest(world: World) -> None:
    payment = bought(world)
    payment.refund(Decimal("2.50"))
    payment.refund()
    assert stands(payment) == ("refunded", Decimal("0.00"))
    agrees(world, payment, "12.50")


def test_old_row_copy_overwrites_nothing(world: World) -> None:
    payment = bought(world)
    old = Payment.objects.get(pk=payment.pk)
    payment.refund(Decimal("5.00"))
    old.refund(Decimal("2.50"))
    assert (stands(payment), old.captured_amount) == (
        ("confirmed", Decimal("5.00")),
        Decimal("5.00"),
    )
    agrees(world, payment, "7.50")


def test_concurrent_refund_survives_library_save(
    world: World,
) -> None:
    """It happens between the provider's answer and the library's save."""
    payment = bought(world)
    held = attempt_of(payment)
    refunded_amount = TillgateProvider().refund(payment, Decimal("2.50"))
    queueing.refund(held.pk, "5.00")
    payment.captured_amount -= refunded_amount  # as `BasePayment.refund` goes on
    payment.save()
    assert stands(payment) == ("confirmed", Decimal("5.00"))
    agrees(world, payment, "7.50")


def test_what_the_shop_saves_afterwards_is_saved(world: World) -> None:
    payment = bought(world)
    TillgateProvider().refund(payment, Decimal("2.50"))
    payment.billing_city, payment.captured_amount = "Springfield", Decimal("99.00")
    payment.save()
    assert stands(payment) == ("confirmed", Decimal("10.00"))
    payment.refresh_from_db()
    assert payment.billing_city == "Springfield"
    payment.message = "sent by mail"
    payment.save()
    payment.refresh_from_db()
    assert payment.message == "sent by mail"


def test_partly_loaded_copy_saves_loaded_fields(world: World) -> None:
    bought(world)
    payment = Payment.objects.defer("billing_city").get()
    Payment.objects.update(billing_city="Springfield")
    payment.refund(Decimal("2.50"))
    assert payment.get_deferred_fields() == {"billing_city"}
    assert Payment.objects.get().billing_city == "Springfield"


def test_refund_receivers_changes_are_kept(world: World) -> None:
    """A signal receiver may write to the row once the money has gone back."""
    payment = bought(world)

    def note(instance: Payment, **_: Any) -> None:
        instance.billing_city = "Springfield"
        instance.save()

    with listening(note):
        payment.refund()
    assert (payment.billing_city, Payment.objects.get().billing_city) == (
        "Springfield",
        "Springfield",
    )


def test_unsaved_shop_changes_are_saved_too(
    world: World,
) -> None:
    """The library saves them together with the refund."""
    payment = bought(world)
    payment.billing_city = "Springfield"
    payment.refund(Decimal("2.50"))
    assert Payment.objects.get().billing_city == "Springfield"


def test_unconfirmed_row_cannot_be_refunded(
    world: World,
) -> None:
    """The copy in memory is old and still says confirmed."""
    payment = bought(world)
    Payment.objects.update(status="error", billing_city="Springfield")
    with pytest.raises(PaymentError, match="status is “Error”"):
        payment.refund()
    assert not Refund.objects.exists()
    assert Payment.objects.get().billing_city == "Springfield"


def test_missing_row_cannot_be_refunded(world: World) -> None:
    payment = bought(world)
    Payment.objects.filter(pk=payment.pk).delete()
    with pytest.raises(PaymentError, match="nothing can be refunded here"):
        payment.refund(Decimal("5.00"))
    assert not Refund.objects.exists()


def test_simultaneous_refunds_cannot_exceed_payment(world: World) -> None:
    payment = bought(world)
    copies = [Payment.objects.get(pk=payment.pk) for _ in range(2)]
    done = together(*[lambda copy=copy: copy.refund(Decimal("8.00")) for copy in copies])
    assert sorted(isinstance(one, PaymentError) for one in done) == [False, True], done
    assert stands(payment) == ("confirmed", Decimal("4.50"))
    agrees(world, payment, "8.00")


@pytest.mark.parametrize("amount", [Decimal(0), Decimal("-1.00"), Decimal("0.001"), 2.5])
def test_invalid_amount_sends_no_refund(
    world: World,
    amount: Any,
) -> None:
    payment = bought(world)
    with pytest.raises(PaymentError, match="amount: "):
        payment.refund(amount)
    assert not Refund.objects.exists()
    assert stands(payment) == ("confirmed", Decimal("12.50"))


def test_other_providers_payment_is_not_refunded(world: World) -> None:
    payment = bill(status="confirmed", captured_amount=Decimal("12.50"))
    with pytest.raises(PaymentError, match="was not paid with Tillgate"):
        payment.refund()
    assert stands(payment) == ("confirmed", Decimal("12.50"))


# When it does not simply succeed ------------------------------------------------------------------


def test_unknown_outcome_waits_for_staff(
    world: World,
) -> None:
    """It raises an error, and nothing is taken off until staff settle it."""
    payment = bought(world)
    world.sandbox.control.fault("lost_response", occasion="refund")
    with pytest.raises(PaymentError, match=r"It is not known whether USD 5\.00") as told:
        payment.refund(Decimal("5.00"))
    assert told.value.code == REFUND_UNKNOWN
    assert (payment.captured_amount, stands(payment)) == (
        Decimal("12.50"),
        ("confirmed", Decimal("12.50")),
    )
    assert Payment.objects.get().message.startswith("It is not known whether USD 5.00")
    with pytest.raises(PaymentError, match=r"more than the USD 7\.50"):
        payment.refund(Decimal("8.00"))
    settle_by_staff(Refund.objects.get().pk, done=True, staff="ann")
    assert stands(payment) == ("confirmed", Decimal("7.50"))
    agrees(world, payment, "5.00")


@pytest.mark.parametrize(("outcome", "left"), [("succeeded", "7.50"), ("failed", "12.50")])
def test_accepted_refund_counts_when_it_succeeds(
    world: World,
    outcome: str,
    left: str,
) -> None:
    """The gateway accepts the refund first and finishes it later."""
    world.configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    world.sandbox.control.set_options({"refund_outcome": "pending", "refund_info": "status"})
    payment = bought(world)
    payment.refund(Decimal("5.00"))
    assert (payment.captured_amount, stands(payment)) == (
        Decimal("12.50"),
        ("confirmed", Decimal("12.50")),
    )
    with pytest.raises(PaymentError, match=r"more than the USD 7\.50"):
        payment.refund(Decimal("8.00"))
    world.sandbox.control.finish_refund(attempt_of(payment).reference, outcome)
    world.a_day_passes()
    assert stands(payment) == ("confirmed", Decimal(left))
    assert world.reviews() == []


def test_portal_refund_is_taken_off_once(world: World) -> None:
    world.configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    payment = bought(world)
    world.sandbox.control.refund(attempt_of(payment).reference, "5.00")
    for _ in range(2):
        world.time.advance(days=8)
        world.run_worker()
    assert stands(payment) == ("confirmed", Decimal("7.50"))
    agrees(world, payment, "5.00")


def test_refused_refund_can_be_tried_again(world: World) -> None:
    """The refusal raises an error and takes nothing off."""
    payment = bought(world)
    world.sandbox.control.fault("refused", occasion="refund")
    with pytest.raises(PaymentError, match="the payment service refused") as told:
        payment.refund()
    assert told.value.code == REFUND_REFUSED
    assert stands(payment) == ("confirmed", Decimal("12.50"))
    payment.refund()
    agrees(world, payment, "12.50")


def test_unsent_refund_counts_once_sent(
    world: World,
    settings: Any,
) -> None:
    payment = bought(world)
    accounts = settings.TILLGATE["ACCOUNTS"]
    settings.TILLGATE = settings.TILLGATE | {"ACCOUNTS": {}}
    payment.refund(Decimal("5.00"))
    assert (payment.captured_amount, stands(payment)) == (
        Decimal("12.50"),
        ("confirmed", Decimal("12.50")),
    )
    settings.TILLGATE = settings.TILLGATE | {"ACCOUNTS": accounts}
    world.a_day_passes()
    assert stands(payment) == ("confirmed", Decimal("7.50"))
    agrees(world, payment, "5.00")


def test_withdrawn_refund_is_not_called_refused(
    world: World,
    settings: Any,
) -> None:
    """The same holds for a refund that staff found not done."""
    payment, given = bought(world), settings.TILLGATE
    settings.TILLGATE = given | {"ACCOUNTS": {}}  # so it waits
    payment.refund(Decimal("5.00"))
    withdraw(Refund.objects.get().pk, staff="ann")
    settings.TILLGATE = given
    assert Payment.objects.get().message == "USD 5.00 was not refunded."
    world.sandbox.control.fault("lost_response", occasion="refund")
    with pytest.raises(PaymentError, match="It is not known"):
        payment.refund(Decimal("2.50"))
    settle_by_staff(Refund.objects.latest("pk").pk, done=False, staff="ann")
    assert Payment.objects.get().message == "USD 2.50 was not refunded."


def test_retried_event_takes_money_off_once(
    world: World,
) -> None:
    payment = bought(world)
    with world.failing_handler("tillgate_refund_changed", late=True):
        payment.refund()
        assert stands(payment) == ("confirmed", Decimal("12.50"))
        assert payment.captured_amount == Decimal("12.50")
    world.a_day_passes()
    assert stands(payment) == ("refunded", Decimal("0.00"))
    agrees(world, payment, "12.50")


def test_crash_leaves_row_and_gateway_agreed(
    world: World,
) -> None:
    """The process may die at any step of a refund."""
    for number in count(1):
        payment = bought(world)
        with Points(number).installed() as points, suppress(Crash):
            payment.refund(Decimal("5.00"))
        for ahead in ({"seconds": 15}, {"minutes": 20}):
            world.time.advance(**ahead)
            assert world.run_worker().faults == []
        refunded_amount, (_, left) = world.refunded_amount(attempt_of(payment)), stands(payment)
        asked = Refund.objects.filter(payment=attempt_of(payment)).first()
        if asked is not None and asked.status == "unknown":
            assert left == Decimal("12.50"), "taken off, and nobody knows"
        else:
            assert left == Decimal("12.50") - refunded_amount
        if not points.has_ended:
            assert number > 5, "hardly anything was written or sent: this proves nothing"
            return


# Inside the shop's transaction --------------------------------------------------------------------


def test_refund_waits_for_transaction_commit(
    world: World,
) -> None:
    """Nothing is sent or taken off before that."""
    payment = bought(world)
    with transaction.atomic():
        Payment.objects.select_for_update().get(pk=payment.pk)
        payment.refund(Decimal("5.00"))
        assert (payment.captured_amount, stands(payment)) == (
            Decimal("12.50"),
            ("confirmed", Decimal("12.50")),
        )
        assert world.refunded_amount(attempt_of(payment)) == 0
    assert stands(payment) == ("confirmed", Decimal("7.50"))
    agrees(world, payment, "5.00")


def test_rolled_back_refund_returns_nothing(world: World) -> None:
    payment = bought(world)
    with transaction.atomic():
        payment.refund()
        transaction.set_rollback(True)
    world.a_day_passes()
    assert not Refund.objects.exists()
    assert stands(payment) == ("confirmed", Decimal("12.50"))


def test_unknown_outcome_in_transaction_tells_staff(
    world: World,
) -> None:
    """The row and a review report it, and nothing is taken off."""
    payment = bought(world)
    world.sandbox.control.fault("lost_response", occasion="refund")
    with transaction.atomic():
        payment.refund()
    row = Payment.objects.get()
    assert (row.status, row.captured_amount) == ("confirmed", Decimal("12.50"))
    assert row.message.startswith("It is not known whether USD 12.50")
    assert world.reviews() == ["refund-unknown"]


# Money that the row never held --------------------------------------------------------------------


def test_second_payment_refund_spares_row(world: World) -> None:
    payment = bill(variant="online")
    first, second = world.start(str(payment.pk)), world.start(str(payment.pk), "paypal")
    for attempt in (first, second):
        world.shopper_pays(attempt)
        world.notification(attempt)
    assert world.reviews() == ["second-payment"]
    assert queueing.refund(second.pk, "12.50").status == "succeeded"
    assert (*stands(payment), Payment.objects.get().message) == ("confirmed", Decimal("12.50"), "")


def test_late_payment_refund_leaves_row_unchanged(
    world: World,
) -> None:
    payment = bill(variant="online")
    attempt = world.start(str(payment.pk))
    payment.cancel()
    world.shopper_pays(attempt)
    world.notification(attempt)
    assert queueing.refund(attempt.pk, "12.50").status == "succeeded"
    assert (*stands(payment), Payment.objects.get().message) == ("cancelled", Decimal("0.00"), "")


def test_i5_extended_payment_model_refunds_once(world: World) -> None:
    """The payment model has fields of its own."""
    card = CardPayment.objects.create(
        order=Order.objects.create(),
        variant="alipay",
        total=Decimal("12.50"),
        currency="USD",
    )
    attempt = started(world, card)
    world.shopper_pays(attempt)
    world.notification(attempt)
    card = CardPayment.objects.get()
    card.last_digits = "1881"
    card.refund(Decimal("5.00"))
    assert world.refunded_amount(attempt) == Decimal("5.00")
    assert (CardPayment.objects.get().last_digits, stands(card)) == (
        "1881",
        ("confirmed", Decimal("7.50")),
    )


@pytest.mark.parametrize("is_unknown", [False, True])
def test_full_refund_excludes_refunds_under_way(
    world: World,
    is_unknown: bool,
) -> None:
    """The rest is refunded while another refund is still under way."""
    payment = bought(world)
    if is_unknown:
        world.sandbox.control.fault("lost_response", occasion="refund")
        with pytest.raises(PaymentError):
            payment.refund(Decimal("5.00"))
        Payment.objects.get().refund()
    else:
        with transaction.atomic():
            payment.refund(Decimal("5.00"))
            payment.refund()
    assert world.refunded_amount(attempt_of(payment)) == Decimal("12.50")
    assert [row.amount for row in Refund.objects.order_by("pk")] == [
        Decimal("5.00"),
        Decimal("7.50"),
    ]


def test_refund_leaves_row_waiting_elsewhere(
    world: World,
) -> None:
    """The row already waits for another provider."""
    payment = bought(world)
    Payment.objects.update(status="waiting", variant="invoice")
    queueing.refund(attempt_of(payment).pk, "12.50")
    assert stands(payment) == ("waiting", Decimal(0))
