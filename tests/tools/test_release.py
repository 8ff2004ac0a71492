"""The release: one number for all distributions, and archives in which a fault is found."""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import noxfile
import tillgate
from tools.release import archives
from tools.release.archives import ROOT, Distribution, addressed, distributions, faults

STRIPE = next(one for one in distributions() if one.name == "tillgate-stripe")
INFO = f"tillgate_stripe-{STRIPE.version}.dist-info"
METADATA = f"""\
Metadata-Version: 2.4
Name: tillgate-stripe
Version: {STRIPE.version}
Summary: A gateway
License-Expression: BSD-3-Clause
Requires-Python: >=3.11
Keywords: payments
Classifier: Typing :: Typed
Requires-Dist: tillgate>=0.1,<0.2

# Words
"""


def test_distributions_share_tillgate_version() -> None:
    """Plugins ask for the minor version of Tillgate."""
    assert {one.name: one.version for one in distributions()} == {
        one.name: tillgate.__version__ for one in distributions()
    }
    own = Version(tillgate.__version__)
    for one in distributions()[1:]:
        (asked,) = [
            Requirement(text)
            for text in one.project["dependencies"]
            if Requirement(text).name == "tillgate"
        ]
        assert str(asked.specifier) in (
            f"<{own.major}.{own.minor + 1},>={own.major}.{own.minor}",
        ), one.name


def write(
    into: Path,
    distribution: Distribution,
    *,
    metadata: str,
    without: str = "",
    extra: str = "",
) -> None:
    """Write the two archives of a distribution by hand."""
    listed = subprocess.run(
        ["git", "ls-files"],
        cwd=distribution.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    files = [name for name in listed if name != without]
    with zipfile.ZipFile(distribution.wheel(into), "w") as wheel:
        for name in files:
            if name.startswith("src/"):
                wheel.write(distribution.folder / name, name.removeprefix("src/"))
        for name in ("RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"):
            wheel.writestr(f"{INFO}/{name}", "")
        wheel.writestr(f"{INFO}/METADATA", metadata)
        if extra:
            wheel.writestr(extra, "")
    with tarfile.open(distribution.sdist(into), "w:gz") as source:
        for name in files:
            source.add(distribution.folder / name, f"tillgate_stripe-{distribution.version}/{name}")


@pytest.mark.parametrize(
    ("without", "extra", "change", "html", "fault"),
    [
        ("", "", ("", ""), "", ""),
        ("src/tillgate_stripe/py.typed", "", ("", ""), "", "the wheel has no py.typed"),
        ("src/tillgate_stripe/api.py", "", ("", ""), "", "the wheel lacks tillgate_stripe/api.py"),
        ("tests/test_plugin.py", "", ("", ""), "", "the source archive lacks tests/test_plugin.py"),
        ("", "tests/__init__.py", ("", ""), "", "the wheel has tests/__init__.py"),
        ("", "", ("<0.2", "<1"), "", "not for a Tillgate of its own minor version"),
        ("", "", ("tillgate>=0.1,<0.2", "tillgate @ file:///x"), "", "an index refuses"),
        ("", "", (f"Version: {STRIPE.version}", "Version: 7"), "", "Version is '7'"),
        ("", "", ("# Words", "/path/to/tillgate"), "", "only a clone has"),
        (
            "",
            "",
            ("", ""),
            '<h1>x</h1><a href="docs/x.md">',
            "its description links to 'docs/x.md'",
        ),
    ],
)
def test_a_fault_of_an_archive_is_found(
    without: str,
    extra: str,
    change: tuple[str, str],
    html: str,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        archives,
        "rendered",
        lambda _: html or '<h1>Words</h1><a href="https://tillgate.example">',
    )
    write(
        tmp_path,
        STRIPE,
        metadata=METADATA.replace(*change) if change[0] else METADATA,
        without=without,
        extra=extra,
    )
    found = list(faults(STRIPE, tmp_path))
    assert any(fault in one for one in found) if fault else found == []


@pytest.mark.parametrize("one", distributions(), ids=lambda one: str(one.name))
def test_every_distribution_says_what_it_is(one: Distribution) -> None:
    assert len(one.project["description"]) > 20
    assert len(one.project["keywords"]) > 2
    assert (one.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("one", distributions(), ids=lambda one: str(one.name))
def test_addressed_pages_lead_to_existing_files(
    one: Distribution,
) -> None:
    """Each page with addresses also has a picture."""
    page = addressed(
        (one.folder / "README.md").read_text("utf-8"),
        one,
        "https://code.example/tillgate",
    )
    found = re.findall(
        rf"https://code\.example/tillgate/(blob|raw)/v{re.escape(one.version)}/([^)#\"]+)",
        page,
    )
    assert [path for _, path in found if not (ROOT / path).exists()] == []
    assert {path.rpartition(".")[2] for kind, path in found if kind == "raw"} == {"png"}
    assert (
        re.findall(
            r'\]\((?!https?:|#)[^)]*\)|src="(?!https:)',
            re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE),
        )
        == []
    )


def test_sqlite_skips_run_on_other_databases() -> None:
    """It would run nowhere."""
    files = [
        file
        for name in noxfile.ANYWHERE
        for file in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    assert len(files) > 20
    assert [file.name for file in files if 'DATABASE == "sqlite"' in file.read_text("utf-8")] == []


def test_workflow_runs_whole_ci_script() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    together = re.search(r"^stages (.+)$", script, re.MULTILINE)
    assert together is not None
    stages = set(re.findall(r"^stage (.+)$", script, re.MULTILINE)) - {"make setup"} | set(
        shlex.split(together[1]),
    )
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    matrix = workflow.partition("        run:\n")[2].partition("    services:")[0]
    parts = set(
        re.findall(
            r"^ {10}- (.+)$",
            matrix.replace("nox -s simulator simulator_payu plugins", "nox -s plugins"),
            re.MULTILINE,
        ),
    )
    assert parts == stages | {"nox -s provers"}, (
        "the tests of the long proofs, for which the script has no time"
    )
