"""The shopper's choice of a payment method. Oscar's checkout session keeps it under its own key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import oscar
from django.utils.translation import gettext as _
from oscar.core.loading import get_class

from tillgate import InvalidRequest, Money, shop
from tillgate_oscar.conf import get_settings

OTHERS: Final = "others"
"""A query parameter of the payment method step: show the shop's own ways to pay."""
_PREFIX: Final = "tillgate:"
_ANSWERS: Final = frozenset({"dispatch", "get", "post", "form_class", "form_valid"})
"""The methods that a shop overrides on its view to accept payments of its own."""


def remember(checkout_session: Any, method: str) -> None:
    """Remember the payment method under Oscar's own key, so that shop code that selects another way
    to pay replaces it.
    """
    checkout_session.pay_by(method if method in get_settings().other_methods else _PREFIX + method)


def forget(checkout_session: Any) -> None:
    """Forget the payment method, but keep a choice that the shop's own code made."""
    if chosen(checkout_session) is not None:
        checkout_session.pay_by(None)


def chosen(checkout_session: Any) -> str | None:
    """Return the chosen payment method, even if it is no longer offered, or None if the shopper
    pays in another way.
    """
    method = checkout_session.payment_method()
    return (
        method.removeprefix(_PREFIX)
        if isinstance(method, str) and method.startswith(_PREFIX)
        else None
    )


def chosen_other(checkout_session: Any) -> str | None:
    """Return the shop's own way to pay that the shopper chose in the list, or None."""
    method = checkout_session.payment_method()
    return method if isinstance(method, str) and method in get_settings().other_methods else None


def initial(checkout_session: Any) -> dict[str, str]:
    """Return the form's initial values: the earlier choice, if it is still offered."""
    method = chosen_other(checkout_session) or chosen(checkout_session)
    return {"method": method} if method in (*offered(), *get_settings().other_methods) else {}


def offered(total: Any = None) -> tuple[str, ...]:
    """Return the payment methods that the owner enabled; with a total, those that can take it."""
    return tuple(
        method.code for method in shop.payment_methods(price=price_of(total)) if not method.problem
    )


def price_of(total: Any) -> Money | None:
    """Return an order's total as the amount that is paid, or None where it is not known or has
    parts of a cent.
    """
    try:
        return (
            Money(total.incl_tax, total.currency)
            if total is not None and total.is_tax_known
            else None
        )
    except InvalidRequest:
        return None


def is_free(total: Any) -> bool:
    """Tell whether the total is zero, with the same rule as Oscar uses to skip the payment step."""
    return bool(total.excl_tax == 0)


def why_not_offered(total: Any) -> str | None:
    """Return why Tillgate cannot take an order's payment, for the shopper, or None when it can."""
    if not offered():
        return _("No way to pay is offered at the moment. Please ask the shop.")
    ours = shop.find_account("default").taken_currencies
    if total is not None and total.currency not in ours:
        said = _("Online payment takes only orders in %(ours)s, and this one is in %(currency)s.")
        return said % {"ours": ", ".join(ours), "currency": total.currency}
    price = price_of(total)
    if price is not None and not offered(total):
        return _("None of our payment methods takes %(amount)s.") % {
            "amount": shop.money_text(price.amount, price.currency),
        }
    return None


def has_other_ways() -> bool:
    """Tell whether the shop takes other payments too: by its setting, its own payment method step,
    or its own payment handling.

    A shop that only changed the look of the step takes no other payments. Its shoppers must choose
    a payment method, or they would get an order without a payment.
    """
    said = get_settings().other_ways_to_pay
    if said is not None:
        return said
    method = get_class("checkout.views", "PaymentMethodView")
    return any(is_written_by_shop(method, name) for name in _ANSWERS) or has_own_payment_handling()


def has_own_payment_handling() -> bool:
    """Tell whether the shop wrote a `handle_payment` of its own, which an order that is paid with
    Tillgate does not call.
    """
    return is_written_by_shop(get_class("checkout.views", "PaymentDetailsView"), "handle_payment")


def is_written_by_shop(view: type[Any], name: str) -> bool:
    """Tell whether a method of a view is the shop's own."""
    libraries = ("oscar", "django", "tillgate_oscar", "builtins")
    return any(
        name in vars(base)
        for base in view.__mro__
        if base.__module__.partition(".")[0] not in libraries
    )


def is_oscars_own(template: Any) -> bool:
    """Tell whether a template is Oscar's own and not replaced by the shop."""
    return Path(template.origin.name).is_relative_to(Path(oscar.__path__[0]))
