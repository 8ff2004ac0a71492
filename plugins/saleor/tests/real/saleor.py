"""A real Saleor, as its staff and as a storefront use it: GraphQL over HTTP, and nothing of
Saleor's own code.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

import httpx

from tests import double
from tests.real import documents

_T = TypeVar("_T")

_SLOW_SECONDS: Final = 60.0  # Saleor waits up to 20 s for an app while it answers
_TRIES: Final = 5
_TOKEN_SECONDS: Final = 240.0  # it lives for five minutes
_ADDRESS: Final = {
    "firstName": "Ada",
    "lastName": "Moss",
    "streetAddress1": "1 Mill Lane",
    "city": "Springfield",
    "postalCode": "01101",
    "country": "US",
    "countryArea": "MA",
}
PRICE: Final = Decimal("19.90")
SHIPPING: Final = Decimal("5.00")
TOTAL: Final = PRICE + SHIPPING


class Refused(double.Refused):
    """Saleor answered with errors; the text is Saleor's."""


def until(what: str, look: Callable[[], _T], timeout_seconds: float = 30.0) -> _T:
    """Look again and again until there is something to see, and return it; fail by name when the
    time is over.
    """
    ends_at = time.monotonic() + timeout_seconds
    while time.monotonic() < ends_at:
        if seen := look():
            return seen
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {timeout_seconds:.0f} s")


@dataclass(frozen=True)
class Channel:
    """A channel in which one product is sold."""

    slug: str
    variant: str


@dataclass(frozen=True)
class Attempt:
    """A transaction that a storefront has begun: Saleor's id, the kind of event it led to, and the
    App's answer.
    """

    transaction: str
    event: str
    reference: str
    message: str
    data: dict[str, Any]

    @property
    def payment_page(self) -> str:
        """The address of the payment page."""
        return str(self.data["cashierUrl"])


