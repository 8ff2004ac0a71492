"""The program of the worker processes of test_celery.py: this test project, on the database, the
gateway and the queue of that test.
"""

from __future__ import annotations

import importlib
import os

import django

from tests.django import project
from tests.django.celery_broker import application
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN

SMALL_BATCH = 4
"""Keeps a worker from taking everything before the other has begun."""

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.project"
project.DATABASES["default"]["NAME"] = os.environ["TILLGATE_WORKER_DATABASE"]
project.TILLGATE = {
    **project.TILLGATE,
    "ACCOUNTS": {
        "default": {
            "BASE_URL": os.environ["TILLGATE_WORKER_GATEWAY"],
            "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
            "TOKEN": PUBLISHED_TEST_TOKEN,
            "SANDBOX": True,
        },
    },
}
django.setup()
importlib.import_module("tillgate.django.worker.runner").__dict__["AT_ONCE"] = SMALL_BATCH

app = application(os.environ["TILLGATE_WORKER_BROKER"], os.environ["TILLGATE_WORKER_QUEUE"])
app.autodiscover_tasks(["tillgate.django"])
