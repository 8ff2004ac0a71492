"""Amounts as people read and type them: in the language of the page, with their currency."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from tillgate.errors import InvalidRequest
from tillgate.money import Money, decimals_of, format_money, read_localized


def money_text(amount: Decimal, currency: str) -> str:
    """Return an amount with its currency, in the active language: "USD 1,234.50", "1.234,50
    EUR".
    """
    return format_money(amount, currency, _language())


def read_typed(text: str, currency: str) -> Decimal:
    """Return the amount that a person has typed in the active language; raise `InvalidRequest`
    where it is none, or may mean two.
    """
    return read_localized(text, currency, _language())


def typed_text(amount: Decimal, currency: str) -> str:
    """Return an amount as a person would type it in the active language, for an input: `read_typed`
    reads the same amount from it.
    """
    return money_text(amount, currency).replace(currency, "").strip()


def _language() -> str:
    return get_language() or settings.LANGUAGE_CODE


class AmountField(forms.CharField):
    """The input of an amount of one currency, up to `most`. A value is a `Decimal`."""

    default_error_messages = {  # noqa: RUF012  # Django's own attribute
        "invalid": _("This is not an amount of %(currency)s. Write it like %(example)s."),
        "too_much": _("That is more than the %(most)s that can still be refunded."),
    }

    def __init__(self, *, most: Money, **options: Any) -> None:
        options.setdefault("label", _("Amount in %(currency)s") % {"currency": most.currency})
        options.setdefault(
            "widget",
            forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
        )
        super().__init__(**options)
        self.most = most

    def prepare_value(self, value: Any) -> Any:
        """Return a stored amount as the reader would type it; a typed text stays as it is."""
        return typed_text(value, self.most.currency) if isinstance(value, Decimal) else value

    def clean(self, value: Any) -> Decimal | None:
        """Return the amount, or raise `ValidationError`."""
        text = super().clean(value)
        if not text:
            return None
        currency = self.most.currency
        try:
            amount = read_typed(text, currency)
        except InvalidRequest:
            example = typed_text(Decimal(1234).scaleb(-decimals_of(currency)), currency)
            raise ValidationError(
                self.error_messages["invalid"],
                "invalid",
                {"currency": currency, "example": example},
            ) from None
        if amount > self.most.amount:
            raise ValidationError(
                self.error_messages["too_much"],
                "too_much",
                {"most": money_text(self.most.amount, currency)},
            )
        return amount
