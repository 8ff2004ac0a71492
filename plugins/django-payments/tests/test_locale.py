"""The languages: every text in those of staff, and the shoppers' texts in the others."""

from pathlib import Path

import pytest

import tillgate_django_payments
from tillgate.testing.translations import (
    SHOPPER_LANGUAGES,
    STAFF_LANGUAGES,
    faults_of_catalogue,
)

APP = Path(tillgate_django_payments.__path__[0])
READ_BY_SHOPPERS = (
    "provider.py",
    "rows.py",
    "__init__.py",
)


@pytest.mark.parametrize("language", STAFF_LANGUAGES)
def test_staff_languages_have_every_text(language: str) -> None:
    assert faults_of_catalogue(APP, language) == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_shopper_texts_have_every_language(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []
