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
from django.utils import translation
from pretix.base.models import OrderPayment, OrderRefund, User
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


def test_partial_refunds_add_up_to_refunded(
    world: World,
) -> None:
    """The payment counts as refunded once its parts add up to its amount."""
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


def test_staff_refunds_on_pretix_page(world: World) -> None:
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


def test_refund_above_remainder_is_not_sent(world: World) -> None:
    order, payment = bought(world)
    refunded_amount(order, "10.00")
    with pytest.raises(PaymentException, match=r"more than the USD 2\.50"):
        refunded_amount(order, "10.00")
    assert world.refunded_amount(payment) == Decimal("10.00")


def test_refused_refund_fails_and_may_repeat(world: World) -> None:
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


def test_payment_made_elsewhere_is_not_refunded(world: World) -> None:
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
def test_database_trouble_leaves_no_unqueued_transit(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """No refund is in transit without being queued."""

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


def test_shopper_gets_one_mail_per_refund(
    world: World,
) -> None:
    """The mail is in the language of the order."""
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


def test_unknown_refund_stays_in_transit(world: World) -> None:
    order, payment, refund = unknown(world)
    assert refund.state == OrderRefund.REFUND_STATE_TRANSIT
    world.a_day_passes()
    assert refunds_of(order) == [("5.00", "transit")]
    assert world.refunded_amount(payment) == Decimal("5.00"), "it was sent again"
    assert world.reviews() == ["refund-unknown"]


def test_marking_refund_done_settles_it(world: World) -> None:
    order, _, refund = unknown(world)
    staff(world, "event.orders:read", "event.orders:write").post(
        f"/control/event/org/conf/orders/{order.code}/refunds/{refund.pk}/done",
    )
    assert refunds_of(order) == [("5.00", "done")]
    assert [row.status for row in Refund.objects.all()] == ["succeeded"]
    assert world.reviews() == []


def test_cancelling_unknown_refund_settles_it(world: World) -> None:
    """Staff may ask for another refund afterwards."""
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


def test_refund_settled_as_undone_fails(world: World) -> None:
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


@pytest.mark.parametrize(
    ("language", "status"),
    [("en", "accepted by the gateway"), ("de", "vom Zahlungsdienst angenommen")],
)
def test_order_page_shows_status_of_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    status: str,
) -> None:
    order, _, refund = accepted(world, monkeypatch)
    browser = staff(world, "event.orders:read")
    User.objects.update(locale=language)
    page = browser.get(f"/control/event/org/conf/orders/{order.code}/").content.decode()
    assert status in page
    assert "<code>88</code>" in page
    with at(order):
        assert refund.payment_provider.refund_matching_id(refund) == "88"


