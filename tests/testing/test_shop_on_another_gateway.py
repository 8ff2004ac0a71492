"""The kit of shops on a gateway unlike the built-in one: other payment methods, and notifications
to the account's own address.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tillgate.testing.conformance import Conformance

ROOT = Path(__file__).parents[2]
CONFTEST = """
    import pytest
    from tests.toy_gateway import ToyDriver

    pytest_plugins = ["tillgate.testing.shops"]

    class Driver(ToyDriver):
        {body}

    @pytest.fixture
    def shop_gateway():
        with Driver() as driver:
            yield driver
"""
SHOP = """
    from tests.smallest_shop.driver import SmallestShopDriver
    from tillgate.testing.conformance import Conformance

    class Shop(SmallestShopDriver):
        {body}

    class TestShop(Conformance):
        driver = Shop()
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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "src"))))
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist\nfilterwarnings = error\n",
    )
    return pytester


def run(
    project: pytest.Pytester,
    *chosen: str,
    gateway: str = "pass",
    shop: str = "pass",
    declined: str = "{}",
) -> dict[str, str]:
    """Run scenarios, and return the result of each."""
    project.makeconftest(CONFTEST.format(body=gateway))
    project.makepyfile(test_shop=SHOP.format(body=shop, declined=declined))
    result = project.runpytest_subprocess(
        *(f"test_shop.py::TestShop::test_{name}" for name in chosen),
    )
    lines = [line.split(maxsplit=1) for line in result.outlines]
    found = {
        line[0]: line[1] for line in lines if len(line) == 2 and line[0] in Conformance.scenarios()
    }
    return {name: found[name] for name in chosen}


def test_shop_works_on_another_gateway(project: pytest.Pytester) -> None:
    """The shop is paid and refunded there."""
    chosen = (
        "pay_and_return",
        "notification_only",
        "duplicate_notifications",
        "decline",
        "method_that_is_not_offered",
        "full_refund",
    )
    assert run(project, *chosen) == dict.fromkeys(chosen, "held")


@pytest.mark.parametrize(
    ("scenario", "gateway"),
    [
        ("pay_and_return", "method = 'pearls'"),
        (
            "notification_only",
            "def notification(self, reference, **_):\n            return {}, "
            "super().notification(reference)[1]",
        ),
    ],
)
def test_misbehaving_gateway_is_noticed(
    project: pytest.Pytester,
    scenario: str,
    gateway: str,
) -> None:
    assert run(project, scenario, gateway=gateway) == {scenario: "FAILED in call"}


def test_missing_gateway_driver_feature_is_skipped(
    project: pytest.Pytester,
) -> None:
    """The test is skipped with the driver's own words, or declined."""
    chosen = ("amount_mismatch", "changed_after_paid", "refund_notification_before_the_answer")
    gateway = (
        "def notify(self, reference, kind='payment', *, status=''):\n            raise "
        "NotImplementedError('it sends nothing')"
    )
    assert run(
        project,
        *chosen,
        gateway=gateway,
        declined="{'changed_after_paid': 'nobody takes beads back'}",
    ) == {
        "amount_mismatch": "skipped: the driver does not play the fault 'wrong_amount' of query: "
        "implement it, or decline the scenario",
        "changed_after_paid": "declined: nobody takes beads back",
        "refund_notification_before_the_answer": "skipped: it sends nothing",
    }


def test_missing_shop_driver_feature_fails(project: pytest.Pytester) -> None:
    shop = (
        "def place_order_in(self, currency, total):\n            raise NotImplementedError('it "
        "knows one currency')"
    )
    assert run(project, "order_in_another_currency", shop=shop) == {
        "order_in_another_currency": "FAILED in call",
    }
