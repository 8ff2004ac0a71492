"""I11: everything that a shop does uses a secret token; then the test looks for the token in all
visible output.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import httpcore
import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils.log import AdminEmailHandler
from django.views.debug import ExceptionReporter

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate.django.models import Order, Payment, Refund, Review
from tillgate.django.payments import creating
from tillgate.django.refunds import limits, queueing
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, Sandbox
from tillgate.testing.leaks import digest, everything_logged
from tillgate.wire import signing

CANARY = "canary-7Jq2xV9mKp4Rt8Wz"
WRONG_CANARY = "canary-of-another-merchant-5Hd3"
starting: Any = importlib.import_module("tillgate.django.payments.starting")


class Seen:
    """Every visible output, under the name of its place; and every signature that was made or
    compared.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.signatures: set[str] = set()

    def __call__(self, where: str, text: str) -> None:
        self.texts.append((where, text))

    def page(self, answer: Any) -> Any:
        """Look at a page, its headers and where it leads."""
        self(
            f"{answer.request['REQUEST_METHOD']} {answer.request['PATH_INFO']}",
            f"{dict(answer.headers)} {answer.content.decode()}",
        )
        return answer

    def leaks(self) -> list[str]:
        """Return where a token, its digest or a signature was seen; in percent signs too."""
        sought = {CANARY, digest(CANARY), WRONG_CANARY, digest(WRONG_CANARY), *self.signatures}
        return [
            where
            for where, text in self.texts
            if any(secret in form for secret in sought for form in (text, unquote(text)))
        ]


class _Ear(logging.Handler):
    """Hears every record as a log file, and as an error report with the local variables of all
    frames.
    """

    def __init__(self, seen: Seen) -> None:
        super().__init__(logging.DEBUG)
        self._seen = seen
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._seen(f"log of {record.name}", f"{self.format(record)} {record.args}")
        if record.levelno >= logging.WARNING and record.exc_info and record.exc_info[0]:
            reporter = ExceptionReporter(None, *record.exc_info)
            self._seen(f"error report of {record.name}", reporter.get_traceback_html())


@pytest.fixture
def seen(
    world: World,
    sandbox: Sandbox,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Seen]:
    """Give the shop the canary, and listen everywhere."""
    everything = Seen()
    real = signing._digest

    def noted(text: str, token: str) -> str:
        made = real(text, token)
        if token in (CANARY, WRONG_CANARY):
            everything.signatures.add(made)
        return made

    monkeypatch.setattr(signing, "_digest", noted)
    with sandbox.control.lock:
        signing_answers = dataclasses.replace(
            sandbox.options,
            merchants={PUBLISHED_MERCHANT_NO: CANARY},
            answer_signature="valid",
            notification_signature="valid",
        )
        sandbox.control.service.use(signing_answers)
    world.configure(
        {"TOKEN": CANARY},
        DELIVERY_TRIES_BEFORE_REVIEW=1,
        REVIEW_MAIL_TO=["owner@shop.example"],
    )
    settings.ADMINS = [("Admin", "admin@shop.example")]
    mails = AdminEmailHandler(include_html=True)
    mails.setLevel(logging.ERROR)
    root = logging.getLogger()
    before = {
        name: logging.getLogger(name).level
        for name in ("", "tillgate", "django", "httpx", "httpcore")
    }
    ears = (_Ear(everything), mails)
    for ear in ears:
        root.addHandler(ear)
    for name in before:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield everything
    for ear in ears:
        root.removeHandler(ear)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def sell_fail_and_refund(world: World, seen: Seen) -> None:
    """Do everything that a shop does, well and badly."""
    order = world.order("40.00")
    seen.page(world.client.get(world.way_to_pay(order)))
    payment = world.pay_page(order)
    world.shopper_pays(payment)
    for answer in world.gateway_notification(payment):
        seen.page(answer)
    seen.page(world.come_back(payment))
    seen.page(world.client.get(f"/payments/status/{payment.return_key}/"))
    queueing.refund(payment.pk, "1.00", staff="ann")
    for answer in world.gateway_notification(payment, "refund"):
        seen.page(answer)
    for fault in ("lost_response", "refused", "bad_signature", "broken_json", "server_error"):
        with contextlib.suppress(limits.RefundNotPossible):
            world.sandbox.control.fault(fault, occasion="refund")
            queueing.refund(payment.pk, "1.00", staff="ann")
    for fault in ("lost_response", "bad_signature", "server_error"):
        # after creations without an answer the pages create none for a while
        world.time.advance(minutes=1)
        world.sandbox.control.fault(fault, occasion="pay")
        seen.page(world.client.post(world.way_to_pay(world.order()), {"method": "paypal"}))
    world.time.advance(minutes=1)
    forged = world.start(world.order())
    for _ in range(21):
        seen.page(
            world.notification(
                forged, "status=success&verifySign=00000000000000000000000000000000"
            ),
        )
    seen.page(world.come_back(forged))
    unhappy = world.start(world.order())
    world.shopper_pays(unhappy)
    with world.failing_handler("tillgate_payment_paid", times=2):
        seen.page(world.notification(unhappy))
        world.time.advance(minutes=2)
        world.run_worker()


