"""Shoppers of a real Saleor pay, on the emulator's payment page."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.real.saleor import PRICE, TOTAL, Attempt, Channel, Refused, Saleor, Storefront, until
from tests.real.service import Service
from tests.real.shopper import decides, pays_again, pays_and_closes_the_tab
from tillgate.sandbox import Sandbox

pytestmark = pytest.mark.saleor

_LONGEST_ANSWER_SECONDS = 15.0


def charged(saleor: Saleor, attempt: Attempt) -> bool:
    """Tell whether Saleor holds the whole of an attempt to be paid."""
    return bool(saleor.transaction(attempt.transaction)["chargedAmount"]["amount"] == TOTAL)


def successes(saleor: Saleor, attempt: Attempt) -> list[Decimal]:
    """Return the amounts that Saleor noted as charged."""
    return [
        amount for kind, amount in saleor.events(attempt.transaction) if kind == "CHARGE_SUCCESS"
    ]


def test_shopper_pays_and_gets_paid_order(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    checkout = storefront.checkout(channel)
    assert "alipay" in str(storefront.ways_to_pay(checkout))
    begun = storefront.begin(checkout)
    assert begun.event == "CHARGE_ACTION_REQUIRED"
    assert begun.payment_page.startswith(gateway.base_url)

    assert decides(begun.payment_page, "pay", storefront.return_url).startswith(
        storefront.return_url,
    )
    processed = storefront.process(begun.transaction)
    assert (processed.event, processed.reference) == ("CHARGE_SUCCESS", begun.reference)

    order = saleor.order(storefront.complete(checkout))
    assert (order["chargeStatus"], order["totalCharged"]["amount"]) == ("FULL", TOTAL)
    assert gateway.service.find(begun.reference).status == "paid"
    gateway.control.wait_for_notifications()
    # the report that follows the notification is the same news again, and takes no second effect
    time.sleep(2)
    assert successes(saleor, begun) == [TOTAL]
    assert saleor.transaction(begun.transaction)["actions"] == ["REFUND"]


def test_same_key_leads_to_same_payment(
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    checkout, key = storefront.checkout(channel), secrets.token_hex(8)
    first, again = storefront.begin(checkout, key=key), storefront.begin(checkout, key=key)
    assert (again.transaction, again.reference, again.payment_page) == (
        first.transaction,
        first.reference,
        first.payment_page,
    )
    assert (
        len([one for one in gateway.service.transactions() if one.reference == first.reference])
        == 1
    )


def test_undecided_shopper_returns_to_payment_page(
    storefront: Storefront,
    channel: Channel,
) -> None:
    begun = storefront.begin(storefront.checkout(channel))
    processed = storefront.process(begun.transaction)
    assert (processed.event, processed.reference, processed.payment_page) == (
        begun.event,
        begun.reference,
        begun.payment_page,
    )


def test_declined_shopper_pays_another_way(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    checkout = storefront.checkout(channel)
    declined = storefront.begin(checkout, "alipay")
    decides(declined.payment_page, "decline", storefront.return_url)
    assert storefront.process(declined.transaction).event == "CHARGE_FAILURE"

    second = storefront.begin(checkout, "paypal")
    assert second.reference != declined.reference
    assert gateway.service.find(second.reference).vendor == "paypal"
    decides(second.payment_page, "pay", storefront.return_url)
    assert storefront.process(second.transaction).event == "CHARGE_SUCCESS"
    order = saleor.order(storefront.complete(checkout))
    assert (order["chargeStatus"], order["totalCharged"]["amount"]) == ("FULL", TOTAL)


def test_changing_method_pays_only_once(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """The first page stays open in a tab, unpaid; the order is paid with the second one."""
    checkout = storefront.checkout(channel)
    storefront.begin(checkout, "alipay")
    second = storefront.begin(checkout, "wechatpay")
    decides(second.payment_page, "pay", storefront.return_url)
    assert storefront.process(second.transaction).event == "CHARGE_SUCCESS"
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


def test_a_double_click_leads_to_one_payment(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    """Two transactions begin at the same moment, as of a storefront that gives no key: one payment
    page, and the money counts once.
    """
    checkout = storefront.checkout(channel)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: storefront.begin(checkout), range(2)))
    assert len({one.transaction for one in both}) == 2
    (payment_page,) = {one.payment_page for one in both}
    decides(payment_page, "pay", storefront.return_url)
    until("the money is reported", lambda: any(charged(saleor, one) for one in both))
    assert sorted(storefront.process(one.transaction).event for one in both) == [
        "CHARGE_FAILURE",
        "CHARGE_SUCCESS",
    ]
    order = saleor.order(storefront.complete(checkout))
    assert (order["chargeStatus"], order["totalCharged"]["amount"]) == ("FULL", TOTAL)
    assert gateway.service.find(both[0].reference).status == "paid"


def test_second_payment_is_booked_and_refundable(
    saleor: Saleor,
    service: Service,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    """A shopper pays in two tabs, with two payment methods: both bring money, a review opens, and
    one is refunded.
    """
    checkout = storefront.checkout(channel)
    both = [storefront.begin(checkout, method) for method in ("alipay", "paypal")]
    decides(both[0].payment_page, "pay", storefront.return_url)
    pays_again(both[1].payment_page)
    for one in both:
        until("the money is reported", lambda: charged(saleor, one))  # noqa: B023  # called immediately
    order = storefront.complete(checkout)
    assert saleor.order(order)["chargeStatus"] == "OVERCHARGED"
    assert "second-payment" in [reason for one in both for reason in service.reviews(one.reference)]

    saleor.request(both[1].transaction, "REFUND")
    until("it is refunded", lambda: saleor.order(order)["chargeStatus"] == "FULL")
    assert gateway.service.find(both[1].reference).refunded_units == TOTAL * 100


def test_shopper_without_return_has_paid(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """The notification leads to the report, and any storefront that finds the checkout can complete
    it.
    """
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    pays_and_closes_the_tab(begun.payment_page)
    until("the money is reported", lambda: charged(saleor, begun))
    assert successes(saleor, begun) == [TOTAL]
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


def test_lost_return_and_notification_still_pay(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    gateway.control.fault("notification_missing")
    begun = storefront.begin(storefront.checkout(channel))
    pays_and_closes_the_tab(begun.payment_page)
    until("the worker run finds the money and reports it", lambda: charged(saleor, begun), 90)
    assert successes(saleor, begun) == [TOTAL]


def test_order_completes_without_shoppers_return(
    saleor: Saleor,
    storefront: Storefront,
) -> None:
    """In a channel that completes paid checkouts, which Saleor's Celery beat does once a minute."""
    channel = saleor.channel("tillgate-completes", completes=True)
    begun = storefront.begin(storefront.checkout(channel))
    pays_and_closes_the_tab(begun.payment_page)
    order = until(
        "an order is made (does Saleor's Celery beat run?)",
        lambda: saleor.transaction(begun.transaction)["order"],
        180,
    )
    assert saleor.order(order["id"])["chargeStatus"] == "FULL"


