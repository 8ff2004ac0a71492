"""The tricks of a stranger with a browser: redirects elsewhere, another host's name, other
shoppers' keys, forged forms, frames, floods.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.middleware.csrf import get_token
from django.test import Client, RequestFactory

from tests.django.conftest import World
from tests.smallest_shop import plugin
from tillgate.django.models import Notification, Order, Payment, Refund, TimelineEntry
from tillgate.django.pages.tickets import pay_url, read_ticket, start_url
from tillgate.django.refunds import queueing
from tillgate.wire.notifications import LARGEST_NOTIFICATION_BYTES

FORM = "application/x-www-form-urlencoded"
EVIL = "https://evil.example/"
TARGETS = (
    "next",
    "url",
    "redirect",
    "redirect_url",
    "return_url",
    "callbackUrl",
    "cashierUrl",
    "home_url",
    "continue",
    "to",
)


@pytest.fixture
def strict() -> Client:
    return Client(raise_request_exception=False)


def pages_of(world: World) -> dict[str, str]:
    """Return every address of a shopper or the gateway, on payments that are open and settled."""
    opened, paid, order = world.start(world.order()), world.paid_payment(), world.order()
    refund = queueing.refund(paid.pk, "1.00")
    return {
        "notification": f"/payments/notification/{opened.notification_key}/",
        "refund notification": f"/payments/refund-notification/{refund.notification_key}/",
        "return": f"/payments/return/{opened.return_key}/",
        "return of a paid one": f"/payments/return/{paid.return_key}/",
        "status": f"/payments/status/{opened.return_key}/",
        "pay": pay_url(world.shop.plugin, order),
        "start": start_url(world.shop.plugin, order, "alipay"),
    }


# Open redirects -----------------------------------------------------------------------------------


def test_no_parameter_sends_anybody_elsewhere(world: World, strict: Client) -> None:
    for name, path in pages_of(world).items():
        for ask in (strict.get, strict.post):
            answer: Any = ask(
                f"{path}?{'&'.join(f'{target}={EVIL}' for target in TARGETS)}",
                dict.fromkeys(TARGETS, EVIL),
            )
            to = world.onward(answer)
            assert urlsplit(to).netloc in ("", urlsplit(world.sandbox.base_url).netloc), name
            assert "evil.example" not in to + answer.content.decode(), name


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_admins_acts_send_nobody_elsewhere(
    world: World,
    admin_client: Client,
    method: str,
) -> None:
    payment = world.paid_payment()
    fields = {**dict.fromkeys(TARGETS, EVIL), "amount": "1", "seen": "0"}
    for action in ("refund", "record-external-refund", "query", "change"):
        answer: Any = getattr(admin_client, method)(
            f"/admin/tillgate/payment/{payment.pk}/{action}/?next={EVIL}",
            fields,
        )
        assert urlsplit(answer.get("Location", "")).netloc == "", action


@pytest.mark.parametrize(
    "home",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "JaVaScRiPt:alert(1)",
        "vbscript:x",
        "http://[",
        7,
        None,
        b"/x",
    ],
)
def test_invalid_shop_address_is_not_followed(
    world: World,
    strict: Client,
    monkeypatch: pytest.MonkeyPatch,
    home: object,
) -> None:
    payment = world.paid_payment()
    monkeypatch.setattr(
        plugin_implementation("tillgate_return_url"),
        "function",
        lambda payment: home,
    )
    answer = strict.get(f"/payments/return/{payment.return_key}/")
    assert answer.status_code == 200
    assert "Location" not in answer
    assert b"alert(1)" not in answer.content


def plugin_implementation(hook: str) -> Any:
    from tillgate import hooks

    return next(
        one
        for one in getattr(hooks.plugin_manager().hook, hook).get_hookimpls()
        if one.plugin is plugin
    )


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "//evil.example/",
        "/relative",
        "https://pay.example@evil.example/",
        "data:text/html,x",
    ],
)
def test_unsafe_payment_page_is_not_followed(
    world: World,
    strict: Client,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
) -> None:
    """A relative address or one that starts with javascript: is refused."""
    monkeypatch.setattr(type(world.sandbox.service), "payment_url", lambda *_: url)
    answer: Any = strict.get(start_url(world.shop.plugin, world.order(), "alipay"))
    assert answer.status_code == 409
    assert url not in answer.content.decode()
    assert Payment.objects.get().payment_url == ""


# The host's name ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "HTTP_HOST",
        "HTTP_X_FORWARDED_HOST",
        "HTTP_X_ORIGINAL_HOST",
        "HTTP_FORWARDED",
        "HTTP_X_FORWARDED_SERVER",
    ],
)
def test_request_host_never_enters_addresses(
    world: World,
    strict: Client,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    header: str,
) -> None:
    """Addresses that are sent or shown do not depend on the Host header."""
    settings.ALLOWED_HOSTS, settings.USE_X_FORWARDED_HOST = ["*"], True
    sent: list[bytes] = []
    real = world.sandbox.control.handle

    def handle(path: str, content_type: str, body: bytes) -> Any:
        sent.append(body)
        return real(path, content_type, body)

    monkeypatch.setattr(world.sandbox.control, "handle", handle)
    named: Any = {header: "host=evil.example" if header == "HTTP_FORWARDED" else "evil.example"}
    for name, path in pages_of(world).items():
        answer = strict.get(path, **named)
        assert "evil.example" not in f"{dict(answer.headers)} {answer.content.decode()}", name
    strict.get(start_url(world.shop.plugin, world.order(), "paypal"), **named)
    assert sent
    assert not any(b"evil.example" in body for body in sent)


# Other shoppers' keys -----------------------------------------------------------------------------


def keys_of(payment: Payment, refund: Refund) -> dict[str, str]:
    return {
        "notification key": payment.notification_key,
        "return key": payment.return_key,
        "refund's notification key": refund.notification_key,
        "reference": payment.reference,
        "transaction number": payment.transaction_no or "",
        "id": str(payment.pk),
        "order's key": payment.order.key,
        "refund's id": str(refund.pk),
    }


def test_each_key_opens_only_its_address(world: World, strict: Client) -> None:
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "1.00")
    keys = keys_of(payment, refund)
    doors = {
        "notification": "notification key",
        "refund-notification": "refund's notification key",
        "return": "return key",
        "status": "return key",
        "pay": "",
        "start": "",
    }
    for (door, own), (name, key) in itertools.product(doors.items(), keys.items()):
        if name != own:
            assert strict.get(f"/payments/{door}/{key}/").status_code == 404, (
                f"the {name} opens {door}"
            )


def test_keys_are_case_sensitive(world: World, strict: Client) -> None:
    payment = world.start(world.order())
    refund = queueing.refund(world.paid_payment().pk, "1.00")
    for door, key in (
        ("notification", payment.notification_key),
        ("return", payment.return_key),
        ("refund-notification", refund.notification_key),
    ):
        assert strict.get(f"/payments/{door}/{key.swapcase()}/").status_code == 404, door
        assert strict.get(f"/payments/{door}/{key} /").status_code == 404, door


def test_return_page_reveals_no_other_orders(
    world: World,
    strict: Client,
) -> None:
    """Return and status pages grant at most a payment for their own order."""
    order = world.order()
    mine, other = world.start(order), world.start(world.order("99.00"))
    for path in (f"/payments/return/{mine.return_key}/", f"/payments/status/{mine.return_key}/"):
        shown = strict.get(path).content.decode()
        for secret in (
            other.return_key,
            other.notification_key,
            other.reference,
            other.payment_url,
            "99.00",
            mine.notification_key,
        ):
            assert secret not in shown, path
        tickets = re.findall(r"/payments/pay/([^/]+)/", shown)
        granted = [read_ticket(ticket, may_change=False) for ticket in tickets]
        assert granted == ([(world.shop.plugin, order)] if "return" in path else [])
        assert not any(read_ticket(ticket) for ticket in tickets), (
            "a stranger may not cancel the order"
        )


def test_ticket_pays_only_its_own_order(world: World, strict: Client) -> None:
    """Other values in the form change nothing."""
    mine, other = world.order("5.00"), world.order("50.00")
    said = {
        "method": "alipay",
        "order": other,
        "order_key": other,
        "plugin": "another",
        "amount": "0.01",
        "account": "another",
        "currency": "EUR",
    }
    strict.post(pay_url(world.shop.plugin, mine), said)
    payment = Payment.objects.select_related("order").get()
    assert (payment.order.plugin, payment.order.key, str(payment.amount), payment.account) == (
        world.shop.plugin,
        mine,
        "5.00",
        "default",
    )


def test_keys_are_of_192_random_bits(world: World) -> None:
    payments = [world.start(world.order()) for _ in range(20)]
    keys = [key for one in payments for key in (one.notification_key, one.return_key)]
    assert len(set(keys)) == 40
    assert {len(key) for key in keys} == {32}, "24 bytes in base64"
    assert all(len({key[place] for key in keys}) > 10 for place in range(32)), (
        "no letter is the same in all"
    )


# Forged forms -------------------------------------------------------------------------------------


def test_other_sites_form_starts_no_payment(world: World) -> None:
    strict, path = Client(enforce_csrf_checks=True), pay_url(world.shop.plugin, world.order())
    assert strict.post(path, {"method": "alipay"}).status_code == 403
    assert (
        strict.post(path, {"method": "alipay", "csrfmiddlewaretoken": "a" * 64}).status_code == 403
    )
    token = get_token(RequestFactory().get("/"))
    strict.cookies["csrftoken"] = token
    assert (
        strict.post(
            path,
            {"method": "alipay", "csrfmiddlewaretoken": token},
            HTTP_ORIGIN="https://evil.example",
        ).status_code
        == 403
    )
    assert not Payment.objects.exists()
    assert world.onward(strict.post(path, {"method": "alipay", "csrfmiddlewaretoken": token}))


def test_csrf_holds_without_the_projects_middleware(world: World, settings: Any) -> None:
    settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if "Csrf" not in one]
    strict = Client(enforce_csrf_checks=True)
    assert (
        strict.post(pay_url(world.shop.plugin, world.order()), {"method": "alipay"}).status_code
        == 403
    )


@pytest.mark.parametrize("method", ["get", "head", "options"])
def test_safe_methods_start_no_payment(
    world: World,
    strict: Client,
    method: str,
) -> None:
    getattr(strict, method)(f"{pay_url(world.shop.plugin, world.order())}?method=alipay")
    assert not Payment.objects.exists()


# Frames -------------------------------------------------------------------------------------------


def test_refund_pages_cannot_be_framed(
    world: World,
    admin_client: Client,
    settings: Any,
) -> None:
    """Also where the project has no middleware for it; a shopper's pages follow the project's
    choice, since a shop may frame its own.
    """
    payment = world.paid_payment()
    settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if "XFrame" not in one]
    paths = [f"/admin/tillgate/payment/{payment.pk}/{page}/" for page in ("refund", "change")]
    paths += ["/admin/tillgate/payment/", "/admin/tillgate/order/", "/admin/tillgate/review/"]
    for path in paths:
        assert admin_client.get(path)["X-Frame-Options"] == "DENY", path


# Too much -----------------------------------------------------------------------------------------


class Counting:
    """A body without end, which counts how much of it is read."""

    def __init__(self) -> None:
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "all of it was asked for"
        self.taken += size
        return b"a" * size

    readline = read


@pytest.mark.parametrize("page", ["notification", "refund notification", "return"])
def test_endless_body_stops_at_64_kb(world: World, page: str) -> None:
    path, body = pages_of(world)[page], Counting()
    endless: dict[str, Any] = {"wsgi.input": body, "CONTENT_LENGTH": str(10**12)}
    answer = Client(raise_request_exception=False).generic(
        "POST",
        path,
        content_type=FORM,
        **endless,
    )
    assert answer.status_code == 200
    assert 0 < body.taken <= 2 * (LARGEST_NOTIFICATION_BYTES + 1)
    newest = Notification.objects.latest("received_at", "id")
    assert len(str(newest.evidence)) < 200


@pytest.mark.parametrize(
    ("page", "length", "most"),
    [
        ("notification", 31, 0),
        ("refund-notification", 33, 0),
        ("return", 32, 0),
        # it may be signed, about a payment that the database has lost
        (
            "notification",
            32,
            LARGEST_NOTIFICATION_BYTES + 1,
        ),
        ("refund-notification", 32, LARGEST_NOTIFICATION_BYTES + 1),
    ],
)
def test_unknown_address_reads_little_body(
    world: World,
    page: str,
    length: int,
    most: int,
) -> None:
    """Nothing is read where the address cannot be one of ours."""
    body = Counting()
    endless: dict[str, Any] = {"wsgi.input": body, "CONTENT_LENGTH": "600000"}
    assert (
        Client()
        .generic(
            "POST",
            f"/payments/{page}/{'a' * length}/",
            content_type="application/json",
            **endless,
        )
        .status_code
        == 404
    )
    assert body.taken <= most


def rows() -> dict[str, int]:
    return {
        model.__name__: model._default_manager.count()
        for model in (Order, Payment, Refund, Notification, TimelineEntry)
    }


FLOODS: dict[str, Callable[[], Iterator[tuple[str, dict[str, Any]]]]] = {
    "long addresses": lambda: (
        (f"/payments/{page}/{'a' * length}/", {})
        for page in ("notification", "return", "status", "pay", "start")
        for length in (33, 3_000, 60_000)
    ),
    "long headers": lambda: (
        ("/payments/notification/x/", {name: "a" * 60_000})
        for name in ("HTTP_USER_AGENT", "HTTP_COOKIE", "HTTP_REFERER", "HTTP_ACCEPT_LANGUAGE")
    ),
    "long queries": lambda: (
        ("/payments/return/x/", {"QUERY_STRING": query})
        for query in ("a" * 60_000, "a=b&" * 20_000)
    ),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_oversized_input_leaves_no_row(
    world: World,
    strict: Client,
    flood: str,
) -> None:
    before = rows()
    for path, more in FLOODS[flood]():
        answer = strict.generic("POST", path, b"", **more)
        assert 400 <= answer.status_code < 500, path[:60]
        assert len(answer.content) < 10_000
    assert rows() == before


def test_known_address_accepts_long_headers(world: World, strict: Client) -> None:
    """Long queries are accepted too."""
    payment = world.start(world.order())
    for number, more in enumerate(
        (
            {"HTTP_USER_AGENT": "a" * 60_000},
            {"QUERY_STRING": "a" * 60_000},
            {"QUERY_STRING": "a=b&" * 20_000},
        ),
        1,
    ):
        long: dict[str, Any] = dict(more)
        assert (
            strict.generic(
                "POST",
                f"/payments/notification/{payment.notification_key}/",
                b"",
                content_type=FORM,
                **long,
            ).status_code
            == 200
        )
        assert Notification.objects.count() == number
    assert all(len(str(one.evidence)) < 9_000 for one in Notification.objects.all())


def test_huge_form_starts_nothing(
    world: World,
    strict: Client,
) -> None:
    """Forms with many or large fields cause no error either."""
    path = pay_url(world.shop.plugin, world.order())
    for body in (
        b"&".join(b"k%d=v" % number for number in range(5_000)),
        b"vendor=" + b"a" * 5_000_000,
    ):
        assert strict.generic("POST", path, body, content_type=FORM).status_code in (400, 413)
    assert strict.post(path, {"method": "a" * 100_000}).status_code == 200
    assert not Payment.objects.exists()


def test_return_flood_keeps_20_rows(
    world: World,
    strict: Client,
) -> None:
    """A refund has 20 rows of its own."""
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "1.00")
    for _ in range(45):
        strict.get(f"/payments/return/{payment.return_key}/")
        strict.post(f"/payments/refund-notification/{refund.notification_key}/")
    assert Notification.objects.filter(refund=None).count() <= 20
    assert Notification.objects.filter(refund=refund).count() <= 20


# The admin: everybody, every page, every act ------------------------------------------------------

PERMISSIONS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "staff without permissions": (),
    "may look at payments": ("view_payment",),
    "may look": ("view_payment", "view_order", "view_review"),
    "may refund but not look": ("refund_payment",),
    "may look and refund": ("view_payment", "view_order", "view_review", "refund_payment"),
    "may look and resolve": ("view_payment", "view_order", "view_review", "resolve_review"),
    "may look, refund and resolve": (
        "view_payment",
        "view_order",
        "view_review",
        "refund_payment",
        "resolve_review",
    ),
    "superuser": (),
}
LOOK = {
    "may look",
    "may look and refund",
    "may look and resolve",
    "may look, refund and resolve",
    "superuser",
}
LOOK_AT_PAYMENTS = {*LOOK, "may look at payments"}
REFUND = {"may look and refund", "may look, refund and resolve", "superuser"}
RESOLVE = {"may look and resolve", "may look, refund and resolve", "superuser"}
DO_BOTH = REFUND & RESOLVE
ACTIONS: dict[str, tuple[str, str, set[str]]] = {
    "list payments": ("get", "payment/", LOOK_AT_PAYMENTS),
    "list orders": ("get", "order/", LOOK),
    "list reviews": ("get", "review/", LOOK),
    "look at a payment": ("get", "payment/{payment}/change/", LOOK_AT_PAYMENTS),
    "look at an order": ("get", "order/{order}/change/", LOOK),
    "look at a review": ("get", "review/{review}/change/", LOOK),
    "ask the gateway": ("post", "payment/{payment}/query/", LOOK_AT_PAYMENTS),
    "note something of a payment": ("post", "payment/{payment}/note/", RESOLVE),
    "be asked about a refund": ("get", "payment/{payment}/refund/", REFUND),
    "refund": ("post", "payment/{payment}/refund/", REFUND),
    "enter a refund of a payment": ("post", "payment/{payment}/record-external-refund/", DO_BOTH),
    "take a review": ("post", "review/{review}/take/", RESOLVE),
    "dismiss": ("post", "review/{review}/action/?dismiss", RESOLVE),
    "query for a review": ("post", "review/{review}/action/?poll", RESOLVE),
    "refund for a review": ("post", "review/{review}/action/?refund", DO_BOTH),
    "enter a refund": ("post", "review/{review}/action/?record-external-refund", DO_BOTH),
    "call a refund done": ("post", "review/{review}/action/?refund-done", DO_BOTH),
    "call a refund not done, which frees its amount": (
        "post",
        "review/{review}/action/?refund-not-done",
        DO_BOTH,
    ),
    "withdraw a refund": ("post", "review/{review}/action/?withdraw", DO_BOTH),
    "add a payment": ("get", "payment/add/", set()),
    "change a payment": ("post", "payment/{payment}/change/", set()),
    "delete a payment": ("post", "payment/{payment}/delete/", set()),
    "read the figures": ("get", "payment/figures/", LOOK_AT_PAYMENTS),
    "be asked for a settlement file": ("get", "payment/settlement/", LOOK_AT_PAYMENTS),
    "check a settlement file": ("post", "payment/settlement/", LOOK_AT_PAYMENTS),
    "see the health": ("get", "review/health/", LOOK),
    "test a connection": ("post", "review/health/", LOOK),
    "read the history": ("get", "payment/{payment}/history/", LOOK_AT_PAYMENTS),
}


@pytest.mark.parametrize("who", PERMISSIONS)
def test_permissions_allow_exactly_their_actions(world: World, who: str) -> None:
    from tests.django.pages.test_admin import second_payment, staff

    review = second_payment(world)
    assert review.payment
    client = Client()
    if who != "nobody":
        client = staff(*PERMISSIONS[who], name="p", is_superuser=who == "superuser")
        assert User.objects.get(username="p").is_superuser is (who == "superuser")
    ids = {"payment": review.payment.pk, "order": review.order_id, "review": review.pk}
    may: set[str] = set()
    for action, (method, path, _) in ACTIONS.items():
        page, _, what = path.format(**ids).partition("?")
        before = rows()
        answer: Any = getattr(client, method)(
            f"/admin/tillgate/{page}",
            {"action": what, "amount": "1.00", "note": "fine", "seen": "0"},
        )
        if answer.status_code == 200 or (
            answer.status_code == 302 and not answer["Location"].startswith("/admin/login/")
        ):
            may.add(action)
        else:
            assert answer.status_code in (302, 403, 405), action
            assert rows() == before, f"{action} was refused, and done"
    assert may == {action for action, (_, _, people) in ACTIONS.items() if who in people}
    assert Refund.objects.exists() is (who in REFUND)


def test_every_admin_address_is_covered() -> None:
    """Each address has a line that names the staff who may use it."""
    from django.contrib import admin

    from tillgate.django.models import Review

    known = {
        path.format(payment="#", order="#", review="#").partition("?")[0].partition("/")[2]
        for _, path, _ in ACTIONS.values()
    }
    for model in (Payment, Order, Review):
        for pattern in admin.site._registry[model].urls:
            shape = str(pattern.pattern).replace("<path:object_id>", "#")
            # "#/" only leads to "#/change/"
            assert shape in known or shape == "#/", f"nobody has said who may use {shape}"
