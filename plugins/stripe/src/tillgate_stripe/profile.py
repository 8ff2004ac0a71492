"""Stripe's limits as data: currencies, payment methods, languages, amounts and times. Each table
names its source.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from typing import Final

from tillgate import InvalidRequest, Method, Money
from tillgate.gateways import GatewayProfile, Option


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CURRENCIES: Final = _words(
    """
    USD EUR GBP AUD CAD CHF JPY CNY HKD SGD NZD SEK NOK DKK PLN CZK HUF RON BGN BRL MXN INR MYR THB PHP IDR KRW TWD VND AED SAR
    QAR KWD BHD OMR JOD TND ILS TRY ZAR EGP MAD NGN KES GHS UGX TZS RWF XAF XOF XPF XCD BBD BSD BZD BMD JMD TTD DOP GTQ HNL NIO
    CRC PAB COP PEN CLP ARS UYU BOB PYG GYD SRD HTG KYD AWG ISK ALL AMD AZN BAM GEL KZT KGS UZS TJS MDL MKD RSD UAH BDT LKR NPR
    PKR MVR MMK KHR LAK MNT MOP BND FJD PGK SBD TOP VUV WST BIF DJF ETB GMD GNF KMF LRD LSL MGA MUR MWK MZN NAD SCR SLE SZL ZMW
    YER LBP AFN DZD AOA BWP CVE
    """,
)
"""docs.stripe.com/currencies, "Supported presentment currencies". The account's country decides
which of them it takes.
"""

_WHOLE: Final = frozenset(_words("BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF"))
"""docs.stripe.com/currencies, "Zero-decimal currencies". ISO 4217 gives MGA two decimals, which
Stripe cannot take.
"""
_THREE: Final = frozenset(_words("BHD JOD KWD OMR TND"))
"""docs.stripe.com/currencies, "Three-decimal currencies"."""
_STEPS: Final = {
    **dict.fromkeys(
        _THREE,
        Decimal("0.01"),
    ),  # "round ... to the nearest ten": the last of the three digits is 0
    "MGA": Decimal(1),
}
"""The steps of amounts, where they are larger than the smallest unit of ISO 4217. Stripe writes ISK
and UGX with two decimals, always 00; they have none in ISO 4217. HUF and TWD are charged with two
decimals, and only paid out to the merchant in whole ones.
"""

_LEAST: Final = """
    USD=0.50 AED=2.00 AUD=0.50 BGN=1.00 BRL=0.50 CAD=0.50 CHF=0.50 CZK=15.00 DKK=2.50 EUR=0.50 GBP=0.30 HKD=4.00 HUF=175.00
    INR=0.50 JPY=50 MXN=10 MYR=2 NOK=3.00 NZD=0.50 PLN=2.00 RON=2.00 SEK=3.00 SGD=0.50 THB=10
"""
"""docs.stripe.com/currencies, "Minimum and maximum charge amounts": the whole table. Of a currency
that it does not list, the least amount is worth as much as that of the currency that Stripe pays
out.
"""

_WORTHLESS: Final = """
    CLP=200 CNY=1.50 COP=800 IDR=3500 ILS=0.75 KRW=300 PEN=0.75 PHP=12 SAR=0.75 TRY=5 TWD=7 UAH=8 VND=5500 ZAR=4
"""
"""Amounts of some of the others that are worth about 0.20 USD, too little for Stripe at any rate of
exchange: below them the shopper reads so before the page.
"""
_MINIMUMS: Final = {
    currency: Decimal(amount)
    for currency, _, amount in (pair.partition("=") for pair in _words(_LEAST + _WORTHLESS))
}

_LABELS: Final = {
    "checkout": "",
    "card": "",
    "acss_debit": "Pre-authorised debit (Canada)",
    "affirm": "Affirm",
    "afterpay_clearpay": "Afterpay / Clearpay",
    "alipay": "Alipay",
    "amazon_pay": "Amazon Pay",
    "au_becs_debit": "BECS Direct Debit",
    "bacs_debit": "Bacs Direct Debit",
    "bancontact": "Bancontact",
    "blik": "BLIK",
    "boleto": "Boleto",
    "cashapp": "Cash App Pay",
    "eps": "EPS",
    "fpx": "FPX",
    "grabpay": "GrabPay",
    "ideal": "iDEAL",
    "kakao_pay": "KakaoPay",
    "klarna": "Klarna",
    "konbini": "Konbini",
    "link": "Link",
    "mobilepay": "MobilePay",
    "multibanco": "Multibanco",
    "naver_pay": "Naver Pay",
    "oxxo": "OXXO",
    "p24": "Przelewy24",
    "paynow": "PayNow",
    "paypal": "PayPal",
    "pix": "Pix",
    "promptpay": "PromptPay",
    "revolut_pay": "Revolut Pay",
    "sepa_debit": "SEPA Direct Debit",
    "swish": "Swish",
    "twint": "TWINT",
    "us_bank_account": "US bank account",
    "wechat_pay": "WeChat Pay",
}
"""Stripe's codes of payment methods with their names (docs.stripe.com/api/checkout/sessions/create,
`allowed_payment_method_types`).
"""

_ONLY_TEXT: Final = """
    acss_debit=CAD+USD au_becs_debit=AUD bacs_debit=GBP bancontact=EUR blik=PLN boleto=BRL cashapp=USD eps=EUR fpx=MYR grabpay=MYR+SGD
    ideal=EUR kakao_pay=KRW konbini=JPY mobilepay=DKK+EUR+NOK+SEK multibanco=EUR naver_pay=KRW oxxo=MXN p24=EUR+PLN paynow=SGD pix=BRL
    promptpay=THB sepa_debit=EUR swish=SEK twint=CHF us_bank_account=USD
