"""The command `tillgate-saleor`: the whole service with one command, and Django's own commands for
it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import warnings
from pathlib import Path

import click
import django
import uvicorn
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command, execute_from_command_line
from django.core.management.base import CommandError, SystemCheckError
from django.db import DatabaseError

from tillgate import ConfigurationError

_SETTINGS = "tillgate_saleor.service.settings"
_OF_VARIABLES = (
    "The service makes TILLGATE of PUBLIC_URL, PAYMENT_METHODS, REVIEW_MAIL_TO and the variables "
    "TILLGATE_..., "
    "and TILLGATE_SALEOR of the variables SALEOR_..."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tillgate-saleor")
def main() -> None:
    """Tillgate's payment App for Saleor, as a service. Its settings come from the environment;
    docs/saleor.md lists them.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", _SETTINGS)
    sys.path.insert(0, str(Path.cwd()))  # the directory of an owner's own settings module


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on.",
)
@click.option(
    "--no-worker",
    is_flag=True,
    help="Do not run the worker: `tillgate-saleor manage tillgate worker` runs elsewhere.",
)
@click.option("--no-migrate", is_flag=True, help="Leave the database's tables as they are.")
def serve(host: str, port: int, *, no_worker: bool, no_migrate: bool) -> None:
    """Serve the App, with the worker beside it.

    Before that the settings are checked, and the database is brought up to date.
    """
    try:
        django.setup()
        call_command("check")
        if not no_migrate:
            call_command("migrate", interactive=False, verbosity=1)
    except SystemCheckError as error:
        raise click.ClickException(f"{error}\n{_OF_VARIABLES}") from None
    except DatabaseError as error:
        raise click.ClickException(
            f"The database of DATABASE_URL cannot be used: {error}",
        ) from None
    except (ConfigurationError, ImproperlyConfigured, CommandError) as error:
        raise click.ClickException(str(error)) from None
    from tillgate_saleor.manifest import address  # needs the settings, as the next does
    from tillgate_saleor.service.asgi import application

    # the admin's own files, which are small
    warnings.filterwarnings("ignore", "StreamingHttpResponse must consume")
    # The web server in front of it sends the scheme in X-Forwarded-Proto; no code here reads the
    # shopper's address.
    server = uvicorn.Server(
        uvicorn.Config(application, log_config=None, proxy_headers=False, server_header=False),
    )
    listening = _listen(host, port)
    # It ends with the process at any point: its work is due again, as after every crash.
    worker = (
        None
        if no_worker
        else threading.Thread(target=_worker, args=(server,), name="worker", daemon=True)
    )
    if worker:
        worker.start()
    click.echo(
        f"Listening on {host}:{listening.getsockname()[1]}. A Saleor installs the App from "
        f"{address('manifest')}",
    )
    with contextlib.suppress(KeyboardInterrupt):  # it has ended in order
        server.run(sockets=[listening])
    if worker and not worker.is_alive():
        raise click.ClickException("The worker has ended, and the service with it.")


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        )
    except OSError as error:
        raise click.ClickException(f"It cannot listen: {error.strerror}") from None


def _worker(server: uvicorn.Server) -> None:
    """Run the worker, and stop the server if the worker ends: a service without a worker would miss
    payments silently.
    """
    try:
        call_command("tillgate", "worker")
    except CommandError as error:
        click.echo(f"Error: {error}", err=True)
    finally:
        server.should_exit = True


@main.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def manage(arguments: tuple[str, ...]) -> None:
    """Run one of Django's commands.

    For example createsuperuser, `tillgate doctor` or `tillgate_saleor installations`.
    """
    try:
        execute_from_command_line(["tillgate-saleor manage", *arguments])
    except ConfigurationError as error:
        sys.exit(str(error))
