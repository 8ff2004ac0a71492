"""The shoppers of several orders, as the shops' plugins tell them; none is stored."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping

from django.db import transaction

from tillgate import hooks
from tillgate.django.models import database

_log = logging.getLogger("tillgate")


def customers_of(orders: Iterable[tuple[str, str]]) -> dict[tuple[str, str], hooks.Customer]:
    """Return the shoppers of orders, each given and found by its plugin and key. An order without
    one is left out, and so are those of a shop that fails.
    """
    keys = defaultdict[str, dict[str, None]](dict)
    for plugin, key in orders:
        keys[plugin][key] = None
    return {
        (plugin, key): customer
        for plugin, of_plugin in keys.items()
        for key, customer in _asked(plugin, list(of_plugin)).items()
        if isinstance(customer, hooks.Customer)
    }


def _asked(plugin: str, keys: list[str]) -> Mapping[str, hooks.Customer]:
    try:
        with transaction.atomic(using=database()):
            return hooks.call_owner(plugin, "tillgate_customers", order_keys=keys) or {}
    except Exception:  # the shop's own code may raise anything
        _log.exception("plugin %s could not tell the shoppers of its orders", plugin)
        return {}
