"""The settings of the shop: those of `startproject`, Tillgate, and the database that
BENCHMARK_DATABASE names.
"""

from __future__ import annotations

import os

from tools.benchmarks import databases

if os.environ["BENCHMARK_DATABASE"] == "mariadb":
    import pymysql

    # the version of mysqlclient that Django asks for, which PyMySQL stands in for
    pymysql.version_info = (
        2,
        2,
        4,
        "final",
        0,
    )
    pymysql.install_as_MySQLdb()

DATABASES = {
    "default": databases.settings(
        os.environ["BENCHMARK_DATABASE"],
        os.environ["BENCHMARK_DATABASE_NAME"],
    ),
}
SECRET_KEY = "only for benchmarks"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEBUG = False
ROOT_URLCONF = "tools.benchmarks.shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tillgate.django",
    "tools.benchmarks.shop.apps.ShopConfig",
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
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
LOGGING = {  # nothing is written while the clock runs, by any contender
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"nowhere": {"class": "logging.NullHandler"}},
    "root": {"handlers": ["nowhere"], "level": "WARNING"},
}
TILLGATE = {
    "ACCOUNTS": {
        "default": {
            "BASE_URL": os.environ.get("BENCHMARK_GATEWAY", "http://127.0.0.1:1"),
            "MERCHANT_NO": "200043",
            "TOKEN": "5cbfb079f15b150122261c8537086d77a",
            "SANDBOX": True,
        },
    },
    "PUBLIC_URL": "http://127.0.0.1:2",
    "QUERIES_PER_SECOND": 0,
}
