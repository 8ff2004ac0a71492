"""The admin: permissions, hidden values, and that every act goes through the operations."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.django.conftest import World
from tests.django.notifying import confirming
from tests.smallest_shop.models import ShopOrder
from tillgate import NotSent, shop
from tillgate.django import actions
from tillgate.django.actions import actions_for
from tillgate.django.masking import HIDDEN, Mask
from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.django.orders.locking import OrderHeld
from tillgate.django.payments import notifications, starting
from tillgate.django.refunds import queueing
from tillgate.django.review_text import ACTIONS, EXPLANATIONS, recommendation_of, recommended
from tillgate.django.reviews.opening import open_review
from tillgate.django.words import REASONS
from tillgate.lifecycle import POLICIES, ReviewAction, ReviewReason
from tillgate.sandbox import PUBLISHED_TEST_TOKEN

LISTS = ("/admin/tillgate/payment/", "/admin/tillgate/order/", "/admin/tillgate/review/")
ROWS = (Order, Payment, Refund, Notification, TimelineEntry, Review, OutboxEvent)


def staff(*permissions: str, name: str = "anna", is_superuser: bool = False) -> Client:
    """Return the browser of a logged-in user with some permissions."""
    staff = User.objects.create_user(name, is_staff=True, is_superuser=is_superuser)
    staff.user_permissions.set(
        Permission.objects.filter(content_type__app_label="tillgate", codename__in=permissions),
    )
    client = Client()
    client.force_login(staff)
    return client


@pytest.fixture
def boss() -> Client:
    """The browser of a superuser."""
    return staff(is_superuser=True)


def page_of(row: Any, action: str = "change") -> str:
    return f"/admin/tillgate/{row._meta.model_name}/{row.pk}/{action}/"


def said(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def press(
    client: Client,
    payment: Payment,
    amount: str,
    *,
    seen: int | None = None,
    key: str | None = None,
    **more: str,
) -> Any:
    """Press the last button of a refund, as the page that asks had drawn it."""
    if seen is None:
        shown = client.get(page_of(payment, "refund"), {"amount": amount}).context
        seen, key = (
            (shown["seen"], shown["idempotency_key"]) if shown and "seen" in shown else (0, None)
        )
    carried = {} if key is None else {"idempotency_key": key}
    return client.post(
        page_of(payment, "refund"),
        {"amount": amount, "seen": str(seen), **carried, **more},
        follow=True,
    )


def second_payment(world: World) -> Review:
    order = world.order("25.00")
    for payment in (world.start(order), world.start(order, "paypal")):
        world.shopper_pays(payment)
    for payment in Payment.objects.all():
        world.notification(payment)
    return Review.objects.select_related("payment").get(reason=ReviewReason.SECOND_PAYMENT)


def rows() -> dict[str, Any]:
    return {model.__name__: list(model._default_manager.order_by("pk").values()) for model in ROWS}


HEALTH = "/admin/tillgate/review/health/"

# Permissions.


def test_strangers_and_staff_without_permissions_see_nothing(world: World) -> None:
    review = second_payment(world)
    pages = [*LISTS, page_of(review), page_of(review.payment), page_of(review.order)]
    actions = [
        page_of(review, "action"),
        page_of(review.payment, "refund"),
        page_of(review.payment, "query"),
    ]
    stranger, nobody = Client(), staff(name="nobody")
    before = rows()
    for path in [*pages, *actions]:
        for ask in (stranger.get, stranger.post):
            answer = ask(path)
            assert answer.status_code == 302
            assert answer["Location"].startswith("/admin/login/")
        assert nobody.get(path).status_code == 403
        assert nobody.post(path).status_code == 403
    assert rows() == before


@pytest.mark.parametrize(
    ("permissions", "may_refund", "may_resolve", "may_enter"),
    [
        ((), False, False, False),
        (("refund_payment",), True, False, False),
        (("resolve_review",), False, True, False),
        (("refund_payment", "resolve_review"), True, True, True),
    ],
)
def test_each_act_needs_its_permission(
    world: World,
    permissions: tuple[str, ...],
    may_refund: bool,
    may_resolve: bool,
    may_enter: bool,
) -> None:
    client = staff("view_payment", "view_review", "view_order", *permissions)
    review = second_payment(world)
    payment = review.payment
    assert payment
    assert (
        b'action="' + page_of(payment, "refund").encode() in client.get(page_of(payment)).content
    ) is may_refund
    listed = client.get(LISTS[2]).content.decode()
    assert ("Dismiss with a note" in listed) is may_resolve
    assert (">Refund…</a>" in listed) is may_enter
    assert client.get(page_of(payment, "refund")).status_code == (200 if may_refund else 403)
    assert client.post(page_of(payment, "refund"), {"amount": "1"}).status_code == (
        302 if may_refund else 403
    )
    assert client.post(
        page_of(payment, "record-external-refund"),
        {"amount": "99"},
    ).status_code == (302 if may_enter else 403)
    for action, may in (
        (ReviewAction.REFUND, may_enter),
        (ReviewAction.RECORD_EXTERNAL_REFUND, may_enter),
        (ReviewAction.POLL, may_resolve),
    ):
        assert client.post(
            page_of(review, "action"),
            {"action": action, "amount": "1"},
        ).status_code == (302 if may else 403), action
    accepted = client.post(page_of(review, "action"), {"action": "dismiss", "note": "fine"})
    assert accepted.status_code == (302 if may_resolve else 403)
    review.refresh_from_db()
    assert (review.resolved_at is not None) is may_resolve
    assert Refund.objects.count() == may_refund


def test_refunding_for_a_review_needs_both_permissions(world: World) -> None:
    client = staff("view_payment", "view_review", "refund_payment")
    review = second_payment(world)
    assert review.payment
    answer = client.post(
        page_of(review.payment, "refund"),
        {"amount": "25", "seen": "0", "review": str(review.pk)},
    )
    assert answer.status_code == 403
    assert not Refund.objects.exists()


def test_review_cards_link_only_permitted_pages(world: World) -> None:
    review = second_payment(world)
    assert review.payment is not None
    client = staff("view_review", "resolve_review", "refund_payment")
    for address in (LISTS[2], page_of(review)):
        page = client.get(address).content.decode()
        assert review.payment.reference in page
        assert "Dismiss with a note" in page
        for link in set(re.findall(r'href="(/admin/tillgate/(?:payment|order)/\d[^"]*)"', page)):
            assert client.get(link).status_code == 200, link
    both = (
        staff("view_review", "resolve_review", "refund_payment", "view_payment", name="bob")
        .get(LISTS[2])
        .content.decode()
    )
    assert f'{page_of(review.payment, "refund")}?review={review.pk}"' in both


def test_nobody_adds_edits_or_deletes_a_row(world: World, boss: Client) -> None:
    payment = world.paid_payment()
    before = rows()
    for row in (payment, payment.order):
        assert boss.get(page_of(row, "delete")).status_code == 403
        assert boss.post(page_of(row, "delete"), {"post": "yes"}).status_code == 403
        assert boss.post(page_of(row), {"status": "failed", "amount": "1.00"}).status_code == 405
        assert boss.get(f"/admin/tillgate/{row._meta.model_name}/add/").status_code == 403
    boss.post(
        LISTS[0],
        {"action": "delete_selected", "_selected_action": [payment.pk], "post": "yes"},
    )
    assert rows() == before
    shown = boss.get(page_of(payment)).content.decode()
    assert 'name="status"' not in shown


def test_an_act_needs_the_csrf_token(world: World) -> None:
    payment = world.paid_payment()
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("anna"))
    review = Review.objects.create(
        reason="forged-notifications",
        facts={"detail": "Something."},
        payment=payment,
        opened_at=timezone.now(),
    )
    for path in (page_of(payment, "refund"), page_of(payment, "query"), page_of(review, "action")):
        assert (
            client.post(path, {"amount": "1", "action": "dismiss", "note": "x"}).status_code == 403
        )
    assert not Refund.objects.exists()


def test_viewing_changes_nothing_and_forbids_framing(world: World, boss: Client) -> None:
    review = second_payment(world)
    payment = review.payment
    before, asked = rows(), world.queries()
    paths = [
        *LISTS,
        *map(page_of, (review, payment, review.order)),
        page_of(payment, "refund"),
        "/admin/tillgate/",
    ]
    for path in paths:
        answer = boss.get(path)
        assert answer.status_code == 200, path
        assert answer["X-Frame-Options"] == "DENY"
    for path in (page_of(payment, "query"), page_of(review, "action")):
        assert said(boss.get(path, follow=True)) == [
            "Nothing was done. Please press the button again.",
        ]
    assert rows() == before
    assert world.queries() == asked


def test_what_does_not_exist_is_not_found(world: World, boss: Client) -> None:
    for path in (
        "payment/999/change",
        "payment/x/refund",
        "order/999/change",
        "review/999/action",
        "payment/999/query",
    ):
        assert boss.post(f"/admin/tillgate/{path}/").status_code in (404, 405), path
        assert boss.get(f"/admin/tillgate/{path}/").status_code in (404, 405), path


@pytest.mark.parametrize("action", ["refund", "query"])
def test_locked_order_asks_staff_to_retry(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
) -> None:
    def held(*_: Any, **__: Any) -> None:
        raise OrderHeld("another transaction holds the order: try again in a moment")

    payment = world.paid_payment()
    monkeypatch.setattr(
        *{"refund": (queueing, "refund"), "query": (actions, "poll_now")}[action],
        held,
    )
    page = boss.post(
        f"/admin/tillgate/payment/{payment.pk}/{action}/",
        {"amount": "1.00", "idempotency_key": "x"},
        follow=True,
    )
    assert page.status_code == 200
    assert "try again in a moment" in page.content.decode()
    assert not Refund.objects.exists()


# The pages.


def test_i11_pages_hide_secrets_and_secret_addresses(
    world: World,
    boss: Client,
) -> None:
    world.sandbox.control.set_options(
        {"notification_signature": "valid", "answer_signature": "valid"},
    )
    review = second_payment(world)
    payment = review.payment
    assert payment
    queueing.refund(payment.pk, "1.00")
    refund = Refund.objects.get()
    keys = {PUBLISHED_TEST_TOKEN, refund.notification_key}
    for one in Payment.objects.all():
        keys |= {one.notification_key, one.return_key, one.payment_url}
    signature = "0123456789abcdef0123456789abcdef"
    world.notification(
        payment,
        f"status=success&verifySign={signature}&ipnUrl=https://shop.example/{payment.notification_key}/&note={payment.return_key}",
    )
    leak = {
        "cashierUrl": payment.payment_url,
        "deep": {"verifySign": signature, "says": [payment.return_key, 1]},
        "token": PUBLISHED_TEST_TOKEN,
    }
    TimelineEntry.objects.update(evidence=leak, message=f"about {payment.notification_key}")
    Review.objects.update(
        evidence=leak,
        facts={"detail": f"about {payment.notification_key} and {PUBLISHED_TEST_TOKEN}"},
    )
    OutboxEvent.objects.update(
        fault=f"Oops: {payment.payment_url} {refund.notification_key}",
        done_at=None,
    )
    for path in [
        *LISTS,
        *map(page_of, (review, payment, review.order)),
        page_of(payment, "refund"),
    ]:
        shown = boss.get(path).content.decode()
        for secret in {*keys, signature}:
            assert secret not in shown, path
    assert HIDDEN in boss.get(page_of(payment)).content.decode()
    world.sandbox.control.set_options({"answer_signature": "none"})


def test_mask_hides_only_secret_named_values() -> None:
    shown = dict(
        Mask().evidence(
            {
                "amount": "12.50",
                "verifySign": "x",
                "nested": {"apiKey": "k", "n": 1},
                "empty_token": "",
            },
        ),
    )
    assert shown["amount"] == "12.50"
    assert shown["verifySign"] == HIDDEN
    assert json.loads(shown["nested"]) == {"apiKey": HIDDEN, "n": 1}
    assert shown["empty_token"] == ""


def test_payment_list_shows_refunded_amounts(world: World, boss: Client) -> None:
    payment, _ = world.paid_payment(), world.paid_payment()
    for amount, word in (("2.50", "partly refunded"), ("10.00", "refunded")):
        shop.refund(str(payment.pk), Decimal(amount))
        page = boss.get("/admin/tillgate/payment/").content.decode()
        assert re.findall(r"(?:partly )?refunded(?=</span>)", page) == [word]


@pytest.mark.parametrize("path", LISTS)
def test_list_length_adds_no_statements(
    world: World,
    boss: Client,
    path: str,
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as statements:
            assert boss.get(path).status_code == 200
        return len(statements)

    def rows_of(count: int) -> None:
        for _ in range(count):
            payment = world.paid_payment()
            Review.objects.create(
                reason=ReviewReason.SECOND_PAYMENT,
                facts={"detail": "Twice."},
                order=payment.order,
                payment=payment,
                opened_at=timezone.now(),
                evidence={"a": "b"},
            )

    rows_of(2)
    few = count()
    rows_of(5)
    assert count() == few
    assert few <= 16


def test_refund_cards_add_no_statements(
    world: World,
    boss: Client,
) -> None:
    """Review cards that show refunded amounts need the same statements for any number."""

    def count() -> int:
        with CaptureQueriesContext(connection) as statements:
            page = boss.get(LISTS[2]).content.decode()
        assert (
            page.count("The ledger has refunds of USD 3.50 for this payment.")
            == Review.objects.count()
        )
        return len(statements)

    def raised() -> None:
        payment = world.paid_payment()
        for amount in ("1.00", "2.50"):
            queueing.refund(payment.pk, amount)
        open_review(ReviewReason.CHANGED_AFTER_PAID, "Changed.", "worker", payment)

    raised()
    few = count()
    for _ in range(3):
        raised()
    assert count() == few


def test_payment_history_adds_no_statements(
    world: World,
    boss: Client,
) -> None:
    payment = world.paid_payment("30.00")

    def count() -> int:
        with CaptureQueriesContext(connection) as statements:
            assert boss.get(page_of(payment)).status_code == 200
        return len(statements)

    queueing.refund(payment.pk, "1.00")
    few = count()
    for _ in range(4):
        queueing.refund(payment.pk, "1.00")
        world.notification(payment)
    assert count() == few


def test_search_finds_reference_transaction_and_order(
    world: World,
    boss: Client,
) -> None:
    wanted, other = world.paid_payment(), world.paid_payment()
    for term in (
        wanted.reference,
        wanted.reference[:-3].lower(),
        str(wanted.transaction_no),
        f" {wanted.order.key} ",
    ):
        shown = boss.get(LISTS[0], {"q": term}).content.decode()
        assert wanted.reference in shown
        assert other.reference not in shown
    assert wanted.reference not in boss.get(LISTS[0], {"q": "S999"}).content.decode()
    for filters in (
        {"status": "paid"},
        {"method": "alipay"},
        {"account": "default"},
        {"created_at__year": str(timezone.localtime().year)},
    ):
        assert wanted.reference in boss.get(LISTS[0], filters).content.decode(), filters
    assert wanted.reference not in boss.get(LISTS[0], {"status": "failed"}).content.decode()
    assert wanted.reference not in boss.get(LISTS[0], {"method": "paypal"}).content.decode()
    assert wanted.order.key in boss.get(LISTS[1], {"q": wanted.order.key}).content.decode()


def test_long_timeline_shows_newest_entries(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page says that it shows only the newest."""
    monkeypatch.setattr("tillgate.django.pages.showing.MOST_SHOWN", 4)
    payment = world.paid_payment("30.00")
    pages = [page_of(payment), page_of(payment.order)]
    for amount in ("1.00", "2.00", "4.00", "5.00", "6.00"):
        queueing.refund(payment.pk, amount)
    open_review(ReviewReason.CHANGED_AFTER_PAID, "Changed.", "worker", payment)
    for address in (*pages, page_of(Review.objects.get())):
        page = boss.get(address).content.decode()
        assert page.count("<summary>Cause and evidence") == 4
        assert (
            page.index("Refund being sent")
            < page.index("Money refunded")
            < page.rindex("Needs review")
        )
        # of the shop events, too
        assert page.count("Only the newest 4 are shown.") == (2 if address == pages[0] else 1)


