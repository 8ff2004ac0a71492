"""The conformance kit, as a plugin author's project sees it: how to decline a scenario, and the
report.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tillgate.testing.conformance import Conformance
from tillgate.testing.driver import ShopDriver
from tillgate.testing.world import World

ROOT = Path(__file__).parents[2]
SCENARIOS = Conformance.scenarios()

SHOP = """
    from tests.smallest_shop.driver import SmallestShopDriver
    from tillgate.testing.conformance import Conformance

    class Forgetful(SmallestShopDriver):
        def refunded(self, order_key):
            return 0

    class TestShop(Conformance):
        driver = {driver}
        distributions = ("httpx",)
        declined = {declined}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own, with a database of its own."""
    for name in ("PYTEST_ADDOPTS", "TILLGATE_TEST_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.django.project")
    monkeypatch.setenv("TILLGATE_TEST_NAME", pytester.path.name)
    monkeypatch.setenv("TMPDIR", str(pytester.path))
    # these sources, and no installed ones
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "src"))))
    pytester.makeconftest('pytest_plugins = ["tillgate.testing.shops"]')
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist\nfilterwarnings = error\n",
    )
    return pytester


def shop(
    project: pytest.Pytester,
    driver: str = "SmallestShopDriver()",
    declined: str = "{}",
) -> None:
    project.makepyfile(test_shop=SHOP.format(driver=driver, declined=declined))


def test_report_lists_held_failed_and_skipped(
    project: pytest.Pytester,
) -> None:
    shop(project, driver="Forgetful()")
    result = project.runpytest_subprocess(
        "-k",
        "notification_only or full_refund",
        "--conformance-report",
        "report.md",
    )
    result.assert_outcomes(passed=1, failed=1, deselected=len(SCENARIOS) - 2)
    result.stdout.re_match_lines([r"=+ conformance of smallest-shop \(TestShop\) =+"])
    result.stdout.re_match_lines(
        [
            r"notification_only +held",
            r"forged_notifications +not run",
            r"full_refund +FAILED in call",
        ],
    )
    result.stdout.re_match_lines(
        [
            rf"1 of {len(SCENARIOS)} scenarios held \({len(SCENARIOS) - 2} not run, 1 failed\): "
            r"tillgate .*, Django .*, httpx .*, Python .*, SQLite",
        ],
    )
    report = (project.path / "report.md").read_text("utf-8")
    assert report.startswith(f"## Conformance of smallest-shop\n\n1 of {len(SCENARIOS)} ")
    assert re.search(r"SQLite [\d.]+; \d{4}-\d\d-\d\d\. ", report)  # no repository, so no commit
    assert "-k 'notification_only or full_refund' --conformance-report report.md`" in report
    for name, result_ in (
        ("notification_only", "held"),
        ("full_refund", "FAILED in call"),
        ("expiry", "not run"),
    ):
        assert f"| {name} | {SCENARIOS[name]} | {result_} |" in report


@pytest.mark.parametrize("body", ["pass", "super().test_full_refund(world)"])
def test_overridden_scenario_is_not_proven(
    project: pytest.Pytester,
    body: str,
) -> None:
    override = f"\n        def test_full_refund(self, world):\n            {body}\n"
    project.makepyfile(
        test_shop=SHOP.format(driver="SmallestShopDriver()", declined="{}") + override,
    )
    result = project.runpytest_subprocess(
        "-k",
        "notification_only or full_refund",
        "--conformance-report",
        "report.md",
    )
    result.assert_outcomes(passed=2, deselected=len(SCENARIOS) - 2)
    result.stdout.re_match_lines([r"full_refund +not proven: TestShop overrides the scenario"])
    result.stdout.re_match_lines([rf"1 of {len(SCENARIOS)} scenarios held"])
    assert "| not proven: TestShop overrides the scenario |" in (
        project.path / "report.md"
    ).read_text("utf-8")


def test_the_report_is_written_for_programs_too(project: pytest.Pytester) -> None:
    shop(project, driver="Forgetful()")
    project.runpytest_subprocess(
        "-k",
        "notification_only or full_refund",
        "--conformance-report",
        "report.json",
    )
    report = json.loads((project.path / "report.json").read_text("utf-8"))
    (table,) = report["tables"]
    assert (table["name"], table["plugin"], list(table["results"])) == (
        "TestShop",
        "smallest-shop",
        list(SCENARIOS),
    )
    assert {table["results"][name] for name in ("notification_only", "full_refund", "expiry")} == {
        "held",
        "FAILED in call",
        "not run",
    }
    assert set(table["versions"]) >= {"tillgate", "Django", "httpx", "Python", "SQLite"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", report["origin"])


def test_same_named_classes_have_own_tables(project: pytest.Pytester) -> None:
    shop(project, declined='{"full_refund": "by hand"}', driver="Forgetful()")
    source = SHOP.format(driver="SmallestShopDriver()", declined="{}")
    project.makepyfile(test_z_other_shop=source)
    result = project.runpytest_subprocess(
        "-k",
        "full_refund",
        "--conformance-report",
        "report.json",
    )
    result.assert_outcomes(passed=1, xfailed=1, deselected=2 * (len(SCENARIOS) - 1))
    tables = json.loads((project.path / "report.json").read_text("utf-8"))["tables"]
    assert [table["results"]["full_refund"] for table in tables] == ["declined: by hand", "held"]


@pytest.mark.parametrize(
    ("path", "detail"),
    [("none/report.md", "none is no folder"), (".", "is a folder")],
)
def test_unwritable_report_is_refused_up_front(
    project: pytest.Pytester,
    path: str,
    detail: str,
) -> None:
    """Nothing runs before the refusal."""
    shop(project)
    result = project.runpytest_subprocess("-k", "notification_only", "--conformance-report", path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--conformance-report: {path}*{detail}*"])


def test_declined_scenario_fails_as_expected(
    project: pytest.Pytester,
) -> None:
    """The report gives the reason."""
    shop(project, driver="Forgetful()", declined='{"full_refund": "refunds are booked by | hand"}')
    result = project.runpytest_subprocess(
        "-k",
        "full_refund or notification_only",
        "--conformance-report",
        "report.md",
    )
    result.assert_outcomes(passed=1, xfailed=1, deselected=len(SCENARIOS) - 2)
    report = (project.path / "report.md").read_text("utf-8")
    assert (
        f"| full_refund | {SCENARIOS['full_refund']} | declined: refunds are booked by \\| hand |"
        in report
    )


def test_declined_scenario_that_holds_fails(project: pytest.Pytester) -> None:
    shop(project, declined='{"full_refund": "refunds are booked by hand"}')
    result = project.runpytest_subprocess("-k", "full_refund")
    result.assert_outcomes(failed=1, deselected=len(SCENARIOS) - 1)
    result.stdout.re_match_lines([r"full_refund +FAILED: declined, and it holds by now"])


@pytest.mark.parametrize(
    ("declined", "said"),
    [
        (
            '{"ful_refund": "why"}',
            "TestShop.declined: 'ful_refund' is not a scenario; the scenarios are pay_and_return, ",
        ),
        ('{"full_refund": " "}', "TestShop.declined: 'full_refund' needs a reason"),
    ],
)
def test_what_cannot_be_declined_is_an_error(
    project: pytest.Pytester,
    declined: str,
    said: str,
) -> None:
    shop(project, declined=declined)
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{said}*"])


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (
            "None",
            "no shop: give the class an attribute `driver`, or override the fixture `shop_driver`",
        ),
        (
            "object()",
            "the driver, an object, is no ShopDriver: let its class be a subclass, which tells "
            "what is missing",
        ),
    ],
)
def test_missing_driver_is_explained(
    project: pytest.Pytester,
    driver: str,
    said: str,
) -> None:
    shop(project, driver=driver)
    result = project.runpytest_subprocess("-k", "notification_only")
    result.assert_outcomes(errors=1, deselected=len(SCENARIOS) - 1)
    result.stdout.fnmatch_lines([f"*{said}*"])


def test_in_memory_database_refusal_names_remedy(project: pytest.Pytester) -> None:
    shop(project)
    project.makepyfile(
        in_memory="""
        from tests.django.project import *
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        """,
    )
    result = project.runpytest_subprocess(
        "-k",
        "notification_only",
        "--ds",
        "in_memory",
        "-o",
        "pythonpath=.",
    )
    result.assert_outcomes(errors=1, deselected=len(SCENARIOS) - 1)
    result.stdout.fnmatch_lines(["*cannot share a database in memory; give it a file: *"])


def test_missing_optional_capability_is_named(project: pytest.Pytester) -> None:
    shop(
        project,
        driver='type("Bare", (SmallestShopDriver,), {"place_order_paid_otherwise": '
        "ShopDriver.place_order_paid_otherwise})()",
    )
    source = (project.path / "test_shop.py").read_text("utf-8")
    (project.path / "test_shop.py").write_text(
        f"from tillgate.testing.driver import ShopDriver\n{source}",
        "utf-8",
    )
    result = project.runpytest_subprocess("-k", "other_payment_methods")
    result.assert_outcomes(failed=1, deselected=len(SCENARIOS) - 1)
    result.stdout.fnmatch_lines(
        ["*implement it, or decline the scenario other_payment_methods_are_undisturbed*"],
    )


BROKEN = """
    import dataclasses
    from decimal import Decimal
    import pytest
    from tests.smallest_shop import plugin
    from tests.smallest_shop.mutants import use

    @pytest.fixture(autouse=True)
    def broken(monkeypatch):
        use(monkeypatch, "{hook}", {function})
