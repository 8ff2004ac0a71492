"""The settings of an organizer, which all events have that keep none of their own: one account for
all, instead of one typed into each event.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables
from django.views.generic import FormView
from pretix.base.forms import SettingsForm
from pretix.control.permissions import OrganizerPermissionRequiredMixin

from tillgate_pretix import accounts, connection
from tillgate_pretix.configuration import APP
from tillgate_pretix.holder import (
    FOR_ALL_EVENTS,
    account_fields,
    method_fields,
    raise_faults,
    unprefixed,
)


def page_url(organizer: Any) -> str:
    """Return the address of the page."""
    kwargs = {"organizer": organizer.slug}
    return reverse("plugins:tillgate_pretix:organizer", kwargs=kwargs)


class OrganizerForm(SettingsForm):  # type: ignore[misc]  # pretix has no types
    """Both accounts and the payment methods, as on an event's page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept = accounts.settings_of(self.obj)
        webhook_help = _("Each event has its own address for notifications; its page shows it.")
        fields = {
            **account_fields(self._kept, webhook_help, testmode=False),
            **account_fields(self._kept, webhook_help, testmode=True),
            **method_fields(),
        }
        self.fields.update({self._kept.get_prefix() + name: one for name, one in fields.items()})

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        """Refuse invalid accounts."""
        given: dict[str, Any] = super().clean()
        raise_faults(unprefixed(given, self._kept), self._kept)
        return given


# pretix has no types
class OrganizerSettingsView(OrganizerPermissionRequiredMixin, FormView):  # type: ignore[misc, type-arg]
    """Shows and stores the settings of an organizer."""

    permission = FOR_ALL_EVENTS
    form_class = OrganizerForm
    template_name = "tillgate_pretix/organizer.html"

    @cached_property
    def events(self) -> list[Any]:
        """Return the organizer's events that use the plugin."""
        request: Any = self.request  # pretix puts the organizer there
        return list(request.organizer.events.filter(plugins__contains=APP))

    def get_form_kwargs(self) -> dict[str, Any]:
        """Return the organizer, whose settings the form stores."""
        request: Any = self.request  # pretix puts the organizer there
        return {**super().get_form_kwargs(), "obj": request.organizer}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return how many events have these settings."""
        request: Any = self.request
        ours = _copy(request.organizer)
        own = [event for event in self.events if _copy(event) != ours]
        return {
            **super().get_context_data(**kwargs),
            "inheriting": len(self.events) - len(own),
            "own": own,
            "health": connection.health(request.organizer),
        }

    @sensitive_variables()
    def form_valid(self, form: Any) -> HttpResponse:
        """Store the settings, keep former accounts for each event, and test the new ones; or only
        test what was typed.
        """
        request: Any = self.request
        if "test_connection" in request.POST:
            kept = accounts.settings_of(request.organizer)
            connection.test_typed(request, kept, form.cleaned_data)
            return self.render_to_response(self.get_context_data(form=form))
        before = {event.pk: _copy(event) for event in self.events}
        with transaction.atomic():
            form.save()
            for event in request.organizer.events.filter(pk__in=before):
                accounts.keep_former(event, before[event.pk], _copy(event))
            if form.has_changed():
                # the names alone: values may be secrets
                changed = dict.fromkeys(form.changed_data, "********")
                request.organizer.log_action(
                    "pretix.organizer.settings",
                    user=request.user,
                    data=changed,
                )
        connection.test_saved(request.organizer)
        messages.success(request, _("Your changes have been saved."))
        for problem in connection.problems(request.organizer):
            messages.warning(request, problem)
        return redirect(page_url(request.organizer))


def _copy(holder: Any) -> dict[str, Any]:
    """Return the accounts that an event or an organizer has now."""
    kept = accounts.settings_of(holder)
    names = (*accounts.FIELDS, *accounts.OPTIONS)
    return {mode + name: kept.get(mode + name) for mode in ("", "test_") for name in names}
