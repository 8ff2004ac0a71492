"""German, the proof that every text of the plugin can be translated."""

from pathlib import Path

import tillgate_oscar
from tillgate.testing.translations import faults_of_catalogue


def test_every_text_is_translated_into_german_and_compiled() -> None:
    assert faults_of_catalogue(Path(tillgate_oscar.__path__[0]), "de") == []
