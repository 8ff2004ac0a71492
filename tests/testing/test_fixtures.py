"""The fixtures, as a plugin author's project sees them."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN, Options, Sandbox

NAMED = 'pytest_plugins = ["tillgate.testing.fixtures"]\n'

PAYS = """
    import pytest
    from tillgate import Gateway, PaymentRequest

    AMOUNT = "1.00"

    def order(reference):
        return PaymentRequest(reference=reference, currency="USD", amount=AMOUNT, method="alipay", terminal="ONLINE",
                              ipn_url="https://shop.example/ipn", callback_url="https://shop.example/back")

    def test_pay(cassette, gateway_account, fresh_reference):
        with Gateway(gateway_account) as gateway:
            created = gateway.pay(order(fresh_reference("100017")))
            found = gateway.query(created.reference)
        assert created.transaction_no == found.transaction_no
        assert str(found.amount) == AMOUNT
"""

PROVOKES = """
    from tillgate import Gateway, OrderNotFound
    import pytest

    def test_needs_a_fault(cassette, gateway_account, fresh_reference, sandbox_when_recording):
        if sandbox_when_recording:
            sandbox_when_recording.control.fault("denied", occasion="query")
        with Gateway(gateway_account) as gateway, pytest.raises(OrderNotFound):
            gateway.query(fresh_reference("100017"))
