"""Targets on a database: every page that a stranger, a shopper or the gateway can reach, and the
gateway's answers behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from django.utils.encoding import iri_to_uri

from proving.fuzz import inputs
from proving.fuzz.inputs import Request
from proving.fuzz.readers import answer, is_signed, notification_members, plain
from proving.fuzz.shop import ADDRESS, NO_REQUEST, Shop
from proving.fuzz.targets import Target
from tillgate.django.conf import get_settings
from tillgate.django.models import Payment
from tillgate.django.refunds import queueing
from tillgate.testing.leaks import digest

__all__ = ["Views", "views"]

Difference = tuple[str, Mapping[str, Any], Mapping[str, Any]]

_PAGES: Final = (
    "notification",
    "refund-notification",
    "return",
    "status",
    "pay",
    "start",
    "assets",
)


class Views:
    """The targets, on one shop. After each input the rows are compared with those before."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.before = shop.rows()
        self.secrets = (shop.token, digest(shop.token))
        self.asked_at: dict[str, datetime] = {}
        """When a request last made the shop ask about each reference."""

    def restore(self) -> None:
        """Start afresh, as every seed does."""
        self.shop.restore()
        self.asked_at.clear()
        self.before = self.shop.rows()

    # Promises for every request.

    def ask(self, request: Request) -> tuple[int, dict[str, str], bytes, list[Difference]]:
        """Send a request and return the answer and the changes. Never a 500, and never a secret in
        the page or the log.
        """
        shop = self.shop
        shop.later(1)
        status, headers, content = shop.ask(request)
        if shop.faults:
            raise shop.faults[0]
        assert status < 500, f"HTTP {status}"
        assert shop.gateway.sent <= 1, f"I7: {shop.gateway.sent} queries for one request"
        self.throttled()
        for secret in self.secrets:
            assert secret.encode() not in content, "I11: a secret is on a page"
            assert not any(secret in line for line in (*shop.logged, *headers.values())), (
                "I11: a secret is in the log or a header"
            )
        assert all("\n" not in value and "\r" not in value for value in headers.values())
        return status, headers, content, self.changes()

    def throttled(self) -> None:
        """Hold the gateway's queries to one per payment in the throttle interval, over the requests
        of a round.
        """
        now, throttle = (
            self.shop.time.moment,
            timedelta(seconds=get_settings().notification_throttle_seconds),
        )
        for reference in self.shop.gateway.queried:
            before = self.asked_at.get(reference)
            assert before is None or now - before >= throttle, (
                f"I7: {reference} was asked about again after {now - before}"
            )
            self.asked_at[reference] = now

    def changes(self) -> list[Difference]:
        """Return the changes in the rows since the last call."""
        after = self.shop.rows()
        changed = [] if after == self.before else self.shop.differences(self.before, after)
        self.before = after
        return changed

    def nothing_changed(
        self,
        changed: list[Difference],
        *allowed: Callable[[Difference], bool],
    ) -> None:
        """Allow only the permitted changes: I7, notifications are hints. The permitted ones are
        undone, for the next input.
        """
        wrong = [one for one in changed if not any(allows(one) for allows in allowed)]
        if changed:
            self.restore()
        assert not wrong, f"I7: something from outside changed {wrong}"

    def bounded(self) -> None:
        """Hold kept notifications to their bound."""
        assert len(self.before["tillgate_notification"]) <= 20 * (
            len(self.shop.payments) + len(self.shop.refunds)
        )

    # Notifications and returns.

    def draw_notification(self, r: Random) -> Request:
        payment = self._payment(r)
        return inputs.request(
            r,
            f"/payments/notification/{payment.notification_key}/",
            notification_members(r, self._said_of(r, payment), self.shop.token),
        )

    def draw_refund_notification(self, r: Random) -> Request:
        refund = r.choice(
            (*self.shop.refunds, self.shop.succeeded, self.shop.succeeded, self.shop.succeeded),
        )
        word = r.choice(("success", "success", "success", "failed", "pending", ""))
        members = {**self._said_of(r, self.shop.paid), "status": word}
        if not inputs.chance(r, 4):  # the documented shape
            del members["amount"], members["currency"]
        return inputs.request(
            r,
            f"/payments/refund-notification/{refund.notification_key}/",
            notification_members(r, members, self.shop.token),
        )

    def _payment(self, r: Random) -> Payment:
        """Draw a payment, one of them often, to bring it more notifications than are stored."""
        return r.choice((*self.shop.payments, self.shop.open, self.shop.open, self.shop.open))

    def _said_of(self, r: Random, payment: Payment) -> dict[str, Any]:
        return {
            "transactionNo": payment.transaction_no or "1",
            "reference": payment.reference,
            "amount": str(payment.amount),
            "currency": "USD",
            "status": r.choice(("success", "success", "failed", "closed", "pending")),
        }

    def check_notification(self, request: Request) -> str:
        status, _, content, changed = self.ask(request)
        self.nothing_changed(changed, _tells_of("forged-notifications"))
        self.bounded()
        return self._acknowledged(request, status, content)

    def check_refund_notification(self, request: Request) -> str:
        status, _, content, changed = self.ask(request)
        settled = any(
            table == "tillgate_refund" and "status" in became for table, _, became in changed
        )
        confirmed = any(map(_notes_a_confirmation, changed))
        doubted = any(
            table == "tillgate_review" and became.get("refund_id") == self.shop.refused.pk
            for table, _, became in changed
        )
        if settled or doubted or confirmed:
            assert self._is_signed(request), (
                "I7: a notification that is not signed settled a refund"
            )
        allowed = (
            [_settles_the_unknown_refund(self.shop)]
            if settled
            else [_tells_of("refund-contradicted")]
            if doubted
            else []
        )
        self.nothing_changed(
            changed,
            _notes_a_confirmation,
            _tells_of("forged-notifications"),
            *allowed,
        )
        self.bounded()
        return (
            "settled what was unknown"
            if settled
            else "told a person"
            if doubted
            else self._acknowledged(request, status, content)
        )

    def _is_signed(self, request: Request) -> bool:
        """Return whether a plain JSON object or form carries the right signature; nothing is said
        of others.
        """
        form = request.body.decode(errors="replace")
        said = (
            plain(request.body)
            if request.body[:1] == b"{"
            else dict(parse_qsl(form, keep_blank_values=True))
        )
        is_plain = (
            isinstance(said, dict)
            and not request.query
            and all(isinstance(value, str) for value in said.values())
        )
        if not is_plain or request.is_cut or "CONTENT_LENGTH" in request.headers:
            return True
        return is_signed(said, self.shop.token) is True

    def _acknowledged(self, request: Request, status: int, content: bytes) -> str:
        if (status, content) == (NO_REQUEST[0], NO_REQUEST[2]):
            return "no request"
        if request.method in ("GET", "POST") and not _touches(
            request,
            "HTTP_HOST",
            "CONTENT_LENGTH",
        ):
            assert (status, content) == (200, b"success"), (
                f"a notification on a known address was answered {status}"
            )
        return str(status)

    def draw_return(self, r: Random) -> Request:
        payment = self._payment(r)
        members = {
            **self._said_of(r, payment),
            "wait": r.choice(("", "1", "39", "40", inputs.text(r))),
        }
        return inputs.request(
            r,
            f"/payments/return/{payment.return_key}/",
            inputs.spoil(r, members, ("next", "url")),
            ("GET", "GET", "POST"),
        )

    def check_return(self, request: Request) -> str:
        status, headers, content, changed = self.ask(request)
        self.nothing_changed(changed)
        if "Location" in headers:
            assert headers["Location"].startswith("/orders/"), "an open redirect"
        assert b"<script>alert" not in content
        assert all(
            key.encode() not in content
            for payment in self.shop.payments
            for key in (payment.notification_key,)
        )
        return str(status)

    def draw_status(self, r: Random) -> Request:
        return inputs.request(
            r,
            f"/payments/status/{r.choice(self.shop.payments).return_key}/",
            {"a": inputs.text(r)},
            ("GET",),
        )

    def check_status(self, request: Request) -> str:
        status, _, content, changed = self.ask(request)
        self.nothing_changed(changed)
        assert self.shop.gateway.sent == 0
        if status == 200 and content:
            assert set(plain(content)) == {"status", "settled"}
        return str(status)

    # Addresses that do not exist, and tickets.

    def draw_stranger(self, r: Random) -> Request:
        payment = r.choice(self.shop.payments)
        key = r.choice(
            (
                payment.notification_key,
                payment.return_key,
                payment.reference,
                str(payment.pk),
                inputs.text(r),
                "x" * 5000,
            ),
        )
        path = f"/payments/{r.choice(_PAGES)}/{inputs.mutated_text(r, key)}/"
        return inputs.request(
            r,
            inputs.latin(inputs.mutated_text(r, path) if inputs.chance(r, 4) else path),
            {"status": "success"},
        )

    def check_stranger(self, request: Request) -> str:
        known = {
            (page, key)
            for one in self.shop.payments
            for page, key in (("notification", one.notification_key), ("return", one.return_key))
        }
        parts = request.path.split("/")
        if len(parts) > 3 and (parts[2], parts[3]) in known | {
            ("status", one.return_key) for one in self.shop.payments
        }:
            return "known"
        kept = self.before["tillgate_notification"]
        status, headers, _, changed = self.ask(request)
        self.nothing_changed(changed)
        assert self.before["tillgate_notification"] == kept, "an address that nobody has left a row"
        assert self.shop.gateway.sent == 0
        assert status != 200 or request.path.startswith("/payments/assets/")
        if "Location" in headers:
            assert urlsplit(headers["Location"]).netloc == ""
        return str(status)

    def draw_ticket(self, r: Random) -> Request:
        good = r.choice((self.shop.pay_path, self.shop.start_path))
        page, ticket = good.strip("/").split("/")[1:]
        if inputs.chance(r, 8):
            page = r.choice(("pay", "start"))
        for _ in range(r.randrange(1, 3)):
            ticket = inputs.mutated_text(r, ticket)
        return inputs.request(r, inputs.latin(f"/payments/{page}/{ticket}/"), {"method": "alipay"})

    def check_ticket(self, request: Request) -> str:
        # A letter that base64 ignores may differ; the ticket's text and its signature may not.
        status, _, _, changed = self.ask(request)
        if request.path in (self.shop.pay_path, self.shop.start_path):
            self.restore()
            return "good"
        self.nothing_changed(changed)
        assert status not in (200, 302), "a forged ticket was taken"
        return str(status)

    def draw_choice(self, r: Random) -> Request:
        token = "a" * 32
        drawn = inputs.request(
            r,
            self.shop.pay_path,
            inputs.spoil(r, {"method": "alipay"}, ("next",)),
            ("POST", "POST", "POST", "GET"),
        )
        csrf = {
            "HTTP_COOKIE": f"csrftoken={token}",
            "HTTP_X_CSRFTOKEN": token,
            "HTTP_REFERER": "https://shop.example/",
        }
        headers = {**csrf, **drawn.headers} if not inputs.chance(r, 4) else drawn.headers
        return Request(
            drawn.method,
            drawn.path,
            drawn.query,
            drawn.content_type,
            drawn.body,
            headers,
            drawn.is_cut,
        )

    def check_choice(self, request: Request) -> str:
        if request.is_cut:
            return "cut"  # Django reads the form itself, and no client is left
        status, headers, _, changed = self.ask(request)
        began = [
            row for table, was, row in changed if table == "tillgate_payment" and not was.get("id")
        ]
        self.nothing_changed(changed, _begins_a_payment, _counts_a_creation)
        if began:
            assert [one["status"] for one in began] == ["pending"]
            assert "HTTP_X_CSRFTOKEN" in request.headers, (
                "a payment was begun without the CSRF token"
            )
            assert headers["Refresh"].startswith(f"0; url={ADDRESS}/cashier/")
        else:
            assert not {"Location", "Refresh"} & set(headers)
        return "begun" if began else str(status)

    # The gateway's answers, through the operations and into the rows.

    def draw_answer_to_query(self, r: Random) -> tuple[Payment, tuple[int, bytes]]:
        payment = r.choice((self.shop.open, self.shop.open, self.shop.created, self.shop.failed))
        good = {
            "ret_code": "000100",
            "ret_msg": "success",
            "result": {**self._said_of(r, payment), "settleCurrency": "USD"},
        }
        return payment, answer(r, good, self.shop.token)

    def check_answer_to_query(self, drawn: tuple[Payment, tuple[int, bytes]]) -> str:
        payment, says = drawn
        self.shop.later(10)
        self.shop.gateway.says = says
        try:
            _, _, _, changed = self.ask(
                Request("POST", f"/payments/notification/{payment.notification_key}/"),
            )
        finally:
            self.shop.gateway.says = None
        if not changed:
            return "inconclusive"
        became = Payment.objects.get(pk=payment.pk).status
        self.restore()
        if became == "paid":
            assert self._proves_paid(payment, *says), "I1: an order was paid without proof"
        return became

    def _proves_paid(self, payment: Payment, status: int, body: bytes) -> bool:
        said = plain(body)
        result = said["result"]
        return (
            200 <= status < 300
            and said["ret_code"] == "000100"
            and result["reference"] == payment.reference
            and result["status"] == "success"
            and Decimal(result["amount"]) == payment.amount
            and result.get("currency") in (None, "", "USD")
            and (
                not payment.transaction_no
                or result.get("transactionNo") in (None, "", payment.transaction_no)
            )
            and is_signed(said, self.shop.token) is not False
        )

    def draw_answer_to_pay(self, r: Random) -> tuple[int, bytes]:
        result = {
            "transactionNo": "29",
            "amount": "7.50",
            "currency": "USD",
            "cashierUrl": "https://pay.example/cashier/1",
        }
        return answer(
            r,
            {"ret_code": "000100", "ret_msg": "prepay success", "result": result},
            self.shop.token,
        )

    def check_answer_to_pay(self, says: tuple[int, bytes]) -> str:
        self.shop.gateway.says = says
        try:
            _, headers, _, changed = self.ask(Request("GET", self.shop.start_path))
        finally:
            self.shop.gateway.says = None
        [payment] = [row for table, was, row in changed if table == "tillgate_payment"]
        reasons = ("signature-mismatch", "wrong-credentials", "creations-refused")
        told = [_tells_of(reason) for reason in reasons]
        self.nothing_changed(changed, _begins_a_payment, _counts_a_creation, *told)
        assert payment["status"] in ("created", "pending", "failed")
        if "Refresh" in headers:
            address = headers["Refresh"].removeprefix("0; url=")
            # as a browser would write it
            assert address == iri_to_uri(plain(says[1])["result"]["cashierUrl"])
            assert urlsplit(address).scheme in ("http", "https")
        return str(payment["status"])

    def draw_answer_to_refund(self, r: Random) -> tuple[int, bytes]:
        return answer(r, {"ret_code": "000100", "ret_msg": "refund success"}, self.shop.token)

    def check_answer_to_refund(self, says: tuple[int, bytes]) -> str:
        self.shop.gateway.says = says
        self.shop.logged.clear()
        try:
            refund = queueing.refund(self.shop.paid.pk, "4.00")
        finally:
            self.shop.gateway.says = None
        shown = " ".join((refund.answer, *self.shop.logged))
        assert not any(secret in shown for secret in self.secrets), (
            "I11: a secret is kept or logged"
        )
        assert refund.status in ("succeeded", "failed", "unknown")
        if refund.status == "succeeded":
            assert plain(says[1])["ret_code"] == "000100"
        self.restore()
        return refund.status

    # The admin, in the hands of staff who may look: looking changes nothing, at any address.

    def draw_admin(self, r: Random) -> Request:
        names = (
            "status",
            "status__exact",
            "method",
            "account",
            "state",
            "reason",
            "q",
            "p",
            "o",
            "e",
            "all",
            "created_at__gte",
            "created_at__year",
        )
        members = {
            r.choice((*names, inputs.text(r))): r.choice(
                (inputs.text(r), inputs.text(r), "1", "pending"),
            )
            for _ in range(r.randrange(1, 3))
        }
        query = "&".join(
            f"{quote(name, errors='surrogatepass')}={quote(value, errors='surrogatepass')}"
            for name, value in members.items()
        )
        path = r.choice(
            (
                "payment/",
                "payment/",
                "order/",
                "review/",
                f"payment/{self.shop.paid.pk}/refund/",
                f"order/{inputs.text(r)}/change/",
            ),
        )
        return Request(
            "GET",
            inputs.latin(f"/admin/tillgate/{path}"),
            query,
            headers={"HTTP_COOKIE": self.shop.admin_cookie},
        )

    def check_admin(self, request: Request) -> str:
        status, headers, content, changed = self.ask(request)
        self.nothing_changed(changed)
        assert b"<script>alert" not in content
        if "Location" in headers:
            to = urlsplit(headers["Location"])
            assert not to.netloc, "an open redirect"
            assert unquote(to.path).startswith("/admin/")
        return str(status)


