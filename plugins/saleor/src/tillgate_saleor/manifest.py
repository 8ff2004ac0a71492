"""The App's manifest, which Saleor reads when it installs the App."""

from __future__ import annotations

from typing import Any

from tillgate.shop import absolute_url
from tillgate_saleor import __version__
from tillgate_saleor.conf import get_settings
from tillgate_saleor.documents import SUBSCRIPTIONS


def manifest() -> dict[str, Any]:
    """Return the manifest. Every address is under TILLGATE["PUBLIC_URL"], where Saleor and its
    staff must reach the App.
    """
    settings = get_settings()
    return {
        "id": settings.app_id,
        "version": __version__,
        "requiredSaleorVersion": ">=3.21 <4",
        "name": settings.app_name,
        "about": "Wallets and cards through a hosted payment page.",
        "permissions": ["HANDLE_PAYMENTS"],
        "appUrl": address("page"),
        "tokenTargetUrl": address("register"),
        "webhooks": [
            {
                "name": event.typename,
                "syncEvents": [event.value.upper()],
                "query": query,
                "targetUrl": address("webhook", event.value),
                "isActive": True,
            }
            for event, query in SUBSCRIPTIONS.items()
        ],
        "extensions": [],
    }


def address(name: str, *arguments: str) -> str:
    """Return the absolute address of one of the App's pages."""
    return absolute_url(f"tillgate_saleor:{name}", *arguments)
