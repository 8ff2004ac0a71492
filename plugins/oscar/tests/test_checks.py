"""The system checks: each finds what is wrong and names the line to add; the README lists them
all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.sites.models import Site
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import OperationalError
from oscar.core.loading import get_class_loader, get_model
from oscar.test.factories import create_order, create_product

from tillgate.errors import ConfigurationError
from tillgate_oscar import checks
from tillgate_oscar.conf import Settings, get_settings

README = Path(__file__).parents[1] / "README.md"


def found() -> dict[str, str]:
    messages = run_checks(tags=[checks.CHECKS.label])
    return {
        str(message.id).removeprefix("tillgate_oscar."): f"{message.msg} {message.hint}"
        for message in messages
    }


def test_shop_following_readme_passes_checks() -> None:
    assert found() == {}


@pytest.mark.parametrize(
    ("setting", "value", "id_", "remedy"),
    [
        ("TILLGATE_OSCAR", {"PENDING": "x"}, "E001", "PENDING_STATUS"),
        ("TILLGATE_OSCAR", {"PAID_STATUS": ""}, "E001", "PAID_STATUS"),
        ("TILLGATE_OSCAR", {"PAID_STATUS": 5}, "E001", "PAID_STATUS"),
        ("TILLGATE_OSCAR", ["PAID_STATUS"], "E001", "dictionary"),
        (
            "TILLGATE_OSCAR",
            {"PENDING_STATUS": "Waiting"},
            "E005",
            "'Waiting': ('Paid', 'Cancelled')",
        ),
        (
            "TILLGATE_OSCAR",
            {"PAID_STATUS": "Done"},
            "E005",
            "does not lead from 'Pending payment' to 'Done'.",
        ),
        (
            "ROOT_URLCONF",
            "tillgate.django.urls",
            "E004",
            'path("payments/", include("tillgate_oscar.urls"))',
        ),
        ("OSCAR_DEFAULT_CURRENCY", "GBP", "W001", 'OSCAR_DEFAULT_CURRENCY = "USD"'),
        (
            "OSCAR_DEFAULT_CURRENCY",
            "EUR",
            "W001",
            "Give the account a DIALECT and CURRENCIES with EUR",
        ),
        ("OSCAR_INITIAL_ORDER_STATUS", "Pending", "W003", "an entry for 'Pending'"),
        ("TILLGATE_OSCAR", {"REFUNDED_STATUS": "Refunded"}, "W004", "remove REFUNDED_STATUS"),
        (
            "TILLGATE_OSCAR",
            {"PARTLY_REFUNDED_STATUS": "Pending payment"},
            "W004",
            "does not lead to it from 'Paid'",
        ),
    ],
)
def test_missing_part_names_line_to_add(
    settings: Any,
    setting: str,
    value: Any,
    id_: str,
    remedy: str,
) -> None:
    setattr(settings, setting, value)
    assert list(found()) == [id_]
    assert remedy in found()[id_]


def test_own_payment_methods_need_own_status(settings: Any) -> None:
    """A shop with other ways to pay needs a status for their orders."""
    settings.TILLGATE_OSCAR = {"OTHER_METHODS": {"cash": "Cash on delivery"}}
    assert list(found()) == ["W003"]
    settings.OSCAR_INITIAL_ORDER_STATUS = "Pending payment"
    assert "looks as if it awaits Tillgate's payment" in found()["W003"]
    settings.OSCAR_INITIAL_ORDER_STATUS = "Paid"  # any other status of the pipeline
    assert "W003" not in found()


def test_api_orders_must_await_payment(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """django-oscar-api need not be installed for this: the check asks for the app's name and reads
    its setting.
    """
    settings.OSCARAPI_INITIAL_ORDER_STATUS = "new"
    assert found() == {}
    is_installed = apps.is_installed
    monkeypatch.setattr(apps, "is_installed", lambda name: name == "oscarapi" or is_installed(name))
    assert list(found()) == ["W003"]
    assert "OSCARAPI_INITIAL_ORDER_STATUS = 'Pending payment'" in found()["W003"]
    settings.OSCARAPI_INITIAL_ORDER_STATUS = "Pending payment"
    assert found() == {}


class Apart:
    """A router that keeps Oscar's orders in a database of their own."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "orders" if model._meta.app_label == "order" else None