def _touches(request: Request, *headers: str) -> bool:
    return any(name in request.headers for name in headers)


def _tells_of(reason: str) -> Callable[[Difference], bool]:
    """Only a review and a shop event may follow: input from outside can have no other effect."""
    told = {
        "tillgate_review": reason,
        "tillgate_timelineentry": "review.opened",
        "tillgate_outboxevent": "review-opened",
    }

    def allows(difference: Difference) -> bool:
        table, was, became = difference
        return not was.get("id") and table in told and told[table] in became.values()

    return allows


def _notes_a_confirmation(difference: Difference) -> bool:
    """Tell whether all that a notification changed of its refund is that one has confirmed it."""
    table, _, became = difference
    return table == "tillgate_refund" and became == {"confirmed": True}


def _settles_the_unknown_refund(shop: Shop) -> Callable[[Difference], bool]:
    """I7's one exception: a notification on a refund's own address may move it from unknown to
    succeeded, and the shop hears of it.
    """

    def allows(difference: Difference) -> bool:
        table, was, became = difference
        if table == "tillgate_refund":
            return (was.get("status"), became.get("status")) == (
                "unknown",
                "succeeded",
            ) and "amount" not in became
        if table == "smallest_shop_shoporder":
            return (
                set(became) == {"refunded"}
                and Decimal(became["refunded"]) - Decimal(was["refunded"]) == shop.unknown.amount
            )
        if table == "tillgate_review":
            return "resolved_at" in became and was.get("resolved_at") is None
        is_new = not was.get("id")
        return is_new and table in ("tillgate_timelineentry", "tillgate_outboxevent")

    return allows


