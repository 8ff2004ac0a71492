"""The reference of the operations and tickets, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docgen.parts import ROOT, replaced
from tillgate.django import operations, tickets

__all__ = ["GROUPS", "pages"]

PAGE: Final = ROOT / "docs" / "reference" / "operations.md"
GROUPS: Final[dict[str, tuple[Any, ...]]] = {
    "Where the shop writes its order": (operations.expect, operations.close),
    "Where the shopper goes": (tickets.pay_url, tickets.start_url, operations.start),
    "Giving back": (operations.queue_refund, operations.refund, operations.send_refund),
    "In a hook of the plugin": (operations.enqueue_remote,),
    "What has come in": (
        *(operations.reconcile, operations.receive_payment_notice, operations.receive_refund_notice, operations.receive_return),
        *(operations.deliver, operations.deliver_due),
    ),
    "What needs a person": (operations.acts_for, operations.perform, operations.look_again, operations.resolve),
    "Everything that is due, and whether it is right": (operations.sweep, operations.audit),
}
_TARGETS: Final = {
    "InvalidRequest": "errors.md#invalidrequest",
    "ConfigurationError": "errors.md#configurationerror",
    "tillgate_describe_order": "hooks.md#tillgate_describe_order",
    "tillgate_deliver": "hooks.md#tillgate_deliver",
    "SWEEP_CONNECTIONS": "settings.md",
}


def pages() -> dict[Path, str]:
    """Return the page as it should be."""
    return {PAGE: replaced(PAGE.read_text("utf-8"), "operations", "make reference", "\n".join(_lines()))}


def _lines() -> Iterator[str]:
    for group, functions in GROUPS.items():
        yield from (f"## {group}", "")
        for function in functions:
            yield from _entry(function)


def _entry(function: Any) -> Iterator[str]:
    yield from (f"### {function.__name__}", "", "```text", _signature(function), "```", "")
    for paragraph in (inspect.getdoc(function) or "").split("\n\n"):
        yield from (textwrap.fill(_linked(paragraph), width=140, break_long_words=False, break_on_hyphens=False), "")


def _signature(function: Any) -> str:
    """Return a signature as its source has it."""
    head, *_ = inspect.getsource(function).partition('"""')
    return head.strip().removeprefix("def ").removesuffix(":")


def _linked(text: str) -> str:
    targets = _TARGETS | {one.__name__: f"#{one.__name__}" for functions in GROUPS.values() for one in functions}
    return re.sub(r"`(\w+)`", lambda found: f"[{found[0]}]({targets[found[1]]})" if found[1] in targets else found[0], text)
