"""Payment pages that should take no payment any more: the worker lets their gateways close them."""

from __future__ import annotations

from django.utils import timezone

from tillgate import hooks
from tillgate.django.accounts import account_if_known
from tillgate.django.conf import get_settings
from tillgate.django.models import Order, Payment
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES

_CLOSE = "tillgate_close"


def want_closed(order: Order, *, but: Payment | None = None) -> None:
    """Let the worker close the pages of an order's open payments, but for one, in the running
    transaction. Money that is on its way is left alone.
    """
    unwanted = order.payments.filter(
        status__in=OPEN_PAYMENT_STATUSES,
        is_processing=False,
        close_wanted_at=None,
        page_closed_at=None,
    )
    aliases = {*get_settings().accounts, *([but.account] if but else [])}
    if but is None and hooks.plugin_manager().hook.tillgate_close.get_hookimpls():
        aliases.update(unwanted.values_list("account", flat=True))
    # Most gateways close nothing, and cost no statement.
    if closable := list(filter(_can_close, aliases)):
        now = timezone.now()
        others = unwanted.exclude(pk=but.pk) if but else unwanted
        others.filter(account__in=closable).update(close_wanted_at=now, next_poll_at=now)


def _can_close(alias: str) -> bool:
    account = get_settings().accounts.get(alias) or account_if_known(alias)
    return account is not None and hooks.implements(account.dialect.plugin, _CLOSE)
