"""The examination of an account, by its settings and at Stripe. It creates nothing and moves no
money.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tillgate import Account, TillgateError, WrongCredentials
from tillgate.hooks import Finding
from tillgate_stripe.api import API_VERSION, Call, is_test_key
from tillgate_stripe.profile import DESCRIPTOR, STRIPE

_KEY: Final = re.compile(r"[sr]k_(test|live)_\w+", re.ASCII)
_SECRET: Final = re.compile(r"whsec_\S+", re.ASCII)

EVENTS: Final = frozenset(
    {
        "checkout.session.completed",
        "checkout.session.async_payment_succeeded",
        "checkout.session.async_payment_failed",
        "checkout.session.expired",
        "charge.refunded",
        "refund.updated",
        "refund.failed",
        "charge.dispute.created",
        "charge.dispute.updated",
        "charge.dispute.closed",
        "charge.dispute.funds_withdrawn",
        "charge.dispute.funds_reinstated",
        "review.opened",
        "review.closed",
    },
)
"""The events that a webhook endpoint should send; Tillgate ignores any other."""


def of_settings(account: Account) -> Iterator[Finding]:
    """Look at the settings alone."""
    key = account.token.get_secret_value()
    if not _KEY.fullmatch(key):
        kind = (
            "a publishable key, which may not move money"
            if key.startswith("pk_")
            else "no key of Stripe"
        )
        yield Finding(
            name="token",
            passed=False,
            finding=f"it is {kind}: give a restricted key (rk_...) or a secret key (sk_...)",
        )
    elif is_test_key(account) and not account.sandbox:
        yield Finding(
            name="token",
            passed=False,
            finding="a test key, and the account is live: give the live key, or set SANDBOX to "
            "True",
        )
    elif account.sandbox and not is_test_key(account):
        yield Finding(
            name="token",
            passed=False,
            finding="a live key, and the account is a sandbox: remove SANDBOX, or give the test "
            "key",
        )
    known = {method.code for method in STRIPE.methods}
    if unknown := [method.code for method in account.methods if method.code not in known]:
        finding = (
            f"{', '.join(unknown)} is no payment method of Stripe that the plugin knows: "
            f"{', '.join(sorted(known))}"
        )
        yield Finding(name="methods", passed=False, finding=finding)
    descriptor = account.options.get("statement_descriptor", "A")
    if not DESCRIPTOR.fullmatch(str(descriptor)):
        finding = (
            f"{descriptor!r} is refused by Stripe: give up to 22 Latin characters, a letter among "
            "them, and none of < > \\ ' \" *"
        )
        yield Finding(name="options.statement_descriptor", passed=False, finding=finding)
    if not all(_SECRET.fullmatch(secret.get_secret_value()) for secret in account.webhook_secrets):
        yield Finding(
            name="webhook_secrets",
            passed=False,
            finding="one is no signing secret of an endpoint, which begins with whsec_",
        )
    if not account.webhook_secrets and not account.sandbox:
        remedy = (
            "no notification is believed: register the address of the account's "
            "notifications at Stripe, and give its signing secret"
        )
        yield Finding(name="webhook_secrets", passed=False, finding=remedy)


def at_stripe(
    account: Account,
    seconds: float | None,
    webhook_url: str | None,
) -> Iterator[Finding]:
    """Ask Stripe: the key with each of its permissions, the version of the API, and the webhook
    endpoints.
    """
    try:
        call = Call(account, "query", "the examination", seconds=seconds)
        with call.errors():
            call.get("/v1/checkout/sessions", {"limit": 1})
    except WrongCredentials as error:
        yield Finding(
            name="credentials",
            passed=False,
            finding=f"{error.ret_msg}: check the token, and its permissions at Stripe",
        )
        return
    except TillgateError as error:
        yield Finding(name="credentials", passed=False, finding=f"Stripe cannot be asked: {error}")
        return
    mode = "a test key: play money" if is_test_key(account) else "a live key: real money"
    yield Finding(name="credentials", passed=True, finding=f"Stripe knows the key; it is {mode}")
    version = call.version
    is_right = version in ("", API_VERSION)
    said = (
        f"Stripe answers in version {version or 'unknown'}"
        if is_right
        else f"Stripe answers in version {version} instead of {API_VERSION}"
    )
    yield Finding(
        name="api version",
        passed=is_right,
        finding=f"{said}; Tillgate asks for {API_VERSION}",
    )
    yield from _permissions(account, seconds)
    yield from _endpoints(account, seconds, webhook_url)


def _permissions(account: Account, seconds: float | None) -> Iterator[Finding]:
    """Make one request for each permission. Those that would write are incomplete: Stripe refuses
    them after it saw the key.
    """
    query = {"query": "metadata['reference']:'none'", "limit": 1}
    needed: dict[str, Callable[[Call], object]] = {
        "Checkout Sessions: write": lambda call: call.post("/v1/checkout/sessions", {}),
        "PaymentIntents: read": lambda call: call.get("/v1/payment_intents/search", query),
        "Charges and Refunds: write": lambda call: call.post("/v1/refunds", {}),
        "Disputes: read": lambda call: call.get("/v1/disputes", {"limit": 1}),
    }
    lacking = []
    for permission, request in needed.items():
        call = Call(account, "query", "the examination", seconds=seconds)
        try:
            with call.errors():
                request(call)
        except WrongCredentials:
            lacking.append(permission)
        except TillgateError:
            pass  # refused as incomplete, as it should be
    finding = (
        f"the key lacks: {', '.join(lacking)}" if lacking else f"the key has: {', '.join(needed)}"
    )
    yield Finding(name="permissions", passed=not lacking, finding=finding)


def _endpoints(
    account: Account,
    seconds: float | None,
    webhook_url: str | None,
) -> Iterator[Finding]:
    """Look at the endpoints at the account's own address, or at every one that could be Tillgate's
    where it is not known.
    """
    call = Call(account, "query", "the examination", seconds=seconds)
    try:
        with call.errors():
            endpoints = list(call.pages("/v1/webhook_endpoints", {"limit": 100}))
    except TillgateError:
        finding = (
            "the key may not list the webhook endpoints (permission Webhook Endpoints: "
            "read), so they were not looked at"
        )
        yield Finding(name="webhook endpoint", passed=True, finding=finding)
        return
    ours = [
        one
        for one in endpoints
        if one.status == "enabled"
        and (one.url == webhook_url if webhook_url else "/webhook/" in one.url)
    ]
    if not ours:
        address = webhook_url or "the address of the account's notifications"
        remedy = f"none is enabled for {address}: register it, or the worker alone finds payments"
        yield Finding(name="webhook endpoint", passed=account.sandbox, finding=remedy)
    for endpoint in ours:
        missing = (
            sorted(EVENTS - set(endpoint.enabled_events))
            if "*" not in endpoint.enabled_events
            else []
        )
        finding = (
            f"{endpoint.url} lacks the events {', '.join(missing)}"
            if missing
            else f"{endpoint.url} sends all events that are needed"
        )
        yield Finding(name="webhook endpoint", passed=not missing, finding=finding)
