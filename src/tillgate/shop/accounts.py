"""Accounts: found by their names, and checked with a query that moves no money."""

from __future__ import annotations

from tillgate import account_checks
from tillgate.account import Account
from tillgate.configuration import Configured
from tillgate.django.accounts import find_account
from tillgate.hooks import Finding

__all__ = ["check_account", "find_account"]


def check_account(account: Account, *, seconds: float) -> Finding:
    """Ask the gateway of an account whether it knows it, and return the finding. Uses the network,
    for `seconds` at most.
    """
    source = dict.fromkeys(("base_url", "merchant_no", "token"), "TILLGATE['ACCOUNTS']")
    found = account_checks.examine(
        Configured(account=account, sources=source),
        deadline_seconds=seconds,
        attempts=1,
    )
    return next((one for one in found if not one.passed), found[-1])
