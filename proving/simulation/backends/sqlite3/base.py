"""Django's sqlite3, interposed."""

from __future__ import annotations

from django.db.backends.sqlite3 import base

from proving.simulation.database import Interposed


class DatabaseWrapper(Interposed, base.DatabaseWrapper):
    """A connection of Django's own, with an interposer in between."""
