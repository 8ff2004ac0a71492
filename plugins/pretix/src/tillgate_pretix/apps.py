"""The app: label `tillgate_pretix`. It has no tables; pretix's orders and settings and Tillgate's
rows store everything.
"""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.urls import include, path
from django.utils.translation import gettext_lazy as _
from pretix.base.plugins import PluginConfig

from tillgate_pretix import __version__

_NAME: Final = _("Tillgate")


class TillgatePretixConfig(PluginConfig):  # type: ignore[misc]  # pretix has no types
    """Connects pretix to Tillgate."""

    default = True
    name = "tillgate_pretix"
    label = "tillgate_pretix"
    verbose_name = _("Payments of pretix")

    class PretixPluginMeta:
        name = _NAME
        author = "The Tillgate developers"
        description = _(
            "Take payments by card and by thirteen wallets. Who has paid has a ticket: exactly "
            "once, for exactly the right money.",
        )
        category = "PAYMENT"
        visible = True
        version = __version__
        compatibility = "pretix>=2026.7"
        settings_links = (
            (
                ((_("Payment"), _NAME)),
                "control:event.settings.payment.provider",
                {"provider": "tillgate"},
            ),
        )

    def ready(self) -> None:
        """Pass Tillgate its settings, from pretix's configuration file, its addresses and the
        plugin; and connect to pretix's signals.
        """
        from tillgate import shop
        from tillgate_pretix import configuration

        if not hasattr(settings, "TILLGATE"):
            settings.TILLGATE = configuration.from_file(
                settings.CONFIG_FILE,
                settings.SITE_URL,
                [mail for _name, mail in settings.ADMINS],
            )
        # Importing checks and signals registers them. The payment methods are read with them, once,
        # so the settings come first.
        from tillgate_pretix import checks, plugin, signals  # noqa: F401

        shop.register(plugin, configuration.PLUGIN)
        _add_pages()


def _add_pages() -> None:
    """Put Tillgate's pages at `/_tillgate/`, on every domain.

    pretix puts the addresses of a plugin into a namespace of its own, below an event. Tillgate's
    have the namespace "tillgate", and the payment service calls them without an event. So they go
    into the list of pretix's own global addresses.
    """
    from pretix.urls import common_patterns

    from tillgate_pretix import colours

    style = path(
        "_tillgate/event/<int:event>/colours.css",
        colours.stylesheet,
        name="tillgate-pretix-colours",
    )
    common_patterns.extend([style, path("_tillgate/", include("tillgate.django.urls"))])
