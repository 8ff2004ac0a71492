"""`nox -s upgrade`: a shop that an old wheel filled is upgraded to the working tree, while old and
new processes sell side by side.

For each database: the old wheel fills a shop, and its web server and worker run. The new wheel
migrates, and its web server joins the old one on the same port, as behind a load balancer. On
MariaDB the old processes rest during the migration. Shoppers buy, staff refund, notifications
arrive at both. Then the old processes stop, the new worker comes to rest, and the ledger check must
find nothing.

The wheel makes its rows anew, since the gateway's emulator must know the payments.
`tests/django/data` keeps rows of every kind as files, and `tests/django/test_kept.py` upgrades
those on each database.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

import httpx

from example_shop.browser import Browser, PageProblem
from proving.processes import Supervised, free_port, wait_for_port
from tools.benchmarks import databases
from tools.release.archives import ROOT
from tools.release.trials import Place, TrialProblem

_MORE: Final = ("gunicorn", "psycopg[binary]", "pymysql")
_SHOPPERS: Final = 3
_ALONE_SECONDS: Final = 10.0
"""So long shoppers buy before the new processes come, and after the old ones have gone."""
_STORED: Final = ("src/tillgate/django/migrations", "src/tillgate/django/pages/tickets.py")
"""The tables, and the addresses that shoppers hold: until the first release a change of them leads
from no older commit to a newer one.
"""
_TROUBLE: Final = ("Traceback (most recent call last)", '" 500 ', "[CRITICAL]")


def main() -> int:
    """Return 0 when every upgrade lost nothing."""
    parser = argparse.ArgumentParser(
        prog="nox -s upgrade",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument(
        "--database",
        nargs="+",
        choices=databases.NAMES,
        default=list(databases.NAMES),
        help="by default all three",
    )
    parser.add_argument(
        "--old",
        type=Path,
        metavar="FOLDER",
        help="where the old wheel is, such as dist/ of a release",
    )
    parser.add_argument(
        "--old-commit",
        help="without a wheel; by default the newest tag, or the last change of tables or "
        "addresses",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="how long old and new run side by side, by default 60",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tillgate-upgrade-") as name:
        folder, is_whole = Path(name).resolve(), True
        try:
            old = _installed(
                folder / "old",
                *(
                    _given(options.old)
                    if options.old
                    else _of_commit(folder / "source", options.old_commit)
                ),
            )
            new = _installed(
                folder / "new",
                ROOT,
                f"the working tree at {_git('describe', '--always', '--dirty')}",
            )
            for database in options.database:
                if missing := databases.why_not(database):
                    is_whole = False
                    _say(f"{database}: not tried: {missing}")
                    continue
                version = databases.versions()[
                    databases.NAMES[database].partition(",")[0]
                ].removeprefix("5.5.5-")
                _say(
                    f"{database}: {version}, Python {platform.python_version()}, "
                    f"{datetime.now(UTC):%Y-%m-%d}",
                )
                _Upgrade(folder / database, old, new, database).run(options.seconds)
        except TrialProblem as problem:
            _say(f"not fit to be published: {problem}")
            return 1
    return 0 if is_whole else 1


# The wheels ---------------------------------------------------------------------------------------


def _given(folder: Path) -> tuple[Path, str]:
    """Return the wheel of the core in a folder, and say where it is from."""
    (wheel,) = folder.resolve().glob("tillgate-*.whl")
    return wheel, str(wheel)


def _of_commit(source: Path, commit: str | None) -> tuple[Path, str]:
    """Return the files of a commit, and say which one it is."""
    commit = (
        commit
        or _git("tag", "--sort=-creatordate").partition("\n")[0]
        or _git("log", "-1", "--format=%h", "--", *_STORED)
    )
    source.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    return source, f"commit {commit} of {_git('log', '-1', '--format=%cs', commit)}"


def _installed(folder: Path, wheel: Path, origin: str) -> Place:
    """Install a wheel, or the one that pip builds of a folder, into an environment of its own, with
    all that the shop needs.
    """
    folder.mkdir()
    place = Place(folder, wheel.parent)
    place.run(sys.executable, "-m", "venv", str(folder / "venv"))
    place.run(
        "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"{wheel}[django,testing]",
        *_MORE,
    )
    version, where = place.last_line(
        "python",
        "-c",
        "import tillgate; print(tillgate.__version__, tillgate.__file__)",
    ).split()
    if not where.startswith(str(folder)):
        raise TrialProblem(f"tillgate was imported from {where}")
    _say(f"{folder.name}: the wheel of Tillgate {version} from {origin}")
    return place


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


# The upgrade --------------------------------------------------------------------------------------


class _Upgrade:
    """One upgrade, on one database."""

    def __init__(self, folder: Path, old: Place, new: Place, database: str) -> None:
        folder.mkdir()
        self._folder, self._old, self._new, self._database = folder, old, new, database
        self._port, self._gateway_port = free_port(), free_port()
        self._home, self._gateway = (
            f"http://127.0.0.1:{self._port}",
            f"http://127.0.0.1:{self._gateway_port}",
        )
        self._variables = {
            "DJANGO_SETTINGS_MODULE": "tools.release.upgrade_settings",
            "PYTHONPATH": str(
                ROOT,
            ),  # of the repository only the shop is imported: Tillgate lies in src/
            "TILLGATE_TEST_DATABASE": database,
            "UPGRADE_DATABASE": str(folder / "shop.sqlite3")
            if database == "sqlite"
            else f"tillgate_upgrade_{os.getpid()}",
            "UPGRADE_FOLDER": str(folder),
            "UPGRADE_GATEWAY": self._gateway,
            "UPGRADE_HOME": self._home,
        }
        self._running: dict[str, Supervised] = {}
        self._stop, self._did = threading.Event(), Counter[str]()
        self._chance = Random(1)

    def run(self, seconds: float) -> None:
        """Fill, upgrade and compare."""
        emulator = ("tillgate", "sandbox", "--port", str(self._gateway_port))
        with self._new.running(f"{self._gateway}/_control/state", *emulator):
            self._ask(self._old, "create()")
            try:
                self._say(f"the old wheel left {self._ask(self._old, 'fill()')}")
                self._trade(seconds)
                self._say(f"shoppers, staff and the gateway: {_counts(self._did)}")
                self._tell_logs()
                self._say(self._ask(self._new, "judge()"))
                self._say("; ".join(self._django("tillgate", "audit").splitlines()))
            finally:
                self._stop.set()
                for process in self._running.values():
                    process.stop()
                self._ask(self._new, "destroy()")

    def _trade(self, seconds: float) -> None:
        people = [threading.Thread(target=self._shop, daemon=True) for _ in range(_SHOPPERS)]
        people.append(
            threading.Thread(target=self._end_kept, args=(seconds + _ALONE_SECONDS,), daemon=True),
        )
        self._start("old", self._old)
        for person in people:
            person.start()
        time.sleep(_ALONE_SECONDS)
        # a payment holds a row that the migration waits for, and waits for its table
        if self._database == "mariadb":
            self._stop_old()
        self._django("migrate", "--verbosity", "0")
        if self._database == "mariadb":
            self._start("old", self._old)
        self._start("new", self._new)
        time.sleep(seconds / 2)
        for step, place in ((2, self._old), (1, self._new)):
            self._did["reviews resolved"] += int(self._ask(place, f"staff({step})"))
        time.sleep(seconds / 2)
        self._stop_old()
        time.sleep(_ALONE_SECONDS)
        self._stop.set()
        for person in people:
            person.join(90)

    def _start(self, name: str, place: Place) -> None:
        """Start a worker and a web server, which shares its port with the one that is there."""
        programs = place.folder / "venv" / "bin"
        web = (
            f"--bind=127.0.0.1:{self._port} --reuse-port --workers=2 --access-logfile=- "
            "django.core.wsgi:get_wsgi_application()"
        )
        commands = {
            f"{name} worker": [
                str(programs / "python"),
                "-m",
                "django",
                "tillgate",
                "worker",
                "--interval",
                "1",
            ],
            f"{name} web": [str(programs / "gunicorn"), *web.split()],
        }
        for process, command in commands.items():
            environment = {**place.environment, **self._variables}
            self._running[process] = Supervised(
                process,
                command,
                environment,
                self._folder / f"{process}.log",
            )
        wait_for_port(self._port)

    def _stop_old(self) -> None:
        for name in ("old worker", "old web"):
            self._running[name].stop()

    def _shop(self) -> None:
        """Buy one thing after the other, come back or not, and have a part of some refunded."""
        while not self._stop.wait(0.2):
            try:
                with Browser(self._home) as guest:
                    page = guest.open("/checkout/")
                    page = guest.submit(
                        page,
                        page.form("method"),
                        method=self._chance.choice(("alipay", "paypal")),
                    )
                    decision = self._chance.choices(("pay", "decline"), (9, 1))[0]
                    if self._chance.random() < 0.5:
                        guest.submit_and_close(page, page.forms[0], decision=decision)
                        self._did["payments, the tab closed"] += 1
                        continue
                    back = guest.submit(page, page.forms[0], decision=decision)
                    self._did["payments, come back"] += 1
                    if "/orders/" in back.url and self._chance.random() < 0.3:  # it is paid
                        said = guest.open(back.url.replace("/orders/", "/refund/")).text
                        self._did[f"refunds {said}"] += 1
            except (
                httpx.TransportError
            ) as error:  # a server that stops closes connections that nothing has read
                self._did[f"connections lost: {type(error).__name__}"] += 1
            except (PageProblem, IndexError) as problem:  # the second: a page without a form
                self._did[f"problem: {problem!r}"] += 1

    def _end_kept(self, seconds: float) -> None:
        """Let the kept open payments be paid, declined and timed out, one after the other."""
        waiting = json.loads((self._folder / "kept.json").read_text("utf-8"))["waiting"]
        for number, reference in enumerate(waiting):
            action = ("pay", "decline", "expire")[number % 3]
            httpx.post(
                f"{self._gateway}/_control/transactions/{reference}/{action}",
                json={},
                trust_env=False,
            ).raise_for_status()
            if self._stop.wait(seconds / len(waiting)):
                return

    def _tell_logs(self) -> None:
        """Say how much each process did, and raise where one of them failed."""
        for name, process in self._running.items():
            log = (self._folder / f"{name}.log").read_text("utf-8", errors="replace")
            if name.endswith("web"):
                does = ("/checkout/", "/notification/", "/return/", "/refund/")
                found = Counter({what.strip("/"): log.count(what) for what in does})
            else:
                found = Counter({"payments": 0, "events": 0})
                for what, count in re.findall(r"\b(payments|(?<!remote )events) (\d+)", log):
                    found[what] += int(count)
            self._say(f"{name}: {_counts(found)}")
            if process.restarts or not all(found.values()) or any(sign in log for sign in _TROUBLE):
                raise TrialProblem(
                    f"{self._database}: {name} failed, started again {process.restarts} "
                    f"times:\n{log[-3000:]}",
                )
        if problems := [what for what in self._did if what.startswith("problem")]:
            raise TrialProblem("\n".join(problems))

    def _django(self, *arguments: str) -> str:
        """Run a command of the new version, which must succeed."""
        return self._new.run("python", "-m", "django", *arguments, variables=self._variables)

    def _ask(self, place: Place, call: str) -> str:
        """Call a function of the shop's module in a process of its own."""
        code = (
            "import django; django.setup(); from tools.release import upgrade_shop; "
            f"print(upgrade_shop.{call})"
        )
        return place.last_line("python", "-c", code, variables=self._variables)

    def _say(self, text: str) -> None:
        _say(f"{self._database}: {text}")


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items()))


def _say(text: str) -> None:
    print(text, flush=True)  # this is a program that prints


if __name__ == "__main__":
    sys.exit(main())
