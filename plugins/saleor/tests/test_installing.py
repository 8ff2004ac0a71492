"""Installing: a Saleor of the settings, a token that works, again, by several, and away again."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from tests.double import SaleorDouble
from tests.storefront import RETURN_URL
from tillgate.testing.world import World
from tillgate_saleor import vault
from tillgate_saleor.documents import Event
from tillgate_saleor.models import Installation

DATA = {"method": "alipay", "returnUrl": RETURN_URL}


def token_of(saleor: SaleorDouble) -> str:
    (token,) = saleor.tokens
    return token


def test_the_token_is_proven_and_kept_encrypted(saleor: SaleorDouble) -> None:
    installation = Installation.objects.get()
    assert (installation.api_url, installation.app_id) == (saleor.api_url, saleor.app_id)
    assert saleor.requests == [("app", "{}")]
    kept = json.dumps(list(Installation.objects.values()), default=str)
    assert token_of(saleor) not in kept
    assert vault.decrypt(installation.token) == token_of(saleor)


@pytest.mark.parametrize(
    "token",
    ["wrong", "x" * 1000, "x" * 1001, "", None, 5, ["x"], "a\nb", "ключ"],
    ids=repr,
)
def test_unusable_token_changes_nothing(
    token: Any,
    saleor: SaleorDouble,
) -> None:
    """The installation is refused."""
    before = list(Installation.objects.values())
    status, said = saleor.register(token)
    assert status == 400
    assert said["success"] is False
    assert said["error"]["message"]
    assert list(Installation.objects.values()) == before


def test_token_error_hides_saleors_trace(saleor: SaleorDouble) -> None:
    _, said = saleor.register("wrong")
    assert "answered: " in said["error"]["message"]
    assert "{" not in said["error"]["message"]


@pytest.mark.parametrize(
    "api_url",
    [
        "https://elsewhere.example/graphql/",
        "http://127.0.0.1/graphql/",
        "http://127.0.0.1:{port}@elsewhere.example/graphql/",
        "http://127.0.0.1:{port}.elsewhere.example/graphql/",
        "https://127.0.0.1:{port}/graphql/",
        "http://127.0.0.1:{port}/graphql/?x=1",
        "http://127.0.0.1:{port}/graphql/#x",
        "ftp://127.0.0.1:{port}/graphql/",
        "http://127.0.0.1:99999/graphql/",
        "//127.0.0.1:{port}/graphql/",
        "",
        "x" * 5000,
    ],
)
def test_disallowed_origin_is_never_called(
    api_url: str,
    double: SaleorDouble,
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The installation is refused."""
    double.tokens = {"token": "QXBwOjE="}
    given = api_url.replace("{port}", double.origin.rpartition(":")[2])
    status, said = double.register("token", **{"Saleor-Api-Url": given})
    assert (status, said["error"]["code"]) == (403, "ORIGIN")
    # text that looks like an address for mail is masked in a log
    seen = given[:100] if "@" not in given else "/graphql/"
    assert seen in caplog.text, "its owner can see which one it was"
    assert given[:200] == given or given not in caplog.text
    assert double.requests == []
    assert not Installation.objects.exists()


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{", b"null", b"\xff", b'{"auth_token": {}}', b"[" * 50_000, b"x" * 500_000],
)
def test_a_handshake_that_is_none_is_refused(
    raw: bytes,
    double: SaleorDouble,
    world: World,
) -> None:
    answer = Client().generic(
        "POST",
        "/api/register",
        raw,
        content_type="application/json",
        headers=double.headers(),
    )
    assert 400 <= answer.status_code < 500
    assert json.loads(answer.content)["error"]["message"]
    assert not Installation.objects.exists()


def test_unreachable_saleor_installs_nothing(
    double: SaleorDouble,
    world: World,
) -> None:
    """Saleor gets the reason."""
    double.is_down = True
    status, said = double.install()
    assert (status, said["error"]["code"]) == (400, "NOT_PROVEN")
    assert not Installation.objects.exists()


def test_a_replayed_handshake_changes_nothing(saleor: SaleorDouble) -> None:
    """The newest token again is inconclusive; an older one works no more, and does not come
    back.
    """
    old = token_of(saleor)
    assert saleor.register(old)[0] == 200
    assert Installation.objects.get().app_id == saleor.app_id
    assert saleor.install()[0] == 200
    status, said = saleor.register(old)
    assert (status, said["error"]["code"]) == (400, "NOT_PROVEN")
    installation = Installation.objects.get()
    assert installation.app_id == saleor.app_id
    assert vault.decrypt(installation.token) == token_of(saleor)


def test_reinstalled_app_continues_open_work(
    saleor: SaleorDouble,
    world: World,
) -> None:
    transaction, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    before = saleor.app_id
    assert saleor.install()[0] == 200
    assert saleor.app_id != before
    world.sandbox.control.pay(said["pspReference"])
    world.time.advance(seconds=10)
    assert world.run_worker().faults == []
    assert transaction.charged == Decimal("19.90")
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"


def test_replaced_installations_webhook_is_refused(saleor: SaleorDouble) -> None:
    raw = saleor.body(Event.STORED_METHODS, {"channel": {"slug": "default-channel"}})
    assert saleor.install()[0] == 200
    assert saleor.post(Event.STORED_METHODS, raw, saleor.sign(raw))[0] == 403


def test_several_saleors_keep_separate_money(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """The same key, the same checkout and the same transaction of two Saleors are two of each."""
    other = SaleorDouble()
    try:
        both = {"STOREFRONTS": ["http://testserver"]}
        settings.TILLGATE_SALEOR = {"SALEORS": {saleor.origin: both, other.origin: both}}
        assert other.install()[0] == 200
        source = saleor.checkout(Decimal("19.90"))
        other.sources[source.id] = duplicate = type(source)(source.id, source.total)
        first, begun = saleor.initialize(source, "key", DATA)
        second, begun_there = other.initialize(duplicate, "key", DATA)
        assert begun["pspReference"] != begun_there["pspReference"]
        world.sandbox.control.pay(begun["pspReference"])
        world.time.advance(seconds=10)
        assert world.run_worker().faults == []
        assert (first.charged, second.charged) == (Decimal("19.90"), Decimal(0))
    finally:
        other.close()


# Away again ---------------------------------------------------------------------------------------


def command(*arguments: str) -> str:
    said = io.StringIO()
    call_command("tillgate_saleor", *arguments, stdout=said)
    return said.getvalue()


def test_removed_saleor_finishes_but_starts_nothing(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """The default account may be that of another shop: its money must not go there, and it must not
    see the account's number.
    """
    transaction, said = saleor.initialize(
        saleor.checkout(Decimal("19.90")),
        "one",
        {"method": "alipay"},
    )
    settings.TILLGATE_SALEOR = {"SALEORS": {"https://another.example": {}}}
    source = saleor.checkout(Decimal("5.00"))
    assert saleor.gateway_initialize(source) == (200, {"data": {"methods": []}})
    refused = saleor.initialize(source, "two", {"method": "alipay"})[1]
    assert (refused["result"], refused["message"]) == (
        "CHARGE_FAILURE",
        "No way of paying is offered in this channel.",
    )
    headers = {"Authorization": f"Bearer {saleor.page_token()}", "Saleor-Api-Url": saleor.api_url}
    assert Client().post("/app/content", headers=headers).status_code == 401
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    world.a_day_passes()
    assert saleor.request_refund(transaction, 19.90)[1]["result"] == "REFUND_SUCCESS"


def test_an_installation_is_listed_and_forgotten(saleor: SaleorDouble, world: World) -> None:
    transaction, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    assert saleor.api_url in command("installations")
    command("uninstall", saleor.api_url)
    installation = Installation.objects.get()
    assert (installation.token, installation.keys) == ("", {})
    assert "uninstalled" in command("installations")
    raw = saleor.body(Event.PROCESS, saleor.session_body(transaction))
    assert saleor.post(Event.PROCESS, raw, saleor.sign(raw))[0] == 401
    world.sandbox.control.pay(said["pspReference"])
    world.a_day_passes()
    assert world.reviews() == ["delivery-failing"], "its money waits for a person"
    assert saleor.install()[0] == 200
    world.a_day_passes()
    assert world.reviews() == []
    assert transaction.charged == Decimal("19.90")


def test_deactivated_app_reports_later(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """The staff can switch it on again, with the same token: so a token that is refused is not
    forgotten.
    """
    transaction, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    tokens, saleor.tokens = saleor.tokens, {}
    world.sandbox.control.pay(said["pspReference"])
    world.a_day_passes()
    assert world.reviews() == ["delivery-failing"]
    assert transaction.charged == 0
    saleor.tokens = tokens
    world.a_day_passes()
    assert transaction.charged == Decimal("19.90")
    assert world.reviews() == []


def test_unknown_saleor_cannot_be_forgotten(world: World) -> None:
    """It was never installed."""
    with pytest.raises(CommandError, match="has not installed the App"):
        command("uninstall", "https://nobody.example/graphql/")


# Another domain -----------------------------------------------------------------------------------


def moved(saleor: SaleorDouble, settings: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Give a Saleor another domain, and return its former address and the new one."""
    former, origin = saleor.api_url, saleor.origin.replace("127.0.0.1", "localhost")
    saleors = settings.TILLGATE_SALEOR["SALEORS"]
    settings.TILLGATE_SALEOR = {"SALEORS": {**saleors, origin: saleors[saleor.origin]}}
    monkeypatch.setattr(SaleorDouble, "origin", origin)
    return former, saleor.api_url


def test_moved_saleor_continues_open_work(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its domain has changed."""
    transaction, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    former, now = moved(saleor, settings, monkeypatch)
    assert f"{former} is {now} from now on" in command("move", former, now)
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    saleor.order(transaction.source)
    assert saleor.request_refund(transaction, 5.00)[1]["result"] == "REFUND_SUCCESS"
    other, said = saleor.initialize(saleor.checkout(Decimal("7.00")), "other", DATA)
    world.sandbox.control.pay(said["pspReference"])
    world.a_day_passes()
    assert (transaction.charged, other.charged) == (Decimal("14.90"), Decimal("7.00"))
    assert world.reviews() == []
    assert Installation.objects.count() == 1


@pytest.mark.parametrize(
    "wrong",
    ["not allowed", "nobody there", "another token", "uninstalled", "installed there"],
)
def test_invalid_move_changes_nothing(
    wrong: str,
    saleor: SaleorDouble,
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command says why it failed."""
    former, now = moved(saleor, settings, monkeypatch)
    said = {
        "not allowed": "may install this App",
        "nobody there": "answered HTTP 503",
        "another token": "no App by this token|answered",
        "uninstalled": "has uninstalled the App: install it at",
        "installed there": "has installed the App already",
    }
    if wrong == "not allowed":
        now = "https://elsewhere.example/graphql/"
    elif wrong == "nobody there":
        saleor.is_down = True
    elif wrong == "another token":
        saleor.tokens = {"another": saleor.app_id}
    elif wrong == "uninstalled":
        command("uninstall", former)
    else:
        kept = dict(saleor.tokens)
        assert saleor.install()[0] == 200
        saleor.tokens |= kept
    before = list(Installation.objects.order_by("pk").values())
    with pytest.raises(CommandError, match=said[wrong]):
        command("move", former, now)
    assert list(Installation.objects.order_by("pk").values()) == before


def test_unused_installation_makes_room_for_move(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is at the new domain and never sold anything."""
    kept = dict(saleor.tokens)
    former, now = moved(saleor, settings, monkeypatch)
    assert saleor.install()[0] == 200
    command("uninstall", now)
    saleor.tokens |= kept
    command("move", former, now)
    assert [row.api_url for row in Installation.objects.all()] == [now]


# Keys ---------------------------------------------------------------------------------------------

OLD, NEW = "o" * 32, "n" * 32


def test_tokens_move_to_new_key(
    saleor: SaleorDouble,
    settings: Any,
) -> None:
    """The old key can be removed afterwards."""

    def use(*keys: str) -> None:
        settings.TILLGATE_SALEOR = {**settings.TILLGATE_SALEOR, "ENCRYPTION_KEYS": keys}

    def token() -> str:
        return vault.decrypt(Installation.objects.get().token)

    use(OLD, settings.SECRET_KEY)
    assert token() == token_of(saleor), "what the SECRET_KEY encrypted is still read"
    assert command("rotate").startswith("1 ")
    use(NEW, OLD)
    assert token() == token_of(saleor)
    command("rotate")
    use(NEW)
    assert token() == token_of(saleor)
    use(OLD)
    with pytest.raises(CommandError, match="ENCRYPTION_KEYS"):
        command("rotate")


def test_undecryptable_token_is_reported_and_kept(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    """No key fits the token."""
    transaction, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    settings.TILLGATE_SALEOR = {**settings.TILLGATE_SALEOR, "ENCRYPTION_KEYS": [NEW]}
    world.sandbox.control.pay(said["pspReference"])
    world.a_day_passes()
    assert world.reviews() == ["delivery-failing"]
    settings.TILLGATE_SALEOR = {
        **settings.TILLGATE_SALEOR,
        "ENCRYPTION_KEYS": [NEW, settings.SECRET_KEY],
    }
    world.a_day_passes()
    assert transaction.charged == Decimal("19.90")
