"""System checks: `manage.py check` reports problems that would lose money or stay hidden until
then, with an id and a remedy.

The checks of the settings read only the settings. The commands `manage.py check --database
default`, `migrate` and `manage.py tillgate doctor` run the checks of the database; before the first
migration these report nothing.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings as project
from django.core import checks, mail
from django.db import DatabaseError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Min
from django.http.request import split_domain_port, validate_host
from django.urls import reverse
from django.utils import timezone

from tillgate import hooks
from tillgate.account import Account
from tillgate.django.conf import Settings, get_settings
from tillgate.django.heartbeats import last_beat
from tillgate.django.models import Order, Payment, database
from tillgate.errors import ConfigurationError
from tillgate.hooks.manager import ENTRY_POINT_GROUP, check_hooks
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES
from tillgate.wire.methods import Method
from tillgate.wire.texts import described
from tillgate.wire.urls import is_https

TAG: Final = "tillgate"

_SMTP: Final = "django.core.mail.backends.smtp.EmailBackend"
_NO_SENDER: Final = "webmaster@localhost"
"""Django's default."""
_SENDING_NOTHING: Final = frozenset(
    f"django.core.mail.backends.{name}.EmailBackend" for name in ("console", "dummy", "filebased")
)
_MYSQL: Final = "mysql"  # Django's name for MariaDB too
_SHARED: Final = ("postgresql", _MYSQL)

_TIME_OUTS: Final = {
    "postgresql": '"OPTIONS": {"options": "-c lock_timeout=30s -c '
    'idle_in_transaction_session_timeout=2min"}',
    _MYSQL: '"OPTIONS": {"init_command": "SET SESSION idle_transaction_timeout = 120"}',
}

Found = Iterator[checks.CheckMessage]


_CLASSES: Final[dict[str, type[checks.Error | checks.Warning]]] = {"error": checks.Error}


_REMEDIES: Final[dict[int, str]] = {}
"""The hints of warnings, by number, in the words of a framework that has settings of its own."""
_NOTES: Final[set[int]] = set()
"""The numbers of warnings that cannot be corrected under a framework: they are notes."""


def report_errors_as_warnings(
    remedies: Mapping[int, str] | None = None,
    notes: Collection[int] = (),
) -> None:
    """Let errors stop no command any more: the framework runs more than payments by its commands.
    The ids stay. `remedies` and `notes` are as above.
    """
    _CLASSES["error"] = checks.Warning
    _REMEDIES.update(remedies or {})
    _NOTES.update(notes)


def _error(number: int, message: str, hint: str) -> checks.CheckMessage:
    return _CLASSES["error"](message, hint=hint, id=f"tillgate.E{number:03}")


def _warning(number: int, message: str, hint: str) -> checks.CheckMessage:
    kind = checks.Info if number in _NOTES else checks.Warning
    return kind(message, hint=_REMEDIES.get(number, hint), id=f"tillgate.W{number:03}")


def _is_for_shoppers() -> bool:
    """Tell whether real shoppers may come: neither in development nor in a test run.

    Django's test runner sets DEBUG to False before the checks, in a shop that develops with the
    sandbox. Its test environment is set up while `mail.outbox` exists.
    """
    return not project.DEBUG and not hasattr(mail, "outbox")


# The settings -------------------------------------------------------------------------------------


def check_settings() -> Found:
    """Whether TILLGATE can be read, and has the default account."""
    try:
        settings = get_settings()
    except ConfigurationError as error:
        yield _error(1, str(error), "Correct TILLGATE in the project's settings.")
        return
    if "default" not in settings.accounts and not _keepers_of_accounts():
        if settings.accounts:
            message = (
                "No account has the alias 'default', which the pay page uses: no payment "
                "can be made there."
            )
            hint = (
                "Name one of ACCOUNTS 'default', or silence this if every start_payment(..., "
                "account=...) names its account."
            )
            yield _warning(13, message, hint)
        else:
            hint = (
                'Add one: TILLGATE = {"ACCOUNTS": {"default": {"BASE_URL": ..., "MERCHANT_NO": '
                '..., "TOKEN": ...}}, ...}.'
            )
            yield _error(2, "There is no account, so no payment can be made.", hint)
    for alias, account in settings.accounts.items():
        if account.sandbox and _is_for_shoppers():
            hint = (
                "Use the live account's BASE_URL, MERCHANT_NO and TOKEN. On a staging site "
                "silence tillgate.E003."
            )
            yield _error(
                3,
                f"Account {alias!r} is a sandbox: with DEBUG off orders would be paid with play "
                "money.",
                hint,
            )
        for finding in _examined(account):
            yield _error(
                16,
                f"Account {alias!r}, {finding.name}: {finding.finding}",
                "Correct TILLGATE['ACCOUNTS'].",
            )
    if settings.payment_methods and settings.accounts:
        taken = {
            method.code for account in settings.accounts.values() for method in _methods_of(account)
        }
        if unknown := [code for code in settings.payment_methods if code not in taken]:
            message = (
                f"TILLGATE['PAYMENT_METHODS'] names {', '.join(unknown)}, which no account takes."
            )
            yield _error(
                15,
                message,
                f"Name some of {', '.join(sorted(taken))}, or add it to the METHODS of an account.",
            )


