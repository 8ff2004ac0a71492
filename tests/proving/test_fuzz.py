"""The fuzzer: its targets by hypothesis, which shrinks its findings; that it bites; and that a run
can be repeated and continued.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import pytest
from django.http import HttpResponse
from django.test import override_settings
from django.utils import timezone
from hypothesis import strategies as st

from proving.fuzz import results, settings
from proving.fuzz.inputs import FromBytes
from proving.fuzz.readers import readers
from proving.fuzz.results import Results
from proving.fuzz.rounds import Fuzzer
from proving.fuzz.shop import opened
from proving.fuzz.targets import ROUND, Target
from proving.fuzz.views import Views, views
from tillgate.django.pages import gateways, owner
from tillgate.django.payments import notifications, reconciling
from tillgate.wire import exchange, signing
from tillgate.wire.notifications import NotificationSignature

pytestmark = pytest.mark.provers

READERS = list(readers())
EXAMPLES = hypothesis.settings(
    max_examples=40,
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.fixture
def shop(transactional_db: None) -> Iterator[Views]:
    """The shop of the fuzzer, in the database of the tests."""
    with (
        override_settings(ALLOWED_HOSTS=settings.ALLOWED_HOSTS, TILLGATE=settings.TILLGATE),
        opened() as built,
    ):
        yield Views(built)


def by_hypothesis(target: Target, examples: hypothesis.settings = EXAMPLES) -> None:
    @examples
    @hypothesis.given(st.randoms(use_true_random=False))
    def holds(r: Random) -> None:
        drawn = target.draw(r)
        hypothesis.note(repr(drawn))
        target.check(drawn)

    holds()


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
def test_readers_believe_only_what_is_proven(target: Target) -> None:
    """This holds for all input from outside."""
    by_hypothesis(target)


def test_i7_outside_input_alone_changes_nothing(
    shop: Views,
) -> None:
    """It causes no error either."""
    for target in views(shop):
        by_hypothesis(target)
        shop.restore()


def test_seed_repeats_same_thousand_inputs(shop: Views) -> None:
    targets = [*READERS, *views(shop)]
    assert sum(target.weight for target in targets) == ROUND
    drawn = [
        repr(
            [
                target.draw(Random(f"1/{target.name}/{number}"))
                for target in targets
                for number in range(5)
            ],
        )
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


def test_fuzzer_bytes_never_run_out() -> None:
    """The same bytes always draw the same input."""
    data = Random(1).randbytes(400)
    for target in READERS:
        assert repr(target.draw(FromBytes(data))) == repr(target.draw(FromBytes(data)))
        target.check(target.draw(FromBytes(b"")))
    assert [FromBytes(b"\x07").randrange(8), FromBytes(b"").randrange(8)] == [7, 0]


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        (1248, "refund notifications"),
        (2598, "refund notifications"),
        (1286, "returns"),
        (2910, "answers to pay, applied"),
    ],
)
def test_formerly_accusing_seed_finds_nothing(
    shop: Views,
    seed: int,
    name: str,
) -> None:
    """It once reported a fault that the shop did not have."""
    [target] = [target for target in views(shop) if target.name == name]
    assert Fuzzer([target], shop.restore).run(seed).faults == []


# It bites: a fault that is put in is found by the round that would have to find it ----------------


def found(fuzzer: Fuzzer, only: str, rounds: int = 6) -> list[str]:
    """Return the findings of some rounds of one target, as the last line of each report."""
    faults = (fault for seed in range(1, rounds + 1) for fault in fuzzer.run(seed, only).faults)
    return [fault.report.strip().splitlines()[-1] for fault in faults]


BITES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = {
    "a signature that is not checked": (
        "answers to query, read",
        lambda patch: patch.setattr(signing, "verify", lambda *_: True),
        "a wrong signature or none",
    ),
    "an answer about another payment": (
        "answers to query, read",
        lambda patch: patch.setattr(
            exchange,
            "_text",
            lambda result, name, *_: (
                str(result.get(name)) if name != "reference" else "100017-7Q2MZK4RXW3DA"
            ),
        ),
        "news of another payment",
    ),
    "a success under any status": (
        "answers to refund, read",
        lambda patch: patch.setattr(
            exchange,
            "_succeeded",
            lambda credentials, envelope, _: envelope.ret_code == "000100",
        ),
        "a success under another status",
    ),
}


@pytest.mark.parametrize("fault", BITES)
def test_planted_reader_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    target, put_in, said = BITES[fault]
    fuzzer = Fuzzer(READERS)
    assert found(fuzzer, target, 1) == []
    put_in(monkeypatch)
    assert said in "\n".join(found(fuzzer, target))


BITES_IN_THE_SHOP: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = {
    "a notification that is believed": (
        "payment notifications",
        lambda patch: patch.setattr(notifications, "ask", _believing),
        "I7: something from outside changed",
    ),
    "an acknowledgement that is withheld": (
        "payment notifications",
        lambda patch: patch.setattr(
            gateways,
            "acknowledgement",
            lambda payment: HttpResponse("no", status=400),
        ),
        "a notification on a known address was answered 400",
    ),
    "a throttle that is not kept": (
        "payment notifications",
        lambda patch: _unthrottled(patch, reconciling._claim),
        "was asked about again after",
    ),
    "an open redirect": (
        "returns",
        lambda patch: patch.setattr(owner, "home", lambda payment: "https://evil.example/"),
        "an open redirect",
    ),
}


def _unthrottled(patch: pytest.MonkeyPatch, claim: Callable[..., Any]) -> None:
    patch.setattr(
        reconciling,
        "_claim",
        lambda *claimed, **chosen: (claim(*claimed, **chosen)[0], True),
    )


def _believing(payment: Any, **_: Any) -> Any:
    from datetime import timedelta

    from tillgate import Transaction, TransactionStatus
    from tillgate.lifecycle import Found

    told = Transaction(
        reference=payment.reference,
        status=TransactionStatus.PAID,
        status_text="success",
        transaction_no=payment.transaction_no,
        amount=payment.amount,
        currency="USD",
        settle_currency="USD",
        raw={},
    )
    return Found(transaction=told, asked_at=timezone.now() + timedelta(seconds=1))


@pytest.mark.parametrize("fault", BITES_IN_THE_SHOP)
def test_planted_page_fault_is_found(
    shop: Views,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    target, put_in, said = BITES_IN_THE_SHOP[fault]
    fuzzer = Fuzzer(list(views(shop)), shop.restore)
    put_in(monkeypatch)
    assert said in "\n".join(found(fuzzer, target, 2))


def test_forged_refund_settlement_is_found(
    shop: Views,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signature is not checked; the documented shape is."""
    fuzzer = Fuzzer(list(views(shop)), shop.restore)
    monkeypatch.setattr(notifications, "signature_of", lambda *_: NotificationSignature.MATCHES)
    assert "I7: a notification that is not signed settled a refund" in "\n".join(
        found(fuzzer, "refund notifications", 6),
    )


