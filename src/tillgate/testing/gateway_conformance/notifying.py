"""Scenarios of notifications and secrets: everybody can send a notification, and no text holds a
token.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import pytest

from tillgate import hooks
from tillgate.account import Account
from tillgate.errors import (
    AnswerNotUnderstood,
    OutcomeUnknown,
    SignatureMismatch,
    TillgateError,
)
from tillgate.testing.gateway_conformance.judging import (
    WRONG_SECRET,
    Headers,
    Payment,
    any_account,
    held,
    paid,
    request_for,
    start,
    stranger_of,
)
from tillgate.testing.gateway_conformance.spoiling import PROVE_NOTHING
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
        address = {"base_url": gateway.unreachable().base_url, "sandbox": True}
        nobody = payment.account.model_copy(update=address)
        assert _read(nobody, headers, body) == first, (
            "without a gateway the notification is about something else: the plugin asked it"
        )
        assert payment.query().status is TransactionStatus.PENDING, (
            "nobody has paid, and a notification changed that"
        )

    def test_notification_gives_the_number(self, gateway: GatewayDriver) -> None:
        """After a creation without an answer, a query with the number from the notification finds
        the payment.
        """
        account = any_account(gateway)
        request = request_for(account)
        gateway.lose_answer("pay")
        with pytest.raises(OutcomeUnknown):
            hooks.pay(account, request)
        number = held(gateway, request).transaction_no
        gateway.pay(request.reference)
        hints = _read(account, *gateway.notification(request.reference)) or ()
        hint = next((one for one in hints if one.reference == request.reference), None)
        assert hint is not None, f"the plugin found {hints} in the notification"
        assert hint.transaction_no in (None, number), (
            f"the hint says {hint.transaction_no!r}, and the gateway's number is {number!r}"
        )
        answer = hooks.query(account, request.reference, transaction_no=hint.transaction_no)
        assert (answer.reference, answer.transaction_no, answer.status) == (
            request.reference,
            number,
            TransactionStatus.PAID,
        ), f"the query finds {answer}"

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
        """A notification with a stranger's signature, without one, or with that of another one is a
        signature mismatch, also for an account without secrets.
        """
        payment, other = start(gateway), start(gateway)
        assert _read(payment.account, *gateway.notification(payment.request.reference))
        for account in (
            payment.account,
            payment.account.model_copy(update={"webhook_secrets": ()}),
        ):
            for headers, body in gateway.forgeries(
                payment.request.reference,
                other.request.reference,
            ):
                with pytest.raises(SignatureMismatch):
                    _read(account, headers, body)
        for strange in (b"", b"[]", b"\xff", b'{"reference": "x"}'):
            with suppress(AnswerNotUnderstood):
                assert not hooks.read_notification(payment.account, {}, strange), (
                    f"the unsigned body {strange!r} was believed"
                )

    def test_no_secret_in_any_text(self, gateway: GatewayDriver) -> None:
        """The account's secrets and those derived from them appear in no repr, page, log, output,
        error or cause of an error.
        """
        written = StringIO()
        with everything_logged() as lines, redirect_stdout(written), redirect_stderr(written):
            lines += [repr(any_account(gateway)), *_much_happens(gateway)]
        lines += written.getvalue().splitlines()
        secrets = gateway.secrets() | {WRONG_SECRET}
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


def _headers_of(error: BaseException | None) -> Iterator[str]:
    """Yield the headers of requests that an error, or a cause of it, holds: error reports read
    them.
    """
    while error is not None:
        for held_by_it in vars(error).values():
            headers = getattr(held_by_it, "headers", None)
            if isinstance(headers, Mapping):
                yield repr(dict(headers))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@dataclass
class _Ear:
    """Collects the texts of answers, pages and errors."""

    texts: list[str] = field(default_factory=list)

    def note(self, call: Callable[..., object], *arguments: Any, **more: Any) -> None:
        """Make a call, and keep its answer or its error as text."""
        try:
            answer = call(*arguments, **more)
        except TillgateError as error:
            self.texts += [repr(error), str(error), *traceback.format_exception(error)]
            self.texts += _headers_of(error)
        else:
            step = getattr(answer, "next_step", None)
            pages = (getattr(answer, "dashboard_url", ""), getattr(step, "url", ""))
            self.texts += map(repr, (answer, *pages))


def _much_happens(gateway: GatewayDriver) -> list[str]:
    """Do everything once that sends the token or fails, and return every answer, page and error as
    text.
    """
    payment, ear = paid(gateway), _Ear()
    account, request = payment.account, payment.refund_request(payment.part)
    ear.texts += [payment.created.payment_url, repr(request), repr(payment.request)]
    ear.texts += [repr(payment.created), repr(hooks.payment_methods(account))]
    for asked in (account, gateway.unreachable(), stranger_of(account)):
        ear.note(replace(payment, account=asked).asked)
        ear.note(hooks.pay, asked, request_for(asked))
        if asked is not account:
            ear.note(hooks.refund, asked, payment.refund_request(payment.part, "of-nobody"))
    ear.note(hooks.query, account, request_for(account).reference)
    ear.note(hooks.refund, account, payment.refund_request(payment.total + payment.part))
    for fault in ("lost_response", *PROVE_NOTHING):
        with suppress(NotImplementedError):
            gateway.fault(fault, "pay")
            ear.note(hooks.pay, account, request_for(account))
            gateway.fault(fault, "query")
            ear.note(payment.asked)
            gateway.clear_faults()
    with suppress(NotImplementedError):
        gateway.lose_answer("refund")
    ear.note(hooks.refund, account, request)
    ear.note(hooks.query_refund, account, request)
    ear.note(hooks.read_notification, account, {}, b"{}")
    return ear.texts
