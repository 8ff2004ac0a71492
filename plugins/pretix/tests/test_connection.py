"""Whether an event's account works: what the form refuses, what its pages warn of, and what
attendees read.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.shopping import event_of, newest_payment, order_of, staff
from tests.test_settings import FORM, LIVE, posted
from tillgate.django.models import TimelineEntry
from tillgate.testing.world import World
from tillgate_pretix import accounts, connection

TEST = "/control/event/org/conf/tillgate/settings/"
LIST = "/control/event/org/conf/settings/payment"
NO_LIVE = dict.fromkeys(LIVE, "")
WRONG = "f" * 32
INTERNAL = "the words of an internal service"


@pytest.fixture
def owner(world: World) -> Any:
    """The browser of somebody who may change the settings."""
    return staff(world, "event.settings.general:write", "event.settings.payment:write")


def account_of(world: World) -> dict[str, str]:
    """Return the account for test mode, as the form has it."""
    kept = accounts.settings_of(event_of(world))
    return {f"test_{name}": str(kept.get(f"test_{name}")) for name in accounts.FIELDS}


def started(world: World) -> tuple[Any, str]:
    """Let a shopper go to pay an order; return the order and the page that the shopper reads."""
    order = order_of(world, world.order())
    way = f"/org/conf/tillgate/start/{order.code}/{order.secret}/{newest_payment(order).pk}/"
    return order, world.client.get(way, follow=True).content.decode()


# Which account is needed --------------------------------------------------------------------------


def test_account_for_test_mode_alone_is_enough(world: World, owner: Any) -> None:
    page = posted(owner, **NO_LIVE, **account_of(world)).content.decode()
    assert "Your changes have been saved." in page
    assert "alert-warning" not in page
    assert accounts.methods_that_take(event_of(world), None, testmode=True)


def test_form_without_any_account_is_refused(world: World, owner: Any) -> None:
    page = posted(owner, **NO_LIVE).content.decode()
    assert "Enter the live account, the account for test mode, or both." in page


def test_pages_warn_about_missing_account(world: World, owner: Any) -> None:
    """The warning is about the mode that is in use, test or live."""
    assert "has no account for test mode" in posted(owner).content.decode()
    event = event_of(world)
    event.testmode = False
    event.save()
    accounts.settings_of(event).set("token", "")
    assert "has no live account" in owner.get(LIST).content.decode()
    assert "has no live account" in owner.get(FORM).content.decode()


def test_pages_warn_where_no_method_is_ticked(world: World, owner: Any) -> None:
    page = posted(owner, **NO_LIVE, **account_of(world), method_alipay="").content.decode()
    assert "No payment method is ticked" in page
    assert (
        "No payment method is ticked"
        not in owner.get("/control/event/org/conf/settings/").content.decode()
    )


def test_wrong_token_warns_until_it_is_right(world: World, owner: Any) -> None:
    right = account_of(world)
    page = posted(owner, **NO_LIVE, **right | {"test_token": WRONG}).content.decode()
    assert re.search("Tillgate:</strong> Account for test mode: .*token", page)
    assert "Account for test mode: " in owner.get(FORM).content.decode()
    assert "alert-warning" not in posted(owner, **NO_LIVE, **right).content.decode()


# The button ---------------------------------------------------------------------------------------


def pressed(browser: Any, **changes: str) -> str:
    """Press *Test connection* in the form as it stands, with changes; return the page."""
    fields = {
        "_enabled": "on",
        "method_alipay": "on",
        "_restrict_to_sales_channels": "web",
        **changes,
    }
    data = {f"payment_tillgate_{name}": value for name, value in fields.items() if value}
    return str(browser.post(TEST, data | {"test_connection": "yes"}).content.decode())


def test_button_tests_input_without_saving(world: World, owner: Any) -> None:
    right = account_of(world)
    page = pressed(owner, **right | {"test_token": WRONG, "test_merchant_no": "987654"})
    assert "Account for test mode: " in page
    assert "the payment service knows it" not in page
    assert "check “Merchant number”" in page, re.findall("alert-danger.*?</div>", page, re.DOTALL)
    assert 'value="987654"' in page, "what was typed is lost"
    assert account_of(world) == right
    assert accounts.former_merchants(event_of(world)) == []
    assert "Account for test mode: the payment service knows it." in pressed(owner, **right)


def test_button_warns_of_nothing_that_is_ticked_by_now(world: World, owner: Any) -> None:
    posted(owner, **NO_LIVE, **account_of(world), method_alipay="")
    assert "No payment method is ticked" in owner.get(FORM).content.decode()
    page = pressed(owner, **account_of(world) | {"test_token": "*****"})
    assert "the payment service knows it." in page
    assert "No payment method is ticked" not in page


def test_button_uses_token_behind_stars(world: World, owner: Any) -> None:
    assert "the payment service knows it." in pressed(
        owner,
        **account_of(world) | {"test_token": "*****"},
    )


def test_button_takes_a_warning_away(world: World, owner: Any) -> None:
    right = account_of(world)
    posted(owner, **NO_LIVE, **right)
    accounts.settings_of(event_of(world)).set("test_problem", "it was out of order")
    assert "it was out of order" in owner.get(LIST).content.decode()
    pressed(owner, **right | {"test_token": "*****"})
    assert "it was out of order" not in owner.get(LIST).content.decode()


def test_page_of_the_button_saves_too(world: World, owner: Any) -> None:
    data = {
        f"payment_tillgate_{name}": value
        for name, value in (account_of(world) | {"test_merchant_no": "987654"}).items()
    }
    more = {
        "payment_tillgate__enabled": "on",
        "payment_tillgate__restrict_to_sales_channels": "web",
    }
    assert (
        "Your changes have been saved."
        in owner.post(TEST, data | more, follow=True).content.decode()
    )
    assert account_of(world)["test_merchant_no"] == "987654"


def test_button_needs_the_right_to_change_payments(world: World) -> None:
    assert staff(world, "event.orders:write").post(
        TEST,
        {"test_connection": "yes"},
    ).status_code in (403, 404)


# What attendees read ------------------------------------------------------------------------------


def test_refused_account_tells_attendees_to_choose_otherwise(world: World) -> None:
    accounts.settings_of(event_of(world)).set("test_token", WRONG)
    order, page = started(world)
    again = world.client.get(f"/org/conf/order/{order.code}/{order.secret}/").content.decode()
    for shown in (page, again):
        assert "Nothing was charged. Please choose another, or try again later." in shown
        assert "We are waiting for your payment" not in shown, "there never was a page to pay on"
    assert "did not answer" not in page


# Addresses of the organizer's own network ---------------------------------------------------------


@pytest.fixture
def internal() -> Iterator[HTTPServer]:
    """A service of the organizer's network, which must hear nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server.heard.append(self.path)  # type: ignore[attr-defined]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(INTERNAL.encode())

        def log_message(self, *_args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.heard = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let the name gate.example lead to these addresses, or nowhere."""
    real = socket.getaddrinfo

    def found(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "gate.example":
            return real(host, port, *args, **kwargs)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            one for address in addresses for one in real(address, port, type=socket.SOCK_STREAM)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize(
    ("leads_to", "message"),
    [
        ([], "leads nowhere"),
        (["127.0.0.1"], "is in a private network"),
        (["93.184.216.34", "10.1.2.3"], "is in a private network"),
        (["::ffff:127.0.0.1"], "is in a private network"),
    ],
)
def test_unresolved_or_internal_host_is_refused(
    world: World,
    owner: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    leads_to: list[str],
    message: str,
) -> None:
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    resolving(monkeypatch, *leads_to)
    page = posted(
        owner,
        **NO_LIVE,
        **account_of(world) | {"test_base_url": "http://gate.example"},
    ).content.decode()
    assert message in page
    assert "Your changes have been saved." not in page


def test_host_turning_internal_is_never_called(
    world: World,
    owner: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    internal: HTTPServer,
) -> None:
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    address = f"http://gate.example:{internal.server_port}"
    with monkeypatch.context() as at_first:
        resolving(at_first, "93.184.216.34")
        at_first.setattr(connection, "test_saved", lambda event: None)
        page = posted(
            owner,
            **NO_LIVE,
            **account_of(world) | {"test_base_url": address},
        ).content.decode()
    assert "Your changes have been saved." in page
    resolving(monkeypatch, "127.0.0.1")
    _, read = started(world)
    world.run_worker()
    tested = pressed(owner, **account_of(world) | {"test_token": "*****"})
    assert internal.heard == []  # type: ignore[attr-defined]
    timeline = " ".join(
        f"{entry.message} {entry.evidence}" for entry in TimelineEntry.objects.all()
    )
    assert "no public address" in timeline
    assert not any(
        words in text for words in (INTERNAL, "127.0.0.1") for text in (timeline, read, tested)
    )


# The fields of the form ---------------------------------------------------------------------------


def field(page: str, name: str) -> str:
    """Return the tag of a field, or an empty string."""
    return next(iter(re.findall(rf'<[^<>]*name="payment_tillgate_{name}"[^<>]*>', page)), "")


def test_form_shows_only_what_the_service_uses(world: World, owner: Any) -> None:
    page = owner.get(FORM).content.decode()
    for name in ("store_no", "settle_currency", "test_store_no", "test_settle_currency"):
        assert 'data-display-dependency-regex="/^(v3)$/"' in field(page, name)
    for name in ("base_url", "merchant_no"):
        assert 'data-display-dependency-regex="/^(|examples|v3)$/"' in field(page, name)
    assert field(page, "webhook_secrets") == field(page, "test_webhook_secrets") == "", (
        "no installed service signs with one"
    )


def test_services_have_the_names_that_organizers_know(world: World, owner: Any) -> None:
    page = owner.get(FORM).content.decode()
    choices = re.findall(r'<option value="([^"]*)"[^>]*>([^<]*)</option>', page)
    assert {("", "2Pay"), ("v3", "Yuansfer or Pockyt")} <= set(choices)
    assert "https://api.2pay.co" in page
    assert '<a href="https://docs.pockyt.io"' in page
