"""`manage.py tillgate_saleor`: which Saleors have installed the App, what ends an installation, and new keys for their tokens."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tillgate.django.clock import local
from tillgate.django.operations.locking import database
from tillgate.errors import ConfigurationError
from tillgate_saleor.installing import rotate, uninstall
from tillgate_saleor.models import Installation


class Command(BaseCommand):
    """The command."""

    help = "Saleors that have installed the App: list them, forget one, or encrypt their tokens with the newest key."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands."""
        commands = parser.add_subparsers(dest="subcommand", required=True)
        commands.add_parser("installations", help="list the Saleors that have installed the App")
        forget = commands.add_parser("uninstall", help="forget the token and the keys of a Saleor")
        forget.add_argument("api_url", help="the address of its API, as `installations` has it")
        commands.add_parser("rotate", help="encrypt every token with the newest key")

    def handle(self, *_: Any, **options: Any) -> None:
        """Do what was asked for."""
        try:
            {"installations": self._list, "uninstall": self._uninstall, "rotate": self._rotate}[options["subcommand"]](options)
        except ConfigurationError as error:
            raise CommandError(str(error)) from None

    def _list(self, _: dict[str, Any]) -> None:
        for installation in Installation.objects.using(database()).order_by("api_url"):
            end = installation.uninstalled_at
            since = f"uninstalled {local(end):%Y-%m-%d %H:%M}" if end else f"since {local(installation.installed_at):%Y-%m-%d %H:%M}"
            self.stdout.write(f"{installation.api_url} as {installation.app_id}, {since}")

    def _uninstall(self, options: dict[str, Any]) -> None:
        installation = Installation.objects.using(database()).filter(api_url=options["api_url"]).first()
        if installation is None:
            raise CommandError(f"{options['api_url']} has not installed the App: see `tillgate_saleor installations`")
        uninstall(installation)
        self.stdout.write(f"{installation.api_url} is forgotten; uninstall the App there too")

    def _rotate(self, _: dict[str, Any]) -> None:
        self.stdout.write(f"{rotate()} encrypted with the newest key")
