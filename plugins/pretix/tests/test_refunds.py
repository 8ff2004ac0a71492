"""Money refunded: asked for in pretix, at Tillgate or at the payment service itself."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core import mail
from django.db import OperationalError, transaction
from django.test import Client
from django.urls import reverse
from pretix.base.models import OrderPayment, OrderRefund
from pretix.base.payment import PaymentException
from pretix.base.services.orders import cancel_order
from pretix.base.shredder import PaymentInfoShredder

from tests.shopping import at, bought, newest_payment, order_of, refunds_of, staff
from tests.test_paying import expired, underpaid
from tillgate import Refunded, hooks, shop
from tillgate.django.models import Refund, Review
from tillgate.django.refunds import sending
from tillgate.django.refunds.sending import mark_lost
from tillgate.hooks import RefundOutcome
from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.testing.world import World
from tillgate.wire import signing
from tillgate_pretix.orders import REVIEW_LOGGED


def asked_for(order: Any, amount: str, payment: Any = None) -> Any:
    """Return a refund as pretix makes it before it asks the provider."""
    theirs = payment or newest_payment(order)
    with at(order):
        return order.refunds.create(
            payment=theirs,
            provider=theirs.provider,
            amount=Decimal(amount),
            state=OrderRefund.REFUND_STATE_CREATED,
            source="admin",
        )


def refunded_amount(order: Any, amount: str, payment: Any = None) -> Any:
    """Let pretix refund part of a payment; return its refund."""
    refund = asked_for(order, amount, payment)
    with at(order):
        refund.payment_provider.execute_refund(refund)
    return refund


def test_parts_are_given_back_one_after_the_other_until_the_payment_is_refunded(
    world: World,
) -> None:
    order, payment = bought(world)
    theirs = newest_payment(order)
    with at(order):
        assert theirs.payment_provider.payment_refund_supported(theirs)
        assert theirs.payment_provider.payment_partial_refund_supported(theirs)
    for amount in ("2.50", "10.00"):
        assert refunded_amount(order, amount).state == OrderRefund.REFUND_STATE_DONE
    assert refunds_of(order) == [("2.50", "done"), ("10.00", "done")]
    assert world.refunded_amount(payment) == Decimal("12.50")
    assert newest_payment(order).state == OrderPayment.PAYMENT_STATE_REFUNDED


def test_staff_gives_money_back_on_pretixs_own_page(world: World) -> None:
    order, payment = bought(world)
    theirs = newest_payment(order)
    browser = staff(world, "event.orders:read", "event.orders:write")
    page = f"/control/event/org/conf/orders/{order.code}/refund"
    asked = {
        "start-mode": "partial",
        "start-partial_amount": "5.00",
        "start-action": "do_nothing",
        f"refund-{theirs.pk}": "5.00",
        "perform": "true",
    }
    assert browser.post(page, asked).status_code == 302
    assert refunds_of(order) == [("5.00", "done")]
    assert world.refunded_amount(payment) == Decimal("5.00")


def test_more_than_is_left_is_refused_and_nothing_is_sent(world: World) -> None:
    order, payment = bought(world)
    refunded_amount(order, "10.00")
    with pytest.raises(PaymentException, match=r"more than the USD 2\.50"):
        refunded_amount(order, "10.00")
    assert world.refunded_amount(payment) == Decimal("10.00")


def test_a_refund_that_the_service_refuses_fails_and_may_be_asked_for_again(world: World) -> None:
    order, payment = bought(world)
    world.sandbox.control.fault("refused", occasion="refund")
    with pytest.raises(PaymentException, match="refused the refund"):
        refunded_amount(order, "5.00")
    assert refunds_of(order) == [("5.00", "failed")]
    assert mailed() == []
    refunded_amount(order, "5.00")
    assert world.refunded_amount(payment) == Decimal("5.00")


def test_refund_executed_twice_is_sent_once(world: World) -> None:
    order, payment = bought(world)
    refund = refunded_amount(order, "5.00")
    with at(order):
        refund.payment_provider.execute_refund(refund)
    assert refunds_of(order) == [("5.00", "done")]
    assert world.refunded_amount(payment) == Decimal("5.00")


def test_a_payment_that_was_not_made_here_is_not_given_back_here(world: World) -> None:
    order = order_of(world, world.order())
    theirs = newest_payment(order)
    with at(order):
        theirs.confirm()
        assert not theirs.payment_provider.payment_refund_supported(theirs)
    with pytest.raises(PaymentException, match="not made through Tillgate"):
        refunded_amount(order, "5.00", theirs)


@pytest.mark.parametrize(
    "place",
    ["tillgate.django.refunds.queueing.record", "pretix.base.models.OrderRefund.save"],
)
def test_trouble_of_the_database_leaves_nothing_in_transit_that_is_not_queued(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    def trouble(*_arguments: Any, **_named: Any) -> None:
        raise OperationalError("canceling statement due to lock timeout")

    order, payment = bought(world)
    refund = asked_for(order, "5.00")
    with monkeypatch.context() as patched, at(order):
        patched.setattr(place, trouble)
        with pytest.raises(OperationalError):
            refund.payment_provider.execute_refund(refund)
    world.a_day_passes()
    assert refunds_of(order) == [("5.00", "created")]
    assert not Refund.objects.exists()
    assert world.refunded_amount(payment) == 0


# Mail to the shopper ------------------------------------------------------------------------------


def mailed() -> list[str]:
    """Return the subjects of the mails about refunds."""
    return [
        subject
        for one in mail.outbox
        if "Refund" in (subject := str(one.subject)) or "Erstattung" in subject
    ]


def test_the_shopper_is_mailed_about_each_refund_once_in_the_language_of_the_order(
    world: World,
) -> None:
    order, payment = bought(world)
    order.locale = "de"
    order.save(update_fields=["locale"])
    refunded_amount(order, "5.00")
    world.gateway_notification(payment, "refund")
    world.a_day_passes()
    assert mailed() == [f"[TESTMODE] Erstattung zu Ihrer Bestellung {order.code}"]
    assert "5,00" in str(mail.outbox[-1].body)
    assert mail.outbox[-1].to == [order.email]
    shop.refund(str(payment.pk), Decimal("7.50"))  # external to pretix
    assert len(mailed()) == 2
    page = staff(world, "event.orders:read").get(
        f"/control/event/org/conf/orders/{order.code}/mail_history",
    )
    assert page.content.decode().count("The shopper was mailed about a refund.") == 2


# Nobody knows -------------------------------------------------------------------------------------


def unknown(world: World) -> tuple[Any, Any, Any]:
    """Return an order, its payment, and pretix's refund of which nobody knows what became."""
    order, payment = bought(world)
    world.sandbox.control.fault("lost_response", occasion="refund")
    return order, payment, refunded_amount(order, "5.00")


