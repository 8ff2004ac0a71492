"""What a stranger with a browser may try: redirects elsewhere, another host's name, somebody else's keys, forged forms, frames, floods."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.middleware.csrf import get_token
from django.test import Client, RequestFactory

from tests.django.conftest import World
from tests.smallest_shop import plugin
from tillgate.django import operations
from tillgate.django.models import Notice, Order, Payment, Refund, TimelineEntry
from tillgate.django.tickets import pay_url, start_url
from tillgate.wire.notices import LARGEST_NOTICE_BYTES

FORM = "application/x-www-form-urlencoded"
EVIL = "https://evil.example/"
TARGETS = ("next", "url", "redirect", "redirect_url", "return_url", "callbackUrl", "cashierUrl", "home_url", "continue", "to")


@pytest.fixture
def strict() -> Client:
    return Client(raise_request_exception=False)


def pages_of(world: World) -> dict[str, str]:
    """Return every address of a shopper or the gateway, on payments that are open and settled."""
    opened, paid, order = world.start(world.order()), world.paid_payment(), world.order()
    refund = operations.refund(paid.pk, "1.00")
    return {
        "notice": f"/payments/notice/{opened.notice_key}/",
        "refund notice": f"/payments/refund-notice/{refund.notice_key}/",
        "return": f"/payments/return/{opened.return_key}/",
        "return of a paid one": f"/payments/return/{paid.return_key}/",
        "status": f"/payments/status/{opened.return_key}/",
        "pay": pay_url(world.shop.plugin, order),
        "start": start_url(world.shop.plugin, order, "alipay"),
    }


# Open redirects ---------------------------------------------------------------------------------------------------------------------------


def test_no_parameter_sends_anybody_elsewhere(world: World, strict: Client) -> None:
    for name, path in pages_of(world).items():
        for ask in (strict.get, strict.post):
            answer: Any = ask(f"{path}?{'&'.join(f'{target}={EVIL}' for target in TARGETS)}", dict.fromkeys(TARGETS, EVIL))
            to = answer.get("Location", "")
            assert urlsplit(to).netloc in ("", urlsplit(world.sandbox.base_url).netloc), name
            assert "evil.example" not in to + answer.content.decode(), name


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_admins_acts_send_nobody_elsewhere(world: World, admin_client: Client, method: str) -> None:
    payment = world.paid_payment()
    fields = {**dict.fromkeys(TARGETS, EVIL), "amount": "1", "seen": "0"}
    for act in ("refund", "enter-refund", "query", "change"):
        answer: Any = getattr(admin_client, method)(f"/admin/tillgate/payment/{payment.pk}/{act}/?next={EVIL}", fields)
        assert urlsplit(answer.get("Location", "")).netloc == "", act


@pytest.mark.parametrize(
    "home", ["javascript:alert(1)", "data:text/html,x", "JaVaScRiPt:alert(1)", "vbscript:x", "http://[", 7, None, b"/x"]
)
def test_a_shops_page_that_is_no_address_is_not_gone_to(
    world: World, strict: Client, monkeypatch: pytest.MonkeyPatch, home: object
) -> None:
    payment = world.paid_payment()
    monkeypatch.setattr(plugin_implementation("tillgate_return_url"), "function", lambda payment: home)
    answer = strict.get(f"/payments/return/{payment.return_key}/")
    assert answer.status_code == 200
    assert "Location" not in answer
    assert b"alert(1)" not in answer.content


def plugin_implementation(hook: str) -> Any:
    from tillgate import hooks

    return next(one for one in getattr(hooks.plugin_manager().hook, hook).get_hookimpls() if one.plugin is plugin)


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "//evil.example/", "/relative", "https://pay.example@evil.example/", "data:text/html,x"]
)
def test_a_cashier_address_of_another_kind_is_not_gone_to(world: World, strict: Client, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(type(world.sandbox.service), "cashier_url", lambda *_: url)
    answer: Any = strict.get(start_url(world.shop.plugin, world.order(), "alipay"))
    assert answer.status_code == 409
    assert url not in answer.content.decode()
    assert Payment.objects.get().cashier_url == ""


# The host's name --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["HTTP_HOST", "HTTP_X_FORWARDED_HOST", "HTTP_X_ORIGINAL_HOST", "HTTP_FORWARDED", "HTTP_X_FORWARDED_SERVER"]
)
def test_the_host_that_a_request_names_is_in_no_address_that_is_sent_or_shown(
    world: World, strict: Client, settings: Any, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
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


# Somebody else's keys ---------------------------------------------------------------------------------------------------------------------


def keys_of(payment: Payment, refund: Refund) -> dict[str, str]:
    return {
        "notice key": payment.notice_key,
        "return key": payment.return_key,
        "refund's notice key": refund.notice_key,
        "reference": payment.reference,
        "transaction number": payment.transaction_no or "",
        "id": str(payment.pk),
        "order's key": payment.order.key,
        "refund's id": str(refund.pk),
    }


def test_each_key_opens_its_own_door_and_no_other(world: World, strict: Client) -> None:
    payment = world.paid_payment()
    refund = operations.refund(payment.pk, "1.00")
    keys = keys_of(payment, refund)
    doors = {
        "notice": "notice key",
        "refund-notice": "refund's notice key",
        "return": "return key",
        "status": "return key",
        "pay": "",
        "start": "",
    }
    for (door, own), (name, key) in itertools.product(doors.items(), keys.items()):
        if name != own:
            assert strict.get(f"/payments/{door}/{key}/").status_code == 404, f"the {name} opens {door}"


def test_a_key_with_a_letter_of_another_case_is_nobodys(world: World, strict: Client) -> None:
    payment = world.start(world.order())
    refund = operations.refund(world.paid_payment().pk, "1.00")
    for door, key in (("notice", payment.notice_key), ("return", payment.return_key), ("refund-notice", refund.notice_key)):
        assert strict.get(f"/payments/{door}/{key.swapcase()}/").status_code == 404, door
        assert strict.get(f"/payments/{door}/{key} /").status_code == 404, door


def test_a_return_or_status_tells_nothing_of_other_payments_and_grants_no_payment(world: World, strict: Client) -> None:
    order = world.order()
    mine, other = world.start(order), world.start(world.order("99.00"))
    for path in (f"/payments/return/{mine.return_key}/", f"/payments/status/{mine.return_key}/"):
        shown = strict.get(path).content.decode()
        for secret in (other.return_key, other.notice_key, other.reference, other.cashier_url, "99.00", mine.notice_key):
            assert secret not in shown, path
        assert "/payments/pay/" not in shown


def test_a_ticket_pays_its_own_order_whatever_the_form_says(world: World, strict: Client) -> None:
    mine, other = world.order("5.00"), world.order("50.00")
    said = {
        "vendor": "alipay",
        "order": other,
        "order_key": other,
        "plugin": "another",
        "amount": "0.01",
        "account": "another",
        "currency": "EUR",
    }
    strict.post(pay_url(world.shop.plugin, mine), said)
    payment = Payment.objects.select_related("order").get()
    assert (payment.order.plugin, payment.order.key, str(payment.amount), payment.account) == (world.shop.plugin, mine, "5.00", "default")


def test_keys_are_of_192_random_bits(world: World) -> None:
    payments = [world.start(world.order()) for _ in range(20)]
    keys = [key for one in payments for key in (one.notice_key, one.return_key)]
    assert len(set(keys)) == 40
    assert {len(key) for key in keys} == {32}, "24 bytes in base64"
    assert all(len({key[place] for key in keys}) > 10 for place in range(32)), "no letter is the same in all"


# Forged forms -----------------------------------------------------------------------------------------------------------------------------


def test_a_form_of_another_site_starts_no_payment(world: World) -> None:
    strict, path = Client(enforce_csrf_checks=True), pay_url(world.shop.plugin, world.order())
    assert strict.post(path, {"vendor": "alipay"}).status_code == 403
    assert strict.post(path, {"vendor": "alipay", "csrfmiddlewaretoken": "a" * 64}).status_code == 403
    token = get_token(RequestFactory().get("/"))
    strict.cookies["csrftoken"] = token
    assert strict.post(path, {"vendor": "alipay", "csrfmiddlewaretoken": token}, HTTP_ORIGIN="https://evil.example").status_code == 403
    assert not Payment.objects.exists()
    assert strict.post(path, {"vendor": "alipay", "csrfmiddlewaretoken": token}).status_code == 302


def test_csrf_holds_without_the_projects_middleware(world: World, settings: Any) -> None:
    settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if "Csrf" not in one]
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(pay_url(world.shop.plugin, world.order()), {"vendor": "alipay"}).status_code == 403


@pytest.mark.parametrize("method", ["get", "head", "options"])
def test_a_safe_method_on_a_payers_page_starts_nothing(world: World, strict: Client, method: str) -> None:
    getattr(strict, method)(f"{pay_url(world.shop.plugin, world.order())}?vendor=alipay")
    assert not Payment.objects.exists()


# Frames -----------------------------------------------------------------------------------------------------------------------------------


def test_no_other_site_may_frame_a_page_on_which_money_is_given_back(world: World, admin_client: Client, settings: Any) -> None:
    """Also where the project has no middleware for it; a shopper's pages keep to what the project says, since a shop may frame its own."""
    payment = world.paid_payment()
    settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if "XFrame" not in one]
    paths = [f"/admin/tillgate/payment/{payment.pk}/{page}/" for page in ("refund", "change")]
    paths += ["/admin/tillgate/payment/", "/admin/tillgate/order/", "/admin/tillgate/attention/"]
    for path in paths:
        assert admin_client.get(path)["X-Frame-Options"] == "DENY", path


