"""Transactions of ours: never nested in the host's, never open while the network is used (I12)."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.django.conftest import World
from tillgate.django.models import Order
from tillgate.django.operations.locking import (
    InsideTransaction,
    database,
    durable,
    locked_order,
    outside_transactions,
    without_atomic_requests,
)


def test_i12_an_operation_that_uses_the_network_says_where_it_was_called_and_what_to_do() -> None:
    outside_transactions("refund")
    with pytest.raises(InsideTransaction) as caught, transaction.atomic():
        outside_transactions("refund")
    assert str(caught.value) == (
        "refund uses the network and was called inside a transaction of database 'default': "
        "call it after the transaction, queue the work, or exempt the view from ATOMIC_REQUESTS"
    )


def test_our_own_transactions_are_never_nested_in_the_hosts(world: World) -> None:
    order = world.start(world.order()).order
    with locked_order(order.pk) as locked:
        assert locked == order
        assert transaction.get_connection(database()).in_atomic_block
    for ours in (durable, lambda: locked_order(order.pk)):
        with transaction.atomic(), pytest.raises(RuntimeError, match="durable"), ours():
            pass
    with durable():
        Order.objects.update(plugin="another")
        transaction.set_rollback(True, using=database())
    assert Order.objects.get().plugin == world.shop.plugin


def test_a_view_is_exempt_from_the_transactions_of_every_database() -> None:
    view = without_atomic_requests(lambda request: None)
    assert vars(view)["_non_atomic_requests"] == {"default"}