"""


@pytest.fixture(autouse=True)
def outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "CI",
        "TILLGATE_BASE_URL",
        "TILLGATE_MERCHANT_NO",
        "TILLGATE_TOKEN",
        "TILLGATE_SANDBOX",
        "PYTEST_ADDOPTS",
        "DJANGO_SETTINGS_MODULE",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with nothing but pytest and the fixtures; other plugins do not expect to run twice
    in one process.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(NAMED)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nfilterwarnings = error\n")
    return pytester


@pytest.fixture
def recorded(project: pytest.Pytester) -> Path:
    """A project with one test and its cassette."""
    project.makepyfile(test_shop=PAYS)
    project.runpytest("--record-cassettes").assert_outcomes(passed=1)
    return project.path / "cassettes" / "test_pay.yaml"


class TestNothingLoadsByItself:
    def test_fixtures_are_inactive_unless_named(
        self,
        pytester: pytest.Pytester,
    ) -> None:
        """A project that does not name the fixtures imports nothing and gets none."""
        pytester.makepyfile(
            """
            import sys

            def test_nothing_is_imported():
                assert not [name for name in sys.modules if name.partition(".")[0] in ("tillgate", "vcr")]

            def test_no_fixture(cassette):
                pass
            """,
        )
        result = pytester.runpytest_subprocess()
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines(["*fixture 'cassette' not found*"])
        assert (
            pytester.runpytest_subprocess("--record-cassettes").ret == pytest.ExitCode.USAGE_ERROR
        )

    def test_package_has_no_entry_point_for_pytest(self) -> None:
        assert [
            point
            for point in importlib.metadata.entry_points(group="pytest11")
            if "tillgate" in point.value
        ] == []

    def test_project_that_names_them_has_them_described(self, project: pytest.Pytester) -> None:
        listed = project.runpytest("--fixtures").stdout.str()
        for name in (
            "cassette",
            "gateway_account",
            "fresh_reference",
            "sandbox",
            "sandbox_when_recording",
            "no_network",
        ):
            assert re.search(rf"^{name} -- .*fixtures.py.*\n    [A-Z]", listed, re.MULTILINE), name


class TestRecordAndReplay:
    def test_recorded_conversation_replays(self, recorded: Path, project: pytest.Pytester) -> None:
        text = recorded.read_text("utf-8")
        assert text.startswith(
            "# test_shop.py::test_pay, recorded from the sandbox\n# Record it again: pytest "
            "test_shop.py::test_pay --record-cassettes\n",
        )
        assert '"reference": "100017-0000000000001"' in text
        project.runpytest().assert_outcomes(passed=1)

    def test_recording_twice_gives_the_same_file(
        self,
        recorded: Path,
        project: pytest.Pytester,
    ) -> None:
        before = recorded.read_bytes()
        project.runpytest("--record-cassettes").assert_outcomes(passed=1)
        assert recorded.read_bytes() == before

    def test_answer_for_another_amount_is_not_replayed(
        self,
        recorded: Path,
        project: pytest.Pytester,
    ) -> None:
        project.makepyfile(test_shop=PAYS.replace('AMOUNT = "1.00"', 'AMOUNT = "999.00"'))
        result = project.runpytest()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "*test_pay.yaml holds no answer to POST "
                "https://gateway.example/online/v1/secure-pay",
                '*amount: "1.00" on file, "999.00" sent',
                "*Record it again: pytest test_shop.py::test_pay --record-cassettes",
            ],
        )

    def test_missing_cassette_names_recording_command(
        self,
        recorded: Path,
        project: pytest.Pytester,
    ) -> None:
        recorded.unlink()
        result = project.runpytest()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "there is no cassette *cassettes/test_pay.yaml",
                "Record it: pytest test_shop.py::test_pay --record-cassettes",
            ],
        )

    def test_missing_cassette_fails_silent_test(
        self,
        project: pytest.Pytester,
    ) -> None:
        """A test that sends nothing fails as well."""
        project.makepyfile("def test_idle(cassette):\n    pass\n")
        result = project.runpytest()
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines(["there is no cassette *test_idle.yaml"])

    def test_failed_test_keeps_its_cassette(
        self,
        recorded: Path,
        project: pytest.Pytester,
    ) -> None:
        before = recorded.read_bytes()
        project.makepyfile(test_shop=PAYS.replace("== AMOUNT", "!= AMOUNT").replace("1.00", "2.00"))
        project.runpytest("--record-cassettes").assert_outcomes(failed=1)
        assert recorded.read_bytes() == before

    def test_references_made_anywhere_replay(self, project: pytest.Pytester) -> None:
        """A plugin's own code makes references too, out of the test's reach."""
        project.makepyfile(
            test_shop=PAYS.replace("fresh_reference(", "new_reference(").replace(
                "import Gateway",
                "import new_reference, Gateway",
            ),
        )
        project.runpytest("--record-cassettes").assert_outcomes(passed=1)
        project.runpytest().assert_outcomes(passed=1)

    def test_references_are_really_fresh_while_recording(self, project: pytest.Pytester) -> None:
        project.makepyfile(
            """
            import pytest
            from tillgate import new_reference, Gateway, OrderNotFound

            def test_fresh(cassette, gateway_account, fresh_reference):
                one, two = fresh_reference("A"), fresh_reference("A")
                assert one != two
                assert cassette.is_recording != (one == "A-0000000000001")
                with Gateway(gateway_account) as gateway:
                    for reference in (two, one):
                        with pytest.raises(OrderNotFound):
                            gateway.query(reference)
            """,
        )
        project.runpytest("--record-cassettes").assert_outcomes(passed=1)
        assert re.findall(
            r"A-\d+",
            (project.path / "cassettes" / "test_fresh.yaml").read_text("utf-8"),
        ) == [
            "A-0000000000002",
            "A-0000000000001",
        ]
        project.runpytest().assert_outcomes(passed=1)

    def test_references_are_random_again_afterwards(
        self,
        recorded: Path,
        project: pytest.Pytester,
    ) -> None:
        project.makepyfile(
            test_shop=PAYS
            + "\n    def test_z():\n        from tillgate import new_reference\n        assert "
            "'00000' not in new_reference('A')\n",
        )
        project.runpytest().assert_outcomes(passed=2)

    def test_parameters_and_classes_have_own_cassettes(
        self,
        project: pytest.Pytester,
    ) -> None:
        project.makepyfile(
            PAYS.replace(
                "def test_pay(",
                "@pytest.mark.parametrize('method', ['a/b', 'c d'])\n    def test_each(method, ",
            )
            + """
    class TestShop:
        def test_each(self, cassette, gateway_account, fresh_reference):
            with Gateway(gateway_account) as gateway:
                gateway.pay(order(fresh_reference("1")))
            """,
        )
        project.runpytest("--record-cassettes").assert_outcomes(passed=3)
        names = [path.name for path in sorted((project.path / "cassettes").iterdir())]
        assert names == ["TestShop.test_each.yaml", "test_each-a-b.yaml", "test_each-c-d.yaml"]

    def test_two_tests_cannot_share_a_cassette(
        self,
        recorded: Path,
        project: pytest.Pytester,
    ) -> None:
        project.makepyfile(test_other=PAYS)
        project.makeini("[pytest]\naddopts = --import-mode=importlib\n")
        result = project.runpytest()
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines(
            [
                "test_shop.py::test_pay and test_other.py::test_pay would share the cassette "
                "test_pay.yaml*",
            ],
        )

    def test_cassettes_lie_beside_the_nearest_project_file(self, project: pytest.Pytester) -> None:
        inner = project.mkpydir("tests").parent / "plugins" / "shop"
        (inner / "tests").mkdir(parents=True)
        (inner / "pyproject.toml").write_text("", "utf-8")
        (inner / "tests" / "test_shop.py").write_text(
            re.sub("^    ", "", PAYS, flags=re.MULTILINE),
            "utf-8",
        )
        project.runpytest("--record-cassettes").assert_outcomes(passed=1)
        assert (inner / "cassettes" / "test_pay.yaml").is_file()

    def test_dialect_can_be_parametrized(self, project: pytest.Pytester) -> None:
        project.makepyfile(
            "from tillgate import EXAMPLES\n"
            + re.sub("^    ", "", PAYS, flags=re.MULTILINE).replace(
                "def test_pay(",
                "@pytest.mark.parametrize('gateway_dialect', [EXAMPLES], ids=['examples'])\ndef "
                "test_pay(",
            ),
        )
        project.runpytest("--record-cassettes").assert_outcomes(passed=1)
        assert "/app-data-search/v1/tran-query" in (
            project.path / "cassettes" / "test_pay-examples.yaml"
        ).read_text("utf-8")


class TestWhereRecordingIsRefused:
    @pytest.mark.parametrize("value", ["true", "1"])
    def test_in_ci(
        self,
        recorded: Path,
        project: pytest.Pytester,
        monkeypatch: pytest.MonkeyPatch,
        value: str,
    ) -> None:
        before = recorded.read_bytes()
        monkeypatch.setenv("CI", value)
        result = project.runpytest("--record-cassettes")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--record-cassettes is refused while CI is set*"])
        assert recorded.read_bytes() == before
        project.runpytest().assert_outcomes(passed=1)

    def test_with_half_an_account(
        self,
        project: pytest.Pytester,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("TILLGATE_BASE_URL", "https://pay.gateway.test")
        monkeypatch.setenv("TILLGATE_TOKEN", "hush")
        result = project.runpytest("--record-cassettes")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*TILLGATE_MERCHANT_NO is missing*"])


class TestLiveAccount:
    """Recorded from an address, a merchant and a token in the environment: here a sandbox that the
    project knows nothing of.
    """

    @pytest.fixture
    def gateway(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
        token = "f00dfeed" * 4
        sandbox = Sandbox(Options(seed=7, merchants={"880002": token}))
        for name, value in {
            "BASE_URL": sandbox.base_url,
            "MERCHANT_NO": "880002",
            "TOKEN": token,
            "SANDBOX": "true",
        }.items():
            monkeypatch.setenv(f"TILLGATE_{name}", value)
        yield sandbox
        sandbox.stop()

    def test_sandbox_only_cases_are_skipped(
        self,
        gateway: Sandbox,
        project: pytest.Pytester,
    ) -> None:
        """They are skipped by name, and their cassettes stay."""
        project.makepyfile(test_shop=PAYS, test_fault=PROVOKES)
        kept = project.mkdir("cassettes") / "test_needs_a_fault.yaml"
        kept.write_text("as it was", "utf-8")
        with gateway:
            result = project.runpytest("--record-cassettes", "-rs")
        result.assert_outcomes(passed=1, skipped=1)
        result.stdout.fnmatch_lines(
            ["cassettes: recording from a live account", "SKIPPED*needs the sandbox"],
        )
        assert kept.read_text("utf-8") == "as it was"
        text = (project.path / "cassettes" / "test_pay.yaml").read_text("utf-8")
        assert text.startswith("# test_shop.py::test_pay, recorded from a live account\n")
        assert not [secret for secret in ("880002", "f00dfeed", "127.0.0.1") if secret in text]

    def test_replay_takes_no_notification_of_it(
        self,
        gateway: Sandbox,
        project: pytest.Pytester,
    ) -> None:
        project.makepyfile(
            f"""
            def test_account(gateway_account):
                assert gateway_account.base_url == "https://gateway.example"
                assert gateway_account.merchant_no == "{PUBLISHED_MERCHANT_NO}"
                assert gateway_account.token.get_secret_value() == "{PUBLISHED_TEST_TOKEN}"
                assert not gateway_account.sandbox
            """,
        )
        project.runpytest().assert_outcomes(passed=1)

    def test_sandbox_and_live_recordings_are_equal(
        self,
        recorded: Path,
        gateway: Sandbox,
        project: pytest.Pytester,
    ) -> None:
        before = recorded.read_text("utf-8").replace("the sandbox", "a live account")
        with gateway:
            project.runpytest("--record-cassettes").assert_outcomes(passed=1)
        assert recorded.read_text("utf-8") == before


CONNECTS = {
    "socket": "socket.create_connection(('127.0.0.1', PORT)).close()",
    "address without a name": "opened(socket.socket, 'connect')",
    "connect_ex": "opened(socket.socket, 'connect_ex')",
    "class that was imported before": "opened(held_socket, 'connect')",
    "datagram": "opened(functools.partial(socket.socket, type=socket.SOCK_DGRAM), 'sendto', b'x')",
    "look-up": "socket.getaddrinfo('localhost', 443)",
    "urllib": "urllib.request.urlopen(f'http://127.0.0.1:{PORT}/').close()",
    "httpx to another host": "httpx.get(f'http://127.0.0.1:{PORT}/')",
    "asyncio": "asyncio.run(over_asyncio('127.0.0.1'))",
    "asyncio by name": "asyncio.run(over_asyncio('localhost'))",
    "aiohttp": "asyncio.run(over_aiohttp(f'http://127.0.0.1:{PORT}/'))",
    "async httpx": "asyncio.run(over_httpx(f'http://127.0.0.1:{PORT}/'))",
    "thread": "in_thread(lambda: socket.create_connection(('127.0.0.1', PORT)).close())",
}

NOT_FOUND = (
    Path(__file__).parents[2]
    / "cassettes"
    / "test_query_of_an_unknown_reference-reference-json.yaml"
)

CONNECTING = """
import asyncio, functools, socket, threading, urllib.request
from socket import socket as held_socket
import aiohttp, httpx, pytest
from tillgate import Gateway, OrderNotFound

