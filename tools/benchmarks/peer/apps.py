"""The peer's shop: it takes effect when dj-stripe tells it that a payment succeeded."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import AppConfig


class PeerConfig(AppConfig):
    """A shop that listens to dj-stripe's signal."""

    name = "tools.benchmarks.peer"
    label = "benchmark_peer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen as dj-stripe's documentation shows."""
        from tools.benchmarks.peer.models import Effect

        def take_effect(event: Any, **_: object) -> None:
            Effect(order_key=event.data["object"]["id"]).save(force_insert=True)

        import_module("djstripe.signals").WEBHOOK_SIGNALS["payment_intent.succeeded"].connect(
            take_effect,
            weak=False,
        )
