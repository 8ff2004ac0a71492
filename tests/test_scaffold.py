"""`tillgate new-plugin`: its refusals, its files, and that they keep Tillgate's promise as they
stand.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tillgate
from tillgate.cli import main
from tillgate.testing.conformance import Conformance
from tillgate.testing.gateway_conformance import GatewayConformance
from tillgate.testing.scenarios import Scenarios

ROOT = Path(__file__).parents[1]
LONGEST = "a-name-of-forty-characters-is-the-longer"
NAMES = ["x", "book-shop", LONGEST]


def new_plugin(name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["new-plugin", *arguments, "--", name])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=NAMES)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A plugin just written."""
    result = new_plugin(request.param)
    assert result.exit_code == 0, result.output
    return tmp_path / f"tillgate-{request.param}"


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("", "must be small letters"),
        ("Book Shop", "how about book-shop"),
        ("book_shop", "how about book-shop"),
        ("book--shop", "how about book-shop"),
        ("-shop", "how about shop"),
        ("shop\n", "how about shop"),
        ("../shop", "how about shop"),
        ("2shop", "a letter first"),
        ("bücher", "must be small letters"),
        (f"{LONGEST}s", "up to 40"),
        ("gateway", "choose another"),
        ("imported", "choose another"),
        ("saleor", "install tillgate-saleor"),
        ("tillgate-shop", "give shop"),
    ],
)
def test_impossible_name_writes_nothing(
    name: str,
    remedy: str,
    tmp_path: Path,
) -> None:
    """The message names the remedy."""
    result = new_plugin(name)
    assert (result.exit_code, remedy in result.output) == (2, True), result.output
    assert result.output.startswith(f"InvalidRequest: name: {name!r} ")
    assert list(tmp_path.iterdir()) == []


def test_installed_plugins_name_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path / "site" / "other-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[tillgate]\nbook-shop = other\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    result = new_plugin("book-shop")
    assert (result.exit_code, "is a plugin that is installed here" in result.output) == (2, True), (
        result.output
    )
    (tmp_path / "site" / "tillgate_hat_shop").mkdir()
    (tmp_path / "site" / "tillgate_hat_shop" / "__init__.py").touch()
    assert "is a plugin that is installed here" in new_plugin("hat-shop").output
    assert new_plugin("book-shelf").exit_code == 0


def test_every_plugin_of_ours_is_refused() -> None:
    for name in (
        path.name for path in (ROOT / "plugins").iterdir() if (path / "pyproject.toml").is_file()
    ):
        assert new_plugin(name).exit_code == 2, name


IMPORTS = """
import importlib, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
for module in ("plugin", "apps", "signals"):
    importlib.import_module(f"{sys.argv[1]}.{module}")
import tests.driver, tests.test_conformance
"""


@pytest.mark.parametrize("name", ["class", "json", "tests"])
def test_package_of_awkward_name_can_be_imported(name: str, tmp_path: Path) -> None:
    assert new_plugin(name).exit_code == 0
    plugin = tmp_path / f"tillgate-{name}"
    path = os.pathsep.join([str(plugin / "src"), str(plugin)])
    run(
        sys.executable,
        "-c",
        IMPORTS,
        f"tillgate_{name}",
        cwd=plugin,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "link to nowhere"])
def test_nothing_is_ever_overwritten(kind: str, tmp_path: Path) -> None:
    there = tmp_path / "tillgate-book-shop"
    if kind.endswith("folder"):
        there.mkdir()
    if kind == "folder":
        (there / "pyproject.toml").write_text("mine")
    elif kind == "file":
        there.write_text("mine")
    elif kind == "link to nowhere":
        there.symlink_to(tmp_path / "nowhere")
    result = new_plugin("book-shop")
    assert (result.exit_code, "is taken" in result.output) == (2, True), result.output
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == (
        ["mine"] if kind in ("folder", "file") else []
    )


