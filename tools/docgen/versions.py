"""The table of versions: a sample of the tests on each Python, Django and framework, in
environments under .nox/versions/.

Saleor is a server: its tests run on the one that `SALEOR_URL` names, as
`plugins/saleor/tests/real/README.md` describes.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from tillgate.testing.report import source_commit
from tools.docgen.parts import ROOT, replaced

__all__ = ["ROWS", "pages", "run"]

PAGE: Final = Path(__file__).with_suffix(".md")
RESULTS: Final = ROOT / "docs" / "reference" / "versions.json"
_LOWEST: Final = Path(__file__).with_name("constraints-lowest.txt")
_EXTRAS: Final = "[async,celery,django,otel,sandbox,testing]"
_TOOLS: Final = (
    "hypothesis",
    "opentelemetry-sdk",
    "psutil",
    "psycopg[binary]",
    "pymysql",
    "pytest-xdist",
)
_CORE: Final = (
    "tests/wire",
    "tests/hooks",
    "tests/test_account.py",
    "tests/test_client.py",
    "tests/test_transport.py",
    "tests/test_cli.py",
)
_DJANGO: Final = (
    "tests/django/payments/test_reconciling.py",
    "tests/django/outbox/test_outbox.py",
    "tests/django/pages/test_pages.py",
)
_PRETIX: Final = ("tests/test_paying.py", "tests/test_installation.py")
_SHOWN: Final = ("Django", "django-oscar", "django-payments", "pretix", "pydantic")


@dataclass(frozen=True)
class Row:
    """An environment: a Python, its differences from the constraints, and the samples of tests that
    run there.
    """

    python: str
    pins: tuple[str, ...] = ()
    plugin: str = ""
    tests: tuple[str, ...] = (*_CORE, *_DJANGO)
    is_lowest: bool = False
    is_alone: bool = False
    """Whether the framework pins its own dependencies, in other versions than the constraints."""
    server: str = ""
    """The release of the server that the tests drive, such as `3.23`."""


ROWS: Final = {
    "python-3.11": Row("3.11", ("Django==5.2.*",)),
    "python-3.12": Row("3.12", ("Django==6.0.*",)),
    "python-3.13": Row("3.13", ("Django==6.1.*",)),
    "python-3.14": Row("3.14", ("Django==6.1.*",)),
    "lowest": Row("3.11", is_lowest=True),
    "oscar": Row(
        "3.11",
        ("django-oscar==4.2.*",),
        "oscar",
        ("tests/test_payments.py", "tests/test_placing.py"),
    ),
    "oscar-before": Row(
        "3.11",
        ("django-oscar==4.1.*", "django-treebeard==4.*"),
        "oscar",
        ("tests/test_payments.py", "tests/test_placing.py"),
    ),
    "django-payments": Row(
        "3.11",
        ("django-payments==4.1.*",),
        "django-payments",
        ("tests/test_provider.py",),
    ),
    "pretix": Row("3.11", ("pretix==2026.8.*",), "pretix", _PRETIX, is_alone=True),
    "pretix-before": Row("3.11", ("pretix==2026.7.*",), "pretix", _PRETIX, is_alone=True),
    "saleor": Row("3.11", plugin="saleor", tests=("tests/real",), server="3.23"),
    "saleor-before": Row("3.11", plugin="saleor", tests=("tests/real",), server="3.22"),
}


def run(names: list[str]) -> list[str]:
    """Run the samples, keep their results, and return the names of those that failed. A row without
    its server stays as it was.
    """
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    running, failed = _saleor(), []
    for name in names or ROWS:
        wanted = ROWS[name].server
        if wanted and not running.startswith(f"{wanted}."):
            print(
                f"{name}: not tried: it needs a Saleor {wanted} at SALEOR_URL, where "
                f"{running or 'none'} is",
                flush=True,
            )
            failed += [name] if names else []  # a named row must run
            continue
        print(f"{name} ...", flush=True)
        results[name] = _result(name, ROWS[name])
        print(f"{name}: {results[name]['result']}", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
        # pytest counts the failures first
        failed += [] if re.match(r"\d+ passed", results[name]["result"]) else [name]
    return failed


def pages() -> dict[Path, str]:
    """Return the page as its results have it."""
    results = json.loads(RESULTS.read_text("utf-8"))
    return {
        PAGE: replaced(
            PAGE.read_text("utf-8"),
            "versions",
            "nox -s versions",
            "\n".join(_lines(results)),
        ),
    }


def _lines(results: dict[str, dict[str, str]]) -> Iterator[str]:
    yield from ("| environment | with | result | seen |", "|---|---|---|---|")
    for name in ROWS:
        found = results.get(name, {"with": "", "result": "not tried", "seen": ""})
        yield f"| {name} | {found['with']} | {found['result']} | {found['seen']} |"


def _result(name: str, row: Row) -> dict[str, str]:
    day = datetime.datetime.now(datetime.UTC).date()
    seen = f"commit {source_commit(ROOT)}, {day}"
    python = _python(row.python)
    if python is None:
        return {
            "with": f"Python {row.python}",
            "result": "not tried: this Python was not there",
            "seen": seen,
        }
    folder = ROOT / ".nox" / "versions" / name
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "VIRTUAL_ENV", "DJANGO", "CI"))
    }
    own = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    plugin = [str(ROOT / "plugins" / row.plugin) + "[testing]"] if row.plugin else []
    if row.is_alone:
        wanted = [str(ROOT), *plugin, *row.pins]
    else:
        constraints = _LOWEST if row.is_lowest else _constraints(folder, row)
        wanted = ["--constraint", str(constraints), f"{ROOT}{_EXTRAS}", *plugin, *_TOOLS, *row.pins]
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    installed = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)
    if installed.returncode:
        return {
            "with": f"Python {row.python}",
            "result": f"not installed: {installed.stderr.strip().splitlines()[-1][:200]}",
            "seen": seen,
        }
    at_once = "0" if row.server else "2"  # there is one server
    command = [own, "-m", "pytest", "-q", "-n", at_once, "-p", "no:cacheprovider", *row.tests]
    cwd = ROOT / "plugins" / row.plugin if row.plugin else ROOT
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environment, "HYPOTHESIS_PROFILE": "brief"},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "pytest.log").write_text(done.stdout + done.stderr, "utf-8")
    told = re.findall(r"^=*\s*(.*(?:passed|failed|error).*?)(?: in .*)$", done.stdout, re.MULTILINE)
    server = f", Saleor {_saleor()}" if row.server else ""
    return {
        "with": _with(own) + server,
        "result": told[-1] if told else f"pytest ended with {done.returncode}",
        "seen": seen,
    }


def _python(version: str) -> str | None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def _saleor() -> str:
    """Return the version of the Saleor that `SALEOR_URL` names, or "" where it names none."""
    if not (url := os.environ.get("SALEOR_URL", "")):
        return ""

    def ask(
        query: str,
        variables: dict[str, str],
        headers: dict[str, str],
    ) -> dict[str, dict[str, str]]:
        answer = httpx.post(
            url,
            json={"query": query, "variables": variables},
            headers=headers,
            timeout=30,
        )
        found: dict[str, dict[str, str]] = answer.raise_for_status().json()["data"]
        return found

    who = {"email": os.environ["SALEOR_EMAIL"], "password": os.environ["SALEOR_PASSWORD"]}
    create = (
        "mutation($email: String!, $password: String!) { tokenCreate(email: $email, "
        "password: $password) { token } }"
    )
    token = ask(create, who, {})["tokenCreate"]["token"]
    return ask("{ shop { version } }", {}, {"Authorization": f"Bearer {token}"})["shop"]["version"]


def _constraints(folder: Path, row: Row) -> Path:
    """Return the constraints without the packages that the row pins otherwise; a framework's own
    requirements are free with an older release.
    """
    free = {pin.partition("==")[0].lower() for pin in row.pins} | {
        "django-treebeard",
        "django-stubs",
        "django-stubs-ext",
    }
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    path = folder / "constraints.txt"
    path.write_text(
        "\n".join(line for line in lines if line.partition("==")[0].lower() not in free) + "\n",
        "utf-8",
    )
    return path


def _with(python: str) -> str:
    code = (
        "import importlib.metadata as m, platform, sys\n"
        "print('Python ' + platform.python_version(), *(f'{d.name} {d.version}' for n in "
        "sys.argv[1:]"
        " for d in m.distributions(name=n)), sep=', ')"
    )
    return subprocess.run(
        [python, "-c", code, *_SHOWN],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
