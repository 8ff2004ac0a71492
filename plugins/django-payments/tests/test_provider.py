"""What the provider answers to the library: where to pay, who came to the library's addresses, and
what cannot be done.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.core.signing import TimestampSigner
from django.db import connections, transaction
from django.test import Client, RequestFactory
from payments import PaymentError, PaymentStatus, PurchasedItem, RedirectNeeded
from payments.core import provider_factory

from tests.shop.models import Order, Payment
from tillgate.django.models import Notification
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import Payment as Attempt
from tillgate.django.payments import notifications
from tillgate.django.refunds import queueing
from tillgate.errors import ConfigurationError
from tillgate.testing.world import World
from tillgate_django_payments import PROVIDER, method_variants, rows
from tillgate_django_payments.provider import TillgateProvider

README = Path(__file__).parents[1] / "README.md"
FORM = "application/x-www-form-urlencoded"


def bill(total: str = "12.50", variant: str = "alipay", currency: str = "USD", **more: Any) -> Any:
    """Return a payment that the shop's checkout has written."""
    order = more.pop("order", None) or Order.objects.create()
    return Payment.objects.create(
        order=order,
        variant=variant,
        total=Decimal(total),
        currency=currency,
        **more,
    )


def way_of(payment: Any) -> str:
    """Return where the library sends the shopper."""
    with pytest.raises(RedirectNeeded) as way:
        payment.get_form()
    return str(way.value)


def attempt_of(payment: Any) -> Attempt:
    return Attempt.objects.select_related("order").get(order__key=str(payment.pk))


# Where to pay -------------------------------------------------------------------------------------


def test_the_gateway_hears_nothing_before_the_shops_transaction_is_over(world: World) -> None:
    with transaction.atomic():
        way = way_of(bill())
    assert not world.sandbox.service.journal.all()
    answer = world.client.get(way)
    assert world.onward(answer).startswith(world.sandbox.base_url)
    assert world.onward(world.client.get(way)) == world.onward(answer), (
        "the Back button makes no second payment"
    )


def test_the_gateway_is_asked_for_the_rows_total_with_its_description_and_goods(
    world: World,
) -> None:
    order = Order.objects.create(title="Green tea <&> Pot", quantity=3)
    world.client.get(way_of(bill("99.99", "alipay-hk", order=order, description="Order 100017")))
    [asked] = [
        entry
        for entry in world.sandbox.service.journal.all()
        if (entry.operation, entry.direction) == ("pay", "in")
    ]
    fields = json.loads(asked.detail or b"")
    assert (fields["amount"], fields["vendor"], fields["description"]) == (
        "99.99",
        "alipay_hk",
        "Order 100017",
    )
    assert json.loads(fields["goodsInfo"]) == [{"goods_name": "Green tea Pot", "quantity": "3"}]


@pytest.mark.parametrize(
    ("given", "passed"),
    [("ada@shopper.example", "ada@shopper.example"), ("", None)],
)
def test_a_gateway_that_asks_gets_the_billing_address_for_mail_if_there_is_one(
    world: World,
    given: str,
    passed: str | None,
) -> None:
    described = rows.describe(str(bill(billing_email=given).pk))
    assert described is not None
    assert described.email == passed


@pytest.mark.parametrize(
    ("quantity", "sent"),
    [
        (2, {"goods_name": "Tea", "quantity": "2"}),
        (Decimal("2.00"), {"goods_name": "Tea", "quantity": "2"}),
        (Decimal("1.5"), {"goods_name": "Tea x 1.5", "quantity": "1"}),
        (0, {"goods_name": "Tea x 0", "quantity": "1"}),
        (-1, {"goods_name": "Tea x -1", "quantity": "1"}),
        (Decimal("NaN"), {"goods_name": "Tea x NaN", "quantity": "1"}),
        (None, {"goods_name": "Tea x None", "quantity": "1"}),
    ],
)
def test_goods_of_any_quantity_keep_nobody_from_paying(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    quantity: Any,
    sent: dict[str, str],
) -> None:
    monkeypatch.setattr(
        Payment,
        "get_purchased_items",
        lambda _: [PurchasedItem("Tea", quantity, Decimal("12.50"), "USD", "TEA-1")],
    )
    assert world.onward(world.client.get(way_of(bill()))).startswith(world.sandbox.base_url)
    [asked] = [
        entry
        for entry in world.sandbox.service.journal.all()
        if (entry.operation, entry.direction) == ("pay", "in")
    ]
    assert json.loads(json.loads(asked.detail or b"")["goodsInfo"]) == [sent]


