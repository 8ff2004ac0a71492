"""The fixtures of `tillgate.testing`, a pytest plugin that a project names explicitly
(README.md).
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tillgate.account import Account
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Options,
    Sandbox,
)
from tillgate.testing.cassettes import Cassette
from tillgate.testing.network import blocked
from tillgate.testing.scrubbing import REPLAY_BASE_URL
from tillgate.wire import references
from tillgate.wire.dialects import REFERENCE, Dialect

_OPTION: Final = "--record-cassettes"
_LIVE: Final = ("TILLGATE_BASE_URL", "TILLGATE_MERCHANT_NO", "TILLGATE_TOKEN")
_PROJECT_FILES: Final = ("pyproject.toml", "pytest.toml", "pytest.ini", "tox.ini", "setup.cfg")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.]+")
_YES: Final = ("1", "true", "yes", "on")

_passed = pytest.StashKey[bool]()
_claimed = pytest.StashKey[dict[Path, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one option."""
    group = parser.getgroup("tillgate", "cassettes")
    text = (
        f"record cassettes from the sandbox, or from the live account in {', '.join(_LIVE)}, "
        "in place of replaying them"
    )
    group.addoption(_OPTION, action="store_true", default=False, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to record in CI, where no person reviews a recording."""
    config.stash[_claimed] = {}
    if not _is_recording(config):
        return
    if os.environ.get("CI", "").lower() in _YES:
        raise pytest.UsageError(
            f"{_OPTION} is refused while CI is set: record elsewhere and commit the files",
        )
    given = [name for name in _LIVE if os.environ.get(name)]
    if given and len(given) < len(_LIVE):
        missing = ", ".join(name for name in _LIVE if name not in given)
        raise pytest.UsageError(
            f"{_OPTION}: {missing} is missing: set all of {', '.join(_LIVE)} to record from a "
            "live account, or none",
        )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Report the gateway that a recording comes from."""
    return f"cassettes: recording from {_origin()}" if _is_recording(config) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself has passed: a failed one leaves its cassette unchanged."""
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture
def cassette_directory(request: pytest.FixtureRequest) -> Path:
    """Return the folder of the cassettes: `cassettes/` beside the nearest pyproject.toml,
    pytest.ini and so on above the test.
    """
    root = request.config.rootpath
    parents = [
        folder for folder in request.path.parents if folder == root or root in folder.parents
    ]
    projects = (
        folder for folder in parents if any((folder / name).exists() for name in _PROJECT_FILES)
    )
    return next(projects, root) / "cassettes"


@pytest.fixture
def cassette(
    request: pytest.FixtureRequest,
    cassette_directory: Path,
    gateway_account: Account,
) -> Iterator[Cassette]:
    """Replay the test's conversation with the gateway from its file without a network, or record it
    with `--record-cassettes`.
    """
    is_recording = _is_recording(request.config)
    path = cassette_directory / f"{_file_name(request.node)}.yaml"
    owner = request.config.stash[_claimed].setdefault(path, request.node.nodeid)
    if owner != request.node.nodeid:
        pytest.fail(
            f"{request.node.nodeid} and {owner} would share the cassette {path.name}: rename one "
            "of them",
            pytrace=False,
        )
    if not is_recording:
        request.getfixturevalue("no_network")
    cassette = Cassette(
        path,
        gateway_account,
        is_recording=is_recording,
        title=f"{request.node.nodeid}, recorded from {_origin()}",
        command=f"pytest {shlex.quote(request.node.nodeid)} {_OPTION}",
    )
    with pytest.MonkeyPatch.context() as patch, cassette.running():
        patch.setattr(references, "secrets", cassette.references)
        yield cassette
    if request.node.stash.get(_passed, False):
        cassette.finish()


@pytest.fixture
def no_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if any code tries to connect, even if the code hides the refusal. The mark
    `allow_hosts` names exceptions.
    """
    mark = request.node.get_closest_marker("allow_hosts")
    hosts = mark.args[0] if mark else []
    with blocked(hosts.split(",") if isinstance(hosts, str) else hosts) as attempts:
        yield
    if attempts and request.node.stash.get(_passed, False):
        pytest.fail(f"the test tried to use the network: {attempts[0]}", pytrace=False)


@pytest.fixture
def gateway_dialect() -> Dialect:
    """Return the dialect of `gateway_account`; parametrize or override it for another."""
    return REFERENCE


@pytest.fixture
def gateway_account(request: pytest.FixtureRequest, gateway_dialect: Dialect) -> Account:
    """Return the account to call the gateway with: the test merchant in a replay, the sandbox's or
    the live one in a recording.
    """
    base_url, merchant_no, token = REPLAY_BASE_URL, PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
    store_no, is_sandbox = PUBLISHED_STORE_NO, False
    if _is_recording(request.config) and _is_live():
        base_url, merchant_no, token = (os.environ[name] for name in _LIVE)
        store_no, is_sandbox = (
            os.environ.get("TILLGATE_STORE_NO", ""),
            os.environ.get("TILLGATE_SANDBOX", "").lower() in _YES,
        )
    elif _is_recording(request.config):
        running: Sandbox = request.getfixturevalue("sandbox")
        base_url, is_sandbox = running.base_url, True
        merchant_no, token = next(iter(running.options.merchants.items()))
    return Account(
        base_url=base_url,
        merchant_no=merchant_no,
        token=token,
        sandbox=is_sandbox,
        dialect=gateway_dialect,
        store_no=store_no,
    )


@pytest.fixture
def sandbox_options() -> Options:
    """Return the options of the sandbox, with a random merchant, which shows a leak through
    scrubbing; override it for others.
    """
    merchants = {str(10**9 + secrets.randbelow(9 * 10**9)): secrets.token_hex(16)}
    return Options(
        seed=1,
        merchants=merchants,
        notification_hosts=("127.0.0.1", "localhost", "::1"),
    )


@pytest.fixture
def sandbox(sandbox_options: Options) -> Iterator[Sandbox]:
    """Run a sandbox of the gateway on a free port of this machine for the length of the test."""
    with Sandbox(sandbox_options) as running:
        yield running


@pytest.fixture
def sandbox_when_recording(request: pytest.FixtureRequest) -> Sandbox | None:
    """Return the sandbox that a cassette is recorded from, or None in a replay. A recording from a
    live account skips the test.
    """
    if not _is_recording(request.config):
        return None
    if _is_live():
        pytest.skip("needs the sandbox")
    running: Sandbox = request.getfixturevalue("sandbox")
    return running


@pytest.fixture
def fresh_reference(cassette: Cassette) -> Callable[[str], str]:
    """Return a function that makes references: new ones in each recording, the same ones in every
    replay.
    """
    return references.new_reference


def _is_recording(config: pytest.Config) -> bool:
    # unknown where a module names the plugin: too late for options
    return bool(config.getoption("record_cassettes", default=False))


def _is_live() -> bool:
    return bool(os.environ.get(_LIVE[0]))


def _origin() -> str:
    return "a live account" if _is_live() else "the sandbox"


def _file_name(item: pytest.Item) -> str:
    names = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    return _UNSAFE.sub("-", ".".join([*names, item.name])).strip("-")
