"""The system checks: each is seen to appear, and to disappear when its hint is followed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from inspect import getsource
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.core.checks import run_checks
from django.db import connection
from django.utils import timezone

from tests.django import project
from tests.django.conftest import World
from tests.test_docs import ROOT, blocks, read, rows
from tillgate import Account, ConfigurationError, hooks
from tillgate.django import checks
from tillgate.django.models import Heartbeat, Payment
from tillgate.django.operating import findings
from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.shop import report_errors_as_warnings

LIVE = {"BASE_URL": "https://pay.example", "MERCHANT_NO": "200043", "TOKEN": PUBLISHED_TEST_TOKEN}
SHOP = "https://shop.example"


def told() -> dict[str, str]:
    """Return the checks' messages, by id."""
    messages = run_checks(tags=[checks.TAG], databases=["default"])
    assert all(message.hint for message in messages)
    return {
        str(message.id).removeprefix("tillgate."): f"{message.msg} {message.hint}"
        for message in messages
    }


@pytest.fixture
def sound(settings: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings without a fault, for any database that the tests run on, outside of a test
    environment.
    """
    monkeypatch.delattr(mail, "outbox")
    settings.TILLGATE = {
        "ACCOUNTS": {"default": LIVE},
        "PUBLIC_URL": SHOP,
        "REVIEW_MAIL_TO": ["owner@shop.example"],
    }
    settings.EMAIL_TIMEOUT = 10
    world.run_worker()
    with database("sqlite", {"transaction_mode": "IMMEDIATE"}, pragma=2):
        yield settings


@contextmanager
def database(
    vendor: str,
    options: dict[str, Any] | None = None,
    *,
    age: int | None = 60,
    pragma: int = 2,
    charset: str = "utf8mb4",
    poor: tuple[str, ...] = (),
    time_outs: tuple[object, object] = ("30s", "2min"),
    is_mariadb: bool = True,
) -> Iterator[None]:
    """Let the checks see another database."""
    asked = list[str]()
    answers = {
        "character_set_connection": charset,
        "PRAGMA": pragma,
        "idle_in_transaction_session_timeout": time_outs[1],
        "idle_transaction_timeout": time_outs[1],
        "lock_timeout": time_outs[0],
        "UTC_TIMESTAMP": time.time(),
        "clock_timestamp": time.time(),
    }
    rows = {"character_set_name": poor}

    def said(known: dict[str, Any]) -> Any:
        return next(value for word, value in known.items() if word in asked[-1])

    cursor = SimpleNamespace(
        execute=lambda sql, *_: asked.append(sql),
        fetchone=lambda: (said(answers),),
        fetchall=lambda: [(name,) for name in said(rows)],
    )

    @contextmanager
    def opened() -> Iterator[Any]:
        yield cursor

    seen = SimpleNamespace(
        vendor=vendor,
        display_name=vendor,
        settings_dict={"OPTIONS": options or {}, "CONN_MAX_AGE": age},
        cursor=opened,
        mysql_is_mariadb=is_mariadb,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "connections", {"default": seen})
        yield


def test_nothing_is_said_when_all_is_well(sound: Any) -> None:
    assert told() == {}


# The settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "TILLGATE"),
        ({"ACCOUNTS": {"default": LIVE}}, "PUBLIC_URL"),
        ({"ACCOUNTS": {"default": LIVE}, "PUBLIC_URL": SHOP, "METHOD": []}, "METHOD"),
        (
            {"ACCOUNTS": {"default": {**LIVE, "TOKEN": " canary-token"}}, "PUBLIC_URL": SHOP},
            "TILLGATE['ACCOUNTS']['default']['TOKEN']: ",
        ),
        (
            {"ACCOUNTS": {"default": {**LIVE, "TOKKEN": "canary-token"}}, "PUBLIC_URL": SHOP},
            "'TOKKEN' is not a setting: did you mean 'TOKEN'?",
        ),
        (
            {
                "ACCOUNTS": {
                    "default": {**LIVE, "BASE_URL": "https://ann:canary-token@pay.example"},
                },
                "PUBLIC_URL": SHOP,
            },
            "TILLGATE['ACCOUNTS']['default']['BASE_URL']: ",
        ),
        ({"ACCOUNTS": "canary-token", "PUBLIC_URL": SHOP}, "ACCOUNTS"),
        ({"ACCOUNTS": {"default": LIVE}, "PUBLIC_URL": "shop.example"}, "PUBLIC_URL"),
    ],
)
def test_e001_wrong_settings_show_no_secret(
    sound: Any,
    wrong: Any,
    says: str,
) -> None:
    """They are reported without a traceback as well."""
    sound.TILLGATE = wrong
    found = told()
    assert set(found) == {"E001"}
    assert says in found["E001"]
    assert "canary" not in found["E001"]


def test_e002_no_account(sound: Any) -> None:
    sound.TILLGATE = {**sound.TILLGATE, "ACCOUNTS": {}}
    assert set(told()) == {"E002"}

    with plugged("keeper", tillgate_account):
        assert told() == {}


def test_e003_a_sandbox_account_with_debug_off(sound: Any) -> None:
    sound.TILLGATE = {
        **sound.TILLGATE,
        "ACCOUNTS": {"default": LIVE, "toy": {**LIVE, "SANDBOX": True}},
    }
    found = told()
    assert set(found) == {"E003"}
    assert "'toy'" in found["E003"]
    sound.DEBUG = True
    assert told() == {}


def test_e003_is_silent_in_a_test_environment(sound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sound.TILLGATE = {**sound.TILLGATE, "ACCOUNTS": {"default": {**LIVE, "SANDBOX": True}}}
    monkeypatch.setattr(mail, "outbox", [], raising=False)
    assert told() == {}


SHOP_SETTINGS = """
from pathlib import Path

DEBUG = True
SECRET_KEY = "only for tests"
ALLOWED_HOSTS = []
ROOT_URLCONF = "urls"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "shop.sqlite3"}}
"""
SHOP_TEST = """
from django.test import TestCase


class ShopTest(TestCase):
    def test_shop(self) -> None:
        self.assertEqual(self.client.get("/").status_code, 404)
"""


def test_manage_py_test_runs_on_sandbox(tmp_path: Path) -> None:
    added = next(
        code
        for code in blocks(read("docs/tutorial/your-own-shop.md"), "python")
        if "TILLGATE = {" in code
    )
    (tmp_path / "settings.py").write_text(
        SHOP_SETTINGS + added.replace("smallest_shop.", "tests.smallest_shop."),
        "utf-8",
    )
    (tmp_path / "urls.py").write_text(
        'from django.urls import include, path\n\nurlpatterns = [path("payments/", '
        'include("tillgate.django.urls"))]\n',
        "utf-8",
    )
    (tmp_path / "test_shop.py").write_text(SHOP_TEST, "utf-8")
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "django", "test"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Ran 1 test" in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_e004_public_address_without_https(sound: Any) -> None:
    sound.TILLGATE = {**sound.TILLGATE, "PUBLIC_URL": "http://shop.example"}
    assert set(told()) == {"E004"}
    sound.DEBUG = True
    assert told() == {}
    sound.DEBUG = False
    sound.SILENCED_SYSTEM_CHECKS = ["tillgate.E003"]
    sound.TILLGATE = {**sound.TILLGATE, "ACCOUNTS": {"default": {**LIVE, "SANDBOX": True}}}
    assert set(told()) == {"E003"}  # only play money can be lost


@pytest.mark.parametrize(
    ("public_url", "hosts", "found"),
    [
        (SHOP, ["www.shop.example"], {"W014"}),
        (SHOP, [], {"W014"}),
        (SHOP, ["shop.example"], set()),
        (SHOP, [".example"], set()),
        ("https://Shop.example:8443/pay", ["shop.example"], set()),
        ("https://[::1]:8443", ["[::1]"], set()),
    ],
)
def test_w014_public_address_django_would_refuse(
    sound: Any,
    public_url: str,
    hosts: list[str],
    found: set[str],
) -> None:
    sound.TILLGATE = {**sound.TILLGATE, "PUBLIC_URL": public_url}
    sound.ALLOWED_HOSTS = hosts
    assert set(told()) == found
    sound.DEBUG = True
    assert told() == {}


def test_e005_tillgates_pages_have_no_address(sound: Any) -> None:
    sound.ROOT_URLCONF = "django.contrib.staticfiles.urls"
    assert set(told()) == {"E005"}
    sound.ROOT_URLCONF = "no.such.module"
    assert "ModuleNotFoundError" in told()["E005"]
    sound.ROOT_URLCONF = project.ROOT_URLCONF
    assert told() == {}


def test_e006_a_plugin_that_cannot_be_loaded(sound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ConfigurationError("plugin", "tillgate-oscar", "could not be loaded: ImportError")

    with monkeypatch.context() as patch:
        patch.setattr("tillgate.hooks.plugin_manager", broken)
        found = told()
    assert set(found) == {"E006"}
    assert "tillgate-oscar" in found["E006"]
    assert told() == {}


@contextmanager
def plugged(name: str, *functions: Callable[..., Any]) -> Iterator[None]:
    """Register a plugin as an app does when it is ready: with the manager that is built already."""
    plugin = ModuleType(name)
    vars(plugin).update({function.__name__: function for function in functions})
    hooks.plugin_manager().register(plugin, name=name)
    try:
        yield
    finally:
        hooks.plugin_manager().unregister(plugin)


@hooks.hookimpl
def tillgate_payment_payed(payment: hooks.Payment) -> None:
    return None


@hooks.hookimpl
def tillgate_describe_order(order_key: str) -> None:
    return None


@hooks.hookimpl
def tillgate_account(alias: str) -> None:
    return None


def test_e006_misspelt_hook_of_registered_plugin(sound: Any) -> None:
    """The plugin was registered by its app."""
    with plugged("bookshop", tillgate_payment_payed):
        found = told()
    assert set(found) == {"E006"}
    assert "bookshop" in found["E006"]
    assert "tillgate_payment_payed" in found["E006"]
    assert told() == {}


def test_e012_no_plugin_marks_orders_paid(sound: Any) -> None:
    def tillgate_payment_paid(payment: hooks.Payment) -> hooks.PaidOutcome:
        return hooks.PaidOutcome.APPLIED

    # the second without its mark
    with plugged("bookshop", tillgate_describe_order, tillgate_payment_paid):
        found = told()
    assert set(found) == {"E006"}
    assert "'bookshop' cannot be used: tillgate_payment_paid has no mark" in found["E006"]
    with plugged("bookshop", tillgate_describe_order):
        found = told()
    assert set(found) == {"E012"}
    assert "'bookshop'" in found["E012"]
    assert "tillgate_payment_paid is not implemented" in found["E012"]
    with plugged("bookshop", tillgate_describe_order, hooks.hookimpl(tillgate_payment_paid)):
        assert told() == {}


def test_w012_no_plugin_describes_orders(sound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, alone = (
        hooks.plugin_manager().get_plugin("smallest-shop"),
        hooks.build_plugin_manager(entry_points=False),
    )
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: alone)
    monkeypatch.setattr("tillgate.hooks.manager.plugin_manager", lambda: alone)
    assert set(told()) == {"W012"}
    alone.register(shop, name="smallest-shop")
    assert told() == {}


def test_w013_no_account_for_pay_page(sound: Any) -> None:
    sound.TILLGATE = {**sound.TILLGATE, "ACCOUNTS": {"asia": LIVE}}
    assert set(told()) == {"W013"}
    with plugged("keeper", tillgate_account):
        assert told() == {}
    sound.TILLGATE = {**sound.TILLGATE, "ACCOUNTS": {"asia": LIVE, "default": LIVE}}
    assert told() == {}


@pytest.mark.parametrize(
    ("installed", "urls", "says"),
    [
        # no address is needed to find it
        (
            ["tillgate"],
            "tillgate",
            "it has 'tillgate', which is the library",
        ),
        (
            ["tillgate", "tillgate.django"],
            "tillgate.django.urls",
            "it has 'tillgate', which is the library",
        ),
        ([], "tillgate.django.urls", "it is missing"),
    ],
)
def test_library_instead_of_app_is_refused(
    installed: list[str],
    urls: str,
    says: str,
) -> None:
    """This is said before anything else."""
    code = (
        "from django.conf import settings; import django; "
        f"settings.configure(INSTALLED_APPS={installed!r}, ROOT_URLCONF={urls!r}); django.setup(); "
        "from django.core.management import call_command; call_command('check')"
    )
    # our own line
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "django.core.exceptions.ImproperlyConfigured: Tillgate needs its Django app: put "
        "'tillgate.django' into INSTALLED",
    )
    assert says in last


def test_w001_nobody_is_mailed(sound: Any) -> None:
    sound.TILLGATE = {**sound.TILLGATE, "REVIEW_MAIL_TO": []}
    sound.MANAGERS = []
    assert set(told()) == {"W001"}
    sound.MANAGERS = [("Ann", "ann@shop.example")]
    assert told() == {}


@pytest.mark.parametrize("backend", ["console", "dummy", "filebased"])
def test_w001_mail_that_nobody_gets(sound: Any, backend: str) -> None:
    sound.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    assert "sends nothing" in told()["W001"]
    sound.DEBUG = True
    assert "W001" not in told()


def test_w017_mail_about_reviews_comes_from_nowhere(sound: Any) -> None:
    sound.DEFAULT_FROM_EMAIL = "webmaster@localhost"
    assert "webmaster@localhost" in told()["W017"]
    sound.TILLGATE = {**sound.TILLGATE, "REVIEW_MAIL_FROM": "payments@shop.example"}
    assert told() == {}


def test_w002_a_mail_server_that_may_hang(sound: Any) -> None:
    sound.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    assert told() == {}
    sound.EMAIL_TIMEOUT = None
    assert set(told()) == {"W002"}


def test_w018_clocks_that_differ(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    assert list(checks.check_clocks()) == []
    for seconds, said in ((3, "3 s ahead of"), (-60, "60 s behind")):
        monkeypatch.setitem(
            checks._EPOCH_SECONDS,
            connection.vendor,
            f"SELECT {time.time() + seconds:.3f}",
        )
        (message,) = checks.check_clocks()
        assert message.id == "tillgate.W018"
        assert said in message.msg


# The database, by its settings --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "found"),
    [(None, {"W004"}), ("DEFERRED", {"W004"}), ("immediate", set()), ("EXCLUSIVE", set())],
)
def test_w004_sqlite_without_immediate_transactions(
    sound: Any,
    mode: str | None,
    found: set[str],
) -> None:
    with database("sqlite", {"transaction_mode": mode} if mode else {}):
        assert set(told()) == found


@pytest.mark.parametrize(
    ("vendor", "time_outs", "missing"),
    [
        ("postgresql", ("0", "2min"), ["lock_timeout"]),
        ("postgresql", ("30s", "0"), ["idle_in_transaction_session_timeout"]),
        ("postgresql", ("0", "0"), ["lock_timeout", "idle_in_transaction_session_timeout"]),
        ("mysql", (50, 0), ["idle_transaction_timeout"]),
        ("mysql", (50, 120), []),
    ],
)
def test_w016_hanging_transaction_keeps_its_locks(
    sound: Any,
    vendor: str,
    time_outs: tuple[object, object],
    missing: list[str],
) -> None:
    with database(vendor, time_outs=time_outs):
        said = told()
        assert set(said) == ({"W016"} if missing else set())
        assert all(name in str(said["W016"]) for name in missing)
    with database(vendor, time_outs=time_outs, is_mariadb=False):
        assert set(told()) == (set() if vendor == "mysql" else {"W016"})


@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
def test_w005_a_connection_for_every_request(sound: Any, vendor: str) -> None:
    with database(vendor, age=0):
        assert set(told()) == {"W005"}
    for age in (60, None):
        with database(vendor, age=age):
            assert told() == {}
    with database(vendor, {"pool": True}, age=0):
        assert told() == {}


@pytest.mark.parametrize(
    ("vendor", "level", "is_right"),
    [
        ("mysql", "read committed", True),
        ("mysql", "Read Committed", True),
        ("mysql", "repeatable read", False),
        ("mysql", None, False),
        ("postgresql", 2, True),
        ("postgresql", 3, False),
        ("postgresql", 4, False),
        ("postgresql", 1, True),
        ("postgresql", 7, False),
        ("postgresql", "serializable", False),
        ("postgresql", None, False),
        ("sqlite", 4, True),
    ],
)
def test_e007_isolation_with_stale_locked_reads(
    sound: Any,
    vendor: str,
    level: object,
    is_right: bool,
) -> None:
    """Rows read under a lock may be old."""
    with database(vendor, {"isolation_level": level, "transaction_mode": "IMMEDIATE"}):
        assert set(told()) == (set() if is_right else {"E007"})


@pytest.mark.parametrize(("level", "is_right"), [(1, True), (2, False), (3, False), (4, True)])
def test_e007_levels_come_from_installed_driver(
    sound: Any,
    monkeypatch: pytest.MonkeyPatch,
    level: int,
    is_right: bool,
) -> None:
    psycopg2 = {"READ_COMMITTED": 1, "REPEATABLE_READ": 2, "SERIALIZABLE": 3, "READ_UNCOMMITTED": 4}
    monkeypatch.setattr(
        "django.db.backends.postgresql.psycopg_any.IsolationLevel",
        IntEnum("IsolationLevel", psycopg2),
    )
    with database("postgresql", {"isolation_level": level}):
        assert set(told()) == (set() if is_right else {"E007"})


def test_e007_a_database_whose_isolation_nobody_set(sound: Any) -> None:
    for vendor in ("mysql", "postgresql"):
        with database(vendor):
            assert told() == {}


# The database, by looking -------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "found"), [(0, {"W007"}), (1, {"W007"}), (2, set()), (3, set())])
def test_w007_sqlite_without_waiting_for_disk(
    sound: Any,
    level: int,
    found: set[str],
) -> None:
    with database("sqlite", {"transaction_mode": "IMMEDIATE"}, pragma=level):
        assert set(told()) == found


def test_the_database_itself_is_looked_at(settings: Any, world: World) -> None:
    """The checks above see stand-ins; here they ask the real one."""
    settings.TILLGATE = {
        "ACCOUNTS": {"default": LIVE},
        "PUBLIC_URL": SHOP,
        "REVIEW_MAIL_TO": ["owner@shop.example"],
    }
    world.run_worker()
    assert set(told()) <= {"W005", "W007"}  # how the tests' own databases are set up
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous")
            before = cursor.fetchone()[0]
            for level in (1, 2):
                cursor.execute(f"PRAGMA synchronous={level}")
                assert ("W007" in told()) == (level < 2)
            cursor.execute(f"PRAGMA synchronous={before}")
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            assert "W015" not in told()
            cursor.execute(
                "ALTER TABLE tillgate_order MODIFY plugin varchar(64) CHARACTER SET utf8mb3 NOT "
                "NULL",
            )
            assert "tillgate_order.plugin" in told()["W015"]
            cursor.execute(
                "ALTER TABLE tillgate_order MODIFY plugin varchar(64) CHARACTER SET utf8mb4 NOT "
                "NULL",
            )
        assert "W015" not in told()


def test_w009_w010_worker_missing_or_away(sound: Any, world: World) -> None:
    """The worker never ran, or is away."""
    Heartbeat.objects.all().delete()
    assert set(told()) == {"W009"}
    world.run_worker()
    assert told() == {}
    world.time.advance(minutes=16)
    assert "16 min" in told()["W010"]
    sound.TILLGATE = {**sound.TILLGATE, "WORKER_LATE_MINUTES": 20}
    assert told() == {}


def test_w011_worker_falls_behind(
    sound: Any,
    world: World,
    configure: Callable[..., None],
) -> None:
    silenced = sound.TILLGATE
    configure()
    payment = world.start(world.order())
    Payment.objects.filter(pk=payment.pk).update(
        status="failed",
        next_poll_at=timezone.now() - timedelta(hours=2),
    )
    sound.TILLGATE = silenced
    assert "2 h" in told()["W011"]
    configure()
    world.run_worker()
    sound.TILLGATE = silenced
    assert told() == {}


def test_e009_plugin_of_open_payment_missing(
    sound: Any,
    world: World,
    configure: Callable[..., None],
) -> None:
    mine = sound.TILLGATE
    configure()
    payment = world.start(world.order())
    sound.TILLGATE = mine
    payment.order.plugin = "gone"
    payment.order.save()
    pinned = {"merchant_no": LIVE["MERCHANT_NO"], "base_url": LIVE["BASE_URL"], "sandbox": False}
    Payment.objects.update(**pinned)
    assert set(told()) == {"E009"}
    Payment.objects.update(status="paid")
    assert told() == {}


@pytest.mark.parametrize(
    "change",
    [
        {"merchant_no": "1"},
        {"base_url": "https://old.example"},
        {"sandbox": True},
        {"account": "gone"},
    ],
)
def test_e010_account_of_open_payment_changed(
    world: World,
    sound: Any,
    configure: Callable[..., None],
    change: Any,
) -> None:
    mine = sound.TILLGATE
    configure()
    world.start(world.order())
    sound.TILLGATE = mine
    Payment.objects.update(
        merchant_no=LIVE["MERCHANT_NO"],
        base_url=LIVE["BASE_URL"],
        sandbox=False,
    )
    assert told() == {}
    Payment.objects.update(**change)
    found = told()
    assert set(found) == {"E010"}
    assert PUBLISHED_TEST_TOKEN not in found["E010"]


def test_unmigrated_database_raises_no_complaint(
    sound: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django.db import ProgrammingError

    def no_table() -> Any:
        raise ProgrammingError('relation "tillgate_heartbeat" does not exist')

    monkeypatch.setattr(checks, "DATABASE_AREAS", {"worker": no_table})
    assert told() == {}


def test_database_untouched_unless_asked_for(sound: Any) -> None:
    Heartbeat.objects.all().delete()
    assert [message.id for message in run_checks(tags=[checks.TAG])] == []


# The documentation --------------------------------------------------------------------------------


def ids() -> list[str]:
    found = re.findall(r"_(error|warning)\(\s*(\d+),", getsource(checks))
    return sorted({f"tillgate.{kind[0].upper()}{int(number):03}" for kind, number in found})


def test_every_check_is_explained_and_no_other() -> None:
    assert list(rows(read("docs/reference/checks.md"))) == ids()


class ReadsAReplica:
    def db_for_read(self, model: Any, **_: Any) -> str:
        return "replica"


def test_e011_replica_hides_recent_writes(sound: Any) -> None:
    sound.DATABASE_ROUTERS = ["tests.django.test_checks.ReadsAReplica"]
    assert next(iter(checks.check_database_settings())).id == "tillgate.E011"


@pytest.mark.parametrize(
    ("charset", "found"),
    [("utf8mb3", {"W015"}), ("utf8", {"W015"}), ("latin1", {"W015"}), ("utf8mb4", set())],
)
def test_w015_connection_cannot_carry_every_letter(
    sound: Any,
    charset: str,
    found: set[str],
) -> None:
    with database("mysql", charset=charset):
        assert set(told()) == found


def test_w015_columns_that_cannot_keep_every_letter(sound: Any) -> None:
    with database("mysql", poor=("tillgate_refund.answer",)):
        assert "tillgate_refund.answer" in told()["W015"]


def test_e015_method_that_no_account_takes(sound: Any, settings: Any) -> None:
    settings.TILLGATE = {**settings.TILLGATE, "PAYMENT_METHODS": ["alipay", "gold"]}
    found = told()
    assert set(found) == {"E015"}
    assert "gold" in found["E015"]


def test_e016_setting_refused_by_gateway_plugin(sound: Any) -> None:
    @hooks.hookimpl(wrapper=True)
    def tillgate_examine_account(
        account: Account, online: bool
    ) -> Generator[None, None, list[hooks.Finding]]:
        assert not online, "a system check uses no network"
        yield
        wrong = hooks.Finding(name="token", passed=False, finding="it is a test key")
        return [hooks.Finding(name="base_url", passed=True, finding="right"), wrong]

    with plugged("elsewhere", tillgate_examine_account):
        found = told()
    assert set(found) == {"E016"}
    assert "'default', token: it is a test key" in found["E016"]
    assert "base_url" not in found["E016"]


@pytest.mark.parametrize("name", ["tillgate_examine_account", "tillgate_payment_methods"])
def test_e016_raising_plugin_stops_no_check(sound: Any, name: str) -> None:
    @hooks.hookimpl(wrapper=True)
    def raising(account: Account) -> Iterator[None]:
        yield from ()
        raise ZeroDivisionError

    raising.__name__ = name
    with plugged("elsewhere", raising):
        found = told()
    assert set(found) == {"E016"}
    assert "ZeroDivisionError" in found["E016"]


def test_every_check_has_a_test_here() -> None:
    with open(__file__, encoding="utf-8") as source:
        named = set(
            re.findall(
                r"[ew]\d{3}",
                " ".join(re.findall(r"^def test_\w+", source.read(), re.MULTILINE)),
            ),
        )
    assert named == {one.removeprefix("tillgate.").lower() for one in ids()}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (7200, "2 h"),
        (7260, "2 h 1 min"),
        (90_000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_age_uses_two_largest_units(seconds: int, text: str) -> None:
    assert checks.explain_age(timedelta(seconds=seconds)) == text


def test_framework_gives_its_own_remedies(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "_CLASSES", dict(checks._CLASSES))
    monkeypatch.setattr(checks, "_REMEDIES", {})
    monkeypatch.setattr(checks, "_NOTES", set())
    settings.MANAGERS = []
    before = {message.id: message.level for message in checks.check_mail()}
    report_errors_as_warnings(remedies={1: "Ask the host."}, notes=[1])
    (message,) = checks.check_mail()
    assert (message.hint, before[message.id] > message.level) == ("Ask the host.", True)
    found = findings._found("mail", [message])
    assert (found.passed, "Ask the host." in found.finding) == (True, True)
