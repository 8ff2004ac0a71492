"""Tillgate's settings from pretix's configuration file: the section `[tillgate]` of pretix.cfg, or
PRETIX_TILLGATE_* of the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tillgate import shop

PLUGIN: Final = "pretix"
"""The plugin's name, which Tillgate's rows carry."""

APP: Final = "tillgate_pretix"
"""The app's name, which an event lists among its active plugins."""

SECTION: Final = "tillgate"
_LISTS: Final = frozenset({"monitor_networks", "payment_methods", "review_mail_to"})
_NOT_HERE: Final = frozenset({"accounts"})  # every event has its own


def from_file(file: Any, site_url: str, admins: Sequence[str]) -> dict[str, Any]:
    """Return TILLGATE as the file has it. Mail recipients, address and name default to pretix's
    own. An unknown name stays in it.

    Tillgate then reports the unknown name, in `check` and wherever it reads the settings.
    """
    written = set(file.cp.options(SECTION)) if file.cp.has_section(SECTION) else set()
    known = shop.setting_names() - _NOT_HERE
    given = {
        name: file.get(SECTION, name)
        for name in sorted(written | known)
        if name in written or file.has_option(SECTION, name)
    }
    settings: dict[str, Any] = {"PUBLIC_URL": site_url, "REVIEW_MAIL_TO": list(admins)}
    if file.has_option("pretix", "instance_name"):
        settings["SHOP_NAME"] = file.get("pretix", "instance_name")
    for name, value in given.items():
        settings[name.upper()] = (
            [part.strip() for part in value.split(",") if part.strip()] if name in _LISTS else value
        )
    return settings
