"""The payment method choice: plain radio buttons in a fieldset, which a shop's own CSS can
style.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.forms.boundfield import BoundWidget
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from tillgate.django.accounts import find_account
from tillgate.django.amounts import AmountField
from tillgate.django.methods import MethodChoice, choices_for
from tillgate.django.pages.browsers import app_of, opens_in
from tillgate.money import Money


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
        user_agent: str = "",
        **options: Any,
    ) -> None:
        """`account` is the name of the account, and `price` the order's: a method that cannot take
        it is shown and cannot be chosen.

        `others` are the shop's own ways to pay, codes with names, such as cash on delivery. They
        stand below, in the same list.

        `user_agent` is the request's: methods that cannot open in the browser of another app come
        last, with a remark.
        """
        super().__init__(*arguments, **options)
        own = [
            MethodChoice(code=code, label=str(name), currencies=(), kind="counter")
            for code, name in (others or {}).items()
        ]
        self.app = app_of(user_agent)
        here, elsewhere = [], []
        for one in choices_for(find_account(account), price):
            if one.problem or opens_in(self.app, one.code):
                here.append(one)
            else:
                elsewhere.append(replace(one, remark=gettext("opens in your browser only")))
        self.methods = (*here, *own, *elsewhere)
        self.elsewhere = ", ".join(one.label for one in elsewhere)
        field = self.fields["method"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(one.code, one.label) for one in self.methods if not one.problem]
        codes = [code for code, _label in field.choices]
        if codes and self.initial.get("method") not in codes:
            self.initial["method"] = codes[0]

    def opens_here(self, code: str) -> bool:
        """Tell whether a payment method can open in the shopper's browser."""
        return not any(one.code == code and one.remark for one in self.methods)

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
