"""A payment created over loopback: typed, signed and checked, against a bare httpx post and the
SDKs of others.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx
import stripe
from yuansfer.client import Client
from yuansfer.configuration import Configuration

import tillgate
from tillgate import hooks
from tillgate.wire import exchange
from tools.benchmarks import server
from tools.benchmarks.measure import Effort, expect, median_call, take_turns
from tools.benchmarks.report import Figure, Section

__all__ = ["account_at", "payment_request", "run"]

_TOKEN = "5cbfb079f15b150122261c8537086d77a"
_IPN_URL = "https://shop.example/payments/notification/Zr7WkQ2mT9xL"
_CALLBACK_URL = "https://shop.example/payments/return?amount={amount}&status={status}"


def account_at(address: str) -> tillgate.Account:
    """Return an account at the local server."""
    return tillgate.Account(base_url=address, merchant_no="200043", token=_TOKEN, sandbox=True)


def payment_request() -> tillgate.PaymentRequest:
    """Build the request that the server's canned answer belongs to. Building, with its checks, is
    part of the measurement.
    """
    return tillgate.PaymentRequest(
        reference=server.REFERENCE,
        currency="USD",
        amount=server.AMOUNT,
        method="alipay",
        terminal="ONLINE",
        ipn_url=_IPN_URL,
        callback_url=_CALLBACK_URL,
    )


def _yuansfer_call(address: str) -> Callable[[], object]:
    Configuration.environments["benchmark"] = address  # the SDK's own table of environments
    online = Client(
        merchantNo="200043",
        storeNo="300014",
        token=_TOKEN,
        environment="benchmark",
    ).online

    def call() -> object:
        body = {  # the SDK writes into it, so it is built for each call
            "amount": server.AMOUNT,
            "currency": "USD",
            "settleCurrency": "USD",
            "vendor": "alipay",
            "terminal": "ONLINE",
            "reference": server.REFERENCE,
            "ipnUrl": _IPN_URL,
            "callbackUrl": _CALLBACK_URL,
            "timeout": "120",
        }
        return online.secure_pay(body).body["result"]["transactionNo"]

    return call


def _stripe_call(address: str) -> Callable[[], object]:
    stripe.api_base = address
    stripe.api_key = "sk_test_benchmark"

    def call() -> object:
        intent = stripe.PaymentIntent.create(
            amount=1250,
            currency="usd",
            automatic_payment_methods={"enabled": True},
            metadata={"reference": server.REFERENCE},
        )
        return intent.metadata["reference"]

    return call


def run(effort: Effort) -> Section:
    """Measure."""
    rounds, repeats = effort.pick(100, 3), effort.pick(60, 20)
    with server.running() as address, httpx.Client() as client:
        account = account_at(address)
        with tillgate.Gateway(account) as gateway:
            sent = exchange.write_pay(account.credentials, payment_request())
            headers = {"Content-Type": sent.content_type}
            calls: dict[str, Callable[[], object]] = {
                "tillgate, through the hook": lambda: (
                    hooks.pay(account, payment_request()).transaction_no
                ),
                "tillgate, Gateway.pay": lambda: gateway.pay(payment_request()).transaction_no,
                "bare httpx.Client.post": lambda: (
                    client.post(sent.url, content=sent.body, headers=headers).status_code
                ),
                "yuansfer SDK": _yuansfer_call(address),
                "stripe-python": _stripe_call(address),
            }
            answers: list[object] = [
                server.TRANSACTION_NO,
                server.TRANSACTION_NO,
                200,
                server.TRANSACTION_NO,
                server.REFERENCE,
            ]
            for (name, call), wanted in zip(calls.items(), answers, strict=True):
                expect(name, call(), wanted)
            series = take_turns(
                "pay",
                {name: median_call(call, repeats) for name, call in calls.items()},
                rounds,
                effort,
            )
    hooked = "tillgate, through the hook"
    return Section(
        name="pay",
        title="Creating a payment",
        about="From plain values to a checked answer on a kept-alive connection. The bare post "
        "sends the same bytes and does not\n"
        "parse the answer. The `yuansfer` SDK makes the same call, and stripe-python creates a "
        "PaymentIntent.",
        repetitions=f"{rounds} rounds; in each the median of {repeats} calls.",
        figures=[
            Figure.cost(
                "`hooks.pay`: time of a bare `httpx.Client.post`",
                series.cost(hooked, "bare httpx.Client.post"),
                at_most=1.2,
            ),
            Figure.speed(
                "`hooks.pay`: speed of the `yuansfer` SDK",
                series.speed(hooked, "yuansfer SDK"),
                at_least=1.4,
            ),
            Figure.speed(
                "`hooks.pay`: speed of stripe-python",
                series.speed(hooked, "stripe-python"),
                at_least=1.9,
            ),
            Figure.cost(
                "`hooks.pay`: time of `Gateway.pay`",
                series.cost(hooked, "tillgate, Gateway.pay"),
            ),
            Figure.cost(
                "`Gateway.pay`: time of a bare `httpx.Client.post`",
                series.cost("tillgate, Gateway.pay", "bare httpx.Client.post"),
            ),
        ],
        bars={name: series.median(name) * 1e6 for name in calls},
        unit="microseconds for one payment created (shorter is better)",
    )
