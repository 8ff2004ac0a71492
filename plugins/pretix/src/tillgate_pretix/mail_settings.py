"""The page on which organizers edit the mails about payments, with pretix's own fields and preview.

pretix's page *Email* takes no fields of plugins, so this is a page beside it in the settings.
"""

from __future__ import annotations

from typing import Any, Final

from bleach import clean
from django import forms
from django.http import HttpResponse, HttpResponseBadRequest, JsonResponse
from django.template.loader import get_template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from i18nfield.forms import I18nFormField, I18nTextInput
from pretix.base.forms import I18nMarkdownTextarea, PlaceholderValidator, SettingsForm
from pretix.base.i18n import language
from pretix.base.services.placeholders import FormPlaceholderMixin, get_sample_context
from pretix.base.templatetags.rich_text import markdown_compile_email
from pretix.control.views.event import (
    EventSettingsFormView,
    EventSettingsViewMixin,
    MailSettingsPreview,
)
from pretix.helpers.format import SafeFormatter, format_map

from tillgate_pretix.configuration import APP
from tillgate_pretix.mail import CONTEXT, TEMPLATES

PERMISSION: Final = "event.settings.general:write"
_TITLES: Final = {
    "waits": _("Money is on its way, or a voucher is to be paid"),
    "voucher_ends": _("A voucher ends in a day"),
    "failed": _("Money on its way has not arrived"),
    "refunded": _("Money was refunded"),
    "refund_returned": _("A refund came back"),
    "dispute_lost": _("A dispute was lost"),
    "paid_twice": _("The order was paid twice"),
    "held": _("Money has arrived that did not pay the order"),
}


def page_url(event: Any, name: str = "mails") -> str:
    """Return the address of the page, or of its preview."""
    kwargs = {"organizer": event.organizer.slug, "event": event.slug}
    return reverse(f"plugins:tillgate_pretix:{name}", kwargs=kwargs)


class MailsForm(FormPlaceholderMixin, SettingsForm):  # type: ignore[misc]  # pretix has no types
    """Switch, subject and text of each mail."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.event = kwargs["obj"]
        super().__init__(*args, **kwargs)
        for template in TEMPLATES:
            self.fields[template.send_setting] = forms.BooleanField(
                label=_("Send this email"),
                required=False,
            )
            texts = (
                (template.subject_setting, _("Subject"), I18nTextInput),
                (template.text_setting, _("Text"), I18nMarkdownTextarea),
            )
            for name, label, widget in texts:
                self.fields[name] = I18nFormField(
                    label=label,
                    required=False,
                    widget=widget,
                    locales=self.locales,
                )
                is_rich = name == template.text_setting
                self._set_field_placeholders(name, list(CONTEXT), rich=is_rich)


# pretix has no types
class MailsView(EventSettingsViewMixin, EventSettingsFormView):  # type: ignore[misc]
    """Shows and stores the texts of the mails."""

    permission = PERMISSION
    form_class = MailsForm
    template_name = "tillgate_pretix/mails.html"

    def get_context_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the mails, and the address of the preview."""
        request: Any = self.request  # pretix puts the event there
        context: dict[str, Any] = super().get_context_data(*args, **kwargs)
        preview_url = page_url(request.event, "mails-preview")
        return {
            **context,
            "mails": [(one, _TITLES[one.about]) for one in TEMPLATES],
            "preview_url": preview_url,
        }

    def get_success_url(self) -> str:
        """Return to the page."""
        request: Any = self.request
        return page_url(request.event)


class PreviewView(MailSettingsPreview):  # type: ignore[misc]  # pretix has no types
    """Shows a text as it is typed, with samples for the placeholders."""

    permission = PERMISSION

    def post(self, request: Any, *_args: Any, **_kwargs: Any) -> HttpResponse:
        """Return the text in each language of the event."""
        item = request.POST.get("item", "")
        names = [name for one in TEMPLATES for name in (one.subject_setting, one.text_setting)]
        if item not in names:
            return HttpResponseBadRequest()
        shown = {}
        for index, code in self.supported_locale.items():
            typed = request.POST.get(f"{item}_{index}")
            if typed is not None:
                with language(code, request.event.settings.region):
                    shown[code] = _previewed(request.event, item, typed)
        return JsonResponse({"item": item, "msgs": shown})


def _previewed(event: Any, item: str, typed: str) -> str:
    sample = get_sample_context(event, list(CONTEXT))
    try:
        if item.startswith("mail_subject_"):
            return str(format_map(clean(typed), sample, raise_on_missing=True))
        text = markdown_compile_email(format_map(typed, sample, raise_on_missing=True))
        return str(format_map(text, sample, mode=SafeFormatter.MODE_RICH_TO_HTML))
    except (KeyError, ValueError):
        message = PlaceholderValidator.error_message
        return format_html('<div class="alert alert-danger">{}</div>', message)


def hint_html(request: Any) -> str:
    """Return the line that leads from pretix's page *Email* to this one, or an empty string."""
    event = getattr(request, "event", None)
    is_here = request.resolver_match.view_name == "control:event.settings.mail"
    if event is None or not is_here or APP not in event.get_plugins():
        return ""
    context = {"url": page_url(event)}
    return str(get_template("tillgate_pretix/mails_hint.html").render(context, request))