# Too much ---------------------------------------------------------------------------------------------------------------------------------


class Counting:
    """A body without end, which counts how much of it is read."""

    def __init__(self) -> None:
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "all of it was asked for"
        self.taken += size
        return b"a" * size

    readline = read


@pytest.mark.parametrize("page", ["notice", "refund notice", "return"])
def test_of_a_body_without_end_64_kb_are_read(world: World, page: str) -> None:
    path, body = pages_of(world)[page], Counting()
    endless: dict[str, Any] = {"wsgi.input": body, "CONTENT_LENGTH": str(10**12)}
    answer = Client(raise_request_exception=False).generic("POST", path, content_type=FORM, **endless)
    assert answer.status_code == 200
    assert 0 < body.taken <= 2 * (LARGEST_NOTICE_BYTES + 1)
    newest = Notice.objects.latest("received_at", "id")
    assert len(str(newest.evidence)) < 200


def rows() -> dict[str, int]:
    return {model.__name__: model._default_manager.count() for model in (Order, Payment, Refund, Notice, TimelineEntry)}


FLOODS: dict[str, Callable[[], Iterator[tuple[str, dict[str, Any]]]]] = {
    "long addresses": lambda: (
        (f"/payments/{page}/{'a' * length}/", {})
        for page in ("notice", "return", "status", "pay", "start")
        for length in (33, 3_000, 60_000)
    ),
    "long headers": lambda: (
        ("/payments/notice/x/", {name: "a" * 60_000}) for name in ("HTTP_USER_AGENT", "HTTP_COOKIE", "HTTP_REFERER", "HTTP_ACCEPT_LANGUAGE")
    ),
    "long queries": lambda: (("/payments/return/x/", {"QUERY_STRING": query}) for query in ("a" * 60_000, "a=b&" * 20_000)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_what_is_too_long_is_refused_and_leaves_no_row(world: World, strict: Client, flood: str) -> None:
    before = rows()
    for path, more in FLOODS[flood]():
        answer = strict.generic("POST", path, b"", **more)
        assert 400 <= answer.status_code < 500, path[:60]
        assert len(answer.content) < 10_000
    assert rows() == before


def test_a_known_address_bears_long_headers_and_queries(world: World, strict: Client) -> None:
    payment = world.start(world.order())
    for number, more in enumerate(
        ({"HTTP_USER_AGENT": "a" * 60_000}, {"QUERY_STRING": "a" * 60_000}, {"QUERY_STRING": "a=b&" * 20_000}), 1
    ):
        long: dict[str, Any] = dict(more)
        assert strict.generic("POST", f"/payments/notice/{payment.notice_key}/", b"", content_type=FORM, **long).status_code == 200
        assert Notice.objects.count() == number
    assert all(len(str(one.evidence)) < 9_000 for one in Notice.objects.all())


def test_a_form_of_many_or_large_fields_starts_nothing_and_is_no_error(world: World, strict: Client) -> None:
    path = pay_url(world.shop.plugin, world.order())
    for body in (b"&".join(b"k%d=v" % number for number in range(5_000)), b"vendor=" + b"a" * 5_000_000):
        assert strict.generic("POST", path, body, content_type=FORM).status_code in (400, 413)
    assert strict.post(path, {"vendor": "a" * 100_000}).status_code == 200
    assert not Payment.objects.exists()


def test_a_flood_of_returns_keeps_20_rows_and_a_refund_has_20_of_its_own(world: World, strict: Client) -> None:
    payment = world.paid_payment()
    refund = operations.refund(payment.pk, "1.00")
    for _ in range(45):
        strict.get(f"/payments/return/{payment.return_key}/")
        strict.post(f"/payments/refund-notice/{refund.notice_key}/")
    assert Notice.objects.filter(refund=None).count() <= 20
    assert Notice.objects.filter(refund=refund).count() <= 20


# The admin: everybody, every page, every act ----------------------------------------------------------------------------------------------

PERMISSIONS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "staff without permissions": (),
    "may look at payments": ("view_payment",),
    "may look": ("view_payment", "view_order", "view_attention"),
    "may refund but not look": ("refund_payment",),
    "may look and refund": ("view_payment", "view_order", "view_attention", "refund_payment"),
    "may look and resolve": ("view_payment", "view_order", "view_attention", "resolve_attention"),
    "may look, refund and resolve": ("view_payment", "view_order", "view_attention", "refund_payment", "resolve_attention"),
    "superuser": (),
}
LOOK = {"may look", "may look and refund", "may look and resolve", "may look, refund and resolve", "superuser"}
LOOK_AT_PAYMENTS = {*LOOK, "may look at payments"}
REFUND = {"may look and refund", "may look, refund and resolve", "superuser"}
RESOLVE = {"may look and resolve", "may look, refund and resolve", "superuser"}
DO_BOTH = REFUND & RESOLVE
ACTS: dict[str, tuple[str, str, set[str]]] = {
    "list payments": ("get", "payment/", LOOK_AT_PAYMENTS),
    "list orders": ("get", "order/", LOOK),
    "list attentions": ("get", "attention/", LOOK),
    "look at a payment": ("get", "payment/{payment}/change/", LOOK_AT_PAYMENTS),
    "look at an order": ("get", "order/{order}/change/", LOOK),
    "look at an attention": ("get", "attention/{attention}/change/", LOOK),
    "ask the gateway": ("post", "payment/{payment}/query/", LOOK_AT_PAYMENTS),
    "be asked about a refund": ("get", "payment/{payment}/refund/", REFUND),
    "refund": ("post", "payment/{payment}/refund/", REFUND),
    "enter a refund of a payment": ("post", "payment/{payment}/enter-refund/", DO_BOTH),
    "accept": ("post", "attention/{attention}/act/?accept", RESOLVE),
    "query for an attention": ("post", "attention/{attention}/act/?query", RESOLVE),
    "refund for an attention": ("post", "attention/{attention}/act/?refund", DO_BOTH),
    "enter a refund": ("post", "attention/{attention}/act/?enter-refund", DO_BOTH),
    "add a payment": ("get", "payment/add/", set()),
    "change a payment": ("post", "payment/{payment}/change/", set()),
    "delete a payment": ("post", "payment/{payment}/delete/", set()),
    "read the history": ("get", "payment/{payment}/history/", LOOK_AT_PAYMENTS),
}


@pytest.mark.parametrize("person", PERMISSIONS)
def test_everybody_can_do_what_they_may_and_nothing_else(world: World, person: str) -> None:
    from tests.django.test_admin import second_payment, staff

    attention = second_payment(world)
    assert attention.payment
    client = Client()
    if person != "nobody":
        client = staff(*PERMISSIONS[person], name="p", is_superuser=person == "superuser")
        assert User.objects.get(username="p").is_superuser is (person == "superuser")
    ids = {"payment": attention.payment.pk, "order": attention.order_id, "attention": attention.pk}
    may: set[str] = set()
    for act, (method, path, _) in ACTS.items():
        page, _, what = path.format(**ids).partition("?")
        before = rows()
        answer: Any = getattr(client, method)(f"/admin/tillgate/{page}", {"act": what, "amount": "1.00", "note": "fine", "seen": "0"})
        if answer.status_code == 200 or (answer.status_code == 302 and not answer["Location"].startswith("/admin/login/")):
            may.add(act)
        else:
            assert answer.status_code in (302, 403, 405), act
            assert rows() == before, f"{act} was refused, and done"
    assert may == {act for act, (_, _, people) in ACTS.items() if person in people}
    assert Refund.objects.exists() is (person in REFUND)


def test_there_is_a_line_for_every_address_of_the_admin() -> None:
    from django.contrib import admin

    from tillgate.django.models import Attention

    known = {path.format(payment="#", order="#", attention="#").partition("?")[0].partition("/")[2] for _, path, _ in ACTS.values()}
    for model in (Payment, Order, Attention):
        for pattern in admin.site._registry[model].urls:
            shape = str(pattern.pattern).replace("<path:object_id>", "#")
            assert shape in known or shape == "#/", f"nobody has said who may use {shape}"  # "#/" only leads to "#/change/"
