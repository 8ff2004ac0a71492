"""Which account a payment belongs to: from the settings or a plugin's own storage, and still the
one that made it.
"""

from __future__ import annotations

import logging
from typing import Final

from tillgate import hooks
from tillgate.account import Account
from tillgate.django.conf import get_settings
from tillgate.django.models import Payment
from tillgate.errors import ConfigurationError, TillgateError
from tillgate.wire.dialects import REFERENCE
from tillgate.wire.profile import GatewayProfile

_log = logging.getLogger("tillgate")

_PINNED: Final = ("merchant_no", "base_url", "sandbox")
"""The fields of its account that a payment keeps."""


def find_account(alias: str) -> Account:
    """Return the account of an alias; raise `ConfigurationError` for an unknown one."""
    account = get_settings().accounts.get(alias) or hooks.plugin_manager().hook.tillgate_account(
        alias=alias,
    )
    if isinstance(account, Account):
        return account
    raise ConfigurationError(
        "account",
        alias,
        "is not in TILLGATE['ACCOUNTS'], and no plugin keeps it",
    )


def account_of(payment: Payment) -> Account:
    """Return the account that made a payment; another merchant's answers about it would prove
    nothing (I1).
    """
    if payment.known_account is not None:
        return payment.known_account
    account = find_account(payment.account)
    for name in _PINNED:
        value = getattr(payment, name)
        if getattr(account, name) != value:
            remedy = (
                f"was {value!r} when payments that are still watched were made: configure "
                f"the old account again under {payment.account!r}"
            )
            raise ConfigurationError(name, getattr(account, name), remedy)
    return account


def is_made_by(payment: Payment, account: Account | None) -> bool:
    """Tell whether an account is the one that made a payment, and so can be asked about it."""
    return account is not None and all(
        getattr(account, name) == getattr(payment, name) for name in _PINNED
    )


def account_if_known(alias: str) -> Account | None:
    """Return the account that has an alias now; None when it is unknown, or the plugin that keeps
    it fails.
    """
    try:
        return find_account(alias)
    except TillgateError:
        return None
    except Exception:  # a plugin may raise anything
        _log.exception("the account %s could not be found", alias)
        return None


def known_account_of(payment: Payment) -> Account | None:
    """Return the account that made a payment; None when it cannot be found just now, or its alias
    is another merchant's by now.
    """
    account = account_if_known(payment.account)
    return account if is_made_by(payment, account) else None


def dialect_of(payment: Payment) -> GatewayProfile:
    """Return the profile of a payment's gateway; the reference's, when its account is gone."""
    account = payment.known_account or account_if_known(payment.account)
    return account.dialect if account else REFERENCE
