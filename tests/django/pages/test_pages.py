"""The shopper's pages without a browser: their texts, languages and headers, and the parts that a
shop can change.
"""

from __future__ import annotations

import decimal
import html
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.template import engines
from django.test import Client
from django.utils.translation import override

import tillgate.django
from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import GatewayProfile, Method, hooks
from tillgate.django import methods
from tillgate.django.amounts import money_text
from tillgate.django.methods import label_of
from tillgate.django.models import OutboxEvent, Payment
from tillgate.django.orders import registering
from tillgate.django.outbox import delivering
from tillgate.django.pages import forms, owner
from tillgate.django.pages.forms import MethodForm, RefundForm
from tillgate.django.pages.tickets import new_ticket, start_url
from tillgate.django.payments import reconciling, starting
from tillgate.django.refunds import queueing
from tillgate.money import Money
from tillgate.shop import order_state

APP = Path(tillgate.django.__file__).parent


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shop has no page of its own for a settled payment."""
    monkeypatch.setattr(owner, "home", lambda payment: None)


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def come_back(world: World, payment: Payment, **query: str) -> Any:
    return world.client.get(f"/payments/return/{payment.return_key}/", query)


def links_of(page: str) -> dict[str, str]:
    """Return the addresses of the links of a page by their texts, without the shop's name above
    them.
    """
    return {
        text: address
        for address, text in re.findall(
            r'<a [^>]*href="([^"]*)">([^<]*)</a>',
            page.partition("<main")[2],
        )
    }


@pytest.mark.parametrize(
    "query",
    [{}, {"wait": "1"}],
    ids=["who comes back", "whose page has waited"],
)
def test_paid_order_redirects_home_before_delivery(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    query: dict[str, str],
) -> None:
    """A returning shopper is sent to the paid order even if the shop has not heard of it yet."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    with monkeypatch.context() as patch:
        patch.setattr(reconciling, "deliver", lambda order_id: 0)
        assert reconciling.reconcile(payment, "notification").status == "paid"
    assert world.shop.times_paid(payment.order.key) == 0
    assert come_back(world, payment, **query).status_code == 302
    assert world.shop.times_paid(payment.order.key) == 1


