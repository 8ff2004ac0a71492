"""The style by which Tillgate's pages have the colours of an event."""

from __future__ import annotations

import re
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django_scopes import scopes_disabled
from pretix.base.models import Event

_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")
_LEAST_CONTRAST: Final = 4.5
"""What WCAG asks of text."""
_INK: Final = "#17212b"


@require_safe
def stylesheet(request: HttpRequest, event: int) -> HttpResponse:
    """Return the variables of Tillgate's style in the colours of an event, made dark enough that
    text in them can be read.
    """
    with scopes_disabled():
        kept = get_object_or_404(Event.objects.select_related("organizer"), pk=event).settings
    background = _colour(kept.get("theme_color_background"), "#f5f5f5")
    is_dark = _contrast(background, "#ffffff") >= _LEAST_CONTRAST
    colours = {
        "accent": _readable(_colour(kept.get("primary_color"), _INK)),
        "background": background,
        "on_background": "#ffffff" if is_dark else _INK,
    }
    answer = render(request, "tillgate_pretix/colours.css", colours, content_type="text/css")
    answer["Cache-Control"] = "public, max-age=300"
    return answer


def _colour(found: Any, default: str) -> str:
    return found if isinstance(found, str) and _COLOUR.fullmatch(found) else default


def _parts(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def _luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.1."""
    shares = [part / 255 for part in _parts(colour)]
    red, green, blue = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _readable(colour: str) -> str:
    """Return a colour, darker where it is too light for text on white."""
    while _contrast(colour, "#ffffff") < _LEAST_CONTRAST:
        colour = "#" + "".join(f"{int(part * 0.9):02x}" for part in _parts(colour))
    return colour
