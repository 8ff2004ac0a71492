"""`manage.py load_catalogue`: the shop's products with pictures and texts, and its name and host.
Run again it changes only words and prices.
"""

from typing import Any

from django.core.management.base import BaseCommand

from example_shop import catalogue


class Command(BaseCommand):
    """Loads the catalogue."""

    help = (
        "Loads the shop's catalogue, its pictures, its country and its voucher. Safe to run again."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        """Load it, and count its products."""
        catalogue.load()
        self.stdout.write(
            f"{len(catalogue.GOODS)} products in {len(catalogue.CATEGORIES)} categories, voucher "
            f"{catalogue.VOUCHER}",
        )
