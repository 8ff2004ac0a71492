"""Bad input at the webhooks: a clear answer without `result` and `pspReference` unless meant, never
a 5xx, and nothing created.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from datetime import timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from django.utils import timezone
from joserfc.jwk import RSAKey

from tests.double import DoubleTransaction, SaleorDouble, forged_key
from tests.storefront import RETURN_URL
from tillgate.django.models import Payment, Refund
from tillgate.testing.world import World
from tillgate_saleor import api, signatures
from tillgate_saleor.documents import Event
from tillgate_saleor.models import Installation, Purchase, Transaction
from tillgate_saleor.webhooks import LARGEST_BODY_BYTES

MONEY = {"actionType": "CHARGE", "amount": 19.9, "currency": "USD"}
DATA = {"method": "alipay", "returnUrl": RETURN_URL}


def fields(saleor: SaleorDouble, **changes: Any) -> dict[str, Any]:
    """Return the fields in the body of a transaction that begins."""
    source = saleor.checkout(Decimal("19.90"))
    channel = {"slug": "default-channel", "currencyCode": "USD"}
    return {
        "idempotencyKey": "key",
        "data": DATA,
        "action": MONEY,
        "transaction": {"id": "VHJhbnNhY3Rpb25JdGVtOjE=", "pspReference": ""},
        "sourceObject": {"__typename": "Checkout", "id": source.id, "channel": channel},
        **changes,
    }


def nothing_created(world: World) -> bool:
    rows = (Purchase, Transaction, Payment, Refund)
    return (
        not any(kind.objects.exists() for kind in rows) and not world.sandbox.service.transactions()
    )


def is_not_taken(answer: tuple[int, Any], status: int, code: str) -> bool:
    said = answer[1]
    assert said["error"]["message"]
    return (
        answer[0] == status
        and said["error"]["code"] == code
        and not {"result", "pspReference"} & set(said)
    )


def paid_transaction(saleor: SaleorDouble, world: World) -> DoubleTransaction:
    transaction, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    return transaction


# Signatures ---------------------------------------------------------------------------------------


def test_an_unsigned_webhook_is_not_taken(saleor: SaleorDouble, world: World) -> None:
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, None), 401, "SIGNATURE")
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, ""), 401, "SIGNATURE")
    assert nothing_created(world)


@pytest.mark.parametrize(
    "signature",
    ["x", "..", "a.b.c", "eyJhbGciOiJub25lIn0..", "é..é", "e30..AAAA", "." * 5000],
)
def test_non_signature_is_refused(
    signature: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, signature), 401, "SIGNATURE")
    assert nothing_created(world)


def test_a_wrongly_signed_webhook_is_not_taken(saleor: SaleorDouble, world: World) -> None:
    """Signed with another key under the name of the right one, as a forger would."""
    forger = forged_key(saleor)
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    assert is_not_taken(
        saleor.post(Event.INITIALIZE, raw, saleor.sign(raw, forger)),
        401,
        "SIGNATURE",
    )
    assert nothing_created(world)


def test_webhook_of_other_saleor_is_refused(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """Two Saleors have installed the App; each is believed in its own name only."""
    other = SaleorDouble()
    try:
        settings.TILLGATE_SALEOR = {"SALEORS": {saleor.origin: {}, other.origin: {}}}
        assert other.install()[0] == 200
        assert Installation.objects.count() == 2
        # numbers are small everywhere: two Apps of the same id are nothing rare
        other.app_id = saleor.app_id
        raw = saleor.body(Event.INITIALIZE, fields(saleor))
        assert is_not_taken(saleor.post(Event.INITIALIZE, raw, other.sign(raw)), 401, "SIGNATURE")
        as_other = {"Saleor-Api-Url": other.api_url}
        assert is_not_taken(
            saleor.post(Event.INITIALIZE, raw, saleor.sign(raw), **as_other),
            401,
            "SIGNATURE",
        )
    finally:
        other.close()
    assert nothing_created(world)


def test_rewritten_body_is_refused(saleor: SaleorDouble, world: World) -> None:
    """The signature covers the exact bytes."""
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    anew = json.dumps(json.loads(raw), separators=(",", ":")).encode()
    assert is_not_taken(saleor.post(Event.INITIALIZE, anew, saleor.sign(raw)), 401, "SIGNATURE")
    assert nothing_created(world)


def test_saleor_token_is_no_signature(saleor: SaleorDouble, world: World) -> None:
    """A token is signed with the same key and holds its payload; taken for a signature it would
    sign every body.
    """
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, saleor.page_token()), 401, "SIGNATURE")
    header, _, signature = saleor.page_token().split(".")
    assert is_not_taken(
        saleor.post(Event.INITIALIZE, raw, f"{header}..{signature}"),
        401,
        "SIGNATURE",
    )
    assert nothing_created(world)


def test_shared_secret_signature_is_refused(saleor: SaleorDouble, world: World) -> None:
    """The public key, taken for the secret of an HMAC, is known to everybody."""
    raw, public = (
        saleor.body(Event.INITIALIZE, fields(saleor)),
        saleor.keys[-1].as_pem(private=False),
    )
    head = json.dumps(
        {"alg": "HS256", "b64": False, "crit": ["b64"], "kid": saleor.keys[-1].kid},
    ).encode()
    header = urlsafe_b64encode(head).rstrip(b"=")
    signature = urlsafe_b64encode(hmac.digest(public, header + b"." + raw, "sha256")).rstrip(b"=")
    assert is_not_taken(
        saleor.post(Event.INITIALIZE, raw, f"{header.decode()}..{signature.decode()}"),
        401,
        "SIGNATURE",
    )
    assert nothing_created(world)


def test_changed_saleor_keys_are_fetched(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This happens at most once a minute."""
    fetched = list[str]()
    real = api.fetch_keys

    def fetch(origin: str) -> dict[str, Any]:
        fetched.append(origin)
        return real(origin)

    monkeypatch.setattr(signatures, "fetch_keys", fetch)
    before = list(saleor.keys)
    new = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "new"}, private=True)
    try:
        saleor.keys.append(new)
        raw = saleor.body(Event.STORED_METHODS, {"channel": {"slug": "default-channel"}})
        forged = forged_key(saleor, "nobody-has-it")
        world.time.advance(minutes=2)
        for _ in range(3):
            assert saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw))[0] == 200
            assert is_not_taken(
                saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw, forged)),
                401,
                "SIGNATURE",
            )
        assert fetched == [saleor.origin], (
            "an unknown key is asked for once, however often it is named"
        )
        saleor.keys[:] = [new]  # the old one is withdrawn, and forgotten after a day
        world.time.advance(hours=25)
        assert is_not_taken(
            saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw, before[0])),
            401,
            "SIGNATURE",
        )
        assert len(fetched) == 2
        # as a clock that ran ahead has said
        Installation.objects.update(keys_fetched_at=timezone.now() + timedelta(days=365))
        saleor.keys[:] = [before[0]]
        assert saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw, before[0]))[0] == 200
        assert len(fetched) == 3
    finally:
        saleor.keys[:] = before


