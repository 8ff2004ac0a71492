"""The payment method choice: plain radio buttons in a fieldset, which a shop's own CSS can style."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from django import forms
from django.core.validators import MaxValueValidator
from django.utils.translation import gettext_lazy as _

from tillgate.django.conf import get_settings
from tillgate.django.models import MOST_DIGITS
from tillgate.wire.messages import PaymentMethod, Terminal

__all__ = ["METHOD_LABELS", "MethodForm", "RefundForm", "terminal_of"]

METHOD_LABELS: Final = {
    PaymentMethod.ALIPAY: "Alipay",
    PaymentMethod.WECHATPAY: "WeChat Pay",
    PaymentMethod.PAYPAL: "PayPal",
    PaymentMethod.VENMO: "Venmo",
    PaymentMethod.UNIONPAY: "UnionPay",
    PaymentMethod.CREDITCARD: _("Credit or debit card"),
    PaymentMethod.TRUEMONEY: "TrueMoney",
    PaymentMethod.ALIPAY_HK: "AlipayHK",
    PaymentMethod.TNG: "Touch 'n Go",
    PaymentMethod.GCASH: "GCash",
    PaymentMethod.DANA: "DANA",
    PaymentMethod.KAKAOPAY: "KakaoPay",
    PaymentMethod.BKASH: "bKash",
    PaymentMethod.EASYPAISA: "Easypaisa",
}
"""The label of each payment method for shoppers."""


class MethodForm(forms.Form):
    """Choose one of the payment methods that the owner enabled; the first is preselected, so that keyboard users need one key."""

    method = forms.ChoiceField(widget=forms.RadioSelect, label=_("How would you like to pay?"))

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        field = self.fields["method"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(method.value, METHOD_LABELS[method]) for method in get_settings().payment_methods]
        if field.choices:
            self.initial.setdefault("method", get_settings().payment_methods[0].value)


class RefundForm(forms.Form):
    """The amount and the reason of a refund. The operation validates them; the form only shows obvious errors sooner."""

    amount = forms.DecimalField(label=_("Amount in USD"), min_value=Decimal("0.01"), max_digits=MOST_DIGITS, decimal_places=2)
    reason = forms.CharField(label=_("Reason"), max_length=255, required=False)

    def __init__(self, left: Decimal, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        too_much = _("That is more than the USD %(limit_value)s that can still be refunded.")
        self.fields["amount"].validators.append(MaxValueValidator(left, too_much))
        self.fields["amount"].widget.attrs["max"] = str(left)


def terminal_of(user_agent: str) -> Terminal:
    """Return the shopper's terminal: a phone's browser, or a desktop's. The terminals of apps are only for apps that declare them."""
    is_phone = any(mark in user_agent for mark in ("Mobi", "Android", "iPhone"))
    return Terminal.WAP if is_phone else Terminal.ONLINE
