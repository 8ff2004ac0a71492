"""Getpaid's Stripe simulator (python-getpaid-stripe 0.2.1) as a process of its own: a second
opinion beside the fake.

Other people wrote it, for another plugin. It needs Python 3.12 and stripe below 13, so it lives in
`.nox/simulator`, which `nox -s simulator` builds. `Simulator` starts it on a free port, receives
its webhooks, and is the shopper and the bank.

Its differences from Stripe, each tried with the official SDK 16.1.0 (`test_simulator.py` repeats
the most important ones):

- Endpoints: no list of sessions (405), no search of payment intents (`search` is read as an id:
  404), no list of refunds (405), no refund by its id (404), no charges, disputes, account, balance
  and webhook endpoints (404). These 404 and 405, and its 500, have no `error` in the body: the SDK
  raises a plain APIError with "Invalid response object".
- Keys: every API key is accepted, and there are no permissions.
- Idempotency keys are ignored: the same request twice makes two sessions, or two refunds.
- `expand` is ignored: `payment_intent` stays an id.
- Parameters: unknown ones are accepted, `payment_method_types` too; `payment_intent_data[metadata]`
  is ignored, the payment intent has the session's metadata; `customer_email`, `locale` and a
  refund's `reason` are dropped; `cancel_url` is required.
- Amounts: only the first line item counts, without its quantity. Any whole number passes, even a
  negative one, and any currency, which keeps its case; there are no smallest amounts. Text that is
  no whole number is answered with 500.
- Time: `expires_at` has no bounds, and a session after its time stays open until `expire`.
- Sessions: the answers lack `created`, `livemode`, `payment_method_types`, `automatic_tax`,
  `custom_fields`, `custom_text` and `shipping_options`, which Stripe's document requires. Only the
  answer to the creation has `url` and `expires_at`.
- Payment intents lack `created`, `livemode`, `payment_method_types`, `confirmation_method`,
  `latest_charge` and, after a decline, `last_payment_error`. Charges lack `status`,
  `amount_refunded` and more. Refunds lack `created` and `charge`.
- A delayed payment that fails opens its session again; at Stripe the session stays complete and
  unpaid.
- Refunds: the creation is answered with `pending`, and the refund has succeeded by then: webhooks
  alone tell its status. Too large a refund has the code `charge_already_refunded`. A refund of a
  payment that is not paid has the code `charge_not_captured`. No refund is refused for another
  reason, and none is made in a dashboard.
- Webhooks: no disputes, no `charge.refund.updated`; `api_version` is always 2025-06-30. While the
  receiver answers 5xx, each is sent up to three times more, at once; never after a 4xx. A webhook
  arrives before the API call that causes it is answered.
- Answers have no `Request-Id`. There is no way to lose or delay one.
- A restart forgets everything.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlencode

Json = dict[str, Any]

PYTHON = Path(__file__).parents[3] / ".nox/simulator/bin/python"
WEBHOOK_SECRET = "whsec_simulator"
_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"


@dataclass(frozen=True)
class Webhook:
    """A webhook as it arrived."""

    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Json:
        """The event of the body."""
        content: Json = json.loads(self.body)
        return content


class Simulator:
    """The simulator as a context manager; point the SDK's `base_addresses["api"]` at `base_url`.

    A payment is named by its `client_reference_id`, by `reference` in its metadata, or by the id of
    its session. Webhooks arrive before the call that causes them returns; `deliver` passes each on,
    and its status is the answer.
    """

    def __init__(
        self,
        deliver: Callable[[Webhook], int] = lambda _: 200,
        python: Path = PYTHON,
    ) -> None:
        self.received: list[Webhook] = []
        self.base_url = ""
        self._deliver = deliver
        self._python = python
        self._stack = ExitStack()
        self._location = ""
        self._names: dict[str, set[str]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the receiver of webhooks and the simulator, and wait until it answers."""
        receiver = ThreadingHTTPServer(("127.0.0.1", 0), _receiver(self.received, self._deliver))
        self._stack.callback(receiver.server_close)
        threading.Thread(
            target=receiver.serve_forever,
            kwargs={"poll_interval": 0.02},
            daemon=True,
        ).start()
        self._stack.callback(receiver.shutdown)
        port = _free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        process = subprocess.Popen(
            [
                self._python,
                "-m",
                "getpaid_simulator",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--plugin-failure-mode",
                "strict",
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONIOENCODING": "utf-8",
                "SIMULATOR_STRIPE_NOTIFY_URL": f"http://127.0.0.1:{receiver.server_address[1]}/",
                "SIMULATOR_STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        until = time.monotonic() + 120
        while not self._answers():
            if process.poll() is not None or time.monotonic() > until:
                log.seek(0)
                output = log.read().decode(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"The simulator did not start:\n{output}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the simulator and the receiver; it forgets everything."""
        self._stack.close()

    def pay(self, reference: str) -> str:
        """Let the shopper pay immediately; return the address that the shopper is sent to."""
        return self._authorize(reference, "pay")

    def pay_with_delay(self, reference: str) -> None:
        """Let the shopper pay by a method with money that comes later."""
        self._authorize(reference, "pay_delayed")

    def decline(self, reference: str) -> None:
        """Let the bank decline the shopper; the session stays open."""
        self._authorize(reference, "decline")

    def settle(self, reference: str) -> None:
        """Let the money of a delayed payment arrive."""
        self._operate(reference, action="settle_delayed")

    def fail_delayed(self, reference: str) -> None:
        """Let a delayed payment fail."""
        self._operate(reference, action="fail_delayed")

    def expire(self, reference: str) -> None:
        """Let the session's time run out."""
        self._operate(reference, action="expire_session")

    def set_refund_mode(self, reference: str, mode: Literal["", "requires_action"]) -> None:
        """Let the payment's further refunds wait for the shopper, or succeed."""
        self._operate(reference, action="set_refund_mode", mode=mode)

    def fail_refund(self, reference: str, refund_id: str) -> None:
        """Let a refund that succeeded fail later."""
        self._operate(reference, action="fail_refund", refund_id=refund_id)

    @property
    def sessions(self) -> dict[str, Json]:
        """The sessions by their id, oldest first: the dashboard names them, and the API tells
        each.
        """
        return {number: self._session(number) for number in self.numbers}

    @property
    def numbers(self) -> list[str]:
        """The ids of the sessions, oldest first."""
        page = self._call("GET", "/sim/dashboard?provider=stripe").decode()
        return [
            f"cs_sim_{order}"
            for order in dict.fromkeys(re.findall(r"/sim/stripe/authorize/(\w+)", page))
        ]

    def session_of(self, reference: str) -> Json:
        """Return the newest session of a reference."""
        for number in reversed(self.numbers):
            if reference in self.names_of(number):
                return self._session(number)
        raise KeyError(reference)

    def names_of(self, number: str) -> set[str]:
        """Return the id and the references of a session; they never change."""
        if number not in self._names:
            session = self._session(number)
            self._names[number] = {
                number,
                session["client_reference_id"],
                session["metadata"].get("reference"),
            }
        return self._names[number]

    def _session(self, number: str) -> Json:
        session: Json = json.loads(self._call("GET", f"/v1/checkout/sessions/{number}"))
        return session

    def _order(self, reference: str) -> str:
        identifier: str = self.session_of(reference)["id"]
        return identifier.removeprefix("cs_sim_")

    def _authorize(self, reference: str, action: str) -> str:
        self._call(
            "POST",
            f"/sim/stripe/authorize/{self._order(reference)}",
            urlencode({"action": action}),
            _FORM,
        )
        return self._location

    def _operate(self, reference: str, **payload: str) -> None:
        self._call("POST", f"/sim/stripe/ops/{self._order(reference)}", json.dumps(payload), _JSON)

    def _answers(self) -> bool:
        try:
            return bool(self._call("GET", "/"))
        except OSError:
            return False

    def _call(
        self,
        method: str,
        path: str,
        body: str | None = None,
        content_type: str = _FORM,
    ) -> bytes:
        connection = http.client.HTTPConnection(self.base_url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, body, {"Content-Type": content_type})
            answer = connection.getresponse()
            content, self._location = answer.read(), answer.getheader("Location") or ""
        finally:
            connection.close()
        if answer.status >= 400:
            raise RuntimeError(
                f"{method} {path}: {answer.status} {content.decode(errors='replace')[:300]}",
            )
        return content


def _free_port() -> int:
    """Return a port that nothing listens on, and which the system gives to no server that asks for
    any port.
    """
    while True:
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", port := 20_000 + secrets.randbelow(12_000))),
        ):
            return port


def _receiver(
    received: list[Webhook],
    deliver: Callable[[Webhook], int],
) -> type[BaseHTTPRequestHandler]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            webhook = Webhook(
                dict(self.headers.items()),
                self.rfile.read(int(self.headers["Content-Length"])),
            )
            received.append(webhook)
            self.send_response(deliver(webhook))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Receiver
