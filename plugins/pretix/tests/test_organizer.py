"""An organizer's settings: the account of all events that keep none of their own."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django_scopes import scopes_disabled
from pretix.base.models import Event, LogEntry, Team, User

from tests.shopping import event_of, logged_in
from tests.test_settings import FORM, LIVE, TOKEN, posted, present_account
from tests.test_settings import owner as owner_of_event  # noqa: F401 - a fixture
from tillgate.shop import find_account
from tillgate.testing.world import World
from tillgate_pretix import accounts

PAGE = "/control/organizer/org/tillgate/"


def boss(world: World, *, may: bool = True) -> Client:
    """Return the browser of somebody who may change the organizer's settings, or may not."""
    organizer = event_of(world).organizer
    user = User.objects.create_user("boss@example.org", "secret")
    with scopes_disabled():
        team = Team.objects.create(
            organizer=organizer,
            name="Bosses",
            all_organizer_permissions=may,
        )
        team.members.add(user)
    return logged_in(user)


def saved(browser: Client, **changes: str) -> str:
    """Save the organizer's form, and return the page."""
    fields = {**LIVE, "method_alipay": "on", **changes}
    named = {f"payment_tillgate_{name}": value for name, value in fields.items() if value}
    return browser.post(PAGE, named, follow=True).content.decode()


@pytest.fixture
def bare_event(world: World) -> Any:
    """An event that keeps no account of its own."""
    event = event_of(world)
    kept = accounts.settings_of(event)
    for mode in ("", "test_"):
        for name in (*accounts.FIELDS, *accounts.OPTIONS):
            event.settings.delete(kept.get_prefix() + mode + name)
    return event


def test_events_have_the_organizers_account(world: World, bare_event: Any) -> None:
    page = saved(boss(world))
    assert "Your changes have been saved." in page
    assert "1 event has them now." in page
    assert TOKEN not in page
    account = present_account(world)
    assert (account.merchant_no, account.base_url) == (LIVE["merchant_no"], LIVE["base_url"])


def test_own_account_of_event_stands(
    world: World,
    bare_event: Any,
    owner_of_event: Any,  # noqa: F811 - the fixture
) -> None:
    browser = boss(world)
    saved(browser)
    posted(owner_of_event, merchant_no="300001")
    saved(browser, merchant_no="200099")
    assert present_account(world).merchant_no == "300001"
    assert "These have settings of their own:" in browser.get(PAGE).content.decode()


def test_saved_event_keeps_following_organizer(
    world: World,
    bare_event: Any,
    owner_of_event: Any,  # noqa: F811 - the fixture
) -> None:
    """Saving an event's page without a change keeps none of the organizer's values there."""
    browser = boss(world)
    saved(browser)
    posted(owner_of_event, token="********")
    saved(browser, merchant_no="200099")
    assert present_account(world).merchant_no == "200099"


def test_former_account_refunds_old_payments(world: World, bare_event: Any) -> None:
    """Payments that an event made with the organizer's former account are still asked about."""
    browser = boss(world)
    saved(browser)
    former = accounts.alias_of_event(event_of(world), testmode=False)
    payment = world.paid_payment()
    type(payment).objects.update(account=former)
    saved(browser, merchant_no="200099")
    assert find_account(former).merchant_no == LIVE["merchant_no"]


def test_wrong_account_is_refused(world: World, bare_event: Any) -> None:
    page = saved(boss(world), base_url="http://pay.example")
    assert "We could not save" in page or "https" in page
    with scopes_disabled():
        assert not accounts.is_complete(Event.objects.get(pk=bare_event.pk), testmode=False)


def test_stranger_cannot_see_organizers_settings(world: World) -> None:
    assert boss(world, may=False).get(PAGE).status_code in (403, 404)
    assert Client().get(PAGE).status_code == 302


def test_history_holds_no_secret(world: World, bare_event: Any) -> None:
    saved(boss(world))
    entry = LogEntry.objects.get(action_type="pretix.organizer.settings")
    assert TOKEN not in entry.data
    assert "payment_tillgate_token" in entry.data


@pytest.mark.parametrize("may", [True, False])
def test_events_page_leads_to_it(world: World, may: bool) -> None:
    browser = boss(world, may=may)
    with scopes_disabled():
        team = Team.objects.get(name="Bosses")
        team.all_events = team.all_event_permissions = True
        team.save()
    assert (f'href="{PAGE}"' in browser.get(FORM).content.decode()) is may
