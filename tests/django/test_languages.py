"""The languages: every text in those of staff, and the shoppers' texts in the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

import tillgate.django
from tillgate.testing.translations import (
    SHOPPER_LANGUAGES,
    STAFF_LANGUAGES,
    faults_of_catalogue,
)
from tillgate.testing.world import World

APP = Path(tillgate.django.__file__).parent
READ_BY_SHOPPERS = (
    "templates/tillgate/*.html",
    "pages/shoppers.py",
    "pages/paying.py",
    "pages/forms.py",
    "pages/awaited.py",
    "pages/outcomes.py",
    "methods.py",
    "payments/*.py",
)


@pytest.mark.parametrize("language", STAFF_LANGUAGES)
def test_staff_languages_have_every_text(language: str) -> None:
    assert faults_of_catalogue(APP, language) == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_shopper_texts_exist_in_every_language(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []


@pytest.mark.parametrize(
    ("language", "direction", "title"),
    [
        ("ur", ' dir="rtl"', "ادائیگی کا طریقہ منتخب کریں"),
        ("fil", "", "Piliin kung paano magbabayad"),
    ],
)
def test_page_follows_browsers_language(
    world: World,
    settings: object,
    language: str,
    direction: str,
    title: str,
) -> None:
    """It follows the direction of that language, too."""
    settings.LANGUAGES = [(language, language)]  # type: ignore[attr-defined]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]  # type: ignore[attr-defined]
    page = (
        Client(headers={"Accept-Language": language})
        .get(world.way_to_pay(world.order()))
        .content.decode()
    )
    assert f'<html lang="{language}"{direction}>' in page
    assert title in page
