"""No app: what Django finds when INSTALLED_APPS names the library, with which all seems to work and no table, check or command is there."""

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured


class TillgateIsNoApp(AppConfig):
    """Refuses to be installed."""

    name = "tillgate"

    def __init__(self, *_: object) -> None:
        remedy = "put 'tillgate.django' into INSTALLED_APPS (it has 'tillgate', which is the library)."
        raise ImproperlyConfigured(f"Tillgate needs its Django app: {remedy}")
