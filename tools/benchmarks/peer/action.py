"""The peer's actions in a process of its own, by `tools.benchmarks.acts`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tools.benchmarks.peer.events import KEY, SECRET, UNHANDLED, event
from tools.benchmarks.peer.models import Effect


def create() -> str:
    """Create the database with an account and an endpoint, as a synchronised project has them;
    return the endpoint's path.
    """
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    models = import_module("djstripe.models")
    account = models.Account.objects.create(id="acct_benchmark", livemode=False)
    key = {"id": "sk_benchmark", "type": "secret", "secret": KEY, "livemode": False}
    models.APIKey.objects.create(**key, djstripe_owner_account=account)
    endpoint = models.WebhookEndpoint.objects.create(
        id="we_benchmark",
        livemode=False,
        secret=SECRET,
        url="https://shop.example/stripe/webhook/",
        enabled_events=["*"],
        status="enabled",
        djstripe_owner_account=account,
    )
    return reverse("djstripe:djstripe_webhook_by_uuid", args=[endpoint.djstripe_uuid])


def rest() -> None:
    """Let go of the database, so that only the web server has it."""
    connection.close()


def destroy() -> None:
    """Remove the database."""
    connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def statements(path: str) -> dict[str, list[int]]:
    """Count the statements of an event that comes for the first time, and of its repetition, by the
    kind of event.
    """
    return {
        kind: [_counted(path, kind), _counted(path, kind)]
        for kind in ("payment_intent.succeeded", UNHANDLED)
    }


def _counted(path: str, kind: str) -> int:
    head, _, body = event(f"counted_{kind}", path, kind).decode().partition("\r\n\r\n")
    signature = head.rpartition("Stripe-Signature: ")[2]
    with CaptureQueriesContext(connection) as captured:
        answer = Client().post(
            path,
            body,
            content_type="application/json",
            headers={"Stripe-Signature": signature},
        )
    assert answer.status_code == 200, answer.status_code
    uncounted = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")
    return sum(not query["sql"].startswith(uncounted) for query in captured.captured_queries)


def effects() -> dict[str, int]:
    """Count the effects and the payments that had one."""
    return {
        "effects": Effect._default_manager.count(),
        "orders": Effect._default_manager.values("order_key").distinct().count(),
    }


ACTIONS: Final[dict[str, Callable[..., Any]]] = {
    action.__name__: action for action in (create, rest, destroy, statements, effects)
}
"""The actions, by name."""
