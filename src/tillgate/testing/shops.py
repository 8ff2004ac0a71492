"""Fixtures for the tests of a shop's plugin: a shop on the sandbox, and a clock that the tests move.

A pytest plugin that a project names explicitly, in the `conftest.py` at its root, beside pytest-django and its settings::

    pytest_plugins = ["tillgate.testing.shops"]

Only the fixtures that need Django load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN, Options, Sandbox

pytest.register_assert_rewrite("tillgate.testing.conformance", "tillgate.testing.world")  # effective only before these modules are imported

if TYPE_CHECKING:
    from tillgate.testing.driver import ShopDriver
    from tillgate.testing.world import Time, World

pytest_plugins = ["tillgate.testing.report"]


@pytest.fixture
def shop_driver(request: pytest.FixtureRequest) -> ShopDriver:
    """Return the shop's driver: the class's attribute `driver`. Override it for tests outside a class."""
    from tillgate.testing.driver import ShopDriver

    driver: object = getattr(request.cls, "driver", None)
    if driver is None:
        pytest.fail("no shop: give the class an attribute `driver`, or override the fixture `shop_driver`", pytrace=False)
    if not isinstance(driver, ShopDriver):
        name = type(driver).__name__
        pytest.fail(f"the driver, an {name}, is no ShopDriver: let its class be a subclass, which tells what is missing", pytrace=False)
    return driver


@pytest.fixture
def conforming(request: pytest.FixtureRequest, transactional_db: None, shop_driver: ShopDriver) -> None:
    """Prepare a test as a scenario of `Conformance`: it may be declined, and appears in the report."""
    from django.db import connection

    from tillgate.testing.report import PROPERTY, describe

    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]  # SQLite's own
        remedy = 'give it a file: DATABASES["default"]["TEST"] = {"NAME": "/tmp/tests.sqlite3"}'
        pytest.fail(f"the threads of a scenario cannot share a database in memory; {remedy}", pytrace=False)
    request.cls.decline_if_asked(request)
    version = connection.get_database_version()
    database = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    about = describe(request.cls, request.node.originalname, shop_driver.plugin, ["Django"], {connection.display_name: database})
    request.node.user_properties.append((PROPERTY, about))


@pytest.fixture
def time_(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Return a clock that a test moves forward, for the app and the emulator alike."""
    from tillgate.django import clock
    from tillgate.testing.world import Time

    moved = Time()
    monkeypatch.setattr(clock, "now", moved.now)
    return moved


@pytest.fixture(scope="session")
def running_sandbox() -> Iterator[Sandbox]:
    """Run one emulator for all tests. It sends no notifications on its own: the tests send them."""
    with Sandbox(Options(notification_on_paid=False, notification_on_refund=False, magic_amounts=False, seed=1)) as running:
        yield running


@pytest.fixture
def shop_sandbox(running_sandbox: Sandbox, time_: Time) -> Sandbox:
    """Return that emulator reset: without transactions, with its first options, and on the test's clock."""
    control = running_sandbox.control
    control.reset()
    with control.lock:
        control.service.use(running_sandbox.options)
    time_.listeners.append(control.advance)
    return running_sandbox


@pytest.fixture
def configure(settings: Any, shop_sandbox: Sandbox, shop_driver: ShopDriver) -> Callable[..., None]:
    """Return a function that sets TILLGATE for one test: the accounts are the sandbox's, changed by `account` and `changes`."""
    project = dict(getattr(settings, "TILLGATE", {}))
    aliases = list(project.get("ACCOUNTS", {})) or ["default"]

    def change(account: dict[str, Any] | None = None, **changes: Any) -> None:
        default = {"BASE_URL": shop_sandbox.base_url, "MERCHANT_NO": PUBLISHED_MERCHANT_NO, "TOKEN": PUBLISHED_TEST_TOKEN, "SANDBOX": True}
        fields = {**default, **(account or {})}
        settings.TILLGATE = {
            "ACCOUNTS": dict.fromkeys(aliases, fields),
            "PUBLIC_URL": project.get("PUBLIC_URL", "http://testserver"),
            "NOTIFICATION_THROTTLE_SECONDS": 0,
            "QUERIES_PER_SECOND": 0,
            **changes,
        }
        options = {name.lower(): str(fields[name]) for name in ("DIALECT", "STORE_NO") if name in fields}
        shop_driver.use_account(fields["BASE_URL"], fields["MERCHANT_NO"], fields["TOKEN"], **options)

    change()
    return change


@pytest.fixture
def network_in_transactions() -> Iterator[list[str]]:
    """Let the network inside a transaction raise (I12), and fail the test even if the code catches that; yield the list of uses."""
    from tillgate.testing.guard import guarded_sockets

    with guarded_sockets() as caught:
        yield caught
    assert caught == []


@pytest.fixture
def world(
    transactional_db: None,
    network_in_transactions: list[str],
    shop_driver: ShopDriver,
    shop_sandbox: Sandbox,
    time_: Time,
    client: Any,
    configure: Callable[..., None],
) -> World:
    """Return the shop on the sandbox. Everything commits for real, since the tests cover durable transactions and locks; I12 is guarded."""
    from tillgate.testing.world import World

    return World(shop_driver, shop_sandbox, time_, client, configure)
