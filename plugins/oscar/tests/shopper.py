"""A shopper in front of Oscar's real checkout, who posts what the pages' forms hold."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

from django.test import Client
from oscar.core.loading import get_model
from oscar.test.factories import CountryFactory

ADDRESS = {
    "first_name": "Ada",
    "last_name": "Moss",
    "line1": "1 Mill Lane",
    "line4": "Springfield",
    "state": "MA",
    "postcode": "01101",
    "country": "US",
}


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[dict[str, str | None], dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag == "form":
            self.forms.append((known, {}))
        elif (
            tag == "input"
            and self.forms
            and known.get("name")
            and (known.get("type") not in ("radio", "checkbox") or "checked" in known)
        ):
            self.forms[-1][1][str(known["name"])] = known.get("value") or ""


def fields_of(answer: Any, form_id: str) -> dict[str, str]:
    """Return what a browser would post from a form of the page as it is."""
    parser = _Forms()
    parser.feed(answer.content.decode())
    return next(fields for form, fields in parser.forms if form.get("id") == form_id)


class Shopper:
    """One browser."""

    def __init__(self, client: Client | None = None) -> None:
        self.client = client or Client()

    def get(self, url: str) -> Any:
        parts = urlsplit(url)
        return self.client.get(parts.path + (f"?{parts.query}" if parts.query else ""))

    def post(self, url: str, fields: dict[str, Any]) -> Any:
        return self.client.post(url, fields)

    def adds(self, product: Any, quantity: int = 1) -> None:
        answer = self.post(f"/basket/add/{product.pk}/", {"quantity": quantity})
        assert answer.status_code == 302, answer.content.decode()

    def uses_voucher(self, code: str) -> None:
        self.post("/basket/vouchers/add/", {"code": code})

    def says_where(
        self,
        email: str = "ada@shopper.example",
        shipping: str = "free-shipping",
    ) -> None:
        """Go as far as the payment method."""
        country = get_model("address", "Country").objects.filter(pk="US")
        if not country.exists():
            CountryFactory(
                iso_3166_1_a2="US",
                printable_name="United States",
                is_shipping_country=True,
            )
        if "_auth_user_id" not in self.client.session:
            assert (
                self.post("/checkout/", {"username": email, "options": "anonymous"}).status_code
                == 302
            )
        assert (
            self.post("/checkout/shipping-address/", ADDRESS)["Location"]
            == "/checkout/shipping-method/"
        )
        assert (
            self.post("/checkout/shipping-method/", {"method_code": shipping})["Location"]
            == "/checkout/payment-method/"
        )

    def chooses(self, method: str = "alipay") -> Any:
        return self.post("/checkout/payment-method/", {"tillgate-method": method})

    def previews(self) -> Any:
        return self.get("/checkout/preview/")

    def places(self, preview: Any = None, **changes: str) -> Any:
        """Press the button of a preview, by default of one that is opened now."""
        fields = fields_of(preview or self.previews(), "place_order_form")
        return self.post("/checkout/preview/", {**fields, **changes})

    def buys(
        self,
        *products: Any,
        method: str = "alipay",
        shipping: str = "free-shipping",
        email: str = "ada@shopper.example",
    ) -> Any:
        """Do it all; return the answer to "place order"."""
        for product in products:
            self.adds(product)
        self.says_where(email, shipping)
        assert self.chooses(method)["Location"] == "/checkout/payment-details/"
        return self.places()

    def messages(self) -> list[str]:
        """Return what the shop has to say, as the next page would show it."""
        answer = self.get("/basket/")
        return [str(message) for message in answer.context["messages"]]
