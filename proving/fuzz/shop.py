"""A shop on the emulator, both in this process, with rows in every status that outsiders can reach;
and the code that restores it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final
from unittest import mock

from django.apps import apps
from django.contrib.auth.models import User
from django.core import signals, signing
from django.core.exceptions import SuspiciousOperation
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from proving.fuzz.inputs import Request
from tests.smallest_shop.models import ShopOrder
from tillgate import (
    Account,
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
    hooks,
)
from tillgate.django.conf import get_settings
from tillgate.django.models import Payment, Refund
from tillgate.django.pages.tickets import pay_url, start_url
from tillgate.django.payments import reconciling, starting
from tillgate.django.refunds import queueing
from tillgate.hooks import hookimpl
from tillgate.hooks.manager import ADAPTER_NAME
from tillgate.sandbox import Options
from tillgate.sandbox.clock import Clock
from tillgate.sandbox.service import Service
from tillgate.wire import exchange
from tillgate.wire.exchange import HttpAnswer, HttpRequest

PLUGIN: Final = "smallest-shop"
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
ADDRESS: Final = "http://127.0.0.1:1"
"""The emulator's address, at which no server listens: it is called in this process."""
COUNTERS: Final = {
    "tillgate_payment": {
        "notifications",
        "forged_notifications",
        "repeated_notifications",
        "last_notification",
        "last_polled_at",
        "last_returned_at",
        "next_poll_at",
    },
    "tillgate_refund": {"notifications", "due_at"},
}
"""The columns that a notification alone may change: how many came, and when the gateway is queried
next.
"""

NO_REQUEST: Final = (400, dict[str, str](), b"")
"""The answer to input of which Django makes no request. Its own pages, and ours, contain some
text.
"""

Row = tuple[Any, ...]
Rows = dict[str, list[Row]]


class Gateway:
    """The emulator as a plugin around the built-in adapter: the client's own writing and reading,
    and no socket between.
    """

    def __init__(self) -> None:
        self.service = Service(
            Options(seed=1, public_url=ADDRESS),
            clock=Clock.standing(BEGAN.timestamp()),
            random=Random(1),
        )
        self.says: tuple[int, bytes] | None = None
        """Its answer instead of the truth."""
        self.sent = 0
        self.queried: list[str] = []
        """The references that it was asked about, the newest last."""

    def _send(self, request: HttpRequest) -> HttpAnswer:
        self.sent += 1
        if self.says:
            return HttpAnswer(status=self.says[0], body=self.says[1])
        came = self.service.handle(
            request.url.removeprefix(ADDRESS),
            request.content_type,
            request.body,
        )
        return HttpAnswer(status=came.http_status, body=came.body)

    @hookimpl
    def tillgate_pay(self, account: Account, request: PaymentRequest) -> CreatedPayment:
        credentials = account.credentials
        return exchange.read_pay(
            credentials,
            request,
            self._send(exchange.write_pay(credentials, request)),
        )

    @hookimpl
    def tillgate_query(self, account: Account, reference: str) -> Transaction:
        self.queried.append(reference)
        credentials = account.credentials
        return exchange.read_query(
            credentials,
            reference,
            self._send(exchange.write_query(credentials, reference)),
        )

    @hookimpl
    def tillgate_refund(self, account: Account, request: RefundRequest) -> Refunded:
        credentials = account.credentials
        return exchange.read_refund(
            credentials,
            request,
            self._send(exchange.write_refund(credentials, request)),
        )


class Time:
    """The time of the shop, for our clock and for the signatures of tickets; it stands still
    between requests.
    """

    def __init__(self) -> None:
        self.moment = BEGAN

    def now(self) -> datetime:
        return self.moment

    def time(self) -> float:
        return self.moment.timestamp()


class _Broken(io.BytesIO):
    """The body of a request whose connection breaks."""

    def read(self, *_: Any) -> bytes:
        raise OSError("the connection was reset")

    readline = read


