"""A shop on a gateway and the events around it, in the words of a test."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any, Final, TypeVar
from unittest import mock
from urllib.parse import urljoin, urlsplit

from django.db import connection, connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from tillgate import hooks
from tillgate.django.models import Payment, Review
from tillgate.django.pages.tickets import pay_url
from tillgate.django.payments import starting
from tillgate.django.worker import run
from tillgate.django.worker.runner import WorkDone
from tillgate.sandbox import PUBLISHED_STORE_NO, Sandbox
from tillgate.testing.driver import ShopDriver
from tillgate.testing.gateway_driver import GatewayDriver, NotificationKind, SentNotification
from tillgate.testing.sandbox_driver import SandboxDriver
from tillgate.testing.slow import SlowMoney
from tillgate.wire.dialects import V3
from tillgate.wire.methods import Method, PaymentMethod

_T = TypeVar("_T")

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_REDIRECTS: Final = 5
_AGAIN: Final = (307, 308)
"""Redirects that a browser follows with the same request."""
_AT_ONCE: Final = "0; url="
"""The header `Refresh` of a page that a browser leaves immediately."""
_MAIN: Final = re.compile(r"<main\b.*?</main>", re.DOTALL)
_MOST_SAID: Final = 300
"""The number of a page's characters that a test's message shows."""
WRITES: Final = "INSERT UPDATE DELETE"
"""The first words of the statements that change rows."""
_real_now: Final = timezone.now
_A_DAY: Final = ({"seconds": 10}, {"minutes": 20}, {"hours": 3}, {"hours": 3}, {"days": 1})


class ShopIsDown(Exception):
    """The exception of a handler that a test makes fail."""


class Time:
    """The time that the app and the gateway share, and that a test moves."""

    def __init__(self) -> None:
        self.offset = timedelta()
        self.listeners: list[Callable[[float], object]] = []

    def now(self) -> datetime:
        """Return the present moment on the test's clock."""
        return _real_now() + self.offset

    def advance(self, **by: float) -> None:
        """Move on by so many `seconds`, `minutes`, `hours` or `days`."""
        step = timedelta(**by)
        self.offset += step
        for listener in self.listeners:
            listener(step.total_seconds())


def together(*actions: Callable[[], _T]) -> list[_T | Exception]:
    """Do several things at the same moment, each in its own thread; return each result or
    exception.
    """
    at_once = threading.Barrier(len(actions))

    def do(action: Callable[[], _T]) -> _T | Exception:
        try:
            at_once.wait()
            return action()
        except Exception as error:  # noqa: BLE001  # the caller judges any exception
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(do, actions))


def _said(page: Any) -> str:
    """Return the main text of a page, for the message of a test."""
    text = b"".join(page).decode(errors="replace")
    main = _MAIN.search(text)
    said = " ".join(unescape(strip_tags(main[0] if main else text)).split())
    return f"; the page says: {said[:_MOST_SAID]}" if said else ""


def _path_of(address: str) -> str:
    """Return the path and the query of an address, which Django's test client takes."""
    parts = urlsplit(address)
    return parts.path + (f"?{parts.query}" if parts.query else "")


