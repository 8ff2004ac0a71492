"""The page about costs shows the command's measurements."""

from __future__ import annotations

from tests.test_docs import read
from tools import costs


def test_costs_page_has_every_figure() -> None:
    """A figure that the command no longer measures has left the page, and none is missing."""
    page = read("docs/reference/costs.md")
    measured = costs.table(dict.fromkeys(costs.ROWS, ""))
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert [line.split("|")[1] for line in rows] == [
        line.split("|")[1] for line in measured.splitlines()
    ]
    assert [line for line in rows if not line.split("|")[2].strip()] == []


def test_needed_packages_follow_the_extras() -> None:
    plain, django = (costs.dependencies([name]) for name in ("tillgate", "tillgate[django]"))
    assert {"tillgate", "httpx", "httpcore", "pydantic-core"} <= plain
    assert django - plain == {"django", "asgiref", "sqlparse"}
