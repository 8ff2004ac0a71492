"""`tillgate.shop` needs the models of Tillgate's app: this module names the remedy without them."""

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured

if not apps.apps_ready:
    raise AppRegistryNotReady(
        "tillgate.shop is imported before the apps are loaded: in apps.py import it inside "
        "AppConfig.ready(), and in no settings and no __init__.py of an app",
    )
if not apps.is_installed("tillgate.django"):
    raise ImproperlyConfigured(
        'a plugin uses tillgate.shop, and Tillgate\'s own app is missing: add "tillgate.django" to '
        "INSTALLED_APPS",
    )
