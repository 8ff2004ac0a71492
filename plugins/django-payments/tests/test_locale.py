"""The languages: German for every text, and those of the wallets' users for the texts that shoppers
read.
"""

from pathlib import Path

import pytest

import tillgate_django_payments
from tillgate.testing.translations import SHOPPER_LANGUAGES, faults_of_catalogue

APP = Path(tillgate_django_payments.__path__[0])
READ_BY_SHOPPERS = (
    "provider.py",
    "rows.py",
    "__init__.py",
)


def test_german_translation_is_complete_and_compiled() -> None:
    assert faults_of_catalogue(APP, "de") == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_shopper_texts_have_every_language(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []
