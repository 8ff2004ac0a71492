"""The shop of the benchmarks, with pages where shoppers check out and pay, and with its errors in a
file that the storm reads.
"""

from __future__ import annotations

import os

from tools.benchmarks.shop.settings import *  # noqa: F403  # the same shop
from tools.benchmarks.shop.settings import TILLGATE as _TILLGATE

ROOT_URLCONF = "proving.storm.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    },
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "errors": {
            "class": "logging.FileHandler",
            "filename": os.environ["STORM_LOG"],
            "formatter": "plain",
        },
    },
    "root": {"handlers": ["errors"], "level": "ERROR"},
}
TILLGATE = {
    **_TILLGATE,
    "PUBLIC_URL": os.environ["STORM_PUBLIC_URL"],
    "NOTIFICATION_THROTTLE_SECONDS": float(os.environ["STORM_THROTTLE_SECONDS"]),
}
