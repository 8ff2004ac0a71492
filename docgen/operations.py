"""The reference of the operations and tickets, from their signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docgen.parts import ROOT, entry, replaced
from tillgate.django import operations, tickets

__all__ = ["GROUPS", "pages"]

PAGE: Final = ROOT / "docs" / "reference" / "operations.md"
GROUPS: Final[dict[str, tuple[Any, ...]]] = {
    "Where the shop writes its order": (operations.open_order, operations.close_order),
    "Where the shopper goes": (tickets.pay_url, tickets.start_url, operations.start_payment),
    "Giving back": (operations.queue_refund, operations.refund, operations.send_refund),
    "In a hook of the plugin": (operations.enqueue_remote,),
    "What has come in": (
        *(operations.reconcile, operations.receive_payment_notification, operations.receive_refund_notification, operations.receive_return),
        *(operations.deliver, operations.deliver_due),
    ),
    "What needs review": (operations.actions_for, operations.to_withdraw, operations.take_action, operations.poll_now, operations.resolve),
    "Everything that is due, and whether it is right": (operations.run_worker, operations.audit),
}
_TARGETS: Final = {
    "InvalidRequest": "errors.md#invalidrequest",
    "ConfigurationError": "errors.md#configurationerror",
    "tillgate_describe_order": "hooks.md#tillgate_describe_order",
    "tillgate_deliver": "hooks.md#tillgate_deliver",
    "POLL_CONNECTIONS": "settings.md",
}


def pages() -> dict[Path, str]:
    """Return the page as it should be."""
    return {PAGE: replaced(PAGE.read_text("utf-8"), "operations", "make reference", "\n".join(_lines()))}


def _lines() -> Iterator[str]:
    targets = _TARGETS | {one.__name__: f"#{one.__name__}" for functions in GROUPS.values() for one in functions}
    for group, functions in GROUPS.items():
        yield from (f"## {group}", "")
        for function in functions:
            yield from entry(function.__name__, _signature(function), inspect.getdoc(function) or "", targets)


def _signature(function: Any) -> str:
    """Return a signature as its source has it."""
    head, *_ = inspect.getsource(function).partition('"""')
    return head.strip().removeprefix("def ").removesuffix(":")
