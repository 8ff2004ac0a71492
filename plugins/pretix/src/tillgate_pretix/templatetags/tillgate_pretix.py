"""The tag by which Tillgate's pages find the event that a payment belongs to."""

from __future__ import annotations

from typing import Any

from django import template
from pretix.multidomain.urlreverse import eventreverse_absolute

from tillgate_pretix.accounts import event_of_alias

register = template.Library()


@register.simple_tag
def event_of(payment: Any) -> dict[str, Any] | None:
    """Return name, address and number of a payment's event, or None for a page without one."""
    event = event_of_alias(payment.account) if payment else None
    if event is None:
        return None
    url = eventreverse_absolute(event, "presale:event.index")
    return {"name": event.name, "url": url, "pk": event.pk}
