"""Only a monitor reads the health and the metrics."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.test import Client

from tests.django.conftest import World
from tillgate import ConfigurationError
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason

TOKEN = "a-token-of-the-monitor"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
Configure = Callable[..., None]


@pytest.fixture
def monitor(configure: Configure) -> Client:
    configure(MONITOR_TOKEN=TOKEN)
    return Client(headers=HEADERS)


@pytest.mark.parametrize("page", ["health", "metrics"])
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer x", TOKEN, f"bearer {TOKEN}"])
def test_strangers_see_no_page(configure: Configure, page: str, given: str) -> None:
    for settings in ({}, {"MONITOR_TOKEN": TOKEN}, {"MONITOR_NETWORKS": ["10.0.0.0/8"]}):
        configure(**settings)
        answer = Client(headers={"authorization": given}).get(f"/payments/{page}/")
        assert answer.status_code == 404


def test_listed_network_needs_no_token(configure: Configure, world: World) -> None:
    configure(MONITOR_NETWORKS=["10.0.0.0/8", "::1/128"])
    world.run_worker()
    for address, status in (("10.1.2.3", 200), ("::1", 200), ("11.0.0.1", 404), ("", 404)):
        assert Client().get("/payments/health/", REMOTE_ADDR=address).status_code == status


def test_healthy_shop_answers_200(monitor: Client, world: World) -> None:
    world.run_worker()
    answer = monitor.get("/payments/health/")
    told = answer.json()
    assert (answer.status_code, told["healthy"], told["problems"]) == (200, True, [])
    assert answer["Cache-Control"] == "no-store"
    assert told["worker_seconds"] < 60
    assert {one["waiting"] for one in told["due"]} == {0}


def test_late_worker_answers_503(monitor: Client, world: World) -> None:
    assert monitor.get("/payments/health/").json()["problems"] == ["the worker is away"]
    world.run_worker()
    world.start(world.order())
    world.time.advance(minutes=16)
    answer = monitor.get("/payments/health/")
    assert answer.status_code == 503
    assert answer.json()["problems"] == ["the worker is away", "payments: waits too long"]


def test_undelivered_event_answers_503(
    monitor: Client,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tillgate.django.payments.reconciling.deliver", lambda _: 0)
    world.paid_payment()
    world.time.advance(minutes=16)
    problems = monitor.get("/payments/health/").json()["problems"]
    assert "an event has not reached the shop" in problems


def test_health_holds_no_personal_data(monitor: Client, world: World) -> None:
    payment = world.paid_payment()
    open_review(ReviewReason.GATEWAY_SILENT, {"error": "x"}, "test", account="default")
    world.run_worker()
    for page in ("health", "metrics"):
        said = monitor.get(f"/payments/{page}/").content.decode()
        for word in (payment.reference, payment.order.key, payment.notification_key, TOKEN):
            assert word not in said
    assert json.loads(monitor.get("/payments/health/").content)["open_reviews"] == 1


def test_metrics_tell_the_same(monitor: Client, world: World) -> None:
    world.run_worker()
    answer = monitor.get("/payments/metrics/")
    said = answer.content.decode()
    assert answer["Content-Type"].startswith("text/plain")
    assert "tillgate_healthy 1.0" in said
    assert 'tillgate_due_rows{chore="payments"} 0.0' in said
    assert "tillgate_open_reviews 0.0" in said


@pytest.mark.parametrize(
    "wrong",
    [
        {"MONITOR_TOKEN": "short"},
        {"MONITOR_TOKEN": 17},
        {"MONITOR_NETWORKS": "10.0.0.0/8"},
        {"MONITOR_NETWORKS": ["10.0.0.1/8"]},
    ],
)
def test_wrong_settings_name_the_remedy(configure: Configure, wrong: dict[str, object]) -> None:
    configure(**wrong)
    with pytest.raises(ConfigurationError, match="TILLGATE") as caught:
        Client().get("/payments/health/")
    assert "short" not in str(caught.value)
