"""The example shop as in production, without https in front, on the private database cluster and
the emulator.
"""

from __future__ import annotations

import os

os.environ.setdefault("SHOP_HOST", "127.0.0.1")
os.environ.setdefault("SHOP_OWNER_MAIL", "owner@example.com")
os.environ.setdefault("SHOP_MERCHANT_NO", "")
os.environ.setdefault("SHOP_PAYMENT_TOKEN", "")

from example_shop.production import *  # noqa: F403  # the production shape
from example_shop.production import CELERY_BEAT_SCHEDULE as _SCHEDULE
from example_shop.production import TILLGATE as _TILLGATE
from example_shop.settings import TILLGATE as _SANDBOX_TILLGATE

QUEUE = os.environ["CHAOS_QUEUE"]
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = OSCAR_BASKET_COOKIE_SECURE = (
    OSCAR_RECENTLY_VIEWED_COOKIE_SECURE
) = False
SECURE_HSTS_SECONDS = 0
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
CELERY_TASK_ROUTES = {"tillgate.*": {"queue": QUEUE}}
CELERY_TASK_DEFAULT_QUEUE = QUEUE
CELERY_BEAT_SCHEDULE = {
    name: {**entry, "schedule": min(entry["schedule"], 5)} for name, entry in _SCHEDULE.items()
}
TILLGATE = {
    **_TILLGATE,
    "ACCOUNTS": _SANDBOX_TILLGATE["ACCOUNTS"],
    "PUBLIC_URL": os.environ["SHOP_PUBLIC_URL"],
    "QUERIES_PER_SECOND": 50.0,
    "NOTIFICATION_THROTTLE_SECONDS": 2,
}