def opened(kind, method, *arguments):
    with kind() as one:
        getattr(one, method)(*arguments, ("127.0.0.1", PORT))

async def over_asyncio(host):
    _, writer = await asyncio.open_connection(host, PORT)
    writer.close()
    await writer.wait_closed()

async def over_aiohttp(url):
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        await answer.read()

async def over_httpx(url):
    async with httpx.AsyncClient() as client:
        await client.get(url)

def in_thread(function):
    def run():
        try:
            function()
        except BaseException:
            pass
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

PORT = {port}

def test_connects(cassette, gateway_account, fresh_reference):
    with Gateway(gateway_account) as gateway, pytest.raises(OrderNotFound):
        gateway.query(fresh_reference("NOSUCHORDER"))
    {connect}
"""


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return a port where somebody answers, so that every attempt would succeed unguarded; another
    process, so that no guard is on it.
    """
    command = [
        sys.executable,
        "-u",
        "-m",
        "http.server",
        "0",
        "--bind",
        "127.0.0.1",
        "--directory",
        str(tmp_path_factory.mktemp("www")),
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout
        yield int(server.stdout.readline().partition(" port ")[2].split()[0])
        server.terminate()


class TestNetworkWhileReplaying:
    def run(self, project: pytest.Pytester, connect: str, port: int) -> pytest.RunResult:
        # As in most projects, where a guard's warning stays one: with `error` even that would fail
        # the test.
        project.makeini("[pytest]\nfilterwarnings = default\n")
        project.makepyfile(CONNECTING.format(port=port, connect=connect))
        cassette = project.path / "cassettes" / "test_connects.yaml"
        cassette.parent.mkdir(exist_ok=True)
        cassette.write_text(NOT_FOUND.read_text("utf-8"), "utf-8")
        return project.runpytest()

    @pytest.mark.parametrize("way", CONNECTS)
    def test_attempt_to_connect_fails_the_test(
        self,
        project: pytest.Pytester,
        listener: int,
        way: str,
    ) -> None:
        result = self.run(project, CONNECTS[way], listener)
        outcomes = result.parseoutcomes()
        assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == 1, outcomes
        assert "A test tried to use socket" in result.stdout.str()

    def test_same_attempts_succeed_where_nothing_replays(
        self,
        project: pytest.Pytester,
        listener: int,
    ) -> None:
        tests = [
            f"def test_{index}():\n    {connect}\n"
            for index, connect in enumerate(CONNECTS.values())
        ]
        project.makepyfile(
            CONNECTING.partition("def test")[0].format(port=listener) + "\n".join(tests),
        )
        project.runpytest().assert_outcomes(passed=len(CONNECTS))

    @pytest.mark.parametrize(
        "way",
        ["socket", "class that was imported before", "look-up", "asyncio", "httpx to another host"],
    )
    def test_swallowed_network_attempt_fails_test(
        self,
        project: pytest.Pytester,
        listener: int,
        way: str,
    ) -> None:
        hushed = f"try:\n        {CONNECTS[way]}\n    except Exception:\n        pass"
        result = self.run(project, hushed, listener)
        result.assert_outcomes(
            passed=1,
            errors=1,
            warnings=result.parseoutcomes().get("warnings", 0),
        )
        result.stdout.fnmatch_lines(["the test tried to use the network:*"])

    def test_event_loops_and_unix_sockets_work(
        self,
        project: pytest.Pytester,
        listener: int,
    ) -> None:
        self.run(
            project,
            "asyncio.run(asyncio.sleep(0)); [one.close() for one in socket.socketpair()]",
            listener,
        ).assert_outcomes(passed=1)

    def test_mark_of_pytest_socket_opens_an_exception(
        self,
        project: pytest.Pytester,
        listener: int,
    ) -> None:
        marked = CONNECTING.replace(
            "def test_connects",
            "@pytest.mark.allow_hosts([{allowed!r}])\ndef test_connects",
        )
        connect = "socket.create_connection(('127.0.0.1', PORT)).close()"
        self.run(project, connect, listener)
        project.makeini("[pytest]\naddopts = -p pytest_socket\nfilterwarnings = default\n")
        for allowed, outcome in (("127.0.0.1", "passed"), ("127.0.0.2", "failed")):
            project.makepyfile(marked.format(port=listener, connect=connect, allowed=allowed))
            assert project.runpytest().parseoutcomes()[outcome] == 1

    def test_network_is_back_for_the_next_test(
        self,
        project: pytest.Pytester,
        listener: int,
    ) -> None:
        project.makepyfile(
            f"""
            import socket

            def test_a_blocked(no_network):
                pass

            def test_b_free():
                socket.create_connection(("localhost", {listener})).close()
            """,
        )
        project.runpytest().assert_outcomes(passed=2)

    def test_sandbox_is_on_real_http(self, project: pytest.Pytester) -> None:
        project.makepyfile(
            """
            import urllib.request

            def test_sandbox(sandbox):
                with urllib.request.urlopen(sandbox.base_url + "/openapi.json") as answer:
                    assert answer.status == 200
            """,
        )
        project.runpytest().assert_outcomes(passed=1)


def test_repository_cassettes_match_fresh_recordings(
    project: pytest.Pytester,
    request: pytest.FixtureRequest,
) -> None:
    """Recording is deterministic, and the sandbox still answers what is on file. Those of a live
    account are left out.
    """
    source = request.config.rootpath
    project.mkdir("tests").joinpath("test_cassettes.py").write_text(
        (source / "tests" / "test_cassettes.py").read_text("utf-8"),
        "utf-8",
    )
    project.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
    result = project.runpytest("--record-cassettes", "-k", "not cassette_of and not every_cassette")
    assert result.ret == 0
    again = {path.name: path.read_text("utf-8") for path in (project.path / "cassettes").iterdir()}
    on_file = {path.name: path.read_text("utf-8") for path in (source / "cassettes").iterdir()}
    assert again.keys() == on_file.keys(), "run nox -s cassettes and remove what is left over"
    for name, text in on_file.items():
        if "recorded from the sandbox" in text.partition("\n")[0]:
            assert again[name] == text, f"{name} is out of date: run nox -s cassettes"
