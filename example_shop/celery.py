"""The app for Celery: `celery -A example_shop.celery beat` once, `celery -A example_shop.celery
worker -Q payments` as often as wanted.

beat writes its times where it starts, or where `-s` says.
"""

import os

from celery import Celery  # type: ignore[import-untyped]  # Celery ships no types

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_shop.production")

app = Celery("example_shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()  # finds tillgate.django.tasks