def _examined(account: Account) -> list[hooks.Finding]:
    """Return the faults that the account's gateway plugin finds in its settings."""
    try:
        hooks.plugin_manager()
    except ConfigurationError:
        return []  # check_plugins reports it
    try:
        hooks.payment_methods(account)
        return [
            finding
            for finding in hooks.examine_account(account, online=False) or ()
            if not finding.passed
        ]
    except Exception as error:  # a plugin may raise anything
        return [
            hooks.Finding(
                name="plugin",
                passed=False,
                finding=f"a plugin raised {described(error)}",
            ),
        ]


def _methods_of(account: Account) -> tuple[Method, ...]:
    with suppress(Exception):  # reported by `_examined`
        return hooks.payment_methods(account)
    return ()


def check_public_url() -> Found:
    """Whether the gateway and shoppers reach Tillgate's pages."""
    settings = _settings()
    if (
        settings
        and not is_https(settings.public_url)
        and _is_for_shoppers()
        and _has_live_account(settings)
    ):
        yield _error(
            4,
            f"PUBLIC_URL {settings.public_url} is not https.",
            "Give the https address under which shoppers see the shop.",
        )
    if settings and _is_for_shoppers():
        host, _ = split_domain_port(urlsplit(settings.public_url).netloc)
        if not validate_host(host, project.ALLOWED_HOSTS):
            message = (
                f"ALLOWED_HOSTS does not have {host!r}, the host of PUBLIC_URL: "
                "notifications and shoppers would get 400."
            )
            hint = (
                "Add it. If a proxy puts another name in its place on the way to Django, "
                "silence this."
            )
            yield _warning(14, message, hint)
    try:
        reverse("tillgate:payment-notification", args=["key"])
    except Exception as error:  # the project's URL configuration may raise anything
        detail = (
            ""
            if type(error).__name__ == "NoReverseMatch"
            else f" ({type(error).__name__}: {error})"
        )
        hint = (
            'Add path("payments/", include("tillgate.django.urls")) to the project\'s '
            "urlpatterns, or the plugin's that include it."
        )
        yield _error(
            5,
            f"Tillgate's pages have no address: notifications and shoppers would get 404{detail}.",
            hint,
        )


def _installed_apps() -> str:
    """Return the shop plugins that are installed, by the usual name of their packages, as a hint
    names them.
    """
    packages = sorted(
        distribution.name.replace("-", "_")
        for distribution in importlib.metadata.distributions()
        if distribution.name.startswith("tillgate-")
        and not distribution.entry_points.select(group=ENTRY_POINT_GROUP)
    )
    return f" (installed: {', '.join(packages)})" if packages else ""


def check_plugins() -> Found:
    """Whether the plugins can be loaded, implement only existing hooks, and implement the hooks
    that a shop needs.
    """
    try:
        manager = hooks.plugin_manager()
        check_hooks(manager)
    except ConfigurationError as error:
        yield _error(
            6,
            str(error),
            "Correct the plugin (the reference lists all hooks), install a version that fits, or "
            "remove it.",
        )
        return
    shops = [
        implementation.plugin_name
        for implementation in manager.hook.tillgate_describe_order.get_hookimpls()
    ]
    if not shops:
        message = (
            "No plugin describes orders (tillgate_describe_order is not implemented), so "
            "none can be paid."
        )
        hint = (
            f"Add the app of the shop plugin to INSTALLED_APPS{_installed_apps()}: its ready() "
            "calls tillgate.shop.register. Mark the plugin's hooks @hookimpl."
        )
        yield _warning(12, message, hint)
    for shop in shops:
        if not hooks.implements(shop, "tillgate_payment_paid"):
            message = (
                f"Plugin {shop!r} describes orders, and tillgate_payment_paid is not "
                "implemented: nothing would mark them paid."
            )
            yield _error(12, message, "Implement it in the plugin, marked @hookimpl.")


