"""German: every text that is shown to somebody is translated."""

from pathlib import Path

import tillgate_saleor
from tillgate.testing.translations import faults_of_catalogue


def test_every_text_is_in_german() -> None:
    assert faults_of_catalogue(Path(tillgate_saleor.__path__[0]), "de") == []
