"""The signals for operators: the structured log and OpenTelemetry; never a secret."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import tillgate.django
from tests.django.conftest import World
from tests.test_docs import read, rows, section
from tillgate import ConfigurationError, NotSent, hooks
from tillgate.django.accounting.differences import STATUS_OF_EVENT
from tillgate.django.models import Payment, Refund
from tillgate.django.operating import observers
from tillgate.django.operating.observers import LOG_NAME, TELEMETRY_NAME
from tillgate.django.operating.telemetry import TelemetryObserver
from tillgate.django.orders.timeline import ERASED, NOTED, record
from tillgate.django.refunds import queueing
from tillgate.django.words import EVENTS
from tillgate.sandbox import PUBLISHED_TEST_TOKEN


class Telemetry:
    """An SDK of a test's own."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])

    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self.reader.get_metrics_data()
        metrics = [
            metric
            for one in (data.resource_metrics if data else [])
            for scope in one.scope_metrics
            for metric in scope.metrics
        ]
        return [
            point for metric in metrics if metric.name == name for point in metric.data.data_points
        ]

    def everything(self) -> str:
        data = self.reader.get_metrics_data()
        return "".join(span.to_json() for span in self.spans()) + (data.to_json() if data else "")


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """The observer on an SDK of the test's own, in place of the one that is registered."""
    seen = Telemetry()
    manager = hooks.plugin_manager()
    own = manager.unregister(name=TELEMETRY_NAME)
    manager.register(TelemetryObserver(seen.tracers, seen.meters), name=TELEMETRY_NAME)
    yield seen
    manager.unregister(name=TELEMETRY_NAME)
    manager.register(own, name=TELEMETRY_NAME)
    seen.tracers.shutdown()
    seen.meters.shutdown()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def events(log: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in log.records if record.name == "tillgate.events"]


def live_a_full_life(world: World) -> Payment:
    """Start, be refused, pay, notify, come back, refund, lose a refund, fail to reach the gateway,
    need review.
    """
    world.sandbox.control.fault("refused", occasion="pay")
    world.start(world.order())
    world.sandbox.control.fault("bad_signature", occasion="query")
    payment = world.paid_payment()
    world.notification(payment, f"status=success&verifySign={'0' * 32}")
    world.come_back(payment)
    queueing.refund(payment.pk, "1.00")
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(payment.pk, "2.00")
    world.time.advance(days=2)
    world.run_worker()
    return payment


def test_text_cannot_forge_log_lines(
    world: World,
    log: pytest.LogCaptureFixture,
) -> None:
    """The text comes from staff or from an error."""
    payment = world.paid_payment()
    queueing.refund(
        payment.pk,
        "1.00",
        staff="ann",
        reason="broken\nWARNING payment.paid FORGED\x1b[2K",
    )
    try:
        raise ValueError("no\nWARNING payment.paid FORGED")
    except ValueError:
        logging.getLogger("tillgate").exception(
            "the handler of %s failed",
            "1\r\nWARNING payment.paid FORGED",
        )
    plain = logging.Formatter("%(levelname)s %(message)s")
    text = "\n".join(plain.format(record) for record in log.records)
    assert text.count("FORGED") >= 3, "it is told, "
    assert not [line for line in text.splitlines() if line.startswith("WARNING payment.paid")], (
        "and stands in no line of its own"
    )
    assert "\x1b" not in text


def test_log_tells_what_happened_to_payment(
    world: World,
    log: pytest.LogCaptureFixture,
) -> None:
    payment = world.paid_payment()
    assert [(record.event, record.reference) for record in events(log)] == [
        ("payment.created", payment.reference),
        ("payment.pending", payment.reference),
        ("payment.paid", payment.reference),
        ("event.delivered", payment.reference),
    ]
    paid = events(log)[2]
    assert (paid.status, paid.amount, paid.method, paid.actor) == (
        "paid",
        "12.50",
        "alipay",
        "webhook",
    )
    assert paid.order == f"smallest-shop:{payment.order.key}"
    assert (
        paid.getMessage() == f"payment.paid {payment.reference}: the gateway says that it is paid"
    )
    assert paid.levelno == logging.INFO


