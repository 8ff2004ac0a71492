"""The emulator answers as its own OpenAPI document says, over real HTTP, to bodies that the
document generates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Options,
    Sandbox,
)
from tillgate.sandbox.openapi import document
from tillgate.sandbox.signing import signature

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# the same examples in every run: a contract, not a hunt
BOUNDED = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
SERVED = Options(seed=7, magic_amounts=False, json_numbers="refuse")  # the interface by the letter
schema = schemathesis.openapi.from_dict(document(SERVED))


@pytest.fixture(scope="module")
def gateway() -> Iterator[Sandbox]:
    """Serve what the document describes."""
    with Sandbox(SERVED) as running:
        yield running


def sign(body: dict[str, Any]) -> None:
    """Sign the generated body as a merchant would, so that it reaches what lies behind the
    signature.
    """
    body["merchantNo"] = PUBLISHED_MERCHANT_NO
    texts = {name: value for name, value in body.items() if isinstance(value, str)}
    body["verifySign"] = signature(texts, PUBLISHED_TEST_TOKEN)


@schema.parametrize()
@BOUNDED
def test_every_answer_is_one_of_those_documented(case: Any, gateway: Sandbox) -> None:
    if isinstance(case.body, dict):
        sign(case.body)
    case.validate_response(case.call(base_url=gateway.base_url), checks=CHECKS)


@schema.parametrize()
@BOUNDED
def test_what_is_as_documented_is_accepted(case: Any, gateway: Sandbox) -> None:
    if not isinstance(case.body, dict) or case.meta.generation.mode.is_negative:
        return
    case.body["reference"] = paid_reference(gateway)
    case.body.pop("transactionNo", None)
    if "goodsInfo" in case.body:
        case.body["goodsInfo"] = (
            # a grammar in a grammar: no schema generates it
            '[{"goods_name":"Tea","quantity":"1"}]'
        )
    if "secure-pay" in case.path:
        case.body["reference"] += "-NEXT"
    if "storeNo" in case.body:
        case.body["storeNo"] = PUBLISHED_STORE_NO
    if "refundAmount" in case.body:
        case.body |= {"refundAmount": "0.01", "currency": "USD"}
    elif "amount" in case.body:
        case.body["amount"] = "1" if "settleCurrency" in case.body else "0.01"
    sign(case.body)
    response = case.call(base_url=gateway.base_url)
    case.validate_response(response, checks=CHECKS)
    assert response.status_code == 200, response.text


def paid_reference(gateway: Sandbox) -> str:
    """Create a payment of its own for an example and pay it."""
    reference = f"R{len(gateway.service.transactions())}"
    body = {
        "currency": "USD",
        "amount": "12.50",
        "vendor": "alipay",
        "reference": reference,
        "terminal": "WAP",
        "ipnUrl": "http://127.0.0.1:9/",
        "callbackUrl": "https://shop.example/",
    }
    sign(body)
    gateway.control.set_options({"notification_on_paid": False, "notification_on_refund": False})
    gateway.control.handle(
        "/online/v1/secure-pay",
        "application/x-www-form-urlencoded",
        urlencode(body).encode(),
    )
    gateway.control.pay(reference)
    return reference


def test_the_document_is_served(gateway: Sandbox) -> None:
    with urlopen(f"{gateway.base_url}/openapi.json") as response:
        assert json.load(response)["paths"] == document(SERVED)["paths"]


@pytest.mark.parametrize(
    ("options", "paths", "statuses", "kinds"),
    [
        (Options(), 8, {"200", "400"}, {"application/json", "application/x-www-form-urlencoded"}),
        (Options(prefixes="online", encodings="json"), 3, {"200", "400"}, {"application/json"}),
        (
            Options(prefixes="examples", encodings="form", refusal_http_status=200),
            3,
            {"200", "400"},
            {"application/x-www-form-urlencoded"},
        ),
        (
            Options(refusal_http_status=422),
            8,
            {"200", "400", "422"},
            {"application/json", "application/x-www-form-urlencoded"},
        ),
    ],
)
def test_the_document_follows_the_switches(
    options: Options,
    paths: int,
    statuses: set[str],
    kinds: set[str],
) -> None:
    described: Any = document(options)
    query = next(path for path in described["paths"] if path.endswith("tran-query"))
    assert len(described["paths"]) == paths
    assert set(described["paths"][query]["post"]["responses"]) == statuses
    assert set(described["paths"][query]["post"]["requestBody"]["content"]) == kinds
