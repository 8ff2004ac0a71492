"""Reports: events of a transaction that the App sends to Saleor unasked, in order and at least
once.

Each report is queued in the database transaction that changes Tillgate's rows, and the worker
delivers it. Saleor detects a repetition by transaction, pspReference, type and amount.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pydantic import SecretStr

from tillgate.hooks import Payment, RemoteEvent
from tillgate.shop import enqueue_remote, find_payment, money, now
from tillgate_saleor import vault
from tillgate_saleor.answers import LONGEST_MESSAGE, moment
from tillgate_saleor.api import (
    Reported,
    SaleorError,
    Silent,
    TokenRefused,
    ask_costs,
    ask_paid_for,
    report,
)
from tillgate_saleor.conf import PLUGIN
from tillgate_saleor.costs import conclude, note_costs, parts_of
from tillgate_saleor.facts import declined_text, gateway_page, method_of, paid_text
from tillgate_saleor.models import Transaction
from tillgate_saleor.transactions import CHARGED
from tillgate_saleor.unwanted import GONE, tell_if_unwanted, unwanted_detail

_log = logging.getLogger("tillgate")

_REST: Final = timedelta(seconds=10)
"""After a Saleor did not answer, its other reports are postponed for this time, so that they do not
delay those of other Saleors.
"""
_resting: Final[dict[int, datetime]] = {}
"""The end of the postponement, by the number of the installation. It is only an optimisation, so
each process has its own.
"""


def enqueue(
    told: Transaction,
    kind: str,
    psp_reference: str,
    amount: Decimal,
    message: str,
    actions: Sequence[str],
    *,
    at: datetime | None = None,
    payment_id: str | None = None,
    refund_id: str | None = None,
) -> None:
    """Queue the report of an event of a transaction, with the present time or `at`.

    `kind` is its type in Saleor; an empty message is written when the report leaves, from the
    gateway's answer about the payment; `actions` are the actions open to staff from now on.
    """
    data: dict[str, Any] = {
        "transaction": told.pk,
        "psp_reference": psp_reference,
        "amount": money.amount_text(amount, told.purchase.currency),
        "time": moment(at or now()),
        "message": message,
        "actions": list(actions),
    }
    enqueue_remote(
        PLUGIN,
        told.purchase.key,
        kind,
        data=data,
        payment_id=payment_id,
        refund_id=refund_id,
    )


def deliver(outbox_event: RemoteEvent) -> None:
    """Deliver a report to the Saleor of its transaction. If this raises a `SaleorError`, Tillgate
    retries it.
    """
    told = Transaction.objects.select_related("installation", "purchase").get(
        pk=outbox_event.data["transaction"],
    )
    installation = told.installation
    # it is known here now, whenever Saleor gets the report
    conclude(parts_of(installation.pk, told.purchase.source))
    if not installation.token:
        raise TokenRefused(
            f"{installation.api_url} has uninstalled the App: let it install it again, or settle "
            "this there by hand",
        )
    present = now()
    if (
        until := _resting.get(installation.pk)
    ) and present < until <= present + _REST:  # only a clock that ran ahead gives a later time
        raise Silent(f"{installation.api_url} did not answer another report just now")
    event = Reported(
        transaction_id=told.transaction_id,
        type=outbox_event.name,
        psp_reference=outbox_event.data["psp_reference"],
        amount=outbox_event.data["amount"],
        time=outbox_event.data["time"],
        message=_message(outbox_event)[:LONGEST_MESSAGE],
        available_actions=tuple(outbox_event.data["actions"]),
        **_facts(outbox_event, installation.version),
    )
    token = SecretStr(vault.decrypt(installation.token))
    try:
        if outbox_event.name == CHARGED and outbox_event.payment is not None:
            _look_what_it_pays(told, token, outbox_event.payment)
        report(installation.api_url, token, event)
    except Silent:
        _resting[installation.pk] = now() + _REST
        raise


def _message(outbox_event: RemoteEvent) -> str:
    """Return the message of a report. The card, and the reason of a decline, are not kept with the
    report: an erasure would miss them there.
    """
    stored, payment = str(outbox_event.data["message"]), outbox_event.payment
    if stored or payment is None:
        return stored
    if outbox_event.name != CHARGED:
        return declined_text(payment.id)
    return paid_text(find_payment(PLUGIN, payment_id=payment.id))


def _facts(outbox_event: RemoteEvent, version: str) -> dict[str, Any]:
    """Return the known facts about the payment of a report."""
    payment = outbox_event.payment
    if payment is None:
        return {}
    is_charged = outbox_event.name == CHARGED
    return {
        "external_url": gateway_page(payment.id, outbox_event.refund),
        "method": method_of(payment.id, version) if is_charged else None,
    }


def _look_what_it_pays(told: Transaction, token: SecretStr, payment: Payment) -> None:
    """Open a review of money that Saleor does not want, or of a wrong amount, before the report to
    Saleor.

    If Saleor rejects the query, it gets the report anyway. If it does not answer, Tillgate retries
    later.
    """
    api_url = told.installation.api_url
    try:
        found = ask_paid_for(api_url, token, told.transaction_id)
        if not found.is_charged:
            tell_if_unwanted(
                payment,
                unwanted_detail(found.status, found.charge_status) if found.is_there else GONE,
            )
    except Silent:
        raise
    except SaleorError as error:
        _log.warning(
            "%s was not asked what transaction %s pays: %s",
            api_url,
            told.transaction_id,
            error,
        )
        return
    try:
        source = ask_costs(api_url, token, told.transaction_id)
    except SaleorError as error:
        _log.warning(
            "%s did not say what the order of transaction %s costs: %s",
            api_url,
            told.transaction_id,
            error,
        )
        return
    if source is not None:
        note_costs(told.installation, source, told.purchase.source)
