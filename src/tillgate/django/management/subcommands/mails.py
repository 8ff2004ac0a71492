"""Write every mail to shoppers into a folder, to look at. Sends nothing, and reads no order.

Each mail of each shop plugin is about an invented order: its plain text with the subject in
NAME.txt, and the page that a mail program shows in NAME.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import translation

from tillgate import hooks
from tillgate.django.management.terminal import require_tables, say
from tillgate.errors import ConfigurationError


def add_arguments(parser: CommandParser) -> None:
    """Add the language and the folder."""
    parser.add_argument(
        "--language",
        default=settings.LANGUAGE_CODE,
        help="a language of the shop, such as de (default: LANGUAGE_CODE)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("mails"),
        help="where to write them (default: mails)",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Write the files, and name them."""
    require_tables()
    folder = options["folder"]
    with translation.override(_language(options["language"])):
        hook = hooks.plugin_manager().hook.tillgate_example_mails
        mails = [mail for found in hook() if found for mail in found]
    if not mails:
        say(command, "No plugin of this shop sends mail to shoppers.")
        return
    folder.mkdir(parents=True, exist_ok=True)
    for mail in mails:
        written = {".txt": f"Subject: {mail.subject}\n\n{mail.text.strip()}\n", ".html": mail.html}
        for ending, text in written.items():
            if text:
                path = folder / f"{mail.name}{ending}"
                path.write_text(text, "utf-8")
                say(command, str(path))


def _language(given: str) -> str:
    try:
        return translation.get_supported_language_variant(given)
    except LookupError:
        known = ", ".join(code for code, _ in settings.LANGUAGES)
        raise ConfigurationError(
            "--language",
            given,
            f"is not one of LANGUAGES of the settings: {known}",
        ) from None
