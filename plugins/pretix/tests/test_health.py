"""The health of the payments on the settings pages of events and organizers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.shopping import event_of, staff
from tests.test_connection import NO_LIVE, WRONG, account_of
from tests.test_organizer import PAGE, boss
from tests.test_settings import FORM, posted
from tillgate import shop
from tillgate.django.models import Lane
from tillgate.testing.world import World
from tillgate_pretix import accounts, connection


@pytest.fixture
def owner(world: World) -> Any:
    """The browser of somebody who may change the settings."""
    return staff(world, "event.settings.general:write", "event.settings.payment:write")


def stands(world: World) -> dict[str, bool]:
    """Return the lines about the event, and whether each is good."""
    return {one.text: one.is_good for one in connection.health(event_of(world))}


def test_settings_tell_that_all_is_well(world: World, owner: Any) -> None:
    posted(owner, **NO_LIVE, **account_of(world))
    world.run_worker()
    page = owner.get(FORM).content.decode()
    for line in (
        "Account for test mode: in order when last tested",
        "The worker ran less than a minute ago.",
        "No work is waiting.",
    ):
        assert line in page
    assert all(stands(world).values())


def test_settings_tell_why_account_fails(world: World, owner: Any) -> None:
    posted(owner, **NO_LIVE, **account_of(world) | {"test_token": WRONG})
    [line] = [line for line in stands(world) if line.startswith("Account for test mode")]
    assert stands(world)[line] is False
    assert "Secret token" in line


def test_late_worker_and_old_work_are_told(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = "The worker has never run: payments whose notification is lost stay unpaid."
    assert stands(world)[never] is False
    now = shop.vitals()
    problems, due = ("the worker is away",), [replace(one, oldest_seconds=240.0) for one in now.due]
    late = replace(now, worker_seconds=10_800.0, problems=problems, due=tuple(due))
    monkeypatch.setattr(shop, "vitals", lambda: late)
    found = stands(world)
    assert found["The worker ran 3\xa0hours ago."] is False
    assert found["The oldest work has waited for 4\xa0minutes."] is False


def test_silent_service_is_told_to_its_event(world: World) -> None:
    event = event_of(world)
    alias = accounts.alias_of_event(event, testmode=True)
    Lane.objects.create(name=alias, silent_since=shop.now())
    line = "Conference: the payment service does not answer."
    assert stands(world)[line] is False
    assert line in [one.text for one in connection.health(event.organizer)]
    Lane.objects.update(name="pretix-999999-x")
    assert line not in stands(world)


@pytest.mark.parametrize("is_right", [True, False])
def test_organizer_tests_typed_account(world: World, is_right: bool) -> None:
    event_of(world)
    given = account_of(world) | ({} if is_right else {"test_token": WRONG})
    fields = {f"payment_tillgate_{name}": one for name, one in given.items()}
    page = boss(world).post(PAGE, {**fields, "test_connection": "yes"}).content.decode()
    assert ("the payment service knows it." in page) is is_right
    assert "Your changes have been saved." not in page
    assert not event_of(world).organizer.settings.get("payment_tillgate_test_token")


def test_first_line_names_services_of_currency(world: World, owner: Any) -> None:
    assert "Payment services here that take USD: 2Pay" in owner.get(FORM).content.decode()
    event = event_of(world)
    event.currency = "CZK"
    event.save()
    page = owner.get(FORM).content.decode()
    assert "No payment service here takes CZK. Stripe and PayU take EUR" in page
