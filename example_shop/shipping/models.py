"""Oscar's models, unchanged."""

from oscar.apps.shipping.models import *  # noqa: F403  # what Oscar asks of an app in place of its own
