"""The document argues each mutant that survives, or the run says so."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import tillgate
from proving.mutation import __main__ as mutation
from proving.mutation.survivors import DOCUMENT, Survivor, argued, described
from tools.docgen import reliability

SOURCE = Path(tillgate.__file__).parent
DIFFERENCE = """--- src/tillgate/lifecycle.py
+++ src/tillgate/lifecycle.py
@@ -1,3 +1,3 @@
 def decide(facts: PaymentFacts, answer: Answer) -> Decision:
-    return {was}
+    return {becomes}
"""
LOOSE = Survivor("lifecycle.decide", "return a >= b", "return a > b")


def tried(name: str, survivor: Survivor | None = None, **counts: int) -> mutation.Module:
    return mutation.Module(
        name,
        Counter({"killed": 95, **counts}),
        [("its name", survivor)] if survivor else [],
    )


def test_mutant_is_known_by_its_change() -> None:
    """A mutant is named by its function and change, not by its number."""
    diff = DIFFERENCE.format(was="a >= b", becomes="a > b")
    assert (
        described("tillgate.lifecycle.x_decide__mutmut_7", diff)
        == described("tillgate.lifecycle.x_decide__mutmut_8", diff)
        == LOOSE
    )
    private = described("tillgate.django.worker.run.xǁWorkDoneǁnote__mutmut_1", diff)
    assert private.function == "django.worker.run.WorkDone.note"
    assert described("tillgate.lifecycle.x__to__mutmut_1", diff).function == "lifecycle._to"


@pytest.mark.parametrize(
    "survivor",
    [LOOSE, Survivor("a.b", "said,", ""), Survivor("a.B.c", "x = `y`", "x = None")],
)
def test_document_is_read_as_printed(survivor: Survivor) -> None:
    assert list(argued(f"## Equivalent\n\nIt changes nothing.\n\n{survivor}\n")) == [survivor]


def test_document_names_modules_that_exist() -> None:
    modules = {
        ".".join(path.with_suffix("").relative_to(SOURCE).parts) for path in SOURCE.rglob("*.py")
    }
    listed = [survivor.function for survivor in argued(DOCUMENT.read_text("utf-8"))]
    assert listed
    assert [name for name in listed if not modules & set(_beginnings(name))] == []


def _beginnings(name: str) -> list[str]:
    """Return `a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def test_document_lists_each_survivor_once() -> None:
    """Each survivor stands under an argument."""
    sections = DOCUMENT.read_text("utf-8").split("\n## ")[1:]
    listed = [survivor for section in sections for survivor in argued(section)]
    assert len(listed) == len(set(listed))
    for section in sections:
        assert section.splitlines()[2:3] != [""], "a heading is followed by its argument"
        items = [line for line in section.splitlines() if line.startswith("- ")]
        assert len(items) == len(list(argued(section))), "each item is written as the run prints it"


def test_unargued_survivor_fails_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run prints the survivor as an item for the document."""
    modules = [tried("tillgate.lifecycle", LOOSE, survived=1)]
    assert mutation._judge(modules, "# Survivors\n") == 1
    said = capsys.readouterr().out
    assert str(LOOSE) in said
    assert mutation._judge(modules, said) == 0


def test_outdated_argument_fails_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run fails if the document argues for a mutant that no longer survives."""
    assert mutation._judge([tried("tillgate.wire.signing")], str(LOOSE)) == 0, (
        "the lifecycle was not tried"
    )
    assert mutation._judge([tried("tillgate.lifecycle")], str(LOOSE)) == 1
    assert "argued and do not survive" in capsys.readouterr().out


def test_too_many_survivors_fail_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert mutation._judge([tried("tillgate.lifecycle", LOOSE, survived=5)], str(LOOSE)) == 0
    assert mutation._judge([tried("tillgate.lifecycle", LOOSE, survived=6)], str(LOOSE)) == 1
    assert "Less than 95%: tillgate.lifecycle" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("heading", "score"),
    [("Equivalent: the same", 95 / 99), ("Harmless", 0.95)],
)
def test_equivalent_mutant_does_not_count(
    heading: str,
    score: float,
) -> None:
    """A mutant that behaves like the code cannot be noticed."""
    document = (
        f"# Survivors\n\n## {heading}\n\nBecause.\n\n{LOOSE}\n\n## Harmless, too\n\nBecause.\n"
    )
    assert tried("tillgate.lifecycle", LOOSE, survived=5).score(document) == pytest.approx(score)


def test_run_notes_commit_and_versions(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # mutmut has an environment of its own
    monkeypatch.setattr(mutation, "version", lambda name: f"{name}'s version")
    file = tmp_path / "proofs" / "mutation.jsonl"
    mutation._note(
        file,
        [tried("tillgate.lifecycle", LOOSE, survived=4, timeout=1)],
        f"\n## Equivalent\n\n{LOOSE}",
    )
    [line] = map(json.loads, file.read_text("utf-8").splitlines())
    assert (line["module"], line["mutmut"]) == ("tillgate.lifecycle", "mutmut's version")
    assert (
        line["mutants"],
        line["killed"],
        line["timeouts"],
        line["survived"],
        line["equivalent"],
    ) == (100, 95, 1, 1, 1)
    assert {"commit", "python", "django"} <= set(line)


def test_module_score_is_from_last_run() -> None:
    about = {
        "commit": "aaa",
        "python": "3.11.7",
        "django": "5.2",
        "mutmut": "3.8.1",
        "module": "tillgate.lifecycle",
    }
    lines = [
        {
            **about,
            "mutants": 100,
            "killed": killed,
            "timeouts": 1,
            "survived": 99 - killed,
            "equivalent": 2,
        }
        for killed in (90, 95)
    ]
    [entry] = reliability.folded("mutation", lines).values()
    assert (entry["count"], entry["killed"], entry["score"]) == (100, 95, "98.0%")