@pytest.mark.parametrize("into", ["nowhere", "file"])
def test_target_must_be_a_folder(into: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = new_plugin("book-shop", "--into", into)
    assert (result.exit_code, result.output) == (
        2,
        f"InvalidRequest: into: '{into}' is not a folder: make it first, or name another\n",
    )


def test_full_disk_reports_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    result = new_plugin("book-shop")
    assert result.exit_code == 2
    assert (
        "into: '.' cannot be written to, No space left on device: what is in tillgate-book-shop "
        "is not whole" in result.output
    )


# Files --------------------------------------------------------------------------------------------


def test_output_lists_files_and_three_commands(tmp_path: Path) -> None:
    (tmp_path / "my plugins").mkdir()
    result = new_plugin("book-shop", "--into", "my plugins")
    folder = tmp_path / "my plugins" / "tillgate-book-shop"
    written = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    assert [line.strip() for line in result.output.splitlines() if line.startswith("    ")] == [
        *written,
        "cd 'my plugins/tillgate-book-shop'",
        "python -m pip install --editable '.[testing]'",
        "python -m pytest",
    ]
    assert "src/tillgate_book_shop/plugin.py" in written


def test_scripts_are_told_the_same_in_json() -> None:
    said = json.loads(new_plugin("book-shop", "--json").stdout)
    assert said["folder"] == "tillgate-book-shop"
    assert said["commands"][0] == "cd tillgate-book-shop"
    assert "pyproject.toml" in said["files"]


def test_no_placeholder_is_left(plugin: Path) -> None:
    texts = {path: path.read_text("utf-8") for path in plugin.rglob("*") if path.is_file()}
    prompt = r"\$(?! (?:DJANGO_SETTINGS_MODULE=\S+ )?(?:python|pip) ).*"
    assert {path.name: re.findall(prompt, text) for path, text in texts.items() if "$" in text} == {
        "README.md": [],
    }
    assert [path for path in plugin.rglob("*") if "$" in path.name or path.suffix == ".tmpl"] == []


def test_project_names_plugin_but_no_licence(plugin: Path) -> None:
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    name = plugin.name.removeprefix("tillgate-")
    package = plugin / "src" / f"tillgate_{name.replace('-', '_')}"
    assert (project["name"], "entry-points" in project) == (plugin.name, False)
    assert f'PLUGIN: Final = "{name}"\n' in (package / "plugin.py").read_text("utf-8")
    assert "license" not in project
    assert not (plugin / "LICENSE").exists()
    assert "Private :: Do Not Upload" in project["classifiers"]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command, which must succeed, and return its standard output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(
            f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}",
        )
    return done.stdout


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_the_linter_finds_nothing(arguments: list[str], plugin: Path) -> None:
    run(
        sys.executable,
        "-m",
        "ruff",
        *arguments,
        "--no-cache",
        "--config",
        ROOT / "pyproject.toml",
        cwd=plugin,
    )


@pytest.mark.parametrize(
    "plugin",
    ["book-shop", "shop", "app"],
    indirect=True,
)  # the last two by the names of the base classes
def test_the_strict_type_checker_finds_nothing(plugin: Path) -> None:
    run(sys.executable, "-m", "mypy", "--cache-dir", ROOT / ".mypy_cache" / "scaffold", cwd=plugin)


DEARER = """
from decimal import Decimal

import pytest
from tillgate.hooks import Order, Payment
from tillgate.lifecycle import PaymentStatus

from tillgate_book_shop.plugin import PLUGIN, tillgate_payment_paid
from toy_shop.models import ToyOrder


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "total", "outcome"),
    [("open", "12.50", "applied"), ("open", "12.51", "underpaid"), ("paid", "12.50", "not-payable"), ("cancelled", "99.00", "not-payable")],
)
def test_paid(status: str, total: str, outcome: str) -> None:
    order = ToyOrder.objects.create(total=Decimal(total), status=status)
    facts = {"reference": "t-1", "method": "alipay", "currency": "USD", "status": PaymentStatus.PAID, "transaction_no": "1"}
    payment = Payment(id="1", order=Order(plugin=PLUGIN, key=str(order.pk)), amount=Decimal("12.50"), **facts)
    assert tillgate_payment_paid(payment) == outcome
    order.refresh_from_db()
    assert order.times_paid == (outcome == "applied")
"""


