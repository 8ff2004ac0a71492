"""The languages: German for every text, and those of the wallets' users for the texts that shoppers
read.
"""

from pathlib import Path

import pytest

import tillgate_oscar
from tillgate.testing.translations import SHOPPER_LANGUAGES, faults_of_catalogue

APP = Path(tillgate_oscar.__path__[0])
READ_BY_SHOPPERS = (
    "templates/tillgate_oscar/*.html",
    "templates/tillgate_oscar/checkout/*.html",
    "templates/tillgate/*.html",
    "templates/oscar/communication/**/*",
    "checkout/*.py",
    "views.py",
    "orders.py",
    "confirmation.py",
    "basket.py",
)


def test_german_texts_are_complete_and_compiled() -> None:
    assert faults_of_catalogue(APP, "de") == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_shopper_texts_exist_in_every_language(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []
