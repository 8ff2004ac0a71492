"""The release: one number for all distributions, and archives in which a fault is found."""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import noxfile
import tillgate
from tools.release import __main__ as release_main
from tools.release import archives, trials
from tools.release.archives import ROOT, Distribution, addressed, distributions, faults

STRIPE = next(one for one in distributions() if one.name == "tillgate-stripe")
OSCAR = next(one for one in distributions() if one.name == "tillgate-oscar")
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
    info = f"{distribution.package}-{distribution.version}.dist-info"
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
            if name.startswith("src/") and not name.endswith(".po"):
                wheel.write(distribution.folder / name, name.removeprefix("src/"))
        points = ["entry_points.txt"] if "entry-points" in distribution.project else []
        for name in ("RECORD", "WHEEL", "licenses/LICENSE", *points):
            wheel.writestr(f"{info}/{name}", "")
        wheel.writestr(f"{info}/METADATA", metadata)
        if extra:
            wheel.writestr(extra, "")
    with tarfile.open(distribution.sdist(into), "w:gz") as source:
        for name in files:
            source.add(
                distribution.folder / name, f"{distribution.package}-{distribution.version}/{name}"
            )


@pytest.mark.parametrize(
    ("without", "extra", "change", "html", "fault"),
    [
        ("", "", ("", ""), "", ""),
        ("src/tillgate_stripe/py.typed", "", ("", ""), "", "the wheel has no py.typed"),
        ("src/tillgate_stripe/api.py", "", ("", ""), "", "the wheel lacks tillgate_stripe/api.py"),
        ("tests/test_plugin.py", "", ("", ""), "", "the source archive lacks tests/test_plugin.py"),
        ("", "tests/__init__.py", ("", ""), "", "the wheel has tests/__init__.py"),
        ("", "tillgate_stripe/de.po", ("", ""), "", "the wheel has tillgate_stripe/de.po"),
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


def test_wheel_needs_mo_without_po(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "rendered", lambda _: "<h1>Words</h1>")
    write(tmp_path, OSCAR, metadata=METADATA)
    assert list(faults(OSCAR, tmp_path)) == []
    compiled = "tillgate_oscar/locale/de/LC_MESSAGES/django.mo"
    write(tmp_path, OSCAR, metadata=METADATA, without=f"src/{compiled}")
    assert f"the wheel lacks {compiled}" in list(faults(OSCAR, tmp_path))


def test_changed_file_in_wheel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "rendered", lambda _: "<h1>Words</h1>")
    write(tmp_path, STRIPE, metadata=METADATA, without="src/tillgate_stripe/api.py")
    with zipfile.ZipFile(STRIPE.wheel(tmp_path), "a") as wheel:
        wheel.writestr("tillgate_stripe/api.py", "changed")
    assert "the wheel's tillgate_stripe/api.py is not the file that git knows" in list(
        faults(STRIPE, tmp_path),
    )


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs a release of empty archives, with two trials; one fails."""

    def build(one: Distribution, into: Path, _: str) -> None:
        one.wheel(into).touch()
        one.sdist(into).touch()

    def fails(_: trials.Place) -> Iterator[str]:
        raise trials.TrialProblem("no page")

    monkeypatch.setattr(release_main, "build", build)
    monkeypatch.setattr(release_main, "faults", lambda *_: [])
    monkeypatch.setattr(release_main, "_checked", lambda _: [])
    monkeypatch.setattr(trials, "TRIALS", {"core": lambda _: iter(["good"]), "oscar": fails})

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["release", "--into", str(tmp_path), *arguments])
        return release_main.main()

    return run


def test_failed_trial_runs_again_unbuilt(
    release: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other trials go on, and the end names the command."""
    assert release() == 1
    said = capsys.readouterr().out
    assert ("building tillgate" in said, "core: good" in said) == (True, True)
    assert said.endswith('once it works: make release TRIALS="oscar"\n')
    assert release("--only", "core") == 0
    said = capsys.readouterr().out
    assert ("building tillgate" in said, "core: good" in said) == (False, True)
    assert "to publish, from commit" not in said
    assert release("--only", "nothing") == 0
    said = capsys.readouterr().out
    assert ("building tillgate" in said, "core: good" in said) == (True, False)


def test_late_command_names_patience(tmp_path: Path) -> None:
    limits = trials.Limits(command_seconds=0.1)
    with pytest.raises(trials.TrialProblem, match=r"longer than 0 s: PATIENCE=3"):
        trials.Place(tmp_path, tmp_path, limits).run("sleep", "5")
    assert limits.times(3) == trials.Limits(0.1 * 3, 360, 90, 180, 90)


def test_every_plugin_has_a_trial() -> None:
    names = {one.name.removeprefix("tillgate-") for one in distributions()[1:]}
    assert names - {"django-payments"} <= trials.TRIALS.keys(), "author tries that one"


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
    [together] = re.findall(r"^stages (.+)$", script.replace("\\\n", ""), re.MULTILINE)
    listed = shlex.split(together)
    names = {file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml")} - {"pretix"}
    plugins = {f"nox -s plugins({name})" for name in names}
    databases = {"nox -s tests(postgresql)", "nox -s tests(mariadb)"}
    assert set(listed) >= plugins | databases
    stages = set(re.findall(r"^stage (.+)$", script, re.MULTILINE)) - {"make setup"} | {
        "nox -s plugins",
        'nox -s "tests(postgresql)" "tests(mariadb)"',
        *(set(listed) - plugins - databases),
    }
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
