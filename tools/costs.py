"""`python -m tools.costs`: measure on PostgreSQL the costs of Tillgate, and write the table of
docs/reference/costs.md.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import django
from packaging.requirements import Requirement

from tillgate.sandbox import Options, Sandbox
from tools.benchmarks import processes
from tools.benchmarks.notifications import environment
from tools.docgen import parts

PAGE: Final = parts.ROOT / "docs/reference/costs.md"
_COMMAND: Final = "python -m tools.costs"
_ORDERS: Final = 500
_IDLE_SECONDS: Final = 20.0
_PAGES: Final = 50
_NOT_WORK: Final = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")
_MB: Final = 1024 * 1024


ROWS: Final = {
    "tables": "tables of Tillgate in your database",
    "bytes": f"bytes in PostgreSQL for a paid order, with its indexes ({_ORDERS} orders)",
    "start": "SQL statements to start a payment",
    "paid": "SQL statements of the notification that finds it paid, with the shop's own one",
    "return": "SQL statements of the shopper's return",
    "worker": "memory of a worker without work",
    "idle": f"CPU time of that worker in {_IDLE_SECONDS:.0f} s",
    "web": f"memory of a gunicorn process with 8 threads, after {_PAGES} pages",
    "packages": "packages that `tillgate[django]` needs, Django included",
}


def main() -> None:
    """Measure and write."""
    with Sandbox(Options(notification_on_paid=False)) as sandbox:
        chosen = environment("shop", "postgresql", sandbox.base_url, "costs")
        os.environ.update(chosen)
        django.setup()
        from django.db import connection

        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            figures = {**_bought(sandbox), **_memory(chosen)}
        finally:
            connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
    packages = dependencies(["tillgate[django]"]) - {"tillgate"}
    figures["packages"] = f"{len(packages)}, {_size(packages) / _MB:.0f} MB on the disk"
    written = parts.replaced(PAGE.read_text("utf-8"), "costs", _COMMAND, table(figures))
    parts.write({PAGE: written})


def table(figures: Mapping[str, str]) -> str:
    """Return the table of the page."""
    lines = [f"| {said} | {figures[name]} |" for name, said in ROWS.items()]
    return "\n".join(["| what | figure |", "|---|---|", *lines])


def _bought(sandbox: Sandbox) -> dict[str, str]:
    """Buy, and count statements and bytes."""
    from django.db import connection
    from django.test import Client

    from tillgate import shop
    from tillgate.django.payments.starting import start_payment

    client, counts = Client(), dict[str, int]()
    for number in range(_ORDERS):
        shop.open_order("benchmark-shop", str(number))
        with _counted(counts, "start"):
            payment = start_payment("benchmark-shop", str(number), method="alipay").payment
        sandbox.control.pay(payment.reference)
        said = {"reference": payment.reference, "status": "success"}
        with _counted(counts, "paid"):
            client.post(f"/payments/notification/{payment.notification_key}/", said)
        with _counted(counts, "return"):
            client.get(f"/payments/return/{payment.return_key}/")
    payment.refresh_from_db()
    assert payment.status == "paid", payment.status
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute(
            "SELECT count(*), sum(pg_total_relation_size(oid)) FROM pg_class "
            "WHERE relkind = 'r' AND relname LIKE 'tillgate_%%'",
            [],
        )
        tables, size = cursor.fetchone()
    return {
        "tables": str(tables),
        "bytes": f"{round(int(size) / _ORDERS, -2):,.0f}",
        **{name: str(count) for name, count in counts.items()},
    }


@contextlib.contextmanager
def _counted(counts: dict[str, int], name: str) -> Iterator[None]:
    """Count the last block of a name: the first ones fill caches."""
    from django.db import connection

    counts[name] = 0

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        counts[name] += not sql.startswith(_NOT_WORK)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield


def _memory(chosen: dict[str, str]) -> dict[str, str]:
    """Run a worker and a web process, and read their memory."""
    import httpx

    from tillgate.django.models import Payment

    keys = list(Payment.objects.values_list("return_key", flat=True)[:_PAGES])
    command = [sys.executable, "-m", "django", "tillgate", "worker"]
    surroundings = processes.surroundings(chosen)
    with subprocess.Popen(command, env=surroundings, stdout=subprocess.DEVNULL) as worker:
        try:
            time.sleep(5)
            begun = _cpu_seconds(worker.pid)
            time.sleep(_IDLE_SECONDS)
            idle, held = _cpu_seconds(worker.pid) - begun, _held(worker.pid)
        finally:
            worker.terminate()
    application = "django.core.wsgi:get_wsgi_application()"
    with processes.serving(application, chosen, workers=1, threads=8) as web:
        for key in keys:
            page = f"http://127.0.0.1:{web.port}/payments/return/{key}/"
            httpx.get(page, trust_env=False).raise_for_status()
        children = Path(f"/proc/{web.process_id}/task/{web.process_id}/children").read_text()
        served = _held(int(children.split()[0]))
    return {
        "worker": f"{held / _MB:.0f} MB",
        "idle": f"{idle:.1f} s",
        "web": f"{served / _MB:.0f} MB",
    }


def _held(pid: int) -> int:
    """Return the bytes of memory that a process holds, its share of shared pages included."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) * 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def dependencies(wanted: Iterable[str]) -> set[str]:
    """Return the names of the installed packages that the wanted ones need, themselves included."""
    found, waiting = dict[str, set[str]](), [Requirement(one) for one in wanted]
    while waiting:
        one = waiting.pop()
        extras = {"", *one.extras}
        if extras <= found.get(one.name.lower(), set()):
            continue
        found.setdefault(one.name.lower(), set()).update(extras)
        for text in metadata.requires(one.name) or ():
            needed = Requirement(text)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return set(found)


def _size(packages: Iterable[str]) -> int:
    paths: list[Any] = [path for name in packages for path in metadata.files(name) or ()]
    return sum(path.locate().stat().st_size for path in paths if path.locate().is_file())


if __name__ == "__main__":
    main()
