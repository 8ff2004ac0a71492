"""The settings of the peer: those of `startproject`, dj-stripe, and the database that
BENCHMARK_DATABASE names.
"""

from __future__ import annotations

import os

from tools.benchmarks import databases
from tools.benchmarks.peer.events import KEY

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
ROOT_URLCONF = "tools.benchmarks.peer.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "djstripe",
    "tools.benchmarks.peer.apps.PeerConfig",
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
LOGGING = {  # nothing is written while the clock runs, by any contender
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"nowhere": {"class": "logging.NullHandler"}},
    "root": {"handlers": ["nowhere"], "level": "WARNING"},
}
# The tables are made as they are now, without their long history; those that they refer to with
# them.
MIGRATION_MODULES = dict.fromkeys(("auth", "contenttypes", "sessions", "djstripe"))
STRIPE_TEST_SECRET_KEY = KEY
STRIPE_LIVE_MODE = False
STRIPE_API_HOST = os.environ.get("BENCHMARK_GATEWAY", "http://127.0.0.1:1")
DJSTRIPE_FOREIGN_KEY_TO_FIELD = "id"
