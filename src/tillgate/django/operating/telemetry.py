"""OpenTelemetry: a span and a duration for every call of the gateway, a count of every event
(`tillgate[otel]`).

This module uses only the API, which does nothing until the project sets up an SDK. Attributes of
metrics have few values; references are in spans.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from tillgate import __version__, hooks
from tillgate.account import Account
from tillgate.errors import OrderNotFound
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_SCOPE: Final = "tillgate"
_T = TypeVar("_T")


class TelemetryObserver:
    """Observes through the given providers, or through those that the project sets up at any
    time.
    """

    def __init__(
        self,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        self._tracers, self._meters = tracers, meters

    @cached_property
    def _tracer(self) -> Tracer:
        from opentelemetry import trace  # on first use: many processes never make a payment

        return trace.get_tracer(_SCOPE, __version__, self._tracers)

    @cached_property
    def _meter(self) -> Meter:
        from opentelemetry import metrics  # on first use, like the tracer

        return metrics.get_meter(_SCOPE, __version__, self._meters)

    @cached_property
    def _events(self) -> Counter:
        return self._meter.create_counter(
            "tillgate.events",
            unit="{event}",
            description="Changes of payments and refunds",
        )

    @cached_property
    def _durations(self) -> Histogram:
        return self._meter.create_histogram(
            "tillgate.gateway.duration",
            unit="s",
            description="How long calls of the gateway took",
        )

    @hooks.hookimpl
    def tillgate_event(self, event: hooks.Event) -> None:
        """Count an event, and add it to the current span."""
        from opentelemetry import trace  # on first use, like the tracer

        kinds = {
            f"tillgate.{name}": str(event.fields[name])
            for name in ("method", "reason")
            if event.fields.get(name)
        }
        self._events.add(1, {"tillgate.event": event.name, **kinds})
        about = {"tillgate.reference": event.reference} if event.reference else {}
        trace.get_current_span().add_event(event.name, {**kinds, **about})

    @hooks.hookimpl(wrapper=True)
    def tillgate_pay(
        self,
        account: Account,
        request: PaymentRequest,
    ) -> Generator[None, CreatedPayment | None, CreatedPayment | None]:
        """Span the creation of a payment."""
        return (yield from self._call("pay", account, request.reference))

    @hooks.hookimpl(wrapper=True)
    def tillgate_query(
        self,
        account: Account,
        reference: str,
    ) -> Generator[None, Transaction | None, Transaction | None]:
        """Span a query."""
        return (yield from self._call("query", account, reference))

    @hooks.hookimpl(wrapper=True)
    def tillgate_refund(
        self,
        account: Account,
        request: RefundRequest,
    ) -> Generator[None, Refunded | None, Refunded | None]:
        """Span a refund."""
        return (yield from self._call("refund", account, request.reference))

    def _call(self, operation: str, account: Account, reference: str) -> Generator[None, _T, _T]:
        from opentelemetry import trace  # on first use, like the tracer

        kind: dict[str, str | bool] = {
            "tillgate.operation": operation,
            "tillgate.sandbox": account.sandbox,
        }
        outcome = "answered"
        about: dict[str, str | bool] = {
            **kind,
            "tillgate.reference": reference,
            "server.address": urlsplit(account.base_url).hostname or "",
        }
        began = time.perf_counter()
        # The exception itself is not recorded: its text is the gateway's, and its type says enough
        # here.
        with self._tracer.start_as_current_span(
            f"tillgate {operation}",
            kind=trace.SpanKind.CLIENT,
            attributes=about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                answer = yield
                if isinstance(answer, Transaction):
                    span.set_attribute("tillgate.status", str(answer.status))
            except Exception as error:
                outcome = type(error).__name__
                if not isinstance(error, OrderNotFound):  # an answer like any other
                    span.set_attribute("error.type", outcome)
                    span.set_status(trace.Status(trace.StatusCode.ERROR))
                raise
            finally:
                span.set_attribute("tillgate.outcome", outcome)
                self._durations.record(
                    time.perf_counter() - began,
                    {**kind, "tillgate.outcome": outcome},
                )
        return answer
