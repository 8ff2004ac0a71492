"""The sandbox in each preset of the dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.testing.sandbox_driver import SandboxDriver
from tillgate.wire.dialects import DIALECTS


class Reference(SandboxDriver):
    accounts: ClassVar[Sequence[Mapping[str, Any]]] = ({"dialect": "reference"},)


class Examples(SandboxDriver):
    accounts: ClassVar[Sequence[Mapping[str, Any]]] = ({"dialect": "examples"},)


class V3(SandboxDriver):
    accounts: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"dialect": "v3", "store_no": PUBLISHED_STORE_NO},
    )
    options: ClassVar[Mapping[str, Any]] = {
        "currencies": DIALECTS["v3"].currencies,
        "refund_info": "status",
    }
