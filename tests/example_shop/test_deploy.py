"""The files of `deploy/`: they name commands, variables, ports and addresses that the shop has."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import execute_from_command_line

from tests.example_shop.test_settings import PRODUCTION, ROOT, run

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
ENVIRONMENT = dict(
    re.findall(r"^(\w+)=(.*)$", (DEPLOY / "env.example").read_text("utf-8"), re.MULTILINE),
)
UNITS = {
    path.name: dict(re.findall(r"^(\w+)=(.*)$", path.read_text("utf-8"), re.MULTILINE))
    for path in DEPLOY.glob("*.service")
}


def read(name: str) -> str:
    return (DEPLOY / name).read_text("utf-8")


def in_image() -> str:
    """Return the command of the image."""
    words = re.search(r"^CMD \[(.*?)\]", read("Containerfile"), re.MULTILINE | re.DOTALL)
    assert words
    return " ".join(re.findall(r'"([^"]+)"', words[1]))


def commands() -> dict[str, str]:
    """Return every command that is started, without the folder of its program."""
    composed = {
        name: service["command"]
        for name, service in COMPOSE["services"].items()
        if "command" in service
    }
    started = {name: unit["ExecStart"] for name, unit in UNITS.items()}
    return {
        name: command.replace("/srv/shop/.venv/bin/", "")
        for name, command in {"image": in_image(), **composed, **started}.items()
    }


def test_started_modules_and_commands_exist() -> None:
    """gunicorn and Celery name modules, and manage.py commands."""
    said = " && ".join(commands().values())
    modules = set(re.findall(r"(?:gunicorn|celery -A) (\S+)", said))
    assert modules == {"example_shop.wsgi", "example_shop.celery"}
    assert [name for name in modules if not importlib.util.find_spec(name)] == []
    managed = set(re.findall(r"python example_shop/manage.py ([\w ]+\w)", said))
    assert managed == {"migrate", "collectstatic", "tillgate worker"}
    for command in managed:
        done = run("example_shop/manage.py", *command.split(), "--help", **PRODUCTION)
        assert done.returncode == 0, done.stderr


def test_web_is_started_the_same_everywhere() -> None:
    """Only the address differs: a container listens on its own network."""
    image, unit = (shlex.split(command) for command in (in_image(), commands()["shop-web.service"]))
    assert [word for word in image if ":" not in word] == [word for word in unit if ":" not in word]
    port = {word.rpartition(":")[2] for word in [*image, *unit] if ":" in word}
    assert port == {"8000"}
    assert COMPOSE["services"]["web"]["ports"] == ["127.0.0.1:8000:8000"]
    assert "proxy_pass http://127.0.0.1:8000;" in read("nginx.conf")


def test_celery_works_on_queue_of_settings() -> None:
    queue = "from django.conf import settings; print(settings.CELERY_TASK_ROUTES['tillgate.*'])"
    done = run("-c", queue, **PRODUCTION)
    assert done.stdout == "{'queue': 'payments'}\n", done.stderr
    assert "--queues payments" in commands()["celery"]


@pytest.mark.parametrize("name", UNITS)
def test_units_start_again_what_ends(name: str) -> None:
    unit = UNITS[name]
    assert (unit["Restart"], unit["User"], unit["EnvironmentFile"]) == (
        "always",
        "shop",
        "/etc/shop.env",
    )


def test_example_names_every_variable() -> None:
    """It names no other; variables that only the demonstration reads are left out."""
    source = (ROOT / "example_shop/production.py").read_text("utf-8")
    named = set(re.findall(r"os\.environ(?:\.get\(|\[)\s*\"(\w+)\"", source))
    optional = {"PGPORT", "SHOP_HSTS_SECONDS"}
    assert set(ENVIRONMENT) == (named - optional) | {"DJANGO_SETTINGS_MODULE", "SHOP_VAR"}
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", read("compose.yaml")))
    assert used <= set(ENVIRONMENT)


def test_filled_example_passes_deployment_checks() -> None:
    filled = {name: value or PRODUCTION.get(name, "") for name, value in ENVIRONMENT.items()}
    filled |= {"SHOP_MONITOR_TOKEN": "a-token-of-the-monitor", "SHOP_VAR": ""}
    del filled["SHOP_VAR"]  # the folder of the server is not here
    done = run("example_shop/manage.py", "check", "--deploy", "--fail-level", "INFO", **filled)
    assert done.returncode == 0, done.stderr


PROJECT = """
import os
INSTALLED_APPS += ["tillgate.django"]
TILLGATE = {
    "ACCOUNTS": {"default": {"BASE_URL": "...", "MERCHANT_NO": "...", "TOKEN": "..."}},
    "PUBLIC_URL": "http://127.0.0.1:8000",
    "PAYMENT_METHODS": ["paypal"],
}
SILENCED_SYSTEM_CHECKS = ["tillgate.W012"]  # the project has no orders
"""
SHOWN = (
    "from django.conf import settings as s; t = s.TILLGATE; "
    "print(t['ACCOUNTS']['default']['BASE_URL'], t['PAYMENT_METHODS'], s.STATIC_ROOT, s.DEBUG)"
)


def test_settings_to_append_fit_any_project(tmp_path: Path) -> None:
    """A new project with them passes the checks of a live shop; its own settings stay."""
    execute_from_command_line(["django-admin", "startproject", "project", str(tmp_path)])
    settings = tmp_path / "project" / "settings.py"
    settings.write_text(settings.read_text("utf-8") + PROJECT + read("production_settings.py"))
    (tmp_path / "project" / "urls.py").write_text(
        "from django.contrib import admin\n"
        "from django.urls import include, path\n"
        "urlpatterns = [path('admin/', admin.site.urls),"
        " path('payments/', include('tillgate.django.urls'))]\n",
    )
    filled = {name: value or PRODUCTION.get(name, "") for name, value in ENVIRONMENT.items()}
    filled |= {"DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": str(tmp_path)}
    manage = str(tmp_path / "manage.py")
    done = run(manage, "check", "--deploy", "--fail-level", "WARNING", **filled)
    assert done.returncode == 0, done.stderr
    shown = run("-c", SHOWN, **filled)
    assert shown.stdout == "https://pay.example ['paypal'] /srv/shop/var/static False\n", (
        shown.stderr
    )


def test_settings_to_append_read_variables_of_the_example() -> None:
    named = set(re.findall(r"\b(?:SHOP_[A-Z_]+|PG[A-Z]+)", read("production_settings.py")))
    assert named - {"PGPORT", "SHOP_HSTS_SECONDS"} <= set(ENVIRONMENT)


ADDRESSES = """
import django
django.setup()
from django.conf import settings
from django.urls import reverse
print(settings.STATIC_URL, settings.STATIC_ROOT, settings.MEDIA_URL, settings.MEDIA_ROOT)
print(reverse("tillgate:health"), reverse("tillgate:metrics"))
"""


def test_addresses_are_those_of_the_shop() -> None:
    """nginx serves the folders of the settings, and a monitor reads the app's own address."""
    done = run("-c", ADDRESSES, **PRODUCTION)
    assert done.returncode == 0, done.stderr
    folders, monitored = done.stdout.splitlines()
    static, static_root, media, media_root = folders.split()
    for address, root in ((static, static_root), (media, media_root)):
        folder = f"{ENVIRONMENT['SHOP_VAR']}/{root.rpartition('/')[2]}/"
        assert f"location {address} {{ alias {folder}; }}" in read("nginx.conf")
    page = (ROOT / "docs/how-to/deploy.md").read_text("utf-8")
    health, metrics = monitored.split()
    assert f"https://{ENVIRONMENT['SHOP_HOST']}{health}" in page
    assert f"`{metrics}`" in read("README.md")


def test_image_copies_what_its_context_lets_in() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (.+)$", read("Containerfile"), re.MULTILINE)
        for source in line.split()[:-1]
    }
    allowed = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    assert copied == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_every_image_has_a_version() -> None:
    """The shop's own is built here."""
    images = {service["image"] for service in COMPOSE["services"].values()} - {"fold-and-margin"}
    images |= set(re.findall(r"^FROM (\S+)", read("Containerfile"), re.MULTILINE))
    assert len(images) == 3
    assert [image for image in images if not re.search(r":\d", image)] == []
