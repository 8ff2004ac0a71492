"""The settings of the service, from the environment; docs/saleor.md lists the variables.

Put your changes into a module that begins with `from tillgate_saleor.service.settings import *`,
and name it in DJANGO_SETTINGS_MODULE.
"""

from __future__ import annotations

import os
import re
import zoneinfo
from typing import Any, Final
from urllib.parse import urlsplit

import dj_database_url
from django.conf.locale import LANG_INFO

from tillgate import REFERENCE, ConfigurationError, GatewayProfile

_missing: dict[str, str] = {}
_SHORTEST_KEY: Final = 50


def _required(name: str, remedy: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        _missing[name] = remedy
    return value


def _list(name: str) -> list[str]:
    return [part for part in os.environ.get(name, "").replace(",", " ").split() if part]


def _is_on(name: str) -> bool:
    value = os.environ.get(name, "").lower()
    if value not in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
        raise ConfigurationError(name, value, "is not true or false")
    return value in ("1", "true", "yes", "on")


def _number(name: str, default: int) -> int:
    value = os.environ.get(name) or str(default)
    if not (value.isascii() and value.isdecimal()):
        raise ConfigurationError(name, value, "is not a number")
    return int(value)


def _time_zone(name: str) -> str:
    value = os.environ.get(name) or "UTC"
    try:
        zoneinfo.ZoneInfo(value)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ConfigurationError(name, value, "is not a time zone such as Europe/Berlin") from None
    return value


def _language(name: str) -> str:
    value = (os.environ.get(name) or "en-us").lower()
    if value not in LANG_INFO and value.partition("-")[0] not in LANG_INFO:
        raise ConfigurationError(name, value, "is not a language such as en-us or de")
    return value


def _account() -> dict[str, Any]:
    """Return the account of the environment. Its dialect decides which variables it needs."""
    name = os.environ.get("TILLGATE_DIALECT") or REFERENCE.name
    dialect = GatewayProfile.named(name)
    if dialect is None:
        raise ConfigurationError(
            "TILLGATE_DIALECT",
            name,
            f"is not one of {', '.join(GatewayProfile.names())}: is its plugin installed?",
        )
    given: dict[str, Any] = {
        "BASE_URL": os.environ.get("TILLGATE_BASE_URL"),
        "MERCHANT_NO": os.environ.get("TILLGATE_MERCHANT_NO"),
        "TOKEN": os.environ.get("TILLGATE_TOKEN"),
        "STORE_NO": os.environ.get("TILLGATE_STORE_NO"),
        "WEBHOOK_SECRETS": _list("TILLGATE_WEBHOOK_SECRETS"),
        "CURRENCIES": _list("TILLGATE_CURRENCIES"),
        "METHODS": _list("TILLGATE_METHODS"),
        "SETTLE_CURRENCY": os.environ.get("TILLGATE_SETTLE_CURRENCY"),
    }
    needed = [
        *([] if dialect.base_url else ["BASE_URL"]),
        *(field.upper() for field in dialect.required),
        "TOKEN",
    ]
    lacking = [field for field in needed if not given.get(field)]
    _missing.update(
        {
            f"TILLGATE_{field}": _REMEDIES.get(field, f"the dialect {name} needs it")
            for field in lacking
        },
    )
    return {"DIALECT": name} | {field: value for field, value in given.items() if value}


_REMEDIES: Final = {
    "BASE_URL": "give the gateway's address",
    "MERCHANT_NO": "give the merchant number that the gateway issued",
    "TOKEN": "give the secret token that the gateway issued",
}


def _database() -> dict[str, Any]:
    try:
        database: dict[str, Any] = dict(
            dj_database_url.parse(
                os.environ.get("DATABASE_URL") or "sqlite:///tillgate-saleor.sqlite3",
            ),
        )
    except ValueError:  # the address is not shown: it holds a password
        raise ConfigurationError(
            "DATABASE_URL",
            None,
            "is not an address such as postgresql://user:password@host/name",
        ) from None
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # Notifications, webhooks and the worker write at the same time, and wait for each other
        # instead of failing.
        pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": pragmas,
        }
    return database


