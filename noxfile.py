"""The checks and environments of the project: `nox --list`, then `nox -s NAME`; words after `--` go
to the tool.

`make setup` builds .venv, in which most sessions run. A session whose tools need other versions has
an environment of its own under .nox/, built by uv where that is installed, and built again only
when what it installs has changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
BIN = ROOT / ".venv/bin"
# pretix pins what the others need in other versions: its plugin has a session of its own.
PLUGINS = sorted(
    folder.parent.name
    for folder in ROOT.glob("plugins/*/pyproject.toml")
    if folder.parent.name != "pretix"
)

# What takes long, and is run by the session `long` and no other.
PROVERS = (
    "tests/proving",
    "tests/tools/test_benchmarks.py",
    "tests/django/proofs/test_killing.py",
)
LONG = (
    *PROVERS,
    "tests/django/proofs/test_crashes.py",
    "tests/smallest_shop/test_mutants.py",
    "tests/test_scaffold.py",
    "tests/testing/test_conformance.py",
    "tests/testing/test_gateway_conformance.py",
    "tests/testing/test_shop_on_another_gateway.py",
)
# What is the same on every database, or tried there by `python -m proving kill-lines`.
ANYWHERE = (
    "tests/django/security",
    "tests/django/pages/test_admin.py",
    "tests/django/pages/test_pages.py",
    "tests/django/operating/test_observers.py",
    "tests/django/payments/test_webhooks.py",
    *(
        f"tests/django/test_{name}.py"
        for name in (
            *("accounts", "actions", "bad_input", "currencies", "languages", "settings"),
            "tutorial",
        )
    ),
    "tests/django/payments/test_by_staff.py",
    "tests/django/payments/test_expect.py",
    "tests/django/payments/test_wrong_credentials.py",
    "tests/django/accounting/test_importing.py",
    "tests/django/accounting/test_differences.py",
    "tests/django/worker/test_mail.py",
    "tests/django/orders/test_status.py",
    "tests/django/orders/test_values.py",
    "tests/django/outbox/test_uninstalled.py",
    "tests/smallest_shop/test_mutants.py",
    "tests/django/proofs/test_crashes.py",
    "tests/django/proofs/test_killing.py",
)
# What PostgreSQL beside SQLite is enough for.
ON_POSTGRESQL = (
    *(f"tests/django/test_{name}.py" for name in ("celery", "checks", "commands")),
    "tests/django/test_numbers_of_staff.py",
    "tests/django/pages/test_admin_clerks.py",
    "tests/django/pages/test_monitors.py",
    "tests/django/worker/test_runner.py",
    "tests/django/pages/test_admin_figures.py",
    "tests/django/worker/test_watch.py",
    "tests/django/accounting/test_audit.py",
    "tests/django/accounting/test_figures.py",
    "tests/django/accounting/test_settlement.py",
    "tests/django/test_heartbeats.py",
    "tests/django/orders/test_timeline.py",
)
# What another Python could change.
ON_OTHER_PYTHONS = (
    *(
        "tests/wire",
        "tests/hooks",
        "tests/test_account.py",
        "tests/test_client.py",
        "tests/test_lifecycle.py",
        "tests/test_money.py",
    ),
    *("tests/test_plugins.py", "tests/test_public_names.py", "tests/test_transport.py"),
)

nox.options.default_venv_backend = "uv|venv"
nox.options.download_python = "never"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = False
nox.options.sessions = ["lint", "types", "tests(sqlite)"]
for folder in sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin")):
    os.environ["PATH"] += f":{folder}"
# hundreds of tests start processes: each would compile the sources again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def here(session: nox.Session, program: str, *arguments: str, **environment: str) -> None:
    """Run a program of .venv; `make setup` builds it."""
    if not (BIN / "python").exists():
        session.error("there is no .venv yet: make setup")
    session.run(str(BIN / program), *arguments, external=True, env=environment or None)


def pytest(session: nox.Session, *arguments: str, **environment: str) -> None:
    """Run pytest of .venv with what is given after `--`: two workers, since .ci/run has two
    sessions at work.
    """
    here(session, "pytest", "-n", "2", *arguments, *session.posargs, **environment)


def ignoring(paths: Sequence[str]) -> list[str]:
    """Return the arguments by which pytest leaves out these paths."""
    return [word for path in paths for word in ("--ignore", path)]


def install(
    session: nox.Session,
    *what: str,
    constraints: Sequence[str] = (),
    editable: Sequence[str] = (),
) -> None:
    """Install into the session's own environment, unless it holds just that already."""
    words = [*what, *(word for path in constraints for word in ("--constraint", path))]
    words += [word for path in editable for word in ("--editable", path)]
    files = [*constraints, *(f"{path.partition('[')[0]}/pyproject.toml" for path in editable)]
    state = hashlib.sha256(
        "\n".join([*words, *((ROOT / file).read_text("utf-8") for file in files)]).encode(),
    ).hexdigest()
    stamp = Path(session.virtualenv.location) / "installed"
    if not stamp.exists() or stamp.read_text("utf-8") != state:
        session.install(*words)
        stamp.write_text(state, "utf-8")


