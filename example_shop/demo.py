"""`make demo`: the shop, the emulator of the gateway and the worker, started together, until
Ctrl-C.

With `--once` it walks through the shop instead (see `walk.py`) and ends: with 0 when every order
came out right.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import httpx

from example_shop.browser import PageProblem

HERE: Final = Path(__file__).parent
MANAGE: Final = str(HERE / "manage.py")
STRIPE: Final = HERE.parent / "plugins/stripe"

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_MOST_TRIES: Final = 3
_SHOP_PORT, _GATEWAY_PORT = 8000, 8181
_SHOP_NAME: Final = "Fold & Margin"
_STAFF: Final = "staff@example.com"
_IMITATION: Final = "imitation of Stripe"


class DemoProblem(Exception):
    """The demonstration cannot go on; the text says why."""


class NotReady(DemoProblem):
    """A process ended before it was ready, or did not get ready."""


def main() -> int:
    """Run the demonstration and return the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="walk through the shop once and end")
    parser.add_argument("--check", action="store_true", help="say what is missing, and end")
    parser.add_argument(
        "--gateway",
        choices=["sandbox", "stripe"],
        default="sandbox",
        help="the gateway that takes the money",
    )
    options = parser.parse_args()
    once, gateway = options.once, options.gateway
    if gateway == "stripe":
        if problem := _missing_for_stripe(once=once, plugin=not options.check):
            _say(problem)
            return 1
        gateway = "stripe" if os.environ.get("STRIPE_TEST_KEY") else _IMITATION
    if options.check:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    _say("Fold & Margin, a stationery shop on django-oscar and Tillgate. No real money moves.\n")
    # Everything that the shop writes is in one folder that goes with the demonstration, and two of
    # them do not meet.
    with tempfile.TemporaryDirectory(prefix="fold-and-margin-") as folder:
        try:
            return _run(Path(folder), gateway, once=once)
        except KeyboardInterrupt:
            _say("\nStopped. Nothing is left behind.")
            return 0
        except (DemoProblem, PageProblem, httpx.HTTPError) as problem:
            _say(f"\n{problem}")
            return 1


def _missing_for_stripe(*, once: bool, plugin: bool) -> str:
    """Return the missing parts of a demonstration with Stripe, or an empty text. Without a key an
    imitation of Stripe takes the money, and nothing is missing.
    """
    key = os.environ.get("STRIPE_TEST_KEY", "")
    if key and once:
        return (
            "With a key a person has to fill in the card: leave --once (ONCE=1) or STRIPE_TEST_KEY "
            "out."
        )
    if key and not key.startswith(("sk_test_", "rk_test_")):
        return (
            "Set STRIPE_TEST_KEY to a test key of your own: sign up for free at "
            "https://dashboard.stripe.com/register, and copy the key "
            "that begins with sk_test_ from https://dashboard.stripe.com/test/apikeys. Leave it "
            "out for an imitation of Stripe on this machine."
        )
    if not plugin:
        return ""
    try:
        import tillgate_stripe  # noqa: F401  # only whether it is there
    except ImportError:
        return (
            "The plugin for Stripe is not installed: run `make demo GATEWAY=stripe`, or `pip "
            "install --editable plugins/stripe`."
        )
    return ""


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(folder: Path, gateway: str, *, once: bool) -> int:
    began, password = time.monotonic(), secrets.token_hex(4)
    os.environ |= {"DJANGO_SETTINGS_MODULE": "example_shop.settings", "SHOP_VAR": str(folder)}
    if gateway != "sandbox":
        os.environ["SHOP_GATEWAY"] = "stripe"
    if gateway == _IMITATION:
        secret = f"whsec_{secrets.token_hex(16)}"
        os.environ |= {"STRIPE_TEST_KEY": "sk_test_fake", "STRIPE_WEBHOOK_SECRET": secret}
    _prepare(password)
    tries = 0
    while True:
        tries += 1
        ports = _ports(gateway, once=once)  # now, since preparing takes a while
        addresses = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        commands = _commands(ports, gateway)
        try:
            with _running(commands, quiet=once) as processes:
                with _step(f"starting {', '.join(commands)}"):
                    _wait_for(processes, addresses)
                _say(f"ready after {time.monotonic() - began:.0f} s\n")
                if once:
                    _walk(processes, addresses, password, gateway)
                else:
                    worker = processes["worker"].number
                    _say(_greeting(addresses, password, folder, worker, gateway))
                    _watch(processes, commands)
                return 0
        except NotReady:
            if tries == _MOST_TRIES or not any(map(_is_taken, ports.values())):
                raise
            _say("  another program took a port in that moment; trying again")


def _ports(gateway: str, *, once: bool) -> dict[str, int]:
    """Choose the free ports of shop and gateway, and tell the processes and the shop's mails of
    them.
    """
    from django.contrib.sites.models import Site  # needs Django's settings, which are ready by now
    from django.db import connection

    wanted = {"shop": 0, "gateway": 0} if once else {"shop": _SHOP_PORT, "gateway": _GATEWAY_PORT}
    if gateway == "stripe":
        del wanted["gateway"]
    ports = {name: _free_port(port) for name, port in wanted.items()}
    for name, port in ports.items():
        os.environ["SHOP_PUBLIC_URL" if name == "shop" else "SHOP_GATEWAY_URL"] = (
            f"http://127.0.0.1:{port}"
        )
    Site.objects.update(domain=f"127.0.0.1:{ports['shop']}")
    connection.close()
    return ports


def _commands(ports: Mapping[str, int], gateway: str = "sandbox") -> dict[str, list[str]]:
    """Return the command of each process."""
    tillgate = str(Path(sys.executable).with_name("tillgate"))
    commands = {
        "shop": [sys.executable, MANAGE, "runserver", "--noreload", f"127.0.0.1:{ports['shop']}"],
        "worker": [sys.executable, MANAGE, "tillgate", "worker"],
    }
    if "gateway" not in ports:
        return commands
    if gateway == _IMITATION:
        notify = f"http://127.0.0.1:{ports['shop']}/payments/webhook/default/"
        given = {
            "port": str(ports["gateway"]),
            "merchant": _SHOP_NAME,
            "notify": notify,
            "secret": os.environ["STRIPE_WEBHOOK_SECRET"],
        }
        options = [f"--{name}={value}" for name, value in given.items()]
        # the imitation is no part of the plugin's wheel
        program = ["env", f"PYTHONPATH={STRIPE}", sys.executable, "-m", "stripe_emulator"]
        return {"gateway": [*program, *options], **commands}
    return {
        "gateway": [
            tillgate,
            "sandbox",
            "--port",
            str(ports["gateway"]),
            "--set",
            f"merchant_name={_SHOP_NAME}",
            "--set",
            "notification_on_failed=true",
            "--set",
            "notification_on_expired=true",
        ],
        **commands,
    }


def _walk(
    processes: Mapping[str, _Process],
    addresses: Mapping[str, str],
    password: str,
    gateway: str,
) -> None:
    from example_shop.walk import walk, walk_stripe  # needs Django's settings too

    chosen = walk_stripe if gateway == _IMITATION else walk
    try:
        chosen(addresses["shop"], addresses["gateway"], (_STAFF, password), _say)
    except Exception:
        for process in processes.values():
            process.tell_last_words()
        raise
    _say("\nEvery order came out right.")


_IMITATION_GREETING: Final = """\
  The shop                {shop}/
  Its dashboard           {shop}/dashboard/      {staff}, password {password}
  Tillgate in the admin   {shop}/admin/          the same
  Stripe's dashboard      {gateway}/             an imitation, as its payment page is
  Mail and database       {folder}

What to try:

  1. Buy something as a guest and press Pay on the payment page. The order is paid.
  2. Press Decline: the page says why, and offers another try. Pay then.
  3. Choose Bank debit, Konbini or Bank transfer. The order waits; look at its page and the mails. Let the money arrive, or fail, in
     Stripe's dashboard.
  4. Refund a part in the shop's dashboard, and the rest in Stripe's. The order's page shows both.
  5. Let the bank dispute a payment, or hold one for review, in Stripe's dashboard. “Needs review” says so, and nothing ships.

With STRIPE_TEST_KEY set to a test key of your own the same shop takes play money at Stripe itself.

Ctrl-C stops everything. What happens is shown below.
"""
_STRIPE_GREETING: Final = """\
  The shop                {shop}/
  Its dashboard           {shop}/dashboard/      {staff}, password {password}
  Stripe's ledger         https://dashboard.stripe.com/test/payments
  Mail and database       {folder}

What to try:

  1. Buy something as a guest. Pay on Stripe's page with card 4242 4242 4242 4242, any later date and any number. The order is paid.
  2. Buy again, pay and close the tab at once. The order is paid all the same: the worker asks Stripe.
  3. Try card 4000 0000 0000 0002, which is declined, and then another on the same page.
  4. Refund a part in the shop's dashboard, and another part in Stripe's. The order's page shows both.
  5. Pay with card 4000 0000 0000 0259: its bank disputes the payment. “Needs review” shows the amount and the deadline.

Stripe cannot reach this machine, so nothing notifies the shop: the return and the worker do all of it. `stripe listen
--forward-to {shop}/payments/webhook/default/` brings notifications; start with the secret that it prints as STRIPE_WEBHOOK_SECRET.

Ctrl-C stops everything. What happens is shown below.
"""


