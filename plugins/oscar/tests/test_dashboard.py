"""Oscar's real dashboard: an order's payments for staff, and refunds."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.db.models import QuerySet
from django.test import Client
from django.utils.html import strip_tags
from oscar.core.loading import get_model

from tests import urls
from tests.shopper import fields_of
from tests.test_refunds import Bought
from tillgate import shop
from tillgate.django.models import Refund
from tillgate.testing.world import World, together
from tillgate_oscar.refunds import refund_event_type

Order = get_model("order", "Order")


@pytest.fixture
def bought(world: World, product: Callable[..., Any]) -> Bought:
    return Bought(world, product)


def staff(name: str, *permissions: str, is_staff: bool = True) -> Client:
    """Return the browser of a logged-in user with these permissions."""
    staff = User.objects.create_user(name, f"{name}@shop.example", is_staff=is_staff)
    for permission in permissions:
        app, _, codename = permission.partition(".")
        staff.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename),
        )
    client = Client()
    client.force_login(staff, backend="django.contrib.auth.backends.ModelBackend")
    return client


SEES = ("order.view_order", "tillgate.view_review", "tillgate.view_payment")
MAY = (*SEES, "tillgate.refund_payment")


@pytest.fixture
def ann(transactional_db: None) -> Client:
    """The browser of a clerk with all permissions about orders."""
    return staff("ann", *MAY)


def url_of(order: Any) -> str:
    return f"/dashboard/orders/{order.number}/"


def text_of(answer: Any) -> str:
    assert answer.status_code == 200, (answer.status_code, answer.content[:500])
    return str(answer.content.decode())


def presses(client: Client, order: Any, page: Any = None, **changes: Any) -> Any:
    """Press the button of the refund form as it is on a page; return the page that follows."""
    fields = fields_of(page or client.get(url_of(order)), "tillgate_refund_form")
    return client.post(url_of(order), {**fields, **changes}, follow=True)


def presses_for_lines(
    client: Client,
    order: Any,
    quantities: dict[Any, int],
    page: Any = None,
    **changes: Any,
) -> Any:
    """Select lines, choose "Refund" and press the button of Oscar's own form; return the page that
    follows.
    """
    fields: dict[str, Any] = fields_of(page or client.get(url_of(order)), "order_lines_form")
    fields |= {
        "line_action": "create_payment_event",
        "payment_event_type": refund_event_type().code,
        "amount": "",
    }
    fields |= {"selected_line": [line.pk for line in quantities]}
    fields |= {f"selected_line_qty_{line.pk}": quantity for line, quantity in quantities.items()}
    return client.post(url_of(order), {**fields, **changes}, follow=True)


def messages_of(page: Any) -> list[str]:
    """Return the messages of the page; not from its context, where the test client mixes up pages
    that are rendered at the same time.
    """
    alerts = re.findall(r'<div class="alertinner.*?</div>', text_of(page), re.DOTALL)
    return [html.unescape(strip_tags(alert)).strip() for alert in alerts]


# The order's page ---------------------------------------------------------------------------------


def test_order_page_shows_payments_and_timelines(
    bought: Bought,
    ann: Client,
) -> None:
    """No secret is shown."""
    order, other = bought.order, bought.world.start(bought.world.order("5.00"))
    page = text_of(ann.get(url_of(order)))
    payment = bought.world.fresh(bought.payment)
    assert payment.reference in page
    assert payment.transaction_no is not None
    assert payment.transaction_no in page
    assert "paid the order" in page
    assert "USD 32.00" in page
    assert "Waiting for the shopper" in page
    assert other.reference not in page
    for secret in (payment.notification_key, payment.return_key, payment.payment_url):
        assert secret not in page
    assert f"/admin/tillgate/payment/{payment.pk}/change/" in page


def test_foreign_order_page_is_unchanged(
    bought: Bought,
    ann: Client,
) -> None:
    """An order without Tillgate payments keeps the shop's own page."""
    order = bought.order
    order.pk, order.number, order.basket = None, "cash-1", None
    order.save()
    answer = ann.get(url_of(order))
    assert "tillgate" not in text_of(answer).replace("/admin/tillgate/", "")
    assert "tillgate_oscar/dashboard/order_detail.html" not in [
        template.name for template in answer.templates
    ]


def test_waiting_order_offers_no_refund(
    world: World,
    ann: Client,
) -> None:
    """The page shows that the order waits for payment."""
    order = Order.objects.get(number=world.order("12.50"))
    assert "Nobody has started to pay this order yet." in text_of(ann.get(url_of(order)))
    world.start(order.number)
    page = text_of(ann.get(url_of(order)))
    assert "waiting" in page
    assert "tillgate_refund_form" not in page


