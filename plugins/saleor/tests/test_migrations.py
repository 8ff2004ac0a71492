"""The tables: built forwards, removed backwards, built again."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection

from tests.double import SaleorDouble
from tests.storefront import RETURN_URL
from tillgate.testing.world import World


def tables() -> set[str]:
    with connection.cursor() as cursor:
        return {
            name
            for name in connection.introspection.table_names(cursor)
            if name.startswith("tillgate_saleor_")
        }


def test_migrations_run_in_both_directions(
    world: World,
    double: SaleorDouble,
) -> None:
    """The migrations run forwards, backwards to nothing and forwards again."""
    built = tables()
    assert len(built) == 4
    try:
        call_command("migrate", "tillgate_saleor", "zero", verbosity=0)
        assert tables() == set()
    finally:
        call_command("migrate", "tillgate_saleor", verbosity=0)
    assert tables() == built
    assert double.install()[0] == 200
    _, said = double.initialize(
        double.checkout(Decimal("19.90")),
        "key",
        {"method": "alipay", "returnUrl": RETURN_URL},
    )
    assert said["result"] == "CHARGE_ACTION_REQUIRED"


@pytest.mark.django_db
def test_the_migrations_say_what_the_models_say() -> None:
    said = io.StringIO()
    call_command("makemigrations", "tillgate_saleor", check=True, dry_run=True, stdout=said)
    assert "No changes detected" in said.getvalue()
