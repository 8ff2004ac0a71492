"""What the shop sells under which conditions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from oscar.core.loading import get_model


def make_offer(name: str, offer_type: str = "Site", **limits: int) -> Any:
    """Make an offer that takes a tenth off everything."""
    everything = get_model("offer", "Range").objects.create(name=name, includes_all_products=True)
    return get_model("offer", "ConditionalOffer").objects.create(
        name=name,
        offer_type=offer_type,
        condition=get_model("offer", "Condition").objects.create(
            range=everything,
            type="Count",
            value=1,
        ),
        benefit=get_model("offer", "Benefit").objects.create(
            range=everything,
            type="Percentage",
            value=10,
        ),
        **limits,
    )


def make_voucher(code: str, usage: str = "Single use") -> Any:
    """Make a voucher that takes a tenth off everything."""
    offer = make_offer(code, "Voucher")
    now = timezone.now()
    voucher = get_model("voucher", "Voucher").objects.create(
        name=code,
        code=code,
        usage=usage,
        start_datetime=now - timedelta(days=1),
        end_datetime=now + timedelta(days=60),
    )
    voucher.offers.add(offer)
    return voucher
