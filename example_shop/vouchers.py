"""The vouchers of the sandbox, for play: the interface has none, so a wrapper reads the two fields
that the sandbox adds to its answers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime

from tillgate import Transaction
from tillgate.gateways import NextStep
from tillgate.hooks import hookimpl


@hookimpl(wrapper=True)
def tillgate_query() -> Generator[None, Transaction, Transaction]:
    """Add the voucher that the shopper still has to pay."""
    found = yield
    url, until = found.raw.get("voucherUrl"), str(found.raw.get("voucherUntil", ""))
    if not url or not until.isdecimal():
        return found
    return replace(
        found,
        next_step=NextStep(url=str(url), until=datetime.fromtimestamp(int(until), UTC)),
    )
