"""Installed as the README says: pretix's own settings, its own commands, and nothing but its
configuration file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def pretix(tmp_path: Path) -> dict[str, str]:
    """The environment of a pretix that keeps everything in a folder of its own."""
    (tmp_path / "data").mkdir()
    file = tmp_path / "pretix.cfg"
    [shown] = re.findall(
        r"^```ini\n(.*?)^```$",
        README.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    file.write_text(
        "[pretix]\ninstance_name=Tickets & "
        f"more\nurl=https://tickets.example\ndatadir={tmp_path}/data\n{shown}",
    )
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DJANGO_SETTINGS_MODULE", "DATA_DIR")
    }
    return kept | {"PRETIX_CONFIG_FILE": str(file)}


def run(environment: dict[str, str], *command: str) -> str:
    """Run a command of pretix; return what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "pretix", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pretix_loads_the_plugin_completely(
    pretix: dict[str, str],
) -> None:
    """Pretix takes up the app, its settings, its addresses and its tables."""
    run(pretix, "migrate", "tillgate", "--verbosity", "0")
    program = """
from django.conf import settings
from django.urls import reverse
from tillgate.django.conf import get_settings
from tillgate.django.models import Payment
from tillgate.django.worker.run import run_worker
from pretix.base.plugins import get_all_plugins
assert get_settings().public_url == "https://tickets.example", get_settings()
assert get_settings().shop_name == "Tickets & more", get_settings()
assert [str(method) for method in get_settings().payment_methods] == ["alipay", "paypal", "creditcard"]
assert (get_settings().timeout_minutes, list(get_settings().review_mail_to)) == (60, ["owner@tickets.example"])
assert "tillgate_pretix" in [plugin.module for plugin in get_all_plugins()]
for urlconf in ("maindomain", "event_domain", "organizer_domain", "organizer_alternative_domain"):
    found = reverse("tillgate:payment-notification", args=["key"], urlconf=f"pretix.multidomain.{urlconf}_urlconf")
    assert found == "/_tillgate/notification/key/", (urlconf, found)
assert not Payment.objects.exists()
assert run_worker().faults == []
print("all is well")
"""
    assert "all is well" in run(pretix, "shell", "-c", program)
    assert "tillgate_pretix.signals.run_worker" in run(pretix, "runperiodic", "--list-tasks")


def test_configured_method_has_a_payment_provider(pretix: dict[str, str]) -> None:
    file = Path(pretix["PRETIX_CONFIG_FILE"])
    file.write_text(file.read_text().replace("payment_methods = ", "payment_methods = checkout, "))
    program = (
        "from tillgate_pretix.provider import PROVIDERS; print([one.identifier for one in "
        "PROVIDERS])"
    )
    assert "tillgate_checkout" in run(pretix, "shell", "-c", program)


def output(environment: dict[str, str], *command: str) -> tuple[int, str]:
    """Run a command of pretix; return how it ended and what it said, errors too."""
    done = subprocess.run(
        [sys.executable, "-m", "pretix", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_wrong_line_warns_without_stopping_commands(pretix: dict[str, str]) -> None:
    file = Path(pretix["PRETIX_CONFIG_FILE"])
    file.write_text(file.read_text() + "timeout=30\n")
    # the command of cron; Django checks before it begins
    ended, said = output(pretix, "runperiodic", "--list-tasks")
    assert ended == 0, said
    assert "did you mean 'TIMEOUT_MINUTES'" in said
    assert "pretix.base.services.cleanup.clean_cached_files" in said, "it began"
    ended, said = output(pretix, "tillgate", "doctor")
    assert ended == 1
    assert re.search("WARN  settings .*did you mean 'TIMEOUT_MINUTES'", said)


def test_excluded_core_app_stops_pretix_clearly(pretix: dict[str, str]) -> None:
    """Only this setting leaves the app out, and no page works without it."""
    file = Path(pretix["PRETIX_CONFIG_FILE"])
    file.write_text(
        file.read_text().replace("[pretix]\n", "[pretix]\nplugins_exclude=tillgate.django\n"),
    )
    ended, said = output(pretix, "runperiodic", "--list-tasks")
    assert ended == 1
    assert re.search("ImproperlyConfigured: .*app is missing.*tillgate.django", said), said


def test_pretix_over_http_can_be_tried(pretix: dict[str, str]) -> None:
    """Migrations run there as well."""
    file = Path(pretix["PRETIX_CONFIG_FILE"])
    file.write_text(file.read_text().replace("https://tickets.example", "http://localhost:8000"))
    # it runs the checks, those of the database too
    ended, said = output(pretix, "migrate", "tillgate", "--verbosity", "0")
    assert ended == 0, said
    warned = re.findall(r"tillgate\w*\.[EW]\d+", said)
    assert set(warned) <= {"tillgate.W004"}, (
        "nothing is wrong before an event takes real money, but the test's SQLite"
    )