def _counts_a_creation(difference: Difference) -> bool:
    """Tell whether a creation was noted that the gateway did not answer, or refused."""
    table, before, became = difference
    # only changes count: without a name it is a time or a count
    name = became.get("name") or before.get("name") or ":creations:"
    return table == "tillgate_lane" and name.startswith((":creations:", ":refusals:"))


def _begins_a_payment(difference: Difference) -> bool:
    table, was, _ = difference
    return not was.get("id") and table in (
        "tillgate_order",
        "tillgate_payment",
        "tillgate_timelineentry",
    )


def views(on: Views) -> Iterator[Target]:
    """Yield the targets that need a shop."""
    yield Target("payment notifications", 50, on.draw_notification, on.check_notification)
    yield Target(
        "refund notifications",
        30,
        on.draw_refund_notification,
        on.check_refund_notification,
    )
    yield Target("returns", 25, on.draw_return, on.check_return)
    yield Target("status", 15, on.draw_status, on.check_status)
    yield Target("addresses of nobody", 15, on.draw_stranger, on.check_stranger)
    yield Target("tickets", 15, on.draw_ticket, on.check_ticket)
    yield Target("choices", 6, on.draw_choice, on.check_choice)
    yield Target("answers to query, applied", 10, on.draw_answer_to_query, on.check_answer_to_query)
    yield Target("answers to pay, applied", 3, on.draw_answer_to_pay, on.check_answer_to_pay)
    yield Target(
        "answers to refund, applied",
        2,
        on.draw_answer_to_refund,
        on.check_answer_to_refund,
    )
    yield Target("the admin's addresses", 2, on.draw_admin, on.check_admin)