def check_mail() -> Found:
    """Whether mail about open reviews has a sender and recipients, and a hanging mail server cannot
    block the worker.
    """
    settings = _settings()
    if settings is None:
        return
    if settings.alert_webhook_url and not settings.review_mail_to and not project.MANAGERS:
        return
    if not settings.review_mail_to and not project.MANAGERS:
        hint = (
            "Set TILLGATE['REVIEW_MAIL_TO'] or MANAGERS, or look at “needs review” in the "
            "admin every day and silence this."
        )
        yield _warning(1, "No mail is sent when a payment needs review.", hint)
    elif project.EMAIL_BACKEND in _SENDING_NOTHING and _is_for_shoppers():
        message = (
            f"No mail is sent when a payment needs review: {project.EMAIL_BACKEND} sends "
            "nothing, and all counts as mailed."
        )
        hint = (
            "Set EMAIL_BACKEND to one that sends, or look at “needs review” in the admin every "
            "day and silence this."
        )
        yield _warning(1, message, hint)
    elif project.EMAIL_BACKEND == _SMTP and project.EMAIL_TIMEOUT is None:
        yield _warning(
            2,
            "A mail server that hangs would hold up the worker for ever.",
            "Set EMAIL_TIMEOUT, to 10 for example.",
        )
    sender = settings.review_mail_from or project.DEFAULT_FROM_EMAIL
    if sender == _NO_SENDER and _is_for_shoppers():
        hint = (
            "Set TILLGATE['REVIEW_MAIL_FROM'] or DEFAULT_FROM_EMAIL to an address of the "
            "shop's own domain."
        )
        yield _warning(
            17,
            f"Mail about reviews comes from {sender}, which mail servers refuse.",
            hint,
        )


# The database, by its settings --------------------------------------------------------------------


def check_database_settings() -> Found:
    """Whether the database is set up to lock, and to keep its connections."""
    if (reads := router.db_for_read(Order)) != database():
        message = (
            f"Tillgate's rows are read from database {reads!r} and written to "
            f"{database()!r}: what was just written may be unseen."
        )
        yield _error(
            11,
            message,
            f"Let the database router read the app `tillgate` from {database()!r} too.",
        )
    connection = connections[database()]
    options = connection.settings_dict.get("OPTIONS") or {}
    if connection.vendor == "sqlite" and str(options.get("transaction_mode", "")).upper() not in (
        "IMMEDIATE",
        "EXCLUSIVE",
    ):
        message = (
            "SQLite transactions begin without the lock for writing: two at once fail with "
            "“database is locked”, whatever the timeout."
        )
        hint = f'In DATABASES["{database()}"] set "OPTIONS": {{"transaction_mode": "IMMEDIATE"}}.'
        yield _warning(4, message, hint)
    if (
        connection.vendor in _SHARED
        and connection.settings_dict.get("CONN_MAX_AGE") == 0
        and not options.get("pool")
    ):
        message = (
            "CONN_MAX_AGE is 0: a connection for every request makes notifications several "
            "times slower."
        )
        yield _warning(
            5,
            message,
            'Set "CONN_MAX_AGE": 60 and "CONN_HEALTH_CHECKS": True, or a connection pool.',
        )
    if connection.vendor in _SHARED and not _is_read_committed(connection, options):
        message = (
            "The isolation level is not “read committed”: what is read under a lock may be older "
            "than the lock."
        )
        hint = (
            "Remove \"isolation_level\" from the database's OPTIONS: Django's own choice is right."
        )
        yield _error(7, message, hint)


def _is_read_committed(connection: BaseDatabaseWrapper, options: Mapping[str, Any]) -> bool:
    """Tell whether each statement sees earlier commits: a refund computes the refundable amount
    after it got the order's lock.
    """
    if "isolation_level" not in options:
        return True
    level = options["isolation_level"]
    if connection.vendor == _MYSQL:
        return isinstance(level, str) and level.lower() == "read committed"
    # only PostgreSQL projects have it installed
    from django.db.backends.postgresql.psycopg_any import (
        IsolationLevel,
    )

    # The numbers are the driver's own; Django refuses all others. PostgreSQL treats "read
    # uncommitted" as "read committed".
    return level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)


# The database, by queries -------------------------------------------------------------------------