# What runs in .venv.


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style, and the layers and circles of imports."""
    here(session, "ruff", "check")
    here(session, "ruff", "format", "--check")
    here(session, "lint-imports", "--no-cache")
    here(session, "python", "-m", "tools.circles")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Check the types of all but the plugins."""
    here(session, "python", "-m", "mypy")


@nox.session(venv_backend="none")
@nox.parametrize(
    "database",
    [nox.param(name, id=name) for name in ("sqlite", "postgresql", "mariadb")],
)
def tests(session: nox.Session, database: str) -> None:
    """Test on a database: all but what is long on SQLite, on the others what a database can
    change.
    """
    if database == "sqlite":
        folders = ("tests/django", "tests/shop", "tests/browser", "tests/example_shop")
        # these wait for sockets and processes half of their time
        pytest(session, "-n", "4", *ignoring([*folders, *LONG]))
        pytest(session, "-n", "3", "tests/django", *ignoring(LONG))
        pytest(session, "-n", "3", "tests/shop")
        return
    left_out = ignoring([*ANYWHERE, *(ON_POSTGRESQL if database == "mariadb" else ())])
    pytest(
        session,
        "-m",
        "not once",
        "tests/django",
        "tests/smallest_shop",
        *left_out,
        TILLGATE_TEST_DATABASE=database,
    )


@nox.session(venv_backend="none")
@nox.parametrize("plugin", [nox.param(name, id=name) for name in PLUGINS])
def plugins(session: nox.Session, plugin: str) -> None:
    """Check types and tests of a plugin on its framework; TILLGATE_TEST_DATABASE chooses the
    database.
    """
    with session.chdir(f"plugins/{plugin}"):
        here(session, "python", "-m", "mypy", "--show-absolute-path")
        pytest(session)


@nox.session(venv_backend="none")
def shop(session: nox.Session) -> None:
    """Test the example shop, and every page in a browser."""
    pytest(session, "tests/example_shop", "tests/browser", TILLGATE_TEST_NAME="tillgate_shop")


@nox.session(venv_backend="none")
def long(session: nox.Session) -> None:
    """Test what takes long: fresh environments, the kit's own tests, crashes, a failover, a
    storm.
    """
    options = ("--dist", "loadgroup", "-m", "not provers")
    pytest(session, *options, *LONG, TILLGATE_TEST_NAME="tillgate_long")


@nox.session(venv_backend="none")
def provers(session: nox.Session) -> None:
    """Test the long proofs, the fuzzer and the benchmarks themselves; `python -m proving all`
    begins with them.
    """
    pytest(session, "--dist", "loadgroup", "-m", "provers", *PROVERS)


@nox.session(venv_backend="none")
def cassettes(session: nox.Session) -> None:
    """Record the cassettes again: from the sandbox, or from the account in TILLGATE_BASE_URL,
    _MERCHANT_NO and _TOKEN.
    """
    here(session, "pytest", "tests/test_cassettes.py", *session.posargs, TILLGATE_RECORD="1")


@nox.session(venv_backend="none")
def conformance(session: nox.Session) -> None:
    """Run the conformance kit on every shop and write its tables; plugins after `--`. Needs the
    session pretix once.
    """
    here(session, "python", "-m", "tools.docgen", "conformance", *session.posargs)


@nox.session(venv_backend="none")
def versions(session: nox.Session) -> None:
    """Run a sample of the tests on each Python, Django and framework, and on the Saleor at
    SALEOR_URL; write the table.
    """
    here(session, "python", "-m", "tools.docgen", "versions", *session.posargs)


@nox.session(venv_backend="none")
def coverage(session: nox.Session) -> None:
    """Count the lines and branches that the tests of `make test` and of the plugins reach, or of
    those after `--`; write the table.
    """
    left_out = (*LONG, "tests/browser", "tests/example_shop")
    options = [f"--leave-out={path}" for path in left_out]
    chosen = session.posargs or ["tillgate", *PLUGINS]
    here(session, "python", "-m", "tools.docgen", "coverage", *chosen, *options)


@nox.session(venv_backend="none")
def upgrade(session: nox.Session) -> None:
    """Upgrade a shop that an older version filled, while old and new processes sell side by side;
    `-- --help` has options.
    """
    here(session, "python", "-m", "tools.release.upgrade", *session.posargs)


