"""List the caught mutants at the end of a run: the broken shops and cores, and the scenario that
caught each.
"""

from __future__ import annotations

import pytest

from tests.smallest_shop.driver import SmallestShopDriver

CAUGHT = "caught-mutant"
"""The name under which a test reports its mutant; a property travels from xdist's workers too.
"""


@pytest.fixture
def shop_driver() -> SmallestShopDriver:
    """The shop as its own tests play it."""
    return SmallestShopDriver()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the list."""
    lines = [
        said
        for report in terminalreporter.getreports("passed")
        for name, said in report.user_properties
        if name == CAUGHT
    ]
    if lines:
        terminalreporter.section(f"{len(lines)} mutants, each caught by a scenario")
        for line in lines:
            terminalreporter.write_line(str(line))