# Preparing ----------------------------------------------------------------------------------------


def _prepare(password: str) -> None:
    """Make the tables, the catalogue and one user of the staff."""
    with _step("loading Django and Oscar"):
        import django

        django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    from example_shop import catalogue

    executor = MigrationExecutor(connection)
    planned = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    with _step("making the tables", planned) as progress:
        call_command(
            "migrate",
            verbosity=1,
            stdout=_Lines(lambda line: progress() if "Applying" in line else None),
        )
    with _step("drawing the pictures and filling the shelves", len(catalogue.GOODS)) as progress:
        catalogue.load(progress)
        get_user_model().objects.create_superuser("staff", _STAFF, password)
    connection.close()


class _Lines:
    """Hands over the written text, for a command that insists on writing."""

    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take

    def write(self, text: str) -> None:
        self._take(text)

    def flush(self) -> None:
        """Nothing waits."""


@contextmanager
def _step(what: str, total: int = 0) -> Iterator[Callable[..., None]]:
    """Show a step and its progress, on a terminal in one line, and its duration at the end."""
    began, done, terminal = time.monotonic(), 0, sys.stdout.isatty()

    def progress(*_: object) -> None:
        nonlocal done
        done += 1
        if terminal and total:
            sys.stdout.write(f"\r  {what}: {min(done, total)} of {total} ")
            sys.stdout.flush()

    sys.stdout.write(f"  {what} …")
    sys.stdout.flush()
    yield progress
    sys.stdout.write(
        f"\r\033[K  {what}: {time.monotonic() - began:.0f} s\n"
        if terminal
        else f" {time.monotonic() - began:.0f} s\n",
    )
    sys.stdout.flush()


def _free_port(wanted: int = 0) -> int:
    """Return a port that nothing listens on: the wanted one if it is free."""
    if wanted and not _is_taken(wanted):
        return wanted
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        other = int(probe.getsockname()[1])
    if wanted:
        _say(f"  port {wanted} is taken; using {other} instead")
    return other


def _is_taken(port: int) -> bool:
    """Tell whether a program listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


# Running ------------------------------------------------------------------------------------------


class _Process:
    """A child process with its output shown line by line, each with the name of the process."""

    _REQUEST: Final = re.compile(r'\[[^]]+\] "(\S+ \S+) HTTP/[\d.]+" (\d+) \d+$')
    _NOISE: Final = re.compile(r"GET /(?!payments/(notification|order|pay|return))\S* [23]")

    def __init__(self, name: str, command: Sequence[str], *, quiet: bool) -> None:
        self.name, self.quiet = name, quiet
        self._last: deque[str] = deque(maxlen=40)
        # In a session of its own, so that Ctrl-C reaches only us, and we stop the children in
        # order.
        self._child = subprocess.Popen(  # noqa: S603  # our own commands
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=_environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def number(self) -> int:
        """The process's id."""
        return self._child.pid

    def ended(self) -> int | None:
        """Return the exit status of a process that ended."""
        return self._child.poll()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                self._last.append(line.rstrip())
                # the shop's log of a request, without its details
                shown = self._REQUEST.sub(r"\1 \2", line.strip())
                if not self.quiet and shown and not self._NOISE.match(shown):
                    _say(f"{self.name:>8} | {shown}")

    def has_said(self, text: str) -> bool:
        """Tell whether its last words have a text."""
        return any(text in line for line in list(self._last))

    def tell_last_words(self) -> None:
        """Show its last lines, to find the fault."""
        if self.ended() is not None:
            self._reader.join(_STOP_SECONDS)
        for line in list(self._last):
            _say(f"{self.name:>8} | {line}")

    def stop(self) -> None:
        """End it, gently first."""
        self.quiet = True
        self._child.terminate()
        try:
            self._child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join(_STOP_SECONDS)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