"""
_ONLY: Final = {
    code: tuple(found.split("+"))
    for code, _, found in (pair.partition("=") for pair in _words(_ONLY_TEXT))
}
"""The currencies of payment methods that do not take most of them
(docs.stripe.com/payments/payment-methods/payment-method-support).
"""

_BANK: Final = _words(
    "acss_debit au_becs_debit bacs_debit bancontact eps fpx ideal multibanco p24 paynow pix "
    "promptpay sepa_debit us_bank_account",
)
_KINDS: Final = {
    **dict.fromkeys(_BANK, "bank"),
    **dict.fromkeys(_words("boleto konbini oxxo"), "counter"),
}
"""The kinds of payment methods besides cards and wallets, for the marks on the pages."""

METHOD_OPTIONS: Final = {"wechat_pay": {"client": "web"}}
"""The `payment_method_options` that a payment method must have
(docs.stripe.com/payments/wechat-pay/accept-a-payment).
"""

DESCRIPTOR: Final = re.compile(r"(?=.*[A-Za-z])(?:(?![<>\\'\"*])[ -~]){1,22}")
"""The texts that Stripe takes for the shopper's bank statement
(docs.stripe.com/get-started/account/statement-descriptors).
"""

DEFAULT_METHOD: Final = "checkout"
"""The payment method of an account that lists none: Stripe's page offers all that the merchant has
switched on in the dashboard.
"""

LANGUAGES: Final = frozenset(
    _words(
        """
        bg cs da de el en en-GB es es-419 et fi fil fr fr-CA hr hu id it ja ko lt lv ms mt nb nl pl pt pt-BR ro ru sk sl
        sv th tr vi zh zh-HK zh-TW
        """,
    ),
)
"""The languages of Stripe's page (docs.stripe.com/api/checkout/sessions/create, `locale`)."""


def method(code: str, label: str = "", currencies: tuple[str, ...] = ()) -> Method:
    """Return a payment method with Stripe's least amounts and steps."""
    return Method(
        code=code,
        label=label or _LABELS.get(code, ""),
        currencies=currencies or _ONLY.get(code, ()),
        minimums=tuple(_MINIMUMS.items()),
        steps=tuple(_STEPS.items()),
        kind=_KINDS.get(code, ""),
    )


_KEPT: Final = frozenset(
    {
        *(
            "id",
            "object",
            "type",
            "created",
            "livemode",
            "status",
            "payment_status",
            "amount_total",
            "currency",
        ),
        *(
            "payment_intent",
            "intent_status",
            "amount_received",
            "last_error",
            "charge",
            "paid_with",
        ),
    },
)
"""The parts of an event, and of the evidence of an answer, that are kept. The `data` of an event
describes the shopper, and is none of it.
"""

STRIPE: Final = GatewayProfile(
    name="stripe",
    base_url="https://api.stripe.com",
    # "from 30 minutes to 24 hours after Checkout Session creation", by Stripe's clock
    timeout_minutes=(
        31,
        24 * 60 - 1,
    ),
    currencies=_CURRENCIES,
    methods=tuple(method(code) for code in _LABELS),
    options=(
        Option(
            name="statement_descriptor",
            help="the text on the shopper's bank statement, up to 22 characters; after the account's "
            "own prefix for cards",
        ),
    ),
    macros=("status",),
    paid_words=frozenset({"success"}),
    kept_fields=_KEPT,
)
"""Stripe's profile."""


def to_units(amount: Decimal, currency: str) -> int:
    """Return an amount in Stripe's smallest units; raise `InvalidRequest` for one that Stripe
    cannot take.
    """
    exact = Money(amount, currency).amount
    if (step := _STEPS.get(currency)) and exact % step:
        raise InvalidRequest(
            "amount",
            amount,
            f"cannot be paid with Stripe, which takes {currency} in steps of {step}",
        )
    return int(exact.scaleb(_decimals(currency)))


def from_units(units: int, currency: str) -> Decimal:
    """Return the exact amount of so many of Stripe's smallest units, with the decimals of the
    currency where nothing is lost by it.
    """
    amount = Decimal(units).scaleb(-_decimals(currency))
    with suppress(InvalidRequest):
        return Money(int(amount) if amount == int(amount) else amount, currency).amount
    return amount


def _decimals(currency: str) -> int:
    """Return Stripe's number of decimals of a currency, which is not always that of ISO 4217."""
    return 0 if currency in _WHOLE else 3 if currency in _THREE else 2
