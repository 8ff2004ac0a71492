"""Every hook of Tillgate. A plugin implements those it needs, with `tillgate.hooks.hookimpl`. Shop
plugins register with `tillgate.shop.register`, the others by the entry-point group `tillgate`.

Three kinds: the gateway's side (only the plugin of the account's profile is called, within the
wrappers of all plugins, and a wrapper must never call twice; the calls of the built-in wire may be
answered by a plugin without a profile, and None leaves them to the next), the shop's side (only the
plugin that owns the order is called; its events run inside the outbox event's database transaction,
which is rolled back and tried again after an error), and observers (all are called, after commit).

The docstrings are the reference of the hooks: `python -m tools.docgen reference` writes them into
docs/reference/hooks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pluggy import HookimplMarker, HookspecMarker

from tillgate.account import Account
from tillgate.hooks.values import (
    Customer,
    Event,
    ExampleMail,
    Finding,
    Hint,
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    Refund,
    RemoteEvent,
    Review,
)
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
)
from tillgate.wire.methods import Method

hookspec = HookspecMarker("tillgate")
hookimpl = HookimplMarker("tillgate")

# The gateway's side -------------------------------------------------------------------------------


@hookspec(firstresult=True)
def tillgate_pay(
    account: Account,
    request: PaymentRequest,
    deadline_seconds: float | None,
) -> CreatedPayment | None:
    """Create a payment at the gateway and return where to send the shopper.

    Called by `tillgate.hooks.pay`, once for each creation. Raises as `Gateway.pay` does: `NotSent`
    or `Refused` when nothing was created, and `OutcomeUnknown` when it may have been. A plugin that
    sends with `Gateway` or `AsyncGateway` does so in the calling thread, or in one that
    `asyncio.to_thread` runs: Tillgate does not see a request of another thread, and may repeat it.

    A shopper may be waiting, and a call that hangs holds a thread of the web server: end it within
    `deadline_seconds`. None stands for the account's own `deadline_seconds`.
    """


@hookspec(firstresult=True)
def tillgate_query(
    account: Account,
    reference: str,
    transaction_no: str | None,
    deadline_seconds: float | None,
    attempts: int | None,
) -> Transaction | None:
    """Query a payment at the gateway, and return its answer.

    Called by `tillgate.hooks.query` for every query, those of the doctor included. `transaction_no`
    is the gateway's number of the payment, None where the answer with it was lost: then the gateway
    must find the payment by its reference. Raises as `Gateway.query` does: `OrderNotFound` when the
    gateway knows of no such payment; any other error is inconclusive.

    A shopper or the gateway may be waiting: end the call within `deadline_seconds`, and try at most
    `attempts` times. None stands for the account's own `deadline_seconds` and `query_attempts`.
    """


@hookspec(firstresult=True)
def tillgate_refund(account: Account, request: RefundRequest) -> Refunded | None:
    """Refund money at the gateway, and return the refund.

    Called by `tillgate.hooks.refund`, once for each refund. Raises as `Gateway.refund` does:
    `NotSent` or `Refused` when nothing was refunded, and `OutcomeUnknown` when money may have been.
    For threads see `tillgate_pay`. The request's `refund_id` is the same however often a refund is
    sent or queried. A refund that the gateway has accepted and not finished is *pending*.
    """


@hookspec(firstresult=True)
def tillgate_query_refund(
    account: Account,
    request: RefundRequest,
    refund_no: str | None,
) -> Refunded | None:
    """Query a refund that was sent, and return it as it stands; None where the gateway has no such
    query.

    Called for a pending refund, and for one of unknown outcome. `refund_no` is the gateway's number
    of the refund, None where the answer with it was lost. The hook must change nothing. Raises
    `OrderNotFound` when the gateway knows of no such refund; any other error is inconclusive.
    """


@hookspec(firstresult=True)
def tillgate_close(
    account: Account,
    reference: str,
    transaction_no: str | None,
    deadline_seconds: float | None,
) -> bool | None:
    """Close an open payment at the gateway: it can no longer be paid.

    Called by the worker, once for each payment that should not be paid any more: the order was
    cancelled or paid by another payment, or the shopper has begun another payment, with another
    method or for another price. Return True when it can no longer be paid, also when it had closed
    before, and False when it is paid or its money is on its way. Tillgate queries the payment after
    either. A gateway that would refund a paid payment has no such hook. An error leaves the page
    open, and Tillgate does not try again.
    """


@hookspec(firstresult=True)
def tillgate_payment_methods(account: Account) -> Sequence[Method] | None:
    """Return the payment methods of an account with their currencies and limits.

    Called when a shopper chooses, so it must be quick. Without such a plugin the methods are those
    of the account, or else of its dialect.
    """


@hookspec(firstresult=True)
def tillgate_read_notification(
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> Sequence[Hint] | None:
    """Verify a notification to the account's own address, and return the payments that it is about.

    Called for each POST to `/webhook/<alias>/` below Tillgate's pages, the address that
    `tillgate.shop.webhook_url` returns; and for each request to `/notification/<key>/`, the
    `ipn_url` of one payment, where a forged one is kept and counted. `headers` finds a name in any
    case, and `body` is bounded. Raise `SignatureMismatch` when the notification is not the
    gateway's, or `AnswerNotUnderstood` when it cannot be read: the answer is then 400. A hint names
    a payment by its reference or transaction number; Tillgate queries the payments that it knows,
    and believes only the answers. A hint with both gives the number to the query of a payment
    without a known number, such as after a creation without an answer.

    Call no gateway here: the web process waits for it. Where a notification names only another
    number of a payment, such as that of a charge, return it as `transaction_no`: the worker calls
    `tillgate_query` with it, and the reference of the answer names the payment. After any other
    error the answer is 503, and the gateway repeats the notification.
    """


@hookspec(firstresult=True)
def tillgate_examine_account(
    account: Account,
    online: bool,  # noqa: FBT001  # pluggy passes it by name
    deadline_seconds: float | None,
    webhook_url: str | None,
) -> Sequence[Finding] | None:
    """Examine the settings of an account, and return the findings.

    Called by the system check with `online` false: look at the settings alone, such as a test key
    in a live shop. The doctor calls it with `online` true, in place of its own query: ask the
    gateway too, within `deadline_seconds` for each question, and move no money. `webhook_url` is
    the account's own address, where a shop knows it.
    """


@hookspec(firstresult=True)
def tillgate_account(alias: str) -> Account | None:
    """Return the account of a name, for a plugin that keeps accounts in its own storage.

    Called by the Django app for a name that its settings do not have. It must answer for as long as
    a payment of the account is watched.
    """


# The shop's side ----------------------------------------------------------------------------------


@hookspec(firstresult=True)
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Return an order's lines, its price with its currency and whether it may be paid now; None
    when the shop does not know it.

    Called under the order's lock and inside a database transaction, when a payment is started and
    again when its money has come, since the order may have changed in between. The pages on which a
    shopper can pay call it as well, outside of both. After an error it is called again, and no
    money is lost.
    """


