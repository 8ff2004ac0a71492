"""A wrong token or missing rights: the owner gets mail at the first answer that says so, and no
other trouble is blamed on the account.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.django.conftest import World
from tillgate import Refused, WrongCredentials
from tillgate.django.models import Review
from tillgate.django.payments import creating, starting


def test_wrong_token_opens_review_at_query(
    world: World,
    configure: Callable[..., None],
) -> None:
    """The first query that names the signature opens it."""
    order = world.order()
    world.configure({"TOKEN": "another-token-that-the-gateway-does-not-know"})
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert started.outcome is creating.StartOutcome.UNKNOWN, (
        "the documented answer to a creation says only 000000"
    )
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.reviews() == ["wrong-credentials"]
    assert "verifySign" in Review.objects.get().message


@pytest.mark.parametrize("operation", ["pay", "query"])
def test_missing_rights_open_a_review_at_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise WrongCredentials("000030", "no rights", 400)

    monkeypatch.setattr(f"tillgate.hooks.{operation}", denied)
    starting.start_payment(world.shop.plugin, world.order(), method="alipay")
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.reviews() == ["wrong-credentials"]


def test_supplier_trouble_blames_no_account(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.start(world.order())

    def trouble(*_: object, **__: object) -> None:
        raise Refused("000080", "supplier system error", 400)

    monkeypatch.setattr("tillgate.hooks.query", trouble)
    world.time.advance(minutes=1)
    world.run_worker()
    assert (world.reviews(), world.fresh(payment).is_open) == ([], True)