PUBLIC_URL = _required(
    "PUBLIC_URL",
    "give the address at which Saleor, the gateway and shoppers reach this service: "
    "https://pay.shop.example",
)
SECRET_KEY = _required(
    "SECRET_KEY",
    'make one with python -c "import secrets; print(secrets.token_urlsafe(50))"',
)
SECRET_KEY_FALLBACKS = _list("SECRET_KEY_FALLBACKS")

_SANDBOX = _is_on("TILLGATE_SANDBOX")

TILLGATE: dict[str, Any] = {
    "ACCOUNTS": {"default": {**_account(), "SANDBOX": _SANDBOX}},
    "PUBLIC_URL": PUBLIC_URL,
    "REVIEW_MAIL_TO": _list("REVIEW_MAIL_TO"),
    "MONITOR_TOKEN": os.environ.get("MONITOR_TOKEN") or None,
}
if _missing:
    raise ConfigurationError(
        "The environment",
        None,
        "lacks required values:\n"
        + "\n".join(f"  {name}: {remedy}" for name, remedy in _missing.items()),
    )
if len(SECRET_KEY) < _SHORTEST_KEY:
    raise ConfigurationError(
        "SECRET_KEY",
        None,
        f"is too short: it must be at least {_SHORTEST_KEY} random characters",
    )
if not re.fullmatch(r"https?://[^/?#@\s]+/?", PUBLIC_URL.lower()):
    raise ConfigurationError(
        "PUBLIC_URL",
        PUBLIC_URL,
        "is not an address such as https://pay.shop.example, without a path",
    )
if _list("PAYMENT_METHODS"):
    TILLGATE["PAYMENT_METHODS"] = _list("PAYMENT_METHODS")

TILLGATE_SALEOR: dict[str, Any] = {
    "SALEORS": {
        origin: {
            "STOREFRONTS": _list("SALEOR_STOREFRONTS"),
            "CHECKOUT_URL": os.environ.get("SALEOR_CHECKOUT_URL", ""),
            "DASHBOARDS": _list("SALEOR_DASHBOARDS"),
            "PARTS": _is_on("SALEOR_PARTS"),
        }
        for origin in _list("SALEOR_ORIGINS")
    },
}

DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DEBUG = False
ALLOWED_HOSTS = [urlsplit(PUBLIC_URL).hostname or "", "127.0.0.1", "localhost"]
ROOT_URLCONF = "tillgate_saleor.service.urls"
ASGI_APPLICATION = "tillgate_saleor.service.asgi.application"
USE_TZ = True
TIME_ZONE = _time_zone("TIME_ZONE")
LANGUAGE_CODE = _language("LANGUAGE_CODE")
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # the admin's own files, without a step to collect them

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "tillgate.django",
    "tillgate_saleor",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

if urlsplit(PUBLIC_URL).scheme == "https":
    # The web server in front ends TLS, and always overwrites this header.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    CSRF_TRUSTED_ORIGINS = [f"https://{urlsplit(PUBLIC_URL).netloc}"]

EMAIL_HOST = os.environ.get("EMAIL_HOST") or "localhost"
EMAIL_PORT = _number("EMAIL_PORT", 25)
EMAIL_HOST_USER = os.environ.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = bool(EMAIL_HOST_USER)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = (
    os.environ.get("EMAIL_FROM") or f"tillgate@{urlsplit(PUBLIC_URL).hostname}"
)

SILENCED_SYSTEM_CHECKS = [
    "security.W004",  # the web server in front handles HSTS and the redirect to https
    "security.W008",
    # under ASGI each request has a thread of its own, and a kept connection would end with it
    "tillgate.W005",
]
if _SANDBOX:
    # The variable declares that only play money is used: it needs no mails to staff.
    SILENCED_SYSTEM_CHECKS += ["tillgate.E003", "tillgate.W001"]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"tillgate": {"level": "INFO"}},
}