@pytest.mark.parametrize("plugin", ["book-shop"], indirect=True)
def test_marking_paid_checks_the_price_too(plugin: Path) -> None:
    (plugin / "tests" / "test_dearer.py").write_text(DEARER, "utf-8")
    path = os.pathsep.join(filter(None, [str(plugin / "src"), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--ds",
        "tests.settings",
        "tests/test_dearer.py",
    ]
    assert "4 passed" in run(*command, cwd=plugin, env={**os.environ, "PYTHONPATH": path})


# The how-to follows it line by line ---------------------------------------------------------------

HOW_TO = (ROOT / "docs/how-to/write-a-shop-plugin.md").read_text("utf-8")


def files_shown(page: str, folder: Path) -> set[str]:
    """Return the files of the scaffold that a page shows, each part as it was written, in order."""
    shown = re.findall(r"^```python\n# (\w+/\S+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for file, block in shown:
        rest = (folder / file).read_text("utf-8")
        for part in re.split(r"^ *# \.\.\.\n", block, flags=re.MULTILINE):
            _, found, rest = rest.partition(f"\n{part}")
            assert found, (file, part)
    return {file for file, _ in shown}


@pytest.mark.parametrize("plugin", ["book-shop"], indirect=True)
def test_how_to_code_matches_written_files(plugin: Path) -> None:
    assert files_shown(HOW_TO, plugin) == {"src/tillgate_book_shop/signals.py"}
    assert HOW_TO.count("```python") == 1


@pytest.mark.parametrize("plugin", ["book-shop"], indirect=True)
def test_how_to_lists_every_written_file(plugin: Path) -> None:
    first_cells = re.findall(r"^\| (`.*?) \|", HOW_TO, re.MULTILINE)
    listed = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    assert "src/tillgate_book_shop/plugin.py" in listed
    named = {
        (plugin / name if "/" in name else next(plugin.rglob(name))).relative_to(plugin)
        for name in listed
    }
    assert [name for name in named if not (plugin / name).exists()] == []
    written = {
        path.relative_to(plugin)
        for path in plugin.rglob("*")
        if path.is_file() and path.stat().st_size
    }
    self_explaining = {
        Path(name)
        for name in (".gitignore", "pyproject.toml", "src/tillgate_book_shop/__init__.py")
    }
    assert {
        path for path in written - self_explaining if not {path, *path.parents} & named
    } == set()


def test_how_to_matches_commands_and_readme() -> None:
    """It types the printed commands and has the steps of the README."""
    said = json.loads(new_plugin("book-shop", "--json").stdout)
    typed = re.findall(r"^\$ (.+)$", HOW_TO, re.MULTILINE)
    begin = typed.index("tillgate new-plugin book-shop")
    assert typed[begin + 1 : begin + 1 + len(said["commands"])] == said["commands"]
    readme = Path(said["folder"], "README.md").read_text("utf-8")
    steps = re.findall(r"^#+ (\d\. .+)$", readme, re.MULTILINE)
    assert len(steps) == 6
    assert re.findall(r"^#+ (\d\. .+)$", HOW_TO, re.MULTILINE) == steps


# The files keep the promise -----------------------------------------------------------------------


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a command in a fresh virtual environment, which has nothing but
    Tillgate as it would be published.
    """
    bin_folder = tmp_path / "venv" / "bin"
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not re.match(r"PYTHON|PYTEST|TILLGATE|DJANGO|VIRTUAL_ENV", name)
    }
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
    env = {
        **inherited,
        "PATH": path,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_QUIET": "1",
    }

    def in_environment(*command: str | Path, cwd: Path = tmp_path) -> str:
        return run(*command, cwd=cwd, env=env)

    run(sys.executable, "-m", "venv", bin_folder.parent, cwd=tmp_path)
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"][
        "requires"
    ]
    try:
        in_environment("python", "-m", "pip", "install", *backend)
    except AssertionError as error:
        reason = f"needs a package index: {str(error).strip().splitlines()[-1]}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    in_environment(
        "python",
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--directory",
        tmp_path / "dist",
        cwd=ROOT,
    )
    in_environment("python", "-m", "pip", "install", *(tmp_path / "dist").glob("*.tar.gz"))
    return in_environment


def test_printed_commands_prove_every_scenario(
    fresh: Callable[..., str],
    tmp_path: Path,
) -> None:
    """They run in a fresh environment."""
    said = json.loads(fresh("tillgate", "new-plugin", "book-shop", "--json"))
    (tmp_path / "here").mkdir()
    assert (
        said["files"]
        == json.loads(new_plugin("book-shop", "--into", "here", "--json").stdout)["files"]
    ), "a template was not packed"
    _expect_all_held(fresh, said["commands"], Conformance, "tillgate-book-shop")
    plugin = tmp_path / said["folder"]
    fresh("python", "-m", "hatchling", "build", "--target", "wheel", cwd=plugin)
    (wheel,) = (plugin / "dist").iterdir()
    packages = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert packages == {"tillgate_book_shop", "tillgate_book_shop-0.1.0.dist-info"}, (
        "the toy shop or the tests would be published"
    )


def _expect_all_held(
    fresh: Callable[..., str],
    commands: list[str],
    kit: type[Scenarios],
    distribution: str,
) -> None:
    output = fresh("bash", "-euc", "\n".join(commands))
    total = len(kit.scenarios())
    assert (
        f"{total} of {total} scenarios held: tillgate {tillgate.__version__}, {distribution} "
        "0.1.0, " in output
    )


# For a gateway ------------------------------------------------------------------------------------


@pytest.fixture
def gateway_plugin(tmp_path: Path) -> Path:
    """A gateway's plugin just written."""
    result = new_plugin("pay-now", "--gateway")
    assert result.exit_code == 0, result.output
    assert "Its toy gateway passes the conformance kit" in result.output
    return tmp_path / "tillgate-pay-now"


def test_gateway_commands_prove_every_scenario(
    fresh: Callable[..., str],
    tmp_path: Path,
) -> None:
    """They run in a fresh environment, where the plugin and its profile are installed."""
    said = json.loads(fresh("tillgate", "new-plugin", "--gateway", "pay-now", "--json"))
    _expect_all_held(fresh, said["commands"], GatewayConformance, "tillgate-pay-now")
    assert "pay-now" in fresh("tillgate", "plugins")
    plugin = tmp_path / said["folder"]
    fresh("python", "-m", "hatchling", "build", "--target", "wheel", cwd=plugin)
    (wheel,) = (plugin / "dist").iterdir()
    packages = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert packages == {"tillgate_pay_now", "tillgate_pay_now-0.1.0.dist-info"}


def test_gateway_plugin_pleases_linter_and_type_checker(gateway_plugin: Path) -> None:
    config = ("--no-cache", "--config", ROOT / "pyproject.toml")
    for arguments in (("check", *config), ("format", "--check", *config)):
        run(sys.executable, "-m", "ruff", *arguments, cwd=gateway_plugin)
    cache = ROOT / ".mypy_cache" / "scaffold"
    run(sys.executable, "-m", "mypy", "--cache-dir", cache, cwd=gateway_plugin)


def test_gateway_plugin_has_no_placeholder(gateway_plugin: Path) -> None:
    texts = [path.read_text("utf-8") for path in gateway_plugin.rglob("*") if path.is_file()]
    assert [text for text in texts if re.search(r"\$(?! (?:python|pip) )", text)] == []
    project = tomllib.loads((gateway_plugin / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"] == {
        "tillgate": {"pay-now": "tillgate_pay_now.plugin"},
        "tillgate.profiles": {"pay-now": "tillgate_pay_now.plugin:PROFILE"},
    }
    assert (gateway_plugin / "src/tillgate_pay_now/plugin.py").stat().st_size


def test_gateway_how_to_shows_written_files() -> None:
    assert new_plugin("mygateway", "--gateway").exit_code == 0
    page = (ROOT / "docs/how-to/write-a-gateway-plugin.md").read_text("utf-8")
    shown = files_shown(page, Path("tillgate-mygateway"))
    assert shown == {"src/tillgate_mygateway/plugin.py", "tests/driver.py"}