def test_goods_that_the_shop_cannot_name_any_more_keep_no_money_from_arriving(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))

    def gone(_: Payment) -> Any:
        raise LookupError("the variant was deleted")

    monkeypatch.setattr(Payment, "get_purchased_items", gone)
    attempt = Attempt.objects.get()
    world.sandbox.control.pay(attempt.reference)
    world.notification(attempt)
    payment.refresh_from_db()
    assert (payment.status, world.reviews()) == ("confirmed", [])


def test_one_variant_lets_the_shopper_choose_among_the_methods_of_the_settings(
    world: World,
) -> None:
    world.configure(PAYMENT_METHODS=["paypal", "creditcard"])
    page = world.client.get(way_of(bill(variant="online"))).content.decode()
    assert page.index('value="paypal"') < page.index('value="creditcard"')
    assert 'value="alipay"' not in page


@pytest.mark.parametrize(("field", "value"), [("currency", "EUR"), ("total", "-1.00")])
def test_what_cannot_be_paid_is_refused_with_field_and_value(
    world: World,
    field: str,
    value: str,
) -> None:
    payment = bill(**{field: value})
    with pytest.raises(PaymentError, match=rf"{field}: .*{value}"):
        payment.get_form()
    assert not ExpectedOrder.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("currency", "EUR", "“EUR” cannot be paid, only USD can"),
        ("total", "0.00", "cannot be paid: there is nothing to pay."),
    ],
)
def test_view_of_readme_answers_with_a_page(
    world: World,
    rf: RequestFactory,
    field: str,
    value: str,
    said: str,
) -> None:
    (code,) = re.findall(r"```python\n# views\.py\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("shop.models", "tests.shop.models"), names)
    answer = names["payment_details"](rf.get("/"), bill(**{field: value}).pk)
    assert (answer.status_code, answer["Content-Type"]) == (409, "text/plain; charset=utf-8")
    assert said in answer.content.decode()


def test_a_payment_that_was_not_saved_is_refused(world: World) -> None:
    with pytest.raises(PaymentError, match="save it before"):
        Payment(
            order=Order.objects.create(),
            variant="alipay",
            total=Decimal("5.00"),
            currency="USD",
        ).get_form()


@pytest.mark.parametrize("status", ["preauth", "rejected", "refunded", "error", "cancelled"])
def test_a_payment_that_does_not_wait_is_refused(world: World, status: str) -> None:
    payment = bill(status=status)
    with pytest.raises(PaymentError, match="its status is"):
        payment.get_form()


def test_a_payment_that_is_confirmed_by_now_leads_to_the_shops_thanks(world: World) -> None:
    payment = bill()
    Payment.objects.update(status=PaymentStatus.CONFIRMED)
    assert way_of(payment) == payment.get_success_url()


def test_a_payment_that_nobody_ever_started_is_rejected_after_a_time(world: World) -> None:
    payment = bill()
    way_of(payment)
    world.a_day_passes()
    payment.refresh_from_db()
    assert (payment.status, payment.message) == ("rejected", "the time to pay has passed")


# The library's own addresses ----------------------------------------------------------------------


def test_a_shopper_at_the_librarys_address_is_led_to_where_the_gateway_is_asked(
    world: World,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    world.shopper_pays(attempt_of(payment))
    to = world.client.get(payment.get_process_url())["Location"]
    assert world.client.get(to)["Location"] == payment.get_success_url()
    payment.refresh_from_db()
    assert payment.status == "confirmed"


def test_a_shopper_who_never_started_to_pay_goes_back_to_the_shop(world: World) -> None:
    payment = bill()
    assert (
        world.client.get(payment.get_process_url() + "?status=success")["Location"]
        == payment.get_failure_url()
    )
    assert world.client.post(payment.get_process_url(), {"status": "success"}).status_code == 404
    payment.refresh_from_db()
    assert (payment.status, world.queries()) == ("waiting", 0)


@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_forged_call_changes_nothing_and_a_true_one_is_a_hint_to_ask(
    world: World,
    is_atomic: bool,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    connections.settings["default"]["ATOMIC_REQUESTS"] = is_atomic
    try:
        reference = attempt_of(payment).reference
        forged = (
            f"reference={reference}&status=success&amount=12.50&currency=USD&verifySign={'0' * 32}"
        )
        answer = world.client.post(payment.get_process_url(), forged, content_type=FORM)
        payment.refresh_from_db()
        assert (answer.content, payment.status) == (b"success", "waiting")
        world.shopper_pays(attempt_of(payment))
        assert (
            world.client.post(
                payment.get_process_url(),
                f"reference={reference}",
                content_type=FORM,
            ).content
            == b"success"
        )
    finally:
        connections.settings["default"]["ATOMIC_REQUESTS"] = False
    payment.refresh_from_db()
    assert payment.status == "confirmed"
    assert sorted(Notification.objects.values_list("signature", flat=True)) == ["absent", "forged"]


def test_a_flood_at_the_librarys_address_asks_the_gateway_once(world: World) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    world.configure(NOTIFICATION_THROTTLE_SECONDS=5)
    for _ in range(5):
        world.client.post(
            payment.get_process_url(),
            f"reference={attempt_of(payment).reference}&status=success",
            content_type=FORM,
        )
    assert world.queries() == 1


def test_other_methods_at_the_librarys_address_are_refused(world: World) -> None:
    assert world.client.put(bill().get_process_url()).status_code == 405


def test_a_call_that_could_not_be_kept_is_not_acknowledged(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(notifications, "receive_payment_notification", full)
    notification = f"reference={attempt_of(payment).reference}"
    answer = Client(raise_request_exception=False).post(
        payment.get_process_url(),
        notification,
        content_type=FORM,
    )
    assert answer.status_code == 500


def test_another_providers_notification_is_not_acknowledged_in_its_place(world: World) -> None:
    """The shopper turned to another provider, paid there, and on our page as well: the row is ours
    again, and its address too.
    """
    payment = bill()
    world.client.get(way_of(payment))
    Payment.objects.update(variant="invoice")
    world.shopper_pays(attempt_of(payment))
    world.notification(attempt_of(payment))
    payment.refresh_from_db()
    assert (payment.status, payment.variant) == ("confirmed", "alipay")
    assert (
        world.client.post(
            payment.get_process_url(),
            {"result": "confirmed", "transaction": "theirs"},
        ).status_code
        == 404
    )


def test_what_was_cancelled_is_not_paid_though_it_waits_again(world: World) -> None:
    payment = bill()
    way_of(payment)
    payment.cancel()
    Payment.objects.update(status="waiting")
    payment.refresh_from_db()
    with pytest.raises(PaymentError, match="it was cancelled"):
        payment.get_form()


def test_a_variants_static_address_finds_the_payment_by_its_reference(world: World) -> None:
    payment, other = bill(variant="alipay-hk"), bill()
    for one in (payment, other):
        world.client.get(way_of(one))
        world.shopper_pays(attempt_of(one))
    body = json.dumps({"reference": attempt_of(payment).reference, "status": "success"})
    assert (
        world.client.post(
            "/payments/process/alipay-hk/",
            body,
            content_type="application/json",
        ).content
        == b"success"
    )
    payment.refresh_from_db()
    other.refresh_from_db()
    assert (payment.status, other.status) == ("confirmed", "waiting")


@pytest.mark.parametrize(
    "body",
    ["", "reference=", "reference=UNKNOWN-1", "reference=%00", "reference[]=1", "\xff"],
)
def test_a_static_address_knows_no_other_payment(world: World, body: str) -> None:
    world.client.get(way_of(bill()))
    assert (
        world.client.post("/payments/process/online/", body, content_type=FORM).status_code == 404
    )
    assert world.queries() == 0


def test_the_reference_of_another_payment_does_not_lead_away_from_the_one_in_the_address(
    world: World,
) -> None:
    payment, other = bill(), bill()
    for one in (payment, other):
        world.client.get(way_of(one))
    answer = world.client.post(
        payment.get_process_url(),
        f"reference={attempt_of(other).reference}",
        content_type=FORM,
    )
    assert (answer.status_code, world.queries()) == (404, 0)


# What cannot be done ------------------------------------------------------------------------------


def test_a_cancelled_payment_cannot_be_started_and_its_money_waits_for_a_person(
    world: World,
) -> None:
    payment = bill()
    way = way_of(payment)
    world.client.get(way)
    payment.cancel()
    assert world.client.get(way).status_code == 409
    attempt = attempt_of(payment)
    world.shopper_pays(attempt)
    world.notification(attempt)
    payment.refresh_from_db()
    assert (payment.status, payment.captured_amount, world.reviews()) == (
        "cancelled",
        0,
        ["paid-not-payable"],
    )


def test_money_that_comes_before_the_library_has_written_the_cancellation_waits_for_a_person(
    world: World,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    # the library goes on with `change_status`, unless the process dies
    TillgateProvider().cancel(payment)
    attempt = attempt_of(payment)
    world.shopper_pays(attempt)
    world.notification(attempt)
    payment.refresh_from_db()
    assert (payment.status, world.reviews()) == ("waiting", ["paid-not-payable"])


def test_a_payment_whose_money_was_quicker_is_not_cancelled_by_an_old_copy_of_its_row(
    world: World,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    old = Payment.objects.get(pk=payment.pk)
    attempt = attempt_of(payment)
    world.shopper_pays(attempt)
    world.notification(attempt)
    with pytest.raises(PaymentError, match="status is “Confirmed”"):
        old.cancel()
    payment.refresh_from_db()
    assert (payment.status, ExpectedOrder.objects.get().closed_at) == ("confirmed", None)


def test_a_payment_that_an_old_copy_of_its_row_calls_unpaid_is_not_cancelled(world: World) -> None:
    old = bill()
    world.client.get(way_of(old))
    attempt = attempt_of(old)
    world.shopper_pays(attempt)
    world.notification(attempt)
    old.save()  # the whole of it, as it was read
    with pytest.raises(PaymentError, match=f"{attempt.reference} has paid it"):
        Payment.objects.get().cancel()
    assert (Payment.objects.get().status, ExpectedOrder.objects.get().closed_at) == (
        "waiting",
        None,
    )
    queueing.refund(attempt.pk, "12.50")
    assert Payment.objects.get().status == "refunded"


def test_a_payment_whose_money_is_here_is_not_cancelled_before_the_shop_has_been_told(
    world: World,
) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    attempt = attempt_of(payment)
    world.shopper_pays(attempt)
    with world.failing_handler("tillgate_payment_paid", times=1):
        world.notification(attempt)
        with pytest.raises(PaymentError, match="Refund that payment first"):
            Payment.objects.get().cancel()
    world.a_day_passes()
    assert (Payment.objects.get().status, world.reviews()) == ("confirmed", [])


def test_a_payment_that_was_paid_too_little_may_be_cancelled(world: World) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    Payment.objects.update(total=20)
    world.shopper_pays(attempt_of(payment))
    world.notification(attempt_of(payment))
    Payment.objects.get().cancel()
    assert (Payment.objects.get().status, world.reviews()) == ("cancelled", ["underpaid"])


def test_there_is_nothing_to_capture_or_to_release(world: World) -> None:
    payment = bill(status=PaymentStatus.PREAUTH)
    for action in (payment.capture, payment.release):
        with pytest.raises(PaymentError, match="the money is taken when the shopper pays"):
            action()
    payment.refresh_from_db()
    assert (payment.status, payment.captured_amount) == ("preauth", 0)


# Variants -----------------------------------------------------------------------------------------


def test_every_method_has_a_variant_whose_name_the_library_takes_in_an_address(
    world: World,
) -> None:
    variants = method_variants()
    assert variants["alipay-hk"] == (
        PROVIDER,
        {"method": "alipay_hk"},
    )
    assert len(variants) == 14
    assert not set(variants) - set(project.PAYMENT_VARIANTS)
    for name in variants:
        assert world.client.post(f"/payments/process/{name}/").status_code == 404, (
            "no such payment, and not: no such address"
        )
        assert provider_factory(name).method.replace("_", "-") == name


def test_methods_that_do_not_exist_are_refused_by_name() -> None:
    for wrong in (["alipay", "vi sa"], "vi sa"):
        with pytest.raises(ConfigurationError, match=r"vi sa.*is not the code of a payment method"):
            method_variants(wrong)
    with pytest.raises(ConfigurationError, match=r"vi sa.*is not the code of a payment method"):
        TillgateProvider(method="vi sa")


def test_a_variant_that_would_only_authorize_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="capture: False"):
        TillgateProvider(capture=False)


def test_who_was_led_to_pay_cannot_change_what_is_paid_or_how(world: World) -> None:
    way, dear = way_of(bill("1.00")), bill("500.00")
    ticket = way.rstrip("/").rpartition("/")[2]
    payload = ticket.partition(":")[0]
    for forged in (ticket[:-2], TimestampSigner(key="guessed").sign(payload), str(dear.pk)):
        assert world.client.get(f"/tillgate/start/{forged}/").status_code == 404
    assert not Attempt.objects.exists()
