"""The fake with pages to click: Stripe's payment page for the shopper, and a dashboard for staff.

It notifies the shop of each change, as Stripe does. Everything stays on this machine.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stripe_emulator.fake import Answer, FakeStripe, Refusal
from stripe_emulator.objects import TRANSFER, Json
from tillgate_stripe.profile import from_units

_NOTIFY_SECONDS: Final = 10
_VOUCHERS: Final = {
    "oxxo": "OXXO",
    "boleto": "Boleto",
    "konbini": "Konbini",
    "multibanco": "Multibanco",
    TRANSFER: "Bank transfer",
}
"""The methods by which a shopper takes a voucher, or bank details, and pays later."""
_STYLE: Final = files("tillgate.sandbox") / "static" / "sandbox.css"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # No form-action: it would forbid the redirect to the shop that follows the form.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; "
    "base-uri 'none'; frame-ancestors 'none'",
}
_PAGES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
)
_PAGES.filters |= {
    "money": lambda units, currency: from_units(units, currency.upper()),
    "moment": lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
}


class ClickableStripe(FakeStripe):
    """A fake with a page here for each session. `notify` is the shop's address for events, which
    are signed with `secret`.
    """

    def __init__(self, *, merchant: str, notify: str, secret: str, port: int = 0) -> None:
        super().__init__(port=port)
        self.pages, self.merchant, self.notify, self.secret = self.url, merchant, notify, secret
        self.methods += _VOUCHERS
        self._shoppers: Mapping[str, tuple[Callable[[str], Json], str]] = {
            "pay": (self.pay, "checkout.session.completed"),
            "later": (self.pay_with_delay, "checkout.session.completed"),
            "decline": (self._decline, ""),
            **{
                method: (partial(self._take_voucher, method), "checkout.session.completed")
                for method in _VOUCHERS
            },
        }
        self._staff: Mapping[str, tuple[Callable[[str], Json], str]] = {
            "voucher": (self.pay_voucher, "checkout.session.async_payment_succeeded"),
            "end": (self.end_voucher, "checkout.session.async_payment_failed"),
            "settle": (self.settle, "checkout.session.async_payment_succeeded"),
            "fail": (self.fail_delayed, "checkout.session.async_payment_failed"),
            "refund": (self.refund_in_dashboard, "charge.refunded"),
            "dispute": (self.dispute, "charge.dispute.created"),
            "win": (lambda reference: self._decide(reference, "won"), "charge.dispute.closed"),
            "lose": (lambda reference: self._decide(reference, "lost"), "charge.dispute.closed"),
            "review": (self.open_review, "review.opened"),
            "approve": (self.approve, "review.closed"),
        }

    def answer(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Answer | None:
        path = urlsplit(target).path
        form = dict(parse_qsl(body.decode())) if method == "POST" else {}
        if path.startswith("/v1/"):
            answer = super().answer(method, target, headers, body)
            if path == "/v1/refunds" and method == "POST" and answer and answer.status == 200:
                charge = self.charges[json.loads(answer.body)["charge"]]
                self._send("charge.refunded", charge["metadata"]["reference"])
            return answer
        if path == "/static/sandbox.css":
            return Answer(200, _STYLE.read_bytes(), {"Content-Type": "text/css"})
        if path == "/_control/state":
            return Answer(200, json.dumps({"transactions": self._amounts()}).encode())
        session = self.sessions.get(path.removeprefix("/c/pay/"))
        if session:
            return self._payment_page(session, form)
        if path == "/":
            return self._dashboard(form)
        return _page("problem", 404)

    def _payment_page(self, session: Json, form: Mapping[str, str]) -> Answer:
        with self._lock:
            self._expire_what_is_due()
            reference, is_open = session["id"], session["status"] == "open"
            if is_open and (chosen := self._shoppers.get(form.get("decision", ""))):
                act, kind = chosen
                act(reference)
                if kind:
                    if form.get("notification") != "lost":
                        self._send(kind, reference)
                    return _redirect(session["success_url"])
            intent = self.intents.get(session["payment_intent"] or "")
            if form.get("decision") == "voucher" and _waits(intent):
                self.pay_voucher(reference)
                self._send("checkout.session.async_payment_succeeded", reference)
                return _redirect(session["success_url"])
            error = intent["last_payment_error"] if intent else None
            asked = next(
                one.parameters
                for one in self.requests("create_session")
                if one.parameters.get("client_reference_id") == session["client_reference_id"]
            )
            item = asked["line_items"][0]["price_data"]["product_data"]
            vouchers = {
                method: name
                for method, name in _VOUCHERS.items()
                if method in session["payment_method_types"]
            }
            return _page(
                "pay",
                session=session,
                item=item,
                error=error,
                merchant=self.merchant,
                vouchers=vouchers,
                waits=_waits(intent),
            )

    def _dashboard(self, form: Mapping[str, str]) -> Answer:
        with self._lock:
            self._expire_what_is_due()
            if chosen := self._staff.get(form.get("action", "")):
                act, kind = chosen
                try:
                    act(form.get("session", ""))
                except (Refusal, ValueError, KeyError):
                    return _page("problem", 409)
                self._send(kind, form["session"])
                return _redirect("/")
            return _page(
                "dashboard", payments=[*map(self._payment, reversed(self.sessions.values()))]
            )

    def _payment(self, session: Json) -> Json:
        intent = self.intents.get(session["payment_intent"] or "")
        charge = self.charges.get(intent["latest_charge"] or "") if intent else None
        disputes = [
            one for one in self.disputes.values() if charge and one["charge"] == charge["id"]
        ]
        review = self.reviews.get(charge["review"] or "") if charge else None
        return {
            "session": session,
            "charge": charge,
            "dispute": disputes[-1] if disputes else None,
            "is_reviewed": bool(review and review["open"]),
            "is_under_way": bool(intent and intent["status"] == "processing"),
            "waits": _waits(intent),
            "is_paid": session["payment_status"] == "paid",
        }

    def _amounts(self) -> list[Json]:
        with self._lock:
            return [
                {
                    "reference": one["client_reference_id"],
                    "amount": str(from_units(one["amount_total"], one["currency"].upper())),
                }
                for one in self.sessions.values()
            ]

    def _decline(self, reference: str) -> Json:
        return self.decline(reference, code="insufficient_funds")

    def _take_voucher(self, method: str, reference: str) -> Json:
        """Let the shopper take a voucher, whose page is here too."""
        session = self.take_voucher(reference, method)
        action = self.intents[session["payment_intent"]]["next_action"]
        page = "hosted_instructions_url" if method == TRANSFER else "hosted_voucher_url"
        action[action["type"]][page] = f"{self.url}/c/pay/{session['id']}"
        return session

    def _decide(self, reference: str, status: str) -> Json:
        charge = self.charge_of(reference)
        found = [one for one in self.disputes.values() if one["charge"] == charge["id"]]
        return self.set_dispute_status(found[-1]["id"], status)

    def _send(self, kind: str, reference: str) -> None:
        """Notify the shop, from a thread of its own: Stripe waits for no answer either."""
        headers, body = self.signed(self.event(kind, reference), self.secret)
        threading.Thread(target=_post, args=(self.notify, headers, body), daemon=True).start()


def _waits(intent: Json | None) -> bool:
    """Tell whether a voucher is still to be paid."""
    return bool(intent and intent["status"] == "requires_action")


def _post(url: str, headers: Mapping[str, str], body: bytes) -> None:
    request = urllib.request.Request(url, body, dict(headers))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(request, timeout=_NOTIFY_SECONDS).close()
    except OSError as error:
        print(f"the notification was not taken: {error}", flush=True)  # noqa: T201 - a program that prints


def _page(name: str, status: int = 200, **values: Any) -> Answer:
    text = _PAGES.get_template("pages.html").render(page=name, **values)
    return Answer(status, text.encode(), {**_HEADERS, "Content-Type": "text/html; charset=utf-8"})


def _redirect(address: str) -> Answer:
    return Answer(303, b"", {**_HEADERS, "Location": address})
