"""Signatures, tokens and keys are never compared in a time that tells how far they agree: shown
from the source, since a clock guesses.
"""

from __future__ import annotations

import ast
import hmac
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import TOKEN
from tillgate.sandbox import signing as emulated
from tillgate.wire import signing

SOURCES = [
    path
    for path in sorted((Path(__file__).parents[1] / "src" / "tillgate").rglob("*.py"))
    if "testing" not in path.parts
]
SECRET = re.compile(
    r"signature|claimed|verify_?sign|digest|token|secret|notification_key|return_key",
    re.IGNORECASE,
)
FREE = re.compile(
    r"^(SIGNATURE|signing\.SIGNATURE|FIELD|notification_signature|answer_signature|NotificationSignature\.\w+|ReviewReason\.\w+)$",
)


def comparisons(source: str) -> Iterator[tuple[int, str]]:
    """Yield every == and != with one side named like a secret, and the other no constant."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(
            isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops
        ):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Constant) for side in sides):
                continue
            names = [ast.unparse(side) for side in sides]
            if any(SECRET.search(name) and not FREE.match(name) for name in names):
                yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path).partition("tillgate/")[2])
def test_secrets_are_never_compared_with_equals(path: Path) -> None:
    found = list(comparisons(path.read_text("utf-8")))
    assert found == [], f"use hmac.compare_digest, or say in FREE why it is no secret: {found}"


def test_the_search_finds_what_it_seeks() -> None:
    assert list(comparisons("if claimed == made: pass")) == [(1, "claimed == made")]
    assert list(comparisons("a = signature != other")) == [(1, "signature != other")]
    assert list(comparisons("a = signature == ''\nb = name == SIGNATURE\nc = x == y")) == []


@pytest.mark.parametrize("claimed", ["", "0", "0" * 32, "x" * 5_000, "right"])
def test_both_sides_compare_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
    claimed: str,
) -> None:
    """The other party's claim makes no difference."""
    parameters = {"amount": "1.00", "note": ""}
    given = signing.sign(parameters, TOKEN) if claimed == "right" else claimed
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def comparing(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", comparing)
    assert signing.verify(parameters, TOKEN, given) is (claimed == "right")
    assert len(compared) == (3 if given else 0), "all readings are compared, whichever is right"
    compared.clear()
    emulated.matches({**parameters, "verifySign": given}, TOKEN)
    assert compared


def test_address_is_found_by_whole_key() -> None:
    """A database's index reveals nothing useful of 192 random bits; only a prefix or a pattern
    could.
    """
    views = (Path(__file__).parents[1] / "src/tillgate/django/payments/notifications.py").read_text(
        "utf-8",
    )
    assert not re.search(
        r"(notification_key|return_key)__(startswith|istartswith|contains|icontains|iexact|regex|gt|lt)",
        views,
    )