def test_known_keys_outlast_unreachable_saleor(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """A Saleor whose keys cannot be fetched is believed by the known ones."""
    world.time.advance(hours=25)
    saleor.is_down = True
    assert saleor.call(Event.STORED_METHODS, {"channel": {"slug": "default-channel"}}) == (
        200,
        {"paymentMethods": []},
    )


def test_failed_key_fetch_repeats_after_minute(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was stolen, and that its Saleor has withdrawn, would be good for another day."""
    fetched = list[str]()
    real = api.fetch_keys

    def fetch(origin: str) -> dict[str, Any]:
        fetched.append(origin)
        return real(origin)

    monkeypatch.setattr(signatures, "fetch_keys", fetch)
    raw = saleor.body(Event.STORED_METHODS, {"channel": {"slug": "default-channel"}})
    stolen = list(saleor.keys)
    world.time.advance(hours=25)
    saleor.is_down = True
    for _ in range(3):
        assert saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw, stolen[0]))[0] == 200
        assert (
            saleor.post(
                Event.STORED_METHODS,
                raw,
                saleor.sign(raw, forged_key(saleor, "nobody-has-it")),
            )[0]
            == 401
        )
        world.time.advance(seconds=10)
    assert len(fetched) == 1, "each of them would wait for what does not come"
    saleor.is_down = False
    try:
        saleor.keys[:] = [
            RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "new"}, private=True),
        ]
        world.time.advance(seconds=61)
        assert is_not_taken(
            saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw, stolen[0])),
            401,
            "SIGNATURE",
        )
    finally:
        saleor.keys[:] = stolen


# Recipient and content ----------------------------------------------------------------------------


@pytest.mark.parametrize("event", Event)
def test_body_under_wrong_event_is_refused(
    event: Event,
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The signature covers the body alone: a body signed to begin a payment must not ask for a
    refund.
    """
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    signature = saleor.sign(raw)
    if event is not Event.INITIALIZE:
        assert is_not_taken(saleor.post(event, raw, signature), 400, "BODY")
        assert is_not_taken(
            saleor.post(Event.INITIALIZE, raw, signature, **{"Saleor-Event": event.value}),
            400,
            "EVENT",
        )
    assert nothing_created(world)


def test_unknown_event_is_refused(saleor: SaleorDouble) -> None:
    saleor.targets[Event.CHARGE], before = (
        "http://testserver/api/webhooks/order_created",
        saleor.targets[Event.CHARGE],
    )
    assert is_not_taken(saleor.post(Event.CHARGE, b"{}", saleor.sign(b"{}")), 404, "EVENT")
    saleor.targets[Event.CHARGE] = before


def test_recipient_of_other_installation_is_refused(
    saleor: SaleorDouble,
    world: World,
) -> None:
    raw = saleor.body(Event.INITIALIZE, fields(saleor), recipient={"id": "QXBwOjk5OQ=="})
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, saleor.sign(raw)), 403, "RECIPIENT")
    assert nothing_created(world)


