"""The API's answer to a new order, with the address of its payment page."""

from __future__ import annotations

from typing import Any

from oscarapi.serializers import checkout

from tillgate_oscar.placing import payment_url


class OrderSerializer(checkout.OrderSerializer):  # type: ignore[misc]  # it ships no types
    """Leads to Tillgate's payment page."""

    def get_payment_url(self, obj: Any) -> str:
        return payment_url(obj)