def test_order_page_shows_reviews_to_resolve(
    bought: Bought,
    ann: Client,
) -> None:
    """Each open review links to the page where it can be resolved."""
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    refund = bought.ask(Decimal("8.00"))
    page = text_of(ann.get(url_of(bought.order)))
    (review,) = shop.open_reviews("oscar", order_keys=[bought.order.number])
    assert f'href="/admin/tillgate/review/{review.id}/change/"' in page
    assert review.message[:40] in page
    assert review.recommendation.partition("'")[0] in page
    assert "Do not send it again" in page
    assert "Do not send it again" not in text_of(
        ann.get(url_of(Order.objects.get(number=bought.world.order("5.00")))),
    )
    shop.settle_refund(refund.id, done=False, staff="ann")
    assert f"/review/{review.id}/" not in text_of(ann.get(url_of(bought.order)))


def test_refunded_order_is_marked_everywhere(
    bought: Bought,
    ann: Client,
) -> None:
    """The list, the downloaded file and the order page all say it."""
    untouched = Order.objects.get(number=bought.world.order("5.00"))
    refunded = Order.objects.exclude(pk=untouched.pk).get()
    assert "badge-danger" not in text_of(ann.get("/dashboard/orders/"))
    # it is there
    payment = shop.order_state("oscar", refunded.number).paid_by  # type: ignore[union-attr]
    shop.refund(payment.id, Decimal("8.00"))  # type: ignore[union-attr]
    assert text_of(ann.get("/dashboard/orders/")).count(">partly refunded<") == 1
    shop.refund(payment.id, Decimal("24.00"))  # type: ignore[union-attr]
    page = text_of(ann.get("/dashboard/orders/"))
    assert page.count('Paid <span class="badge badge-danger">refunded</span>') == 1
    chosen = {"action": "download_selected_orders", "selected_order": [refunded.pk, untouched.pk]}
    rows = ann.post("/dashboard/orders/", chosen).content.decode().splitlines()
    assert sorted("Paid (refunded)" in row for row in rows[1:]) == [False, True]
    assert "do not ship it" in text_of(ann.get(url_of(refunded)))
    assert "do not ship it" not in text_of(ann.get(url_of(untouched)))
    assert Order.objects.get(pk=refunded.pk).status == "Paid"


def test_partner_sees_review_without_admin_link(bought: Bought) -> None:
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask(Decimal("8.00"))
    partner = staff("pat", "partner.dashboard_access", is_staff=False)
    assert partner.get(url_of(bought.order)).status_code == 404
    bought.tea.partner.users.add(User.objects.get(username="pat"))
    page = text_of(partner.get(url_of(bought.order)))
    assert "nobody knows whether it went out" in page
    assert "/admin/" not in page
    assert 'id="tillgate_refund_form"' not in page


def test_order_page_works_without_admin(
    bought: Bought,
    ann: Client,
    settings: Any,
) -> None:
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask(Decimal("8.00"))
    settings.ROOT_URLCONF = type(
        "WithoutAdmin",
        (),
        {"urlpatterns": [one for one in urls.urlpatterns if str(one.pattern) != "admin/"]},
    )
    page = text_of(ann.get(url_of(bought.order)))
    assert "nobody knows whether it went out" in page
    assert "/admin/" not in page


# Giving money back --------------------------------------------------------------------------------


def test_order_page_refunds_partial_amount(bought: Bought, ann: Client) -> None:
    page = presses(ann, bought.order, amount="2.50", reason="a cup was broken")
    assert messages_of(page) == ["USD 2.50 was refunded."]
    assert page.redirect_chain == [(f"{url_of(bought.order)}#payment", 302)]
    assert bought.refunded_amount() == Decimal("2.50")
    assert bought.events() == [(Decimal("2.50"), {})]
    refund = Refund.objects.get()
    assert (refund.requested_by, refund.reason) == ("ann", "a cup was broken")
    shown = text_of(page)
    assert "a cup was broken" in shown
    assert "USD 29.50" in shown
    assert "Money refunded" in shown


def test_refund_form_offers_remaining_amount(
    bought: Bought,
    ann: Client,
) -> None:
    """The form goes away when nothing is left to refund."""
    assert fields_of(ann.get(url_of(bought.order)), "tillgate_refund_form")["amount"] == "32.00"
    page = presses(ann, bought.order)
    assert bought.refunded_amount() == Decimal("32.00")
    assert 'id="tillgate_refund_form"' not in text_of(page)


