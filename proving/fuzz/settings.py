"""The settings of the tests, with hosts that are checked, bounds that are reached, and a database
of each fuzzing process's own.
"""

from __future__ import annotations

import os
from typing import Any

from tests.django import project
from tests.django.project import *  # noqa: F403

_NAME = f"{project.DATABASES['default']['TEST']['NAME']}_fuzz_{os.environ.get('TILLGATE_FUZZ_PROCESS', '0')}"
_IN_MEMORY = project.DATABASE == "sqlite"

_DATABASE: dict[str, Any] = {
    **project.DATABASES["default"],
    "TEST": {**project.DATABASES["default"]["TEST"], "NAME": None if _IN_MEMORY else _NAME},
}
if _IN_MEMORY:
    _DATABASE["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}

DATABASES = {"default": _DATABASE}

ALLOWED_HOSTS = ["shop.example"]
TILLGATE = {
    **project.TILLGATE,
    "PUBLIC_URL": "https://shop.example",
    "NOTIFICATION_THROTTLE_SECONDS": 5,
    "FORGED_NOTIFICATIONS_BEFORE_REVIEW": 5,
}
LOGGING_CONFIG = None
