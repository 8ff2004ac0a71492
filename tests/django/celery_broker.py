"""A Celery application with a queue of its own, for the test and the workers that it starts."""

from __future__ import annotations

from typing import Any

from celery import Celery  # type: ignore[import-untyped]  # Celery ships no types

__all__ = ["application"]


def application(broker: str, queue: str) -> Any:
    """Return an application that shares its broker with others and its queue with none."""
    app = Celery("tillgate-tests", broker=broker)
    app.conf.update(
        task_default_queue=queue,
        task_default_exchange=queue,
        task_default_routing_key=queue,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"global_keyprefix": f"{queue}:"}
        if broker.startswith("redis:")
        else {},
    )
    return app