def test_log_shows_transaction_number_and_no_card(
    world: World,
    log: pytest.LogCaptureFixture,
) -> None:
    # its last digit is right for a card
    payment, number = (
        world.paid_payment(),
        "301201812260000002",
    )
    payment.transaction_no = number
    record("payment.identified", payment.order, "worker", f"transaction {number}", payment=payment)
    assert (
        events(log)[-1].getMessage()
        == f"payment.identified {payment.reference}: transaction {number}"
    )
    assert events(log)[-1].transaction_no == number
    record("payment.identified", payment.order, "worker", "card 4111111111111111", payment=payment)
    assert events(log)[-1].getMessage() == f"payment.identified {payment.reference}: card ***"


def test_log_warns_of_what_needs_staff(world: World, log: pytest.LogCaptureFixture) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(payment.pk, "2.00")
    warned = [
        (record.event, getattr(record, "reason", ""))
        for record in events(log)
        if record.levelno == logging.WARNING
    ]
    assert warned == [("refund.unknown", ""), ("review.opened", "refund-unknown")]
    assert [record.refund_amount for record in events(log) if record.event == "refund.unknown"] == [
        "2.00",
    ]


def test_observers_hear_of_account_reviews(
    world: World,
    log: pytest.LogCaptureFixture,
    configure: Any,
) -> None:
    payment = world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notification(payment)
    raised = next(record for record in events(log) if record.event == "review.opened")
    assert (raised.reason, raised.account, raised.reference) == (
        "wrong-credentials",
        "default",
        None,
    )


def test_log_omits_plugin_fields_of_events(log: pytest.LogCaptureFixture) -> None:
    hooks.emit(
        hooks.Event(
            name="shop.thing",
            at=timezone.now(),
            fields={"card": "4111", "name": "Ann", "args": 1, "actor": "x"},
        ),
    )
    (record,) = events(log)
    assert (record.event, record.actor) == ("shop.thing", "x")
    assert not hasattr(record, "card")
    assert "4111" not in log.text


def test_gateway_calls_have_span_and_duration(
    world: World,
    telemetry: Telemetry,
) -> None:
    payment = world.paid_payment()
    queueing.refund(payment.pk, "1.00")
    assert [span.name for span in telemetry.spans()] == [
        "tillgate pay",
        "tillgate query",
        "tillgate refund",
    ]
    for span in telemetry.spans():
        assert span.attributes["tillgate.reference"] == payment.reference
        assert span.attributes["server.address"] == "127.0.0.1"
        assert span.attributes["tillgate.outcome"] == "answered"
        assert span.attributes["tillgate.sandbox"] is True
        assert span.kind.name == "CLIENT"
        assert span.status.status_code is StatusCode.UNSET
    assert telemetry.spans()[1].attributes["tillgate.status"] == "paid"
    points = telemetry.points("tillgate.gateway.duration")
    assert sorted(point.attributes["tillgate.operation"] for point in points) == [
        "pay",
        "query",
        "refund",
    ]
    assert all(point.count == 1 and point.sum > 0 for point in points)


def test_failed_call_shows_only_error_type(world: World, telemetry: Telemetry) -> None:
    world.sandbox.control.fault("refused", occasion="pay")
    payment = world.start(world.order())
    (span,) = telemetry.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == span.attributes["tillgate.outcome"] == "Refused"
    assert span.events == ()
    world.sandbox.control.reset()
    world.time.advance(hours=2)
    world.run_worker()
    query = telemetry.spans()[-1]
    assert query.attributes["tillgate.reference"] == payment.reference
    assert query.attributes["tillgate.outcome"] == "OrderNotFound"
    assert query.status.status_code is StatusCode.UNSET  # an answer like any other


def test_events_are_counted_and_join_spans(
    world: World,
    telemetry: Telemetry,
) -> None:
    """Each event is noted in the span around it."""
    with telemetry.tracers.get_tracer("a request").start_as_current_span(
        "POST /payments/notification/",
    ):
        payment = world.paid_payment()
    counted = {
        (point.attributes["tillgate.event"], point.attributes.get("tillgate.method")): point.value
        for point in telemetry.points("tillgate.events")
    }
    assert counted[("payment.paid", "alipay")] == 1
    around = telemetry.spans()[-1]
    assert [event.name for event in around.events] == [
        "payment.created",
        "payment.pending",
        "payment.paid",
        "event.delivered",
    ]
    assert {event.attributes["tillgate.reference"] for event in around.events} == {
        payment.reference,
    }
    assert all(span.parent.span_id == around.context.span_id for span in telemetry.spans()[:-1])
    references = [
        point
        for name in ("tillgate.events", "tillgate.gateway.duration")
        for point in telemetry.points(name)
    ]
    # a metric has few values
    assert not any(payment.reference in str(dict(point.attributes)) for point in references)


