"""A real pretix with the plugin installed, in test mode. Which database, the environment says."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["PRETIX_CONFIG_FILE"] = str(Path(__file__).parent / "pretix.cfg")

# pretix's own: no broker, no cache, mail kept in memory
from pretix.testutils.settings import *  # noqa: F403
from pretix.testutils.settings import DATABASES, MIDDLEWARE

from tillgate.testing.databases import chosen_database

DEBUG = DEBUG_PROPAGATE_EXCEPTIONS = False
SITE_URL = "http://testserver"
LANGUAGE_CODE = "en"
ALLOW_HTTP_TO_PRIVATE_NETWORKS = True  # the sandbox is on this machine
MIGRATION_MODULES: dict[str, None] = {}  # pytest is told not to migrate

DATABASES["default"] = chosen_database("tillgate_pretix_tests")

TILLGATE = {"PUBLIC_URL": SITE_URL, "NOTIFICATION_THROTTLE_SECONDS": 0, "QUERIES_PER_SECOND": 0}
# of another gateway; pretix registers its methods when it starts
if methods := os.environ.get("PRETIX_TILLGATE_PAYMENT_METHODS"):
    TILLGATE["PAYMENT_METHODS"] = methods.split(",")
MIDDLEWARE.append("tests.middleware.choosing")