def check_database() -> Found:
    """Whether the database keeps confirmed transactions, frees locks, and keeps every letter."""
    connection = connections[database()]
    if connection.vendor == "sqlite" and int(_value(connection, "PRAGMA synchronous") or 0) < 2:
        message = (
            "SQLite does not wait for the disk (synchronous is not FULL): a power cut "
            "may lose a paid order."
        )
        hint = 'Set "OPTIONS": {"init_command": "PRAGMA synchronous=FULL;"}.'
        yield _warning(7, message, hint)
    if missing := _missing_time_outs(connection):
        message = (
            "A transaction that hangs, or whose process is frozen, holds its locks for "
            f"ever: {' and '.join(missing)} is 0."
        )
        hint = (
            f'In DATABASES["{database()}"] set {_TIME_OUTS[connection.vendor]}, longer than a '
            "handler of the shop may take."
        )
        yield _warning(16, message, hint)
    if (
        connection.vendor == _MYSQL
        and (charset := _value(connection, "SELECT @@character_set_connection")) != "utf8mb4"
    ):
        message = (
            f"The connection's character set is {charset}: a text with an emoji in it, of "
            "the gateway's or yours, cannot be kept."
        )
        yield _warning(
            15,
            message,
            f'In DATABASES["{database()}"] set "OPTIONS": {{"charset": "utf8mb4"}}, which is '
            "Django's own.",
        )
    if connection.vendor == _MYSQL and (columns := _columns_without_every_letter(connection)):
        message = (
            f"These columns can keep no emoji, of the gateway's or yours: {', '.join(columns)}."
        )
        hint = (
            "Change each of them: ALTER TABLE ... MODIFY ... CHARACTER SET utf8mb4, with its "
            "type, NULL and default as they are. "
            "Not CONVERT TO, which would take from the tables' keys that they are equal only to "
            "themselves."
        )
        yield _warning(15, message, hint)


