"""The extra `testing` asks for the packages that `tillgate.testing` uses, and for no tool of our
own tests.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_extra_testing_installs_nothing_unused() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    # the last brings the mark django_db
    asked = {
        re.split(r"[>=<\[]", one)[0].lower() for one in project["optional-dependencies"]["testing"]
    } - {
        "tillgate",
        "pytest-django",
    }
    source = "\n".join(
        path.read_text("utf-8") for path in (ROOT / "src/tillgate/testing").rglob("*.py")
    )
    words = set(re.findall(r"\w+", source))
    used = {
        name.lower()
        for module, names in packages_distributions().items()
        if module in words
        for name in names
    }
    assert asked - used == set()
