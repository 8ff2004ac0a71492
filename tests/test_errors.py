"""The error tree."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
from typing import Any

import pytest

from tests.support import TOKEN, everything_shown
from tillgate import errors
from tillgate.errors import (
    AnswerNotUnderstood,
    ConfigurationError,
    GatewayError,
    InvalidRequest,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    SignatureMismatch,
    TillgateError,
)

EVERY_ERROR = [
    TillgateError("anything"),
    InvalidRequest("amount", 1.5, "is a float"),
    ConfigurationError("token", "***", "is empty"),
    GatewayError("anything"),
    NotSent("pay", "A-1", "ConnectError: refused"),
    OutcomeUnknown("refund", "A-1", "ReadTimeout", 502, False),
    OutcomeUnknown("refund", "A-1", "ReadTimeout"),
    AnswerNotUnderstood("its body is not JSON", 200),
    SignatureMismatch("its verifySign is wrong", 200),
    Refused("000030", "too much", 400),
    OrderNotFound("000022", "order not found", 400),
]


def drawn_tree() -> dict[str, str]:
    """Return each class of the module's drawing with the class that it hangs from."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in inspect.getdoc(errors).splitlines():  # type: ignore[union-attr]  # it has one
        found = re.match(r"^    ((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4 + ("──" in line)
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_error_tree_matches_its_docstring() -> None:
    public = {name: getattr(errors, name) for name in errors.__all__}

    def public_parent(kind: type) -> str:
        return next(
            parent.__name__ for parent in kind.__mro__[1:] if not parent.__name__.startswith("_")
        )

    assert drawn_tree() == {name: public_parent(kind) for name, kind in public.items()}


def test_public_errors_are_listed_and_documented() -> None:
    classes = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and not name.startswith("_")
    }
    assert classes == set(errors.__all__)
    assert all(
        issubclass(getattr(errors, name), TillgateError) and inspect.getdoc(getattr(errors, name))
        for name in errors.__all__
    )


def test_local_misuse_is_apart_from_remote_fault() -> None:
    assert not issubclass(InvalidRequest, GatewayError)
    assert not issubclass(ConfigurationError, GatewayError)


def test_unknown_outcome_is_never_repeatable() -> None:
    assert not issubclass(OutcomeUnknown, (NotSent, Refused, AnswerNotUnderstood))
    assert not any(
        issubclass(kind, OutcomeUnknown)
        for kind in (NotSent, Refused, AnswerNotUnderstood, SignatureMismatch)
    )


@pytest.mark.parametrize("error", EVERY_ERROR, ids=repr)
@pytest.mark.parametrize(
    "duplicate",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
)
def test_errors_survive_pickling(error: TillgateError, duplicate: Any) -> None:
    again = duplicate(error)
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert (str(again), again.args) == (str(error), error.args)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidRequest("amount", 1.5, "is a float"), "amount: 1.5 is a float"),
        (NotSent("pay", "A-1", "ConnectError"), "pay of A-1 was not sent: ConnectError"),
        (
            OutcomeUnknown("refund", "A-1", "ReadTimeout"),
            "the outcome of refund of A-1 is not known: ReadTimeout",
        ),
        (
            AnswerNotUnderstood("its body is not JSON"),
            "the gateway's answer was not understood: its body is not JSON",
        ),
        (
            Refused("000030", "too\nmuch", 400),
            r"the gateway refused: 000030 'too\nmuch' (HTTP 400)",
        ),
    ],
)
def test_error_describes_itself_in_one_line(error: TillgateError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000,
        pytest.param(10**5000, id="more digits than Python prints"),
        ["y" * 100] * 100,
        "\ud800",
        b"\xff" * 500,
    ],
)
def test_huge_or_odd_value_is_shortened(value: object) -> None:
    error = InvalidRequest("amount", value, "is not an amount")
    assert len(str(error)) < 150
    assert str(error).isprintable()
    assert error.value is value


def test_outcome_may_have_arrived_by_default() -> None:
    assert OutcomeUnknown("pay", "A-1", "ReadTimeout").may_have_arrived
    assert OutcomeUnknown("pay", "A-1", "ReadTimeout").http_status is None


def test_error_module_needs_no_other_module() -> None:
    imported = [
        line
        for line in inspect.getsource(errors).splitlines()
        if re.match(r"\s*(import|from) ", line)
    ]
    assert imported == ["from __future__ import annotations"]


def test_i11_secret_search_finds_every_hiding_place() -> None:
    hiding = {"token": TOKEN}
    for error in (
        InvalidRequest("token", TOKEN, "is not text"),
        OutcomeUnknown("pay", "A-1", TOKEN),
    ):
        assert TOKEN in everything_shown(error)
    with pytest.raises(TypeError) as caught:
        json.dumps([hiding, object()])
    assert TOKEN in everything_shown(caught.value), "in a local variable of a frame"
    outer = RuntimeError()
    outer.__context__ = caught.value
    assert TOKEN in everything_shown(outer), "in what was being handled"