class Saleor:
    """One Saleor, with the staff's login."""

    def __init__(self, url: str, email: str, password: str) -> None:
        self.url = url
        self.domain = httpx.URL(url).netloc.decode()
        self._http = httpx.Client(timeout=_SLOW_SECONDS)
        self._login = {"email": email, "password": password}
        self._token, self._token_until = "", 0.0

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, document: str, **variables: Any) -> Any:
        """Send a document of one field as the staff, and return the field's value; raise `Refused`
        for errors.
        """
        return self._send(document, variables, {"Authorization": f"Bearer {self.staff_token()}"})

    def ask_as(self, token: str, document: str, **variables: Any) -> Any:
        """Send a document of one field as an App, by its token."""
        return self._send(document, variables, {"Authorization": f"Bearer {token}"})

    def ask_as_shopper(self, document: str, **variables: Any) -> Any:
        """Send a document of one field as any shopper may."""
        return self._send(document, variables, {})

    def _send(self, document: str, variables: dict[str, Any], headers: dict[str, str]) -> Any:
        # Saleor takes a decimal as text
        body = json.dumps({"query": document, "variables": variables}, default=str)
        answer = self._http.post(
            self.url,
            content=body,
            headers={"Content-Type": "application/json", **headers},
        )
        said = json.loads(answer.content, parse_float=Decimal)
        if said.get("errors"):
            raise Refused("; ".join(error["message"] for error in said["errors"]))
        (found,) = said["data"].values()
        if isinstance(found, dict) and found.get("errors"):
            raise Refused(
                "; ".join(f"{error['field']}: {error['message']}" for error in found["errors"]),
            )
        return found

    def staff_token(self) -> str:
        """Return the token of the member of the staff who is logged in."""
        if time.monotonic() > self._token_until:
            self._token = self._send(documents.LOGIN, self._login, {})["token"]
            self._token_until = time.monotonic() + _TOKEN_SECONDS
        return self._token

    # The App --------------------------------------------------------------------------------------

    def manifest(self, url: str) -> Any:
        """Return an App's manifest as Saleor reads it."""
        return self.ask(documents.MANIFEST, url=url)["manifest"]

    def apps(self, identifier: str) -> list[Any]:
        """Return the Apps of a manifest's id that are installed."""
        found = [edge["node"] for edge in self.ask(documents.APPS)["edges"]]
        return [app for app in found if app["identifier"] == identifier]

    def install(self, manifest_url: str) -> Any:
        """Install an App and return it; raise `Refused` with Saleor's text when that fails."""
        manifest = self.manifest(manifest_url)
        identifier, permissions = (
            manifest["identifier"],
            [permission["code"] for permission in manifest["permissions"]],
        )
        job = self.ask(
            documents.INSTALL,
            name=manifest["name"],
            manifest=manifest_url,
            permissions=permissions,
        )["appInstallation"]["id"]

        def look() -> Any:
            failed = next(
                (
                    one
                    for one in self.ask(documents.INSTALLATIONS)
                    if one["id"] == job and one["status"] == "FAILED"
                ),
                None,
            )
            if failed is not None:
                self.ask(documents.FORGET_INSTALLATION, id=job)
                raise Refused(failed["message"])
            return next(iter(self.apps(identifier)), None)

        return until("the App is installed (does Saleor's Celery worker run?)", look, 60.0)

    def uninstall(self, identifier: str) -> None:
        """Uninstall the Apps of a manifest's id."""
        for app in self.apps(identifier):
            self.ask(documents.UNINSTALL, id=app["id"])

    @contextmanager
    def deactivated(self, identifier: str) -> Iterator[None]:
        """Let the App of a manifest's id be deactivated for a while."""
        (app,) = self.apps(identifier)
        self.ask(documents.DEACTIVATE, id=app["id"])
        try:
            yield
        finally:
            self.ask(documents.ACTIVATE, id=app["id"])

    def app_token(self, app: str) -> str:
        """Return the token with which the dashboard opens an App's page."""
        return str(self.ask(documents.APP_TOKEN, id=app)["accessToken"])

    # The shop -------------------------------------------------------------------------------------

    def channel(
        self,
        slug: str,
        *,
        currency: str = "USD",
        strategy: str = "CHARGE",
        **settings: bool,
    ) -> Channel:
        """Return a channel in which one product is sold, made if it is not there yet."""
        if self.ask(documents.CHANNEL, slug=slug) is None:
            self._open_channel(slug, currency, strategy, **settings)
        (product,) = self.ask(documents.PRODUCTS, channel=slug)["edges"]
        return Channel(slug, product["node"]["variants"][0]["id"])

    def _open_channel(
        self,
        slug: str,
        currency: str,
        strategy: str,
        *,
        completes: bool = False,
        pays_later: bool = False,
    ) -> None:
        """Open a channel with everything that Saleor wants before it sells: stock, a way to send
        it, a price.
        """
        name = f"{slug}-{secrets.token_hex(3)}"
        warehouse = self.ask(documents.MAKE_WAREHOUSE, name=name, address=_ADDRESS)["warehouse"][
            "id"
        ]
        settings: dict[str, Any] = {
            "paymentSettings": {"defaultTransactionFlowStrategy": strategy},
            "orderSettings": {"allowUnpaidOrders": pays_later},
        }
        # Saleor completes a paid checkout without a request, a while after the payment
        if completes:
            settings["checkoutSettings"] = {"automaticCompletion": {"enabled": True, "delay": 0}}
        about = {
            "name": slug,
            "slug": slug,
            "currencyCode": currency,
            "defaultCountry": "US",
            "isActive": True,
            "addWarehouses": [warehouse],
        }
        channel = self.ask(documents.MAKE_CHANNEL, input={**about, **settings})["channel"]["id"]
        zone = self.ask(documents.MAKE_ZONE, name=name, channel=channel, warehouse=warehouse)[
            "shippingZone"
        ]["id"]
        method = self.ask(documents.MAKE_SHIPPING, name=name, zone=zone)["shippingMethod"]["id"]
        self.ask(documents.LIST_SHIPPING, id=method, channel=channel, price=SHIPPING)
        kind = self.ask(documents.MAKE_PRODUCT_TYPE, name=name)["productType"]["id"]
        category = self.ask(documents.MAKE_CATEGORY, name=name)["category"]["id"]
        product = self.ask(documents.MAKE_PRODUCT, name=name, kind=kind, category=category)[
            "product"
        ]["id"]
        self.ask(documents.LIST_PRODUCT, id=product, channel=channel)
        variant = self.ask(documents.MAKE_VARIANT, product=product, warehouse=warehouse)[
            "productVariant"
        ]["id"]
        self.ask(documents.LIST_VARIANT, id=variant, channel=channel, price=PRICE)

    def transaction(self, transaction: str) -> Any:
        """Return a transaction as the staff sees it."""
        return self.ask(documents.TRANSACTION, id=transaction)

    def events(self, transaction: str) -> list[tuple[str, Decimal]]:
        """Return kind and amount of a transaction's events, oldest first."""
        found = self.transaction(transaction)["events"]
        return [
            (event["type"], event["amount"]["amount"])
            for event in sorted(found, key=lambda event: str(event["createdAt"]))
        ]

    def order(self, order: str) -> Any:
        """Return an order as the staff sees it."""
        return self.ask(documents.ORDER, id=order)

    def cancel(self, order: str) -> None:
        """Cancel an order, as the staff do."""
        self.ask(documents.CANCEL, id=order)

    def request(self, transaction: str, action: str, amount: str | None = None) -> None:
        """Ask the App for a refund, a charge or a cancelation, as the dashboard's buttons do."""
        self.ask(documents.REQUEST, id=transaction, action=action, amount=amount)

    def grant_refund(self, order: str, transaction: str, amount: str) -> str:
        """Grant a refund of an order, ask the App for it, and return its id."""
        granted = self.ask(
            documents.GRANT_REFUND,
            order=order,
            transaction=transaction,
            amount=amount,
        )["grantedRefund"]["id"]
        self.ask(documents.REQUEST_GRANTED, id=granted)
        return str(granted)