class World:
    """A shop, its gateway, the time, and the acts of the shopper, the gateway, the staff and the
    worker.
    """

    def __init__(
        self,
        shop: ShopDriver,
        gateway: GatewayDriver,
        time: Time,
        client: Client,
        configure: Callable[..., None],
    ) -> None:
        self.shop, self.gateway, self.time, self.client, self.configure = (
            shop,
            gateway,
            time,
            client,
            configure,
        )
        self.money = SlowMoney()
        self._ways: dict[str, str] = {}

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, of a shop that is on it."""
        assert isinstance(self.gateway, SandboxDriver), (
            "the shop is on another gateway than the sandbox"
        )
        return self.gateway.sandbox

    # The shopper ----------------------------------------------------------------------------------

    def order(self, total: str = "12.50") -> str:
        """Place an order, and remember where the shop leads its shopper to pay it."""
        key = self.shop.place_order(Decimal(total))
        way = self.shop.pay_path(key)
        assert way, f"the shop leads nobody to a page where order {key} can be paid"
        self._ways[key] = way
        return key

    def way_to_pay(self, order_key: str) -> str:
        """Return the address where the shopper of an order pays: the shop's first one, or else
        Tillgate's own page.
        """
        if order_key not in self._ways:
            self._ways[order_key] = self.shop.pay_path(order_key) or pay_url(
                self.shop.plugin,
                order_key,
            )
        return self._ways[order_key]

    def see_pay_page(self, order_key: str, client: Client | None = None) -> Any:
        """Open the page where an order can be paid."""
        return (client or self.client).get(_path_of(self.way_to_pay(order_key)))

    def choose(
        self,
        order_key: str,
        method: str | None = None,
        client: Client | None = None,
        **hidden: str,
    ) -> Any:
        """Choose a payment method, with `hidden` fields of the form; return the answer after the
        shop's redirects, or the payment page.

        Without a method it is the gateway's first one.
        """
        shopper = client or self.client
        here, chosen = (
            self.way_to_pay(order_key),
            {"method": self.gateway.method if method is None else method, **hidden},
        )
        answer: Any = shopper.post(_path_of(here), chosen)
        for _ in range(_MOST_REDIRECTS):
            to = self.onward(answer)
            if not to or self.gateway.is_payment_page(to):
                return answer
            here = urljoin(here, to)
            path = _path_of(here)
            answer = (
                shopper.post(path, chosen) if answer.status_code in _AGAIN else shopper.get(path)
            )
        raise AssertionError(f"the shop redirects for ever, at last to {to}")

    @staticmethod
    def onward(answer: Any) -> str:
        """Return the address where an answer sends a browser: by a redirect, or by a page that goes
        on immediately. Empty if it stays.
        """
        refresh: str = answer.get("Refresh", "")
        to: str = answer.get("Location", "") or (
            refresh.removeprefix(_AT_ONCE) if refresh.startswith(_AT_ONCE) else ""
        )
        return to

    def pay_page(
        self,
        order_key: str,
        method: str | None = None,
        client: Client | None = None,
        **hidden: str,
    ) -> Payment:
        """Choose a payment method and come to the payment page; return the payment."""
        method = method or self.gateway.method
        answer = self.choose(order_key, method, client, **hidden)
        to = self.onward(answer)
        assert self.gateway.is_payment_page(to), (
            f"choosing {method} led to HTTP {answer.status_code}, and not to the payment "
            f"page{_said(answer)}"
        )
        payment = Payment.objects.select_related("order").get(payment_url=to)
        ours = (payment.order.plugin, payment.order.key)
        assert ours == (self.shop.plugin, order_key), (
            f"the shop led the shopper of order {order_key} to a payment of order {ours[1]} of "
            f"{ours[0]}"
        )
        return payment

    def start(self, order_key: str, method: str | None = None) -> Payment:
        """Start a payment without the shop's pages."""
        return starting.start_payment(
            self.shop.plugin,
            order_key,
            method=method or self.gateway.method,
        ).payment

    def shopper_pays(self, payment: Payment) -> str | None:
        """Press Pay on the payment page; return the address that the shopper is sent back to, if
        the driver knows it.
        """
        return self.gateway.pay(payment.reference)

    def pays_late(self, payment: Payment) -> None:
        """Let money come although the payment page has closed."""
        self.gateway.pay_late(payment.reference)

    def come_back(self, payment: Payment) -> Any:
        """Come back to the shop by opening the address."""
        return self.client.get(reverse("tillgate:return", args=[payment.return_key]))

    def paid_payment(self, total: str = "12.50") -> Payment:
        """Return a paid payment, of an order that the shop regards as paid."""
        payment = self.start(self.order(total))
        self.shopper_pays(payment)
        self.notification(payment)
        return self.fresh(payment)

    # The gateway ----------------------------------------------------------------------------------

    def notification(self, payment: Payment, body: str = "", content_type: str = _FORM) -> Any:
        """Post a notification to the payment's address, by default an empty one, which is a hint
        like any other.
        """
        return self.client.post(
            reverse("tillgate:payment-notification", args=[payment.notification_key]),
            body,
            content_type=content_type,
        )

    def gateway_notification(
        self,
        payment: Payment,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> list[Any]:
        """Let the gateway send a notification of its own, signed: `payment`, `refund`, `stale`, or
        `forged`, which is signed wrongly.
        """
        return [self.post(notification) for notification in self.sent(payment, kind, status=status)]

    def sent(
        self,
        payment: Payment,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> list[SentNotification]:
        """Return a notification that the gateway sends and that has not arrived. The test posts it
        once, twice, or never.
        """
        of_account = reverse("tillgate:webhook", args=[payment.account])
        return [
            replace(one, url=one.url or of_account)
            for one in self.gateway.notify(payment.reference, kind, status=status)
        ]

    def post(self, notification: SentNotification) -> Any:
        """Let a notification arrive at the shop. The gateway gets no acknowledgement."""
        path = _path_of(notification.url)
        headers = dict(notification.headers)
        return self.client.generic(
            notification.method,
            path,
            notification.body,
            content_type=notification.content_type,
            headers=headers,
        )

    @property
    def acknowledgement(self) -> bytes:
        """The shop's acknowledgement of a notification."""
        account = self.gateway.account() or self.gateway.lacks("have an account")
        return account.dialect.acknowledgement.encode()

    def takes(self, *currencies: str, **settings: Any) -> None:
        """Let the sandbox and the shop's accounts take other currencies, with every payment method;
        `settings` change TILLGATE.
        """
        methods = tuple(Method(code=method) for method in PaymentMethod)
        dialect = replace(
            V3,
            name="of the test",
            currencies=currencies,
            settle_currencies=currencies,
            methods=methods,
        )
        self.sandbox.control.set_options({"currencies": list(currencies)})
        self.configure({"DIALECT": dialect, "STORE_NO": PUBLISHED_STORE_NO}, **settings)

    def queries(self) -> int:
        """Return how many queries the gateway has received."""
        return self.gateway.received("query")

    def refunded_amount(self, payment: Payment) -> Decimal:
        """Return how much the gateway has refunded of a payment."""
        return self.gateway.refunded(payment.reference)

    # The shop -------------------------------------------------------------------------------------

    def fresh(self, payment: Payment) -> Payment:
        """Return the payment in its present state."""
        return Payment.objects.select_related("order").get(pk=payment.pk)

    def run_worker(self) -> WorkDone:
        """Run the worker once: all due work."""
        return run.run_worker()

    def a_day_passes(self) -> None:
        """Let a day pass, with a worker run now and then."""
        for ahead in _A_DAY:
            self.time.advance(**ahead)
            faults = self.run_worker().faults
            assert faults == [], f"the worker run failed: {faults}"

    def reviews(self) -> list[str]:
        """Return the reasons of the open reviews, oldest first."""
        return list(
            Review.objects.filter(resolved_at__isnull=True)
            .order_by("id")
            .values_list("reason", flat=True),
        )

    def _function_for(self, hook: str) -> Any:
        """Return the plugin's implementation of a hook."""
        manager = hooks.plugin_manager()
        owner = manager.get_plugin(self.shop.plugin)
        found = [one for one in getattr(manager.hook, hook).get_hookimpls() if one.plugin is owner]
        assert found, f"plugin {self.shop.plugin} does not implement {hook}"
        return found[0]

    @contextmanager
    def failing_handler(
        self,
        hook: str,
        *,
        times: int = 1,
        late: bool = False,
    ) -> Iterator[list[str]]:
        """Let the plugin's function for a hook raise `times` times, before its work or, if `late`,
        after; yield the failures so far.
        """
        implementation = self._function_for(hook)
        real, failures = implementation.function, list[str]()

        def failing(*arguments: Any) -> Any:
            if len(failures) >= times:
                return real(*arguments)
            failures.append(hook)
            if late:
                real(*arguments)
            raise ShopIsDown(f"{hook} was made to fail by the test")

        with mock.patch.object(implementation, "function", failing):
            yield failures

    @contextmanager
    def interrupted_handler(
        self,
        hook: str,
        interrupt: Callable[[str], object],
        *,
        at: str = "",
    ) -> Iterator[list[str]]:
        """Call `interrupt` before the first statement of the plugin's function for a hook that
        begins with a word of `at`, once.

        Words are separated by spaces; without any it is the first statement. The plugin's function
        meets an error of `interrupt` as an error of its database. Yield the statements that were
        interrupted.
        """
        implementation = self._function_for(hook)
        real, interrupted = implementation.function, list[str]()

        def between(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            if not interrupted and (not at or sql.split(maxsplit=1)[0].upper() in at.split()):
                interrupted.append(sql)
                interrupt(sql)
            return execute(sql, *rest)

        def handling(*arguments: Any) -> Any:
            with connection.execute_wrapper(between):
                return real(*arguments)

        with mock.patch.object(implementation, "function", handling):
            yield interrupted
