"""Django's mysql, interposed."""

from __future__ import annotations

from django.db.backends.mysql import base

from proving.simulation.database import Interposed


class DatabaseWrapper(Interposed, base.DatabaseWrapper):
    """A connection of Django's own, with an interposer in between."""
