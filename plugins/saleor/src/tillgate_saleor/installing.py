"""Installing: a Saleor sends its token unsigned, and the App accepts it once it works. Also the end
and the move of an installation.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from django.db import transaction
from pydantic import SecretStr

from tillgate.shop import database, now, outside_transactions
from tillgate_saleor import vault
from tillgate_saleor.api import ask_app_id, fetch_keys
from tillgate_saleor.conf import get_settings, origin_of
from tillgate_saleor.models import Installation

_LONGEST_API_URL: Final = 255


class OriginNotAllowed(Exception):
    """The settings do not name the Saleor; the App sent it no request."""


def install(api_url: str, token: SecretStr) -> Installation:
    """Store the token of a Saleor that installs the App, for the first time or again, after a test
    that it works.

    Raises `OriginNotAllowed`, or a `SaleorError` when the Saleor rejects the token or is
    unreachable; then nothing changes.
    """
    outside_transactions("install")
    proven = _prove(api_url, token)
    values = {
        **proven,
        "token": vault.encrypt(token.get_secret_value()),
        "installed_at": now(),
        "uninstalled_at": None,
    }
    installation, _ = Installation.objects.update_or_create(api_url=api_url, defaults=values)
    return installation


def _prove(api_url: str, token: SecretStr) -> dict[str, Any]:
    """Return the App's id for a token, and the Saleor's keys."""
    parts = urlsplit(api_url)
    origin = origin_of(api_url)
    if (
        origin is None
        or get_settings().saleor(api_url) is None
        or parts.query
        or parts.fragment
        or len(api_url) > _LONGEST_API_URL
    ):
        raise OriginNotAllowed(
            f"{api_url[:_LONGEST_API_URL]!r} is not the address of a Saleor that may install this "
            "App",
        )
    asked_at = now()
    return {
        "app_id": ask_app_id(api_url, token),
        "keys": fetch_keys(origin),
        "keys_fetched_at": asked_at,
    }


def move(installation: Installation, api_url: str) -> None:
    """Move a Saleor to another address: its domain changed, but its App, token, transactions and
    purchases stay the same.

    Raises `OriginNotAllowed`, or a `SaleorError` when the new address does not answer or rejects
    the token; then nothing changes.
    """
    outside_transactions("move")
    values = {"api_url": api_url, **_prove(api_url, SecretStr(vault.decrypt(installation.token)))}
    with transaction.atomic(using=database()):
        # Installed there by mistake and uninstalled again, without having sold.
        unused = Installation.objects.filter(
            api_url=api_url,
            token="",
            purchases__isnull=True,
            transactions__isnull=True,
        )
        unused.delete()
        Installation.objects.filter(pk=installation.pk).update(**values)
    installation.refresh_from_db()


def uninstall(installation: Installation) -> None:
    """Delete the token and the keys of a Saleor. The worker still polls its open payments, and
    their money opens a review.
    """
    installation.token, installation.keys = "", {}
    installation.uninstalled_at = now()
    installation.save(update_fields=["token", "keys", "uninstalled_at"])


def rotate() -> int:
    """Encrypt every token with the newest key, and return how many there are."""
    with transaction.atomic(using=database()):
        rows = Installation.objects.select_for_update().exclude(token="")
        for installation in rows:
            installation.token = vault.rotate(installation.token)
            installation.save(update_fields=["token"])
        return len(rows)
