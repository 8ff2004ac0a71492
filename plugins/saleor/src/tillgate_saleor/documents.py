"""The GraphQL for Saleor: the content of each webhook's body, and the App's three requests.

Every field, argument and value is one that Saleor 3.21 to 3.24 has; a test compares. `__typename`
puts the event's name under the signature, which the headers are not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Event(StrEnum):
    """The webhooks of the App, as the header `Saleor-Event` names them."""

    GATEWAY_INITIALIZE = "payment_gateway_initialize_session"
    INITIALIZE = "transaction_initialize_session"
    PROCESS = "transaction_process_session"
    CHARGE = "transaction_charge_requested"
    REFUND = "transaction_refund_requested"
    CANCEL = "transaction_cancelation_requested"
    STORED_METHODS = "list_stored_payment_methods"

    @property
    def typename(self) -> str:
        """The type of the event in Saleor's schema."""
        return self.value.title().replace("_", "")


_COMMON: Final = "__typename issuedAt version recipient { id }"
_HELD: Final = (
    "id chargedAmount { amount } chargePendingAmount { amount } authorizedAmount { "
    "amount } authorizePendingAmount { amount }"
)
# The transactions of a checkout may be null and an order's not, so they are listed twice. A field
# that the App may not read would empty the whole body.
_COSTS: Final = "channel { slug currencyCode } totalBalance { amount }"
_CHECKOUT: Final = f"id {_COSTS} begun: transactions {{ {_HELD} }}"
_ORDER: Final = f"id number status chargeStatus checkoutId {_COSTS} transactions {{ {_HELD} }}"
_SOURCE: Final = (
    f"sourceObject {{ __typename ... on Checkout {{ {_CHECKOUT} }} ... on Order {{ {_ORDER} }} }}"
)
_TRANSACTION: Final = "transaction { id pspReference }"
_PAYING: Final = "transaction { id pspReference chargedAmount { amount } }"
_ACTION: Final = "action { actionType amount currency }"

_SELECTIONS: Final = {
    Event.GATEWAY_INITIALIZE: f"amount data {_SOURCE}",
    Event.INITIALIZE: f"idempotencyKey data {_ACTION} {_PAYING} {_SOURCE}",
    Event.PROCESS: f"data {_ACTION} {_PAYING} {_SOURCE}",
    Event.CHARGE: f"{_ACTION} {_TRANSACTION}",
    Event.REFUND: f"{_ACTION} {_TRANSACTION}",
    Event.CANCEL: f"{_ACTION} {_TRANSACTION}",
    Event.STORED_METHODS: "channel { slug }",
}

SUBSCRIPTIONS: Final = {
    event: f"subscription {{ event {{ ... on {event.typename} {{ {_COMMON} {selection} }} }} }}"
    for event, selection in _SELECTIONS.items()
}
"""The fields of each webhook. They include no name, mail or address of a shopper."""

APP_ID: Final = "{ app { id identifier } }"

PAID_FOR: Final = """query PaidFor($id: ID!) {
  transaction(id: $id) { chargedAmount { amount } order { status chargeStatus } checkout { id } }
}"""
# Separate, because for a balance Saleor may have to query other Apps for taxes and shipping, and
# these may be slow.
COSTS: Final = f"""query Costs($id: ID!) {{
  transaction(id: $id) {{ order {{ __typename {_ORDER} }} checkout {{ __typename {_CHECKOUT} }} }}
}}"""

_REPORT: Final = """mutation Report(
  $id: ID!, $type: TransactionEventTypeEnum!, $pspReference: String!,
  $amount: PositiveDecimal!, $time: DateTime!,
  $message: String, $externalUrl: String, $availableActions: [TransactionActionEnum!]%s
) {
  transactionEventReport(
    id: $id, type: $type, pspReference: $pspReference, amount: $amount, time: $time,
    message: $message, externalUrl: $externalUrl, availableActions: $availableActions%s
  ) {
    alreadyProcessed
    errors { field code message }
  }
}"""
REPORT: Final = _REPORT % ("", "")
REPORT_WITH_METHOD: Final = _REPORT % (
    ", $paymentMethodDetails: PaymentMethodDetailsInput",
    ", paymentMethodDetails: $paymentMethodDetails",
)
"""The report with the card or wallet that paid, which Saleor takes since 3.22."""
