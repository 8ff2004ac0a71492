"""Places at the gateway: half the threads of a web process wait for it, and no more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from django.test import Client

from tests.django.conftest import World
from tillgate.django.models import Payment
from tillgate.django.pages import places
from tillgate.django.pages.places import place_at_gateway
from tillgate.django.pages.tickets import new_ticket


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_PATIENCE_SECONDS", 0.01)


@contextmanager
def all_places_taken() -> Iterator[None]:
    with ExitStack() as places_taken:
        while places_taken.enter_context(place_at_gateway()):
            pass
        yield


def places_among(threads: int) -> int:
    """Return how many of a server's threads get a place at the same time."""
    all_have_asked = threading.Barrier(threads)

    def press() -> bool:
        with place_at_gateway() as has_place:
            all_have_asked.wait(10)
            return has_place

    with ThreadPoolExecutor(threads, thread_name_prefix="server") as server:
        idle = threading.Barrier(threads)
        list(server.map(lambda _: idle.wait(10), range(threads)))  # a server starts them late
        return sum(server.map(lambda _: press(), range(threads)))


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 2), (4, 2), (8, 4), (16, 8)])
def test_half_of_threads_have_places(threads: int, expected: int) -> None:
    assert places_among(threads) == expected


def test_place_is_free_after_an_error() -> None:
    for _ in range(10):
        with contextlib.suppress(ZeroDivisionError), place_at_gateway() as has_place:
            assert has_place
            1 / 0  # noqa: B018 - the error


def test_waiting_press_gets_the_next_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_PATIENCE_SECONDS", 10)

    def press() -> bool:
        with place_at_gateway() as has_place:
            return has_place

    with ThreadPoolExecutor(1) as other, ExitStack() as taken:
        for _ in range(2):
            taken.enter_context(place_at_gateway())
        waiting = other.submit(press)
        taken.close()
        assert waiting.result(10)


@pytest.mark.parametrize("may_change", [True, False])
def test_press_without_place_asks_again(world: World, may_change: bool) -> None:
    """Its page starts the payment a second later, with the same authority."""
    order = world.order()
    page = f"/payments/pay/{new_ticket(world.shop.plugin, order, may_change=may_change)}/"
    with all_places_taken():
        answer = world.client.post(page, {"method": "alipay"})
    assert (answer.status_code, Payment.objects.count()) == (200, 0)
    assert "One moment" in answer.content.decode()
    seconds, _, start = answer["Refresh"].partition("; url=")
    assert seconds == "1"
    started = world.client.get(start)
    assert world.onward(started)
    assert bool(started.cookies) is may_change


def test_press_without_place_keeps_shown_payments(world: World) -> None:
    """A shopper that has read that money is on its way may pay despite it."""
    order = world.order()
    payment = world.start(order)
    Payment.objects.update(is_processing=True)
    page = f"/payments/pay/{new_ticket(world.shop.plugin, order)}/?held={payment.reference}"
    with all_places_taken():
        answer = world.client.post(page, {"method": "paypal"})
    answer = Client().get(answer["Refresh"].partition("; url=")[2])
    assert world.onward(answer)
    assert Payment.objects.count() == 2