def test_history_tells_of_refunds_in_german(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, payment, refund = accepted(world, monkeypatch)
    with at(order):
        refund.state = OrderRefund.REFUND_STATE_CANCELED
        refund.save()
        entry = order.all_logentries().get(action_type=REVIEW_LOGGED)
    with translation.override("de"):
        assert f"Die Erstattung der Zahlung {payment.reference} läuft weiter" in entry.display()


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
def test_accepted_refund_stays_in_transit(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: RefundOutcome,
    state: str,
) -> None:
    """It leaves transit when its final outcome is known."""
    order, _, _ = accepted(world, monkeypatch)
    assert mailed() == []
    ended(world, monkeypatch, outcome)
    assert refunds_of(order) == [("5.00", state)]
    assert len(mailed()) == (state == "done")


def test_staff_settles_accepted_refund_as_done(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, _, refund = accepted(world, monkeypatch)
    pressed(world, order, refund, "done")
    assert refunds_of(order) == [("5.00", "done")]
    assert [row.status for row in Refund.objects.all()] == ["succeeded"]


def test_i5_staff_cannot_cancel_accepted_refund(
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
def test_decided_refund_is_never_sent(
    world: World,
    press: str,
    state: str,
) -> None:
    """Staff marked a waiting refund as done or cancelled in pretix."""
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
def test_i5_refund_sending_during_decision_stays_unsent(
    world: World,
    press: str,
    state: str,
) -> None:
    """Staff decide in pretix while an attempt to send it is failing."""
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
def test_i5_crash_after_decision_sends_no_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    press: str,
    state: str,
) -> None:
    """The process that serves the staff's page dies after the decision."""
    order, payment, refund = queued(world)
    with monkeypatch.context() as patched:
        patched.setattr("tillgate.shop.deliver_remote", lambda *_: 0)
        pressed(world, order, refund, press)
    world.a_day_passes()
    assert world.refunded_amount(payment) == 0
    assert [row.status for row in Refund.objects.all()] == ["failed"]
    assert refunds_of(order) == [("12.50", state)]


@pytest.mark.parametrize("press", ["cancel", "done"])
def test_refund_sent_during_decision_is_done(
    world: World,
    press: str,
) -> None:
    """The history says so if staff had already marked it as done."""
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
def test_i6_later_unknown_refund_stays_unsettled(
    world: World,
    press: str,
    minutes: int,
) -> None:
    """A decision made before the outcome became unknown does not settle it."""
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
def test_i5_refund_returned_unsent_stays_unsent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    press: str,
) -> None:
    """It returns to the queue just as the staff's decision is carried out."""
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


def test_i5_cancelling_keeps_succeeded_refund_done(
    world: World,
) -> None:
    """Staff saw it in transit on a page that was out of date."""
    order, payment, refund = unknown(world)
    with at(order):
        stale = order.refunds.get(pk=refund.pk)
        world.gateway_notification(payment, "refund")
        # as pretix does it, which has read it before the notification came
        stale.state = OrderRefund.REFUND_STATE_CANCELED
        stale.save(update_fields=["state"])
    assert refunds_of(order) == [("5.00", "done")]
    assert len(mailed()) == 1


def test_ignored_external_refund_stays_ignored(world: World) -> None:
    order, payment = bought(world)
    shop.refund(str(payment.pk), Decimal("5.00"))
    with at(order):
        external = order.refunds.get()
        external.state = OrderRefund.REFUND_STATE_CANCELED
        external.save(update_fields=["state"])
    assert refunds_of(order) == [("5.00", "canceled")]


@pytest.mark.parametrize("press", ["cancel", "done"])
def test_confirmed_refund_is_done_despite_staff(
    world: World,
    press: str,
) -> None:
    """A notification confirms a waiting refund before staff decide about it in pretix."""
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


def test_refund_is_in_transit_until_commit(world: World) -> None:
    order, payment = bought(world)
    refund = asked_for(order, "5.00")
    with transaction.atomic():
        with at(order):
            refund.payment_provider.execute_refund(refund)
        assert refund.state == OrderRefund.REFUND_STATE_TRANSIT
        assert world.refunded_amount(payment) == 0
    assert refunds_of(order) == [("5.00", "done")]
    assert world.refunded_amount(payment) == Decimal("5.00")


def test_unsendable_refund_is_sent_later(world: World) -> None:
    """It is in transit until then."""
    order, payment = bought(world)
    world.configure({"TOKEN": ""})
    assert refunded_amount(order, "5.00").state == OrderRefund.REFUND_STATE_TRANSIT
    assert world.refunded_amount(payment) == 0
    world.configure()
    world.a_day_passes()
    assert refunds_of(order) == [("5.00", "done")]


# Made elsewhere -----------------------------------------------------------------------------------


def test_refund_made_elsewhere_awaits_staff(world: World) -> None:
    order, payment = bought(world)
    assert shop.refund(str(payment.pk), "5.00").status == "succeeded"
    assert refunds_of(order) == [("5.00", "external")]
    assert world.shop.is_paid(str(order.pk))


def test_refunded_money_is_not_partial_payment(
    world: World,
) -> None:
    """The full amount of the order is due again."""
    key, payment = underpaid(world)
    shop.refund(str(payment.pk), "12.50")
    assert refunds_of(order_of(world, key)) == [("12.50", "done")]
    assert world.pay_page(key).amount == Decimal("20.00")


def test_new_places_leave_refunded_order_unpaid(
    world: World,
    client: Client,
) -> None:
    """The order was refunded because its places were gone."""
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


def test_unknown_refund_elsewhere_is_in_transit(
    world: World,
) -> None:
    """It was asked for outside pretix."""
    order, payment = bought(world)
    world.sandbox.control.fault("lost_response", occasion="refund")
    shop.refund(str(payment.pk), "5.00")
    assert refunds_of(order) == [("5.00", "transit")]
    shop.settle_refund(str(Refund.objects.get().pk), done=True, staff="ann")
    assert refunds_of(order) == [("5.00", "done")]


# Confirmed by hand --------------------------------------------------------------------------------


def test_hand_confirmed_payment_is_refunded_once(
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


def test_shredded_payment_can_still_be_refunded(
    world: World,
) -> None:
    """The shredder keeps only what identifies the payment, not a person."""
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


def test_late_refusal_is_told_to_staff(
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


def test_withdrawn_refund_logs_no_request(world: World) -> None:
    order, _, _ = queued(world)
    shop.withdraw_refund(str(Refund.objects.get().pk), staff="ann")
    assert refunds_of(order) == [("12.50", "failed")]
    assert "pretix.event.order.refund.requested" not in dict(history(order))


def test_awaited_refusal_logs_no_request(world: World) -> None:
    """Pretix waits for the answer, so the error alone tells it."""
    order, _ = bought(world)
    world.sandbox.control.fault("refused", occasion="refund")
    with pytest.raises(PaymentException, match="refused"):
        refunded_amount(order, "12.50")
    assert "pretix.event.order.refund.requested" not in dict(history(order))