def test_oscar_form_refunds_lines_at_price(
    bought: Bought,
    ann: Client,
) -> None:
    """The amount is the price of the chosen quantity."""
    page = presses_for_lines(ann, bought.order, {bought.tea: 2})
    assert messages_of(page) == ["USD 8.00 was refunded."]
    assert bought.events() == [(Decimal("8.00"), {"Tea": 2})]
    assert bought.refunded_amount() == Decimal("8.00")


def test_lines_are_refunded_for_entered_amount(bought: Bought, ann: Client) -> None:
    presses_for_lines(ann, bought.order, {bought.tea: 3, bought.pot: 1}, amount="5.00")
    assert bought.events() == [(Decimal("5.00"), {"Tea": 3, "Pot": 1})]


def test_double_press_makes_one_refund(
    bought: Bought,
    ann: Client,
) -> None:
    """Both presses are answered with the same message."""
    before = ann.get(url_of(bought.order))
    for said in (
        "USD 2.50 was refunded.",
        "USD 2.50 had been refunded already; nothing more was sent.",
    ):
        assert messages_of(presses(ann, bought.order, before, amount="2.50")) == [said]
    assert bought.refunded_amount() == Decimal("2.50")
    before = ann.get(url_of(bought.order))
    for said in (
        "USD 4.00 was refunded.",
        "USD 4.00 had been refunded already; nothing more was sent.",
    ):
        shown = presses_for_lines(ann, bought.order, {bought.tea: 1}, before)
        assert messages_of(shown) == [said]
    assert bought.refunded_amount() == Decimal("6.50")


def test_quicker_colleague_refund_is_reported(bought: Bought, ann: Client) -> None:
    before = ann.get(url_of(bought.order))
    presses(staff("bob", *MAY), bought.order, amount="2.50")
    said = messages_of(presses(ann, bought.order, before, amount="2.50"))
    assert len(said) == 1
    assert "a refund of USD 2.50" in said[0]
    assert "was asked for in the meantime" in said[0]
    assert bought.refunded_amount() == Decimal("2.50")


def test_i5_simultaneous_presses_make_one_refund(
    bought: Bought,
    ann: Client,
) -> None:
    order, bob = bought.order, staff("bob", *MAY)
    pages = [(client, client.get(url_of(order))) for client in (ann, bob)]
    done = together(
        *[lambda one=one: presses(one[0], order, one[1], amount="2.50") for one in pages],
    )
    quicker, slower = sorted(
        (messages_of(page) for page in done),
        key=lambda said: "in the meantime" in said[0],
    )
    assert quicker == ["USD 2.50 was refunded."]
    assert slower[0].startswith("Nothing was refunded: a refund of USD 2.50")
    assert bought.refunded_amount() == Decimal("2.50")


@pytest.mark.parametrize(
    "amount",
    ["", " ", "abc", "0", "-1", "1.234", "NaN", "1e400", "33.00", "12,50", "\u0661"],
)
def test_unrefundable_amount_is_a_message(
    bought: Bought,
    ann: Client,
    amount: str,
) -> None:
    said = messages_of(presses(ann, bought.order, amount=amount))
    assert len(said) == 1
    assert said[0].startswith("Nothing was refunded: ")
    assert not Refund.objects.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"tillgate_seen": "x"},
        {"tillgate_seen": "9" * 30},
        {"tillgate_idempotency_key": "x" * 255},
        {"reason": "y" * 999},
    ],
)
def test_tampered_fields_cause_no_server_error(
    bought: Bought,
    ann: Client,
    changes: dict[str, str],
) -> None:
    page = presses(ann, bought.order, amount="2.50", **changes)
    assert messages_of(page) == ["USD 2.50 was refunded."]


def test_unusable_key_is_a_message(bought: Bought, ann: Client) -> None:
    for key in ("", "x" * 5000):
        (said,) = messages_of(
            presses(ann, bought.order, amount="2.50", tillgate_idempotency_key=key),
        )
        assert "must have 1 to 255 characters" in said
    assert not Refund.objects.exists()


def test_repeated_key_refuses_another_amount(bought: Bought, ann: Client) -> None:
    before = ann.get(url_of(bought.order))
    presses(ann, bought.order, before, amount="2.50")
    (said,) = messages_of(presses(ann, bought.order, before, amount="3.00"))
    assert said == (
        "Nothing was refunded: from this page a refund of USD 2.50 was asked for before. Open the "
        "page again."
    )
    assert bought.refunded_amount() == Decimal("2.50")