@contextmanager
def _running(
    commands: Mapping[str, Sequence[str]],
    *,
    quiet: bool,
) -> Iterator[dict[str, _Process]]:
    processes: dict[str, _Process] = {}
    try:
        for name, command in commands.items():
            # the greeting replaces their own lines at the start
            processes[name] = _Process(name, command, quiet=True)
        yield processes
    finally:
        for process in reversed(processes.values()):
            process.stop()


def _wait_for(processes: Mapping[str, _Process], addresses: Mapping[str, str]) -> None:
    """Wait until each address answers, by the process of that name, which says so itself, and until
    every process lives.

    Another program may listen there: it answers too.
    """
    until, waiting = time.monotonic() + _START_SECONDS, dict(addresses)
    while waiting:
        for process in processes.values():
            if (status := process.ended()) is not None:
                process.tell_last_words()
                raise NotReady(
                    f"The {process.name} ended with status {status} before it was ready; its last "
                    "words are above.",
                )
        name, address = next(iter(waiting.items()))
        if time.monotonic() > until:
            processes[name].tell_last_words()
            raise NotReady(
                f"The {name} did not answer at {address} within {_START_SECONDS:.0f} s; its last "
                "words are above.",
            )
        try:
            if (
                processes[name].has_said(address)
                and httpx.get(address, timeout=_START_SECONDS, trust_env=False).is_success
            ):
                del waiting[name]
                continue
        except httpx.TransportError:
            pass
        time.sleep(0.1)


def _watch(processes: Mapping[str, _Process], commands: Mapping[str, Sequence[str]]) -> None:
    """Show the output of the processes until one of them ends; without its worker the shop goes on,
    which is worth seeing.
    """
    for process in processes.values():
        process.quiet = False
    told: set[str] = set()
    while True:
        time.sleep(0.3)
        for name, process in processes.items():
            status = process.ended()
            if status is None or name in told:
                continue
            process.tell_last_words()
            if name != "worker":
                raise DemoProblem(
                    f"The {name} ended with status {status}; its last words are above.",
                )
            told.add(name)
            wanted = ("SHOP_VAR", "SHOP_PUBLIC_URL", "SHOP_GATEWAY_URL", "SHOP_GATEWAY")
            variables = " ".join(
                f"{variable}={os.environ[variable]}"
                for variable in wanted
                if variable in os.environ
            )
            _say(
                f"\nThe worker is gone. Start another in a second terminal:\n\n  {variables} "
                f"{' '.join(commands[name])}\n",
            )


def _greeting(
    addresses: Mapping[str, str],
    password: str,
    folder: Path,
    worker: int,
    kind: str,
) -> str:
    shop, gateway = addresses["shop"], addresses.get("gateway")
    if kind != "sandbox":
        text = _IMITATION_GREETING if gateway else _STRIPE_GREETING
        return text.format(
            shop=shop,
            gateway=gateway,
            staff=_STAFF,
            password=password,
            folder=folder,
        )
    return f"""\
  The shop                {shop}/
  Its dashboard           {shop}/dashboard/      {_STAFF}, password {password}
  Tillgate in the admin   {shop}/admin/          the same
  The gateway's ledger    {gateway}/
  Mail and database       {folder}

What to try:

  1. Buy something as a guest and press Pay on the payment page. The order is paid.
  2. Buy again, press Pay and close the tab at once. The order is paid all the same: see the dashboard.
  3. Press Decline or Leave, then pay the same order another way.
  4. Use voucher MARGIN10 and compare the total with the one on the payment page.
  5. Buy a gift card: its price is a magic amount and makes the gateway misbehave. The order comes out right, or a person is told.
  6. Refund an order in the dashboard, in part or whole. The order's page shows what happened, step by step.
  7. Kill the worker (kill {worker}), buy “Gift card, 13.61” and close the tab. Start the worker again.
  8. Buy “Gift card, 13.76: voucher”, “13.74: bank debit” and “13.77: debit that fails”. Look at the pages and the mails. Then let two days pass at the gateway:
     curl -d '{{"advance_seconds": 172800}}' -H 'Content-Type: application/json' {gateway}/_control/clock
  9. Choose another language at the top of the page and buy again.
  10. Give your browser's user agent the word MicroMessenger, as inside WeChat: Alipay comes last, with a button that copies the link.

Ctrl-C stops everything. What happens is shown below.
"""


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # this is a program that prints


if __name__ == "__main__":
    sys.exit(main())
