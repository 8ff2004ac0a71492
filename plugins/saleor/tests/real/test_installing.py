"""A real Saleor installs the App, again and again, and lets it go."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.real.saleor import TOTAL, Channel, Refused, Saleor, Storefront, until
from tests.real.service import Service
from tests.real.shopper import decides, pays_and_closes_the_tab
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN

pytestmark = pytest.mark.saleor

EVENTS = {
    "PAYMENT_GATEWAY_INITIALIZE_SESSION",
    "TRANSACTION_INITIALIZE_SESSION",
    "TRANSACTION_PROCESS_SESSION",
    "TRANSACTION_CHARGE_REQUESTED",
    "TRANSACTION_REFUND_REQUESTED",
    "TRANSACTION_CANCELATION_REQUESTED",
    "LIST_STORED_PAYMENT_METHODS",
}


def test_saleor_takes_the_manifest(saleor: Saleor, service: Service) -> None:
    manifest = saleor.manifest(service.manifest_url)
    assert [permission["code"] for permission in manifest["permissions"]] == ["HANDLE_PAYMENTS"]
    assert {event for webhook in manifest["webhooks"] for event in webhook["syncEvents"]} == EVENTS
    addresses = [
        manifest["appUrl"],
        manifest["tokenTargetUrl"],
        *(webhook["targetUrl"] for webhook in manifest["webhooks"]),
    ]
    assert all(address.startswith(f"{service.url}/") for address in addresses)


def test_the_app_is_installed_and_active(saleor: Saleor, app: str) -> None:
    (installed,) = saleor.apps(app)
    assert installed["isActive"]
    assert all(webhook["isActive"] for webhook in installed["webhooks"])
    assert {
        event["eventType"] for webhook in installed["webhooks"] for event in webhook["syncEvents"]
    } == EVENTS


def test_app_page_shows_only_dashboard_staff(
    saleor: Saleor,
    service: Service,
    app: str,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """The page is a frame; its content is fetched with the token that Saleor gives to its
    dashboard.
    """
    storefront.begin(storefront.checkout(channel))
    (installed,) = saleor.apps(app)
    page = httpx.get(
        installed["appUrl"],
        params={"domain": saleor.domain, "saleorApiUrl": saleor.url, "id": installed["id"]},
    )
    assert page.status_code == 200
    assert f"frame-ancestors {service.saleor_origin}" in page.headers["content-security-policy"]

    headers = {
        "Saleor-Api-Url": saleor.url,
        "Authorization": f"Bearer {saleor.app_token(installed['id'])}",
    }
    shown = httpx.post(f"{installed['appUrl']}content", params={"test": "1"}, headers=headers)
    assert shown.status_code == 200, shown.text
    assert channel.slug in shown.text
    assert PUBLISHED_MERCHANT_NO in shown.text
    assert PUBLISHED_TEST_TOKEN not in shown.text

    # the last is a member of the staff's own, for no App
    for token in (
        "",
        "Bearer a.b.c",
        f"Bearer {saleor.staff_token()}",
    ):
        answer = httpx.post(
            f"{installed['appUrl']}content",
            headers={**headers, "Authorization": token},
        )
        assert answer.status_code == 401
        assert channel.slug not in answer.text


def test_an_app_is_not_installed_twice(saleor: Saleor, service: Service, app: str) -> None:
    with pytest.raises(Refused, match="already installed"):
        saleor.install(service.manifest_url)
    assert len(saleor.apps(app)) == 1


def test_unusable_token_changes_nothing(
    saleor: Saleor,
    service: Service,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """The installation is refused."""
    headers = {"Saleor-Api-Url": saleor.url, "Saleor-Domain": saleor.domain}
    answer = httpx.post(service.register_url, json={"auth_token": "not-a-token"}, headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["message"]
    assert storefront.begin(storefront.checkout(channel)).event == "CHARGE_ACTION_REQUIRED"


def test_disallowed_origin_is_refused(saleor: Saleor, service: Service) -> None:
    headers = {
        "Saleor-Api-Url": "https://elsewhere.example/graphql/",
        "Saleor-Domain": "elsewhere.example",
    }
    answer = httpx.post(service.register_url, json={"auth_token": "not-a-token"}, headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["message"]


def test_reinstalled_app_continues_open_work(
    saleor: Saleor,
    service: Service,
    app: str,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """Uninstalled and installed again while a shopper is at the payment page: the new installation,
    with a new token, reports the money.
    """
    (before,) = saleor.apps(app)
    begun = storefront.begin(storefront.checkout(channel))
    saleor.uninstall(app)
    assert saleor.apps(app) == []
    after = saleor.install(service.manifest_url)
    assert after["id"] != before["id"]

    pays_and_closes_the_tab(begun.payment_page)
    until(
        "the money is reported",
        lambda: saleor.transaction(begun.transaction)["chargedAmount"]["amount"] == TOTAL,
        60,
    )

    checkout = storefront.checkout(channel)
    fresh = storefront.begin(checkout)
    decides(fresh.payment_page, "pay", storefront.return_url)
    assert storefront.process(fresh.transaction).event == "CHARGE_SUCCESS"
    assert saleor.order(storefront.complete(checkout))["chargeStatus"] == "FULL"


def test_reactivated_app_catches_up(
    saleor: Saleor,
    app: str,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """It sends the reports that it could not send while deactivated."""
    begun = storefront.begin(storefront.checkout(channel))
    with saleor.deactivated(app):
        pays_and_closes_the_tab(begun.payment_page)
        time.sleep(5)  # the notification has come, and the report is refused
        assert saleor.transaction(begun.transaction)["chargedAmount"]["amount"] == 0
    until(
        "the money is reported",
        lambda: saleor.transaction(begun.transaction)["chargedAmount"]["amount"] == TOTAL,
        120,
    )


def test_uninstalled_app_starts_no_payment(
    saleor: Saleor,
    service: Service,
    app: str,
    storefront: Storefront,
    channel: Channel,
) -> None:
    """Money from before is kept for staff."""
    checkout = storefront.checkout(channel)
    begun = storefront.begin(checkout)
    saleor.uninstall(app)
    try:
        pays_and_closes_the_tab(begun.payment_page)
        with pytest.raises(Refused):
            storefront.begin(checkout)
        until("somebody is told of the money", lambda: service.reviews(begun.reference), 60)
    finally:
        saleor.install(service.manifest_url)
