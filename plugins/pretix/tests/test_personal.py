"""Personal data: pretix's shredder and exporter reach what Tillgate stores."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pytest
from pretix.base.models import CachedFile
from pretix.base.services import shredder as service
from pretix.base.shredder import PaymentInfoShredder, ShredError
from pretix.base.signals import register_data_exporters

from tests.shopping import at, bought, event_of
from tillgate.django.models import Notification, Payment, Refund, Review, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.django.reviews import closing
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason
from tillgate.testing.world import World
from tillgate_pretix.orders import REVIEW_LOGGED
from tillgate_pretix.personal import Exporter, Shredder


def refused(world: World) -> tuple[Any, Payment]:
    """Return an order with a payment, a refused refund and a resolved review, of which pretix's
    history tells too.
    """
    order, payment = bought(world)
    world.sandbox.control.fault("refused", occasion="refund")
    queueing.refund(payment.pk, "1.00", reason="for Ann")
    open_review(ReviewReason.OVERPAID, {"detail": "Ann paid too much"}, "worker", payment)
    world.run_worker()
    closing.resolve(Review.objects.get().pk, "talked to Ann", "clerk")
    with at(order):
        order.log_action(REVIEW_LOGGED, {"reason": "overpaid", "message": "Ann paid too much"})
    return order, payment


def told(order: Any) -> str:
    with at(order):
        return str([entry.parsed_data for entry in order.all_logentries()])


def stored() -> str:
    models: tuple[Any, ...] = (Notification, Payment, Refund, Review, TimelineEntry)
    return str([list(model.objects.values()) for model in models])


def test_event_shredder_erases_and_exports_details(
    world: World,
) -> None:
    """pretix hands the details out before it erases them."""
    order, payment = refused(world)
    event = event_of(world)
    assert "Ann" in stored()
    assert "Ann" in told(order)
    with at(order):
        assert isinstance(event.get_data_shredders()["tillgate"], Shredder)
        file = service.export.apply(kwargs={"event": event.pk, "shredders": ["tillgate"]}).get()
        with ZipFile(BytesIO(CachedFile.objects.get(pk=file).file.read())) as archive:
            [bill] = json.loads(archive.read("tillgate.json"))[order.code]
            code = archive.read("CONFIRM_CODE.txt").decode()
        service.shred.apply(
            kwargs={"event": event.pk, "fileid": str(file), "confirm_code": code},
        ).get()
    assert bill["payments"][0]["reference"] == payment.reference
    assert bill["refunds"][0]["reason"] == "for Ann"
    assert not Notification.objects.exists()
    assert "Ann" not in stored() + told(order)
    assert queueing.refund(payment.pk, "5.00").status == "succeeded", (
        "the money can still be refunded"
    )


def test_payment_shredder_erases_details_too(world: World) -> None:
    order, _ = refused(world)
    with at(order):
        PaymentInfoShredder(order.event).shred_data()
    assert not Notification.objects.exists()
    assert "Ann" not in stored() + told(order)


def test_shredder_keeps_and_names_open_orders(
    world: World,
) -> None:
    """All other orders are erased."""
    (first, payment), (second, _) = bought(world), bought(world)
    open_review(ReviewReason.OVERPAID, {"found": "2.00"}, "worker", payment)
    world.run_worker()
    progress: list[float] = []
    with at(first), pytest.raises(ShredError) as caught:
        Shredder(event_of(world)).shred_data(progress.append)
    assert first.code in str(caught.value)
    assert second.code not in str(caught.value)
    assert set(Notification.objects.values_list("payment", flat=True)) == {payment.pk}
    assert progress == [50.0, 100.0]


def test_exporter_writes_orders_without_keys(world: World) -> None:
    """It exports one order or all of them."""
    (first, payment), (second, _) = bought(world), bought(world)
    event = event_of(world)
    with at(first):
        assert Exporter in [found for _, found in register_data_exporters.send(event)]
        exporter = Exporter(event, event.organizer)
        assert list(exporter.export_form_fields) == ["order"]
        name, kind, everything = exporter.render({"order": ""})
        _, _, one = exporter.render({"order": f" {first.code.lower()} "})
    assert (name, kind) == (f"{event.slug}_tillgate.json", "application/json")
    assert set(json.loads(everything)) == {first.code, second.code}
    [bill] = json.loads(one)[first.code]
    assert (
        bill["payments"][0]["transaction_no"] == Payment.objects.get(pk=payment.pk).transaction_no
    )
    assert payment.return_key not in everything
