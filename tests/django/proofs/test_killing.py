"""Kill at every line can fail: its points are every line, its judge sees each broken promise, and a
broken core is found.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proving.killing.judging import judge
from proving.killing.lines import EVERY, Lines
from proving.killing.results import Part, Result, Results, section, table
from proving.killing.runs import _name
from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import Gateway, PaymentRequest, new_reference
from tillgate.django.accounts import find_account
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.errors import ConfigurationError

pytestmark = pytest.mark.provers

ROOT = Path(__file__).parents[3]


# The points ---------------------------------------------------------------------------------------


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages: `watched`, and `others` whose function runs so many lines."""
    for package, code in {
        "watched": "def action():\n    one = 1\n    two = 2\n    return one + two\n",
        "others": "def action(times):\n    for _ in range(times):\n        pass\n",
    }.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_watched_lines_are_all_kill_points(
    modules: Path,
) -> None:
    """Of the other packages, every 50th line is a point."""
    watched, others = importlib.import_module("watched"), importlib.import_module("others")
    assert Lines([modules / "watched"]).watch(watched.action) == 3
    # each round is two lines, the loop's and its body's, and the loop ends with one
    action = 10 * EVERY
    assert Lines([modules / "watched"]).watch(lambda: others.action(action)) == 2 * 10
    assert Lines([modules / "others"]).watch(lambda: others.action(action)) == 2 * action + 1
    assert sys.gettrace() is None or "killing" not in repr(sys.gettrace())


_ZYGOTE = """
import watched
from pathlib import Path
from proving.killing.lines import Lines
from proving.killing.zygote import Zygote

def carry(job, kill_at, tell):
    return Lines([Path(watched.__file__).parent], kill_at, tell).watch(getattr(watched, job))

zygote = Zygote(carry, begin=lambda: None)
print(*[zygote.do("action", kill_at=number) for number in (1, 2, 3, 4)], zygote.do("missing").fault.splitlines()[-1], sep="\\n")
zygote.end()
"""


def test_child_dies_by_sigkill_zygote_survives(modules: Path) -> None:
    """The child is killed at exactly the line that was chosen."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(modules), str(Path(__file__).parents[3])]),
    }
    command = [sys.executable, "-c", _ZYGOTE]
    ran = subprocess.run(
        command,
        cwd=modules,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = ran.stdout.splitlines()
    assert [line.split("'")[1] for line in told[:3]] == [
        f"watched/__init__.py:{number}" for number in (2, 3, 4)
    ]
    assert told[3] == "End(place='', points=3, fault='')"
    assert told[4].startswith("AttributeError")


_ENDS_ITSELF = """
import os, signal
from proving.killing.zygote import Zygote

def carry(job, kill_at, tell):
    if job == "exits":
        os._exit(3)
    if job == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return 1