# A run is repeated, and gone on with --------------------------------------------------------------


def test_finished_seeds_are_skipped_next_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finished seeds are noted with the commit."""
    monkeypatch.setattr(results, "source_commit", lambda _: "abc")
    file = tmp_path / "deep" / "fuzz.jsonl"
    Results(file, "sqlite").add([3, 1, 2, 7], {"x": Counter({"200": 4000})}, 0)
    assert json.loads(file.read_text())["seeds"] == [[1, 3], [7, 7]]
    assert Results(file, "sqlite").seeds() == {1, 2, 3, 7}
    assert Results(file, "postgresql").seeds() == set()
    monkeypatch.setattr(results, "source_commit", lambda _: "def")
    assert Results(file, "sqlite").seeds() == set()


def test_the_command_counts_notes_and_goes_on(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "proving.fuzz",
        "--inputs",
        "1000",
        "--processes",
        "1",
        "--results",
        str(tmp_path / "fuzz.jsonl"),
    ]
    environment = {**os.environ, "TILLGATE_TEST_DATABASE": "sqlite"}
    first, second = (
        subprocess.run(
            command,
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(2)
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert "1,000 inputs on sqlite, seeds 1 to 1" in first.stdout
    assert "payment notifications" in first.stdout
    assert "0 inputs on sqlite" in second.stdout
    assert "1,000 inputs noted" in second.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--inputs", "0"), "Invalid value for '--inputs': 0 is not in the range x>=1"),
        (
            ("--target", "nosuch"),
            "Invalid value for '--target': 'nosuch' is not one of 'answers to pay, read', ",
        ),
        (("--results", "."), "Invalid value for '--results': File '.' is a directory"),
    ],
)
def test_senseless_run_is_refused(given: tuple[str, str], said: str) -> None:
    command = [sys.executable, "-m", "proving.fuzz", *given]
    ran = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert said in ran.stderr
