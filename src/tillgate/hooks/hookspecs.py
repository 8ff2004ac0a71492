"""Every hook of Tillgate. A plugin implements those it needs, with `tillgate.hooks.hookimpl`, under the entry-point group `tillgate`.

Three kinds: the gateway's side (the first plugin that returns a result answers), the shop's side (only the plugin that owns the order is
called, never all of them), and observers (all are called, after commit, and what one raises disturbs nobody).

The docstrings are the reference of the hooks: `make reference` writes them into docs/reference/hooks.md.
"""

from __future__ import annotations

from pluggy import HookimplMarker, HookspecMarker

from tillgate.account import Account
from tillgate.hooks.values import Event, Order, OrderDescription, PaidOutcome, Payment, Refund, RemoteEvent, Review
from tillgate.wire.messages import CreatedPayment, PaymentRequest, Refunded, RefundRequest, Transaction

hookspec = HookspecMarker("tillgate")
hookimpl = HookimplMarker("tillgate")

# The gateway's side -------------------------------------------------------------------------------------------------------------------


@hookspec(firstresult=True)
def tillgate_pay(account: Account, request: PaymentRequest) -> CreatedPayment | None:
    """Create a payment at the gateway and return where to send the shopper; None leaves it to the next plugin.

    Called by `tillgate.hooks.pay`, once for each creation. Raises as `Gateway.pay` does: `NotSent` or `Refused` when nothing was created,
    and `OutcomeUnknown` when it may have been. A wrapper must never call twice. A plugin that sends with `Gateway` or `AsyncGateway` does
    so in the thread that called it, or in one that `asyncio.to_thread` runs: what is sent in another is not seen, and could be sent again.
    """


@hookspec(firstresult=True)
def tillgate_query(account: Account, reference: str, deadline_seconds: float | None, attempts: int | None) -> Transaction | None:
    """Query the payment of a reference at the gateway, and return its answer; None leaves the query to the next plugin.

    Called by `tillgate.hooks.query` for every query, those of the doctor included. Raises as `Gateway.query` does: `OrderNotFound` when the
    gateway knows of no such payment; any other error is inconclusive. A shopper or the gateway may be waiting: end the call within
    `deadline_seconds`, and try at most `attempts` times. None stands for the account's own `deadline_seconds` and `query_attempts`.
    """


@hookspec(firstresult=True)
def tillgate_refund(account: Account, request: RefundRequest) -> Refunded | None:
    """Ask the gateway to refund money, and return what was refunded; None leaves it to the next plugin.

    Called by `tillgate.hooks.refund`, once for each refund. Raises as `Gateway.refund` does: `NotSent` or `Refused` when nothing was given
    back, and `OutcomeUnknown` when it may have been. A wrapper must never call twice. A plugin that sends with `Gateway` or `AsyncGateway`
    does so in the thread that called it, or in one that `asyncio.to_thread` runs: what is sent in another is not seen, and could be sent
    again.
    """


@hookspec(firstresult=True)
def tillgate_account(alias: str) -> Account | None:
    """Return the account of a name, for a plugin that keeps accounts in its own storage; None when the name is not the plugin's.

    Called by the Django app for a name that its settings do not have. It must answer for as long as a payment of the account is watched.
    """


# The shop's side ----------------------------------------------------------------------------------------------------------------------


@hookspec(firstresult=True)
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Return what an order is, what it costs in US dollars and whether it may be paid now; None when the shop does not know it.

    Called when a payment of the order is started and again when its money has come, both under the order's lock and inside a database
    transaction: an order that was edited or closed in between is noticed. What it raises is tried again, and loses no money. The pages on
    which a shopper can pay, or go on paying, ask it as well, outside of both.
    """


@hookspec(firstresult=True)
def tillgate_payment_paid(payment: Payment) -> PaidOutcome | None:
    """Mark the order paid in the shop's database, and return whether the payment could be applied.

    Called when the gateway's own query has verified the payment, inside the outbox event's database transaction: both happen or neither.
    Touch
    the database only. `NOT_PAYABLE` and `UNDERPAID` leave the order as it is and open a review; whatever is raised takes everything back
    and is tried again. Every plugin of a shop must implement it.
    """


@hookspec(firstresult=True)
def tillgate_order_unpaid(order: Order) -> None:
    """Release what the order holds: no payment of it is open or paid any more.

    Called inside the outbox event's database transaction, `ORDER_UNPAID_AFTER_MINUTES` after the last payment came to nothing, or after the
    order was expected and nobody paid, or after money that never paid the order was refunded entirely; never before. Money may still
    come later, and then waits for a person if the order is given up.
    """


@hookspec(firstresult=True)
def tillgate_refund_changed(refund: Refund) -> None:
    """Let a refund take effect in the shop: the one place for that, wherever the refund was asked for.

    Called inside the outbox event's database transaction, once for each id and status: *succeeded*, *refused*, or *unknown*, which a person
    settles and which must not be taken for money refunded.
    """


@hookspec(firstresult=True)
def tillgate_review_opened(review: Review) -> None:
    """Show the shop's staff something of their order that a person must look at.

    Called inside the outbox event's database transaction, once for each review about an order. Only a failing outbox event is not told of,
    since that would wait behind it.
    """


@hookspec(firstresult=True)
def tillgate_return_url(payment: Payment) -> str | None:
    """Return the shop's page, a path or an http(s) address, where the shopper lands after paying, failing or leaving.

    Called when the shopper comes back; `payment.status` tells how. The page must work without a session, since wallets return in another
    browser. None, or whatever is raised, leaves the shopper on Tillgate's own page.
    """


@hookspec(firstresult=True)
def tillgate_deliver(outbox_event: RemoteEvent) -> None:
    """Carry something that `operations.enqueue_remote` has queued over the network, as HTTP or mail.

    Called outside any transaction, at least once, the oldest of an order first. What it raises is tried again later with the same
    `event_id`, by which the receiver knows a repetition.
    """


# Observers ----------------------------------------------------------------------------------------------------------------------------


@hookspec
def tillgate_event(event: Event) -> None:
    """Note that something has happened, for metrics, logs and mail.

    Called by `tillgate.hooks.emit` after commit, on all plugins. What one raises is logged and disturbs nobody. The core itself emits
    nothing; the Django app does.
    """
