"""The peer's rows."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """A delivered event that a payment succeeded. As in the shop on Tillgate, nothing here keeps a
    second one out.
    """

    order_key = models.CharField(max_length=64, db_index=True)

    class Meta:
        app_label = "benchmark_peer"
