"""The built-in adapter: the plugin that implements the gateway's side with `Gateway`."""

from __future__ import annotations

import functools

from tillgate.account import Account
from tillgate.client import Gateway
from tillgate.hooks.hookspecs import hookimpl
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
)

__all__ = ["ADAPTER_NAME", "GatewayAdapter"]

ADAPTER_NAME = "gateway"
_MOST_ACCOUNTS = 256


class GatewayAdapter:
    """Keeps one `Gateway`, and so its connections, for each account in use."""

    def __init__(self) -> None:
        # The cache does not close a `Gateway` that it drops, since another thread may be using it:
        # its connections close with the last user.
        self._gateway = functools.lru_cache(maxsize=_MOST_ACCOUNTS)(Gateway)

    @hookimpl
    def tillgate_pay(
        self,
        account: Account,
        request: PaymentRequest,
        deadline_seconds: float | None,
    ) -> CreatedPayment:
        """Create a payment over HTTP."""
        return self._gateway(account).pay(request, deadline_seconds=deadline_seconds)

    @hookimpl
    def tillgate_query(
        self,
        account: Account,
        reference: str,
        deadline_seconds: float | None,
        attempts: int | None,
    ) -> Transaction:
        """Query a transaction over HTTP, by its reference."""
        return self._gateway(account).query(
            reference,
            deadline_seconds=deadline_seconds,
            attempts=attempts,
        )

    @hookimpl
    def tillgate_refund(self, account: Account, request: RefundRequest) -> Refunded:
        """Refund over HTTP."""
        return self._gateway(account).refund(request)

    @hookimpl
    def tillgate_query_refund(
        self,
        account: Account,
        request: RefundRequest,
        refund_no: str | None,
    ) -> Refunded | None:
        """Find a refund in the list that the answer to a query of its payment may have; None where
        there is no list.
        """
        return self._gateway(account).query_refund(request, refund_no)
