"""The provider's answers to the library: the address to pay at, the visitors of the library's
addresses, and the impossible acts.
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
from tillgate.hooks import Customer
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


def test_gateway_waits_for_shops_transaction(world: World) -> None:
    """The gateway hears nothing before the shop's transaction is over."""
    with transaction.atomic():
        way = way_of(bill())
    assert not world.sandbox.service.journal.all()
    answer = world.client.get(way)
    assert world.onward(answer).startswith(world.sandbox.base_url)
    assert world.onward(world.client.get(way)) == world.onward(answer), (
        "the Back button makes no second payment"
    )


def test_gateway_gets_total_description_and_goods(
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
def test_gateway_gets_billing_email_on_request(
    world: World,
    given: str,
    passed: str | None,
) -> None:
    """Without a billing email it gets none."""
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
def test_any_quantity_of_goods_is_payable(
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


def test_unnamed_goods_do_not_block_payment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Money arrives even if the shop can no longer name the goods."""
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


def test_one_variant_offers_all_configured_methods(
    world: World,
) -> None:
    world.configure(PAYMENT_METHODS=["paypal", "creditcard"])
    page = world.client.get(way_of(bill(variant="online"))).content.decode()
    assert page.index('value="paypal"') < page.index('value="creditcard"')
    assert 'value="alipay"' not in page


@pytest.mark.parametrize(
    ("row", "said"),
    [({"currency": "EUR"}, "currency: .*EUR"), ({"total": "-1.00"}, "there is nothing to pay")],
)
def test_unpayable_row_says_why(world: World, row: dict[str, str], said: str) -> None:
    payment = bill(**row)
    with pytest.raises(PaymentError, match=said):
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


def test_unsaved_payment_is_refused(world: World) -> None:
    with pytest.raises(PaymentError, match="save it before"):
        Payment(
            order=Order.objects.create(),
            variant="alipay",
            total=Decimal("5.00"),
            currency="USD",
        ).get_form()


@pytest.mark.parametrize("status", ["preauth", "rejected", "refunded", "error", "cancelled"])
def test_payment_not_waiting_is_refused(world: World, status: str) -> None:
    payment = bill(status=status)
    with pytest.raises(PaymentError, match="its status is"):
        payment.get_form()


def test_confirmed_payment_leads_to_success_page(world: World) -> None:
    payment = bill()
    Payment.objects.update(status=PaymentStatus.CONFIRMED)
    assert way_of(payment) == payment.get_success_url()


def test_unstarted_payment_is_rejected_eventually(world: World) -> None:
    payment = bill()
    way_of(payment)
    world.a_day_passes()
    payment.refresh_from_db()
    assert (payment.status, payment.message) == ("rejected", "the time to pay has passed")


# The library's own addresses ----------------------------------------------------------------------


def test_library_address_leads_to_return_page(
    world: World,
) -> None:
    """The gateway is asked there before the shopper goes on."""
    payment = bill()
    world.client.get(way_of(payment))
    world.shopper_pays(attempt_of(payment))
    to = world.client.get(payment.get_process_url())["Location"]
    assert world.client.get(to)["Location"] == payment.get_success_url()
    payment.refresh_from_db()
    assert payment.status == "confirmed"


def test_shopper_without_attempt_returns_to_shop(world: World) -> None:
    """A shopper who never started to pay is sent back without asking the gateway."""
    payment = bill()
    assert (
        world.client.get(payment.get_process_url() + "?status=success")["Location"]
        == payment.get_failure_url()
    )
    assert world.client.post(payment.get_process_url(), {"status": "success"}).status_code == 404
    payment.refresh_from_db()
    assert (payment.status, world.queries()) == ("waiting", 0)


@pytest.mark.parametrize("is_atomic", [False, True])
def test_incoming_call_is_only_a_hint(
    world: World,
    is_atomic: bool,
) -> None:
    """A forged call changes nothing, and a true one only makes us ask the gateway."""
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


def test_flood_asks_gateway_once(world: World) -> None:
    """Many calls to the library's address lead to one query."""
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


def test_library_address_refuses_other_http_methods(world: World) -> None:
    assert world.client.put(bill().get_process_url()).status_code == 405


def test_unstored_call_is_not_acknowledged(
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


def test_other_providers_notification_is_not_acknowledged(world: World) -> None:
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


def test_cancelled_payment_stays_unpayable(world: World) -> None:
    """It cannot be paid even if its row says waiting again."""
    payment = bill()
    way_of(payment)
    payment.cancel()
    Payment.objects.update(status="waiting")
    payment.refresh_from_db()
    with pytest.raises(PaymentError, match="it was cancelled"):
        payment.get_form()


def test_static_address_finds_payment_by_reference(world: World) -> None:
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


def test_foreign_reference_does_not_change_payment(
    world: World,
) -> None:
    """The payment in the address counts, not the reference that the call carries."""
    payment, other = bill(), bill()
    for one in (payment, other):
        world.client.get(way_of(one))
    answer = world.client.post(
        payment.get_process_url(),
        f"reference={attempt_of(other).reference}",
        content_type=FORM,
    )
    assert (answer.status_code, world.queries()) == (404, 0)


# Impossible acts ----------------------------------------------------------------------------------


def test_money_for_cancelled_payment_needs_review(
    world: World,
) -> None:
    """A cancelled payment cannot be started, and its late money waits for staff."""
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


def test_money_racing_cancellation_needs_review(
    world: World,
) -> None:
    """Money that comes before the library writes the cancellation waits for staff."""
    payment = bill()
    world.client.get(way_of(payment))
    # the library goes on with `change_status`, unless the process dies
    TillgateProvider().cancel(payment)
    attempt = attempt_of(payment)
    world.shopper_pays(attempt)
    world.notification(attempt)
    payment.refresh_from_db()
    assert (payment.status, world.reviews()) == ("waiting", ["paid-not-payable"])


def test_stale_row_cannot_cancel_confirmed_payment(
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


def test_overwritten_row_cannot_cancel_paid_payment(world: World) -> None:
    """The row may call a paid payment unpaid after an old copy was saved over it."""
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


def test_untold_paid_payment_cannot_be_cancelled(
    world: World,
) -> None:
    """This holds even before the shop has heard of the money."""
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


def test_underpaid_payment_may_be_cancelled(world: World) -> None:
    payment = bill()
    world.client.get(way_of(payment))
    Payment.objects.update(total=20)
    world.shopper_pays(attempt_of(payment))
    world.notification(attempt_of(payment))
    Payment.objects.get().cancel()
    assert (Payment.objects.get().status, world.reviews()) == ("cancelled", ["underpaid"])


def test_nothing_to_capture_or_release(world: World) -> None:
    payment = bill(status=PaymentStatus.PREAUTH)
    for action in (payment.capture, payment.release):
        with pytest.raises(PaymentError, match="the money is taken when the shopper pays"):
            action()
    payment.refresh_from_db()
    assert (payment.status, payment.captured_amount) == ("preauth", 0)


# Variants -----------------------------------------------------------------------------------------


def test_every_method_has_a_valid_variant(
    world: World,
) -> None:
    """The library accepts the variant's name in an address."""
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


def test_nonexistent_methods_are_refused_by_name() -> None:
    for wrong in (["alipay", "vi sa"], "vi sa"):
        with pytest.raises(ConfigurationError, match=r"vi sa.*is not the code of a payment method"):
            method_variants(wrong)
    with pytest.raises(ConfigurationError, match=r"vi sa.*is not the code of a payment method"):
        TillgateProvider(method="vi sa")


def test_authorize_only_variant_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="capture: False"):
        TillgateProvider(capture=False)


def test_shopper_cannot_change_amount_or_method(world: World) -> None:
    way, dear = way_of(bill("1.00")), bill("500.00")
    ticket = way.rstrip("/").rpartition("/")[2]
    payload = ticket.partition(":")[0]
    for forged in (ticket[:-2], TimestampSigner(key="guessed").sign(payload), str(dear.pk)):
        assert world.client.get(f"/tillgate/start/{forged}/").status_code == 404
    assert not Attempt.objects.exists()


def test_staff_read_customer_of_row(world: World) -> None:
    row = bill(billing_email="ada@shopper.example", billing_first_name="Ada")
    described = rows.describe(str(row.pk))
    assert described is not None
    assert described.customer == Customer(name="Ada", email="ada@shopper.example")


def test_staff_search_rows_by_shopper(world: World) -> None:
    row = bill(
        billing_email="ada@shopper.example",
        billing_first_name="Ada",
        billing_last_name="Moss",
    )
    bill(billing_email="eve@shopper.example", billing_first_name="Eve")
    for text, found in (
        ("ADA@shopper.example", [str(row.pk)]),
        ("moss ada", [str(row.pk)]),
        ("Ada Stone", []),
        ("' OR 1=1 --", []),
    ):
        assert rows.search(text, 10) == found, text
