"""An emulator of the payment gateway: the endpoints of both versions, a payment page,
notifications, and every fault on demand.

It imports no other part of the package, and so judges the wire format independently. The server is
loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .answers import Answer
from .clock import Clock
from .contract import PUBLISHED_MERCHANT_NO, PUBLISHED_STORE_NO, PUBLISHED_TEST_TOKEN
from .errors import NotPossible, SandboxError, UnknownOption, UnknownTransaction, WrongOption
from .faults import FAULTS, MAGIC
from .notifications import NotificationAttempt
from .options import Options
from .service import Service
from .transactions import Refund, Transaction

if TYPE_CHECKING:
    from .app import create_app
    from .control import Control
    from .server import Sandbox, serve

__all__ = [
    "FAULTS",
    "MAGIC",
    "PUBLISHED_MERCHANT_NO",
    "PUBLISHED_STORE_NO",
    "PUBLISHED_TEST_TOKEN",
    "Answer",
    "Clock",
    "Control",
    "NotPossible",
    "NotificationAttempt",
    "Options",
    "Refund",
    "Sandbox",
    "SandboxError",
    "Service",
    "Transaction",
    "UnknownOption",
    "UnknownTransaction",
    "WrongOption",
    "create_app",
    "serve",
]


def __getattr__(name: str) -> Any:
    """Load the parts that need the server's dependencies on first use."""
    module = {
        "Sandbox": "server",
        "serve": "server",
        "create_app": "app",
        "Control": "control",
    }.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{module}", __name__), name)
