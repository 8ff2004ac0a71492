"""Oscar's models, unchanged."""

# what Oscar asks of an app in place of its own
from oscar.apps.partner.models import *  # noqa: F403