def test_a_refund_of_which_nobody_knows_what_became_stays_in_transit(world: World) -> None:
    order, payment, refund = unknown(world)
    assert refund.state == OrderRefund.REFUND_STATE_TRANSIT
    world.a_day_passes()
    assert refunds_of(order) == [("5.00", "transit")]
    assert world.refunded_amount(payment) == Decimal("5.00"), "it was sent again"
    assert world.reviews() == ["refund-unknown"]


def test_staff_who_marks_it_done_in_pretix_settles_it(world: World) -> None:
    order, _, refund = unknown(world)
    staff(world, "event.orders:read", "event.orders:write").post(
        f"/control/event/org/conf/orders/{order.code}/refunds/{refund.pk}/done",
    )
    assert refunds_of(order) == [("5.00", "done")]
    assert [row.status for row in Refund.objects.all()] == ["succeeded"]
    assert world.reviews() == []


def test_staff_who_cancels_it_in_pretix_settles_it_too_and_may_ask_again(world: World) -> None:
    order, payment = bought(world)
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = refunded_amount(order, "12.50")
    staff(world, "event.orders:read", "event.orders:write").post(
        f"/control/event/org/conf/orders/{order.code}/refunds/{refund.pk}/cancel",
    )
    assert refunds_of(order) == [("12.50", "canceled")]
    assert [row.status for row in Refund.objects.all()] == ["failed"]
    assert world.reviews() == []
    refunded_amount(order, "12.50")
    assert world.refunded_amount(payment) == Decimal("12.50")


