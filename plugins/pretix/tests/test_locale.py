"""The languages: every text in those of staff, and what shoppers read in the others."""

from pathlib import Path

import pytest

import tillgate_pretix
from tillgate.testing.translations import (
    SHOPPER_LANGUAGES,
    STAFF_LANGUAGES,
    faults_of_catalogue,
)

APP = Path(tillgate_pretix.__path__[0])
READ_BY_SHOPPERS = (
    "templates/tillgate_pretix/pending.html",
    "templates/tillgate_pretix/returned.html",
    "templates/tillgate_pretix/choose.html",
    "templates/tillgate_pretix/order_info.html",
    "mail.py",
    "orders.py",
    "views.py",
    "provider.py",
)


@pytest.mark.parametrize("language", STAFF_LANGUAGES)
def test_staff_languages_have_every_text(language: str) -> None:
    assert faults_of_catalogue(APP, language) == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_shopper_texts_exist_in_every_language(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []
