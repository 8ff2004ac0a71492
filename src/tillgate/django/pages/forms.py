"""The payment method choice: plain radio buttons in a fieldset, which a shop's own CSS can
style.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.forms.boundfield import BoundWidget
from django.utils.translation import gettext_lazy as _

from tillgate.django.accounts import find_account
from tillgate.django.amounts import AmountField
from tillgate.django.methods import MethodChoice, choices_for
from tillgate.money import Money
from tillgate.wire.methods import Terminal


class MethodForm(forms.Form):
    """Choose one of the payment methods that the owner enabled; the first is preselected, so that
    keyboard users need one key.
    """

    method = forms.ChoiceField(widget=forms.RadioSelect, label=_("How would you like to pay?"))

    def __init__(
        self,
        *arguments: Any,
        account: str = "default",
        price: Money | None = None,
        others: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        """`account` is the name of the account, and `price` the order's: a method that cannot take
        it is shown and cannot be chosen.

        `others` are the shop's own ways to pay, codes with names, such as cash on delivery. They
        stand below, in the same list.
        """
        super().__init__(*arguments, **options)
        own = [
            MethodChoice(code=code, label=str(name), currencies=(), kind="counter")
            for code, name in (others or {}).items()
        ]
        self.methods = (*choices_for(find_account(account), price), *own)
        field = self.fields["method"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(one.code, one.label) for one in self.methods if not one.problem]
        codes = [code for code, _label in field.choices]
        if codes and self.initial.get("method") not in codes:
            self.initial["method"] = codes[0]

    def rows(self) -> list[tuple[MethodChoice, BoundWidget | None]]:
        """Return every method with its radio button, or None for one that cannot take the order."""
        radios = {radio.data["value"]: radio for radio in self["method"]}
        return [
            (method, radios.get(method.code))
            for method in self.methods
            if method.code in radios or method.problem
        ]


class RefundForm(forms.Form):
    """The amount and the reason of a refund, of at most the money that is left. The operation
    validates them too.

    Show it to staff with the permission `tillgate.refund_payment`.
    """

    reason = forms.CharField(label=_("Reason"), max_length=255, required=False)

    field_order = ("amount", "reason")

    def __init__(self, left: Money, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["amount"] = AmountField(most=left)
        self.order_fields(self.field_order)


def terminal_of(user_agent: str) -> Terminal:
    """Return the shopper's terminal: a phone's browser, or a desktop's. The terminals of apps are
    only for apps that declare them.
    """
    is_phone = any(mark in user_agent for mark in ("Mobi", "Android", "iPhone"))
    return Terminal.WAP if is_phone else Terminal.ONLINE