@hookspec(firstresult=True)
def tillgate_find_orders(text: str, limit: int) -> Sequence[str] | None:
    """Return the keys of orders that staff search for: by number, or by the shopper's name or
    e-mail address.

    Called by the search of Django's admin with 3 to 100 characters, without a `#` before them.
    Return at most `limit` keys, the newest first; none for another order's number. Tillgate does
    not store the text or the answer. After an error the search goes on without it.
    """


@hookspec(firstresult=True)
def tillgate_customers(order_keys: Sequence[str]) -> Mapping[str, Customer] | None:
    """Return the shoppers of orders by their keys, for lists and downloads of staff; leave out an
    order without one.

    Called with at most 1,000 keys, so read them in one statement. Tillgate does not store the
    answer. After an error the list has no names.
    """


@hookspec(firstresult=True)
def tillgate_payment_paid(payment: Payment) -> PaidOutcome | None:
    """Mark the order paid in the shop's database, and return whether the payment could be applied.

    Called when the gateway's own query has verified the payment. `NOT_PAYABLE` and `UNDERPAID`
    leave the order as it is and open a review. Every plugin of a shop must implement it.
    """


@hookspec(firstresult=True)
def tillgate_order_unpaid(order: Order) -> None:
    """Release the stock and other holds of the order: no payment of it is open or paid any more.

    Called `ORDER_UNPAID_AFTER_MINUTES` after the order was opened, after its last payment failed or
    expired, or after money that never paid it was refunded entirely. It comes earlier only where
    `ORDER_PAYABLE_FOR_MINUTES` after the first payment are over, without the time in which money
    was under way. Money may still come later: it opens a review if the order was released. An order
    that is described as payable with an amount of zero has nothing to pay, and is not released.

    It is called for a closed order too, and again after late money was refunded: change an open
    order only, and do not raise.
    """