def test_same_refund_needs_a_tick(bought: Bought, ann: Client) -> None:
    presses(ann, bought.order, amount="2.50")
    before = ann.get(url_of(bought.order))
    assert "A refund of USD 2.50 was asked for 1\xa0minute ago by ann." in text_of(before)
    (said,) = messages_of(presses(ann, bought.order, amount="2.50"))
    assert said.startswith(
        "Nothing was refunded: A refund of USD 2.50 was asked for 1\xa0minute ago"
    )
    assert messages_of(presses(ann, bought.order, amount="2.50", tillgate_again="1")) == [
        "USD 2.50 was refunded.",
    ]
    assert messages_of(presses(ann, bought.order, amount="2.40")) == ["USD 2.40 was refunded."]


def test_double_press_for_last_lines_refunds_once(bought: Bought, ann: Client) -> None:
    """The first press refunds all of a line, so that Oscar permits no more of it; the second shows
    the same result.
    """
    before = ann.get(url_of(bought.order))
    said = [
        messages_of(presses_for_lines(ann, bought.order, {bought.tea: bought.tea.quantity}, before))
        for _ in range(2)
    ]
    assert "was refunded" in said[0][0]
    assert "had been refunded already; nothing more was sent" in said[1][0]
    assert Refund.objects.count() == 1


def test_incomplete_form_causes_no_server_error(
    bought: Bought,
    ann: Client,
) -> None:
    """The amount or our hidden fields may be missing."""
    wanted = {
        "order_action": "create_order_payment_event",
        "payment_event_type": refund_event_type().code,
    }
    assert messages_of(ann.post(url_of(bought.order), wanted, follow=True))[0].startswith(
        "Nothing was refunded: ",
    )
    assert messages_of(
        ann.post(url_of(bought.order), {**wanted, "amount": "1.00"}, follow=True),
    ) == ["USD 1.00 was refunded."]


def test_excess_line_quantity_is_a_message(bought: Bought, ann: Client) -> None:
    presses_for_lines(ann, bought.order, {bought.tea: 2})
    for amount in ("", "1.00"):
        said = messages_of(presses_for_lines(ann, bought.order, {bought.tea: 2}, amount=amount))
        assert said[0].startswith("Nothing was refunded: ")
    assert bought.refunded_amount() == Decimal("8.00")


def test_unpaid_order_gives_nothing_back(world: World, ann: Client) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    fields = {
        "order_action": "create_order_payment_event",
        "payment_event_type": refund_event_type().code,
        "amount": "1.00",
    }
    page = ann.post(url_of(order), fields, follow=True)
    assert messages_of(page) == [
        f"Nothing was refunded: nothing has been paid for order {order.number}.",
    ]


def test_i6_unknown_outcome_is_told_never_resent(
    bought: Bought,
    ann: Client,
) -> None:
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    page = presses(ann, bought.order, amount="32.00")
    assert "The outcome of the refund of USD 32.00 is unknown" in messages_of(page)[0]
    assert "Do not send it again" in text_of(page)
    assert 'id="tillgate_refund_form"' not in text_of(page)
    bought.world.a_day_passes()
    assert bought.world.refunded_amount(bought.payment) == Decimal("32.00")
    assert bought.world.shop.refunded(bought.order.number) == 0


def test_a_refusal_is_told(bought: Bought, ann: Client) -> None:
    bought.world.sandbox.control.fault("refused", occasion="refund")
    assert messages_of(presses(ann, bought.order, amount="2.50"))[0].startswith(
        "USD 2.50 was not refunded: ",
    )
    assert bought.refunded_amount() == 0