def test_i11_telemetry_and_log_hold_no_secrets(
    world: World,
    telemetry: Telemetry,
    log: pytest.LogCaptureFixture,
) -> None:
    """No token, signature or key is in a log, span or metric."""
    live_a_full_life(world)
    heard = telemetry.everything() + "".join(
        f"{record.getMessage()} {vars(record)} {record.exc_text or ''}\n" for record in log.records
    )
    assert "payment.paid" in heard
    assert "refund.unknown" in heard
    assert PUBLISHED_TEST_TOKEN not in heard
    assert re.findall(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", _without_trace_ids(heard)) == []
    for payment in Payment.objects.all():
        assert payment.notification_key not in heard
        assert payment.return_key not in heard
    for refund in Refund.objects.all():
        assert refund.notification_key not in heard


def _without_trace_ids(text: str) -> str:
    return re.sub(r"0x[0-9a-f]{32}", "", text)


def test_telemetry_names_types_of_call_failures(
    world: World,
    telemetry: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call never left, or a plugin raised an error."""

    class Broken:
        @hooks.hookimpl(wrapper=True, trylast=True)  # within the telemetry
        def tillgate_query(self, reference: str) -> Iterator[None]:
            yield from ()
            raise NotSent("query", reference, "connection refused")

    payment = world.start(world.order())
    broken = Broken()
    hooks.plugin_manager().register(broken)
    try:
        world.notification(payment)
    finally:
        hooks.plugin_manager().unregister(broken)
    assert telemetry.spans()[-1].attributes["error.type"] == "NotSent"


def test_an_observer_that_fails_disturbs_nobody(
    world: World,
    telemetry: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(observers._log, "log", fail)
    payment = world.paid_payment()
    assert world.shop.times_paid(payment.order.key) == 1
    assert telemetry.points("tillgate.events")


def test_observers_register_once_unless_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {LOG_NAME, TELEMETRY_NAME} <= {
        name for name, _ in hooks.plugin_manager().list_name_plugin()
    }
    before = hooks.plugin_manager().list_name_plugin()
    observers.register()
    assert hooks.plugin_manager().list_name_plugin() == before
    fresh = hooks.build_plugin_manager(entry_points=False)
    fresh.set_blocked(LOG_NAME)
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: fresh)
    observers.register()
    assert not fresh.has_plugin(LOG_NAME)
    assert fresh.has_plugin(TELEMETRY_NAME)


def test_without_opentelemetry_its_observer_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_module(name: str) -> None:
        raise ModuleNotFoundError(name)

    fresh = hooks.build_plugin_manager(entry_points=False)
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: fresh)
    for find in (no_such_module, lambda _: None):
        monkeypatch.setattr("importlib.util.find_spec", find)
        observers.register()
        assert not fresh.has_plugin(TELEMETRY_NAME)
    assert fresh.has_plugin(LOG_NAME)


def test_broken_plugin_does_not_stop_django(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Django starts although a plugin cannot be loaded."""

    def broken() -> None:
        raise ConfigurationError("plugin", "tillgate", "could not be loaded")

    monkeypatch.setattr("tillgate.hooks.plugin_manager", broken)
    observers.register()


def test_opentelemetry_is_imported_only_when_needed() -> None:
    code = "import sys, django; django.setup(); print('opentelemetry.trace' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"DJANGO_SETTINGS_MODULE": "tests.django.project"},
    )
    assert done.stdout == "False\n"


def test_every_event_has_words_and_documentation() -> None:
    sources = [path.read_text("utf-8") for path in Path(tillgate.django.__path__[0]).rglob("*.py")]
    recorded = {
        name for source in sources for name in re.findall(r'record\(\s*"([a-z.-]+)"', source)
    }
    assert set(EVENTS) == recorded | set(STATUS_OF_EVENT) | {ERASED, NOTED}
    assert set(rows(section(read("docs/how-to/observe.md"), "The events"))) == set(EVENTS)
