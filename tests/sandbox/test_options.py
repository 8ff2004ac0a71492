"""A switch that does not exist, or cannot have a value, is an error that says so."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tillgate.sandbox import PUBLISHED_TEST_TOKEN, Options, UnknownOption, WrongOption


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("query_amout", "query_amount"),
        ("lost_respons", "lost_response"),
        ("zzzz", ""),
        ("pay.delaj", "delay"),
    ],
)
def test_unknown_option_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownOption, match=f"'{near}'" if near else "no option or fault 'zzzz'$"):
        Options.read({name: "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query_amount", "float"),
        ("query_amount", 1),
        ("prefixes", "v2"),
        ("refusal_http_status", 500),
        ("refusal_http_status", "often"),
        ("delay_seconds", -1),
        ("delay_seconds", "Infinity"),
        ("magic_amounts", "maybe"),
        ("rate_limit_per_second", True),
        ("notification_schedule_seconds", []),
        ("notification_schedule_seconds", [5, 1]),
        ("minimum_amount", "1e3"),
        ("maximum_amount", "much"),
        ("reference_pattern", "("),
        ("merchants", {}),
        ("merchants", {"200043": ""}),
        ("seed", "abc"),
        ("lost_response", 1.5),
        ("lost_response", "often"),
        ("lost_response", "nan"),
        ("refund.denied", 0.5),
        ("faults", {"denied": 2}),
        ("faults", {"denied": "0.5"}),
        ("faults", '{"denied": null}'),
        ("faults", [1]),
        ("merchants", {"200043": 5}),
        ("merchants", '{"200043": 5}'),
        ("notification_schedule_seconds", ["a", "b"]),
        ("notification_schedule_seconds", [0, "b"]),
        ("notification_schedule_seconds", "[0, NaN]"),
        ("macros", [1]),
        ("notification_hosts", [1]),
        ("delay_seconds", 10**400),
        ("refusal_http_status", 299),
        ("refusal_http_status", 204),
        ("public_url", "localhost:8181"),
        ("public_url", "ftp://pay.example"),
        ("public_url", "https://"),
        ("public_url", "https://[::1"),
        ("public_url", "https://pay.example?shop=1"),
    ],
)
def test_impossible_switch_value_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(WrongOption):
        Options.read({name: value})


@pytest.mark.parametrize(
    "given",
    [
        "200043=a-secret",
        ["200043", "a-secret"],
        {"200043": ["a-secret"]},
        '{"200043": ["a-secret"]}',
    ],
)
def test_no_token_is_in_an_error(given: Any) -> None:
    with pytest.raises(WrongOption, match="merchantNo") as told:
        Options.read({"merchants": given})
    assert "a-secret" not in str(told.value)


def test_text_is_read_by_switch_type() -> None:
    options = Options.read(
        {
            "seed": "42",
            "delay_seconds": "2",
            "magic_amounts": "off",
            "notification_schedule_seconds": "[0, 1.5]",
            "macros": ["amount"],
            "word_refunded": "refunded",
            "lost_response": "0.25",
            "query.server_error": 1,
        },
    )
    assert (options.seed, options.delay_seconds, options.magic_amounts, options.word_refunded) == (
        42,
        2.0,
        False,
        "refunded",
    )
    assert (options.notification_schedule_seconds, options.macros) == ((0, 1.5), ("amount",))
    assert dict(options.faults) == {"lost_response": 0.25, "query.server_error": 1.0}


@pytest.mark.parametrize(
    "given",
    [
        {"late_seconds": 10**10},
        {"late_seconds": 1e308},
        {"journal_entries": 10**30},
        {"notification_schedule_seconds": [0, 10**400]},
    ],
    ids=str,
)
def test_what_nobody_can_reckon_with_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(WrongOption, match="1,000,000,000"):
        Options.read(given)


def test_changes_start_from_given_options() -> None:
    base = Options(seed=3, query_amount="text", faults={"delay": 0.5})
    changed = Options.read({"cut": 0.5}, base)
    assert (changed.seed, changed.query_amount, dict(changed.faults)) == (
        3,
        "text",
        {"delay": 0.5, "cut": 0.5},
    )


def test_options_cannot_be_changed_in_place() -> None:
    options = Options()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        options.faults["delay"] = 1  # type: ignore[index]


def test_no_token_is_in_the_repr() -> None:
    assert PUBLISHED_TEST_TOKEN not in repr(Options())
