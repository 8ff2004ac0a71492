"""The same shop on the internet: PostgreSQL, Celery on RabbitMQ, gunicorn behind a web server that
speaks https.

Install, from a clone: `pip install '.[celery]' plugins/oscar sorl-thumbnail gunicorn
'psycopg[binary]' django-guid`.

Everything that differs from machine to machine, and every secret, comes from the environment of all
the processes below; a file that the shop's user alone may read will do:

    DJANGO_SETTINGS_MODULE=example_shop.production      or manage.py takes the settings of the demo
    SHOP_HOST=www.fold-and-margin.example
    SHOP_SECRET_KEY=...                                 python -c "import secrets; print(secrets.token_urlsafe(50))"
    SHOP_GATEWAY_URL, SHOP_MERCHANT_NO, SHOP_PAYMENT_TOKEN     the live account
    SHOP_OWNER_MAIL=owner@fold-and-margin.example
    SHOP_BROKER_URL=amqp://shop:secret@127.0.0.1:5672/shop     with Celery
    SHOP_MONITOR_TOKEN=...                              if a monitor reads /payments/health/
    PGDATABASE, PGUSER, PGPASSWORD, PGHOST, PGPORT      unless they are shop, shop, none, 127.0.0.1, 5432
    SHOP_MAIL_HOST, SHOP_HSTS_SECONDS                   unless they are 127.0.0.1, 3600
    SHOP_VAR=/srv/shop/var                              where static files and pictures are put

Before it opens, and after each update:

    python example_shop/manage.py migrate
    python example_shop/manage.py check --deploy --database default
    python example_shop/manage.py collectstatic --noinput
    python example_shop/manage.py createsuperuser       the first time; `load_catalogue` fills the shelves with the demo's goods, and names
                                                        the shop's host, which is otherwise set in the admin under Sites: mails lead there
    python example_shop/manage.py tillgate doctor       the first time it complains that the worker has never run, and of nothing else

Let a process manager keep these three running, in the folder of the clone:

    gunicorn example_shop.wsgi --workers 2 --threads 8 --no-control-socket
    celery -A example_shop.celery beat -s $SHOP_VAR/celerybeat-schedule
    celery -A example_shop.celery worker -Q payments --concurrency 2

`python example_shop/manage.py tillgate worker` can take the place of the last two. `deploy/` has a
container file, a compose file and units for systemd.

The web server ends TLS, serves `/static/` from $SHOP_VAR/static and `/media/` from $SHOP_VAR/media
itself, and passes the rest on to gunicorn at 127.0.0.1:8000 with `Host` as it came and its own
`X-Forwarded-Proto`: `deploy/nginx.conf`.
"""

from __future__ import annotations

import os
from typing import Final

from example_shop.settings import *  # noqa: F403  # the shop is the same on any machine
from example_shop.settings import TILLGATE as _SANDBOX_TILLGATE
from tillgate.django.tasks import BEAT_SCHEDULE

_HOST: Final = os.environ["SHOP_HOST"]  # www.fold-and-margin.example

DEBUG = False
# signs sessions and the addresses at which an order can be paid
SECRET_KEY = os.environ["SHOP_SECRET_KEY"]
ALLOWED_HOSTS = [_HOST]

# Tillgate: the money ------------------------------------------------------------------------------

TILLGATE = {
    **_SANDBOX_TILLGATE,
    "ACCOUNTS": {
        "default": {
            "BASE_URL": os.environ["SHOP_GATEWAY_URL"],
            "MERCHANT_NO": os.environ["SHOP_MERCHANT_NO"],
            "TOKEN": os.environ["SHOP_PAYMENT_TOKEN"],
        },
    },
    "PUBLIC_URL": f"https://{_HOST}",  # the gateway must reach it from outside
    "REVIEW_MAIL_TO": [
        os.environ["SHOP_OWNER_MAIL"],
    ],  # a reader: a payment that needs review does not settle itself
    # Each process of a worker keeps to its own limit: this one is for two processes at a gateway
    # that takes 20 queries a second.
    "QUERIES_PER_SECOND": 10.0,
    "MONITOR_TOKEN": os.environ.get("SHOP_MONITOR_TOKEN") or None,
}

# Celery wakes the worker and spreads its work; due work stays in the database. The worker finds
# money after a lost notification.
CELERY_BROKER_URL = os.environ.get("SHOP_BROKER_URL", "")  # not needed by `tillgate worker`
CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}  # and the shop's own
# with workers of its own, never behind a newsletter
CELERY_TASK_ROUTES = {"tillgate.*": {"queue": "payments"}}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "shop"),
        "USER": os.environ.get("PGUSER", "shop"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", "5432"),
        # Notifications come in bursts, and a new connection for each makes them several times
        # slower.
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        # PostgreSQL would wait without end, and let a frozen process keep its locks.
        "OPTIONS": {"options": "-c lock_timeout=30s -c idle_in_transaction_session_timeout=2min"},
        # Safe with Tillgate, since its own pages opt out: it never talks to the gateway while a
        # transaction is open.
        "ATOMIC_REQUESTS": True,
    },
}

# https --------------------------------------------------------------------------------------------

# only behind a web server that replaces the header of each request
SECURE_PROXY_SSL_HEADER = (
    "HTTP_X_FORWARDED_PROTO",
    "https",
)
SECURE_SSL_REDIRECT = True
# a year, once everything works: browsers will not forget it
SECURE_HSTS_SECONDS = int(os.environ.get("SHOP_HSTS_SECONDS", "3600"))
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
OSCAR_BASKET_COOKIE_SECURE = OSCAR_RECENTLY_VIEWED_COOKIE_SECURE = True
OSCAR_URL_SCHEMA = "https"  # of the addresses in mails

# Mail, logs ---------------------------------------------------------------------------------------

EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST = os.environ.get("SHOP_MAIL_HOST", "127.0.0.1")
EMAIL_TIMEOUT = 10  # a mail server that hangs must not hold up the worker
DEFAULT_FROM_EMAIL = SERVER_EMAIL = OSCAR_FROM_EMAIL = f"Fold & Margin <shop@{_HOST}>"
MANAGERS = ADMINS = [("The shop's owner", os.environ["SHOP_OWNER_MAIL"])]

# the same id in each line of a request: the web server's, or a new one
INSTALLED_APPS = [*INSTALLED_APPS, "django_guid"]  # noqa: F405
MIDDLEWARE = ["django_guid.middleware.guid_middleware", *MIDDLEWARE]  # noqa: F405
DJANGO_GUID = {"GUID_HEADER_NAME": "X-Request-ID"}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request": {"()": "django_guid.log_filters.CorrelationId"}},
    "formatters": {
        "line": {
            "format": "{asctime} {levelname} {name} [{correlation_id}]: {message}",
            "style": "{",
        },
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["request"],
        },
    },  # the process manager keeps it
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "tillgate": {"level": "INFO"},
    },  # every payment started, paid, failed; never a secret
}
