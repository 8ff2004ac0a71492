"""The system checks: each finds its fault and names the line to add; the README lists them all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from tillgate_django_payments import PROVIDER, checks

README = Path(__file__).parents[1] / "README.md"


def found() -> dict[str, str]:
    prefix = f"{checks.CHECKS.label}."
    return {
        str(message.id).removeprefix(prefix): f"{message.msg} {message.hint}"
        for message in run_checks(tags=[checks.CHECKS.label])
    }


def test_shop_following_readme_passes_checks() -> None:
    assert found() == {}


@pytest.mark.parametrize(
    ("setting", "value", "id_", "remedy"),
    [
        ("PAYMENT_MODEL", None, "E002", "PAYMENT_MODEL = "),
        ("PAYMENT_MODEL", "shop.Nothing", "E002", "PAYMENT_MODEL = "),
        ("PAYMENT_VARIANTS", {}, "E004", f'"online": ("{PROVIDER}", {{}})'),
        (
            "PAYMENT_VARIANTS",
            {"invoice": ("payments.dummy.DummyProvider", {})},
            "E004",
            "Add one to PAYMENT_VARIANTS",
        ),
        (
            "PAYMENT_VARIANTS",
            {"card": (PROVIDER, {"method": "vi sa"})},
            "E005",
            "'vi sa' is not the code of a payment method",
        ),
        (
            "PAYMENT_VARIANTS",
            {"card": (PROVIDER, {"methods": ["alipay"]})},
            "E005",
            '{"method": "alipay"}',
        ),
        ("PAYMENT_VARIANTS", {"card": (PROVIDER, {"capture": False})}, "E005", "capture: False"),
        (
            "PAYMENT_VARIANTS",
            {"alipay_hk": (PROVIDER, {"method": "alipay_hk"})},
            "W001",
            "'alipay_hk'",
        ),
        ("PAYMENT_VARIANTS", {"Online": (PROVIDER, {})}, "W001", "small letters and hyphens"),
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


def test_variant_of_disabled_method_is_reported(settings: Any) -> None:
    settings.TILLGATE = settings.TILLGATE | {"PAYMENT_METHODS": ["paypal"]}
    settings.PAYMENT_VARIANTS = {
        "alipay": (PROVIDER, {"method": "alipay"}),
        "paypal": (PROVIDER, {"method": "paypal"}),
    }
    assert list(found()) == ["W002"]
    assert "Add 'alipay' to TILLGATE['PAYMENT_METHODS']" in found()["W002"]


def test_unreadable_settings_are_left_to_tillgate(settings: Any) -> None:
    """Tillgate's own checks report settings that cannot be read."""
    settings.TILLGATE = None
    assert found() == {}


def test_variants_from_factory_are_not_judged(settings: Any) -> None:
    settings.PAYMENT_VARIANTS, settings.PAYMENT_VARIANT_FACTORY = {}, "shop.variants.make"
    assert found() == {}


class Apart:
    """A router that keeps the shop's payments in a database of their own."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "shop" if model._meta.app_label == "shop" else None


def test_rows_in_two_databases_are_told(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.Apart"]
    assert "DATABASE_ROUTERS" in found()["E003"]
    assert "'shop' and Tillgate's rows in 'default'" in found()["E003"]


def test_import_needs_no_settings_or_apps() -> None:
    """A settings module can import the variants before it is configured."""
    code = (
        "import tillgate_django_payments as t; t.method_variants(); "
        "from django.conf import settings; print(settings.configured)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "False\n", run.stderr


def test_the_readme_lists_every_check() -> None:
    source = Path(checks.__file__).read_text()
    given = re.findall(r"yield _(error|warning)\(\s*(\d+)", source)
    numbers = {f"{kind[0].upper()}{int(number):03}" for kind, number in given}
    assert len(numbers) == 6
    assert (
        set(
            re.findall(
                r"^\| `tillgate_django_payments\.([EW]\d{3})`",
                README.read_text(),
                re.MULTILINE,
            ),
        )
        == numbers
    )