@pytest.fixture
def without_time_zones(settings: Any) -> Iterator[None]:
    """A project that has none, from its start: how moments are read on MariaDB is settled once in a
    process.
    """
    settings.USE_TZ = False
    notifications._look_up.cache_clear()
    yield
    notifications._look_up.cache_clear()


def test_pages_work_without_time_zones(
    world: World,
    boss: Client,
    without_time_zones: None,
) -> None:
    review = second_payment(world)
    assert review.payment is not None
    for address in (
        *LISTS,
        page_of(review),
        page_of(review.payment),
        page_of(review.payment.order),
    ):
        assert boss.get(address).status_code == 200


def test_a_payments_page_tells_its_story(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    queueing.refund(payment.pk, "10.00", staff="bert", reason="broken cup")
    shown = boss.get(page_of(payment)).content.decode()
    labels = [
        "Payment started",
        "Waiting for the shopper",
        "Paid",
        "Event delivered to the shop",
        "Refund requested",
        "Money refunded",
    ]
    places = [shown.index(f"<strong>{label}</strong>") for label in labels]
    assert places == sorted(places)
    for word in (
        "USD 10.00 refunded, USD 20.00 can still be refunded",
        "broken cup",
        "bert",
        str(payment.transaction_no),
        payment.reference,
    ):
        assert word in shown
    assert f'href="{page_of(payment.order)}"' in shown


# Refunds.


def test_refund_needs_confirmation_first(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    question = boss.get(
        page_of(payment, "refund"),
        {"amount": "10", "reason": "broken cup"},
    ).content.decode()
    assert "Refund USD 10.00" in question
    assert not Refund.objects.exists()
    assert said(press(boss, payment, "10", reason="broken cup")) == ["USD 10.00 was refunded."]
    refund = Refund.objects.get()
    assert (refund.amount, refund.status, refund.requested_by, refund.reason) == (
        Decimal("10.00"),
        "succeeded",
        "anna",
        "broken cup",
    )
    assert ShopOrder.objects.get(pk=payment.order.key).refunded == Decimal("10.00")
    assert (
        "Left after this</dt><dd>USD 0.00" in boss.get(page_of(payment, "refund")).content.decode()
    )


def test_i5_refund_above_remainder_is_refused(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    assert (
        "more than the USD 30.00"
        in boss.get(page_of(payment, "refund"), {"amount": "30.01"}).content.decode()
    )
    assert said(press(boss, payment, "30.01", seen=0)) == [
        "Nothing was refunded: USD 30.01 is more than the USD 30.00 that can still be refunded of "
        f"{payment.reference}.",
    ]
    for wrong in ("", "0", "-1", "1.001", "NaN", "1e3", "<script>"):
        assert boss.get(page_of(payment, "refund"), {"amount": wrong}).status_code == 200
        assert len(said(press(boss, payment, wrong, seen=0))) == 1
    assert not Refund.objects.exists()
    press(boss, payment, "30")
    assert said(boss.get(page_of(payment, "refund"), follow=True)) == [
        "Nothing of this payment can be refunded.",
    ]


def test_refund_errors_are_announced_with_field(world: World, boss: Client) -> None:
    payment = world.paid_payment("12.50")
    page = boss.get(
        page_of(payment, "refund"),
        {"amount": "99", "reason": "r" * 256},
    ).content.decode()
    described_by = set(re.findall(r'<input[^>]* aria-describedby="([^"]+)"', page)) - {
        "searchbar_helptext",
    }
    assert described_by <= set(re.findall(r' id="([^"]+)"', page))
    assert re.search(
        r'<div id="id_amount_error">\s*<p class="errornote" role="alert">That is more than',
        page,
    )
    assert re.search(r'<div id="id_reason_error">\s*<p class="errornote" role="alert">', page)


def test_unpaid_payment_cannot_be_refunded(world: World, boss: Client) -> None:
    payment = world.start(world.order())
    assert said(press(boss, payment, "1", seen=0)) == [
        f"Nothing was refunded: payment {payment.reference} is pending, and only a paid one can be "
        "refunded.",
    ]
    assert not Refund.objects.exists()


def test_double_press_makes_one_refund(
    world: World,
    boss: Client,
) -> None:
    """Both presses show the same refund."""
    payment = world.paid_payment("30.00")
    for text in (
        "USD 10.00 was refunded.",
        "USD 10.00 had been refunded already; nothing more was sent.",
    ):
        assert said(press(boss, payment, "10.00", seen=0, key="the-same")) == [text]
    assert said(press(boss, payment, "11.00", seen=0, key="the-same")) == [
        "Nothing was refunded: from this page a refund of USD 10.00 was asked for before. Open the "
        "page again.",
    ]
    assert Refund.objects.count() == 1


def test_same_refund_needs_a_tick(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    press(boss, payment, "0.30")
    page = boss.get(page_of(payment, "refund"), {"amount": "0.30"}).content.decode()
    assert "A refund of USD 0.30 was asked for 1\xa0minute ago by anna." in page
    assert 'name="again" value="1" required' in page
    assert said(press(boss, payment, "0.30")) == [
        "Nothing was refunded: A refund of USD 0.30 was asked for 1\xa0minute ago by anna.",
    ]
    assert "again" not in boss.get(page_of(payment, "refund"), {"amount": "0.40"}).content.decode()
    assert said(press(boss, payment, "0.30", again="1")) == ["USD 0.30 was refunded."]
    Refund.objects.update(created_at=timezone.now() - timedelta(minutes=11))
    assert said(press(boss, payment, "0.30")) == ["USD 0.30 was refunded."]
    assert Refund.objects.count() == 3


def test_failed_refund_is_tried_without_tick(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    press(boss, payment, "0.30")
    Refund.objects.update(status="failed")
    assert said(press(boss, payment, "0.30")) == ["USD 0.30 was refunded."]


def test_older_page_says_nothing_was_refunded(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    press(boss, payment, "0.02")
    assert said(press(boss, payment, "0.05", seen=0, key="older")) == [
        "Nothing was refunded: a refund of USD 0.02 was asked for in the meantime. Open the page "
        "again, and see whether this one is still needed.",
    ]


def test_simultaneous_refunds_by_staff_make_one(world: World) -> None:
    payment = world.paid_payment("30.00")
    clients = [staff(name=name, is_superuser=True) for name in ("anna", "bert", "carla", "dora")]
    told: list[str] = []
    gate = threading.Barrier(len(clients))

    def work(number: int, client: Client) -> None:
        try:
            gate.wait()
            answer = press(client, payment, "10.00", seen=0, key=f"of-{number}")
            # Not from the answer's context: the test client hears every thread's rendering.
            told.extend(
                re.findall(
                    r'<ul class="messagelist">\s*<li[^>]*>(.*?)</li>',
                    answer.content.decode(),
                ),
            )
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Refund.objects.count() == 1
    assert sorted(told)[3] == "USD 10.00 was refunded."
    assert set(sorted(told)[:3]) == {
        "Nothing was refunded: a refund of USD 10.00 was asked for in the meantime. Open the page "
        "again, and see whether this one is still needed.",
    }
    assert world.sandbox.control.state()["transactions"][0]["refunded"] == "10.00"  # type: ignore[index]


def test_staff_learns_outcome_of_refund(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    world.sandbox.control.fault("refused", occasion="refund")
    assert said(press(boss, payment, "1"))[0].startswith("USD 1.00 was not refunded: ")
    world.sandbox.control.fault("lost_response", occasion="refund")
    assert said(press(boss, payment, "2"))[0].startswith(
        "The outcome of the refund of USD 2.00 is unknown",
    )
    assert world.reviews() == [ReviewReason.REFUND_UNKNOWN]


def test_i12_the_acts_work_under_atomic_requests(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment("30.00")
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert said(press(boss, payment, "10")) == ["USD 10.00 was refunded."]
    assert said(boss.post(page_of(payment, "query"), follow=True)) == [
        "Polled the gateway: the gateway says that it is paid.",
    ]


def test_staff_asks_the_gateway_now(
    world: World,
    boss: Client,
    configure: Callable[..., None],
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    assert said(boss.post(page_of(payment, "query"), follow=True)) == [
        "Polled the gateway: the gateway says that it is paid.",
    ]
    assert world.fresh(payment).status == "paid"
    assert TimelineEntry.objects.get(event="payment.paid").actor == "staff:anna"
    configure(NOTIFICATION_THROTTLE_SECONDS=60)
    asked = world.queries()
    assert "a moment ago" in said(boss.post(page_of(payment, "query"), follow=True))[0]
    assert world.queries() == asked


# Reviews.


def action(client: Client, review: Review, what: str, **given: str) -> str:
    (message,) = said(
        client.post(page_of(review, "action"), {"action": what, **given}, follow=True),
    )
    review.refresh_from_db()
    return message


def test_every_reason_and_action_has_words() -> None:
    """Every review reason also has actions."""
    assert set(REASONS) == set(ReviewReason)
    assert set(ACTIONS) == set(ReviewAction)
    for reason in REASONS:
        fitting = actions_for(Review(reason=reason))
        assert fitting, reason
        assert (recommended(reason, fitting) is fitting[0]) is POLICIES[
            ReviewReason(reason)
        ].recommends
        assert len(recommendation_of(reason, fitting)) > len("Recommended: ") + 20, (
            f"{reason} says what to do"
        )
    assert set(EXPLANATIONS) == set(ReviewAction)
    assert actions_for(Review(reason="of-a-later-version")) == (ReviewAction.DISMISS,)


def test_only_lists_show_review_count(
    world: World,
    boss: Client,
) -> None:
    """The count links to the reviews."""
    review = second_payment(world)
    banner = f'<a href="{LISTS[2]}">1 open review</a>'
    for path in ("/admin/tillgate/", LISTS[0], LISTS[1]):
        assert banner in boss.get(path).content.decode(), path
    for path in ("/admin/", page_of(review.payment), page_of(review.order), page_of(review)):
        assert banner not in boss.get(path).content.decode(), path
    listed = boss.get(LISTS[2]).content.decode()
    assert "the order was paid by another payment already; this one can be refunded" in listed


def test_i4_one_step_refunds_second_payment(world: World, boss: Client) -> None:
    review = second_payment(world)
    assert review.payment
    question = boss.get(f"{page_of(review.payment, 'refund')}?review={review.pk}").content.decode()
    assert "Refund USD 25.00" in question
    assert "the order was paid by another payment already" in question
    answer = press(boss, review.payment, "25.00", seen=0, key="x", review=str(review.pk))
    assert said(answer) == ["USD 25.00 was refunded."]
    assert answer.request["PATH_INFO"] == page_of(review)
    review.refresh_from_db()
    assert (review.resolved_by, review.resolution) == ("anna", "all of it was refunded: USD 25.00")
    assert "all of it was refunded" in boss.get(LISTS[2], {"state": "resolved"}).content.decode()
    assert "tillgate-card " not in boss.get(LISTS[2]).content.decode()
    assert TimelineEntry.objects.filter(event="review.resolved", actor="staff:anna").exists()
    twice = press(boss, review.payment, "25.00", seen=0, key="x", review=str(review.pk))
    assert said(twice) == ["USD 25.00 had been refunded already; nothing more was sent."]
    again = press(boss, review.payment, "25.00", seen=0, key="y", review=str(review.pk))
    assert said(again) == [
        "Nothing was refunded: anna had resolved it already: all of it was refunded: USD 25.00.",
    ]
    assert Refund.objects.count() == 1


def test_money_colleague_kept_is_not_refunded(
    world: World,
    boss: Client,
) -> None:
    """A colleague decided to keep it after the page was opened."""
    review = second_payment(world)
    payment = review.payment
    assert payment is not None
    asked = boss.get(page_of(payment, "refund"), {"review": review.pk}).context
    staff(is_superuser=True, name="bob").post(
        page_of(review, "action"),
        {"action": "dismiss", "note": "it pays the next order"},
    )
    response = press(
        boss,
        payment,
        "25.00",
        seen=asked["seen"],
        key=asked["idempotency_key"],
        review=str(review.pk),
    )
    assert said(response) == [
        "Nothing was refunded: bob had resolved it already: it pays the next order.",
    ]
    assert not Refund.objects.exists()
    assert response.redirect_chain[-1][0] == page_of(review)


def test_refund_for_review_asks_no_reason(
    world: World,
    boss: Client,
) -> None:
    review = second_payment(world)
    assert review.payment is not None
    about = {"review": str(review.pk), "amount": "2.00", "reason": "for Bob"}
    page = boss.get(page_of(review.payment, "refund"), about).content.decode()
    assert page.count("<p>Payment ") == 1, "the message of the review"
    assert "for Bob" not in page
    assert 'name="reason"' not in page
    assert (
        'name="reason"'
        in boss.get(page_of(review.payment, "refund"), {"amount": "99"}).content.decode()
    )


def test_partial_refund_keeps_second_payment_review(world: World, boss: Client) -> None:
    review = second_payment(world)
    assert review.payment
    press(boss, review.payment, "5.00", seen=0, key="x", review=str(review.pk))
    review.refresh_from_db()
    assert review.resolved_at is None


def test_agreeing_poll_resolves_mismatch(
    world: World,
    boss: Client,
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=2)
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.AMOUNT_MISMATCH)
    assert action(boss, review, "poll").startswith(
        "Not resolved yet: the gateway says that it is paid, but the amount is",
    )
    assert review.resolved_at is None
    assert (
        action(boss, review, "poll") == "Resolved: asked again: the gateway says that it is paid."
    )
    assert review.resolved_by == "anna"
    assert world.fresh(payment).status == "paid"


def test_good_answer_resolves_account_reviews(
    world: World,
    boss: Client,
    configure: Callable[..., None],
) -> None:
    payment = world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notification(payment)
    review = Review.objects.get()
    assert (review.reason, review.payment_id, review.account) == (
        "wrong-credentials",
        payment.pk,
        "default",
    )
    assert action(boss, review, "poll").startswith("Not resolved yet: ")
    configure()
    assert action(boss, review, "poll").startswith("Resolved: ")
    assert review.resolved_at


def test_restored_account_resolves_its_review(
    world: World,
    boss: Client,
    settings: Any,
    configure: Callable[..., None],
) -> None:
    payment = world.start(world.order())
    settings.TILLGATE = {**settings.TILLGATE, "ACCOUNTS": {}}
    world.notification(payment)
    review = Review.objects.get()
    assert review.reason == ReviewReason.ACCOUNT_GONE
    configure()
    assert action(boss, review, "poll").startswith("Resolved: ")


@pytest.mark.parametrize(
    ("what", "status", "back"),
    [("refund-done", "succeeded", "10.00"), ("refund-not-done", "failed", "0.00")],
)
def test_i6_staff_settles_unknown_refund(
    world: World,
    boss: Client,
    what: str,
    status: str,
    back: str,
) -> None:
    payment = world.paid_payment("30.00")
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(payment.pk, "10.00")
    review = Review.objects.get(reason=ReviewReason.REFUND_UNKNOWN)
    assert "does not resolve" in action(boss, review, "dismiss", note="whatever")
    assert action(boss, review, what).startswith("Resolved: ")
    assert Refund.objects.get().status == status
    assert ShopOrder.objects.get(pk=payment.order.key).refunded == Decimal(back)
    assert action(boss, review, what).startswith("Resolved: anna had resolved it already")


def test_i5_a_refund_made_elsewhere_is_entered(world: World, boss: Client) -> None:
    payment = world.paid_payment("30.00")
    world.sandbox.control.reverse(payment.reference)
    actions.poll_now(payment, "anna")
    review = Review.objects.get(reason=ReviewReason.CHANGED_AFTER_PAID)
    assert "may have been refunded elsewhere" in said(press(boss, payment, "1", seen=0))[0]
    assert "more than the USD 30.00" in action(boss, review, "record-external-refund", amount="31")
    assert (
        action(boss, review, "record-external-refund", amount="30", seen="0")
        == "Resolved: USD 30.00 was refunded elsewhere."
    )
    refund = Refund.objects.get()
    assert (refund.external, refund.status, refund.amount) == (True, "succeeded", Decimal("30.00"))
    assert review.resolved_by == "anna"


def test_i5_staff_enters_refund_without_answer(
    world: World,
    boss: Client,
) -> None:
    """A refund that no answer mentions is entered on the payment's page."""
    payment = world.paid_payment("30.00")
    enter = page_of(payment, "record-external-refund")
    assert f'action="{enter}"' in boss.get(page_of(payment)).content.decode()
    assert said(boss.get(enter, follow=True)) == [
        "Nothing was done. Please press the button again.",
    ]
    assert said(boss.post(enter, {"amount": "30.01", "seen": "0"}, follow=True)) == [
        "USD 30.01 is more than the USD 30.00 that can still be refunded of " + payment.reference,
    ]
    assert said(boss.post(enter, {"amount": "10", "seen": "0"}, follow=True)) == [
        "Recorded: an external refund of USD 10.00.",
    ]
    assert (
        "was asked for in the meantime"
        in said(boss.post(enter, {"amount": "10", "seen": "0"}, follow=True))[0]
    )
    refund = Refund.objects.get()
    assert (refund.external, refund.status, refund.amount, refund.requested_by) == (
        True,
        "succeeded",
        Decimal("10.00"),
        "anna",
    )
    assert (
        "USD 10.00 refunded, USD 20.00 can still be refunded."
        in boss.get(page_of(payment)).content.decode()
    )
    boss.post(enter, {"amount": "20", "seen": str(refund.pk)})
    assert enter not in boss.get(page_of(payment)).content.decode(), "nothing is left to enter"


def test_refused_refund_that_happened_is_entered(
    world: World,
    boss: Client,
) -> None:
    """The form is filled in with its amount."""
    payment = world.paid_payment("30.00")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "12.00")
    action(boss, Review.objects.get(), "refund-not-done")
    notification = f"/payments/refund-notification/{refund.notification_key}/"
    world.client.post(
        notification,
        confirming(refund),
        content_type="application/x-www-form-urlencoded",
    )
    page = boss.get(LISTS[2]).content.decode()
    assert 'name="amount" required value="12.00"' in page
    assert "The ledger has refunds of USD 0.00 for this payment." in page


def test_a_refund_that_cannot_leave_is_withdrawn(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any) -> Any:
        raise NotSent("refund", "x", "connection refused")

    monkeypatch.setattr("tillgate.hooks.refund", away)
    payment = world.paid_payment("30.00")
    queueing.refund(payment.pk, "12.00")
    for _ in range(5):
        world.time.advance(hours=1)
        world.run_worker()
    review = Review.objects.get(reason=ReviewReason.REFUND_NOT_SENT)
    assert "Withdraw the refund of USD 12.00" in boss.get(LISTS[2]).content.decode()
    assert (
        action(boss, review, "withdraw")
        == "Resolved: USD 12.00: withdrawn before it was sent: by anna."
    )
    assert "Refund not done" in boss.get(page_of(payment)).content.decode()


def test_a_second_press_withdraws_no_colleagues_refund(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any) -> Any:
        raise NotSent("refund", "x", "connection refused")

    payment = world.start(world.order("30.00"))
    ShopOrder.objects.update(status="cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    monkeypatch.setattr("tillgate.hooks.refund", away)
    for amount in ("10.00", "3.00"):
        queueing.refund(payment.pk, amount)
    review = Review.objects.get(reason=ReviewReason.PAID_NOT_PAYABLE)
    (shown,) = re.findall(r'name="withdraws" value="(\d+)"', boss.get(LISTS[2]).content.decode())
    assert (
        action(boss, review, "withdraw", withdraws=shown)
        == "Not resolved yet: USD 3.00: withdrawn before it was sent: by anna."
    )
    assert "the refund is failed by now" in action(boss, review, "withdraw", withdraws=shown)
    assert [refund.status for refund in payment.refunds.order_by("pk")] == ["queued", "failed"]


def test_a_failing_outbox_event_is_tried_again(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
    configure: Callable[..., None],
) -> None:
    configure(DELIVERY_TRIES_BEFORE_REVIEW=1)
    payment = world.start(world.order())
    world.shopper_pays(payment)
    with monkeypatch.context() as broken:
        broken.setattr(
            ShopOrder.objects,
            "filter",
            lambda **_: (_ for _ in ()).throw(RuntimeError("the shop is being painted")),
        )
        world.notification(payment)
        review = Review.objects.get(reason=ReviewReason.DELIVERY_FAILING)
        assert "the shop is being painted" in boss.get(LISTS[2]).content.decode()
        assert (
            action(boss, review, "redeliver")
            == "Not resolved yet: it failed again: RuntimeError: the shop is being painted."
        )
    assert action(boss, review, "redeliver") == "Resolved: the shop was told at attempt 3."
    assert world.shop.is_paid(payment.order.key)


def test_reopened_order_is_delivered_again(world: World, boss: Client) -> None:
    """The event of the payment is delivered a second time."""
    order = world.order()
    payment = world.start(order)
    ShopOrder.objects.filter(pk=order).update(status="cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.PAID_NOT_PAYABLE)
    assert action(boss, review, "redeliver") == "Not resolved yet: the shop says: not-payable."
    ShopOrder.objects.filter(pk=order).update(status="open")
    assert (
        action(boss, review, "redeliver")
        == "Resolved: the shop was told again, and has applied the payment."
    )
    assert world.shop.times_paid(order) == 1


def test_i4_redelivery_cannot_pay_order_twice(world: World, boss: Client) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("20.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.UNDERPAID)
    other = world.start(order)
    world.shopper_pays(other)
    world.notification(other)
    assert "is paid already" in action(boss, review, "redeliver")
    assert world.shop.times_paid(order) == 1


def test_accepting_needs_a_note(world: World, boss: Client) -> None:
    review = second_payment(world)
    assert "a note must say why" in action(boss, review, "dismiss", note="  ")
    assert (
        action(boss, review, "dismiss", note="the shopper wants it so")
        == "Resolved: the shopper wants it so."
    )
    assert review.resolution == "the shopper wants it so"
    assert "does not resolve" in action(
        boss,
        Review.objects.create(reason="x", facts={"detail": "y"}, opened_at=timezone.now()),
        "no-such-act",
    )


def test_refunding_difference_resolves_overpaid_order(
    world: World,
    boss: Client,
) -> None:
    order = world.order("30.00")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("28.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.OVERPAID)
    asked = boss.get(page_of(payment, "refund"), {"review": str(review.pk)})
    assert review.message in asked.content.decode()
    assert not asked.context["is_sure"], (
        "all of it is more than the difference: a person says how much"
    )
    assert boss.get(
        page_of(payment, "refund"),
        {"review": str(review.pk), "amount": "2.00"},
    ).context["is_sure"]
    press(boss, payment, "2.00", seen=0, key="x", review=str(review.pk))
    review.refresh_from_db()
    assert review.resolution == "USD 2.00 was refunded"


def test_i2_staff_expires_payment_unknown_to_gateway(
    world: World,
    boss: Client,
) -> None:
    """Money that arrives later is still found."""
    order = world.order()
    payment = world.start(order)
    world.sandbox.control.fault("denied", occasion="query", times=100)
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.PAYMENT_UNKNOWN)
    assert "can still be paid, until 20" in action(
        boss,
        review,
        "mark-expired",
        note="not in the back office",
    )
    world.time.advance(days=1)
    world.run_worker()
    assert not world.shop.is_released(order)
    assert (
        action(boss, review, "mark-expired", note=" ")
        == "a note must say how it is known that it is unpaid, or where the money is settled"
    )
    assert (
        action(boss, review, "mark-expired", note="not in the back office")
        == f"Resolved: payment {payment.reference} is expired."
    )
    assert review.resolution == "a person marks it as expired: not in the back office"
    entry = TimelineEntry.objects.get(event="payment.force-expired")
    assert (entry.actor, entry.message) == ("staff:anna", review.resolution)
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.is_released(order)
    assert world.reviews() == []
    world.sandbox.control.clear_faults()
    world.shopper_pays(payment)
    world.time.advance(days=8)
    world.run_worker()
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == ["paid-not-payable"]


def test_changed_review_is_not_accepted_unread(world: World, boss: Client) -> None:
    payment = world.start(world.order())
    review = open_review(ReviewReason.CHANGED_AFTER_PAID, "It is 'reversed'.", "worker", payment)
    assert review
    page = boss.get(LISTS[2]).content.decode()
    assert f'name="read" value="{review.version}"' in page
    read = review.version
    open_review(ReviewReason.CHANGED_AFTER_PAID, "It is a charge-back.", "worker", payment)
    assert (
        action(boss, review, "dismiss", note="agreed", read=read)
        == "it says something else by now: It is a charge-back."
    )
    assert review.resolved_at is None
    assert (
        action(boss, review, "dismiss", note="agreed", read=review.version) == "Resolved: agreed."
    )


def test_settled_payment_is_not_expired(world: World, boss: Client) -> None:
    """A payment settled in the meantime cannot be marked as expired."""
    payment = world.start(world.order())
    world.sandbox.control.fault("denied", occasion="query")
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.PAYMENT_UNKNOWN)
    Payment.objects.update(status="closed")
    world.time.advance(minutes=1)
    world.sandbox.control.fault("denied", occasion="query")
    assert action(boss, review, "mark-expired", note="not there").endswith("is closed by now")
    assert review.resolved_at is None


def test_refund_resolves_duplicate_transaction_number(world: World, boss: Client) -> None:
    first, second = world.paid_payment(), world.start(world.order())
    Payment.objects.filter(pk=first.pk).update(transaction_no=world.fresh(second).transaction_no)
    world.shopper_pays(second)
    world.notification(second)
    review = Review.objects.get(reason=ReviewReason.DUPLICATE_TRANSACTION_NO)
    assert (review.payment, review.account) == (second, "default")
    press(boss, second, "12.50", seen=0, key="x", review=str(review.pk))
    review.refresh_from_db()
    assert review.resolution


def test_query_does_not_resolve_missigned_creation(
    world: World,
    boss: Client,
) -> None:
    """A correctly signed query proves nothing about the creation's signature."""
    world.sandbox.control.fault("bad_signature", occasion="pay")
    starting.start_payment(world.shop.plugin, world.order(), method="alipay")
    review = Review.objects.get(reason=ReviewReason.SIGNATURE_MISMATCH)
    assert actions_for(review) == (ReviewAction.DISMISS,)
    assert "does not resolve" in action(boss, review, "poll")
    assert review.resolved_at is None


def test_shop_error_is_quoted_on_redelivery(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get(reason=ReviewReason.PAID_NOT_PAYABLE)

    def broken(plugin: str, hook: str, **_: Any) -> None:
        raise ZeroDivisionError(hook)

    monkeypatch.setattr("tillgate.django.actions.call_owner", broken)
    detail = (
        "the shop cannot say whether it takes money for the order: ZeroDivisionError: "
        "tillgate_describe_order"
    )
    assert action(boss, review, "redeliver") == detail
    assert review.resolved_at is None


def test_unstorable_characters_are_removed_from_notes(
    world: World,
    boss: Client,
) -> None:
    """Reasons are cleaned in the same way."""
    review = second_payment(world)
    assert action(boss, review, "dismiss", note="as\0agreed") == "Resolved: as\ufffdagreed."
    payment = world.paid_payment()
    press(boss, payment, "1.00", seen=0, key="x", reason="too\0late")
    assert Refund.objects.get().reason == "too\ufffdlate"


def test_unsent_refund_is_not_called_sent(
    world: World,
    boss: Client,
    configure: Callable[..., None],
) -> None:
    """The page says that the worker tries again."""
    payment = world.paid_payment()
    configure({"MERCHANT_NO": "200099"})
    [message] = said(press(boss, payment, "5.00", seen=0, key="x"))
    assert message.startswith(
        "The refund of USD 5.00 could not be sent yet, and the worker tries it again: merchant_no",
    )


def test_resolved_matter_may_come_again(world: World, boss: Client) -> None:
    payment = world.paid_payment()
    for message in ("3 forged.", "6 forged."):
        open_review(ReviewReason.FORGED_NOTIFICATIONS, message, "notification", payment)
        action(boss, Review.objects.latest("id"), "dismiss", note="a scanner")
    assert Review.objects.count() == 2


# The health page.


def test_health_page_needs_both_permissions(world: World) -> None:
    """Viewing it changes nothing."""
    for number, permissions in enumerate([(), ("view_payment",), ("view_review",)]):
        other = staff(*permissions, name=f"other{number}")
        assert (
            other.get(HEALTH).status_code
            == other.post(HEALTH, {"account": "default"}).status_code
            == 403
        )
        assert HEALTH not in other.get(LISTS[0]).content.decode()
    client, before = staff("view_payment", "view_review"), rows()
    assert HEALTH in client.get(LISTS[0]).content.decode()
    assert client.get(HEALTH).status_code == 200
    assert client.post(HEALTH, {"account": "default"}).status_code == 302
    assert rows() == before
    assert PUBLISHED_TEST_TOKEN not in client.get(HEALTH).content.decode()


def test_health_page_shows_worker_and_accounts(
    world: World,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It also shows the queues and the money."""
    first = boss.get(HEALTH).context["health"]
    assert (first.worker_at, first.is_worker_late, first.open_reviews, first.held) == (
        None,
        True,
        0,
        (),
    )
    assert [(one.alias, one.answered_at, one.notified_at) for one in first.accounts] == [
        ("default", None, None),
    ]
    review = second_payment(world)
    assert review.payment

    def away(*_: Any) -> Any:
        raise NotSent("refund", "x", "connection refused")

    with monkeypatch.context() as unreachable:
        unreachable.setattr("tillgate.hooks.refund", away)
        queueing.refund(review.payment.pk, "1.00")
    waiting = boss.get(HEALTH).context["health"]
    assert (waiting.refunds_queued, [str(total) for total in waiting.refunds]) == (1, ["USD 1.00"])
    world.time.advance(minutes=1)
    world.run_worker()
    with transaction.atomic():
        shop.enqueue_remote(
            review.payment.order.plugin,
            review.payment.order.key,
            "reminder",
            delay=timedelta(minutes=30),
        )
    then = boss.get(HEALTH).context["health"]
    assert not any(one.waiting for one in then.queue), "a reminder for later is in order"
    assert (then.is_worker_late, then.open_reviews, [str(total) for total in then.held]) == (
        False,
        1,
        ["USD 25.00"],
    )
    assert then.refunds_queued == 0
    assert then.accounts[0].answered_at
    assert then.accounts[0].notified_at
    world.time.advance(minutes=70)
    late = boss.get(HEALTH).context["health"]
    due = {
        one.chore.name: (one.waiting, one.oldest is not None) for one in late.queue if one.waiting
    }
    assert late.is_worker_late
    assert due == {"payments": (2, True), "remote events": (1, True)}, (
        "the two paid ones are polled once more after an hour"
    )
    assert "Payments to poll" in boss.get(HEALTH).content.decode()


def test_connection_test_says_what_is_wrong(
    world: World,
    boss: Client,
    configure: Callable[..., None],
) -> None:
    assert "works" in said(boss.post(HEALTH, {"account": "default"}, follow=True))[0]
    assert boss.get(HEALTH).context["health"].accounts[0].answered_at
    configure(account={"TOKEN": "another-secret-token"})
    (message,) = said(boss.post(HEALTH, {"account": "default"}, follow=True))
    assert "the token does not fit" in message
    assert "another-secret-token" not in message
    assert (
        "press the button again"
        in said(boss.post(HEALTH, {"account": "of-nobody"}, follow=True))[0]
    )
