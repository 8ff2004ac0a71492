"""A storefront like any other: it offers the payment methods, begins transactions under keys of its
own, and completes paid checkouts.

A key is good for one attempt. When the attempt is over, the next has another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.csrf import csrf_exempt

from tests.double import FAILURE, Refused, Source
from tillgate.shop import without_atomic_requests

RETURN_URL = "http://testserver/storefront/back/"


class Saleor(Protocol):
    """The interface of a Saleor that a storefront needs, be it the double or a real one."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The checkouts and orders that can be paid."""

    @property
    def transactions(self) -> Mapping[str, Any]:
        """The transactions begun."""

    def gateway_initialize(self, source: Source) -> tuple[int, Any]:
        """Ask how can be paid."""

    def initialize(self, source: Source, key: str, data: Any) -> tuple[object, Any]:
        """Begin a transaction; with the same key, the same one. Raises `Refused`."""

    def process(self, transaction: Any) -> Any:
        """Ask how a transaction stands."""


class Storefront:
    """Which Saleor the pages below are of."""

    saleor: Saleor


def begin(saleor: Saleor, source: Source, method: object) -> str | None:
    """Begin to pay with a payment method, and return the address of the payment page, or None when
    that came to nothing.
    """
    for _ in range(2):
        key = f"{source.id}:{method}:{source.total}:{source.attempts}"
        was_used = key in source.keys
        source.keys.add(key)
        _, said = saleor.initialize(source, key, {"method": method, "returnUrl": RETURN_URL})
        if not str(said.get("result", FAILURE)).endswith(FAILURE):
            url = said.get("data", {}).get("cashierUrl")
            return str(url) if url else None
        source.attempts += 1
        if not was_used:
            return None
    return None


@csrf_exempt
@without_atomic_requests
def pay(request: HttpRequest, source_id: str) -> HttpResponse:
    """Offer the payment methods, and go on to the payment page of the chosen one."""
    saleor = Storefront.saleor
    source = saleor.sources[source_id]
    if request.method != "POST":
        _, said = saleor.gateway_initialize(source)
        return HttpResponse(", ".join(method["name"] for method in said["data"]["methods"]))
    try:
        url = begin(saleor, source, request.POST["method"])
    except Refused as error:
        return HttpResponse(str(error), status=409)
    return HttpResponseRedirect(url) if url else HttpResponse("Please try again.", status=409)


@without_atomic_requests
def back(request: HttpRequest) -> HttpResponse:
    """Ask how it stands, and say it."""
    said = Storefront.saleor.process(Storefront.saleor.transactions[request.GET["transaction"]])
    return HttpResponse(said.get("result", "?"))
