"""The fuzzer's findings: each of these was broken once."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from proving.fuzz.shop import _Broken
from tests.django.conftest import World, configure, running_sandbox, sandbox, time_, world
from tests.support import GOOD_BODIES, REFERENCE, answered, credentials
from tillgate import Account, Dialect, SignatureMismatch, SignatureRule
from tillgate.django.models import Notification
from tillgate.django.pages.tickets import pay_url, start_url
from tillgate.django.refunds import queueing
from tillgate.wire import exchange

__all__ = ["configure", "running_sandbox", "sandbox", "time_", "world"]

LIVE = Account(base_url="https://pay.example", merchant_no="1", token="only for this test")


@pytest.fixture
def stranger() -> Client:
    return Client(raise_request_exception=False)


@pytest.mark.parametrize("page", ["notification", "refund-notification", "return"])
def test_broken_connection_notification_says_nothing(
    world: World,
    stranger: Client,
    page: str,
) -> None:
    """The connection breaks while the notification is read."""
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "1.00")
    key = {
        "notification": payment.notification_key,
        "refund-notification": refund.notification_key,
        "return": payment.return_key,
    }[page]
    stranger.post(f"/payments/{page}/{key}/", {"status": "success"})
    before = Notification.objects.count()
    cut: dict[str, Any] = {"wsgi.input": _Broken(b"status=success"), "CONTENT_LENGTH": "14"}
    answer = stranger.generic(
        "POST",
        f"/payments/{page}/{key}/",
        content_type="application/x-www-form-urlencoded",
        **cut,
    )
    assert answer.status_code == (302 if page == "return" else 200)
    assert Notification.objects.count() == before + 1
    assert Notification.objects.latest("id").evidence == {}


def test_removed_plugins_ticket_is_not_found(
    world: World,
    stranger: Client,
) -> None:
    pay, start = pay_url("gone", "1"), start_url("gone", "1", "alipay")
    assert [stranger.get(address).status_code for address in (pay, start)] == [404, 404]
    assert stranger.post(pay, {"method": "alipay"}).status_code == 404


@pytest.mark.parametrize("path", ["payment", "order", "review"])
@pytest.mark.parametrize(
    "query",
    [
        "status=%00",
        "method=%00",
        "account=%00",
        "reason=%00",
        "q=%00",
        "plugin=%00",
        "created_at__year=-1",
        f"created_at__year={'9' * 40}",
        f"created_at__year=2026&created_at__month={'9' * 40}",
        f"id={'9' * 40}",
    ],
)
def test_impossible_list_shows_whole_list(
    world: World,
    admin_client: Client,
    path: str,
    query: str,
) -> None:
    world.paid_payment()
    admin_client.raise_request_exception = False
    assert admin_client.get(f"/admin/tillgate/{path}/?{query}", follow=True).status_code == 200


@pytest.mark.parametrize("key", ["%00", "9" * 40, "-1", "1%00"])
@pytest.mark.parametrize(
    "page",
    ["payment/{}/change", "payment/{}/refund", "order/{}/change", "review/{}/change"],
)
def test_impossible_row_is_no_error(
    world: World,
    admin_client: Client,
    page: str,
    key: str,
) -> None:
    admin_client.raise_request_exception = False
    assert admin_client.get(f"/admin/tillgate/{page.format(key)}/").status_code in (302, 404)


@pytest.mark.parametrize("claimed", [0, False, [], {}, 0.0])
@pytest.mark.parametrize("rule", ["checked", "required"])
def test_non_text_signature_is_wrong(
    claimed: object,
    rule: str,
) -> None:
    """It does not count as missing."""
    at = credentials(dialect=Dialect(name="x", answer_signature=SignatureRule(rule)))
    with pytest.raises(SignatureMismatch, match="does not belong"):
        exchange.read_query(
            at,
            REFERENCE,
            answered({**GOOD_BODIES["query"], "verifySign": claimed}),
        )
