"""System checks: `python -m pretix check` reports problems that keep payments from working inside pretix."""

from __future__ import annotations

from typing import Final

from tillgate.shop import CheckSet, Found

CHECKS: Final = CheckSet("tillgate_pretix")


@CHECKS.area
def check_tillgate() -> Found:
    """Yield an error where Tillgate's own app is missing: a setting of pretix can leave it out."""
    for error in CHECKS.check_tillgate(1):
        error.hint = "Take tillgate.django out of [pretix] plugins_exclude, and install the distribution tillgate-pretix anew."
        yield error
