"""`manage.py tillgate_saleor`: lists installations of the App, ends or moves one, and re-encrypts
their tokens.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError
from django.utils.timezone import is_aware, localtime

from tillgate import ConfigurationError
from tillgate_saleor.api import SaleorError
from tillgate_saleor.installing import OriginNotAllowed, move, rotate, uninstall
from tillgate_saleor.models import Installation


class Command(BaseCommand):
    """The command."""

    help = (
        "Saleors that have installed the App: list them, forget or move one, or encrypt their "
        "tokens with the newest key."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands."""
        commands = parser.add_subparsers(dest="subcommand", required=True)
        commands.add_parser("installations", help="list the Saleors that have installed the App")
        forget = commands.add_parser("uninstall", help="forget the token and the keys of a Saleor")
        forget.add_argument("api_url", help="the address of its API, as `installations` has it")
        moved = commands.add_parser("move", help="go on with a Saleor whose domain has changed")
        moved.add_argument(
            "api_url",
            help="the address of its API until now, as `installations` has it",
        )
        moved.add_argument("new_api_url", help="its address from now on")
        commands.add_parser("rotate", help="encrypt every token with the newest key")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the chosen subcommand."""
        try:
            actions = {
                "installations": self._list,
                "uninstall": self._uninstall,
                "move": self._move,
                "rotate": self._rotate,
            }
            actions[options["subcommand"]](options)
        except (ConfigurationError, OriginNotAllowed, SaleorError) as error:
            raise CommandError(str(error)) from None

    def _list(self, _: dict[str, Any]) -> None:
        for installation in Installation.objects.order_by("api_url"):
            end = installation.uninstalled_at
            since = (
                f"uninstalled {_minute(end)}"
                if end
                else f"since {_minute(installation.installed_at)}"
            )
            self.stdout.write(f"{installation.api_url} as {installation.app_id}, {since}")

    def _uninstall(self, options: dict[str, Any]) -> None:
        installation = self._named(options["api_url"])
        uninstall(installation)
        self.stdout.write(f"{installation.api_url} is forgotten; uninstall the App there too")

    def _move(self, options: dict[str, Any]) -> None:
        installation, there = self._named(options["api_url"]), options["new_api_url"]
        if not installation.token:
            raise CommandError(
                f"{installation.api_url} has uninstalled the App: install it at {there}",
            )
        try:
            move(installation, there)
        except IntegrityError:
            raise CommandError(
                f"{there} has installed the App already: what {installation.api_url} has sold "
                "stays with that",
            ) from None
        self.stdout.write(f"{options['api_url']} is {installation.api_url} from now on")

    def _named(self, api_url: str) -> Installation:
        installation = Installation.objects.filter(api_url=api_url).first()
        if installation is None:
            raise CommandError(
                f"{api_url} has not installed the App: see `tillgate_saleor installations`",
            )
        return installation

    def _rotate(self, _: dict[str, Any]) -> None:
        self.stdout.write(f"{rotate()} encrypted with the newest key")


def _minute(moment: datetime) -> str:
    return f"{localtime(moment) if is_aware(moment) else moment:%Y-%m-%d %H:%M}"
