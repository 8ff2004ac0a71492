"""Oscar's search app, with this shop's shelves."""

from oscar.apps.search.apps import SearchConfig as OscarSearchConfig


class SearchConfig(OscarSearchConfig):  # type: ignore[misc]  # Oscar ships no types
    """In place of Oscar's own."""

    name = "example_shop.search"
