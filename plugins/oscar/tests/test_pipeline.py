"""The statuses that a project's settings take from the plugin."""

from __future__ import annotations

import subprocess
import sys

from tillgate_oscar.pipeline import order_statuses


def test_new_shop_gets_whole_pipeline() -> None:
    assert order_statuses({}) == {
        "Pending payment": ("Paid", "Cancelled"),
        "Paid": ("Shipped", "Cancelled"),
        "Shipped": (),
        "Cancelled": (),
    }


def test_own_statuses_stay_unchanged() -> None:
    """A paid order goes on to the status that the shop names, and no other is added for it."""
    own = {"Being processed": ("Complete", "Cancelled"), "Complete": (), "Cancelled": ("Pending",)}
    assert order_statuses(own, after_paid="Being processed") == own | {
        "Pending payment": ("Paid", "Cancelled"),
        "Paid": ("Being processed", "Cancelled"),
    }


def test_settings_may_import_it() -> None:
    """It loads no Django, whose settings are not there yet."""
    code = (
        "import sys, tillgate_oscar.pipeline; "
        "assert not {'django', 'oscar', 'tillgate'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
