"""The languages of staff: every visible text is translated."""

from pathlib import Path

import pytest

import tillgate_saleor
from tillgate.testing.translations import STAFF_LANGUAGES, faults_of_catalogue


@pytest.mark.parametrize("language", STAFF_LANGUAGES)
def test_staff_languages_have_every_text(language: str) -> None:
    assert faults_of_catalogue(Path(tillgate_saleor.__path__[0]), language) == []
