"""The shop as a Django app; it knows a name and an address of each order's shopper."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import AppConfig

from tillgate.hooks import Customer, hookimpl


class DeskConfig(AppConfig):
    """A shop without rows of its own."""

    name = "tools.benchmarks.desk"
    label = "benchmark_desk"

    def ready(self) -> None:
        """Register the shop."""
        from tillgate import shop

        shop.register(Shop(), "benchmark-desk")


class Shop:
    """The plugin. It computes the shoppers, so that only Tillgate's tables are measured."""

    @hookimpl
    def tillgate_customers(self, order_keys: Sequence[str]) -> dict[str, Customer]:
        """Return the shoppers of several orders."""
        return {
            key: Customer(name=f"Ann Example {key}", email=f"ann{key}@shop.example")
            for key in order_keys
        }

    @hookimpl
    def tillgate_find_orders(self, text: str, limit: int) -> Sequence[str]:
        """Return the orders of an address, or the first of everybody's given name."""
        if text == "Ann":
            return [str(10_000_000 + number + 1) for number in range(limit)]
        key = text.removeprefix("ann").removesuffix("@shop.example")
        return [key] if key != text else []