def test_orders_in_other_database_are_reported(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.Apart"]
    assert list(found()) == ["E007"]
    assert "'orders' and Tillgate's rows in 'default'" in found()["E007"]


class Behind:
    """A router that reads Oscar's orders from a copy."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return "copy" if model._meta.app_label == "order" else None


def test_orders_from_replica_are_reported(settings: Any) -> None:
    """Orders must not be read from a copy of their database."""
    settings.DATABASE_ROUTERS = [f"{__name__}.Behind"]
    assert list(found()) == ["E007"]
    assert "written in database 'default' and read in 'copy'" in found()["E007"]


def found_in_the_database() -> dict[str, str]:
    return {
        str(message.id): f"{message.msg} {message.hint}"
        for message in run_checks(tags=[checks.CHECKS.label], databases=["default"])
    }


@pytest.mark.django_db
def test_wrong_site_domain_is_reported(
    settings: Any,
) -> None:
    """Links in mail lead to the domain of the site."""
    Site.objects.update_or_create(pk=1, defaults={"domain": "example.com"})
    settings.TILLGATE = {**settings.TILLGATE, "PUBLIC_URL": "https://shop.example:8443"}
    told = found_in_the_database()["tillgate_oscar.W002"]
    assert (
        "lead to 'example.com', the domain of the site, and the shop is at 'shop.example:8443'"
        in told
    )
    assert 'Set the domain of site 1 to "shop.example:8443"' in told
    Site.objects.update(domain="shop.example:8443")
    assert "tillgate_oscar.W002" not in found_in_the_database()
    settings.SITE_ID = None
    assert "tillgate_oscar.W002" not in found_in_the_database()


@pytest.mark.django_db
def test_existing_prices_and_statuses_are_compared() -> None:
    """The checks compare them with the settings."""
    assert not {"tillgate_oscar.W001", "tillgate_oscar.W006"} & set(found_in_the_database())
    create_product(price=Decimal("5.00")).stockrecords.update(price_currency="EUR")
    create_order(status="Being processed")
    told = found_in_the_database()
    assert "priced in EUR: only orders in USD" in told["tillgate_oscar.W001"]
    assert "'Being processed'" in told["tillgate_oscar.W006"]
    assert "|=" in told["tillgate_oscar.W006"]


def test_currency_without_method_is_reported(settings: Any) -> None:
    """The account takes the currency, but no payment method does."""
    methods = [{"code": "kakaopay", "currencies": ["KRW"]}]
    account = settings.TILLGATE["ACCOUNTS"]["default"] | {
        "DIALECT": "v3",
        "STORE_NO": "1",
        "CURRENCIES": ["KRW", "USD"],
        "METHODS": methods,
    }
    settings.TILLGATE = {**settings.TILLGATE, "ACCOUNTS": {"default": account}}
    assert "only orders in KRW" in found()["W001"]


@pytest.mark.django_db
def test_database_checks_accept_missing_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first migration the database checks report nothing."""

    def not_there(**_: Any) -> None:
        raise OperationalError("no such table: django_site")

    monkeypatch.setattr(Site.objects, "filter", not_there)
    assert "tillgate_oscar.W002" not in found_in_the_database()


def test_missing_class_loader_is_reported(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get_class_loader.cache_clear()
    settings.OSCAR_DYNAMIC_CLASS_LOADER = "oscar.core.loading.default_class_loader"
    try:
        assert 'OSCAR_DYNAMIC_CLASS_LOADER = "tillgate_oscar.classes.load"' in found()["E003"]
    finally:
        get_class_loader.cache_clear()


def test_incomplete_pipeline_names_missing_statuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(get_model("order", "Order"), "pipeline", {})
    assert "'Pending payment': ('Paid', 'Cancelled')" in found()["E005"]


OWN = {"Pending": ("Being processed",), "Being processed": ("Complete",), "Complete": ()}
"""The pipeline of a shop that existed before Tillgate."""


PAGES_WITH_SETTINGS = ["README.md", "docs/tutorial/stripe-in-oscar.md", "plugins/oscar/README.md"]


def pipeline_of(page: str, after_paid: str) -> Any:
    """Run the lines of a page at the end of the settings of such a shop, with its next status."""
    text = (README.parents[2] / page).read_text()
    (imported,) = re.findall(r"^from tillgate_oscar.pipeline import .*$", text, re.MULTILINE)
    (line,) = re.findall(r"^OSCAR_ORDER_STATUS_PIPELINE = .*$", text, re.MULTILINE)
    assert 'own={}, after_paid="Shipped"' in line, "the line says how to join a pipeline"
    line = line.replace("own={}", "own=OSCAR_ORDER_STATUS_PIPELINE")
    shop: dict[str, Any] = {"OSCAR_ORDER_STATUS_PIPELINE": OWN}
    exec(f"{imported}\n{line.replace('Shipped', after_paid)}", shop)
    return shop["OSCAR_ORDER_STATUS_PIPELINE"]


@pytest.mark.parametrize("page", PAGES_WITH_SETTINGS)
def test_own_pipeline_can_be_joined(
    page: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shop keeps its own pipeline and names its next status in the line from the page."""
    monkeypatch.setattr(
        get_model("order", "Order"), "pipeline", pipeline_of(page, "Being processed")
    )
    assert OWN.items() <= get_model("order", "Order").pipeline.items()
    assert found() == {}


@pytest.mark.parametrize("page", PAGES_WITH_SETTINGS)
def test_unjoined_pipeline_names_missing_lines(
    page: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the line as it stands, paid orders cannot go on in the shop's own pipeline."""
    monkeypatch.setattr(get_model("order", "Order"), "pipeline", pipeline_of(page, "Shipped"))
    assert list(found()) == ["W007"]
    assert "'Paid': ('Being processed', 'Cancelled')" in found()["W007"]
    assert "after_paid='Being processed'" in found()["W007"]


def test_own_orders_may_join_pipeline_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other orders may meet the path of paid orders at a later status."""
    ours = {
        "Pending payment": ("Paid", "Cancelled"),
        "Paid": ("Shipped", "Cancelled"),
        "Shipped": (),
        "Cancelled": (),
    }
    monkeypatch.setattr(
        get_model("order", "Order"),
        "pipeline",
        ours | {"Pending": ("Packed",), "Packed": ("Shipped",)},
    )
    assert found() == {}


@pytest.mark.django_db
def test_doctor_runs_plugin_checks(settings: Any) -> None:
    settings.TILLGATE_OSCAR = {"PENDING_STATUS": "Waiting"}
    doctor = StringIO()
    with pytest.raises(SystemExit):
        call_command("tillgate", "doctor", stdout=doctor)
    assert re.search(
        r"FAIL +tillgate_oscar +.*'Waiting': \('Paid', 'Cancelled'\)",
        doctor.getvalue(),
    )


_WITHOUT = """
PLAIN = "oscar.core.loading.default_class_loader"
import django
from django.conf import settings
from tests import settings as shop
given = {name: getattr(shop, name) for name in dir(shop) if name.isupper()}
given["INSTALLED_APPS"] = [app for app in shop.INSTALLED_APPS if app != %r]
%s
settings.configure(**given)
django.setup()
from django.core.checks import run_checks
from django.core.management import call_command
print([message.id for message in run_checks(tags=["tillgate_oscar"])])
"""


@pytest.mark.parametrize(
    ("without", "more", "said"),
    [
        ("tillgate.django", "", "add 'tillgate.django' to INSTALLED_APPS"),
        ("tillgate_oscar", "", "add 'tillgate_oscar' to INSTALLED_APPS"),
        (
            "tillgate.django",
            'given["OSCAR_DYNAMIC_CLASS_LOADER"] = PLAIN; given["ROOT_URLCONF"] = '
            '"django.contrib.auth.urls"',
            "tillgate.django",
        ),
    ],
)
def test_missing_app_is_reported_by_name(without: str, more: str, said: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT % (without, more)],
        capture_output=True,
        text=True,
        cwd=README.parent,
        check=False,
    )
    assert said in run.stdout + run.stderr


def test_readme_lists_checks_and_settings() -> None:
    """The README gives the default of each setting."""
    text, source = README.read_text(), Path(checks.__file__).read_text()
    given = re.findall(r"yield _(error|warning)\(\s*(\d+)", source)
    numbers = {f"{kind[0].upper()}{int(number):03}" for kind, number in given}
    assert set(re.findall(r"^\| `tillgate_oscar\.([EW]\d{3})`", text, re.MULTILINE)) == numbers
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| `([^`]*)`", text, re.MULTILINE))
    defaults = Settings()
    expected = {name.upper(): getattr(defaults, name) for name in Settings.model_fields}
    assert rows == {
        name: value if isinstance(value, str) else str(value) for name, value in expected.items()
    }


def test_unknown_setting_is_refused_by_name(settings: Any) -> None:
    settings.TILLGATE_OSCAR = {"LOGO": ""}
    with pytest.raises(
        ConfigurationError,
        match=r"LOGO.*is not a setting; the settings are CANCELLED_STATUS",
    ):
        get_settings()
