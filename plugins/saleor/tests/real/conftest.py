"""A real Saleor, and our service beside it with the gateway's emulator: see README.md. Nothing here
is collected without `SALEOR_URL`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.saleor import Channel, Saleor, Storefront
from tests.real.service import APP_ID, Service
from tillgate.sandbox import Options, Sandbox

collect_ignore_glob = [] if os.environ.get("SALEOR_URL") else ["test_*.py"]

# nothing answers there: a shopper who is led there has arrived
_RETURN_URL = "http://storefront.example/thanks"


@pytest.fixture(scope="session")
def saleor() -> Iterator[Saleor]:
    """Return the Saleor that was given."""
    found = Saleor(
        os.environ["SALEOR_URL"],
        os.environ["SALEOR_EMAIL"],
        os.environ["SALEOR_PASSWORD"],
    )
    yield found
    found.close()


@pytest.fixture(scope="session")
def running_gateway() -> Iterator[Sandbox]:
    """Run the gateway's emulator."""
    with Sandbox(Options(seed=1)) as sandbox:
        yield sandbox


@pytest.fixture
def gateway(running_gateway: Sandbox) -> Iterator[Sandbox]:
    """Return the gateway, which is well again after the test."""
    options = running_gateway.control.service.options
    yield running_gateway
    running_gateway.control.clear_faults()
    running_gateway.control.set_options(
        {
            "delay_seconds": options.delay_seconds,
            "notification_on_refund": options.notification_on_refund,
        },
    )


@pytest.fixture(scope="session")
def service(
    saleor: Saleor,
    running_gateway: Sandbox,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """Run our service as an owner does, its log in `service.log` of a folder that pytest keeps."""
    folder: Path = tmp_path_factory.mktemp("service")
    with Service(folder, saleor.url, running_gateway.base_url, _RETURN_URL) as running:
        yield running


@pytest.fixture(scope="session")
def app(saleor: Saleor, service: Service) -> Iterator[str]:
    """Install the App, in place of one that an earlier run left, and return its identifier."""
    saleor.uninstall(APP_ID)
    saleor.install(service.manifest_url)
    yield APP_ID
    saleor.uninstall(APP_ID)


@pytest.fixture
def storefront(saleor: Saleor, app: str, gateway: Sandbox) -> Storefront:
    """Return a storefront; the gateway is well when the test begins."""
    return Storefront(saleor, app, _RETURN_URL)


@pytest.fixture
def channel(saleor: Saleor) -> Channel:
    """Return a channel in dollars in which transactions are charged."""
    return saleor.channel("tillgate-charges")
