"""Attacks: the effects that bad intentions, or events at the worst moment, must not have."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from types import FrameType
from typing import Any

import httpx
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from joserfc import jwt
from pydantic import SecretStr

from tests.double import DoubleTransaction, SaleorDouble
from tests.storefront import RETURN_URL
from tillgate.django.models import OutboxEvent, Payment, Refund
from tillgate.django.payments import reconciling, starting
from tillgate.django.refunds import queueing
from tillgate.testing.world import World, together
from tillgate_saleor import api, deadline, refunds, reports
from tillgate_saleor.documents import Event
from tillgate_saleor.models import Installation, Purchase
from tillgate_saleor.service.bounds import LARGEST_BODY_BYTES, bounded
from tillgate_saleor.signatures import BadSignature, verify

DATA = {"method": "alipay", "returnUrl": RETURN_URL}
TOTAL = Decimal("19.90")
NOTHING = Decimal(0)


@contextlib.contextmanager
def dripping(opening: bytes = b"") -> Iterator[str]:
    """Give the origin of a server that begins to answer, and then sends a byte now and then, for
    four seconds.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(opening)
                for _ in range(40):
                    time.sleep(0.1)
                    try:
                        connection.send(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def paid(saleor: SaleorDouble, world: World) -> DoubleTransaction:
    transaction, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    return transaction


def content(saleor: SaleorDouble, token: str = "") -> Any:
    headers = {
        "Authorization": f"Bearer {token or saleor.page_token()}",
        "Saleor-Api-Url": saleor.api_url,
    }
    return Client().post("/app/content", headers=headers)


# A Saleor that is slow, on purpose or not ---------------------------------------------------------


@pytest.mark.parametrize(
    "opening",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"],
    ids=["at the first line", "in a header", "in the body"],
)
def test_dripping_saleor_does_not_block_others(
    opening: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would hold the worker, and with it the reports to all the others and the payments without
    a return.
    """
    monkeypatch.setattr(api, "_SECONDS", 0.5)
    monkeypatch.setattr(api, "_KEYS_SECONDS", 0.5)
    for ask in (
        lambda origin: api.ask_app_id(f"{origin}/graphql/", SecretStr("token")),
        api.fetch_keys,
    ):
        began = time.monotonic()
        with dripping(opening) as origin, pytest.raises(api.Unreachable):
            ask(origin)
        assert time.monotonic() - began < 2


def test_webhook_answers_within_15_seconds() -> None:
    """Waiting for the keys and for the gateway together takes less."""
    assert api._KEYS_SECONDS + deadline.ANSWER_WITHIN_SECONDS < 15


def test_hanging_saleor_leaves_room_for_another() -> None:
    free = threading.Event()
    with contextlib.ExitStack() as over:
        over.callback(free.set)
        for _ in range(deadline._AT_ONCE):
            with pytest.raises(deadline.TooLate):
                deadline.within(0.01, free.wait, installation_id=71)
        assert deadline.within(5, lambda: "begun", installation_id=72) == "begun"
    assert deadline.within(5, lambda: "again", installation_id=71) == "again"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_overloaded_saleor_is_paused_briefly(
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, stream=httpx.ByteStream(b"")))
    monkeypatch.setattr(api, "client", lambda: httpx.Client(transport=transport))
    with pytest.raises(api.Silent, match=f"HTTP {status}"):
        api.fetch_keys("https://one.example")


def test_silent_saleor_is_waited_for_once(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds of them wait for it, and behind those the reports to another Saleor."""
    for number in range(5):
        _, said = saleor.initialize(saleor.checkout(TOTAL), f"key {number}", DATA)
        world.sandbox.control.pay(said["pspReference"])
        reconciling.reconcile(Payment.objects.latest("pk"), "test")
    asked = list[str]()

    def silent(api_url: str, *_: Any) -> None:
        asked.append(api_url)
        raise api.Silent(f"{api_url} did not answer in time")

    monkeypatch.setattr(reports, "_resting", {})
    with monkeypatch.context() as in_silence:
        in_silence.setattr(reports, "report", silent)
        world.run_worker()
    assert asked == [saleor.api_url]
    assert OutboxEvent.objects.filter(kind="remote", attempts=1).count() == 5
    # as a clock that ran ahead would say
    reports._resting.update(dict.fromkeys(reports._resting, timezone.now() + timedelta(days=365)))
    world.a_day_passes()
    assert all(one.charged == TOTAL for one in saleor.transactions.values())


# Another App of the same Saleor -------------------------------------------------------------------


@pytest.mark.parametrize("identifier", ["another.app", "", None, "QXBwOjk="])
def test_other_app_cannot_take_over_installation(
    identifier: str | None,
    saleor: SaleorDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its token works too. In place of ours, it would end every payment, and hear of them."""
    before = list(Installation.objects.values())
    saleor.tokens["of another App"] = "QXBwOjk5"
    monkeypatch.setattr(saleor, "identifier", identifier)
    status, said = saleor.register("of another App")
    assert (status, said["error"]["code"]) == (400, "NOT_PROVEN")
    assert list(Installation.objects.values()) == before


@pytest.mark.parametrize("app_id", ["x" * 101, "", 5, None])
def test_impossible_app_id_is_not_kept(app_id: Any, saleor: SaleorDouble) -> None:
    before = list(Installation.objects.values())
    saleor.tokens["odd"] = app_id if app_id is not None else []
    status, said = saleor.register("odd")
    assert (status, said["error"]["code"]) == (400, "NOT_PROVEN")
    assert list(Installation.objects.values()) == before


# Secrets ------------------------------------------------------------------------------------------


def held(error: BaseException) -> Iterator[tuple[FrameType, str]]:
    """Yield the local variables of a traceback, as error reports print them."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            yield frame, repr(value)


@pytest.mark.parametrize("answers", ["down", "refuses", "says nothing"])
def test_i11_saleor_errors_never_hold_token(
    answers: str,
    saleor: SaleorDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token, hidden = "canary-token", SecretStr("canary-token")
    saleor.is_down = answers == "down"
    if answers == "says nothing":
        saleor.tokens[token] = saleor.app_id
        monkeypatch.setattr(saleor, "graphql", lambda *_: {"data": None})
    event = api.Reported(
        transaction_id="x",
        type="CHARGE_SUCCESS",
        psp_reference="x",
        amount="1.00",
        time="",
        message="",
        available_actions=(),
    )
    for ask in (
        lambda: api.ask_app_id(saleor.api_url, hidden),
        lambda: api.report(saleor.api_url, hidden, event),
    ):
        with pytest.raises(api.SaleorError) as caught:
            ask()
        own = [
            (frame, text)
            for frame, text in held(caught.value)
            if "tests" not in frame.f_code.co_filename
        ]
        assert own
        assert not [frame.f_code.co_qualname for frame, text in own if token in text]
        assert token not in str(caught.value)


def test_log_entry_stays_on_one_line(
    saleor: SaleorDouble,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Written into the address, a line of its own would tell of money that never came."""
    url = reverse("tillgate_saleor:webhook", args=["x\n2026-11-21 INFO tillgate: paid"])
    with caplog.at_level(logging.INFO, "tillgate"):
        assert saleor.send("POST", url, saleor.headers(), b"")[0] == 404
    assert caplog.messages
    assert not [message for message in caplog.messages if "\n" in message]


def test_shared_accounts_trouble_hides_foreign_payments(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """Trouble of an account that two Saleors share names no payment of the other one."""
    other = SaleorDouble()
    try:
        settings.TILLGATE_SALEOR = {
            "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"]}, other.origin: {}},
        }
        assert other.install()[0] == 200
        _, said = saleor.initialize(saleor.checkout(TOTAL), "key", DATA)
        world.configure({"TOKEN": "f" * 33})
        world.time.advance(minutes=1)
        world.run_worker()
        assert world.reviews()
        answer = content(other)
        assert "not the account that made" not in answer.content.decode()
        assert "Needs review" in answer.content.decode()
        assert said["pspReference"] not in answer.content.decode()
    finally:
        other.close()


# Signatures ---------------------------------------------------------------------------------------


def test_token_claims_are_no_signed_body(saleor: SaleorDouble) -> None:
    """A token signs its claims in base64: read so, its header and signature would sign them as a
    webhook's body.
    """
    head, claims, signature = saleor.page_token().split(".")
    raw = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
    with pytest.raises(BadSignature):
        verify(Installation.objects.get(), f"{head}..{signature}", raw)


def test_signed_body_is_no_token(saleor: SaleorDouble) -> None:
    """A body may hold texts chosen by a user of that Saleor; taken for claims, they would open the
    dashboard's page.
    """
    claims = json.dumps(
        jwt.decode(saleor.page_token(), saleor.keys[-1], algorithms=["RS256"]).claims,
    )
    raw = claims.replace(".", "\\u002e").encode()
    head, _, signature = saleor.sign(raw).partition("..")
    assert content(saleor, f"{head}.{raw.decode()}.{signature}").status_code == 401


# Storefronts, shoppers and staff ------------------------------------------------------------------


def test_canceled_transaction_opens_no_payment_page(
    saleor: SaleorDouble,
    world: World,
) -> None:
    source = saleor.checkout(TOTAL)
    transaction, begun = saleor.initialize(source, "key", DATA)
    assert saleor.request_cancel(transaction)[1]["result"] == "CANCEL_SUCCESS"
    for said in (saleor.process(transaction), saleor.initialize(source, "key", DATA)[1]):
        assert (said["result"], said["pspReference"]) == ("CHARGE_FAILURE", begun["pspReference"])
        assert "data" not in said
    world.sandbox.control.pay(begun["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS", (
        "the money is there, whatever was canceled"
    )


def test_noted_transaction_begins_with_own_amount(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another was begun for more in between, and then everything was cancelled."""
    source = saleor.checkout(TOTAL)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as faulty:
        faulty.setattr(starting, "start_payment", broken)
        saleor.initialize(source, "one", DATA)
    saleor.initialize(source, "two", DATA, Decimal("25.00"))
    world.a_day_passes()
    assert Purchase.objects.get().given_up_at is not None
    first = source.transactions[0]
    _, said = saleor.call(
        Event.INITIALIZE,
        {**saleor.session_body(first), "idempotencyKey": "one", "data": DATA},
    )
    assert (said["result"], said["amount"]) == ("CHARGE_ACTION_REQUIRED", 19.9)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(first)["result"] == "CHARGE_SUCCESS"
    assert world.reviews() == [], "it is paid, and no money waits for a person"


def test_simultaneous_starts_are_all_answered(saleor: SaleorDouble) -> None:
    """None of them is the victim of a deadlock, on whichever database."""
    for number in range(3):
        source = saleor.checkout(TOTAL)
        answers = together(
            *[
                lambda key=key, source=source: saleor.initialize(source, key, DATA)[1]
                for key in "abcdef"
            ],
        )
        results = {said["result"] if isinstance(said, dict) else repr(said) for said in answers}
        assert results <= {"CHARGE_ACTION_REQUIRED", "CHARGE_FAILURE"}
        assert Payment.objects.count() == number + 1


def test_earlier_attempt_leaves_next_part_alone(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was noted before the first part was paid, had no payment then, and comes again while the
    second is being paid.
    """
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"], "PARTS": True}},
    }
    source = saleor.checkout(TOTAL)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as faulty:
        faulty.setattr(starting, "start_payment", broken)
        saleor.initialize(source, "old", DATA, Decimal("1.00"))
    _, said = saleor.initialize(source, "one", DATA, Decimal("10.00"))
    world.sandbox.control.pay(said["pspReference"])
    world.time.advance(seconds=10)
    world.run_worker()
    _, second = saleor.initialize(source, "two", DATA, Decimal("9.90"))
    old = source.transactions[0]
    _, said = saleor.call(
        Event.INITIALIZE,
        {**saleor.session_body(old), "idempotencyKey": "old", "data": DATA},
    )
    assert said["result"] == "CHARGE_FAILURE"
    assert list(Purchase.objects.order_by("part").values_list("amount", flat=True)) == [
        Decimal("10.00"),
        Decimal("9.90"),
    ]
    world.sandbox.control.pay(second["pspReference"])
    world.a_day_passes()
    assert source.charged == TOTAL
    assert world.reviews() == []


def test_uncharged_transaction_cannot_be_refunded(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Two transactions have one payment; counted at both, the money would be refunded twice in
    Saleor's books.
    """
    source = saleor.checkout(TOTAL)
    (first, said), (second, _) = (saleor.initialize(source, key, DATA) for key in ("one", "two"))
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(second)["result"] == "CHARGE_SUCCESS"
    assert saleor.request_refund(first, Decimal("5.00"))[1]["result"] == "REFUND_FAILURE"
    assert not Refund.objects.exists()
    assert saleor.request_refund(second, Decimal("5.00"))[1]["result"] == "REFUND_SUCCESS"
    world.a_day_passes()
    assert (first.counted("REFUND"), second.counted("REFUND")) == (NOTHING, Decimal("5.00"))


def test_last_moment_refund_not_reported_failed(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the lock just in time, and the database is slow with the rest: after an answer that
    nothing was refunded, the staff ask again.
    """
    transaction = paid(saleor, world)
    monkeypatch.setattr(refunds, "ANSWER_WITHIN_SECONDS", 1.0)
    real_asked, real_queue = refunds._asked, queueing.queue_refund

    def asked(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.8)
        return real_asked(*arguments)

    def queue(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.5)
        return real_queue(*arguments, **more)

    monkeypatch.setattr(refunds, "_asked", asked)
    monkeypatch.setattr(queueing, "queue_refund", queue)
    _, said = saleor.request_refund(transaction, Decimal("5.00"))
    time.sleep(1)
    world.a_day_passes()
    assert said["result"] == "REFUND_FAILURE"
    assert not Refund.objects.exists()


# The service --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 50])
def test_a_body_without_end_fills_no_disk(parts: int) -> None:
    """Django writes a body to the disk before any code has checked its sender."""
    taken, sent = list[int](), list[Mapping[str, Any]]()
    left = [b"x" * (2 * LARGEST_BODY_BYTES // parts)] * parts

    async def app(_: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["more_body"]:
            taken.append(len(message["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        return (
            {"type": "http.request", "body": left.pop(), "more_body": True}
            if left
            else {"type": "http.request", "more_body": False}
        )

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    async def answered() -> None:
        await bounded(app)({"type": "http"}, receive, send)

    asyncio.run(answered())
    assert sum(taken) <= LARGEST_BODY_BYTES
    assert [message.get("status") for message in sent] == [413, None]
