"""Tillgate: take, query and refund payments through a hosted online payment service, without losing
one.

The public names. docs/reference documents all of them.
"""

from tillgate.account import Account
from tillgate.client import AsyncGateway, Gateway
from tillgate.errors import (
    AnswerNotUnderstood,
    ConfigurationError,
    GatewayError,
    InvalidRequest,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    SignatureMismatch,
    TillgateError,
    WrongCredentials,
)
from tillgate.money import Money
from tillgate.wire.dialects import (
    EXAMPLES,
    REFERENCE,
    V3,
    Dialect,
    Encoding,
    SignatureRule,
)
from tillgate.wire.macros import callback_url, read_callback
from tillgate.wire.messages import (
    CreatedPayment,
    Goods,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
)
from tillgate.wire.methods import Method, PaymentMethod, Terminal
from tillgate.wire.notifications import Notification, NotificationSignature, read_notification
from tillgate.wire.profile import GatewayProfile, TransactionStatus
from tillgate.wire.references import new_reference

__all__ = [
    "EXAMPLES",
    "REFERENCE",
    "V3",
    "Account",
    "AnswerNotUnderstood",
    "AsyncGateway",
    "ConfigurationError",
    "CreatedPayment",
    "Dialect",
    "Encoding",
    "Gateway",
    "GatewayError",
    "GatewayProfile",
    "Goods",
    "InvalidRequest",
    "Method",
    "Money",
    "NotSent",
    "Notification",
    "NotificationSignature",
    "OrderNotFound",
    "OutcomeUnknown",
    "PaymentMethod",
    "PaymentRequest",
    "RefundRequest",
    "Refunded",
    "Refused",
    "SignatureMismatch",
    "SignatureRule",
    "Terminal",
    "TillgateError",
    "Transaction",
    "TransactionStatus",
    "WrongCredentials",
    "callback_url",
    "new_reference",
    "read_callback",
    "read_notification",
]
__version__ = "0.1.0"
