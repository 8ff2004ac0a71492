"""Our GraphQL, compared with what Saleor has: every type, field, argument and value, in each
version.
"""

from __future__ import annotations

from typing import Any

import pytest
from graphql import (
    ArgumentNode,
    FieldNode,
    InlineFragmentNode,
    NonNullTypeNode,
    OperationDefinitionNode,
    SelectionSetNode,
    VariableDefinitionNode,
    parse,
    print_ast,
)

from tests import recorded
from tillgate_saleor.documents import APP_ID, COSTS, PAID_FOR, REPORT, SUBSCRIPTIONS, Event
from tillgate_saleor.manifest import manifest

VERSIONS = recorded.read("operations.json")["versions"]
REPORTED = ("CHARGE_SUCCESS", "CHARGE_FAILURE", "REFUND_SUCCESS", "REFUND_FAILURE")

every_version = pytest.mark.parametrize("version", VERSIONS)


def bare(type_: str) -> str:
    return type_.strip("[]!")


def faults(document: str, version: str) -> list[str]:
    """Return what a document names that a version does not have."""
    schema, found = VERSIONS[version], list[str]()
    (operation,) = parse(document).definitions
    assert isinstance(operation, OperationDefinitionNode)
    given = {
        definition.variable.name.value: definition
        for definition in operation.variable_definitions or ()
    }

    def arguments(node: FieldNode, takes: dict[str, str]) -> None:
        for argument in node.arguments or ():
            if argument.name.value not in takes:
                found.append(f"{node.name.value} takes no {argument.name.value}")
            elif not fits(given[variable_of(argument)], takes[argument.name.value]):
                found.append(f"{argument.name.value} is {takes[argument.name.value]}")
        missing = [
            name for name, type_ in takes.items() if type_.endswith("!") and name not in named(node)
        ]
        found.extend(f"{node.name.value} needs {name}" for name in missing)

    def walk(selections: SelectionSetNode, owner: str) -> None:
        fields = {} if owner in ("Query", "Mutation", "Subscription") else schema.get(owner)
        for node in selections.selections:
            if isinstance(node, InlineFragmentNode):
                assert node.type_condition is not None
                of = node.type_condition.name.value
                if of not in schema or (
                    f"union {owner}" in schema and of not in schema[f"union {owner}"]
                ):
                    found.append(f"{owner} is never {of}")
                else:
                    walk(node.selection_set, of)
                continue
            assert isinstance(node, FieldNode)
            name = node.name.value
            if name == "__typename":
                continue
            held = schema.get(f"{owner}.{name}") if not fields else fields.get(name)
            if held is None:
                found.append(f"{owner} has no {name}")
                continue
            arguments(node, held.get("args", {}))
            if node.selection_set:
                walk(node.selection_set, bare(held["type"]))

    walk(operation.selection_set, operation.operation.value.title())
    return found


def variable_of(argument: ArgumentNode) -> str:
    # every argument of ours is a variable
    name: str = argument.value.name.value  # type: ignore[attr-defined]
    return name


def named(node: FieldNode) -> set[str]:
    return {argument.name.value for argument in node.arguments or ()}


def fits(variable: VariableDefinitionNode, taken: str) -> bool:
    """Tell whether a variable may stand for an argument: the same type, or one that is never
    null.
    """
    type_ = variable.type
    text = print_ast(type_)
    return text == taken or (isinstance(type_, NonNullTypeNode) and print_ast(type_.type) == taken)


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
