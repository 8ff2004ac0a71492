"""Transactions of a Saleor, and which payment of Tillgate each of them has.

A transaction has one payment at most, and keeps it: its pspReference is the payment's reference,
from the first answer to the last. A shopper that presses twice starts two transactions for the same
checkout, payment method and amount. Both lead to the same payment page, and the later one gets the
reports.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.db import transaction
from django.db.models import Q

from tillgate import Money
from tillgate.hooks import Payment
from tillgate.shop import (
    OutboxStatus,
    PaymentState,
    database,
    find_payment,
    last_change_at,
    locked_order,
    now,
    order_state,
    remote_events,
)
from tillgate_saleor import bodies
from tillgate_saleor.conf import PLUGIN, get_settings
from tillgate_saleor.costs import costs_of, left_to_pay, parts_of
from tillgate_saleor.models import Installation, Purchase, Transaction

CHARGED: Final = "CHARGE_SUCCESS"
"""The report that a transaction is charged."""
DATA_KEY: Final = "saleor_transaction"
"""The key in a payment's data for the transaction that started it."""


def find_purchase(order_key: str, *, lock: bool = False) -> Purchase | None:
    """Return the purchase with an order's key."""
    installation, _, rest = order_key.partition(":")
    source, _, part = rest.partition(":")
    if not (installation.isdecimal() and (part or "0").isdecimal()):
        return None
    rows = Purchase.objects.filter(
        installation_id=int(installation),
        source=source,
        part=int(part or 0),
    )
    return (rows.select_for_update() if lock else rows).first()


def find_transaction(installation: Installation, transaction_id: str) -> Transaction | None:
    """Return a transaction of a Saleor that started here."""
    rows = Transaction.objects.select_related("purchase", "installation")
    return rows.filter(installation=installation, transaction_id=transaction_id).first()


def source_of(installation: Installation, source: bodies.Source) -> str:
    """Return the name under which a checkout or order is paid: an order uses its checkout's name.

    The shopper may have the payment page of the checkout open while the order that it became is
    paid, and only payments of one order know of each other (I4). If Saleor says that an order has
    none of its checkout's money, it is another order of the same checkout. An order with the
    checkout's transactions is not: its money is being refunded.
    """
    purchases = Purchase.objects.filter(installation=installation)
    if not source.checkout_id or purchases.filter(source=source.id).exists():
        return source.id
    begun = parts_of(installation.pk, source.checkout_id)
    known = [one.id for one in source.transactions]
    has_ours = Transaction.objects.filter(purchase__in=begun, transaction_id__in=known).exists()
    is_another = (
        begun
        and not has_ours
        and source.charge_status == "NONE"
        and _is_known_to_be_paid(begun[-1])
    )
    return source.id if is_another else source.checkout_id


def note(
    installation: Installation,
    body: bodies.Initialize,
    method: str,
    price: Money,
    return_url: str,
) -> Transaction:
    """Return the row of a new transaction, or the existing row if Saleor repeats a request with the
    same key.

    It has no payment yet. Its payment will follow Saleor's present request, regardless of requests
    in between.
    """
    amount = price.amount
    first = {
        "number": _number(body.source_object),
        "channel": body.source_object.channel.slug,
        "amount": amount,
    }
    first["currency"] = price.currency
    source, costs = (
        source_of(installation, body.source_object),
        costs_of(installation, body.source_object),
    )
    # In a transaction of its own: on InnoDB, writers of the same row would otherwise wait for each
    # other's locks.
    Purchase.objects.get_or_create(installation=installation, source=source, part=0, defaults=first)
    with transaction.atomic(using=database()):
        purchase = _purchase(installation, source, body, price, costs)
        values = {
            "purchase": purchase,
            "idempotency_key": body.idempotency_key,
            "method": method,
            "amount": amount,
            "return_url": return_url,
            "created_at": now(),
        }
        rows = Transaction.objects.select_related("purchase")
        begun, _ = rows.get_or_create(
            installation=installation,
            transaction_id=body.transaction.id,
            defaults=values,
        )
        if begun.purchase_id == purchase.pk and not purchase.paid_reference:
            # A shopper that starts to pay a cancelled purchase wants it after all.
            purchase.amount, purchase.currency, purchase.costs, purchase.given_up_at = (
                amount,
                price.currency,
                costs,
                None,
            )
            purchase.save(update_fields=["amount", "currency", "costs", "given_up_at"])
        return begun