def use_a_wrong_token(world: World, seen: Seen) -> None:
    """Work for a while with a token that the gateway refuses."""
    world.configure({"TOKEN": WRONG_CANARY})
    payment = Payment.objects.filter(status="pending").first()
    assert payment
    seen.page(world.notification(payment))
    seen.page(world.client.post(world.way_to_pay(world.order()), {"method": "alipay"}))
    world.time.advance(minutes=10)
    world.run_worker()
    world.configure({"TOKEN": CANARY})


def look_at_everything(world: World, seen: Seen) -> None:
    """Look at all pages of the staff, the commands' words, the mails and the database."""
    staff = Client()
    staff.force_login(User.objects.create_superuser("ann"))
    for name in ("payment", "order", "review"):
        seen.page(staff.get(f"/admin/tillgate/{name}/"))
    for row in (*Payment.objects.all(), *Order.objects.all(), *Review.objects.all()):
        seen.page(staff.get(f"/admin/tillgate/{row._meta.model_name}/{row.pk}/change/"))
    for payment in Payment.objects.all():
        seen.page(staff.post(f"/admin/tillgate/payment/{payment.pk}/query/", follow=True))
        seen.page(staff.get(f"/admin/tillgate/payment/{payment.pk}/refund/", follow=True))
    for words in (("doctor",), ("worker", "--once"), ("worker", "--once", "--verbosity", "3")):
        said, complained = io.StringIO(), io.StringIO()
        with contextlib.suppress(SystemExit):
            call_command("tillgate", *words, stdout=said, stderr=complained)
        seen(f"manage.py tillgate {words}", said.getvalue() + complained.getvalue())
    for letter in mail.outbox:
        seen(
            f"mail {letter.subject}",
            f"{letter.body} {getattr(letter, 'alternatives', '')} {letter.message().as_string()}",
        )
    for table, rows in tables().items():
        seen(f"table {table}", rows)


def tables() -> dict[str, str]:
    """Return the rows of every table, as a text each."""
    texts = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            texts[table] = repr(cursor.fetchall())
    return texts


def test_i11_shop_life_shows_no_secret(
    world: World,
    seen: Seen,
) -> None:
    """No token, digest or signature appears in anything that a shop produces."""
    sell_fail_and_refund(world, seen)
    use_a_wrong_token(world, seen)
    look_at_everything(world, seen)
    places = " ".join(where for where, _ in seen.texts)
    reached = (
        "table tillgate_payment",
        "doctor",
        "mail ",
        "error report of tillgate",
        "log of httpcore",
        "GET /admin/",
        "POST /payments/refund-notification",
    )
    assert [place for place in reached if place not in places] == []
    assert {"succeeded", "failed", "unknown"} <= set(
        Refund.objects.values_list("status", flat=True),
    )
    assert {
        "signature-mismatch",
        "forged-notifications",
        "refund-unknown",
        "delivery-failing",
    } <= set(Review.objects.values_list("reason", flat=True))
    assert len(seen.signatures) > 20
    assert seen.leaks() == []


