"""The search for faults of a catalogue finds them, and nothing in a right one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tillgate.django
from tillgate.testing.translations import faults_of_catalogue

APP = Path(tillgate.django.__file__).parent
SOURCE = "locale/de/LC_MESSAGES/django.po"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A copy of Tillgate's own app, whose catalogue is right."""
    shutil.copytree(APP, tmp_path / "app")
    assert faults_of_catalogue(tmp_path / "app", "de") == []
    return tmp_path / "app"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (
            "pages/tickets.py",
            '"""Tickets',
            'gettext_noop("Not yet translated")\n"""Tickets',
            "not in django.po: 'Not yet translated'",
        ),
        (
            "pages/tickets.py",
            '"""Tickets',
            'translation.gettext("By the module")\n"""Tickets',
            "not in django.po: 'By the module'",
        ),
        (
            "pages/tickets.py",
            '"""Tickets',
            'ngettext_lazy("%d cat", "%d cats", 2)\n"""Tickets',
            "not in django.po: '%d cat'",
        ),
        (
            "pages/tickets.py",
            '"""Tickets',
            'ngettext_lazy("%d cat", "%d cats", 2)\n"""Tickets',
            "not in django.po: '%d cats'",
        ),
        (
            "templates/tillgate/base.html",
            "{% load",
            '{% load i18n %}{% translate "Forgotten" %}{% load',
            "not in django.po: 'Forgotten'",
        ),
        (
            SOURCE,
            'msgstr "',
            'msgstr ""\n\nmsgid "Nobody says this"\nmsgstr "',
            "nothing uses it any more: 'Nobody says this'",
        ),
        (SOURCE, "#, python-format", "#, fuzzy, python-format", "fuzzy in django.po"),
        (
            SOURCE,
            "werden: %(detail)s.",
            "werden.",
            "other placeholders: 'Diese Bestellung kann nicht bezahlt werden.'",
        ),
        (SOURCE, "#, python-format", '#~ msgid "a"\n\n#, python-format', "#~ in django.po"),
    ],
)
def test_catalogue_errors_are_found(
    app: Path,
    file: str,
    old: str,
    new: str,
    fault: str,
) -> None:
    change(app / file, old, new)
    assert fault in faults_of_catalogue(app, "de")


def test_missing_and_uncompiled_translations_are_found(
    app: Path,
) -> None:
    change(app / SOURCE, "Diese Bestellung kann nicht bezahlt werden: %(detail)s.", "")
    assert faults_of_catalogue(app, "de") == [
        "not translated: 'This order cannot be paid: %(detail)s.'",
        "django.mo is not made from django.po: run `django-admin compilemessages`",
    ]


def test_app_without_marked_texts_proves_nothing(tmp_path: Path) -> None:
    shutil.copytree(APP / "locale", tmp_path / "locale")
    assert faults_of_catalogue(tmp_path, "de")[0] == f"nothing is marked in {tmp_path.name}"