"""
CHEAPER = (
    "lambda order_key: dataclasses.replace(plugin.tillgate_describe_order(order_key), "
    "amount=Decimal('0.28'))"
)


@pytest.mark.parametrize(
    ("scenario", "hook", "function", "said"),
    [
        (
            "notification_only",
            "tillgate_payment_paid",
            "lambda payment: None",
            "*Tillgate logged:*must return a PaidOutcome*",
        ),
        (
            "notification_only",
            "tillgate_describe_order",
            "lambda order_key: None",
            "*is not an order that plugin*it describes none*",
        ),
        (
            "amounts_are_exact",
            "tillgate_describe_order",
            CHEAPER,
            "*the order costs USD 0.01, and the gateway was asked for USD 0.28*",
        ),
    ],
)
def test_failure_names_its_cause(
    project: pytest.Pytester,
    scenario: str,
    hook: str,
    function: str,
    said: str,
) -> None:
    source = SHOP.format(driver="SmallestShopDriver()", declined="{}")
    project.makepyfile(test_shop=source + BROKEN.format(hook=hook, function=function))
    result = project.runpytest_subprocess("-k", scenario, "--show-capture", "no")
    result.assert_outcomes(failed=1, deselected=len(SCENARIOS) - 1)
    result.stdout.fnmatch_lines([said])


def test_scenarios_have_unique_names_and_summaries() -> None:
    tests = [
        name for group in Conformance.__mro__ for name in vars(group) if name.startswith("test_")
    ]
    assert len(tests) == len(SCENARIOS) >= 40
    assert [
        name for name, message in SCENARIOS.items() if not message.endswith(".") or "|" in message
    ] == []


# The documentation --------------------------------------------------------------------------------

PAGES = ROOT / "src/tillgate/testing"


def rows(heading: str, name: str = "README") -> dict[str, str]:
    """Return the lines of the reference's table or list under a heading, by each name that a line
    begins with.
    """
    page = (PAGES / f"{name}.md").read_text("utf-8")
    part = re.split(r"^#+ ", page.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = part.splitlines()
    cells = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| `")]
    cells += [line.removeprefix("- ").split(": ", 1) for line in lines if line.startswith("- `")]
    return {name: text for names, text in cells for name in re.findall(r"`(\w+)", names)}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_scenario_is_documented_and_no_other() -> None:
    page = (PAGES / "README.md").read_text("utf-8")
    (report,) = re.findall(
        r"\]\(([^)]+)\)",
        page.partition("### Scenarios\n")[2].partition("\n## ")[0],
    )
    table = (PAGES / report).read_text("utf-8")
    assert dict(re.findall(r"^\| (\w+) \| (.+?\.) \| ", table, re.MULTILINE)) == SCENARIOS


def test_public_testing_helpers_are_documented() -> None:
    source = (ROOT / "src/tillgate/testing/shops.py").read_text("utf-8")
    assert set(rows("Shops")) == set(
        re.findall(r"^@pytest\.fixture.*\ndef (\w+)", source, re.MULTILINE),
    )
    assert {*rows("Acts", "driver"), *rows("Facts", "driver")} == public(ShopDriver) | {
        "plugin",
    }
    assert set(rows("World")) == public(World) | {
        "shop",
        "gateway",
        "time",
        "client",
        "configure",
        "money",
    }
    assert set(rows("Conformance")) == public(Conformance) - {"pytestmark"} | {
        "declined",
        "distributions",
        "scenarios",
    }


def test_the_how_to_counts_the_scenarios() -> None:
    page = (ROOT / "docs/how-to/write-a-shop-plugin.md").read_text("utf-8")
    assert f"\n{len(SCENARIOS)} [scenarios]" in page
