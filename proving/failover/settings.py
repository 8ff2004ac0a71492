"""The test project on the servers that PGHOST and PGPORT name: libpq takes the first of them that
can be written to.
"""

from __future__ import annotations

import os

os.environ["TILLGATE_TEST_DATABASE"] = "postgresql"

from tests.django.project import *  # noqa: F403  # it reads the variable when it is imported
from tests.django.project import DATABASES as _DATABASES
from tests.django.project import TILLGATE as _TILLGATE

DATABASES = _DATABASES
DATABASES["default"] |= {
    "NAME": "shop",
    "OPTIONS": {"target_session_attrs": "read-write", "connect_timeout": 5},
}
TILLGATE = {
    **_TILLGATE,
    "ACCOUNTS": {
        "default": {**_TILLGATE["ACCOUNTS"]["default"], "BASE_URL": os.environ["FAILOVER_GATEWAY"]},  # type: ignore[index]
    },
    "PUBLIC_URL": os.environ["FAILOVER_SHOP"],
}
