"""The owner's mail and alerts: texts, receivers, and the effect of a failure."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
from django.utils import timezone, translation

from tests.django.conftest import World
from tillgate import hooks
from tillgate.django.models import Review
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.worker.mail import SIGNATURE, TIMESTAMP, mail_reviews, recipients_of_reviews
from tillgate.django.worker.run import run_lane

WHERE = "All open reviews: https://shop.example/admin/tillgate/review/"


@pytest.fixture(autouse=True)
def owner(world: World, configure: Callable[..., None]) -> None:
    configure(
        REVIEW_MAIL_TO=["owner@shop.example", "ann@shop.example"],
        REVIEW_MAIL_MINUTES=30,
        PUBLIC_URL="https://shop.example",
    )


def matters(count: int) -> list[Review]:
    rows = [
        Review(
            reason="underpaid",
            facts={"detail": f"Matter {number}."},
            version=str(number),
            opened_at=timezone.now(),
        )
        for number in range(count)
    ]
    return Review.objects.bulk_create(rows)


@pytest.mark.parametrize(
    ("count", "subject", "more"),
    [
        (1, "1 payment needs review", []),
        (20, "20 payments need review", []),
        (21, "21 payments need review", ["... and 1 more."]),
        (600, "500 payments need review", ["... and 480 more."]),
    ],
)
def test_mail_lists_oldest_reviews_first(
    count: int,
    subject: str,
    more: list[str],
) -> None:
    """It says where the others are."""
    matters(count)
    assert mail_reviews() == 1
    [sent] = mail.outbox
    assert (sent.subject, sent.to) == (subject, ["owner@shop.example", "ann@shop.example"])
    parts = sent.body.split("\n\n")
    assert [part.split("\n  ")[1] for part in parts[: min(count, 20)]] == [
        f"Matter {number}." for number in range(min(count, 20))
    ]
    assert parts[min(count, 20) :] == [*more, WHERE]
    assert Review.objects.filter(mailed_at__isnull=True).count() == max(0, count - 500)


@pytest.mark.parametrize(
    ("count", "more"),
    [(21, "... und 1 weiterer."), (22, "... und 2 weitere.")],
)
def test_mail_uses_the_workers_language(count: int, more: str) -> None:
    matters(count)
    with translation.override("de"):
        assert mail_reviews() == 1
    [sent] = mail.outbox
    assert sent.subject == f"{count} Zahlungen sind zu prüfen"
    assert sent.body.split("\n\n")[20:] == [
        more,
        "Alle offenen Prüfungen: https://shop.example/admin/tillgate/review/",
    ]


def test_handled_reviews_are_not_mailed() -> None:
    """A mailed or resolved review does not use up the turn for the next mail either."""
    mailed, resolved = matters(2)
    Review.objects.filter(pk=mailed.pk).update(mailed_at=timezone.now())
    Review.objects.filter(pk=resolved.pk).update(resolved_at=timezone.now())
    assert mail_reviews() == 0
    matters(1)
    assert mail_reviews() == 1, "the turn was not taken for nothing"
    assert mail.outbox[0].subject == "1 payment needs review"


def test_a_mail_goes_once_in_an_interval(world: World) -> None:
    matters(1)
    assert mail_reviews() == 1
    matters(1)
    world.time.advance(minutes=29)
    assert mail_reviews() == 0
    world.time.advance(minutes=1)
    assert mail_reviews() == 1
    assert Review.objects.latest("id").mailed_at >= timezone.now() - timedelta(minutes=1)  # type: ignore[operator]


def test_review_resolved_while_mailing_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matters(1)

    def quicker(*_: object) -> bool:
        Review.objects.update(resolved_at=timezone.now())
        return True

    monkeypatch.setattr("tillgate.django.worker.mail.take_turn", quicker)
    assert mail_reviews() == 0
    assert mail.outbox == []


def test_managers_are_mailed_by_default(
    settings: Any,
    configure: Callable[..., None],
) -> None:
    """Both of Django's ways to name them are read, unless recipients are configured."""
    settings.MANAGERS = [("Bob", "bob@shop.example"), "eve@shop.example"]
    assert recipients_of_reviews() == ["owner@shop.example", "ann@shop.example"]
    configure()
    assert recipients_of_reviews() == ["bob@shop.example", "eve@shop.example"]


def test_i12_no_mail_inside_a_transaction() -> None:
    matters(1)
    with (
        pytest.raises(InsideTransaction, match=r"^mail_reviews uses the network"),
        transaction.atomic(),
    ):
        mail_reviews()


def test_review_changed_while_mailing_is_remailed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matters(2)
    send = mail.EmailMessage.send

    def told_anew(message: mail.EmailMessage) -> int:
        Review.objects.filter(version="1").update(
            facts={"detail": "It is a charge-back."},
            version="2",
            mailed_at=None,
        )
        return send(message)

    monkeypatch.setattr(mail.EmailMessage, "send", told_anew)
    assert mail_reviews() == 1
    assert [(one.message, one.mailed_at) for one in Review.objects.order_by("id")][1] == (
        "It is a charge-back.",
        None,
    )
    assert Review.objects.earliest("id").mailed_at


def test_only_reviews_shown_count_as_mailed() -> None:
    """Only a review written out in the mail counts as mailed."""
    matters(22)
    assert mail_reviews() == 1
    assert [
        len(mailed)
        for mailed in Review.objects.order_by("pk").values_list("mailed", flat=True)
        if mailed is not None
    ] == [1] * 20 + [0] * 2
    assert not Review.objects.filter(mailed_at=None).exists()