@hookspec(firstresult=True)
def tillgate_reopen_order(order: Order) -> bool | None:
    """Make a cancelled order payable again, and return whether that was possible.

    Called when staff press *Reopen and deliver* in a review about late money, under the order's
    lock and inside a database transaction. `tillgate_payment_paid` follows immediately. Change the
    order's own record only: goods are taken back when the payment is applied. A plugin without this
    hook does not offer the button.
    """


@hookspec(firstresult=True)
def tillgate_refund_changed(refund: Refund) -> None:
    """Let a refund take effect in the shop: the one place for that, wherever the refund was asked
    for, the gateway's portal included.

    Called once for each id and status: *succeeded*, *failed*, or *unknown*. An unknown refund does
    not mean that money was refunded: the gateway or staff settle it later. A *pending* refund is
    reported at its end. `tillgate.shop.order_state` includes the refund already.
    """


@hookspec(firstresult=True)
def tillgate_review_opened(review: Review) -> None:
    """Show the shop's staff a review of their order.

    Called once for each review about an order, except one about a failing outbox event: its event
    would wait behind that one.
    """


@hookspec(firstresult=True)
def tillgate_review_url(review: Review) -> str | None:
    """Return the http(s) address of the page on which the shop's staff resolve a review; None for
    the review's card in Django's admin.

    Called for mail and alerts about reviews. A review about an account has no order: then every
    plugin is asked, and one that keeps accounts in its own storage answers for its own names. After
    an error the mail goes without the plugin's address.
    """


@hookspec(firstresult=True)
def tillgate_return_url(payment: Payment) -> str | None:
    """Return the shop's page about the order, a path or an http(s) address.

    Called when the shopper comes back; `payment.status` tells how. A shopper that has paid goes
    there immediately. So does a shopper with a failed payment where Tillgate's own page can offer
    no other. Otherwise that page shows the outcome, offers to pay again, and links there. The
    shop's page must work without a session, since wallets return in another browser. None, or an
    error, leaves the shopper on Tillgate's own page.
    """


@hookspec(firstresult=True)
def tillgate_deliver(outbox_event: RemoteEvent) -> str | None:
    """Carry an event that `tillgate.shop.enqueue_remote` has queued over the network, as HTTP or
    mail.

    Called outside any transaction, at least once, the oldest of an order first. After an error it
    is called again later with the same `event_id`, so the receiver can recognise a repetition.
    Return None, or a text for the timeline if nothing was sent, such as "not mailed: the order has
    no address".
    """


@hookspec
def tillgate_example_mails() -> Sequence[ExampleMail] | None:
    """Return every mail that the plugin sends to shoppers, about an invented order, in the active
    language.

    Called by `manage.py tillgate mails`, on all plugins, so that an owner sees the mails before
    shoppers do. Read no order, store nothing and send nothing.
    """


# Observers ----------------------------------------------------------------------------------------


@hookspec
def tillgate_event(event: Event) -> None:
    """Note that something has happened, for metrics, logs and mail.

    Called after commit, on all plugins. An error of one is logged and disturbs none of the others.
    """
