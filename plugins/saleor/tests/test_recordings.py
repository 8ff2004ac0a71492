"""The recorded run, again: every signature is verified with the recorded key, and every answer is
as Saleor requires.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests import recorded
from tests.shapes import faults_of
from tillgate.django.worker.run import run_worker
from tillgate.testing.world import World
from tillgate_saleor import api, reports
from tillgate_saleor.bodies import BadBody, read_body
from tillgate_saleor.documents import Event
from tillgate_saleor.models import Installation, Purchase, Transaction
from tillgate_saleor.signatures import BadSignature, verify

SIGNED = recorded.signed()


def graphql(name: str) -> str:
    raw: str = recorded.read(f"graphql/{name}.json")["response"]["body_raw"]
    return raw


class Asked(list[dict[str, Any]]):
    """The requests to Saleor, and its answers to reports."""

    report = graphql("002-charge-success")

    def answer(self, request: dict[str, Any]) -> str:
        self.append(request)
        if "transactionEventReport" in request["query"]:
            return self.report
        # The recorded App was not asked for its identifier; Saleor knows it since 3.19.
        return graphql("001-app-id").replace('"app":{', '"app":{"identifier":"tillgate",')


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Asked]:
    """Let the recorded Saleor install the App, and answer."""
    found = Asked()
    settings.TILLGATE_SALEOR = {
        "SALEORS": {recorded.ORIGIN: {"STOREFRONTS": ["https://storefront.example"]}},
    }
    with recorded.answers_of_saleor(found.answer) as client:
        monkeypatch.setattr(api, "client", lambda: client)
        yield found


def send(capture: recorded.Capture, raw: bytes | None = None) -> tuple[int, Any]:
    body = capture.raw if raw is None else raw
    answer = Client().generic(
        capture.method,
        capture.path,
        body,
        content_type="application/json",
        headers=capture.headers,
    )
    return answer.status_code, json.loads(answer.content)


def installed() -> Installation:
    assert send(recorded.capture(2)) == (200, {"success": True})
    return Installation.objects.get()


def keeping_the_keys() -> Installation:
    return Installation(
        api_url=recorded.API_URL,
        keys=recorded.read("jwks.json"),
        keys_fetched_at=timezone.now(),
    )


@pytest.mark.parametrize("capture", SIGNED, ids=lambda one: one.name)
def test_every_recorded_signature_fits_its_body(capture: recorded.Capture) -> None:
    verify(keeping_the_keys(), capture.headers["Saleor-Signature"], capture.raw)


@pytest.mark.parametrize("capture", SIGNED, ids=lambda one: one.name)
def test_a_flipped_byte_is_refused(capture: recorded.Capture) -> None:
    installation = keeping_the_keys()
    middle = len(capture.raw) // 2
    flipped = (
        capture.raw[:middle] + bytes([capture.raw[middle] ^ 1]) + capture.raw[middle + 1 :]
        if capture.raw
        else b" "
    )
    with pytest.raises(BadSignature):
        verify(installation, capture.headers["Saleor-Signature"], flipped)
    signature = capture.headers["Saleor-Signature"]
    with pytest.raises(BadSignature):
        verify(
            installation,
            signature[:-4] + ("AAAA" if not signature.endswith("AAAA") else "BBBB"),
            capture.raw,
        )


@pytest.mark.django_db(transaction=True)
def test_rewritten_recorded_body_is_refused(asked: Asked) -> None:
    installed()
    capture = recorded.capture(3)
    status, said = send(capture, json.dumps(capture.body, separators=(",", ":")).encode())
    assert (status, said["error"]["code"]) == (401, "SIGNATURE")


@pytest.mark.parametrize("capture", [one for one in SIGNED if one.raw], ids=lambda one: one.name)
def test_recorded_body_fits_only_its_event(capture: recorded.Capture) -> None:
    for event in Event:
        if event == capture.event:
            read_body(event, capture.raw)
        else:
            with pytest.raises(BadBody):
                read_body(event, capture.raw)


def test_app_id_proves_recorded_token(
    transactional_db: None,
    asked: Asked,
) -> None:
    installation = installed()
    assert installation.app_id == "QXBwOjE="
    assert asked[0]["authorization"] == f"Bearer {recorded.TOKEN}"
    assert recorded.TOKEN not in installation.token


def test_recorded_run_gets_answers_saleor_requires(world: World, asked: Asked) -> None:
    """One shopper pays, and gets some of it back; the others do not come so far."""
    installed()
    said = Run(send)
    assert [method["id"] for method in said(3)["data"]["methods"]][:2] == ["alipay", "wechatpay"]

    first, again = said(4), said(5)
    assert first["result"] == "CHARGE_ACTION_REQUIRED"
    assert first["data"]["cashierUrl"].startswith(world.sandbox.base_url)
    assert again == first, "the same key is the same payment"
    reference = first["pspReference"]
    world.sandbox.control.pay(reference)
    processed = said(6)
    assert (processed["result"], processed["pspReference"], processed["amount"]) == (
        "CHARGE_SUCCESS",
        reference,
        19.9,
    )
    assert processed["actions"] == ["REFUND"]

    refunds = [said(7), said(8), said(9)]
    assert [one["result"] for one in refunds] == ["REFUND_SUCCESS"] * 3
    assert len({one["pspReference"] for one in refunds} | {reference}) == 4, (
        "one pspReference for each refund"
    )
    for empty in range(10, 15):
        status, answer = send(recorded.capture(empty))
        assert 400 <= status < 500
        assert not {"result", "pspReference"} & set(answer)
    assert world.sandbox.service.find(reference).refunded_units == 500 + 245 + 110

    authorized = said(15)
    assert authorized["result"] == "CHARGE_ACTION_REQUIRED"
    assert said(16)["result"] == "CHARGE_FAILURE"
    canceled = said(17)
    assert (canceled["result"], canceled["pspReference"]) == (
        "CANCEL_SUCCESS",
        authorized["pspReference"],
    )
    assert said(18) == {"paymentMethods": []}
    in_zloty = said(19)
    assert (in_zloty["result"], "PLN" in in_zloty["message"]) == ("CHARGE_FAILURE", True)
    assert said(20)["result"] == "CHARGE_ACTION_REQUIRED"
    assert said(21)["result"] == "REFUND_SUCCESS"
    assert Purchase.objects.count() == Transaction.objects.count() == 3
    assert len(world.sandbox.service.transactions()) == 3
    assert said.faults == []


def test_recorded_run_repeats_recorded_reports(
    world: World,
    asked: Asked,
) -> None:
    installed()
    reference = send(recorded.capture(4))[1]["pspReference"]
    world.sandbox.control.pay(reference)
    world.time.advance(seconds=10)
    assert world.run_worker().faults == []
    (event,) = [one["variables"] for one in asked if "transactionEventReport" in one["query"]]
    like = recorded.read("graphql/002-charge-success.json")["request"]["body_json"]["variables"]
    assert {name: event[name] for name in ("type", "amount", "availableActions")} == {
        "type": "CHARGE_SUCCESS",
        "amount": like["amount"],
        "availableActions": like["availableActions"],
    }
    assert event["id"] == recorded.capture(4).body["transaction"]["id"]
    assert event["pspReference"] == reference
    assert event["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("003-charge-success-again", ""),
        ("004-charge-success-other-amount", "INCORRECT_DETAILS"),
        ("005-charge-success-bad-token", "HANDLE_PAYMENTS"),
    ],
)
def test_what_saleor_answers_to_a_report(
    answer: str,
    told: str,
    world: World,
    asked: Asked,
) -> None:
    """A repetition is as good as the first; a report that Saleor does not take is tried again, and
    shown to staff.
    """
    installed()
    asked.report = graphql(answer)
    world.sandbox.control.pay(send(recorded.capture(4))[1]["pspReference"])
    world.a_day_passes()
    payment = Transaction.objects.get().payment
    assert payment is not None
    (outbox_event,) = payment.outbox_events.filter(kind="remote")
    assert bool(outbox_event.done_at) == (told == "")
    assert told in outbox_event.fault
    assert recorded.TOKEN not in outbox_event.fault
    assert world.reviews() == (["delivery-failing"] if told else [])
    assert payment.status == "paid", "whatever Saleor says of the report"


def test_report_states_money_to_cent(
    monkeypatch: pytest.MonkeyPatch,
    world: World,
    asked: Asked,
) -> None:
    installed()
    send(recorded.capture(4))
    told = Transaction.objects.select_related("purchase").get()
    reports.enqueue(
        told,
        "CHARGE_SUCCESS",
        "R-1",
        Decimal("0.1") + Decimal("0.2"),
        "Paid.",
        ["REFUND"],
    )
    run_worker()
    assert [
        one["variables"]["amount"] for one in asked if "transactionEventReport" in one["query"]
    ] == ["0.30"]


class Run:
    """Sends the recorded requests, and holds each answer against the shape that Saleor requires."""

    def __init__(self, sending: Callable[[recorded.Capture], tuple[int, Any]]) -> None:
        self.sending, self.faults = sending, list[str]()

    def __call__(self, number: int) -> Any:
        capture = recorded.capture(number)
        status, said = self.sending(capture)
        assert status == 200, said
        self.faults += faults_of(Event(capture.event), said)
        return said
