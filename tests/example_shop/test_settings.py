"""The settings to copy: the shop's checks find nothing, in the demonstration and in production."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANAGE = ROOT / "example_shop" / "manage.py"
PRODUCTION = {
    "DJANGO_SETTINGS_MODULE": "example_shop.production",
    "SHOP_HOST": "www.fold-and-margin.example",
    "SHOP_SECRET_KEY": "tZ4kB8uQw1eR6yN3mC7vX0pL9sD2fG5hJ-aK_iOoPqWzExRcTvYb",
    "SHOP_GATEWAY_URL": "https://pay.example",
    "SHOP_MERCHANT_NO": "200043",
    "SHOP_PAYMENT_TOKEN": "5cbfb079f15b150122261c8537086d77a",
    "SHOP_OWNER_MAIL": "owner@fold-and-margin.example",
    "SHOP_BROKER_URL": "amqp://guest:guest@127.0.0.1:5672//",
}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SHOP_") and name != "DJANGO_SETTINGS_MODULE"
    }
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**clean, **environment},
        cwd=ROOT,
        timeout=120,
        check=False,
    )


def test_the_demonstrations_settings_pass_every_check() -> None:
    done = run(str(MANAGE), "check")
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout


def test_migrate_creates_missing_database_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "not" / "yet")
    done = run(str(MANAGE), "migrate", "contenttypes", "--verbosity", "0", SHOP_VAR=folder)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "not" / "yet" / "shop.sqlite3").is_file()


def test_production_settings_pass_deployment_checks() -> None:
    done = run(str(MANAGE), "check", "--deploy", "--fail-level", "INFO", **PRODUCTION)
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout


@pytest.mark.parametrize(
    "name",
    [name for name in PRODUCTION if name not in ("DJANGO_SETTINGS_MODULE", "SHOP_BROKER_URL")],
)
def test_production_requires_owner_settings(name: str) -> None:
    done = run(
        str(MANAGE),
        "check",
        **{other: value for other, value in PRODUCTION.items() if other != name},
    )
    assert done.returncode != 0
    assert name in done.stderr


def test_production_keeps_no_trace_of_the_sandbox() -> None:
    look = (
        "from django.conf import settings as s; a = s.TILLGATE['ACCOUNTS']['default'];"
        "print(s.DEBUG, a.get('SANDBOX'), s.DATABASES['default']['ENGINE'], "
        "s.TILLGATE['PUBLIC_URL'])"
    )
    done = run("-c", look, **PRODUCTION)
    assert done.stdout.split() == [
        "False",
        "None",
        "django.db.backends.postgresql",
        "https://www.fold-and-margin.example",
    ], done.stderr


def test_production_waits_for_no_lock_without_end() -> None:
    done = run(
        "-c",
        "from django.conf import settings as s; "
        "print(s.DATABASES['default']['OPTIONS']['options'])",
        **PRODUCTION,
    )
    assert (
        done.stdout.strip() == "-c lock_timeout=30s -c idle_in_transaction_session_timeout=2min"
    ), done.stderr


PAGES = """
import django
django.setup()
from django.contrib.auth.models import AnonymousUser
from django.template.loader import get_template
from django.test import RequestFactory
request = RequestFactory().get("/")
request.user = AnonymousUser()
for name in ("tillgate/base.html", "oscar/partials/nav_accounts.html", "oscar/partials/footer.html"):
    print("no real money" in get_template(name).render({}, request))
"""


@pytest.mark.parametrize(
    ("environment", "is_said"),
    [({}, "True"), (PRODUCTION, "False")],
    ids=["demonstration", "production"],
)
def test_only_demonstration_says_no_money_moves(
    environment: dict[str, str],
    is_said: str,
) -> None:
    done = run("-c", PAGES, **{"DJANGO_SETTINGS_MODULE": "example_shop.settings", **environment})
    assert done.stdout.split() == [is_said] * 3, done.stderr


ONE_REQUEST = """
import logging
import django
django.setup()
from django.conf import settings
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils.module_loading import import_string
def pays(request):
    logging.getLogger("tillgate.events").info("payment.paid 100017")
    return HttpResponse()
first = import_string(settings.MIDDLEWARE[0])(pays)
first(RequestFactory().get("/", headers={"X-Request-ID": "0123456789abcdef0123456789abcdef"}))
"""


def test_production_logs_the_id_of_the_request() -> None:
    """The id comes from the web server; its own log has the same."""
    done = run("-c", ONE_REQUEST, **PRODUCTION)
    (line,) = [line for line in done.stderr.splitlines() if "payment.paid 100017" in line]
    assert "INFO tillgate.events [0123456789abcdef0123456789abcdef]: payment.paid" in line


def test_celery_finds_worker_tasks_and_schedule() -> None:
    look = (
        "from example_shop.celery import app; app.loader.import_default_modules();"
        "print(app.conf.beat_schedule['tillgate-worker']['task'], 'tillgate.run_lane' in "
        "app.tasks, app.conf.broker_url)"
    )
    done = run("-c", look, **PRODUCTION)
    assert done.stdout.split() == ["tillgate.run_worker", "True", PRODUCTION["SHOP_BROKER_URL"]], (
        done.stderr
    )


def test_product_reviews_keep_oscars_name() -> None:
    """Catalogues of all apps are one, and the first app wins: a heading of ours must not rename the
    shoppers' product reviews.
    """
    done = run(
        "-c",
        "import django; django.setup(); from django.utils import translation as t\n"
        "for code in ('de', 'fr', 'pl'): t.activate(code); print(t.gettext('Reviews'))",
        DJANGO_SETTINGS_MODULE="example_shop.settings",
    )
    assert done.stdout.split() == ["Bewertungen", "Avis", "Recenzje"]
