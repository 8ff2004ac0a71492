"""Refuse `tillgate` in INSTALLED_APPS. The Django app is `tillgate.django`.

Without this module Django would accept the library as an app without tables, checks and commands.
"""

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured


class TillgateIsNoApp(AppConfig):
    """Refuses to be installed."""

    name = "tillgate"

    def __init__(self, *_: object) -> None:
        remedy = (
            "put 'tillgate.django' into INSTALLED_APPS (it has 'tillgate', which is the library)."
        )
        raise ImproperlyConfigured(f"Tillgate needs its Django app: {remedy}")
