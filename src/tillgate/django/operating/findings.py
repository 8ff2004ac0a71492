"""The doctor of a project: every check of the settings and the database, and of each account by a
signed query that moves no money.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from django.core.checks import ERROR, WARNING, CheckMessage, run_checks
from django.core.checks.registry import registry
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.urls import NoReverseMatch
from django.utils import timezone

from tillgate import account_checks
from tillgate.configuration import Configured
from tillgate.django import checks
from tillgate.django.accounts import find_account
from tillgate.django.conf import get_settings
from tillgate.django.heartbeats import last_beat
from tillgate.django.models import Payment, Review, database
from tillgate.django.payments.admission import open_refusals
from tillgate.django.payments.refusals import rejected_since
from tillgate.django.worker.run import queue
from tillgate.errors import ConfigurationError, TillgateError
from tillgate.hooks import Finding
from tillgate.wire.texts import described


class Warned(Finding):
    """A finding that did not pass, and of which nothing is wrong enough for an error."""


def examine() -> Iterator[Finding]:
    """Check the settings, the accounts and the database, in this order; yield each finding as it
    arrives.
    """
    for name, area in checks.AREAS.items():
        yield _found(name, area())
    yield from _accounts()
    migrations = _migrations()
    yield migrations
    if not migrations.passed:
        return
    for name, area in checks.DATABASE_AREAS.items():
        yield _found(name, area(), _worker() if name == "worker" else "in order")
    # the app labels of shop plugins
    for label in sorted(tag for tag in registry.tags_available() if tag.startswith("tillgate_")):
        yield _found(label, run_checks(tags=[label], databases=[database()]))
    yield from _refusals()
    yield _due_work()
    yield from _refused_notifications()
    yield _reviews()


def _found(name: str, messages: Iterable[CheckMessage], well: str = "in order") -> Finding:
    """Return the messages of a check as one finding, without those that the project has
    silenced. Notes do not fail it.
    """
    found = [message for message in messages if not message.is_silenced()]
    text = " ".join(f"{one.msg} {one.hint or ''} ({one.id})" for one in found)
    highest = max((one.level for one in found), default=0)
    kind = Warned if WARNING <= highest < ERROR else Finding
    return kind(name=name, passed=highest < WARNING, finding=text or well)


def _accounts() -> Iterator[Finding]:
    try:
        get_settings()
    except ConfigurationError:
        return  # reported already
    for alias in accounts_in_use():
        yield from examine_account(alias)


def accounts_in_use() -> list[str]:
    """Return every account of the settings, and the accounts from plugins that have open
    payments.
    """
    aliases = list(get_settings().accounts)
    with suppress(DatabaseError):  # reported by another check
        watched = Payment.objects.filter(next_poll_at__isnull=False).order_by()
        aliases += sorted(set(watched.values_list("account", flat=True).distinct()) - set(aliases))
    return aliases


def examine_account(
    alias: str,
    *,
    deadline_seconds: float | None = None,
    attempts: int | None = None,
) -> Iterator[Finding]:
    """Check one account with a signed query that moves no money, bounded as in `Gateway.query`."""
    try:
        account = find_account(alias)
    except Exception as error:  # a plugin may raise anything
        fault = (
            f"a plugin that was asked for it raised {described(error)}: correct it, or remove it"
        )
        yield Finding(
            name=f"account {alias}",
            passed=False,
            finding=str(error) if isinstance(error, TillgateError) else fault,
        )
        return
    source = (
        f"TILLGATE['ACCOUNTS'][{alias!r}]"
        if alias in get_settings().accounts
        else "kept by a plugin"
    )
    configured = Configured(
        account=account,
        sources=dict.fromkeys(("base_url", "merchant_no", "token"), source),
    )
    for check in account_checks.examine(
        configured,
        deadline_seconds=deadline_seconds,
        attempts=attempts,
        webhook_url=_webhook_url(alias),
    ):
        if check.name != "plugins":  # they are the project's, not an account's
            yield Finding(name=f"{alias}: {check.name}", passed=check.passed, finding=check.finding)


def _webhook_url(alias: str) -> str | None:
    with suppress(ConfigurationError, NoReverseMatch):  # reported already
        return get_settings().address("tillgate:webhook", alias)
    return None


def _migrations() -> Finding:
    try:
        executor = MigrationExecutor(connections[database()])
        plan = executor.migration_plan(
            [key for key in executor.loader.graph.leaf_nodes() if key[0] == "tillgate"],
        )
    except DatabaseError as error:
        return Finding(
            name="migrations",
            passed=False,
            finding=f"the database {database()!r} cannot be read: {type(error).__name__}",
        )
    if plan:
        names = ", ".join(migration.name for migration, _ in plan)
        return Finding(
            name="migrations",
            passed=False,
            finding=f"not applied: {names}. Run `manage.py migrate`.",
        )
    return Finding(name="migrations", passed=True, finding="all applied")


def _worker() -> str:
    last = last_beat()
    return f"ran last {checks.explain_age(timezone.now() - last)} ago" if last else "has never run"


def _refusals() -> Iterator[Finding]:
    for review in open_refusals().order_by("account"):
        yield Finding(name=f"{review.account}: new payments", passed=False, finding=review.message)


def _due_work() -> Finding:
    """Count the due work of each chore; the worker's check reports work that waits too long."""
    now = timezone.now()
    waiting = [one for one in queue() if one.waiting]
    found = [
        f"{one.chore.name} {one.waiting}, since {checks.explain_age(now - one.oldest)}"
        for one in waiting
        if one.oldest
    ]
    return Finding(name="due work", passed=True, finding="; ".join(found) or "none")


def _refused_notifications() -> Iterator[Finding]:
    """Report accounts that refused all of their newest notifications: their secret is wrong."""
    try:
        get_settings()
    except ConfigurationError:
        return  # reported already
    for alias in accounts_in_use():
        if refused := rejected_since(alias):
            age = checks.explain_age(timezone.now() - refused[0])
            finding = (
                f"the newest {len(refused)} were signed with none of the account's secrets, the "
                f"last {age} ago: "
                "if the gateway sent them, correct TOKEN or WEBHOOK_SECRETS"
            )
            yield Finding(name=f"notifications of {alias}", passed=False, finding=finding)


def _reviews() -> Finding:
    count = Review.objects.filter(resolved_at__isnull=True).count()
    finding = f"{count} open: see “needs review” in the admin" if count else "nothing needs review"
    return Finding(name="reviews", passed=not count, finding=finding)