def test_i11_unusable_page_address_hides_key(
    world: World,
) -> None:
    """No log and no row shows the key of the payment page."""
    world.sandbox.control.fault("payment_page_relative", occasion="pay")
    with everything_logged() as lines:
        world.client.post(world.way_to_pay(world.order()), {"method": "alipay"})
        world.time.advance(minutes=10)
        world.run_worker()
    payment = Payment.objects.get()
    assert payment.timeline.filter(
        message__contains="cashierUrl begins with '/cashier' and is not an absolute",
    ).exists()
    key = world.sandbox.control.service.find(payment.reference).token
    assert len(key) == 40
    assert [line for line in [*lines, *tables().values()] if key in line] == []


def test_the_search_finds_what_is_there(seen: Seen) -> None:
    signature = signing.sign({"a": "1"}, CANARY)
    seen("a log", f"token={CANARY}")
    seen("a page", digest(WRONG_CANARY))
    seen("an address", f"https://a.example/?verifySign%3D{signature}")
    seen("nothing", "all is well")
    assert seen.leaks() == ["a log", "a page", "an address"]


# Tracebacks: the page that Django shows with DEBUG on, and the mail it sends with DEBUG off, have
# every frame's variables ---


class TheRoofFell(Exception):
    """An unexpected error, at the worst place."""


def fall(*_: Any, **__: Any) -> Any:
    raise TheRoofFell("at the worst moment")


PLACES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "while the request is written to the socket": lambda patch: patch.setattr(
        "tillgate.transport._DeadlineStream.write",
        fall,
    ),
    "while the answer is read from the socket": lambda patch: patch.setattr(
        "tillgate.transport._DeadlineStream.read",
        fall,
    ),
    "in the pool of connections": lambda patch: patch.setattr(
        httpcore.ConnectionPool,
        "handle_request",
        fall,
    ),
    "while an answer is understood": lambda patch: patch.setattr(
        "tillgate.wire.exchange._parse",
        fall,
    ),
    "while an answer's signature is polled": lambda patch: patch.setattr(
        "tillgate.wire.exchange._signed_readings",
        fall,
    ),
    "while the creation is noted": lambda patch: patch.setattr(creating, "decide_creation", fall),
    "in the shop's own code": lambda patch: patch.setattr(ShopOrder.objects, "filter", fall),
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_i11_no_failure_report_holds_secrets(
    world: World,
    seen: Seen,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    debug: bool,
) -> None:
    """No report holds a token or signature, wherever something fails."""
    settings.DEBUG = debug
    client = Client(raise_request_exception=False)
    payment, paid, path = (
        world.start(world.order()),
        world.paid_payment(),
        world.way_to_pay(world.order()),
    )
    with monkeypatch.context() as patch:
        PLACES[place](patch)
        seen.page(client.post(path, {"method": "alipay"}))
        seen.page(
            client.post(
                f"/payments/notification/{payment.notification_key}/",
                {"status": "success"},
            ),
        )
        seen.page(client.get(f"/payments/return/{payment.return_key}/"))
        for action in (lambda: queueing.refund(paid.pk, "1.00"), world.run_worker):
            try:
                action()
            except Exception:  # noqa: BLE001  # the shop's own code may raise anything
                seen(
                    "error report of the caller",
                    ExceptionReporter(None, *sys.exc_info()).get_traceback_html(),
                )
    for letter in mail.outbox:
        seen(f"mail {letter.subject}", letter.message().as_string())
    assert any("TheRoofFell" in text for _, text in seen.texts), (
        "nothing was reported, so nothing was polled"
    )
    assert seen.leaks() == []
