"""The recorded schema of each supported Saleor, and the names in our requests that it lacks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

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

VERSIONS: Final = recorded.read("operations.json")["versions"]


def bare(type_: str) -> str:
    return type_.strip("[]!")


@functools.cache
def _faults(document: str, version: str) -> list[str]:
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


def faults(document: str, version: str) -> list[str]:
    """Return the names in a document that a version does not have."""
    return list(_faults(document, version))


def faults_of_variables(document: str, variables: Mapping[str, Any], version: str) -> list[str]:
    """Return the faults in the values of a request, for each of its variables."""
    (operation,) = parse(document).definitions
    assert isinstance(operation, OperationDefinitionNode)
    types = {
        one.variable.name.value: print_ast(one.type) for one in operation.variable_definitions or ()
    }
    found = [f"{name} is not declared" for name in variables if name not in types]
    for name, type_ in types.items():
        found += _misfits(name, variables.get(name), type_, VERSIONS[version])
    return found


def _misfits(name: str, value: Any, type_: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if value is None:
        if type_.endswith("!"):
            yield f"{name} is missing"
        return
    of = schema.get(bare(type_))
    for one in value if isinstance(value, list) else [value]:
        if isinstance(of, list) and one not in of:
            yield f"{name} is never {one}"
        elif isinstance(of, Mapping):
            yield from (f"{name} has no {key}" for key in one if key not in of)
            for key, inner in of.items():
                yield from _misfits(f"{name}.{key}", one.get(key), inner, schema)
