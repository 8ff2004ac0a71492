"""Write everything that is stored about an order to the standard output as JSON. Changes nothing.

Addresses that grant access to their holder are left out: those of the notifications, of the return
and of the payment page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tillgate.django.management.terminal import require_tables, say
from tillgate.django.worker.retention import export_order


def add_arguments(parser: CommandParser) -> None:
    """Add the order's names."""
    parser.add_argument("plugin", help="the plugin that owns the order, such as oscar")
    parser.add_argument("order_key", help="the plugin's key of the order")


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print one object."""
    require_tables()
    say(command, json.dumps(export_order(options["plugin"], options["order_key"]), indent=2))
