"""The names of the package as type checkers see them: `__init__.py` resolves them on first use."""
# ruff: noqa: F403  # the `__all__` of each module tells its names

from typing import Final

from tillgate import money as money
from tillgate.shop.accounts import *
from tillgate.shop.checks import *
from tillgate.shop.fields import *
from tillgate.shop.http import *
from tillgate.shop.orders import *
from tillgate.shop.payments import *
from tillgate.shop.personal import *
from tillgate.shop.refunds import *
from tillgate.shop.remote import *
from tillgate.shop.reviews import *
from tillgate.shop.settings import *
from tillgate.shop.staff import *
from tillgate.shop.states import *
from tillgate.shop.web import *
from tillgate.shop.worker import *

MODULES: Final[dict[str, tuple[str, ...]]]
