"""The shop's own words in German: the language switch leads to pages without a mixture."""

from pathlib import Path

import example_shop
from tillgate.testing.translations import faults_of_catalogue


def test_every_text_of_the_shop_is_translated_and_compiled() -> None:
    assert faults_of_catalogue(Path(example_shop.__file__).parent, "de") == []
