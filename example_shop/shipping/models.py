"""Oscar's models, unchanged."""

# Oscar asks this of an app in place of its own
from oscar.apps.shipping.models import *  # noqa: F403
