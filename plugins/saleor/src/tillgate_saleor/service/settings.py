"""The settings of the service, from the environment; docs/saleor.md lists the variables.

What differs from this goes into a module of yours that begins with `from tillgate_saleor.service.settings import *`, and that
DJANGO_SETTINGS_MODULE names.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import dj_database_url

from tillgate.errors import ConfigurationError


def _required(name: str, remedy: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigurationError(name, None, f"is not set in the environment: {remedy}")
    return value


def _list(name: str) -> list[str]:
    return [part for part in os.environ.get(name, "").replace(",", " ").split() if part]


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


def _database() -> dict[str, Any]:
    database: dict[str, Any] = dict(dj_database_url.parse(os.environ.get("DATABASE_URL") or "sqlite:///tillgate-saleor.sqlite3"))
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # Notices, webhooks and the sweeper write at the same time, and wait for each other instead of failing.
        pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        database["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": pragmas}
    return database


PUBLIC_URL = _required(
    "PUBLIC_URL", "give the address at which Saleor, the gateway and shoppers reach this service: https://pay.shop.example"
)
SECRET_KEY = _required("SECRET_KEY", 'make one with: python -c "import secrets; print(secrets.token_urlsafe(50))"')
SECRET_KEY_FALLBACKS = _list("SECRET_KEY_FALLBACKS")

_SANDBOX = _is_on("TILLGATE_SANDBOX")

TILLGATE: dict[str, Any] = {
    "ACCOUNTS": {
        "default": {
            "BASE_URL": _required("TILLGATE_BASE_URL", "give the gateway's address"),
            "MERCHANT_NO": _required("TILLGATE_MERCHANT_NO", "give the merchant number that the gateway issued"),
            "TOKEN": _required("TILLGATE_TOKEN", "give the secret token that the gateway issued"),
            "SANDBOX": _SANDBOX,
        }
    },
    "PUBLIC_URL": PUBLIC_URL,
    "ATTENTION_MAIL_TO": _list("ATTENTION_MAIL_TO"),
}
if _list("VENDORS"):
    TILLGATE["VENDORS"] = _list("VENDORS")

TILLGATE_SALEOR: dict[str, Any] = {
    "SALEORS": {
        origin: {
            "STOREFRONTS": _list("SALEOR_STOREFRONTS"),
            "DASHBOARDS": _list("SALEOR_DASHBOARDS"),
            "PARTS": _is_on("SALEOR_PARTS"),
        }
        for origin in _list("SALEOR_ORIGINS")
    }
}

DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DEBUG = False
ALLOWED_HOSTS = [urlsplit(PUBLIC_URL).hostname or "", "127.0.0.1", "localhost"]
ROOT_URLCONF = "tillgate_saleor.service.urls"
ASGI_APPLICATION = "tillgate_saleor.service.asgi.application"
USE_TZ = True
TIME_ZONE = os.environ.get("TIME_ZONE", "UTC")
LANGUAGE_CODE = os.environ.get("LANGUAGE_CODE", "en-us")
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
            ]
        },
    }
]

if urlsplit(PUBLIC_URL).scheme == "https":
    # The web server before it ends TLS, and sets this header itself, whatever came in.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    CSRF_TRUSTED_ORIGINS = [f"https://{urlsplit(PUBLIC_URL).netloc}"]

EMAIL_HOST = os.environ.get("EMAIL_HOST", "localhost")
EMAIL_PORT = int(os.environ.get("EMAIL_PORT", "25"))
EMAIL_HOST_USER = os.environ.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = bool(EMAIL_HOST_USER)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = os.environ.get("EMAIL_FROM", f"tillgate@{urlsplit(PUBLIC_URL).hostname}")

SILENCED_SYSTEM_CHECKS = ["tillgate.E003"] if _SANDBOX else []  # TILLGATE_SANDBOX is there to say that play money is meant

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"tillgate": {"level": "INFO"}},
}
