"""The settings of the shop whose staff are measured: those of the other shop, with the admin and a
second account.
"""

from __future__ import annotations

from typing import Any

from tools.benchmarks.shop.settings import *  # noqa: F403
from tools.benchmarks.shop.settings import INSTALLED_APPS as _APPS
from tools.benchmarks.shop.settings import TEMPLATES as _TEMPLATES
from tools.benchmarks.shop.settings import TILLGATE as _TILLGATE

ROOT_URLCONF = "tools.benchmarks.desk.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.staticfiles",
    *_APPS[:-1],
    "tools.benchmarks.desk.apps.DeskConfig",
]
STATIC_URL = "/static/"
TEMPLATES = [
    {
        **_TEMPLATES[0],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
_ACCOUNTS: Any = _TILLGATE["ACCOUNTS"]
_ACCOUNT = _ACCOUNTS["default"]
TILLGATE = {
    **_TILLGATE,
    "ACCOUNTS": {
        "default": {**_ACCOUNT, "SANDBOX": False},
        "europe": {**_ACCOUNT, "SANDBOX": False, "MERCHANT_NO": "200044"},
    },
}
