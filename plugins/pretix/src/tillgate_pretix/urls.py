"""The addresses of an event. The app adds Tillgate's own pages, which belong to no event."""

from __future__ import annotations

from django.urls import path
from pretix.multidomain import event_url

from tillgate.shop import without_atomic_requests
from tillgate_pretix import connection, mail_settings, organizer, staff, views
from tillgate_pretix.accounts import HOLDER

_START = r"^tillgate/start/(?P<order>[^/]+)/(?P<secret>[A-Za-z0-9]+)/(?P<payment>[0-9]+)/$"
_STATUS = r"^tillgate/status/(?P<order>[^/]+)/(?P<secret>[A-Za-z0-9]+)/$"
_RETURN = r"^tillgate/order/(?P<order>[^/]+)/(?P<tag>[a-f0-9]+)/$"

urlpatterns = [
    path(
        "control/organizer/<str:organizer>/tillgate/",
        without_atomic_requests(organizer.OrganizerSettingsView.as_view()),
        name="organizer",
    ),
    path(
        "control/event/<str:organizer>/<str:event>/tillgate/",
        without_atomic_requests(staff.ReviewsView.as_view()),
        name="review",
    ),
    path(
        "control/event/<str:organizer>/<str:event>/tillgate/poll/<str:order>/",
        without_atomic_requests(staff.PollView.as_view()),
        name="poll",
    ),
    path(
        "control/event/<str:organizer>/<str:event>/tillgate/settings/",
        without_atomic_requests(connection.TestConnectionView.as_view()),
        {"provider": HOLDER},
        name="test",
    ),
    path(
        "control/event/<str:organizer>/<str:event>/tillgate/mails/",
        mail_settings.MailsView.as_view(),
        name="mails",
    ),
    path(
        "control/event/<str:organizer>/<str:event>/tillgate/mails/preview/",
        mail_settings.PreviewView.as_view(),
        name="mails-preview",
    ),
]

event_patterns = [
    # A shopper can pay and view an order after the shop has closed.
    event_url(_START, views.start, name="start", require_live=False),
    event_url(_STATUS, views.status, name="status", require_live=False),
    event_url(_RETURN, views.returned, name="return", require_live=False),
]
