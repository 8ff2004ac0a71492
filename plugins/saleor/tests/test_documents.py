"""Our GraphQL, compared with Saleor's schema: every type, field, argument and value, in each
version.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema import VERSIONS, faults, faults_of_variables
from tillgate_saleor.documents import (
    APP_ID,
    COSTS,
    PAID_FOR,
    REPORT,
    REPORT_WITH_METHOD,
    SUBSCRIPTIONS,
    Event,
)
from tillgate_saleor.manifest import manifest

REPORTED = (
    "CHARGE_SUCCESS",
    "CHARGE_FAILURE",
    "CHARGE_REQUEST",
    "REFUND_SUCCESS",
    "REFUND_FAILURE",
    "INFO",
)

every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
@pytest.mark.parametrize("event", Event)
def test_subscriptions_ask_for_existing_fields(event: Event, version: str) -> None:
    assert faults(SUBSCRIPTIONS[event], version) == []
    assert event.value.upper() in VERSIONS[version]["WebhookEventTypeSyncEnum"]


@every_version
@pytest.mark.parametrize(
    "document",
    [APP_ID, PAID_FOR, COSTS, REPORT],
    ids=["app", "paid-for", "costs", "report"],
)
def test_requests_ask_for_existing_fields(document: str, version: str) -> None:
    assert faults(document, version) == []


@every_version
def test_method_goes_only_to_versions_with_it(version: str) -> None:
    has_it = "PaymentMethodDetailsInput" in VERSIONS[version]
    assert has_it is (version != "3.21")
    assert (faults(REPORT_WITH_METHOD, version) == []) is has_it


@pytest.mark.parametrize(
    ("details", "fault"),
    [
        ({"card": {"name": "Visa", "brand": "visa", "lastDigits": "4242"}}, []),
        ({"other": {"name": "Alipay"}}, []),
        ({"other": {}}, ["paymentMethodDetails.other.name is missing"]),
        ({"card": {"name": "x", "last4": "1"}}, ["paymentMethodDetails.card has no last4"]),
    ],
)
def test_wrong_value_of_a_request_is_found(details: dict[str, Any], fault: list[str]) -> None:
    variables = {
        "id": "x",
        "type": "INFO",
        "pspReference": "x",
        "amount": "1.00",
        "time": "x",
        "paymentMethodDetails": details,
    }
    assert faults_of_variables(REPORT_WITH_METHOD, variables, "3.22") == fault


@every_version
def test_every_value_that_is_sent_exists(version: str) -> None:
    schema = VERSIONS[version]
    assert set(REPORTED) <= set(schema["TransactionEventTypeEnum"])
    assert {"REFUND"} <= set(schema["TransactionActionEnum"])
    assert set(manifest()["permissions"]) <= set(schema["PermissionEnum"])


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (
            SUBSCRIPTIONS[Event.REFUND].replace("actionType", "kind"),
            "TransactionAction has no kind",
        ),
        (
            SUBSCRIPTIONS[Event.INITIALIZE].replace("... on Order", "... on Invoice"),
            "OrderOrCheckout is never Invoice",
        ),
        (REPORT.replace("time: $time", "moment: $time"), "transactionEventReport takes no moment"),
        (REPORT.replace("$id: ID!", "$id: String!"), "id is ID"),
        (
            REPORT.replace("pspReference: $pspReference, ", ""),
            "transactionEventReport needs pspReference",
        ),
    ],
)
def test_document_with_unknown_name_is_found(document: str, fault: str) -> None:
    (latest, *_) = reversed(VERSIONS)
    assert faults(document, latest) == [fault]


def test_manifest_asks_only_for_needed_permissions() -> None:
    told: dict[str, Any] = manifest()
    assert told["permissions"] == ["HANDLE_PAYMENTS"]
    assert {event for webhook in told["webhooks"] for event in webhook["syncEvents"]} == {
        event.value.upper() for event in Event
    }
    assert [webhook["query"] for webhook in told["webhooks"]] == list(SUBSCRIPTIONS.values())
    assert all(
        webhook["targetUrl"].startswith("http://testserver/api/webhooks/")
        for webhook in told["webhooks"]
    )
