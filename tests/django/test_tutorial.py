"""The tutorial "your own shop in ten minutes" shows the very files that the tests run, and can be
finished as it is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_docs import PUBLISHED_ADDRESS, blocks, read
from tillgate.sandbox import Options, Sandbox

ROOT = Path(__file__).parents[2]
TUTORIAL = read("docs/tutorial/your-own-shop.md")

Run = Callable[..., str]


@pytest.mark.parametrize("name", ["models", "plugin", "apps"])
def test_tutorial_shows_the_tested_shop(name: str) -> None:
    code = (
        (ROOT / f"tests/smallest_shop/{name}.py")
        .read_text("utf-8")
        .replace("tests.smallest_shop", "smallest_shop")
        .rstrip()
    )
    assert f"```python\n# smallest_shop/{name}.py\n{code}\n```" in TUTORIAL


def test_the_smallest_shops_plugin_stays_small() -> None:
    lines = (ROOT / "tests/smallest_shop/plugin.py").read_text("utf-8").splitlines()
    assert len(lines) <= 70


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a Python program in a new folder, as a newcomer to this project would."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TILLGATE_", "DJANGO_", "PYTHON"))
    }

    def run(*arguments: str, typed: str = "") -> str:
        command = [sys.executable, *arguments]
        # our own
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


BUY = """
import http.client
from urllib.parse import urlsplit
from django.test import Client
from tillgate.shop import order_state

print("waits:", order_state("smallest-shop", "1").waits_since is not None)
shopper = Client(headers={{"host": "127.0.0.1"}})  # needs no running server
print("before:", shopper.get("/orders/1/").content.decode())
payment_page = urlsplit(shopper.post("{link}", {{"method": "alipay"}}).headers["Refresh"].partition("url=")[2])
gateway = http.client.HTTPConnection(payment_page.netloc)
gateway.request("POST", payment_page.path, "decision=pay", {{"Content-Type": "application/x-www-form-urlencoded"}})
back = urlsplit(gateway.getresponse().headers["Location"])
print("lands on:", shopper.get(f"{{back.path}}?{{back.query}}").headers["Location"])
print("after:", shopper.get("/orders/1/").content.decode())
"""


def test_printed_tutorial_can_be_finished(tmp_path: Path, run: Run) -> None:
    run("-m", "django", "startproject", "project", ".")
    run("manage.py", "startapp", "smallest_shop")
    with Sandbox(Options(notification_on_paid=False)) as sandbox:
        pasted = []
        for block in blocks(TUTORIAL, "python"):
            first, _, code = block.replace(
                PUBLISHED_ADDRESS,
                f"127.0.0.1:{sandbox.port}",
            ).partition("\n")
            if name := re.fullmatch(r"# (\w+/\w+\.py)", first):
                path = tmp_path / name[1]
                path.write_text(
                    (path.read_text("utf-8") if path.parent.name == "project" else "") + code,
                    "utf-8",
                )
            else:
                pasted.append(block)
        run("manage.py", "makemigrations", "smallest_shop")
        run("manage.py", "migrate")
        assert "no issues" in run("manage.py", "check")
        (link,) = re.findall(
            r"http://127\.0\.0\.1:8000(/payments/\S+)",
            run("manage.py", "shell", typed="".join(pasted)),
        )
        said = run("manage.py", "shell", typed=BUY.format(link=link))
        assert "payments" in run("manage.py", "tillgate", "worker", "--once")
    assert "waits: True" in said, (
        "an order whose shopper chooses no payment method is cancelled in time"
    )
    before, after = re.findall(r"(?:before|after): (.*)", said)
    assert "USD 12.50: open" in before
    assert "Pay again" in before
    assert "lands on: /orders/1/" in said
    assert "USD 12.50: paid" in after
    assert "Pay again" not in after
