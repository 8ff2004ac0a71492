"""Installing: a Saleor hands over its token, unsigned, and is believed once the token works; and what ends an installation."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from django.db import transaction
from pydantic import SecretStr

from tillgate.django import clock
from tillgate.django.operations.locking import database, outside_transactions
from tillgate_saleor import vault
from tillgate_saleor.api import ask_app_id, fetch_keys
from tillgate_saleor.conf import get_settings, origin_of
from tillgate_saleor.models import Installation

__all__ = ["OriginNotAllowed", "install", "rotate", "uninstall"]

_LONGEST_API_URL: Final = 255


class OriginNotAllowed(Exception):
    """The settings name no such Saleor; nobody was called."""


def install(api_url: str, token: SecretStr) -> Installation:
    """Keep the token of a Saleor that installs the App, for the first time or again, once it is proven to work.

    Raises `OriginNotAllowed`, or a `SaleorError` when the Saleor does not take the token or cannot be reached; then nothing has changed.
    """
    outside_transactions("install")
    parts = urlsplit(api_url)
    origin = origin_of(api_url)
    if origin is None or get_settings().saleor(api_url) is None or parts.query or parts.fragment or len(api_url) > _LONGEST_API_URL:
        raise OriginNotAllowed(f"{api_url[:_LONGEST_API_URL]!r} is not the address of a Saleor that may install this App")
    app_id = ask_app_id(api_url, token)
    now = clock.now()
    keys = fetch_keys(origin)
    values = {
        "app_id": app_id,
        "token": vault.encrypt(token.get_secret_value()),
        "keys": keys,
        "keys_fetched_at": now,
        "installed_at": now,
        "uninstalled_at": None,
    }
    installation, _ = Installation.objects.using(database()).update_or_create(api_url=api_url, defaults=values)
    return installation


def uninstall(installation: Installation) -> None:
    """Forget the token and the keys of a Saleor. What was begun for it is watched on; its money waits for a person."""
    installation.token, installation.keys = "", {}
    installation.uninstalled_at = clock.now()
    installation.save(update_fields=["token", "keys", "uninstalled_at"])


def rotate() -> int:
    """Encrypt every token with the newest key, and return how many there are."""
    with transaction.atomic(using=database()):
        rows = Installation.objects.using(database()).select_for_update().exclude(token="")
        for installation in rows:
            installation.token = vault.rotate(installation.token)
            installation.save(update_fields=["token"])
        return len(rows)
