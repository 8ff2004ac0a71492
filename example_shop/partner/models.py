"""Oscar's models, unchanged."""

from oscar.apps.partner.models import *  # what Oscar asks of an app in place of its own
