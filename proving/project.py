"""The settings of the simulator: the smallest shop on a database that now and then fails."""

from __future__ import annotations

import logging
import os

from tests.django.project import *  # noqa: F403
from tests.django.project import DATABASE, DATABASES, TILLGATE

_ENGINE = {"sqlite": "sqlite3", "postgresql": "postgresql", "mariadb": "mysql"}[DATABASE]
DATABASES["default"]["ENGINE"] = f"proving.simulation.backends.{_ENGINE}"
if DATABASE == "sqlite":
    DATABASES["default"] |= {
        "NAME": ":memory:",
        "TEST": {"NAME": ":memory:"},
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
TILLGATE = {
    **TILLGATE,
    "NOTIFICATION_THROTTLE_SECONDS": 5,
    "PAYMENT_METHODS": ["alipay", "wechatpay", "paypal", "creditcard"],
}
# The judge reads the log, and nothing prints it: a simulated month has thousands of tracebacks.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "root": {"handlers": ["null"]},
    "handlers": {"null": {"class": "logging.NullHandler"}},
}
logging.raiseExceptions = False
os.environ.setdefault("PYTHONHASHSEED", "0")
