"""PayU's sandbox: only with PAYU_SANDBOX, and never in CI. It needs the internet.

`PAYU_SANDBOX=1` takes the public test point of sale, which PayU publishes; PAYU_POS_ID,
PAYU_CLIENT_ID, PAYU_CLIENT_SECRET and PAYU_SECOND_KEY name one of your own. Paying there takes a
browser: the tests create, query and close.
"""

from __future__ import annotations

import os

import pytest

from tests.test_plugin import request_of
from tillgate import Account, OrderNotFound, TransactionStatus, WrongCredentials, hooks

IS_ASKED = bool(os.environ.get("PAYU_SANDBOX"))
pytestmark = pytest.mark.skipif(not IS_ASKED, reason="needs PAYU_SANDBOX=1 and the internet")


@pytest.fixture
def account() -> Account:
    """The account of the environment, or else PayU's public one
    (developers.payu.com/europe/api, "Sandbox Environment").
    """
    pos = os.environ.get("PAYU_POS_ID", "300746")
    return Account(
        dialect="payu",
        sandbox=True,
        merchant_no=pos,
        token=os.environ.get("PAYU_CLIENT_SECRET", "2ee86a66e5d97e3fadc400c9f19b065d"),
        options={"client_id": os.environ.get("PAYU_CLIENT_ID", pos)},
        webhook_secrets=os.environ.get("PAYU_SECOND_KEY", "b6ca15b0d1020e8094d9b5f8d163db54"),
        currencies=(os.environ.get("PAYU_CURRENCY", "PLN"),),
    )


def test_order_is_created_found_and_closed(account: Account) -> None:
    request = request_of(currency=account.currencies[0], email="shopper@shop.example")
    created = hooks.pay(account, request)
    assert created.payment_url.startswith("https://")
    number = created.transaction_no
    answer = hooks.query(account, request.reference, transaction_no=number)
    assert (answer.reference, answer.amount) == (request.reference, request.amount)
    assert (answer.status, answer.currency) == (TransactionStatus.PENDING, request.currency)
    assert hooks.close(account, request.reference, transaction_no=number) is True


def test_unknown_order_is_not_found(account: Account) -> None:
    with pytest.raises(OrderNotFound):
        hooks.query(account, "ref", transaction_no="WZHF5FFDRJ140731GUEST000P01")


def test_wrong_secret_is_refused(account: Account) -> None:
    wrong = account.model_copy(update={"token": "the-secret-of-somebody-else"})
    with pytest.raises(WrongCredentials):
        hooks.pay(wrong, request_of(currency=account.currencies[0]))


def test_doctor_is_content(account: Account) -> None:
    found = hooks.examine_account(account, online=True) or ()
    assert [one.finding for one in found if not one.passed] == []