def test_the_services_notification_settles_it_in_pretix(world: World) -> None:
    order, payment, _ = unknown(world)
    world.gateway_notification(payment, "refund")
    assert refunds_of(order) == [("5.00", "done")]


def test_one_that_is_settled_as_not_done_fails_in_pretix(world: World) -> None:
    order, _, _ = unknown(world)
    shop.settle_refund(str(Refund.objects.get().pk), done=False, staff="ann")
    assert refunds_of(order) == [("5.00", "failed")]


# Accepted, not finished ---------------------------------------------------------------------------


def accepted(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Return an order, its payment, and pretix's refund that the service has accepted and not
    finished.
    """
    order, payment = bought(world)
    pending = Refunded(
        reference="x",
        amount=Decimal("5.00"),
        ret_msg="accepted",
        outcome=RefundOutcome.PENDING,
        refund_no="88",
    )
    with monkeypatch.context() as patched:
        patched.setattr(hooks, "refund", lambda account, request: pending)
        refund = refunded_amount(order, "5.00")
    assert refunds_of(order) == [("5.00", "transit")]
    return order, payment, refund


def ended(world: World, monkeypatch: pytest.MonkeyPatch, outcome: RefundOutcome) -> None:
    """Let the service finish the refund, and the worker ask about it."""
    answer = Refunded(
        reference="x",
        amount=Decimal("5.00"),
        ret_msg=f"it is {outcome}",
        outcome=outcome,
    )
    monkeypatch.setattr(hooks, "query_refund", lambda account, request, refund_no: answer)
    world.a_day_passes()


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(RefundOutcome.SUCCEEDED, "done"), (RefundOutcome.FAILED, "failed")],
)
def test_one_that_the_service_has_accepted_is_in_transit_until_it_ends(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: RefundOutcome,
    state: str,
) -> None:
    order, _, _ = accepted(world, monkeypatch)
    assert mailed() == []
    ended(world, monkeypatch, outcome)
    assert refunds_of(order) == [("5.00", state)]
    assert len(mailed()) == (state == "done")


def test_staff_who_marks_an_accepted_one_as_done_settles_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, _, refund = accepted(world, monkeypatch)
    pressed(world, order, refund, "done")
    assert refunds_of(order) == [("5.00", "done")]
    assert [row.status for row in Refund.objects.all()] == ["succeeded"]


def test_i5_staff_cannot_cancel_one_that_the_service_has_accepted(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, _, refund = accepted(world, monkeypatch)
    pressed(world, order, refund, "cancel")
    assert refunds_of(order) == [("5.00", "transit")]
    assert [row.status for row in Refund.objects.all()] == ["pending"]
    with at(order):
        assert order.all_logentries().filter(action_type=REVIEW_LOGGED).exists()
    ended(world, monkeypatch, RefundOutcome.SUCCEEDED)
    assert refunds_of(order) == [("5.00", "done")]


# Not sent yet -------------------------------------------------------------------------------------


def queued(world: World) -> tuple[Any, Any, Any]:
    """Return an order, its payment, and pretix's refund that could not be sent yet."""
    order, payment = bought(world)
    world.configure({"TOKEN": ""})
    refund = refunded_amount(order, "12.50")
    world.configure()
    return order, payment, refund


@pytest.mark.parametrize(("press", "state"), [("cancel", "canceled"), ("done", "done")])
def test_one_that_waits_to_be_sent_never_leaves_once_staff_has_decided_about_it_in_pretix(
    world: World,
    press: str,
    state: str,
) -> None:
    order, payment, refund = queued(world)
    page = f"/control/event/org/conf/orders/{order.code}/refunds/{refund.pk}/{press}"
    staff(world, "event.orders:read", "event.orders:write").post(page)
    world.a_day_passes()
    assert world.refunded_amount(payment) == 0
    assert [row.status for row in Refund.objects.all()] == ["failed"]
    assert refunds_of(order) == [("12.50", state)]


def pressed(world: World, order: Any, refund: Any, press: str) -> None:
    """Let staff decide about a refund on pretix's page."""
    page = f"/control/event/org/conf/orders/{order.code}/refunds/{refund.pk}/{press}"
    assert staff(world, "event.orders:read", "event.orders:write").post(page).status_code == 302


@pytest.mark.parametrize(("press", "state"), [("cancel", "canceled"), ("done", "done")])
def test_i5_one_that_could_not_be_sent_at_the_moment_when_staff_decided_never_leaves(
    world: World,
    press: str,
    state: str,
) -> None:
    order, payment, refund = queued(world)
    ours = Refund.objects.all()
    ours.update(status="sending")
    pressed(world, order, refund, press)
    ours.update(status="queued")
    world.a_day_passes()
    assert world.refunded_amount(payment) == 0
    assert [row.status for row in ours] == ["failed"]
    assert refunds_of(order) == [("12.50", state)]
    assert world.reviews() == []


@pytest.mark.parametrize(("press", "state"), [("cancel", "canceled"), ("done", "done")])
def test_i5_one_that_waits_never_leaves_though_the_process_of_the_staffs_page_dies(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    press: str,
    state: str,
) -> None:
    order, payment, refund = queued(world)
    with monkeypatch.context() as patched:
        patched.setattr("tillgate.shop.deliver_remote", lambda *_: 0)
        pressed(world, order, refund, press)
    world.a_day_passes()
    assert world.refunded_amount(payment) == 0
    assert [row.status for row in Refund.objects.all()] == ["failed"]
    assert refunds_of(order) == [("12.50", state)]


@pytest.mark.parametrize("press", ["cancel", "done"])
def test_one_that_leaves_while_staff_decide_is_done_and_the_history_says_so(
    world: World,
    press: str,
) -> None:
    order, payment, refund = queued(world)
    ours = Refund.objects.get()
    Refund.objects.update(status="sending")
    pressed(world, order, refund, press)
    Refund.objects.update(status="queued")
    sending.send_refund(ours.pk)
    world.a_day_passes()
    assert world.refunded_amount(payment) == Decimal("12.50")
    assert refunds_of(order) == [("12.50", "done")]
    assert sum("the shopper has it twice" in message for message in history_of(order)) == (
        press == "done"
    )


def history_of(order: Any) -> list[str]:
    with at(order):
        return [
            entry.parsed_data["message"]
            for entry in order.all_logentries().filter(action_type=REVIEW_LOGGED)
        ]


@pytest.mark.parametrize("press", ["cancel", "done"])
@pytest.mark.parametrize("minutes", [0, 14])
def test_i6_of_one_whose_outcome_was_unknown_only_afterwards_staff_have_not_said_what_became(
    world: World,
    press: str,
    minutes: int,
) -> None:
    order, _, refund = queued(world)
    ours = Refund.objects.get()
    Refund.objects.update(status="sending", status_since=shop.now())
    pressed(world, order, refund, press)
    for _ in range(minutes):
        world.time.advance(minutes=1)
        world.run_worker()
    mark_lost(ours.pk)
    world.a_day_passes()
    assert [row.status for row in Refund.objects.all()] == ["unknown"]
    assert world.reviews() == ["refund-unknown"]
    assert not Review.objects.filter(reason="delivery-failing").exists()
    assert sum("the shopper has it twice" in message for message in history_of(order)) == (
        press == "done"
    )


@pytest.mark.parametrize("press", ["cancel", "done"])
def test_i5_one_that_comes_back_unsent_just_when_the_decision_is_carried_out_never_leaves(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    press: str,
) -> None:
    order, payment, refund = queued(world)
    Refund.objects.update(status="sending", status_since=shop.now())

    def too_early(*_: Any, **__: Any) -> None:
        Refund.objects.update(status="queued")
        raise shop.RefundNotPossible("it is being sent")

    with monkeypatch.context() as patched:
        patched.setattr("tillgate.shop.withdraw_refund", too_early)
        pressed(world, order, refund, press)
    world.a_day_passes()
    assert world.refunded_amount(payment) == 0
    assert [row.status for row in Refund.objects.all()] == ["failed"]


def test_i5_one_that_has_succeeded_stays_done_when_staff_cancel_what_they_saw_in_transit(
    world: World,
) -> None:
    order, payment, refund = unknown(world)
    with at(order):
        stale = order.refunds.get(pk=refund.pk)
        world.gateway_notification(payment, "refund")
        # as pretix does it, which has read it before the notification came
        stale.state = OrderRefund.REFUND_STATE_CANCELED
        stale.save(update_fields=["state"])
    assert refunds_of(order) == [("5.00", "done")]
    assert len(mailed()) == 1


def test_one_made_elsewhere_that_staff_ignore_stays_as_they_decided(world: World) -> None:
    order, payment = bought(world)
    shop.refund(str(payment.pk), Decimal("5.00"))
    with at(order):
        external = order.refunds.get()
        external.state = OrderRefund.REFUND_STATE_CANCELED
        external.save(update_fields=["state"])
    assert refunds_of(order) == [("5.00", "canceled")]


@pytest.mark.parametrize("press", ["cancel", "done"])
def test_one_that_waits_and_that_a_notification_has_confirmed_is_done_whatever_staff_pressed(
    world: World,
    press: str,
) -> None:
    order, payment, refund = queued(world)
    address = reverse("tillgate:refund-notification", args=[Refund.objects.get().notification_key])
    fields = {
        "transactionNo": payment.transaction_no or "",
        "status": "success",
        "reference": payment.reference,
    }
    fields["verifySign"] = signing.sign(fields, PUBLISHED_TEST_TOKEN)
    world.client.post(address, urlencode(fields), content_type="application/x-www-form-urlencoded")
    page = f"/control/event/org/conf/orders/{order.code}/refunds/{refund.pk}/{press}"
    assert staff(world, "event.orders:read", "event.orders:write").post(page).status_code == 302
    world.a_day_passes()
    assert world.refunded_amount(payment) == 0, "it was sent again"
    assert refunds_of(order) == [("12.50", "done")]


# Inside a transaction -----------------------------------------------------------------------------


def test_inside_a_transaction_it_is_in_transit_until_that_is_committed(world: World) -> None:
    order, payment = bought(world)
    refund = asked_for(order, "5.00")
    with transaction.atomic():
        with at(order):
            refund.payment_provider.execute_refund(refund)
        assert refund.state == OrderRefund.REFUND_STATE_TRANSIT
        assert world.refunded_amount(payment) == 0
    assert refunds_of(order) == [("5.00", "done")]
    assert world.refunded_amount(payment) == Decimal("5.00")


def test_one_that_cannot_be_sent_now_is_in_transit_and_goes_out_later(world: World) -> None:
    order, payment = bought(world)
    world.configure({"TOKEN": ""})
    assert refunded_amount(order, "5.00").state == OrderRefund.REFUND_STATE_TRANSIT
    assert world.refunded_amount(payment) == 0
    world.configure()
    world.a_day_passes()
    assert refunds_of(order) == [("5.00", "done")]


# Made elsewhere -----------------------------------------------------------------------------------


def test_money_that_was_given_back_elsewhere_waits_for_the_staff_in_pretix(world: World) -> None:
    order, payment = bought(world)
    assert shop.refund(str(payment.pk), "5.00").status == "succeeded"
    assert refunds_of(order) == [("5.00", "external")]
    assert world.shop.is_paid(str(order.pk))


def test_an_order_that_owes_more_is_not_paid_in_part_with_money_that_went_back(
    world: World,
) -> None:
    key, payment = underpaid(world)
    shop.refund(str(payment.pk), "12.50")
    assert refunds_of(order_of(world, key)) == [("12.50", "done")]
    assert world.pay_page(key).amount == Decimal("20.00")


def test_an_order_whose_money_went_back_since_its_places_were_gone_is_not_free_once_there_are_places(
    world: World,
    client: Client,
) -> None:
    order, payment = expired(world, places=0)
    key = str(order.pk)
    world.gateway_notification(payment)
    world.run_worker()
    assert world.reviews() == ["paid-not-payable"]
    shop.refund(str(payment.pk), "12.50")
    with at(order):
        order.event.quotas.update(size=1)
    client.get(world.way_to_pay(key))  # where pretix marks paid whatever owes nothing
    assert not world.shop.is_paid(key)
    assert world.pay_page(key).amount == Decimal("12.50")


def test_one_of_unknown_outcome_that_was_asked_for_elsewhere_is_in_transit_in_pretix(
    world: World,
) -> None:
    order, payment = bought(world)
    world.sandbox.control.fault("lost_response", occasion="refund")
    shop.refund(str(payment.pk), "5.00")
    assert refunds_of(order) == [("5.00", "transit")]
    shop.settle_refund(str(Refund.objects.get().pk), done=True, staff="ann")
    assert refunds_of(order) == [("5.00", "done")]


# Confirmed by hand --------------------------------------------------------------------------------


def test_a_payment_that_staff_had_confirmed_by_hand_is_given_back_once_in_pretix_too(
    world: World,
) -> None:
    """The money that came afterwards is booked as another payment of pretix, and it is the one that
    goes back.
    """
    key = world.order()
    payment = world.pay_page(key)
    order = order_of(world, key)
    by_hand = newest_payment(order)
    with at(order):
        by_hand.confirm(force=True)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    world.run_worker()
    assert refunded_amount(order, "12.50", by_hand).state == OrderRefund.REFUND_STATE_DONE
    assert refunds_of(order) == [("12.50", "done")]
    assert world.refunded_amount(payment) == Decimal("12.50")


# Personal data ------------------------------------------------------------------------------------


def test_the_shredder_leaves_what_names_nobody_and_the_money_can_still_be_given_back(
    world: World,
) -> None:
    order, payment = bought(world)
    theirs = newest_payment(order)
    theirs.info_data = theirs.info_data | {"payer": "Ann Other", "mail": "ann@example.org"}
    with at(order):
        theirs.save()
        PaymentInfoShredder(order.event).shred_data()
    assert newest_payment(order).info_data == {
        "reference": payment.reference,
        "transaction_no": payment.transaction_no,
    }
    assert refunded_amount(order, "5.00").state == OrderRefund.REFUND_STATE_DONE


def history(order: Any) -> list[tuple[str, Any]]:
    with at(order):
        return [(entry.action_type, entry.parsed_data) for entry in order.all_logentries()]


def test_a_refusal_that_comes_once_pretix_has_cancelled_the_order_is_told_to_its_staff(
    world: World,
) -> None:
    """They are mailed of a refund that somebody waits for; of one that failed pretix mails
    nobody.
    """
    order, _ = bought(world)
    world.configure({"TOKEN": ""})
    with at(order):
        cancel_order(order.pk, try_auto_refund=True, send_mail=False)
    world.configure()
    world.sandbox.control.fault("refused", occasion="refund")
    world.a_day_passes()
    assert refunds_of(order) == [("12.50", "failed")]
    told = dict(reversed(history(order)))
    assert "pretix.event.order.refund.requested" in told
    assert told["pretix.event.order.refund.failed"]["error"] == Refund.objects.get().answer


def test_what_staff_have_withdrawn_is_asked_for_by_nobody(world: World) -> None:
    order, _, _ = queued(world)
    shop.withdraw_refund(str(Refund.objects.get().pk), staff="ann")
    assert refunds_of(order) == [("12.50", "failed")]
    assert "pretix.event.order.refund.requested" not in dict(history(order))


def test_a_refusal_that_pretix_waits_for_is_told_by_that_alone(world: World) -> None:
    order, _ = bought(world)
    world.sandbox.control.fault("refused", occasion="refund")
    with pytest.raises(PaymentException, match="refused"):
        refunded_amount(order, "12.50")
    assert "pretix.event.order.refund.requested" not in dict(history(order))