# What has an environment of its own.


@nox.session(python=["3.12", "3.13"])
def pythons(session: nox.Session) -> None:
    """Test wire, client and hooks on another Python; `--install-only` builds its environment."""
    install(session, constraints=["constraints.txt"], editable=[".[dev]"])
    session.run(
        "pytest",
        "-q",
        "-n",
        "3",
        *ON_OTHER_PYTHONS,
        *session.posargs,
        env={"HYPOTHESIS_PROFILE": "brief"},
    )


@nox.session
def pretix(session: nox.Session) -> None:
    """Check types and tests of the plugin for pretix, on a real pretix."""
    install(
        session,
        constraints=["plugins/pretix/constraints.txt"],
        editable=[".", "plugins/pretix[testing]"],
    )
    with session.chdir("plugins/pretix"):
        session.run("python", "-m", "mypy")
        session.run("pytest", "-n", "2", *session.posargs)


@nox.session(python="3.12")
def simulator(session: nox.Session) -> None:
    """Build the environment of getpaid's Stripe simulator, with which the plugin for Stripe is
    tested.
    """
    install(
        session,
        "python-getpaid-stripe[simulator]",
        constraints=["plugins/stripe/simulator-constraints.txt"],
    )


@nox.session(python="3.12")
def simulator_payu(session: nox.Session) -> None:
    """Build the environment of getpaid's PayU simulator, with which the plugin for PayU is
    tested.
    """
    install(
        session,
        "python-getpaid-payu[simulator]",
        constraints=["plugins/payu/simulator-constraints.txt"],
    )


@nox.session
def conformance_stripe(session: nox.Session) -> None:
    """Run the shops' scenarios with Stripe as the gateway and write the table; needs pretix and
    simulator once.
    """
    target = ("--upgrade", "--target", "var/stripe")
    session.install("--no-deps", *target, "./plugins/stripe")
    here(session, "python", "-m", "tools.docgen", "conformance-stripe", *session.posargs)


@nox.session
def conformance_payu(session: nox.Session) -> None:
    """Run the shops' scenarios with PayU as the gateway and write the table; needs pretix and
    simulator_payu once.
    """
    session.install("--no-deps", "--upgrade", "--target", "var/payu", "./plugins/payu")
    here(session, "python", "-m", "tools.docgen", "conformance-payu", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site; a link that leads nowhere is an error. `-- serve --open` shows
    it and follows changes.
    """
    tools = ("mkdocs-material", "mkdocstrings[python]", "mike", "ruff")
    install(session, *tools, constraints=["tools/docgen/site-constraints.txt"])
    # Material warns of MkDocs 2, which the constraints keep out. Quiet, MkDocs would count no
    # warning.
    session.run(
        "mkdocs",
        *(session.posargs or ["build", "--strict"]),
        env={"NO_MKDOCS_2_WARNING": "1"},
        silent=not session.posargs,
    )


@nox.session
def fuzz(session: nox.Session) -> None:
    """Build the environment of atheris, for `python -m proving fuzz-guided`."""
    install(
        session,
        "atheris",
        "hypothesis",
        constraints=["constraints.txt", "proving/fuzz/constraints.txt"],
        editable=[".[testing]"],
    )


@nox.session
def mutation(session: nox.Session) -> None:
    """Build the environment of mutmut, for `python -m proving mutation`."""
    files = ["constraints.txt", "proving/mutation/constraints.txt"]
    tools = ("hypothesis", "mutmut", "opentelemetry-sdk")
    install(session, *tools, constraints=files, editable=[".[async,celery,django,otel,testing]"])


@nox.session
def audit(session: nox.Session) -> None:
    """Look for known holes in what .venv holds; says so where their list cannot be reached."""
    install(session, "pip-audit>=2.7,<3")
    here(session, "python", "tools/audit_dependencies.py", str(Path(session.bin) / "pip-audit"))


@nox.session
def release(session: nox.Session) -> None:
    """Build the archives of all distributions into dist/, check them, and try them in clean
    environments.
    """
    tools = ("build", "check-wheel-contents", "httpx", "readme_renderer[md]", "twine")
    install(session, *tools, constraints=["tools/release/constraints.txt"])
    session.run("python", "-m", "tools.release", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure, and write the page performance; dj-stripe, a peer, is in this environment."""
    install(
        session,
        "dj-stripe",
        "gunicorn",
        "psycopg[binary]",
        "pymysql",
        constraints=["tools/benchmarks/peer/constraints.txt"],
    )
    here(session, "python", "-m", "tools.benchmarks", *session.posargs)
