"""System checks: `python -m pretix check` reports problems that keep payments from working inside pretix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import apps
from django.core import checks

__all__ = ["TAG"]

TAG: Final = "tillgate_pretix"


@checks.register(TAG)
def run_checks(app_configs: Sequence[Any] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check that Tillgate's own app is there: a setting of pretix can leave it out."""
    if apps.is_installed("tillgate.django"):
        return []
    hint = "Take tillgate.django out of [pretix] plugins_exclude, and install the distribution tillgate-pretix anew."
    return [checks.Error("Tillgate's own app is not installed.", hint=hint, id="tillgate_pretix.E001")]
