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


def test_every_text_is_translated_into_german_and_compiled() -> None:
    assert faults_of_catalogue(APP, "de") == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_every_text_that_shoppers_read_is_in_each_of_their_languages(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []
