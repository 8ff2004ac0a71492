"""The shop's own words in German: the language switch leads to pages without a mixture."""

from pathlib import Path

import example_shop
from tillgate.testing.translations import faults_of_catalogue


def test_every_shop_text_is_translated() -> None:
    """The translations are compiled too."""
    assert faults_of_catalogue(Path(example_shop.__file__).parent, "de") == []
