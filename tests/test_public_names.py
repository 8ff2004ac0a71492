"""The public face: the names of `import tillgate`, and the modules that it does not drag in."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path
from types import ModuleType

import pytest

import tillgate
from tillgate import wire

LISTED = Path(__file__).with_name("public_names.txt").read_text("utf-8").splitlines()
PUBLIC = (
    "tillgate",
    "tillgate.gateways",
    "tillgate.hooks",
    "tillgate.shop",
    "tillgate.shop.http",
    "tillgate.testing",
)
CORE = [
    "tillgate",
    "tillgate.account",
    "tillgate.aiohttp_transport",
    "tillgate.client",
    "tillgate.errors",
    "tillgate.transport",
]
CORE += [f"tillgate.wire.{module.name}" for module in pkgutil.iter_modules(wire.__path__)]


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh process has imported after a statement."""
    script = f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"
    finished = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(finished.stdout))


def test_public_names_match_checked_in_list() -> None:
    """The list stays short."""
    found = [
        f"{name}.{public}"
        for name in PUBLIC
        for public in sorted(importlib.import_module(name).__all__)
    ]
    assert found == LISTED, "a public name is documented and listed in tests/public_names.txt"
    assert len(LISTED) <= 180


@pytest.mark.parametrize("listed", LISTED)
def test_every_public_name_has_own_docstring(listed: str) -> None:
    module, _, name = listed.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    if inspect.isclass(found) or inspect.isroutine(found) or inspect.ismodule(found):
        assert found.__doc__
        assert not found.__doc__.startswith(f"{name}("), (
            "the docstring that a dataclass gets on its own says nothing"
        )


def test_all_lists_exactly_the_public_names() -> None:
    public = {
        name
        for name, value in vars(tillgate).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(tillgate.__all__)
    assert len(tillgate.__all__) == len(set(tillgate.__all__))


def test_the_fixed_names_are_there() -> None:
    assert {"Account", "Gateway", "AsyncGateway", "PaymentRequest", "RefundRequest"} <= set(
        tillgate.__all__,
    )
    assert set(importlib.import_module("tillgate.errors").__all__) <= set(tillgate.__all__)


@pytest.mark.parametrize("name", CORE)
def test_every_module_name_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert inspect.getdoc(module)
    for public in getattr(module, "__all__", ()):
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{public} has no docstring"
            for method, function in vars(value).items() if inspect.isclass(value) else ():
                if inspect.isfunction(function) and not method.startswith("_"):
                    assert function.__doc__, f"{name}.{public}.{method} has no docstring"


@pytest.mark.parametrize("name", [name for name in CORE if name != "tillgate"])
def test_a_module_offers_what_it_defines(name: str) -> None:
    module = importlib.import_module(name)
    own = {
        key
        for key, value in vars(module).items()
        if getattr(value, "__module__", None) == name and not key.startswith("_")
    }
    offered = set(getattr(module, "__all__", ()))
    assert own - {"AsyncSender"} <= offered


def test_the_version_is_that_of_the_distribution() -> None:
    assert metadata.version("tillgate") == tillgate.__version__


@pytest.mark.parametrize(
    "statement",
    ["import tillgate", "from tillgate import *", "import tillgate; tillgate.Gateway"],
)
def test_import_loads_only_what_is_needed(statement: str) -> None:
    imported = modules_after(statement)
    assert not imported & {
        "django",
        "click",
        "starlette",
        "uvicorn",
        "jinja2",
        "aiohttp",
        "httpx",
        "anyio",
        "pytest",
        "vcr",
    }
    assert not imported & {
        f"tillgate.{name}" for name in ("sandbox", "cli", "django", "testing", "hooks", "transport")
    }


SHOP = """
import importlib.metadata as metadata
metadata.distributions = lambda **_: []  # other plugins may load what they like
import django
from django.conf import settings
from django.core import checks
account = {"BASE_URL": "http://127.0.0.1:1", "MERCHANT_NO": "1", "TOKEN": "2", "SANDBOX": True}
apps = ("contrib.auth", "contrib.contenttypes", "contrib.messages", "contrib.admin")
settings.configure(
    INSTALLED_APPS=[*(f"django.{app}" for app in apps), "tillgate.django", "tests.smallest_shop"],
    ROOT_URLCONF="tillgate.django.urls",
    TILLGATE={"ACCOUNTS": {"default": account}, "PUBLIC_URL": "http://127.0.0.1"},
)
django.setup()
checks.run_checks()
"""


def test_shop_that_sends_nothing_loads_no_http_client() -> None:
    imported = modules_after(f"exec({SHOP!r})")
    assert "tillgate.django.pages.shoppers" in imported
    assert not imported & {"aiohttp", "babel", "httpx", "iso4217", "tillgate.transport"}


def test_the_package_is_typed() -> None:
    assert resources.files("tillgate").joinpath("py.typed").is_file()
