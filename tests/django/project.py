"""The settings that the tests of the Django app run with; TILLGATE_TEST_DATABASE chooses the
database.
"""

from __future__ import annotations

from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
from tillgate.testing.databases import chosen_database, name_of_database

DATABASE = name_of_database()
DATABASES = {"default": chosen_database("tillgate_tests")}
if DATABASE == "postgresql":
    DATABASES["default"]["OPTIONS"] = {
        "options": "-c lock_timeout=30s -c idle_in_transaction_session_timeout=2min",
    }
elif DATABASE == "mariadb":
    DATABASES["default"]["OPTIONS"]["init_command"] = "SET SESSION idle_transaction_timeout = 120"

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEBUG = False
ROOT_URLCONF = "tests.django.project_urls"
STATIC_URL = "static/"
DEFAULT_FROM_EMAIL = "shop@shop.example"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "tillgate.django",
    "tests.smallest_shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
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
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
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
