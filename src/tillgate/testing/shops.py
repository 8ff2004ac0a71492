"""Fixtures for the tests of a shop's plugin: a shop on the sandbox or on another gateway, and a
clock that the tests move.

A pytest plugin that a project names explicitly, in the `conftest.py` at its root, beside
pytest-django and its settings::

    pytest_plugins = ["tillgate.testing.shops"]

Only the fixtures that need Django load it.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest
from django.utils import timezone

from tillgate.sandbox import Options, Sandbox

# effective only before these modules are imported
pytest.register_assert_rewrite("tillgate.testing.conformance", "tillgate.testing.world")

if TYPE_CHECKING:
    from tillgate.testing.driver import ShopDriver
    from tillgate.testing.gateway_driver import GatewayDriver
    from tillgate.testing.world import Time, World

pytest_plugins = ["tillgate.testing.report"]

_MOST_CAUSES: Final = 3


@pytest.fixture
def shop_driver(request: pytest.FixtureRequest) -> ShopDriver:
    """Return the shop's driver: the class's attribute `driver`. Override it for tests outside a
    class.
    """
    from tillgate.testing.driver import ShopDriver

    driver: object = getattr(request.cls, "driver", None)
    if driver is None:
        pytest.fail(
            "no shop: give the class an attribute `driver`, or override the fixture `shop_driver`",
            pytrace=False,
        )
    if not isinstance(driver, ShopDriver):
        name = type(driver).__name__
        pytest.fail(
            f"the driver, an {name}, is no ShopDriver: let its class be a subclass, which tells "
            "what is missing",
            pytrace=False,
        )
    return driver


@pytest.fixture
def conforming(
    request: pytest.FixtureRequest,
    transactional_db: None,
    shop_driver: ShopDriver,
    shop_gateway: GatewayDriver,
) -> None:
    """Prepare a test as a scenario of `Conformance`: it may be declined, and appears in the
    report.
    """
    from django.db import connection

    from tillgate.testing.report import PROPERTY, describe

    # SQLite's own
    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]
        remedy = 'give it a file: DATABASES["default"]["TEST"] = {"NAME": "/tmp/tests.sqlite3"}'
        pytest.fail(
            f"the threads of a scenario cannot share a database in memory; {remedy}",
            pytrace=False,
        )
    request.cls.decline_if_asked(request, shop_gateway.declined_by_shops)
    version = connection.get_database_version()
    database = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    versions = {connection.display_name: database}
    if not _is_default(shop_gateway):
        versions["gateway"] = shop_gateway.plugin
    about = describe(
        request.cls,
        request.node.originalname,
        shop_driver.plugin,
        ["Django"],
        versions,
    )
    request.node.user_properties.append((PROPERTY, about))


@pytest.fixture
def time_(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Return a clock that a test moves forward, for the app and the emulator alike."""
    from tillgate.testing.world import Time

    moved = Time()
    monkeypatch.setattr(timezone, "now", moved.now)
    # by the machine's time, not the test's
    monkeypatch.setattr("tillgate.django.worker.watch._watch.is_time", lambda: False)
    return moved


@pytest.fixture(scope="session")
def running_sandbox() -> Iterator[Sandbox]:
    """Run one emulator for all tests. It sends no notifications on its own: the tests send them."""
    with Sandbox(
        Options(
            notification_on_paid=False,
            notification_on_refund=False,
            magic_amounts=False,
            seed=1,
        ),
    ) as running:
        yield running


@pytest.fixture
def shop_sandbox(running_sandbox: Sandbox) -> Sandbox:
    """Return that emulator reset: without transactions, and with its first options."""
    control = running_sandbox.control
    control.reset()
    with control.lock:
        control.service.use(running_sandbox.options)
    return running_sandbox


@pytest.fixture
def shop_gateway(request: pytest.FixtureRequest) -> Iterator[GatewayDriver]:
    """Yield the driver of the gateway that the shop is on: the sandbox's, or that of
    TILLGATE_TEST_GATEWAY (`module:Class`).
    """
    from tillgate.testing.sandbox_driver import SandboxDriver

    if named := os.environ.get("TILLGATE_TEST_GATEWAY"):
        module, _, name = named.partition(":")
        with getattr(import_module(module), name)() as driver:
            yield driver
    else:
        yield SandboxDriver(request.getfixturevalue("shop_sandbox"))