def test_saleor_without_app_is_refused(
    saleor: SaleorDouble,
    world: World,
) -> None:
    raw = saleor.body(Event.INITIALIZE, fields(saleor))
    for api_url in ("", "http://elsewhere.example/graphql/", saleor.api_url.upper()):
        answer = saleor.post(Event.INITIALIZE, raw, saleor.sign(raw), **{"Saleor-Api-Url": api_url})
        assert is_not_taken(answer, 401, "INSTALLATION")
    assert nothing_created(world)


@pytest.mark.parametrize(
    "event",
    [Event.REFUND, Event.CHARGE, Event.CANCEL, Event.INITIALIZE, Event.PROCESS],
)
def test_replayed_empty_body_changes_nothing(
    event: Event,
    saleor: SaleorDouble,
    world: World,
) -> None:
    transaction = paid_transaction(saleor, world)
    before = (
        Transaction.objects.count(),
        Payment.objects.count(),
        list(Transaction.objects.values()),
    )
    for _ in range(3):
        assert is_not_taken(saleor.post(event, b"", saleor.sign(b"")), 400, "BODY")
    assert (
        Transaction.objects.count(),
        Payment.objects.count(),
        list(Transaction.objects.values()),
    ) == before
    assert not Refund.objects.exists()
    assert transaction.charged == Decimal("19.90")


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"recipient": 1}',
        b'{"a": 1e999999999}',
        b'{"a": NaN}',
    ],
    ids=[
        "list",
        "null",
        "number",
        "text",
        "broken",
        "no text",
        "deep",
        "strange",
        "beyond bounds",
        "not a number",
    ],
)
def test_signed_non_event_is_refused(
    raw: bytes,
    saleor: SaleorDouble,
    world: World,
) -> None:
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, saleor.sign(raw)), 400, "BODY")
    assert nothing_created(world)


def test_megabyte_body_is_refused(saleor: SaleorDouble, world: World) -> None:
    raw = saleor.body(Event.INITIALIZE, fields(saleor, data={**DATA, "more": "x" * 1_000_000}))
    assert len(raw) > LARGEST_BODY_BYTES
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, "a..b"), 413, "BODY")
    assert nothing_created(world)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(
            ["idempotencyKey", "action", "transaction", "sourceObject", "recipient"],
            [None, [], 1, {}],
        ),
        # Saleor's own schema lets the key be empty
        *product(["action", "transaction", "sourceObject", "recipient"], [""]),
    ],
    ids=repr,
)
def test_missing_or_strange_field_is_refused(
    name: str,
    value: Any,
    saleor: SaleorDouble,
    world: World,
) -> None:
    raw = saleor.body(Event.INITIALIZE, fields(saleor, **{name: value}))
    assert is_not_taken(saleor.post(Event.INITIALIZE, raw, saleor.sign(raw)), 400, "BODY")
    assert nothing_created(world)


