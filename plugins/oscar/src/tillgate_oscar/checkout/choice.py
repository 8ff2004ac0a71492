"""How the shopper will pay: what is offered, and what was chosen, which Oscar's checkout session keeps under its own key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import oscar
from django.utils.translation import gettext as _
from oscar.core.loading import get_class

from tillgate.django.conf import get_settings as get_tillgate_settings
from tillgate.wire.money import CURRENCY
from tillgate_oscar.conf import get_settings

__all__ = [
    "OTHERS",
    "chosen",
    "forget",
    "has_other_ways",
    "initial",
    "is_free",
    "is_oscars_own",
    "offered",
    "remember",
    "why_not_offered",
]

OTHERS: Final = "others"
"""In the query of the payment method's address: show the shop's own ways to pay."""
_PREFIX: Final = "tillgate:"
_ANSWERS: Final = frozenset({"dispatch", "get", "post", "form_class", "form_valid"})
"""What a shop writes on its view to take a choice of its own."""


def remember(checkout_session: Any, method: str) -> None:
    """Remember the payment method. Under Oscar's own key, so that a shop's code which chooses another way to pay replaces it."""
    checkout_session.pay_by(_PREFIX + method)


def forget(checkout_session: Any) -> None:
    """Forget the payment method, and leave what the shop's own code has chosen."""
    if chosen(checkout_session) is not None:
        checkout_session.pay_by(None)


def chosen(checkout_session: Any) -> str | None:
    """Return the payment method that was chosen, which need not be offered any more, or None when the shopper pays in another way."""
    method = checkout_session.payment_method()
    return method.removeprefix(_PREFIX) if isinstance(method, str) and method.startswith(_PREFIX) else None


def initial(checkout_session: Any) -> dict[str, str]:
    """Return the form's initial values: what was chosen before, if it is still offered."""
    method = chosen(checkout_session)
    return {"method": method} if method in offered() else {}


def offered() -> tuple[str, ...]:
    """Return the payment methods that the owner enabled."""
    return tuple(method.value for method in get_tillgate_settings().payment_methods)


def is_free(total: Any) -> bool:
    """Tell whether nothing is to be paid, by the rule by which Oscar skips the payment."""
    return bool(total.excl_tax == 0)


def why_not_offered(total: Any) -> str | None:
    """Return why Tillgate cannot take an order's payment, for the shopper, or None when it can."""
    if not offered():
        return _("No way to pay is offered at the moment. Please ask the shop.")
    if total is not None and total.currency != CURRENCY:
        return _("Only orders in US dollars can be paid here, and this one is in %(currency)s.") % {"currency": total.currency}
    return None


def has_other_ways() -> bool:
    """Tell whether the shop takes other payments too: as it says, or when it answers the payment method's step or takes payments itself.

    One that only changed how the step looks takes none: its shoppers must choose a payment method, or they would get an order that nobody
    pays.
    """
    said = get_settings().other_ways_to_pay
    if said is not None:
        return said
    method, details = (get_class("checkout.views", name) for name in ("PaymentMethodView", "PaymentDetailsView"))
    return bool(_ANSWERS & _written_by_shop(method)) or "handle_payment" in _written_by_shop(details)


def _written_by_shop(view: type[Any]) -> set[str]:
    libraries = ("oscar", "django", "tillgate_oscar", "builtins")
    return {name for base in view.__mro__ if base.__module__.partition(".")[0] not in libraries for name in vars(base)}


def is_oscars_own(template: Any) -> bool:
    """Tell whether a template is Oscar's, which no shop has replaced."""
    return Path(template.origin.name).is_relative_to(Path(oscar.__path__[0]))
