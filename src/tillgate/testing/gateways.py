"""Fixtures for the tests of a gateway plugin: its emulator, entered for one scenario, and the hooks
with the plugin.

A pytest plugin that a project names explicitly, in the `conftest.py` at its root::

    pytest_plugins = ["tillgate.testing.gateways"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# effective only before this module is imported
pytest.register_assert_rewrite("tillgate.testing.gateway_conformance")

if TYPE_CHECKING:
    from tillgate.testing.gateway_driver import GatewayDriver

pytest_plugins = ["tillgate.testing.report"]


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[GatewayDriver]:
    """Yield a new driver of the class's attribute `driver`, entered; `tillgate.hooks` call its
    plugin.
    """
    from tillgate import hooks
    from tillgate.testing.gateway_driver import GatewayDriver

    make: object = getattr(request.cls, "driver", None)
    if not (isinstance(make, type) and issubclass(make, GatewayDriver)):
        pytest.fail(
            "no gateway: give the class an attribute `driver`, a subclass of GatewayDriver",
            pytrace=False,
        )
    with make() as driver:
        if driver.plugin_object is not None:
            manager = hooks.build_plugin_manager(entry_points=False)
            manager.register(driver.plugin_object, name=driver.plugin)
            monkeypatch.setattr(hooks, "plugin_manager", lambda: manager)
        if hooks.plugin_manager().get_plugin(driver.plugin) is None:
            pytest.fail(
                f"no plugin {driver.plugin!r} is installed; the driver may name a `plugin_object`",
                pytrace=False,
            )
        yield driver


@pytest.fixture
def conforming_gateway(request: pytest.FixtureRequest) -> None:
    """Prepare a test as a scenario of `GatewayConformance`: it may be declined, and appears in the
    report.
    """
    from tillgate.testing.report import PROPERTY, describe

    request.cls.decline_if_asked(request)
    about = describe(request.cls, request.node.originalname, request.cls.driver.plugin)
    request.node.user_properties.append((PROPERTY, about))