def test_errors_beside_what_is_needed_change_nothing(saleor: SaleorDouble) -> None:
    """Saleor adds `errors` when a part of our query failed: the other parts are still valid."""
    status, said = saleor.call(
        Event.INITIALIZE,
        fields(saleor, errors=[{"message": "a part failed"}]),
    )
    assert (status, said["result"]) == (200, "CHARGE_ACTION_REQUIRED")


def test_nothing_here_ever_answers_with_a_5xx(
    saleor: SaleorDouble,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saleor would send the request again with an empty body, and then write a failure of its
    own.
    """

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    transaction = paid_transaction(saleor, world)
    monkeypatch.setattr(Transaction.objects, "get_queryset", broken)
    for answer in (saleor.request_refund(transaction, 5), saleor.request_cancel(transaction)):
        assert is_not_taken(answer, 400, "FAILED")


# Money and data -----------------------------------------------------------------------------------


def refused(saleor: SaleorDouble, **changes: Any) -> str:
    """Begin a transaction that cannot be, and return why not."""
    status, said = saleor.call(Event.INITIALIZE, fields(saleor, **changes))
    assert (status, said["result"]) == (200, "CHARGE_FAILURE")
    assert set(said) == {"result", "message"}, "no pspReference: there is no payment"
    return str(said["message"])


@pytest.mark.parametrize("currency", ["PLN", "usd", "", None])
def test_another_currency_is_refused(
    currency: str | None,
    saleor: SaleorDouble,
    world: World,
) -> None:
    assert "USD" in refused(saleor, action={**MONEY, "currency": currency})
    assert nothing_created(world)


@pytest.mark.parametrize(
    "amount",
    [0, 0.0, -1, -0.01, 19.999, 0.001, 1e20, None, "x", True, [], {}],
    ids=repr,
)
def test_invalid_amount_is_refused(
    amount: Any,
    saleor: SaleorDouble,
    world: World,
) -> None:
    assert "amount" in refused(saleor, action={**MONEY, "amount": amount})
    assert nothing_created(world)


@pytest.mark.parametrize("amount", ["0.01", "0.29", "12.10", "1234567.89"])
def test_float_amount_is_read_exactly(
    amount: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    _, said = saleor.call(
        Event.INITIALIZE,
        fields(saleor, action={**MONEY, "amount": float(amount)}),
    )
    assert Payment.objects.get().amount == Decimal(amount)
    assert json.dumps(said["amount"]) == json.dumps(float(amount))
    assert Decimal(world.sandbox.service.find(said["pspReference"]).amount) == Decimal(amount)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (None, "data"),
        ([], "data"),
        ("alipay", "data"),
        ({}, "method"),
        ({"method": None}, "method"),
        ({"method": ["alipay"]}, "method"),
        ({"method": "gold"}, "method"),
        ({"method": "Alipay"}, "method"),
        ({"method": "alipay", "terminal": "FAX"}, "terminal"),
        ({"method": "alipay", "terminal": []}, "terminal"),
        ({"method": "alipay", "returnUrl": "https://elsewhere.example/"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "http://testserver.elsewhere.example/"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "http://testserver@elsewhere.example/"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "https://testserver/"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "//testserver/"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "/thanks"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "javascript:alert(1)"}, "returnUrl"),
        ({"method": "alipay", "returnUrl": ""}, "returnUrl"),
        ({"method": "alipay", "returnUrl": 5}, "returnUrl"),
        ({"method": "alipay", "returnUrl": "http://testserver/" + "x" * 3000}, "returnUrl"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_unusable_data_is_refused_by_name(
    data: Any,
    named: str,
    saleor: SaleorDouble,
    world: World,
) -> None:
    assert named in refused(saleor, data=data)
    assert nothing_created(world)