class Storefront:
    """A shop's own site: it knows nothing but the public API, and the App by its manifest's id."""

    def __init__(self, saleor: Saleor, gateway: str, return_url: str) -> None:
        self.saleor, self.gateway, self.return_url = saleor, gateway, return_url

    def checkout(self, channel: Channel) -> str:
        """Put the product into a new checkout, say where to send it, and return the checkout's id;
        it costs `TOTAL`.
        """
        ask = self.saleor.ask_as_shopper
        made = ask(
            documents.CHECKOUT,
            channel=channel.slug,
            variant=channel.variant,
            address=_ADDRESS,
        )["checkout"]
        ask(documents.OUTBOX_EVENT, id=made["id"], method=made["shippingMethods"][0]["id"])
        return str(made["id"])

    def changes_cart(self, checkout: str, channel: Channel, quantity: int) -> None:
        """Have so many of the product in a checkout, as in another tab."""
        self.saleor.ask_as_shopper(
            documents.QUANTITY,
            id=checkout,
            variant=channel.variant,
            quantity=quantity,
        )

    def ways_to_pay(self, checkout: str, amount: str | None = None) -> dict[str, Any]:
        """Return the App's offers for a checkout, or for an amount of it that the storefront
        names.
        """
        answer = self.saleor.ask_as_shopper(
            documents.GATEWAYS,
            id=checkout,
            gateway=self.gateway,
            amount=amount,
        )
        (config,) = answer["gatewayConfigs"]
        if config["errors"]:
            raise Refused("; ".join(error["message"] for error in config["errors"]))
        return dict(config["data"])

    def begin(
        self,
        checkout: str,
        method: str = "alipay",
        *,
        key: str | None = None,
        data: Any = ...,
        **more: Any,
    ) -> Attempt:
        """Begin a transaction; `data` in place of payment method and return address, `more` for
        other arguments of Saleor's.
        """
        sent = {"method": method, "returnUrl": self.return_url} if data is ... else data
        answer = self.saleor.ask_as_shopper(
            documents.INITIALIZE,
            id=checkout,
            gateway=self.gateway,
            data=sent,
            key=key,
            **more,
        )
        return self._attempt(answer)

    def process(self, transaction: str) -> Attempt:
        """Query a transaction's status, as the page does to which the shopper came back."""
        return self._attempt(self.saleor.ask_as_shopper(documents.PROCESS, id=transaction))

    def complete(self, checkout: str) -> str:
        """Make an order of a checkout and return its id.

        A report that arrives at the same moment is among the transaction's events before Saleor
        counts it: asked just then, Saleor says that the money does not cover the checkout, and a
        moment later that it does.
        """
        for _ in range(_TRIES):
            try:
                return str(
                    self.saleor.ask_as_shopper(documents.COMPLETE, id=checkout)["order"]["id"],
                )
            except Refused as refused:
                if "doesn't cover" not in str(refused):
                    raise
                time.sleep(1.0)
        raise AssertionError("Saleor never counted the money of the checkout")

    @staticmethod
    def _attempt(answer: Any) -> Attempt:
        event = answer["transactionEvent"]
        return Attempt(
            answer["transaction"]["id"],
            event["type"],
            event["pspReference"],
            event["message"],
            answer["data"] or {},
        )
