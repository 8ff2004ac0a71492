"""The fixtures, as a plugin author's project sees them."""

from __future__ import annotations

import importlib.metadata

import pytest


def test_fixtures_are_inactive_unless_named(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A project that does not name the fixtures imports nothing and gets none."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert not [name for name in sys.modules if name.partition(".")[0] == "tillgate"]

        def test_no_fixture(sandbox_options):
            pass
        """,
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'sandbox_options' not found*"])


def test_package_has_no_entry_point_for_pytest() -> None:
    points = importlib.metadata.entry_points(group="pytest11")
    assert [point for point in points if "tillgate" in point.value] == []


def test_sandbox_is_on_real_http(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    pytester.makeconftest('pytest_plugins = ["tillgate.testing.fixtures"]\n')
    pytester.makepyfile(
        """
        import urllib.request

        def test_sandbox(sandbox):
            with urllib.request.urlopen(sandbox.base_url) as answer:
                assert answer.status == 200
        """,
    )
    pytester.runpytest().assert_outcomes(passed=1)
