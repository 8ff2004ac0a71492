"""Scenarios of notifications and secrets: everybody can send a notification, and no text holds a
token.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from tillgate import hooks
from tillgate.account import Account
from tillgate.errors import AnswerNotUnderstood, GatewayError, SignatureMismatch
from tillgate.testing.gateway_conformance.judging import (
    Headers,
    Payment,
    any_account,
    paid,
    request_for,
    start,
)
from tillgate.testing.gateway_driver import GatewayDriver
from tillgate.testing.leaks import everything_logged, holds_secret
from tillgate.wire.dialects import TransactionStatus


class Notifying:
    """Scenarios of notifications, which are hints, and of secrets."""

    def test_notification_is_a_hint(self, gateway: GatewayDriver) -> None:
        """The gateway's notification names its payment, the same each time it comes, and changes
        nothing.
        """
        payment = start(gateway)
        start(gateway)
        headers, body = gateway.notification(payment.request.reference)
        first, again = (_read(payment.account, headers, body) for _ in range(2))
        assert first, "the plugin found no payment in the notification"
        assert first == again, "the repeated notification is about something else"
        assert all(_is_about(payment, hint) for hint in first), (
            f"the notification is about {payment.request.reference}, not {first}"
        )
        assert payment.query().status is TransactionStatus.PENDING, (
            "nobody has paid, and a notification changed that"
        )

    def test_headers_in_any_case(self, gateway: GatewayDriver) -> None:
        """The names of a notification's headers may come in any case."""
        payment = start(gateway)
        headers, body = gateway.notification(payment.request.reference)
        for spell in (str.lower, str.upper, str.title):
            spelt = {spell(name): text for name, text in headers.items()}
            hints = _read(payment.account, spelt, body) or ()
            assert [one for one in hints if _is_about(payment, one)], (
                f"with headers such as {min(spelt, default='')!r} the plugin found {hints}"
            )

    def test_forged_notification(self, gateway: GatewayDriver) -> None:
        """A notification that somebody else signed, or that nobody signed, is a signature
        mismatch.
        """
        payment = start(gateway)
        headers, body = gateway.notification(payment.request.reference, forged=True)
        with pytest.raises(SignatureMismatch):
            hooks.read_notification(payment.account, headers, body)
        for strange in (b"", b"[]", b"\xff", b'{"reference": "x"}'):
            with suppress(AnswerNotUnderstood):
                assert not hooks.read_notification(payment.account, {}, strange), (
                    f"the unsigned body {strange!r} was believed"
                )

    def test_no_secret_in_any_text(self, gateway: GatewayDriver) -> None:
        """The account's token and the secrets of its notifications appear in no repr, log, error or
        cause of an error.
        """
        account = any_account(gateway)
        with everything_logged() as lines:
            lines += [repr(account), *_much_happens(gateway)]
        secrets = [
            secret.get_secret_value() for secret in (account.token, *account.webhook_secrets)
        ]
        leaks = [line for line in lines if holds_secret(line, secrets)]
        for secret in secrets:
            leaks = [line.replace(secret, "***") for line in leaks]
        assert not leaks, (
            f"{len(leaks)} of {len(lines)} texts hold a secret; the first begins {leaks[0][:40]!r}"
        )


def _read(
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[hooks.Hint, ...] | None:
    return hooks.read_notification(account, Headers(headers), body)


def _is_about(payment: Payment, hint: hooks.Hint) -> bool:
    named = [
        (hint.reference, payment.request.reference),
        (hint.transaction_no, payment.created.transaction_no),
    ]
    return any(found for found, _ in named) and all(
        found in (None, expected) for found, expected in named
    )


def _much_happens(gateway: GatewayDriver) -> list[str]:
    """Do everything once that sends the token or fails, and return every answer and error as
    text.
    """
    payment, nobody = paid(gateway), gateway.unreachable()
    account, request = payment.account, payment.refund_request(payment.part)
    texts = [
        repr(payment.created),
        repr(payment.query()),
        repr(payment.request),
        repr(request),
        repr(hooks.payment_methods(account)),
    ]

    def note(call: Callable[[], object]) -> None:
        try:
            texts.append(repr(call()))
        except GatewayError as error:
            texts.extend((repr(error), str(error), *traceback.format_exception(error)))

    note(lambda: hooks.query(account, request_for(account).reference))
    note(lambda: hooks.query(nobody, request.reference, attempts=1))
    note(lambda: hooks.pay(nobody, request_for(nobody)))
    gateway.lose_answer("pay")
    note(lambda: hooks.pay(account, request_for(account)))
    note(lambda: hooks.refund(account, payment.refund_request(payment.total + payment.part)))
    gateway.lose_answer("refund")
    note(lambda: hooks.refund(account, request))
    note(lambda: hooks.query_refund(account, request))
    note(lambda: hooks.read_notification(account, {}, b"{}"))
    return texts
