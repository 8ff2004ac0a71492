"""A small shop on django-payments, with Tillgate enabled by the lines that the README gives. Which
database, the environment says.
"""

from __future__ import annotations

import os

from tillgate import PaymentMethod
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
from tillgate.testing.databases import chosen_database
from tillgate_django_payments import PROVIDER, method_variants

DATABASES = {"default": chosen_database("tillgate_django_payments_tests")}

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEBUG = False
LANGUAGE_CODE = "en-us"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "payments",
    "tillgate.django",
    "tillgate_django_payments",
    "tests.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
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

PAYMENT_HOST = "127.0.0.1:2"
PAYMENT_USES_SSL = False
PAYMENT_MODEL = "shop.Payment"
PAYMENT_VARIANTS = {
    "online": (PROVIDER, {}),
    **method_variants(
        [*PaymentMethod, *os.environ.get("TILLGATE_TEST_METHODS", "").split()],
    ),  # of another gateway
    "invoice": ("payments.dummy.DummyProvider", {}),
}

TILLGATE = {
    "ACCOUNTS": {
        "default": {
            "BASE_URL": "http://127.0.0.1:1",
            "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
            "TOKEN": PUBLISHED_TEST_TOKEN,
            "SANDBOX": True,
        },
    },
    "PUBLIC_URL": "http://127.0.0.1:2",
    "NOTIFICATION_THROTTLE_SECONDS": 0,
    "QUERIES_PER_SECOND": 0,
}