zygote = Zygote(carry, begin=lambda: None)
print(*[zygote.do(job) for job in ("exits", "is killed", "ends")], sep="\\n")
zygote.end()
"""


def test_silent_child_exit_is_a_fault() -> None:
    """The run goes on after it."""
    ran = subprocess.run(
        [sys.executable, "-c", _ENDS_ITSELF],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout.splitlines() == [
        "End(place='', points=0, fault='it ended without a word, with exit code 3')",
        "End(place='', points=0, fault='it ended without a word, with exit code -9')",
        "End(place='', points=1, fault='')",
    ]


# The judge ----------------------------------------------------------------------------------------


def a_sound_payment(world: World) -> Payment:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "5.00")
    world.a_day_passes()
    judge(world, payment.order.key)
    return payment


def shop(payment: Payment) -> Any:
    return ShopOrder.objects.filter(pk=payment.order.key)


def paid_at_the_gateway_alone(world: World, _: Payment) -> None:
    with Gateway(find_account("default")) as gateway:
        address = "https://shop.example/"
        gateway.pay(
            PaymentRequest(
                reference=new_reference("S9"),
                currency="USD",
                amount="1.00",
                method="alipay",
                terminal="ONLINE",
                ipn_url=address,
                callback_url=address,
            ),
        )


def cut_off_before_the_outbox_event(_: World, payment: Payment) -> None:
    OutboxEvent.objects.filter(payment=payment, kind="payment-paid").update(done_at=None)


def put_right_by_nobody(world: World, payment: Payment) -> None:
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(payment.pk, "1.00")
    Review.objects.update(resolved_at=world.time.now())


BROKEN: dict[str, Callable[[World, Payment], object]] = {
    "knows nothing of": paid_at_the_gateway_alone,
    "being paid took effect 2 times": lambda _, payment: shop(payment).update(times_paid=2),
    "being paid took effect 0 times": lambda _, payment: shop(payment).update(
        times_paid=0,
        status="open",
    ),
    "the shop is never told": cut_off_before_the_outbox_event,
    "the shop is told 0 times": lambda _, payment: OutboxEvent.objects.filter(
        payment=payment,
        kind="payment-paid",
    ).delete(),
    "the timeline says 0 times": lambda _, payment: TimelineEntry.objects.filter(
        event="payment.paid",
    ).delete(),
    "Tillgate holds it to be pending": lambda _, payment: Payment.objects.filter(
        pk=payment.pk,
    ).update(status="pending"),
    "has the number of another": lambda _, payment: Payment.objects.filter(pk=payment.pk).update(
        transaction_no="1",
    ),
    "and USD 9.99 noted": lambda _, payment: Payment.objects.filter(pk=payment.pk).update(
        amount=Decimal("9.99"),
    ),
    "nobody paid": lambda world, payment: setattr(
        world.sandbox.service.find(payment.reference),
        "status",
        "failed",
    ),
    "is not paid by it": lambda _, payment: [
        Order.objects.filter(pk=payment.order_id).update(paid_by=None),
        shop(payment).update(times_paid=0, status="open"),
    ],
    "for ever": lambda _, payment: Refund.objects.filter(payment=payment).update(status="sending"),
    "the gateway refunded 2 times": lambda world, payment: world.sandbox.control.refund(
        payment.reference,
        "5.00",
    ),
    "500 cents are gone": lambda _, payment: Refund.objects.filter(payment=payment).update(
        status="failed",
    ),
    "and 0.00 as refunded": lambda _, payment: shop(payment).update(refunded=0),
    "should be told ['refund-unknown']": put_right_by_nobody,
}


@pytest.mark.parametrize("message", BROKEN)
def test_the_judge_says_which_promise_is_broken(world: World, message: str) -> None:
    payment = a_sound_payment(world)
    BROKEN[message](world, payment)
    with pytest.raises(AssertionError) as caught:
        judge(world, payment.order.key)
    assert message in str(caught.value)


def test_judge_requires_unpaid_order_to_expire(world: World) -> None:
    payment = world.start(world.order())
    with pytest.raises(AssertionError, match=r"is pending for ever"):
        judge(world, payment.order.key)
    world.a_day_passes()
    judge(world, payment.order.key)
    shop(payment).update(status="open")
    with pytest.raises(AssertionError, match=r"keeps it for ever"):
        judge(world, payment.order.key)


# The tool -----------------------------------------------------------------------------------------


def kill(
    tmp_path: Path,
    *arguments: str,
    driver: str = "tests.smallest_shop.driver:SmallestShopDriver",
    **environment: str,
) -> Any:
    name = f"{os.environ.get('TILLGATE_TEST_NAME', 'tillgate_tests')}_{os.getpid()}"
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "proving.killing",
            "--driver",
            driver,
            "--results",
            str(tmp_path / "results.jsonl"),
            *arguments,
        ],
        cwd=ROOT,
        check=False,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.django.project",
            "TILLGATE_TEST_NAME": name,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("action", "mutant", "message"),
    [
        (
            "start",
            "does not watch a payment until the gateway has answered",
            "is created for ever|holds it to be created",
        ),
        ("refund", "sends a refund again that was cut off", "the gateway refunded 2 times"),
    ],
)
def test_a_core_that_is_broken_is_found(
    tmp_path: Path,
    action: str,
    mutant: str,
    message: str,
) -> None:
    ran = kill(
        tmp_path,
        "--action",
        action,
        "--sample",
        "40",
        "--seed",
        "4",
        driver="tests.django.proofs.broken_core:BrokenDriver",
        MUTANT=mutant,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(message, ran.stdout), ran.stdout
    assert f"--action {action} --point" in ran.stdout


def test_broken_shop_is_reported_before_killing(
    tmp_path: Path,
) -> None:
    """A shop that breaks a promise without any kill is reported, and nothing is killed."""
    mutant = "says applied and does nothing"
    ran = kill(
        tmp_path,
        "--action",
        "deliver",
        "--sample",
        "3",
        driver="tests.django.proofs.broken_core:BrokenDriver",
        MUTANT=mutant,
    )
    assert ran.returncode == 1
    assert "deliver breaks a promise without any kill: " in ran.stderr
    assert ran.stderr.rstrip().endswith("make the shop pass the conformance kit first")
    assert "Traceback" not in ran.stderr


def test_repeated_run_resumes_where_it_stopped(tmp_path: Path) -> None:
    first, second = (
        kill(tmp_path, "--action", "deliver", "--sample", "3", "--seed", "7") for _ in range(2)
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stdout + first.stderr
    assert ": 3 kills in" in first.stdout
    assert ": 0 kills in" in second.stdout
    once_more = kill(tmp_path, "--action", "deliver", "--point", "5")
    assert re.search(
        r"^deliver, killed at tillgate/django/\S+:\d+, then \w+: held$",
        once_more.stdout,
        re.MULTILINE,
    ), once_more.stdout


def test_missed_kill_point_is_no_success(tmp_path: Path) -> None:
    """The action ended before it reached the point, and the output says so."""
    ran = kill(tmp_path, "--action", "deliver", "--point", "99999999")
    assert "deliver, over before point 99999999, and so not killed: give less, then " in ran.stdout
    assert ran.returncode == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--sample 0", "argument --sample: '0' is no count"),
        ("--point -1", "argument --point: '-1' is no count"),
        ("--package nosuch", "argument --package: there is no module nosuch"),
        ("--results .", "argument --results: '.' is a folder"),
        ("--driver nosuch:Driver", "argument --driver: there is no module nosuch"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, given: str, said: str) -> None:
    refused = kill(tmp_path, *given.split())
    assert refused.returncode == 2
    assert said in refused.stderr


def test_unknown_settings_or_database_kill_nothing(tmp_path: Path) -> None:
    assert (
        "name those of your tests in DJANGO_SETTINGS_MODULE"
        in kill(tmp_path, DJANGO_SETTINGS_MODULE="").stderr
    )
    assert (
        "TILLGATE_TEST_DATABASE: 'oracle' must be one of sqlite, "
        in kill(tmp_path, TILLGATE_TEST_DATABASE="oracle").stderr
    )


def test_in_memory_database_is_refused() -> None:
    """An in-memory database would die with the process."""
    with pytest.raises(ConfigurationError, match=r"is in memory.*give it a file"):
        _name(
            {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": "shop.sqlite3",
                "TEST": {"NAME": None},
            },
            "",
        )


def result(point: int, **changes: Any) -> Result:
    fields = {
        "database": "sqlite",
        "action": "start",
        "recovery": "pay",
        "place": "tillgate/x.py:1",
        "outcome": "held",
        "commit": "c",
    }
    return Result(**{**fields, "source": "s", "point": point, **changes})


def test_only_sound_current_results_are_known(tmp_path: Path) -> None:
    """Results of other source text and torn lines do not count."""
    file = tmp_path / "results.jsonl"
    results = Results(file, "s", "c")
    results.add([result(1), result(2, outcome="AssertionError: no"), result(3, source="older")])
    file.write_text(file.read_text() + '\n{"database": "sq')
    results.add([result(4, place="")])
    again = Results(file, "s", "c")
    assert [again.is_known("sqlite", "start", point) for point in (1, 2, 3, 4)] == [
        True,
        False,
        False,
        True,
    ]
    assert "| sqlite | start | 2 | 1 | 1 | 1 | 1 |" in table(again.all)
    assert f"every {EVERY}th" in section(again, ["tillgate"])
    assert table(again.all) in section(again, ["tillgate"])


def test_parts_cover_all_points_without_overlap() -> None:
    parts = [
        {point for point in range(1, 50) if Part(number, 3).has(point)} for number in (1, 2, 3)
    ]
    assert set.union(*parts) == set(range(1, 50))
    assert sum(map(len, parts)) == 49
