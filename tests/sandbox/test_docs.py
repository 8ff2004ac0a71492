"""The reference page matches the code: every switch with its default, every fault, magic amount and
address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from tillgate.sandbox import FAULTS, MAGIC, Clock, Control, Options, Service
from tillgate.sandbox.access import Access
from tillgate.sandbox.contract import PATHS
from tillgate.sandbox.control_api import routes as control_routes
from tillgate.sandbox.pages import routes as page_routes

PAGE = (Path(__file__).parents[2] / "src" / "tillgate" / "sandbox" / "README.md").read_text()


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading."""
    section = re.split(r"^## ", PAGE.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _default(name: str) -> str:
    value = getattr(Options(), name)
    if name == "merchants":
        return "`200043`"
    if isinstance(value, Mapping) or value == ():
        return "none"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def test_every_switch_is_explained_with_its_default() -> None:
    assert [(row[0], row[2]) for row in table("Switches")] == [
        (f"`{item.name}`", _default(item.name)) for item in fields(Options)
    ]
    assert all(row[3] for row in table("Switches"))


def test_unspecified_gateway_behaviours_have_switches() -> None:
    numbers = {number for row in table("Switches") for number in re.findall(r"\d+", row[1])}
    assert numbers == {str(number) for number in range(1, 21)}


def test_every_fault_is_explained() -> None:
    """The page gives the occasions and magic amounts of each fault."""
    amounts: dict[str, list[str]] = {name: [] for name in FAULTS}
    for cents, magic in MAGIC.items():
        strikes: list[str] = [magic.occasion] if magic.occasion in ("pay", "query") else []
        strikes += [f"{magic.times} times"] if magic.times else []
        amounts[magic.fault].append(
            f"{cents // 100}.{cents % 100:02d}" + (f" ({', '.join(strikes)})" if strikes else ""),
        )
    assert table("Faults") == [
        [
            f"`{fault.name}`",
            ", ".join(fault.occasions).replace("pay, query, refund", "calls"),
            fault.summary,
            ", ".join(amounts[fault.name]),
        ]
        for fault in FAULTS.values()
    ]


@pytest.fixture
def control() -> Control:
    clock = Clock.standing()
    return Control(Service(clock=clock), clock)


def test_every_control_address_is_listed(control: Control) -> None:
    served = {
        (method, route.path)
        for route in control_routes(control, Access())
        for method in (route.methods or ())
        if method != "HEAD"
    }
    assert {(row[0], row[1].strip("`")) for row in table("Control API")} == served


def test_every_other_address_is_listed(control: Control) -> None:
    listed = {row[0].strip("`") for row in table("Addresses")}
    pages = {getattr(route, "path", "") for route in page_routes(control, Access())} - {"/static"}
    assert listed == {*PATHS["all"], *pages, "/_control/..."}


def test_every_option_names_only_known_things() -> None:
    for name in re.findall(r"`([a-z_]+)=", PAGE):
        assert name in FAULTS or name in {item.name for item in fields(Options)} | {
            "control_public",
        }
