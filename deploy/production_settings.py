"""Append this to the settings of your project: PostgreSQL, gunicorn behind a web server that speaks
https, mail, and a live account. `env.example` has the variables.
"""

import os
from pathlib import Path

DEBUG = False
# signs sessions and the addresses at which an order can be paid
SECRET_KEY = os.environ["SHOP_SECRET_KEY"]
ALLOWED_HOSTS = [os.environ["SHOP_HOST"]]

# the money: what the environment lacks stays as it stands above
TILLGATE["ACCOUNTS"]["default"]["TOKEN"] = os.environ["SHOP_PAYMENT_TOKEN"]
for _key, _name in (("BASE_URL", "SHOP_GATEWAY_URL"), ("MERCHANT_NO", "SHOP_MERCHANT_NO")):
    if os.environ.get(_name):
        TILLGATE["ACCOUNTS"]["default"][_key] = os.environ[_name]
TILLGATE["PUBLIC_URL"] = f"https://{os.environ['SHOP_HOST']}"  # the gateway must reach it
TILLGATE["REVIEW_MAIL_TO"] = [os.environ["SHOP_OWNER_MAIL"]]
TILLGATE["MONITOR_TOKEN"] = os.environ.get("SHOP_MONITOR_TOKEN") or None

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "shop"),
        "USER": os.environ.get("PGUSER", "shop"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", "5432"),
        # Notifications come in bursts, and a new connection for each makes them slower.
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        # PostgreSQL would wait without end, and let a frozen process keep its locks.
        "OPTIONS": {"options": "-c lock_timeout=30s -c idle_in_transaction_session_timeout=2min"},
    },
}

# https, only behind a web server that replaces the header of each request: nginx.conf
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
# a year, once everything works: browsers will not forget it
SECURE_HSTS_SECONDS = int(os.environ.get("SHOP_HSTS_SECONDS", "3600"))
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True

# served by nginx
STATIC_URL, MEDIA_URL = "static/", "media/"
STATIC_ROOT = Path(os.environ["SHOP_VAR"]) / "static"
MEDIA_ROOT = Path(os.environ["SHOP_VAR"]) / "media"

EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST = os.environ.get("SHOP_MAIL_HOST", "127.0.0.1")
EMAIL_TIMEOUT = 10  # a mail server that hangs must not hold up the worker
DEFAULT_FROM_EMAIL = SERVER_EMAIL = f"shop@{os.environ['SHOP_HOST']}"
MANAGERS = ADMINS = [("The shop's owner", os.environ["SHOP_OWNER_MAIL"])]

# django-oscar's own; without Oscar they do nothing
OSCAR_URL_SCHEMA = "https"
OSCAR_FROM_EMAIL = DEFAULT_FROM_EMAIL
OSCAR_BASKET_COOKIE_SECURE = OSCAR_RECENTLY_VIEWED_COOKIE_SECURE = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"tillgate": {"level": "INFO"}},  # every payment started, paid, failed
}
