"""Events as Stripe sends them, signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Final

__all__ = ["KEY", "SECRET", "UNHANDLED", "event"]

KEY: Final = "sk_test_benchmarkbenchmarkbenchmark"
SECRET: Final = "whsec_benchmark"
UNHANDLED: Final = "payment_intent.benchmarked"
"""A kind of event that dj-stripe only keeps: it fetches nothing and calls no handler."""


def event(name: str, path: str, kind: str = "payment_intent.succeeded") -> bytes:
    """Return the whole request that tells of one event about one payment intent."""
    intent = {
        "id": f"pi_{name}",
        "object": "payment_intent",
        "amount": 1250,
        "amount_received": 1250,
        "capture_method": "automatic",
        "created": 1700000000,
        "currency": "usd",
        "livemode": False,
        "metadata": {},
        "payment_method_types": ["alipay"],
        "status": "succeeded",
    }
    told = {
        "id": f"evt_{name}",
        "object": "event",
        "api_version": "2026-05-27.dahlia",
        "created": 1700000000,
        "data": {"object": intent},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": f"req_{name}", "idempotency_key": None},
        "type": kind,
    }
    body, at = json.dumps(told), int(time.time())
    signature = hmac.new(SECRET.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
        f"application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return f"{head}Stripe-Signature: t={at},v1={signature}\r\n\r\n{body}".encode()
