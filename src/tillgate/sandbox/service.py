"""The emulated gateway without any I/O: bytes and decisions go in, answers and notifications to
send come out.

One seed and one order of calls always give the same results. A caller with several threads holds a
lock, as `control.Control` does.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from . import answers, contract, notifications
from .answers import Answer, Envelope
from .contract import Endpoint, Operation
from .faults import Fault
from .ledger import Ledger
from .money import number_of
from .notifications import NotificationAttempt
from .requests import Bare, Refusal, check, read_address, read_amount, read_body, read_order
from .transactions import Transaction

_LOST = Answer(
    404,
    (("content-type", "application/json"),),
    b'{"ret_code":"000021","ret_msg":"no such path"}',
)
_TITLES: dict[Operation, str] = {"pay": "secure-pay", "query": "tran-query", "refund": "refund"}


class Service(Ledger):
    """The endpoints over the ledger, and the sending of its notifications."""

    _second = _requests_in_second = 0

    # The client's calls.

    def handle(self, path: str, content_type: str, body: bytes) -> Answer:
        """Answer one POST to one of the endpoints."""
        endpoint = contract.PATHS[self.options.prefixes].get(path)
        if endpoint is None:
            return _LOST
        operation = endpoint.operation
        now = self.clock()
        self.settle(now)
        refusal: Refusal | None = None
        parameters: dict[str, str] = {}
        try:
            parameters = read_body(content_type, body, self.options.encodings)
        except Refusal as error:
            refusal = error
        reference = parameters.get("reference", "")
        is_too_fast = self._is_too_fast(now)
        amount = parameters.get(contract.AMOUNTS.get(endpoint, ""), "")
        magic = (
            None
            if is_too_fast
            else self._magic(
                operation,
                self._named(parameters),
                amount,
                parameters.get("currency", ""),
            )
        )
        fault = None if is_too_fast else self.faults.choose(operation, reference, magic)
        self.journal.add(
            now,
            "in",
            _TITLES[operation],
            self._named(parameters),
            reference=reference,
            operation=operation,
            detail=body,
        )
        if is_too_fast:
            answer = answers.instead("rate_limited", self.options)
        elif fault is not None and fault.stage == "instead":
            answer = answers.instead(fault.name, self.options)
        else:
            answer = self._work(endpoint, parameters, refusal, fault, now)
        self._journal_answer(now, operation, parameters, fault, answer)
        return answer

    def _work(
        self,
        endpoint: Endpoint,
        parameters: dict[str, str],
        refusal: Refusal | None,
        fault: Fault | None,
        now: float,
    ) -> Answer:
        http_status = 200
        envelope: Envelope
        try:
            if refusal is not None:
                raise refusal
            merchant_no = check(endpoint, parameters, self.options)
            work = {"pay": self._pay, "query": self._query, "refund": self._refund}[
                endpoint.operation
            ]
            envelope = work(endpoint, merchant_no, parameters, now)
        except Refusal as error:
            http_status = error.http_status or self.options.refusal_http_status
            envelope = {"ret_code": error.code, error.message_name: error.message}
        if fault is not None:
            transaction = self._named(parameters)
            answers.change_result(
                fault.name,
                envelope,
                transaction.currency if transaction else "USD",
            )
        how = (
            "wrong"
            if fault is not None and fault.name == "bad_signature"
            else self.options.answer_signature
        )
        token = self.options.merchants.get(parameters.get("merchantNo", ""))
        if how != "none" and token is not None:
            answers.sign(envelope, token, how)
        answer = answers.answer(envelope, http_status)
        if fault is not None:
            answer = answers.damage(fault.name, envelope, answer, self.options, self._numbers)
        return answer

    def _pay(
        self,
        endpoint: Endpoint,
        merchant_no: str,
        parameters: dict[str, str],
        now: float,
    ) -> Envelope:
        """Create a payment ("1. Create payment")."""
        order = read_order(endpoint, parameters, self.options)
        transaction = self._by_reference.get((merchant_no, order.reference))
        if transaction is None:
            given = {item.name: getattr(order, item.name) for item in fields(order)}
            number, token = self._number(), f"{self._numbers.getrandbits(160):040x}"
            transaction = Transaction(
                **given,
                transaction_no=number,
                token=token,
                merchant_no=merchant_no,
                created_at=now,
            )
            self.add(transaction)
        elif self.options.repeated_reference == "refuse" or (
            transaction.amount,
            transaction.vendor,
        ) != (order.amount, order.vendor):
            raise Refusal(contract.BAD_VALUE, "reference has been used before")
        result = self._facts(
            transaction,
            self.options.pay_amount,
            cashierUrl=self.payment_url(transaction),
        )
        return {"ret_code": contract.SUCCESS, "ret_msg": "prepay success", "result": result}

    def _query(
        self,
        endpoint: Endpoint,
        merchant_no: str,
        parameters: dict[str, str],
        now: float,
    ) -> Envelope:
        """Answer with the state of a payment ("2. Query transaction"); an unknown one is always
        HTTP 400 and 000022.
        """
        transaction = self._named(parameters)
        if transaction is None or (
            transaction.status == "expired" and self.options.expired_is_forgotten
        ):
            raise Refusal(contract.NOT_FOUND, "order not found", 400)
        result = self._facts(transaction, self.options.query_amount, status=self.word(transaction))
        if transaction.has_open_voucher and transaction.voucher_until is not None:
            until = str(int(transaction.voucher_until))
            result |= {"voucherUrl": self.payment_url(transaction), "voucherUntil": until}
        if endpoint.version == "v3":
            result |= {"transactionType": "payment"} | self._refund_info(transaction)
        return {"ret_code": contract.SUCCESS, "ret_msg": "success", "result": result}

    def _refund_info(self, transaction: Transaction) -> Envelope:
        """Return the list of refunds in the answer of version 3, those of the back office too; it
        documents no status of them.
        """
        tells_status = self.options.refund_info == "status"
        listed: list[Envelope] = [
            {
                "refundTransactionId": refund.refund_no,
                "refundAmount": refund.amount,
                **({"refundReference": refund.reference} if refund.reference else {}),
                **({"status": self.refund_word(refund)} if tells_status else {}),
                "currency": transaction.currency,
                "settleCurrency": transaction.settle_currency,
            }
            for refund in transaction.refunds
            if refund.status == "succeeded" or tells_status
        ]
        return {"refundInfo": listed} if listed and self.options.refund_info != "none" else {}

    def _facts(self, transaction: Transaction, amount_form: str, **more: str) -> Envelope:
        """Return the fields that both answers have; the switches select the form of the amount and
        leave out empty fields.
        """
        forms = {
            "number": Bare(number_of(transaction.amount)),
            "text": transaction.amount,
            "missing": "",
        }
        facts = {
            "transactionNo": transaction.transaction_no,
            "reference": transaction.reference,
            "amount": forms[amount_form],
            "currency": transaction.currency
            if self.options.answer_currency == "own"
            else self.options.answer_currency,
            "settleCurrency": (
                transaction.settle_currency
                if self.options.answer_settle_currency == "own"
                else self.options.answer_settle_currency
            ),
            **more,
        }
        return {name: value for name, value in facts.items() if value != ""}

    def _refund(
        self,
        endpoint: Endpoint,
        merchant_no: str,
        parameters: dict[str, str],
        now: float,
    ) -> Envelope:
        """Refund part or all of a payment ("3. Refund")."""
        name = contract.AMOUNTS[endpoint]
        transaction = self._named(parameters)
        currency = (
            parameters["currency"]
            if endpoint.version == "v3"
            else transaction.currency
            if transaction
            else "USD"
        )
        units = read_amount(name, parameters, currency, self.options)
        ipn_url = (
            read_address(parameters, "ipnUrl", self.options) if parameters.get("ipnUrl") else ""
        )
        if transaction is None:
            raise Refusal(contract.NOT_FOUND, "order not found")
        if currency != transaction.currency:
            raise Refusal(contract.NOT_FOUND, "currency is not that of the transaction")
        reference = parameters.get("refundReference", "") if endpoint.version == "v3" else ""
        if reference and any(refund.reference == reference for refund in transaction.refunds):
            raise Refusal(contract.BAD_VALUE, "refundReference has been used before")
        refund = self.give_back(
            transaction,
            units,
            amount=parameters[name],
            ipn_url=ipn_url,
            reference=reference,
            status=self.options.refund_outcome,  # type: ignore[arg-type]  # Options has checked it
            now=now,
        )
        envelope: Envelope = {"ret_code": contract.SUCCESS, "ret_msg": self.options.refund_message}
        if endpoint.version == "v1":
            return envelope
        facts = {
            "refundAmount": refund.amount,
            "refundTransactionNo": refund.refund_no,
            "refundReference": reference,
            "status": self.refund_word(refund),
        }
        return {**envelope, "result": self._facts(transaction, "text", **facts)}

    # The calls of a server or simulator.

    def due_notifications(self, now: float) -> list[NotificationAttempt]:
        """Take the notifications to send now; report each result with `notification_answered`."""
        self.settle(now)
        attempts = []
        for notification in self.outbox.take_due(now):
            token = self.options.merchants.get(notification.transaction.merchant_no, "")
            attempt = notifications.attempt(notification, token, self.options)
            title = (
                f"{notification.kind} notification {notification.notification_no}, send "
                f"{notification.sends}"
            )
            self.journal.add(
                now,
                "out",
                title,
                notification.transaction,
                detail=attempt.body or attempt.url.encode(),
            )
            attempts.append(attempt)
        return attempts

    def notification_answered(
        self,
        attempt: NotificationAttempt,
        http_status: int | None,
        body: bytes = b"",
        error: str = "",
    ) -> None:
        """Record the merchant's answer, or None if no answer came."""
        now = self.clock()
        settled = notifications.acknowledges(http_status, body, self.options.acknowledgement)
        notification = self.outbox.answered(
            attempt,
            acknowledged=settled,
            now=now,
            schedule=self.options.notification_schedule_seconds,
        )
        if notification is not None:
            outcome = {
                "waiting": f"not acknowledged, send {notification.sends + 1} follows",
                "abandoned": f"not acknowledged, abandoned after {notification.sends}",
            }.get(notification.state, notification.state)
            title = (
                f"{notification.kind} notification {notification.notification_no}: {outcome}"
                + (f" ({error})" if error else "")
            )
            self.journal.add(
                now,
                "in",
                title,
                notification.transaction,
                http_status=http_status,
                detail=body[:2000],
            )

    def _named(self, parameters: dict[str, str]) -> Transaction | None:
        """Return the merchant's transaction that a request names by its reference, or by its number
        where it gives no reference.
        """
        merchant_no = parameters.get("merchantNo", "")
        if reference := parameters.get("reference", ""):
            return self._by_reference.get((merchant_no, reference))
        found = self._transactions.get(parameters.get("transactionNo", ""))
        return found if found is not None and found.merchant_no == merchant_no else None

    def _journal_answer(
        self,
        now: float,
        operation: Operation,
        parameters: dict[str, str],
        fault: Fault | None,
        answer: Answer,
    ) -> None:
        transaction, reference = self._named(parameters), parameters.get("reference", "")
        if fault is not None:
            self.journal.add(
                now,
                "fault",
                fault.name,
                transaction,
                reference=reference,
                operation=operation,
            )
        named: dict[str, Any] = {"reference": reference, "operation": operation}
        title, http_status = answer.fate.replace("_", " "), answer.http_status or None
        self.journal.add(
            now,
            "out",
            title,
            transaction,
            **named,
            http_status=http_status,
            detail=answer.body[:2000],
        )

    def _is_too_fast(self, now: float) -> bool:
        """Count requests per second of the clock (unspecified behaviour 16)."""
        if not self.options.rate_limit_per_second:
            return False
        if int(now) != self._second:
            self._second, self._requests_in_second = int(now), 0
        self._requests_in_second += 1
        return self._requests_in_second > self.options.rate_limit_per_second