def test_mail_shows_amount_action_card_sender(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(
        REVIEW_MAIL_TO=["owner@shop.example"],
        REVIEW_MAIL_FROM="Payments <payments@shop.example>",
        PUBLIC_URL="https://shop.example",
    )
    order = world.order("25.00")
    for payment in (world.start(order), world.start(order, "paypal")):
        world.shopper_pays(payment)
        world.notification(payment)
    assert mail_reviews() == 1
    [sent], review = mail.outbox, Review.objects.get()
    told = sent.body.split("\n\n")[0]
    assert sent.from_email == "Payments <payments@shop.example>"
    assert "USD 25.00" in told
    assert "“Refund…”" in told
    assert (
        f"https://shop.example/admin/tillgate/review/{review.pk}/change/#review-{review.pk}" in told
    )


class StaffPages:
    """A plugin with staff pages of its own, which answers or fails as the test says."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    @hooks.hookimpl
    def tillgate_review_url(self, review: hooks.Review) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if review.order or review.account == "account-of-the-plugin" else None


@pytest.mark.parametrize(
    ("answer", "is_taken"),
    [
        ("https://shop.example/staff/7", True),
        ("javascript:alert(1)", False),
        (ValueError("no page"), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("of_account", [True, False])
def test_mail_links_plugins_page_or_admin(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    answer: object,
    is_taken: bool,
    of_account: bool,
) -> None:
    plugin, manager = StaffPages(answer), hooks.plugin_manager()
    about: dict[str, Any] = (
        {"account": "account-of-the-plugin"}
        if of_account
        else {"order": world.start(world.order()).order}
    )
    review = Review.objects.create(
        reason="underpaid",
        facts={"detail": "Less."},
        version="1",
        opened_at=timezone.now(),
        **about,
    )
    if of_account:
        manager.register(plugin)
    else:
        monkeypatch.setattr(
            hooks,
            "call_owner",
            lambda owner, hook, **values: getattr(plugin, hook)(**values),
        )
    try:
        assert mail_reviews() == 1
    finally:
        if of_account:
            manager.unregister(plugin)
    told = mail.outbox[0].body.split("\n\n")[0]
    assert ("https://shop.example/staff/7" in told) == is_taken
    assert (f"/admin/tillgate/review/{review.pk}/change/" in told) != is_taken


# Alerts: the same, to an address of the owner's ---------------------------------------------------

SECRET = "a long secret of the owner"


class Receiver:
    """An address of the owner's, which keeps received messages."""

    def __init__(self) -> None:
        self.status, self.received = 200, list[tuple[dict[str, str], bytes]]()

        class Handler(BaseHTTPRequestHandler):
            # the names of the base class; `self` is the receiver
            def do_POST(handler) -> None:  # noqa: N805
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.received.append((dict(handler.headers), body))
                handler.send_response(self.status)
                handler.end_headers()

            def log_message(handler, *_: object) -> None:  # noqa: N805
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0/secret-of-the-address"


@pytest.fixture
def receiver(configure: Callable[..., None]) -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    configure(
        REVIEW_MAIL_TO=["owner@shop.example"],
        REVIEW_MAIL_MINUTES=30,
        PUBLIC_URL="https://shop.example",
        ALERT_WEBHOOK_URL=receiver.url,
        ALERT_WEBHOOK_SECRET=SECRET,
    )
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def test_alert_is_signed_and_matches_mail(receiver: Receiver) -> None:
    [review] = Review.objects.bulk_create(
        [
            Review(
                reason="underpaid",
                facts={"detail": "Matter <!channel> & co."},
                version="1",
                opened_at=timezone.now(),
            ),
        ],
    )
    assert run_lane(":staff").counts == {"mail": 1, "alerts": 1}
    [(headers, body)] = receiver.received
    signed = headers[TIMESTAMP].encode() + b"." + body
    assert headers[SIGNATURE] == hmac.new(SECRET.encode(), signed, "sha256").hexdigest()
    told = json.loads(body)
    assert unescape(told["text"]) == f"{mail.outbox[0].subject}\n\n{mail.outbox[0].body}"
    assert "<" not in told["text"], "Slack would read a command"
    assert told["reviews"][0]["id"] == str(review.pk)
    assert run_lane(":staff").counts["mail"] == 0


def test_refused_alert_retries_without_second_mail(
    world: World,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    matters(1)
    receiver.status = 500
    done = run_lane(":staff")
    assert (done.counts["mail"], len(done.faults), len(mail.outbox)) == (1, 1, 1)
    assert run_lane(":staff").counts["mail"] == 0, "not before it is time"
    receiver.status = 200
    world.time.advance(minutes=31)
    assert run_lane(":staff").counts["alerts"] == 1
    assert (len(receiver.received), len(mail.outbox)) == (2, 1)
    assert "secret-of-the-address" not in caplog.text + "".join(done.faults)
    assert SECRET not in caplog.text


def test_broken_mail_does_not_stop_alerts(
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise ConnectionRefusedError

    monkeypatch.setattr(mail.EmailMessage, "send", refuse)
    matters(1)
    assert run_lane(":staff").counts["alerts"] == 1
    assert len(receiver.received) == 1
    assert Review.objects.filter(mailed_at=None, alerted_at__isnull=False).count() == 1


def test_mail_has_links_and_no_markup() -> None:
    """Its HTML says the same as its text; the words of a gateway are only words."""
    (review,) = matters(1)
    Review.objects.update(facts={"detail": "<script>alert(1)</script> https://evil.example"})
    assert mail_reviews() == 1
    [sent] = mail.outbox
    assert isinstance(sent, mail.EmailMultiAlternatives)
    [(content, kind)] = sent.alternatives
    assert kind == "text/html"
    html = str(content)
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert f'<a href="https://shop.example/admin/tillgate/review/{review.pk}/change/#' in html
