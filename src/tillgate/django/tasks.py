"""The place where Celery's `autodiscover_tasks()` looks for the tasks of an app: they are in
`tillgate.django.worker.tasks`.
"""

from tillgate.django.worker.tasks import BEAT_SCHEDULE, run_lane, run_worker

__all__ = ["BEAT_SCHEDULE", "run_lane", "run_worker"]