def test_overtaking_notification_sends_shopper_home(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shopper is not asked to wait for an order that is already paid."""
    payment, described = world.start(world.order()), owner.described

    def overtaken(plugin: str, order_key: str) -> Any:
        world.shopper_pays(payment)
        reconciling.reconcile(payment, "notification")
        return described(plugin, order_key)

    monkeypatch.setattr(owner, "described", overtaken)
    assert come_back(world, payment, status="success").status_code == 302


def test_locked_order_still_redirects_home(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    payment = world.paid_payment()
    OutboxEvent.objects.update(done_at=None)

    def lock(_: int) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(delivering, "locked_order", lock)
    assert come_back(world, payment, wait="1").status_code == 302
    assert f"whether the shop was told of {payment.reference} could not be seen" in caplog.text


@pytest.mark.parametrize("door", ["return", "notification"])
def test_processing_failure_still_acknowledges_receipt(
    world: World,
    no_home: None,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
) -> None:
    """A stored return or notification is acknowledged even if applying it fails."""
    payment = world.start(world.order())
    world.shopper_pays(payment)

    def busy(_: int) -> Any:
        raise OperationalError("lock wait timeout exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(reconciling, "locked_order", busy)
        answer = come_back(world, payment) if door == "return" else world.notification(payment)
        assert door == "notification" or answer.status_code == 200
    assert (payment.kept_notifications.count(), world.fresh(payment).status) == (1, "pending")
    world.time.advance(minutes=2)
    world.run_worker()
    assert world.fresh(payment).status == "paid"


def test_pages_have_heading_language_and_title(
    world: World,
    no_home: None,
) -> None:
    """Each page has one heading, a language and a title, and no inline style or script."""
    order = world.order()
    payment = world.start(order)
    pages = [
        text_of(world.client.get(world.way_to_pay(order))),
        text_of(come_back(world, payment)),
        text_of(come_back(world, payment, wait="40")),
    ]
    world.shopper_pays(payment)
    pages += [
        text_of(come_back(world, payment)),
        text_of(world.client.get(world.way_to_pay(order))),
    ]
    for page in pages:
        assert len(re.findall(r"<h1", page)) == 1
        assert len(re.findall(r"<main", page)) == 1
        assert '<html lang="en-us">' in page
        assert re.search(r"<title>[^<]+</title>", page)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
        for script in re.findall(r"<script[^>]*>", page):
            assert "src=" in script or 'type="application/json"' in script


def test_pages_never_leak_their_address(world: World, no_home: None) -> None:
    order = world.order()
    payment = world.start(order)
    for answer, policy in (
        (come_back(world, payment), "no-referrer"),
        (world.client.get(f"/payments/status/{payment.return_key}/"), "no-referrer"),
        # a form under "no-referrer" is posted with "Origin: null"
        (
            world.client.get(world.way_to_pay(order)),
            "same-origin",
        ),
        (world.client.post(world.way_to_pay(order), {"method": "alipay"}), "same-origin"),
    ):
        assert answer["Referrer-Policy"] == policy
        assert "no-store" in answer["Cache-Control"]


def test_payment_form_requires_csrf_token(world: World) -> None:
    strict = Client(enforce_csrf_checks=True)
    path = world.way_to_pay(world.order())
    assert strict.post(path, {"method": "alipay"}).status_code == 403
    assert not Payment.objects.exists()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', text_of(strict.get(path)))
    assert token
    origin = {"Origin": "http://testserver"}
    assert (
        strict.post(
            path,
            {"method": "alipay", "csrfmiddlewaretoken": token[1]},
            headers=origin,
        ).status_code
        == 200
    )
    assert Payment.objects.exists()


def test_assets_need_no_static_file_server(world: World) -> None:
    payment = world.start(world.order())
    page = text_of(come_back(world, payment))
    addresses = re.findall(r'(?:href|src)="(/payments/assets/[^"]+)"', page)
    assert [re.sub(r"\?.*", "", address) for address in addresses] == [
        "/payments/assets/pages.css",
        "/payments/assets/poll.js",
    ]
    for address in addresses:
        answer = world.client.get(address)
        assert answer.status_code == 200
        assert answer["Content-Type"] in (
            "text/css; charset=utf-8",
            "text/javascript; charset=utf-8",
        )
        assert "max-age" in answer["Cache-Control"]
    assert world.client.get("/payments/assets/../settings.py").status_code == 404
    assert world.client.get("/payments/assets/settings.py").status_code == 404


def test_missing_methods_start_nothing_and_explain(world: World) -> None:
    path = world.way_to_pay(world.order())
    page = text_of(world.client.post(path, {}))
    assert 'aria-describedby="tillgate-method-error"' in page
    assert "This field is required." in page
    assert "Select a valid choice" in text_of(world.client.post(path, {"method": "gold"}))
    assert not Payment.objects.exists()


def test_unpayable_order_explains_why(world: World) -> None:
    order = world.order()
    world.shop.close_order(order)
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert "The shop says: it is cancelled." in page
    assert "<form" not in page


def test_page_after_the_end_says_what_happened(world: World) -> None:
    """The shopper need not ask the shop about it."""
    order = world.order()
    world.start(order)
    world.a_day_passes()
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert "<h1>The time to pay has passed</h1>" in page
    said = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert "This order was not paid in time and was cancelled. Nothing was charged." in said
    assert "Please ask the shop" not in page


def test_open_payment_is_not_called_uncharged(world: World) -> None:
    """Its shopper may have paid just now."""
    order = world.order()
    world.start(order)
    world.shop.close_order(order)
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert "Nothing was charged" not in page
    assert "not paid in time" not in page


def test_return_page_names_the_card_that_paid(world: World, no_home: None) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    come_back(world, payment)
    known = {"paid_with": {"method": "card", "brand": "visa", "last4": "4242"}}
    Payment.objects.update(details=known)
    assert "<dd>Visa ending 4242</dd>" in text_of(come_back(world, payment, wait="1"))


def test_late_shopper_finds_shop_and_items(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.start(world.order())
    total = {"number": "7", "currency": "USD", "amount": Decimal("10.00")}
    described = hooks.OrderDescription(
        **total,  # type: ignore[arg-type]
        not_payable_detail="it is cancelled",
        change_url="/again/7/",
    )
    monkeypatch.setattr(owner, "described", lambda *_: described)
    links = links_of(text_of(world.client.get(world.way_to_pay(payment.order.key))))
    assert links["Order these items again"] == "/again/7/"
    assert links["Back to the shop"] == f"/orders/{payment.order.key}/"


@pytest.mark.parametrize(
    ("costs", "shown"),
    [
        ({"currency": "EUR", "amount": Decimal(10)}, ">EUR 10.00<"),
        ({"amount": Decimal("12.505")}, ">USD 12.505<"),
        ({"amount": Decimal("12.500")}, ">USD 12.50<"),
        ({"amount": Decimal("1E+3")}, ">USD 1,000.00<"),
    ],
)
def test_unpayable_order_still_shows_its_cost(
    world: World,
    costs: dict[str, Any],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = hooks.OrderDescription(**{"number": "7", "currency": "USD", **costs})
    monkeypatch.setattr(hooks, "call_owner", lambda *_, **__: described)
    assert shown in text_of(world.client.get(world.way_to_pay(world.order())))


def test_displayed_cost_ignores_host_decimal_precision() -> None:
    with decimal.localcontext() as context:
        context.prec = 6
        assert money_text(Decimal("1234567.895"), "USD") == "USD 1,234,567.895"


def test_only_configured_methods_are_offered(world: World, settings: Any) -> None:
    settings.TILLGATE = {**settings.TILLGATE, "PAYMENT_METHODS": ["paypal", "venmo"]}
    page = text_of(world.client.get(world.way_to_pay(world.order())))
    assert re.findall(r'value="(\w+)" (?:[^>]* )?id="id_method', page) == ["paypal", "venmo"]
    settings.TILLGATE = {**settings.TILLGATE, "PAYMENT_METHODS": []}
    assert "The shop offers no payment method" in text_of(
        world.client.get(world.way_to_pay(world.order())),
    )


def test_waiting_page_stops_refreshing_eventually(world: World) -> None:
    """A waiting page refreshes without JavaScript, but not without end."""
    payment = world.start(world.order())
    path = f"/payments/return/{payment.return_key}/"
    waiting = text_of(come_back(world, payment, status="success"))
    assert (
        '<noscript><meta http-equiv="refresh" '
        f'content="1;url={path}?wait=1&status=success"></noscript>' in waiting
    )
    tired = text_of(come_back(world, payment, wait="40"))
    assert "refresh" not in tired
    assert re.search(rf'<a class="button[^"]*" href="{path}">Check again</a>', tired)


def test_only_check_again_asks_gateway(world: World, no_home: None) -> None:
    """The 'Check again' link queries the gateway; an automatic refresh does not."""
    payment = world.start(world.order())
    asked = world.queries()
    come_back(world, payment, wait="7")
    assert world.queries() == asked
    world.shopper_pays(payment)
    assert "Thank you" in text_of(come_back(world, payment))


def test_a_shop_overrides_any_block(world: World, settings: Any, tmp_path: Path) -> None:
    own = tmp_path / "tillgate" / "return.html"
    own.parent.mkdir()
    inherited = (APP / "templates" / "tillgate" / "return.html").read_text("utf-8")
    (own.parent / "ours.html").write_text(inherited, "utf-8")
    own.write_text(
        '{% extends "tillgate/ours.html" %}{% block header %}<header>Our shop</header>{% endblock '
        "%}{% block facts %}{% endblock %}",
        "utf-8",
    )
    (engine,) = settings.TEMPLATES
    settings.TEMPLATES = [{**engine, "DIRS": [tmp_path]}]
    page = text_of(come_back(world, world.start(world.order())))
    assert "<header>Our shop</header>" in page
    assert "We have not received a payment yet" in page
    assert "Reference" not in page


def test_method_choice_is_reusable_template_tag(world: World) -> None:
    """A shop can put the method choice into its own form."""
    template = engines["django"].from_string(
        "{% load tillgate %}{% method_choice %}{% pay_url 'smallest-shop' '7' %}",
    )
    shown = template.render({})
    assert "<legend>How would you like to pay?</legend>" in shown
    assert 'name="method" value="alipay"' in shown
    assert "/payments/pay/" in shown


def test_the_pages_in_german(world: World, settings: Any, no_home: None) -> None:
    settings.LANGUAGE_CODE = "de"
    order = world.order("1234.50")
    pay = text_of(world.client.get(world.way_to_pay(order)))
    assert '<html lang="de">' in pay
    for words in (
        "Zahlungsart wählen",
        "Wie möchten Sie bezahlen?",
        "Kredit- oder Debitkarte",
        "Weiter zur Zahlung",
        f"Bestellung S{order}",
        "1.234,50",
    ):
        assert words in pay
    payment = world.start(order)
    assert "Wir haben noch keine Zahlung erhalten" in text_of(come_back(world, payment))
    assert "Wir warten noch auf den Zahlungsdienst" in text_of(
        come_back(world, payment, wait="40", status="success"),
    )
    world.shopper_pays(payment)
    assert "Danke, Ihre Zahlung ist angekommen" in text_of(come_back(world, payment))
    with override("de"):
        assert "Das ist mehr als die 5,00 USD" in str(
            RefundForm(Money("5.00", "USD"), {"amount": "6"}).errors,
        )
        assert str(MethodForm().fields["method"].label) == "Wie möchten Sie bezahlen?"


@pytest.mark.parametrize(
    ("code", "label"),
    [
        ("card", "Kredit- oder Debitkarte"),
        ("checkout", "Karte oder eine andere Zahlungsart"),
        ("gold", "gold"),
    ],
)
def test_unnamed_method_has_fallback_name(
    code: str,
    label: str,
) -> None:
    """Without a name from its gateway, a method shows Tillgate's name or its code."""
    with override("de"):
        assert label_of(code) == label_of(code, Method(code=code)) == label


def test_installed_gateway_plugin_names_its_methods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beads = GatewayProfile(
        name="beads",
        currencies=("USD",),
        methods=(Method(code="gold", label="Golden beads"), Method(code="alipay", label="Pay")),
    )
    monkeypatch.setattr(GatewayProfile, "names", lambda: ["reference", "beads"])
    monkeypatch.setattr(GatewayProfile, "named", {"beads": beads}.get)
    assert (label_of("gold"), label_of("alipay"), label_of("silver")) == (
        "Golden beads",
        "Alipay",
        "silver",
    )


def test_the_admin_in_german(world: World, settings: Any, admin_client: Client) -> None:
    payment = world.paid_payment("30.00")
    queueing.refund(payment.pk, "10.00")
    settings.LANGUAGE_CODE = "de"
    page = text_of(admin_client.get(f"/admin/tillgate/payment/{payment.pk}/change/"))
    for words in (
        "Verlauf",
        "Zahlung begonnen",
        "Geld erstattet",
        "10,00 USD erstattet, 20,00 USD können noch erstattet werden.",
    ):
        assert words in page
    question = text_of(admin_client.get(f"/admin/tillgate/payment/{payment.pk}/refund/"))
    assert "20,00 USD erstatten" in question
    assert '<input type="hidden" name="amount" value="20.00">' in question
    assert "Hier ist nichts" in text_of(admin_client.get("/admin/tillgate/review/"))


# The shopper's next steps -------------------------------------------------------------------------


def test_paid_order_pay_link_leads_home(world: World) -> None:
    """The page says that the order is paid and links to the shop."""
    payment = world.paid_payment()
    path = world.way_to_pay(payment.order.key)
    for answer in (world.client.get(path), world.client.post(path, {"method": "alipay"})):
        page = text_of(answer)
        assert "<h1>This order is already paid</h1>" in page
        assert f'<a class="button" href="/orders/{payment.order.key}/">Back to the shop</a>' in page
        assert "cannot be paid" not in page
        assert "<form" not in page
        assert answer["Referrer-Policy"] == "same-origin"
    assert Payment.objects.count() == 1


@pytest.mark.parametrize("status", ["open", "cancelled"])
def test_pay_link_of_free_order(world: World, status: str) -> None:
    order = world.order()
    ShopOrder.objects.update(total=0, status=status)
    for answer in (world.see_pay_page(order), world.choose(order)):
        page = text_of(answer)
        assert answer.status_code == 200
        assert "<h1>There is nothing to pay for this order</h1>" in page
        assert (
            "You do not have to do anything."
            if status == "open"
            else "The shop says: it is cancelled."
        ) in page
        assert "<form" not in page
    assert not Payment.objects.exists()


OPEN_PAGE = "The payment page for USD 13.43 with Alipay stays open until "


@pytest.mark.parametrize("total", ["0", "-1.00"])
def test_free_order_without_payment_leads_home(world: World, total: str) -> None:
    order = world.order()
    ShopOrder.objects.update(total=Decimal(total))
    for answer in (world.see_pay_page(order), world.choose(order)):
        page = text_of(answer)
        assert "<h1>There is nothing to pay for this order</h1>" in page
        assert '<p class="soft">Order ' in page
        assert links_of(page) == {"Back to the shop": "/"}
        assert "<form" not in page


def test_free_order_warns_of_open_payment_page(world: World) -> None:
    payment = world.start(world.order("13.43"))
    assert OPEN_PAGE not in text_of(world.see_pay_page(payment.order.key))
    assert OPEN_PAGE not in text_of(come_back(world, payment))
    ShopOrder.objects.update(total=0)
    assert OPEN_PAGE in text_of(world.see_pay_page(payment.order.key))
    page = text_of(come_back(world, payment))
    assert OPEN_PAGE in page
    assert "<h1>There is nothing to pay for this order</h1>" in page
    assert "<dd>USD 0.00</dd>" in page
    for wrong in ("not received", "Checking", "Check again", "13.43</dd>"):
        assert wrong not in page
    assert links_of(page) == {"Back to the shop": f"/orders/{payment.order.key}/"}
    assert "Confirming your payment" in text_of(come_back(world, payment, status="success"))
    Payment.objects.update(page_closes_at=payment.created_at)
    assert OPEN_PAGE not in text_of(come_back(world, payment))


@pytest.mark.parametrize("meanwhile", ["cancelled", "closed"])
def test_return_page_of_cancelled_order_says_so(world: World, meanwhile: str) -> None:
    payment = world.start(world.order("13.43"))
    if meanwhile == "closed":
        registering.close_order(world.shop.plugin, payment.order.key)
    else:
        ShopOrder.objects.update(status="cancelled")
    says = {"cancelled": "it is cancelled", "closed": "the order is closed"}[meanwhile]
    for page in map(text_of, (come_back(world, payment), world.see_pay_page(payment.order.key))):
        assert "<h1>This order cannot be paid</h1>" in page
        assert f"The shop says: {says}." in page
        assert OPEN_PAGE in page
        assert "Checking" not in page


def test_return_page_of_repriced_order_names_new_price(world: World) -> None:
    payment = world.start(world.order("13.43"))
    world.shop.edit_total(payment.order.key, Decimal("8.00"))
    page = text_of(come_back(world, payment))
    assert "The order has changed: it now costs USD 8.00." in page
    assert OPEN_PAGE in page
    assert "<dd>USD 8.00</dd>" in page
    assert "13.43</dd>" not in page
    assert "Choose how to pay" in links_of(page)
    pay_page = text_of(world.see_pay_page(payment.order.key))
    assert OPEN_PAGE in pay_page
    assert "Go on paying" not in pay_page


def test_pay_page_reads_methods_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    order, choices = world.order(), methods.choices_for

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return choices(*arguments)

    monkeypatch.setattr(forms, "choices_for", counted)
    for answer in (world.see_pay_page(order), world.choose(order)):
        assert answer.status_code == 200
    assert len(asked) == 2


def test_free_order_return_offers_no_payment(world: World) -> None:
    payment = world.start(world.order())
    assert "/pay/" in text_of(world.come_back(payment))
    ShopOrder.objects.update(total=0)
    page = text_of(world.come_back(payment))
    assert "/pay/" not in page
    assert payment.payment_url not in page


def test_refunded_order_never_reads_as_paid(
    world: World,
) -> None:
    """The pay link of a fully refunded order does not call it paid."""
    payment = world.paid_payment()
    path = world.way_to_pay(payment.order.key)
    queueing.refund(payment.pk, "1.00")
    assert "This order is already paid" in text_of(world.client.get(path))
    queueing.refund(payment.pk, payment.amount - 1)
    page = text_of(world.client.get(path))
    assert "it was paid, and all of the money was refunded" in page
    assert "already paid" not in page


def test_double_payment_refunded_once_is_partial(
    world: World,
) -> None:
    """An order paid twice and refunded once does not read as fully refunded."""
    order = world.order()
    payments = [world.start(order, method) for method in ("alipay", "paypal")]
    for payment in payments:
        world.shopper_pays(payment)
        world.notification(payment)
    queueing.refund(payments[0].pk, payments[0].amount)
    assert "all of the money was refunded" not in text_of(world.client.get(world.way_to_pay(order)))


def test_externally_paid_order_shows_shop_text(
    world: World,
) -> None:
    """If an order was paid outside Tillgate, its pay link shows the shop's text."""
    page = text_of(
        world.client.get(world.way_to_pay(world.shop.place_order_paid_otherwise(Decimal("12.50")))),
    )
    assert "The shop says: it is paid." in page


def test_missing_shop_page_means_no_link(world: World, no_home: None) -> None:
    """A paid order links to the shop only if the shop has a page for it."""
    payment = world.paid_payment()
    page = text_of(world.client.get(world.way_to_pay(payment.order.key)))
    assert "This order is already paid" in page
    assert "Back to the shop" not in page


@pytest.mark.parametrize("status", ["", "pending", "cancelled", "success"])
def test_abandoned_payment_offers_next_steps(
    world: World,
    status: str,
) -> None:
    """The shopper reads the state and can pay, choose again or return to the shop."""
    payment = world.start(world.order())
    for query in ({}, {"wait": "1"}, {"wait": "40"}):
        page = text_of(come_back(world, payment, status=status, **query))
        assert ("<h1>We have not received a payment yet</h1>" in page) is (status != "success"), (
            "the return's words shape ours"
        )
        if status == "success" and query != {"wait": "40"}:
            assert not {"Pay now", "Choose another payment method"} & set(links_of(page)), (
                "no invitation to pay again while it waits"
            )
        else:
            assert links_of(page)["Pay now"] == payment.payment_url
            assert (
                world.client.get(links_of(page)["Choose another payment method"]).status_code == 200
            )
        assert links_of(page)["Back to the shop"] == f"/orders/{payment.order.key}/"
    assert world.fresh(payment).status == "pending", "and no more than our words"


def test_unanswered_query_does_not_read_unpaid(world: World) -> None:
    payment = world.start(world.order())
    world.sandbox.control.fault("server_error", occasion="query", times=9)
    page = text_of(come_back(world, payment))
    assert "<h1>We are still waiting for the payment service</h1>" in page
    assert "poll.js" in page


@pytest.mark.parametrize(
    ("status", "word", "heading"),
    [
        ("failed", "failed", "Your payment was declined"),
        ("failed", "", "This payment method is not available now"),
        ("closed", "cancelled", "The payment was cancelled"),
        ("closed", "expired", "The time to pay has passed"),
        ("closed", "a word of another gateway", "The payment was not made"),
        ("expired", "pending", "The time to pay has passed"),
    ],
)
def test_unpaid_payment_explains_next_step(
    world: World,
    status: str,
    word: str,
    heading: str,
) -> None:
    """A payment that ended unpaid says why and offers the next step."""
    payment = world.start(world.order("39.90"))
    Payment.objects.update(status=status, status_text=word)
    page = text_of(come_back(world, payment, wait="1"))
    assert f"<h1>{heading}</h1>" in page
    assert all(
        text in page
        for text in (
            "USD 39.90",
            f"S{payment.order.key}",
            ">1 \N{MULTIPLICATION SIGN} Something nice<",
        )
    )
    assert set(links_of(page)) == {"Choose how to pay", "Back to the shop"}
    assert (
        order_state(world.shop.plugin, payment.order.key).payments[0].unpaid_detail == f"{heading}."  # type: ignore[union-attr]
    )


def test_gateway_failure_text_is_stored(world: World) -> None:
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    assert "<h1>Your payment was declined</h1>" in text_of(come_back(world, payment))
    assert world.fresh(payment).status_text == "failed"


@pytest.mark.parametrize(
    "needs",
    ["another account", "data of its own", "an order that takes no payment"],
)
def test_failed_payment_redirects_to_shop_page(
    world: World,
    needs: str,
) -> None:
    """Our page sends the shopper to the shop when it cannot start another payment."""
    payment = world.start(world.order())
    changed: dict[str, dict[str, Any]] = {
        "another account": {"account": "organizer-1"},
        "data of its own": {"data": {"theirs": 1}},
    }
    Payment.objects.update(status="failed", status_text="failed", **changed.get(needs, {}))
    if needs == "an order that takes no payment":
        registering.close_order(world.shop.plugin, payment.order.key)
    answer = come_back(world, payment, wait="1")
    assert (answer.status_code, answer["Location"]) == (302, f"/orders/{payment.order.key}/")


def test_head_on_addresses_of_shoppers_changes_nothing(world: World) -> None:
    payment = world.start(world.order())
    order, before = world.order(), world.queries()
    start = start_url(world.shop.plugin, order, "alipay")
    for address in (world.way_to_pay(order), start, f"/payments/return/{payment.return_key}/"):
        assert world.client.head(address).status_code == 200
    assert Payment.objects.count() == 1
    assert world.queries() == before


@pytest.mark.parametrize(
    ("change_url", "is_shown"),
    [("/change/7/", True), ("https://shop.example/7/", True), ("javascript:x", False)],
)
def test_unpaid_order_links_to_shop_changes(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    change_url: str,
    is_shown: bool,
) -> None:
    """'Change or cancel' is offered only where the shop gives an address for it."""
    payment = world.start(world.order("10.00"))
    described = hooks.OrderDescription(
        number="7",
        currency="USD",
        amount=Decimal("10.00"),
        change_url=change_url,
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            hooks,
            "call_owner",
            lambda plugin, hook, **_: described if hook == "tillgate_describe_order" else None,
        )
        assert "Change or cancel" not in text_of(come_back(world, payment)), (
            "a stranger may have the address"
        )
        world.client.cookies["tillgate_shopper"] = new_ticket(world.shop.plugin, payment.order.key)
        for page in (
            come_back(world, payment),
            world.client.get(world.way_to_pay(payment.order.key)),
        ):
            assert (
                links_of(text_of(page)).get("Change or cancel the order") == change_url
            ) is is_shown
        Payment.objects.update(is_processing=True)
        for page in (
            come_back(world, payment, wait="1"),
            world.client.get(world.way_to_pay(payment.order.key)),
        ):
            assert "Change or cancel" not in text_of(page)


@pytest.mark.parametrize(
    ("choose_url", "is_shown"),
    [
        ("/choose/7/", True),
        ("https://shop.example/7/", True),
        ("javascript:x", False),
        (None, False),
    ],
)
def test_return_page_links_to_shop_choice(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    choose_url: str | None,
    is_shown: bool,
) -> None:
    """This applies where our own page could not start another payment."""
    payment = world.start(world.order("10.00"))
    described = hooks.OrderDescription(
        number="7",
        currency="USD",
        amount=Decimal("10.00"),
        choose_url=choose_url,
    )
    monkeypatch.setattr(
        hooks,
        "call_owner",
        lambda plugin, hook, **_: described if hook == "tillgate_describe_order" else None,
    )
    label = "Choose another payment method"
    assert "/payments/pay/" in links_of(text_of(come_back(world, payment, wait="1")))[label]
    Payment.objects.update(account="organizer-1")
    assert (
        choose_url in links_of(text_of(come_back(world, payment, wait="1"))).values()
    ) is is_shown


def test_i4_overpaid_order_explains_what_follows(world: World) -> None:
    """A shopper that paid twice or too much reads the next step."""
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
    assert come_back(world, first)["Location"] == f"/orders/{order}/"
    page = text_of(come_back(world, second))
    assert "<h1>This order was paid twice</h1>" in page
    assert set(links_of(page)) == {"Back to the shop"}
    assert "was refunded." not in page
    queueing.refund(second.pk, Decimal("1.00"))
    assert "<p>USD 1.00 was refunded.</p>" in text_of(come_back(world, second))
    queueing.refund(second.pk, second.amount - 1)
    assert "<h1>Your payment was refunded</h1>" in (page := text_of(come_back(world, second)))
    assert "was refunded.</p>" not in page
    _, payment = underpaid(world)
    assert "<h1>Your payment has arrived, and the shop reviews it</h1>" in text_of(
        come_back(world, payment),
    )
    payment = world.start(world.order("10.00"))
    world.shop.edit_total(payment.order.key, Decimal("8.00"))
    world.shopper_pays(payment)
    assert "<h1>You have paid more than the order costs</h1>" in text_of(come_back(world, payment))


def test_i4_paid_order_links_no_payment_page(
    world: World,
) -> None:
    """This holds before and after the event is delivered to the shop."""
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    world.shopper_pays(first)
    with world.failing_handler("tillgate_payment_paid", times=2):
        world.notification(first)
        pages = [come_back(world, second), world.client.get(world.way_to_pay(order))]
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.shop.is_paid(order)
    for page in (*pages, come_back(world, second), come_back(world, second, wait="40")):
        assert "<h1>This order is already paid</h1>" in text_of(page)
        assert second.payment_url not in text_of(page)
        assert "/payments/pay/" not in text_of(page)


@pytest.mark.parametrize(
    "meanwhile",
    ["closed", "cancelled", "paid otherwise", "dearer", "cheaper", "gone", "a shop that fails"],
)
def test_outdated_amount_is_never_offered(
    world: World,
    meanwhile: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No page leads on to pay an amount that the order no longer costs."""
    order = world.order("10.00")
    payment = world.start(order)
    assert payment.payment_url in text_of(come_back(world, payment))
    if meanwhile == "closed":
        registering.close_order(world.shop.plugin, order)
    elif meanwhile == "cancelled":
        ShopOrder.objects.filter(pk=order).update(status="cancelled")
    elif meanwhile == "paid otherwise":
        ShopOrder.objects.filter(pk=order).update(status="paid")
    elif meanwhile == "gone":
        ShopOrder.objects.filter(pk=order).delete()
    elif meanwhile == "a shop that fails":
        monkeypatch.setattr(hooks, "call_owner", _broken)
    else:
        world.shop.edit_total(order, Decimal("12.00") if meanwhile == "dearer" else Decimal("8.00"))
    for query in ({}, {"wait": "1"}, {"wait": "40"}):
        page = text_of(come_back(world, payment, **query))
        assert payment.payment_url not in page
        assert ("/payments/pay/" in page) is (meanwhile in ("dearer", "cheaper")), (
            "it shows the price of now"
        )


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the shop's database is away")


def test_closed_order_has_no_payment_page(
    world: World,
) -> None:
    """The page is not offered even if the shop would still take the money."""
    order = world.order()
    payment = world.start(order)
    registering.close_order(world.shop.plugin, order)
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert payment.payment_url not in page
    assert "Go on paying" not in page
    assert "The shop says: the order is closed." in page
    assert "<form" not in page


def underpaid(world: World) -> tuple[str, Payment]:
    """Return an order of USD 12 that holds USD 10, and the payment."""
    order = world.order("10.00")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("12.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    return order, payment


def test_i4_held_money_is_reported_before_paying(world: World) -> None:
    """It was too little, or came while the order was cancelled: it waits for staff, and the order
    could be paid once more.
    """
    order, payment = underpaid(world)
    assert world.reviews() == ["underpaid"]
    page = world.way_to_pay(order)
    doors = [
        world.client.get(page),
        world.client.get(start_url(world.shop.plugin, order, "alipay")),
    ]
    # from a tab of before
    doors += [
        world.client.post(f"{page}{told}", {"method": "alipay"}) for told in ("", "?held=ANOTHER")
    ]
    for answer in doors:
        assert "USD 10.00 has arrived for this order already, with Alipay" in text_of(answer)
        assert f'?held={payment.reference}"' in text_of(answer)
    assert Payment.objects.count() == 1, "nobody is led on unasked"
    # after reading it the shopper may, as with the rest
    answer = world.client.post(f"{page}?held={payment.reference}", {"method": "alipay"})
    assert world.onward(answer) == Payment.objects.latest("pk").payment_url
    assert Payment.objects.count() == 2


def test_i4_all_held_money_is_reported(
    world: World,
) -> None:
    """This includes money that arrived after the page was opened."""
    order = world.order("10.00")
    first = world.start(order)
    second = world.start(order, "paypal")
    world.shop.edit_total(order, Decimal("22.00"))
    world.shopper_pays(second)
    world.notification(second)
    page = world.way_to_pay(order)
    assert "USD 10.00 has arrived for this order already, with PayPal" in text_of(
        world.client.get(page),
    )
    world.shopper_pays(first)
    world.notification(first)
    answer = world.client.post(f"{page}?held={second.reference}", {"method": "wechatpay"})
    assert "USD 20.00 has arrived for this order already, with PayPal, Alipay" in text_of(answer)
    assert f'?held={second.reference}+{first.reference}"' in text_of(answer)
    assert Payment.objects.count() == 2
    assert world.onward(
        world.client.post(
            f"{page}?held={first.reference}+{second.reference}",
            {"method": "wechatpay"},
        ),
    )


def reported_paid(world: World, fault: str = "wrong_amount") -> Payment:
    """Return a payment that its shopper paid, and that the gateway reports paid with a fault."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault(fault, occasion="query", times=100)
    world.notification(payment)
    assert world.fresh(payment).is_open
    return payment


def test_i4_paid_report_comes_before_repaying(
    world: World,
) -> None:
    """If the gateway says paid, the shopper reads so before paying the order again."""
    payment = reported_paid(world)
    path, note = (
        world.way_to_pay(payment.order.key),
        "you have paid with Alipay already, and something about it is not in order",
    )
    for method in ("alipay", "paypal"):
        first = world.client.post(path, {"method": method})
        assert note in text_of(first)
        assert "Go on paying" not in text_of(first)
        assert note in text_of(
            world.client.get(start_url(payment.order.plugin, payment.order.key, method)),
        )
    assert Payment.objects.count() == 1
    asked_back = text_of(world.client.post(path, {"method": "paypal"}))
    assert re.search(r'value="paypal"[^>]* checked', asked_back), "what was chosen is kept"
    assert '<div class="note" role="alert">' in asked_back
    assert "<title>Problem: Choose how to pay" in asked_back
    (address,) = re.findall(
        r'<form method="post" action="([^"]+)"',
        text_of(world.client.get(path)),
    )
    for method in ("paypal", "alipay"):
        answer = world.client.post(address, {"method": method})
        assert (
            world.onward(answer) == Payment.objects.latest("pk").payment_url != payment.payment_url
        ), "it is for the shopper to decide"
    assert Payment.objects.count() == 3


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "failed"])
def test_i4_reported_payment_never_reads_as_uncharged(
    world: World,
    no_home: None,
    is_open: bool,
) -> None:
    """If the gateway calls a payment paid, its page does not say nothing was charged."""
    payment = reported_paid(world)
    if not is_open:
        Payment.objects.update(status="failed")
    assert world.client.get(f"/payments/status/{payment.return_key}/").json()["settled"], (
        "a page that waits has something else to say"
    )
    page = text_of(come_back(world, payment))
    assert "<h1>Your payment is under review</h1>" in page
    assert "Please ask the shop before you pay again." in page
    assert all(
        text not in page
        for text in ("Nothing was charged", "Pay now", "Did not pay?", "poll.js", "http-equiv")
    )
    world.sandbox.control.clear_faults()
    world.time.advance(minutes=10)
    world.run_worker()
    assert (
        "Thank you, your payment has arrived" in text_of(come_back(world, payment)) or not is_open
    )