def _is_default(gateway: object) -> bool:
    from tillgate.testing.sandbox_driver import SandboxDriver

    return isinstance(gateway, SandboxDriver)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a scenario that another gateway's driver cannot play, with the driver's words, unless
    the author declines it.

    A scenario that fails says which errors Tillgate logged: they name the cause, such as a hook
    that returned None.
    """
    errors, logger = _Errors(), logging.getLogger("tillgate")
    if "conforming" in pyfuncitem.fixturenames:
        logger.addHandler(errors)
    try:
        return (yield)
    except AssertionError as error:
        for cause in dict.fromkeys(errors.causes[-_MOST_CAUSES:]):
            error.add_note(f"Tillgate logged: {cause}")
        raise
    except NotImplementedError as error:
        gateway = (
            pyfuncitem.funcargs.get("shop_gateway")
            if "conforming" in pyfuncitem.fixturenames
            else None
        )
        declined = {
            *getattr(pyfuncitem.cls, "declined", {}),
            *getattr(gateway, "declined_by_shops", {}),
        }
        is_of_driver = any(
            frame.f_locals.get("self") is gateway
            for frame, _ in traceback.walk_tb(error.__traceback__)
        )
        if (
            gateway is None
            or _is_default(gateway)
            or not is_of_driver
            or pyfuncitem.originalname.removeprefix("test_") in declined
        ):
            raise
        pytest.skip(str(error))
    finally:
        logger.removeHandler(errors)


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.causes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self.causes.append(f"{record.getMessage()}: {cause}" if cause else record.getMessage())


@pytest.fixture
def configure(
    settings: Any,
    shop_gateway: GatewayDriver,
    shop_driver: ShopDriver,
) -> Iterator[Callable[..., None]]:
    """Yield a function that sets TILLGATE for one test: the accounts are the gateway's, changed by
    `account` and `changes`.
    """
    from tillgate import hooks

    manager, gateway_plugin = hooks.plugin_manager(), shop_gateway.plugin_object
    if gateway_plugin is not None:
        manager.register(gateway_plugin, name=shop_gateway.plugin)
    if manager.get_plugin(shop_gateway.plugin) is None:
        pytest.fail(
            f"no plugin {shop_gateway.plugin!r} is installed; the driver may name a "
            "`plugin_object`",
            pytrace=False,
        )
    project = dict(getattr(settings, "TILLGATE", {}))
    aliases = list(project.get("ACCOUNTS", {})) or ["default"]

    def change(account: Mapping[str, Any] | None = None, **changes: Any) -> None:
        fields = {**shop_gateway.account_settings(), **(account or {})}
        settings.TILLGATE = {
            "ACCOUNTS": dict.fromkeys(aliases, fields),
            "PUBLIC_URL": project.get("PUBLIC_URL", "http://testserver"),
            "NOTIFICATION_THROTTLE_SECONDS": 0,
            "QUERIES_PER_SECOND": 0,
            **{name: project[name] for name in ("PAYMENT_METHODS",) if name in project},
            **changes,
        }
        options = {
            name.lower(): str(getattr(fields[name], "name", fields[name]))
            for name in ("DIALECT", "STORE_NO")
            if name in fields
        }
        options |= {
            name.lower(): ",".join(fields[name])
            for name in ("CURRENCIES", "WEBHOOK_SECRETS")
            if fields.get(name)
        }
        shop_driver.use_account(
            fields["BASE_URL"],
            fields.get("MERCHANT_NO", ""),
            fields["TOKEN"],
            **options,
        )

    change()
    yield change
    if gateway_plugin is not None:
        manager.unregister(gateway_plugin)


@pytest.fixture
def network_in_transactions() -> Iterator[list[str]]:
    """Let the network inside a transaction raise (I12), and fail the test even if the code catches
    that; yield the list of uses.
    """
    from tillgate.testing.guard import guarded_sockets

    with guarded_sockets() as caught:
        yield caught
    assert caught == []


@pytest.fixture
def world(
    transactional_db: None,
    network_in_transactions: list[str],
    shop_driver: ShopDriver,
    shop_gateway: GatewayDriver,
    time_: Time,
    client: Any,
    configure: Callable[..., None],
) -> Iterator[World]:
    """Yield the shop on its gateway. Everything commits for real, since the tests cover durable
    transactions and locks; I12 is guarded.
    """
    from tillgate import hooks
    from tillgate.testing.world import World

    time_.listeners.append(shop_gateway.advance)
    made = World(shop_driver, shop_gateway, time_, client, configure)
    manager = hooks.plugin_manager()
    manager.register(made.money, name="slow-money")
    yield made
    manager.unregister(made.money)
