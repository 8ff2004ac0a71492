"""The settings of the shop that `nox -s upgrade` upgrades: the smallest shop, which also tells
others over the network.
"""

from __future__ import annotations

import os

from django.apps import AppConfig

from tests.django.project import *  # noqa: F403  # the settings of a small project
from tests.django.project import DATABASES, INSTALLED_APPS
from tests.django.project import TILLGATE as _TILLGATE
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN


class Shop(AppConfig):
    """The app that registers the plugin, in every process."""

    name = "tools.release"

    def ready(self) -> None:
        from tillgate import shop
        from tools.release.upgrade_shop import NAME, Plugin

        shop.register(Plugin(), NAME)


ROOT_URLCONF = "tools.release.upgrade_shop"
# the tests' name holds the working directory, of which old and new have one each
_NAME = os.environ["UPGRADE_DATABASE"]
DATABASES["default"]["NAME"] = DATABASES["default"]["TEST"]["NAME"] = _NAME
INSTALLED_APPS = [*INSTALLED_APPS, "tools.release.upgrade_settings.Shop"]
# play money, no mail, a quick SQLite
SILENCED_SYSTEM_CHECKS = [
    "tillgate.E003",
    "tillgate.W001",
    "tillgate.W007",
]
_ACCOUNT = {"MERCHANT_NO": PUBLISHED_MERCHANT_NO, "TOKEN": PUBLISHED_TEST_TOKEN, "SANDBOX": True}
TILLGATE = {
    **_TILLGATE,
    "ACCOUNTS": {"default": {**_ACCOUNT, "BASE_URL": os.environ["UPGRADE_GATEWAY"]}},
    "PUBLIC_URL": os.environ["UPGRADE_HOME"],
    "NOTIFICATION_THROTTLE_SECONDS": 5,
    "QUERIES_PER_SECOND": 50,
}
