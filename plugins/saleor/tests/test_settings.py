"""The settings and the system checks: each fault is named with its remedy, and the documentation
lists all of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from tillgate import ConfigurationError
from tillgate_saleor import checks
from tillgate_saleor.conf import Channel, Saleor, Settings, get_settings, origin_of

README = Path(__file__).parents[1] / "README.md"
DOCS = Path(__file__).parents[3] / "docs" / "saleor.md"
SHOP = "https://shop.example"
STOREFRONTS = {"STOREFRONTS": ["https://www.shop.example"]}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "TILLGATE_SALEOR"),
        ([], "TILLGATE_SALEOR"),
        ({}, "SALEORS"),
        ({"SALEOR": {}}, "SALEORS"),
        ({"SALEORS": [SHOP]}, "SALEORS"),
        ({"SALEORS": {SHOP: None}}, "SALEORS"),
        ({"SALEORS": {"shop.example": {}}}, "shop.example"),
        ({"SALEORS": {SHOP + "/graphql/": {}}}, "without a path"),
        ({"SALEORS": {"ftp://shop.example": {}}}, "origin"),
        ({"SALEORS": {SHOP: {"STOREFRONT": []}}}, "STOREFRONTS"),
        ({"SALEORS": {SHOP: {"STOREFRONTS": "https://x.example"}}}, "list"),
        ({"SALEORS": {SHOP: {"STOREFRONTS": ["https://x.example/shop"]}}}, "without a path"),
        ({"SALEORS": {SHOP: {"DASHBOARDS": ["*"]}}}, "origin"),
        ({"SALEORS": {SHOP: {"CHECKOUT_URL": "javascript:{id}"}}}, "CHECKOUT_URL"),
        ({"SALEORS": {SHOP: {"CHANNELS": {"a": {"PAYMENT_METHOD": []}}}}}, "PAYMENT_METHODS"),
        ({"SALEORS": {SHOP: {"CHANNELS": {"a": {"PAYMENT_METHODS": ["gold", "gold"]}}}}}, "alipay"),
        ({"SALEORS": {SHOP: {"CHANNELS": {"a": {"PAYMENT_METHODS": "alipay"}}}}}, "list"),
        ({"SALEORS": {}, "ENCRYPTION_KEYS": []}, "ENCRYPTION_KEYS"),
        ({"SALEORS": {}, "APP_ID": "Tillgate!"}, "APP_ID"),
    ],
)
def test_a_wrong_setting_is_named(given: Any, named: str, settings: Any) -> None:
    settings.TILLGATE_SALEOR = given
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        get_settings()


def test_short_key_is_named_not_shown(settings: Any) -> None:
    settings.TILLGATE_SALEOR = {"SALEORS": {}, "ENCRYPTION_KEYS": ["almost-a-secret"]}
    with pytest.raises(ConfigurationError) as raised:
        get_settings()
    assert "ENCRYPTION_KEYS" in str(raised.value)
    assert "almost-a-secret" not in repr(raised.value) + str(raised.value)


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://Shop.Example/graphql/", "https://shop.example"),
        ("https://shop.example:443/x", "https://shop.example"),
        ("http://shop.example:8000", "http://shop.example:8000"),
        ("http://[::1]:8000/graphql/", "http://[::1]:8000"),
        ("https://ann@shop.example/", None),
        ("/graphql/", None),
        (None, None),
    ],
)
def test_the_origin_of_an_address(address: object, origin: str | None) -> None:
    assert origin_of(address) == origin


def found() -> dict[str, str]:
    return {
        str(one.id).removeprefix("tillgate_saleor."): f"{one.msg} {one.hint}"
        for one in run_checks(tags=[checks.CHECKS.label])
    }


def test_readme_setup_passes_all_checks(settings: Any) -> None:
    settings.TILLGATE_SALEOR = {"SALEORS": {SHOP: STOREFRONTS}}
    assert found() == {}


@pytest.mark.parametrize(
    ("setting", "value", "id_", "remedy"),
    [
        ("ROOT_URLCONF", "tillgate.django.urls", "E002", 'include("tillgate_saleor.urls")'),
        ("TILLGATE_SALEOR", {"SALEORS": []}, "E003", "TILLGATE_SALEOR"),
        (
            "TILLGATE_SALEOR",
            {"SALEORS": {SHOP: {**STOREFRONTS, "CHANNELS": {"a": {"ACCOUNT": "gone"}}}}},
            "E004",
            "default",
        ),
        ("TILLGATE_SALEOR", {"SALEORS": {}}, "W001", "SALEOR_ORIGINS"),
        ("TILLGATE_SALEOR", {"SALEORS": {SHOP: {}}}, "W002", "SALEOR_STOREFRONTS"),
        ("TILLGATE_SALEOR", {"SALEORS": {"http://shop.example": STOREFRONTS}}, "W003", "https"),
    ],
)
def test_missing_setting_is_told_with_remedy(
    setting: str,
    value: Any,
    id_: str,
    remedy: str,
    settings: Any,
) -> None:
    settings.TILLGATE_SALEOR = {"SALEORS": {SHOP: STOREFRONTS}}
    setattr(settings, setting, value)
    assert list(found()) == [id_]
    assert remedy in found()[id_]


def test_saleor_on_this_machine_needs_no_https(settings: Any) -> None:
    settings.TILLGATE_SALEOR = {"SALEORS": {"http://127.0.0.1:8000": STOREFRONTS}}
    assert found() == {}


def test_channel_method_not_offered_is_reported(settings: Any) -> None:
    """The project does not offer the method."""
    settings.TILLGATE_SALEOR = {
        "SALEORS": {SHOP: {**STOREFRONTS, "CHANNELS": {"a": {"PAYMENT_METHODS": ["gcash"]}}}},
    }
    settings.TILLGATE = {**settings.TILLGATE, "PAYMENT_METHODS": ["alipay"]}
    assert "gcash" in found()["W004"]


def test_every_check_is_in_the_readme() -> None:
    source = Path(checks.__file__ or "").read_text("utf-8")
    found = re.findall(r"CHECKS\.(error|warning)\(\s*(\d+)", source)
    ids = {f"{'W' if kind == 'warning' else 'E'}{int(number):03}" for kind, number in found}
    assert set(re.findall(r"`tillgate_saleor\.([EW]\d{3})`", README.read_text("utf-8"))) == ids


def listed() -> set[str]:
    """Return the names in the first cells of the guide's tables."""
    cells = re.findall(r"^\| (`[^|]+) \|", DOCS.read_text("utf-8"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([A-Z_]+)`", cell)}


def test_every_setting_is_in_the_documentation() -> None:
    assert {
        name.upper() for kind in (Settings, Saleor, Channel) for name in kind.model_fields
    } <= listed()


def test_every_service_variable_is_documented() -> None:
    source = (Path(checks.__file__ or "").parent / "service" / "settings.py").read_text("utf-8")
    variables = set(
        re.findall(
            r'(?:_required|_list|_is_on|_number|_time_zone|_language|environ\.get)\("([A-Z_]+)"',
            source,
        ),
    )
    assert variables - listed() == set()
