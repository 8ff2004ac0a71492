"""The shop's rows."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """A delivered event that an order is paid. Nothing here keeps a second one out: the measurement
    counts them.
    """

    order_key = models.CharField(max_length=32, db_index=True)

    class Meta:
        app_label = "benchmark_shop"


class Posted(models.Model):
    """The row that the bare view inserts."""

    at = models.DateTimeField()
    body = models.TextField()

    class Meta:
        app_label = "benchmark_shop"
