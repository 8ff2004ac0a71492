"""How a parcel travels."""

from decimal import Decimal

from django.utils.translation import gettext_lazy as _
from oscar.apps.shipping import methods, repository

from example_shop.tax import with_tax


class _Post(methods.FixedPrice):  # type: ignore[misc]  # Oscar ships no types
    code = "post"
    name = _("By post")
    description = _("three to five working days")
    charge_excl_tax = Decimal("4.50")
    charge_incl_tax = with_tax(charge_excl_tax)


class _Courier(methods.FixedPrice):  # type: ignore[misc]  # Oscar ships no types
    code = "courier"
    name = _("By courier")
    description = _("the next working day")
    charge_excl_tax = Decimal("12.00")
    charge_incl_tax = with_tax(charge_excl_tax)


class Repository(repository.Repository):  # type: ignore[misc]  # Oscar ships no types
    """Two ways; products that travel by e-mail need none, as Oscar knows."""

    methods = (_Post(), _Courier())