def test_i12_atomic_requests_send_after_commit(
    bought: Bought,
    ann: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ATOMIC_REQUESTS, the refund goes out after the request's transaction."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    page = presses(ann, bought.order, amount="2.50")
    assert messages_of(page) == ["USD 2.50 was refunded."]
    assert bought.refunded_amount() == Decimal("2.50")
    assert "Money refunded" in text_of(page)
    assert messages_of(presses_for_lines(ann, bought.order, {bought.tea: 3})) == [
        "USD 12.00 was refunded.",
    ]
    assert bought.events() == [(Decimal("2.50"), {}), (Decimal("12.00"), {"Tea": 3})]
    said = messages_of(presses(ann, bought.order, amount="17.51"))
    assert said[0].startswith("Nothing was refunded: USD 17.51 is more than the USD 17.50")
    bought.world.sandbox.control.fault("refused", occasion="refund")
    assert messages_of(presses(ann, bought.order, amount="1.00"))[0].startswith(
        "USD 1.00 was not refunded: ",
    )
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    assert messages_of(presses(ann, bought.order, amount="1.00"))[0].startswith(
        "The outcome of the refund of USD 1.00 is unknown",
    )


def test_similar_named_refund_type_still_works(
    bought: Bought,
    ann: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shop's own type has a name that only the database treats as equal."""
    types = get_model("order", "PaymentEventType")
    types.objects.filter(pk=refund_event_type().pk).update(name="refund")
    real = QuerySet.get_or_create

    def as_mariadb(rows: Any, defaults: Any = None, **wanted: Any) -> Any:
        found = (
            rows.filter(name__iexact=wanted["name"]).first()
            if rows.model is types and "name" in wanted
            else None
        )
        return (found, False) if found else real(rows, defaults, **wanted)

    monkeypatch.setattr(QuerySet, "get_or_create", as_mariadb)
    assert messages_of(presses(ann, bought.order, amount="2.50")) == ["USD 2.50 was refunded."]
    assert bought.world.refunded_amount(bought.payment) == Decimal("2.50")
    assert bought.order.payment_events.get(event_type__name="refund").amount == Decimal("2.50")


def test_other_events_are_oscars_own_affair(bought: Bought, ann: Client) -> None:
    goodwill = get_model("order", "PaymentEventType").objects.create(name="Goodwill")
    page = presses(ann, bought.order, amount="2.50", payment_event_type=goodwill.code)
    assert messages_of(page) == ["Payment event created"]
    assert bought.order.payment_events.get(event_type=goodwill).amount == Decimal("2.50")
    assert bought.refunded_amount() == 0


def test_external_payment_is_refunded_by_oscar(world: World, ann: Client) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    cash = get_model("payment", "SourceType").objects.create(name="Cash")
    order.sources.create(source_type=cash, amount_debited=order.total_incl_tax)
    fields = {
        "order_action": "create_order_payment_event",
        "payment_event_type": refund_event_type().code,
        "amount": "1.00",
    }
    assert messages_of(ann.post(url_of(order), fields, follow=True)) == ["Payment event created"]
    assert order.payment_events.get().amount == Decimal("1.00")


# Permissions -------------------------------------------------------------------------------------


def test_staff_without_permission_cannot_refund(
    bought: Bought,
    ann: Client,
) -> None:
    """They see no form, and a forged post is refused."""
    eve = staff("eve", *SEES)
    assert 'id="tillgate_refund_form"' not in text_of(eve.get(url_of(bought.order)))
    forms = ann.get(url_of(bought.order))
    for page in (
        presses(eve, bought.order, forms, amount="1.00"),
        presses_for_lines(eve, bought.order, {bought.tea: 1}, forms),
    ):
        assert "permission" in messages_of(page)[0]
    assert not Refund.objects.exists()


def test_hidden_order_cannot_be_refunded(bought: Bought, ann: Client) -> None:
    """Staff without permission to see the order cannot refund it."""
    partner = staff("pat", "partner.dashboard_access", "tillgate.refund_payment", is_staff=False)
    assert (
        presses(partner, bought.order, ann.get(url_of(bought.order)), amount="1.00").status_code
        == 404
    )
    assert not Refund.objects.exists()


# The menu -----------------------------------------------------------------------------------------


def test_the_menu_counts_what_needs_a_person(bought: Bought, ann: Client) -> None:
    link = 'href="/admin/tillgate/review/"'
    page = text_of(ann.get("/dashboard/orders/"))
    assert link in page
    assert "Needs review" in page
    assert "Needs review (" not in page
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask(Decimal("1.00"))
    assert "Needs review (1)" in text_of(ann.get("/dashboard/orders/"))
    assert 'href="/admin/tillgate/review/health/"' in page
    for name, permissions in (
        ("bob", SEES[:1]),
        ("pat", ("partner.dashboard_access", "tillgate.view_review")),
    ):
        other = staff(name, *permissions, is_staff=name == "bob")
        assert link not in text_of(other.get("/dashboard/orders/"))


def test_menu_links_figures_for_permitted_staff(
    bought: Bought,
    ann: Client,
) -> None:
    link = "/admin/tillgate/payment/figures/"
    assert f'href="{link}"' in text_of(ann.get("/dashboard/orders/"))
    assert ann.get(link).status_code == 200
    assert link not in text_of(staff("bob", *SEES[:1]).get("/dashboard/orders/"))


def test_menu_keeps_shop_entries(bought: Bought, ann: Client) -> None:
    page = text_of(ann.get("/dashboard/orders/"))
    assert page.index('href="/dashboard/orders/"') < page.index('href="/admin/tillgate/review/"')