def _missing_time_outs(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the time-outs of the database that are off: without them Tillgate cannot free an order
    that a frozen process holds.
    """
    names: tuple[str, ...]
    if connection.vendor == "postgresql":
        names, statement = ("lock_timeout", "idle_in_transaction_session_timeout"), "SHOW {}"
    elif connection.vendor == _MYSQL and getattr(
        connection,
        "mysql_is_mariadb",
        False,
    ):  # MySQL has no such time-out
        names, statement = ("idle_transaction_timeout",), "SELECT @@{}"
    else:
        return []
    return [name for name in names if _value(connection, statement.format(name)) == "0"]


def _value(connection: BaseDatabaseWrapper, statement: str) -> str:
    """Return the value of a setting that a statement reads, or an empty string."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        (value,) = cursor.fetchone() or ("",)
    return str(value)


def _columns_without_every_letter(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the columns that were created with another default character set."""
    models = Payment._meta.apps.get_app_config("tillgate").get_models()
    tables = [model._meta.db_table for model in models]
    places = ", ".join(["%s"] * len(tables))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns "  # noqa: S608  # all are ours
            "WHERE character_set_name <> 'utf8mb4' AND table_schema = DATABASE() "
            f"AND table_name IN ({places})",
            tables,
        )
        return sorted(name for (name,) in cursor.fetchall())


_EPOCH_SECONDS: Final = {
    "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
    # UNIX_TIMESTAMP(NOW(6)) is an hour wrong where the session's time zone ends its summer time.
    "mysql": "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) / 1000000",
}
_CLOCKS_APART_SECONDS: Final = 2.0


def clocks_apart() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's; 0.0 if by few.

    SQLite has this machine's clock.
    """
    connection = connections[database()]
    if (sql := _EPOCH_SECONDS.get(connection.vendor)) is None:
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute(sql)
        apart = float(cursor.fetchone()[0]) - time.time()
    return apart if abs(apart) > _CLOCKS_APART_SECONDS else 0.0


def check_clocks() -> Found:
    """Whether this machine and the database have the same time."""
    if apart := clocks_apart():
        message = (
            f"The database's clock is {abs(apart):.0f} s "
            f"{'ahead of' if apart > 0 else 'behind'} this machine's."
        )
        yield _warning(
            18,
            message,
            "Let NTP set the clocks of all machines: a payment is polled, and an order released, "
            "by them.",
        )


def check_worker() -> Found:
    """Whether the worker runs and keeps up."""
    settings = _settings()
    late = timedelta(minutes=settings.worker_late_minutes if settings else 15)
    now, hint = (
        timezone.now(),
        "Run `manage.py tillgate worker`, `manage.py tillgate worker --once` every minute, or the "
        "Celery tasks.",
    )
    last = last_beat()
    if last is None:
        yield _warning(
            9,
            "The worker has never run: payments with a lost notification would not be found.",
            hint,
        )
    elif now - last > late:
        yield _warning(10, f"The worker ran last {explain_age(now - last)} ago.", hint)
    oldest = Payment.objects.aggregate(due=Min("next_poll_at"))["due"]
    if last is not None and oldest and now - oldest > late:
        message = (
            f"The worker does not keep up: a payment has been due for {explain_age(now - oldest)}."
        )
        yield _warning(
            11,
            message,
            "Run more workers, raise QUERIES_PER_SECOND, or see whether the gateway answers.",
        )


def check_watched() -> Found:
    """Whether the plugin and the account of every open payment are still there."""
    from tillgate.django.accounts import account_of  # here for the same reason

    watched = Payment.objects.filter(status__in=OPEN_PAYMENT_STATUSES).order_by()
    try:
        known = {name for name, plugin in hooks.plugin_manager().list_name_plugin() if plugin}
        get_settings()
    except ConfigurationError:
        return  # the checks of the settings report it
    for plugin in sorted(set(watched.values_list("order__plugin", flat=True).distinct()) - known):
        message = (
            f"Payments are open for orders of plugin {plugin!r}, which is not loaded: "
            "their events could not be delivered."
        )
        hint = f"{hooks.remedy_without(plugin)}, until its payments are settled."
        yield _error(9, message, hint[0].upper() + hint[1:])
    pinned = ("account", "merchant_no", "base_url", "sandbox")
    for fields in watched.values(*pinned).distinct():
        try:
            account_of(Payment(**fields))
        except Exception as error:  # a plugin may raise anything
            detail = str(error) if isinstance(error, ConfigurationError) else type(error).__name__
            message = (
                f"Payments of account {fields['account']!r} are open, and it cannot be "
                f"used: {detail}"
            )
            yield _error(
                10,
                message,
                "Keep an account until its payments are settled; give a new one a new alias.",
            )


def explain_age(age: timedelta) -> str:
    """Return a length of time for people: the two largest units."""
    seconds = max(0, int(age.total_seconds()))
    units = [
        (seconds // 86400, "d"),
        (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "min"),
        (seconds % 60, "s"),
    ]
    first = next((place for place, (count, _) in enumerate(units) if count), len(units) - 1)
    return " ".join(
        f"{count} {unit}"
        for count, unit in units[first : first + 2]
        if count or len(units) - 1 == first
    )


AREAS: Final[Mapping[str, Callable[[], Found]]] = {
    "settings": check_settings,
    "addresses": check_public_url,
    "plugins": check_plugins,
    "mail": check_mail,
    "database settings": check_database_settings,
}
"""The checks without the database, by name."""

DATABASE_AREAS: Final[Mapping[str, Callable[[], Found]]] = {
    "database": check_database,
    "clocks": check_clocks,
    "worker": check_worker,
    "watched payments": check_watched,
}
"""The checks of the database, by name."""


def _settings() -> Settings | None:
    try:
        return get_settings()
    except ConfigurationError:
        return None  # check_settings reports it


def _has_live_account(settings: Settings) -> bool:
    # A plugin that keeps accounts itself checks them itself.
    return any(not account.sandbox for account in settings.accounts.values())


def _keepers_of_accounts() -> bool:
    try:
        return bool(hooks.plugin_manager().hook.tillgate_account.get_hookimpls())
    except ConfigurationError:
        return False  # check_plugins reports it


@checks.register(TAG)
def run_checks(app_configs: Sequence[Any] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check the settings."""
    return (
        [message for area in AREAS.values() for message in area()] if _is_asked(app_configs) else []
    )


@checks.register(TAG, checks.Tags.database)
def run_database_checks(
    app_configs: Sequence[Any] | None,
    databases: Sequence[str] | None,
    **_: Any,
) -> list[checks.CheckMessage]:
    """Check the database; before the first migration there are no messages."""
    if database() not in (databases or ()) or not _is_asked(app_configs):
        return []
    messages: list[checks.CheckMessage] = []
    for area in DATABASE_AREAS.values():
        # no tables yet; Django reports every other problem of the database
        with suppress(DatabaseError):
            messages += area()
    return messages


def _is_asked(app_configs: Sequence[Any] | None) -> bool:
    return app_configs is None or any(config.label == "tillgate" for config in app_configs)