class Shop:
    """The rows, the gateway, the time, and the way in: WSGI, as a server would hand a request
    over.
    """

    def __init__(self, gateway: Gateway, time: Time, logged: list[str]) -> None:
        self.gateway = gateway
        self.time = time
        self.token = get_settings().accounts["default"].token.get_secret_value()
        self.logged = logged
        self.faults: list[BaseException] = []
        self._handler = WSGIHandler()
        self._tables = [
            model._meta.db_table
            for app in ("tillgate", "smallest_shop")
            for model in apps.get_app_config(app).get_models()
        ]
        self._build()
        self._columns = {table: self._columns_of(table) for table in self._tables}
        self._first, self._began = self.rows(), time.moment

    def _build(self) -> None:
        """Place orders and bring their payments and refunds into every status, by the operations
        that do so in a shop.
        """

        def begun(total: str = "12.50") -> Payment:
            return starting.start_payment(
                PLUGIN,
                str(ShopOrder.objects.create(total=total).pk),
                method="alipay",
            ).payment

        def settle(payment: Payment, decision: Any) -> Payment:
            self.gateway.service.decide(payment.reference, decision)
            self.later(60)
            reconciling.reconcile(payment, "worker")
            return Payment.objects.select_related("order").get(pk=payment.pk)

        self.open, self.paid = begun(), settle(begun("30.00"), "pay")
        self.failed = settle(begun(), "decline")
        self.gateway.says = (502, b"")
        self.created = begun()
        self.unknown = queueing.refund(self.paid.pk, "1.00")
        self.gateway.says = None
        self.succeeded = queueing.refund(self.paid.pk, "2.00")
        self.gateway.says = (400, b'{"ret_code":"000030","ret_msg":"insufficient balance"}')
        self.refused = queueing.refund(self.paid.pk, "3.00")
        self.gateway.says = None
        self.payments, self.refunds = (
            list(Payment.objects.order_by("pk")),
            list(Refund.objects.order_by("pk")),
        )
        self.order = str(ShopOrder.objects.create(total="7.50").pk)
        self.pay_path, self.start_path = (
            pay_url(PLUGIN, self.order),
            start_url(PLUGIN, self.order, "paypal"),
        )
        admin = Client()
        admin.force_login(User.objects.create_superuser("fuzz"))
        self.admin_cookie = f"sessionid={admin.cookies['sessionid'].value}"

    # The rows.

    def _columns_of(self, table: str) -> list[str]:
        with connection.cursor() as cursor:
            return [
                column.name
                for column in connection.introspection.get_table_description(cursor, table)
            ]

    def rows(self) -> Rows:
        """Return every row of the shop and of Tillgate."""
        with connection.cursor() as cursor:
            found = {}
            for table in self._tables:
                cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
                found[table] = list(cursor.fetchall())
            return found

    def differences(
        self,
        before: Rows,
        after: Rows,
    ) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        """Return the changes, as table and the changed columns before and after; stored
        notifications and the counts that they may raise are left out.
        """
        changed: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
        for table in self._tables:
            if before[table] == after[table] or table == "tillgate_notification":
                continue
            names, free = self._columns[table], COUNTERS.get(table, set())
            old, new = (
                {row[0]: dict(zip(names, row, strict=True)) for row in rows[table]}
                for rows in (before, after)
            )
            for key in sorted({*old, *new}, key=str):
                was, became = old.get(key, {}), new.get(key, {})
                different = [
                    name for name in names if name not in free and was.get(name) != became.get(name)
                ]
                if different:
                    changed.append(
                        (
                            table,
                            {name: was.get(name) for name in different},
                            {name: became.get(name) for name in different},
                        ),
                    )
        return changed

    def restore(self) -> None:
        """Make every row and the clock as they were at first."""
        now = self.rows()
        changed = [table for table in self._tables if now[table] != self._first[table]]
        with (
            transaction.atomic(),
            connection.constraint_checks_disabled(),
            connection.cursor() as cursor,
        ):
            for table in changed:
                cursor.execute(f"DELETE FROM {table}")
            for table in changed:
                marks = ", ".join(["%s"] * len(self._columns[table]))
                names = ", ".join(connection.ops.quote_name(name) for name in self._columns[table])
                cursor.executemany(
                    f"INSERT INTO {table} ({names}) VALUES ({marks})",
                    self._first[table],
                )
        self.time.moment = self._began

    # The way in.

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.time.moment += timedelta(seconds=seconds)

    def ask(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Hand a request to the project as a WSGI server would; return status, headers and body,
        and note errors raised or logged.
        """
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "CONTENT_TYPE": request.content_type,
            "CONTENT_LENGTH": str(len(request.body)),
            "SERVER_NAME": "shop.example",
            "SERVER_PORT": "443",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "192.0.2.1",
            "HTTP_HOST": "shop.example",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "https",
            "wsgi.input": _Broken(request.body) if request.is_cut else io.BytesIO(request.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **request.headers,
        }
        self.faults.clear()
        self.logged.clear()
        self.gateway.sent = 0
        self.gateway.queried.clear()
        began: list[Any] = []

        def start(
            status: str,
            headers: list[tuple[str, str]],
            *_: Any,
        ) -> Callable[[bytes], object]:
            began.extend((status, headers))
            return began.append

        try:
            pieces: Any = self._handler(environ, start)
        except SuspiciousOperation:
            # Django cannot make a request of it; the server answers, before any middleware or view
            # has heard of it
            return NO_REQUEST
        content = b"".join(pieces)
        pieces.close()
        return int(began[0].split(" ")[0]), dict(began[1]), content

    def note_fault(self, **_: Any) -> None:
        """Keep the error of a view, which a stranger only sees as 500."""
        error = sys.exc_info()[1]
        if error is not None:
            self.faults.append(error)


class _Ear(logging.Handler):
    """Keeps log lines, as a log file would have them."""

    def __init__(self, heard: Callable[[str], object]) -> None:
        super().__init__(logging.DEBUG)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard(self.format(record))


@contextlib.contextmanager
def opened() -> Iterator[Shop]:
    """Build the shop in the database that is configured, with keys and a time that are the same in
    every run.
    """
    gateway, numbers, time, logged = Gateway(), Random(1), Time(), list[str]()

    def key(_: int) -> str:
        return f"key-{numbers.getrandbits(96):024x}"

    manager = hooks.plugin_manager()
    real = manager.unregister(name=ADAPTER_NAME)
    manager.register(gateway, name=ADAPTER_NAME)
    with contextlib.ExitStack() as stack:
        stack.callback(manager.register, real, name=ADAPTER_NAME)
        stack.callback(manager.unregister, gateway)
        log, ear = logging.getLogger(), _Ear(logged.append)
        log.addHandler(ear)
        stack.callback(log.removeHandler, ear)
        stack.enter_context(mock.patch.object(timezone, "now", time.now))
        stack.enter_context(mock.patch.object(signing, "time", time))
        with (
            mock.patch.object(secrets, "choice", numbers.choice),
            mock.patch.object(secrets, "token_urlsafe", key),
        ):
            shop = Shop(gateway, time, logged)
        signals.got_request_exception.connect(shop.note_fault)
        stack.callback(signals.got_request_exception.disconnect, shop.note_fault)
        yield shop
