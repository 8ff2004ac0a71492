"""The command `tillgate-saleor`: the whole service with one command, and Django's own commands for it."""

from __future__ import annotations

import os
import sys
import threading

import click
import django
import uvicorn
from django.core.management import call_command, execute_from_command_line
from django.core.management.base import CommandError, SystemCheckError

from tillgate.errors import ConfigurationError

__all__ = ["main"]

_SETTINGS = "tillgate_saleor.service.settings"


@click.group()
@click.version_option(package_name="tillgate-saleor")
def main() -> None:
    """Tillgate's payment App for Saleor, as a service. Its settings come from the environment; docs/saleor.md lists them."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", _SETTINGS)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port to listen on.")
@click.option("--no-sweeper", is_flag=True, help="Do not sweep: `tillgate-saleor manage tillgate sweep --loop` runs elsewhere.")
@click.option("--no-migrate", is_flag=True, help="Leave the database's tables as they are.")
def serve(host: str, port: int, *, no_sweeper: bool, no_migrate: bool) -> None:
    """Check the settings, bring the database up to date, and serve the App, with the sweeper beside it."""
    try:
        django.setup()
        call_command("check")
        if not no_migrate:
            call_command("migrate", interactive=False, verbosity=1)
    except (ConfigurationError, SystemCheckError, CommandError) as error:
        raise click.ClickException(str(error)) from None
    if not no_sweeper:
        # It ends with the process, wherever it is: what it was at is due again, as after every crash.
        threading.Thread(target=call_command, args=("tillgate", "sweep", "--loop"), name="sweeper", daemon=True).start()
    from tillgate_saleor.manifest import address  # needs the settings, as the next does
    from tillgate_saleor.service.asgi import application

    click.echo(f"Listening on {host}:{port}. A Saleor installs the App from {address('manifest')}")
    # Whoever is before it tells the scheme in X-Forwarded-Proto; nothing here asks for the shopper's address.
    uvicorn.run(application, host=host, port=port, log_config=None, proxy_headers=False, server_header=False)


@main.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def manage(arguments: tuple[str, ...]) -> None:
    """Run one of Django's commands: createsuperuser, `tillgate doctor`, `tillgate_saleor installations`..."""
    try:
        execute_from_command_line(["tillgate-saleor manage", *arguments])
    except ConfigurationError as error:
        sys.exit(str(error))
