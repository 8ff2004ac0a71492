"""Remote events: queued inside a plugin's handler, delivered by its `tillgate_deliver` after the commit."""

from tillgate.django.operations.outbox import enqueue_remote

__all__ = ["enqueue_remote"]