def _purchase(
    installation: Installation,
    source: str,
    body: bodies.Initialize,
    price: Money,
    costs: Decimal | None,
) -> Purchase:
    """Return the purchase of a transaction, locked: the last part of its checkout or order, or the
    next if the total has risen.
    """
    purchases = Purchase.objects
    # The first part's row is the lock of them all. Read in a separate statement: PostgreSQL would
    # omit rows that came while it waited.
    purchases.select_for_update().get(installation=installation, source=source, part=0)
    parts = parts_of(installation.pk, source)
    is_begun = Transaction.objects.filter(
        installation=installation,
        transaction_id=body.transaction.id,
    ).exists()
    if is_begun or not _is_more_wanted(installation, parts, costs):
        return parts[-1]
    values = {
        "number": parts[0].number,
        "channel": parts[0].channel,
        "amount": price.amount,
        "currency": price.currency,
        "costs": costs,
    }
    return purchases.create(installation=installation, source=source, part=len(parts), **values)


def _is_more_wanted(
    installation: Installation,
    parts: list[Purchase],
    costs: Decimal | None,
) -> bool:
    """Tell whether a paid purchase now costs more. If Saleor sends no total, the owner may trust it
    to ask for the rest only.
    """
    if costs is not None:
        return bool(parts[-1].paid_reference) and left_to_pay(costs, parts) > 0
    saleor = get_settings().saleor(installation.api_url)
    return saleor is not None and saleor.parts and _is_known_to_be_paid(parts[-1])


def _is_known_to_be_paid(purchase: Purchase) -> bool:
    """Tell whether a purchase is paid and Saleor has accepted the report: a later request then asks
    for additional money.
    """
    return bool(purchase.paid_reference) and is_reported(purchase.key, purchase.paid_reference)


def is_reported(order_key: str, reference: str) -> bool:
    """Tell whether Saleor has accepted the report that a payment of an order is paid."""
    told = [
        event
        for event in remote_events(PLUGIN, order_key=order_key, name=CHARGED)
        if event.status is OutboxStatus.DELIVERED
    ]
    return any(event.payment is not None and event.payment.reference == reference for event in told)


def _number(source: bodies.Source) -> str:
    """Return the name of a checkout or an order for people: its number, or the beginning of the
    token in its identifier.
    """
    if source.number:
        return f"ORDER-{source.number}"[:32]
    try:
        token = base64.b64decode(source.id, validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    short = "".join(filter(str.isalnum, token)) or hashlib.sha256(source.id.encode()).hexdigest()
    return f"{source.typename.upper()}-{short[:8].upper()}"


def paid_at(payment: Payment) -> datetime:
    """Return the time for the report that a payment is paid: now, or later than all earlier reports
    if the clock was set back.

    An earlier failure report may have a time in the future, and Saleor uses the later report of the
    two.
    """
    present, known = now(), last_change_at(payment.id)
    return known + timedelta(seconds=1) if known is not None and known > present else present


def transaction_of(payment: Payment) -> Transaction | None:
    """Return the transaction that gets the reports of a payment: the last one that requested it."""
    rows = Transaction.objects.select_related("purchase", "installation")
    return (
        rows.filter(Q(payment=int(payment.id)) | Q(pk=payment.data.get(DATA_KEY)))
        .order_by("-pk")
        .first()
    )


def payment_id_of(begun: Transaction | None) -> str:
    """Return the id of the payment of a transaction, even if a process died before it stored the
    link; empty if there is none.
    """
    if begun is None or begun.payment_id is not None:
        return str(begun.payment_id) if begun else ""
    order = order_state(PLUGIN, begun.purchase.key)
    started = (
        (
            payment.id
            for payment in reversed(order.payments)
            if payment.data.get(DATA_KEY) == begun.pk
        )
        if order
        else ()
    )
    return next(iter(started), "")


def payment_of(begun: Transaction | None) -> PaymentState | None:
    """Return the payment of a transaction, found as `payment_id_of` does."""
    payment_id = payment_id_of(begun)
    return find_payment(PLUGIN, payment_id=payment_id) if payment_id else None


def attach(begun: Transaction, payment: PaymentState) -> bool:
    """Store the payment of a transaction, and return whether the transaction gets its reports from
    now on.

    It gets none if the payment ended in between and another transaction got the report.
    """
    with locked_order(PLUGIN, payment.order.key) as order:
        fresh = order.payment(payment.id)
        if payment.data.get(DATA_KEY) != begun.pk and not (fresh and fresh.is_open):
            return False
        Transaction.objects.filter(pk=begun.pk).update(payment_id=int(payment.id))
    begun.payment_id = int(payment.id)
    return True