@pytest.mark.parametrize("fault", ["lost_request", "server_error", "delay"])
def test_money_is_reported_after_gateway_outage(
    fault: str,
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    """While the gateway is down, nothing is decided."""
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    gateway.control.set_options({"faults": {f"query.{fault}": 1.0}, "delay_seconds": 60})
    pays_and_closes_the_tab(begun.payment_page)

    asked_at = time.monotonic()
    processed = storefront.process(begun.transaction)
    assert time.monotonic() - asked_at < _LONGEST_ANSWER_SECONDS
    assert (processed.event, processed.reference) == ("CHARGE_ACTION_REQUIRED", begun.reference)
    assert successes(saleor, begun) == []

    gateway.control.clear_faults()
    until("the money is reported", lambda: charged(saleor, begun), 120)
    assert successes(saleor, begun) == [TOTAL]
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


def test_money_is_reported_after_service_outage(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    service: Service,
) -> None:
    """The notification finds no service, and Saleor, which finds none either, writes a failure of
    its own: the money still counts.
    """
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    service.kill()
    pays_and_closes_the_tab(begun.payment_page)
    assert storefront.process(begun.transaction).event == "CHARGE_FAILURE"
    service.start()
    until("the money is reported", lambda: charged(saleor, begun), 60)
    assert successes(saleor, begun) == [TOTAL]
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


@pytest.mark.parametrize("fault", ["lost_request", "lost_response", "server_error", "delay"])
def test_gateway_outage_at_start_allows_retry(
    fault: str,
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    """Saleor still gets its answer in time."""
    checkout = storefront.checkout(channel)
    gateway.control.set_options({"faults": {f"pay.{fault}": 1.0}, "delay_seconds": 60})
    asked_at = time.monotonic()
    begun = storefront.begin(checkout)
    assert time.monotonic() - asked_at < _LONGEST_ANSWER_SECONDS
    assert begun.event == "CHARGE_FAILURE"
    assert begun.message

    gateway.control.clear_faults()
    second = storefront.begin(checkout, "paypal")
    decides(second.payment_page, "pay", storefront.return_url)
    assert storefront.process(second.transaction).event == "CHARGE_SUCCESS"
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


def test_checkout_may_be_paid_in_parts(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    service: Service,
) -> None:
    """Saleor lets a storefront begin a transaction for a part of a checkout's price, and another
    one for the rest.
    """
    checkout, rest = storefront.checkout(channel), TOTAL - 10
    with service.configured(SALEOR_PARTS="true"):
        for method, amount in (("alipay", Decimal("10.00")), ("paypal", rest)):
            part = storefront.begin(checkout, method, amount=amount)
            assert part.event == "CHARGE_ACTION_REQUIRED", part.message
            decides(part.payment_page, "pay", storefront.return_url)
            assert storefront.process(part.transaction).event == "CHARGE_SUCCESS"
            until(
                "the part is counted",
                lambda part=part, amount=amount: (  # type: ignore[misc]
                    saleor.transaction(part.transaction)["chargedAmount"]["amount"] == amount
                ),
            )
            # the next worker run carries the report: Saleor knows of the part before that
            time.sleep(6)
    order = saleor.order(storefront.complete(checkout))
    assert (order["chargeStatus"], order["totalCharged"]["amount"]) == ("FULL", TOTAL)


def test_paid_checkout_takes_no_more_payments(
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    """By default: a storefront that asks for the total again, from a tab that was left open, is
    refused.
    """
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    decides(begun.payment_page, "pay", storefront.return_url)
    assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    before = len(gateway.service.transactions())
    refused = storefront.begin(checkout, "paypal", amount=TOTAL)
    assert (refused.event, refused.data) == ("CHARGE_FAILURE", {})
    assert "paid" in refused.message
    assert len(gateway.service.transactions()) == before


def test_storefront_amount_is_not_trusted(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
    service: Service,
) -> None:
    """Saleor itself takes any amount from a client that has the checkout's identifier, and names
    the total beside it.
    """
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    before = len(gateway.service.transactions())
    assert storefront.ways_to_pay(checkout, amount="0.01")
    refused = storefront.begin(checkout, "paypal", amount="0.01")
    assert (refused.event, refused.data) == ("CHARGE_FAILURE", {})
    assert f"USD {TOTAL} is left to be paid" in refused.message
    assert len(gateway.service.transactions()) == before
    decides(begun.payment_page, "pay", storefront.return_url)
    assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    order = saleor.order(storefront.complete(checkout))
    assert (order["chargeStatus"], order["totalCharged"]["amount"]) == ("FULL", TOTAL)
    assert service.reviews(begun.reference) == []


def test_dearer_checkout_can_pay_its_rest(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    service: Service,
) -> None:
    """In another tab; the App learns it by a query before it reports the money."""
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    storefront.changes_cart(checkout, channel, 2)
    pays_and_closes_the_tab(begun.payment_page)
    until("a person is told", lambda: service.reviews(begun.reference) == ["underpaid"], 60)
    until("the money is reported", lambda: charged(saleor, begun))
    rest = storefront.begin(checkout, "paypal")
    assert rest.event == "CHARGE_ACTION_REQUIRED", rest.message
    decides(rest.payment_page, "pay", storefront.return_url)
    assert storefront.process(rest.transaction).event == "CHARGE_SUCCESS"
    until("it is nobody's matter any more", lambda: service.reviews(begun.reference) == [], 60)
    order = saleor.order(storefront.complete(checkout))
    assert (order["chargeStatus"], order["totalCharged"]["amount"]) == ("FULL", TOTAL + PRICE)


def test_answered_payment_is_not_foreign_money(
    saleor: Saleor,
    storefront: Storefront,
    service: Service,
) -> None:
    """Money that Saleor knows from an answer opens no review."""
    order = storefront.complete(
        storefront.checkout(saleor.channel("tillgate-pays-later", pays_later=True)),
    )
    key = secrets.token_hex(8)
    begun = storefront.begin(order, key=key, amount=TOTAL)
    decides(begun.payment_page, "pay", storefront.return_url)
    for _ in range(2):
        assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
        assert storefront.begin(order, key=key, amount=TOTAL).event == "CHARGE_SUCCESS"
    assert service.reviews(begun.reference) == []


def test_order_placed_unpaid_is_paid_later(
    saleor: Saleor,
    storefront: Storefront,
) -> None:
    order = storefront.complete(
        storefront.checkout(saleor.channel("tillgate-pays-later", pays_later=True)),
    )
    assert saleor.order(order)["chargeStatus"] == "NONE"
    begun = storefront.begin(order)
    decides(begun.payment_page, "pay", storefront.return_url)
    assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    assert saleor.order(order)["chargeStatus"] == "FULL"


def test_checkout_and_its_order_pay_once(
    saleor: Saleor,
    storefront: Storefront,
    service: Service,
) -> None:
    """Its payment page is open in a tab, while the order is paid with another payment method."""
    checkout = storefront.checkout(saleor.channel("tillgate-pays-later", pays_later=True))
    first = storefront.begin(checkout)
    order = storefront.complete(checkout)
    second = storefront.begin(order, "paypal")
    assert second.event == "CHARGE_ACTION_REQUIRED"
    decides(first.payment_page, "pay", storefront.return_url)
    assert storefront.process(first.transaction).event == "CHARGE_SUCCESS"
    assert storefront.process(second.transaction).event == "CHARGE_FAILURE"
    pays_again(second.payment_page)
    storefront.process(second.transaction)
    until("a person is told", lambda: service.reviews(second.reference) == ["second-payment"])
    until("Saleor holds both", lambda: saleor.order(order)["chargeStatus"] == "OVERCHARGED")


def test_order_of_paid_checkout_refuses_payment(
    saleor: Saleor,
    storefront: Storefront,
    gateway: Sandbox,
) -> None:
    """Neither when the storefront asks for the total again, from a tab that was left open."""
    checkout = storefront.checkout(saleor.channel("tillgate-pays-later", pays_later=True))
    begun = storefront.begin(checkout)
    decides(begun.payment_page, "pay", storefront.return_url)
    assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    order = storefront.complete(checkout)
    time.sleep(6)  # the report has been carried
    before = len(gateway.service.transactions())
    again = storefront.begin(order, "paypal", amount=TOTAL)
    assert again.event == "CHARGE_FAILURE"
    assert "paid" in again.message
    assert len(gateway.service.transactions()) == before
    assert saleor.order(order)["chargeStatus"] == "FULL"


def test_cancelled_order_is_not_paid(
    saleor: Saleor,
    storefront: Storefront,
    gateway: Sandbox,
) -> None:
    order = storefront.complete(
        storefront.checkout(saleor.channel("tillgate-pays-later", pays_later=True)),
    )
    saleor.cancel(order)
    before = len(gateway.service.transactions())
    refused = storefront.begin(order)
    assert (refused.event, refused.message) == ("CHARGE_FAILURE", "This order was cancelled.")
    assert len(gateway.service.transactions()) == before


@pytest.mark.parametrize("comes_back", [True, False])
def test_money_for_cancelled_order_raises_review(
    comes_back: bool,
    saleor: Saleor,
    storefront: Storefront,
    service: Service,
) -> None:
    """Saleor takes the money, and opens the order again."""
    order = storefront.complete(
        storefront.checkout(saleor.channel("tillgate-pays-later", pays_later=True)),
    )
    begun = storefront.begin(order)
    saleor.cancel(order)
    if comes_back:
        decides(begun.payment_page, "pay", storefront.return_url)
        assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    else:
        pays_and_closes_the_tab(begun.payment_page)
        until("the money is reported", lambda: charged(saleor, begun))
    until("a person is told", lambda: service.reviews(begun.reference) == ["paid-not-payable"])
    assert successes(saleor, begun) == [TOTAL]
    assert saleor.order(order)["chargeStatus"] == "FULL"


@pytest.mark.parametrize("amount", ["0", "-1", "0.004"])
def test_strange_amount_is_refused_without_payment(
    amount: str,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    checkout, before = storefront.checkout(channel), len(gateway.service.transactions())
    try:
        refused = storefront.begin(checkout, amount=amount)
    except Refused:
        pass  # by Saleor itself
    else:
        assert refused.event == "CHARGE_FAILURE"
        assert refused.message
    assert len(gateway.service.transactions()) == before


def test_three_decimal_amount_is_rounded(
    saleor: Saleor,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    """Saleor rounds it, and the rounded amount is charged."""
    begun = storefront.begin(storefront.checkout(channel), amount="24.904")
    assert gateway.service.find(begun.reference).amount == "24.90"
    assert {amount for _, amount in saleor.events(begun.transaction)} == {TOTAL}


def test_authorization_channel_is_charged_anyway(
    saleor: Saleor,
    storefront: Storefront,
) -> None:
    """The gateway knows no authorization: it charges an amount that Saleor wants authorized, and
    the App reports a charge.
    """
    channel = saleor.channel("tillgate-authorizes", strategy="AUTHORIZATION")
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    assert begun.event in ("CHARGE_ACTION_REQUIRED", "AUTHORIZATION_ACTION_REQUIRED")
    decides(begun.payment_page, "pay", storefront.return_url)
    assert storefront.process(begun.transaction).event == "CHARGE_SUCCESS"
    transaction = saleor.transaction(begun.transaction)
    assert (transaction["chargedAmount"]["amount"], transaction["authorizedAmount"]["amount"]) == (
        TOTAL,
        0,
    )
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


def test_another_currency_is_refused_and_creates_nothing(
    saleor: Saleor,
    storefront: Storefront,
    gateway: Sandbox,
) -> None:
    checkout = storefront.checkout(saleor.channel("tillgate-zloty", currency="PLN"))
    before = len(gateway.service.transactions())
    refused = storefront.begin(checkout)
    assert (refused.event, refused.data.get("cashierUrl")) == ("CHARGE_FAILURE", None)
    assert len(gateway.service.transactions()) == before


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "alipay",
        {},
        {"method": "alipay", "returnUrl": "https://elsewhere.example/"},
        {"method": "alipay", "returnUrl": "javascript:alert(1)"},
        {"method": "gold", "returnUrl": "@"},
        {"returnUrl": "@"},
        {"method": "alipay", "returnUrl": "@", "more": "x" * 1_000_000},
    ],
    ids=[
        "null",
        "list",
        "text",
        "empty",
        "strange address",
        "script",
        "strange payment method",
        "no payment method",
        "1 MB",
    ],
)
def test_bad_data_is_refused_and_creates_nothing(
    data: object,
    storefront: Storefront,
    channel: Channel,
    gateway: Sandbox,
) -> None:
    checkout, before = storefront.checkout(channel), len(gateway.service.transactions())
    if isinstance(data, dict):
        data = {
            name: storefront.return_url if value == "@" else value for name, value in data.items()
        }
    try:
        refused = storefront.begin(checkout, data=data)
    except Refused:
        pass  # by Saleor itself
    else:
        assert refused.event == "CHARGE_FAILURE"
        assert refused.message
    assert len(gateway.service.transactions()) == before
