"""The languages: German for every text, and those of the wallets' users for the texts that shoppers
read.
"""

from pathlib import Path

import pytest

import tillgate_pretix
from tillgate.testing.translations import SHOPPER_LANGUAGES, faults_of_catalogue

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


def test_german_catalogue_is_complete_and_compiled() -> None:
    assert faults_of_catalogue(APP, "de") == []


@pytest.mark.parametrize("language", SHOPPER_LANGUAGES)
def test_shopper_texts_exist_in_every_language(language: str) -> None:
    assert faults_of_catalogue(APP, language, READ_BY_SHOPPERS) == []