def test_second_payment_page_waits_for_result(
    world: World,
    no_home: None,
) -> None:
    """The page waits until it can say that the order was paid twice."""
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    world.shopper_pays(first)
    world.notification(first)
    world.sandbox.control.fault("server_error", occasion="query", times=9)
    page = text_of(come_back(world, second, status="success"))
    assert "<h1>This order is already paid</h1>" in page
    assert "poll.js" in page, "its money may come too"
    assert not {"Pay now", "Choose another payment method"} & set(links_of(page))
    status = f"/payments/status/{second.return_key}/"
    assert not world.client.get(status).json()["settled"]
    world.sandbox.control.clear_faults()
    world.shopper_pays(second)
    world.notification(second)
    assert world.client.get(status).json()["settled"]
    page = text_of(come_back(world, second, wait="1"))
    assert "<h1>This order was paid twice</h1>" in page
    assert "poll.js" not in page


@pytest.mark.parametrize("ends", ["paid by another payment", "closed"])
def test_waiting_page_stops_offering_payment(
    world: World,
    ends: str,
) -> None:
    """The offer goes away once the order takes no more money."""
    order = world.order()
    payment, other = world.start(order), world.start(order, "paypal")
    page = text_of(come_back(world, payment, wait="1"))
    (status,) = re.findall(r'"statusUrl": "([^"]+)"', page)
    assert not world.client.get(status).json()["settled"]
    if ends == "closed":
        registering.close_order(world.shop.plugin, order)
    else:
        world.shopper_pays(other)
        world.notification(other)
    assert world.client.get(status).json()["settled"]
    page = text_of(come_back(world, payment, wait="2"))
    assert not {"Pay now", "Choose another payment method"} & set(links_of(page))
    (status,) = re.findall(r'"statusUrl": "([^"]+)"', page)
    assert not world.client.get(status).json()["settled"], "the page does not reload for ever"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_cache_answers_for_the_gateways_notifications(world: World, method: str) -> None:
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "1.00")
    for address in (
        f"/payments/notification/{payment.notification_key}/",
        f"/payments/refund-notification/{refund.notification_key}/",
    ):
        answer = world.client.generic(method, address)
        assert (answer.status_code, answer.content) == (200, b"success")
        assert "no-store" in answer["Cache-Control"]


def test_pages_never_ask_for_login(
    world: World,
    settings: Any,
) -> None:
    """This holds even if the project requires a login everywhere."""
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE,
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
    ]
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "1.00")
    order = world.order()
    for address in (
        f"/payments/notification/{payment.notification_key}/",
        f"/payments/refund-notification/{refund.notification_key}/",
        f"/payments/status/{payment.return_key}/",
        world.way_to_pay(order),
        "/payments/assets/poll.js",
    ):
        assert Client().get(address).status_code == 200, address
    for address in (
        f"/payments/return/{payment.return_key}/",
        start_url(payment.order.plugin, order, "alipay"),
    ):
        answer = Client().get(address)
        assert "login" not in answer.get("Location", ""), address


def test_undelivered_payment_shows_order_as_paid(world: World) -> None:
    """The order is shown as paid even while the event cannot be delivered."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=9):
        world.notification(payment)
        page = text_of(world.client.get(world.way_to_pay(order)))
    assert "This order is already paid" in page
    assert "Continue to payment" not in page


def test_i4_refund_before_delivery_never_reads_paid(
    world: World,
) -> None:
    """Money returned before the shop heard of it does not make the order look paid."""
    order = world.order()
    payment, other = world.start(order), world.start(order, "paypal")
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=9):
        world.notification(payment)
        queueing.refund(payment.pk, payment.amount)
        assert other.payment_url in text_of(world.client.get(world.way_to_pay(order)))
        started = starting.start_payment(world.shop.plugin, order, method="wechatpay")
    assert started.outcome == "redirect"
    assert started.payment not in (payment, other)


def test_order_descriptions_run_in_transaction(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plugin may lock the rows it reads while describing an order."""
    order, call_owner, seen = world.order(), hooks.call_owner, list[bool]()
    payment = world.start(order)

    def calling(plugin: str, hook: str, **given: Any) -> Any:
        if hook == "tillgate_describe_order":
            seen.append(connection.in_atomic_block)
        return call_owner(plugin, hook, **given)

    monkeypatch.setattr(hooks, "call_owner", calling)
    world.client.get(world.way_to_pay(order))
    come_back(world, payment)
    assert seen == [True, True]


def test_refunded_money_does_not_block_payment(world: World) -> None:
    order, payment = underpaid(world)
    queueing.refund(payment.pk, "4.00")
    page = world.way_to_pay(order)
    assert "USD 6.00 has arrived" in text_of(world.client.get(page))
    queueing.refund(payment.pk, "6.00")
    assert "has arrived" not in text_of(world.client.get(page))
    assert world.onward(world.client.get(start_url(world.shop.plugin, order, "alipay")))


def test_shop_page_button_reports_undelivered_payment(
    world: World,
) -> None:
    """The shopper learns that the order is paid while the event cannot be delivered."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=1):
        world.notification(payment)
        answer = world.client.get(start_url(world.shop.plugin, order, "alipay"))
    assert (answer.status_code, answer.headers.get("Location")) == (
        302,
        f"/payments/return/{payment.return_key}/",
    )
    assert Payment.objects.count() == 1


def test_closing_payment_page_is_not_offered(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.time.advance(minutes=119)
    returned = text_of(come_back(world, payment))
    assert "Choose how to pay" in links_of(returned)
    assert payment.payment_url not in returned
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert "still open" not in page
    assert "You may have paid already" in page


def test_uncertain_payment_has_no_payment_page(
    world: World,
    no_home: None,
) -> None:
    """A payment that may not have begun offers no payment page to continue with."""
    order = world.order()
    world.sandbox.control.fault("lost_response", occasion="pay")
    assert world.choose(order).status_code == 409
    page = text_of(come_back(world, Payment.objects.get()))
    assert "We have not received a payment yet" in page
    assert "Pay now" not in page


def test_settled_payment_is_not_continued(world: World, no_home: None) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    page = text_of(come_back(world, payment))
    assert "Thank you" in page
    assert payment.payment_url not in page


def test_pay_link_leads_to_open_payment(world: World) -> None:
    order = world.order()
    path = world.way_to_pay(order)
    assert "still open" not in text_of(world.client.get(path))
    payment = world.start(order, "paypal")
    page = text_of(world.client.get(path))
    assert "A payment with PayPal is still open." in page
    assert "You may have paid already" in page
    assert f'<a href="{payment.payment_url}">Go on paying</a>' in page
    assert f'<a href="/payments/return/{payment.return_key}/">See how it stands</a>' in page
    assert "<form" in page
    assert Payment.objects.count() == 1


def test_changed_amount_hides_open_payment(world: World) -> None:
    order = world.order("10.00")
    world.start(order)
    world.shop.edit_total(order, Decimal("12.00"))
    page = text_of(world.client.get(world.way_to_pay(order)))
    assert "still open" not in page
    assert "You may have paid already" in page


def test_unpayable_reason_uses_shopper_language(
    world: World,
    settings: Any,
) -> None:
    settings.LANGUAGE_CODE = "de"
    order = world.order()
    path = world.way_to_pay(order)
    registering.close_order("smallest-shop", order)
    answer = world.client.post(path, {"method": "alipay"})
    assert answer.status_code == 409
    assert "Der Shop sagt: die Bestellung ist geschlossen." in html.unescape(
        answer.content.decode(),
    )


def test_payment_carries_shopper_language(
    world: World,
    settings: Any,
) -> None:
    """This holds wherever the shopper chose the payment method."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    client, order = Client(headers={"Accept-Language": "de"}), world.order()
    client.post(world.way_to_pay(order), {"method": "alipay"})
    client.get(start_url(world.shop.plugin, order, "paypal"))
    assert [payment.data for payment in Payment.objects.all()] == [{"language": "de"}] * 2


def test_unsuitable_method_is_disabled_with_reason(
    world: World,
) -> None:
    limits = [
        {"code": "alipay", "maximums": {"USD": "5000"}},
        {"code": "paypal", "minimums": {"USD": "9000"}},
        {"code": "venmo"},
    ]
    world.configure(
        {
            "METHODS": [
                *limits,
                {"code": "gcash", "currencies": ["PHP"]},
                {"code": "konbini", "kind": "counter"},
            ],
        },
    )
    order = world.order("6000.00")
    page = text_of(world.client.get(world.way_to_pay(order)))
    for reason in (
        "takes orders up to USD 5,000.00",
        "takes orders from USD 9,000.00",
        "not for orders in USD",
    ):
        assert reason in page
    assert re.findall(r'name="method" value="(\w+)"', page) == ["venmo", "konbini"]
    assert page.count("disabled") == 3
    assert page.count('class="tillgate-mark"') == 5
    assert world.choose(order, "alipay").status_code == 409
    assert not Payment.objects.exists()


def test_page_shows_shop_name_and_mode(world: World) -> None:
    """The page shows the shop's name and says when test mode moves no money."""
    page = world.way_to_pay(world.order())
    shown = text_of(world.client.get(page))
    assert '<a href="/">127.0.0.1:2</a>' in shown
    assert "Test mode: no money moves." in shown
    world.configure(
        {"SANDBOX": False, "BASE_URL": "https://pay.example"},
        SHOP_NAME="Fold & Margin",
    )
    shown = text_of(world.client.get(page))
    assert "Fold & Margin</a>" in shown
    assert "Test mode" not in shown
