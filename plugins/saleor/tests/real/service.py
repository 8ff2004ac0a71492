"""Our service as an owner runs it: `tillgate-saleor serve`, with its worker beside it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.real.saleor import until
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN

APP_ID: Final = "tillgate"
_STOP_SECONDS: Final = 15.0
_REVIEWS: Final = """
import json
from tillgate.django.models import Review
rows = Review.objects.filter(resolved_at__isnull=True, payment__reference={reference!r})
print(json.dumps(list(rows.values_list("reason", flat=True))))
"""


class Service:
    """The service, running: with its manifest's address, and its own commands."""

    def __init__(
        self,
        folder: Path,
        saleor_url: str,
        gateway_url: str,
        storefront_url: str,
    ) -> None:
        self._port = _free_port()
        self._log = folder / "service.log"
        self._command = str(Path(sys.executable).with_name("tillgate-saleor"))
        self.url = f"http://127.0.0.1:{self._port}"
        self.manifest_url = f"{self.url}/api/manifest"
        self.register_url = f"{self.url}/api/register"
        self.saleor_origin = _origin(saleor_url)
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if name != "DJANGO_SETTINGS_MODULE"
            },  # the tests' own
            "PUBLIC_URL": self.url,
            "SECRET_KEY": secrets.token_urlsafe(50),
            "DATABASE_URL": os.environ.get("SERVICE_DATABASE_URL")
            or f"sqlite:///{folder / 'service.sqlite3'}",
            "SALEOR_ORIGINS": self.saleor_origin,
            "SALEOR_STOREFRONTS": _origin(storefront_url),
            "TILLGATE_BASE_URL": gateway_url,
            "TILLGATE_MERCHANT_NO": PUBLISHED_MERCHANT_NO,
            "TILLGATE_TOKEN": PUBLISHED_TEST_TOKEN,
            "TILLGATE_SANDBOX": "true",
        }

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def start(self) -> None:
        """Start the service and wait until it serves."""
        with self._log.open("ab") as log:
            arguments = [self._command, "serve", "--port", str(self._port)]
            self._process = subprocess.Popen(
                arguments,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(f"the service serves; its log is {self._log}", self._serves, 60.0)

    def kill(self) -> None:
        """End the service immediately, at any point."""
        self._process.kill()
        self._process.wait()

    def _serves(self) -> bool:
        assert self._process.poll() is None, f"the service ended: {self._log.read_text()[-2000:]}"
        try:
            return httpx.get(self.manifest_url).is_success
        except httpx.TransportError:
            return False

    @contextmanager
    def configured(self, **variables: str) -> Iterator[None]:
        """Let the service run with other variables for a while."""
        before = self._environment
        self._restart({**before, **variables})
        try:
            yield
        finally:
            self._restart(before)

    def _restart(self, environment: dict[str, str]) -> None:
        self.kill()
        self._environment = environment
        self.start()

    def reviews(self, reference: str) -> list[str]:
        """Return why a payment needs review."""
        found: list[str] = json.loads(
            self._manage(
                "shell", "--no-imports", "--command", _REVIEWS.format(reference=reference)
            ),
        )
        return found

    def _manage(self, *arguments: Any) -> str:
        done = subprocess.run(
            [self._command, "manage", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _origin(url: str) -> str:
    return str(httpx.URL(url).copy_with(raw_path=b"")).rstrip("/")
