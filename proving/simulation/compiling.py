"""A query is compiled once for each shape: compiling takes longer than running it, and the same few
hundred shapes come again and again.

Two queries have the same shape when they differ only in the values that they compare with. The
database still gets Django's own SQL: now and then a query is compiled again, and compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final
from unittest import mock

from django.core.exceptions import EmptyResultSet
from django.db.models.expressions import Col, Value
from django.db.models.lookups import IsNull, Lookup
from django.db.models.sql.compiler import SQLCompiler
from django.db.models.sql.query import Query
from django.db.models.sql.where import WhereNode

__all__ = ["compiled_once"]

_COMPARED_EVERY: Final = 1000
_LEARNT: Final = ("select", "klass_info", "annotation_col_map", "col_count", "has_extra_select")
"""Knowledge of a compiler besides the SQL; the code that reads the rows uses it."""
_told: Final = attrgetter(
    *("model", "default_cols", "values_select", "distinct", "low_mark", "high_mark", "max_depth"),
    *("order_by", "standard_ordering", "default_ordering"),
    *(
        "select_for_update",
        "select_for_update_nowait",
        "select_for_update_skip_locked",
        "select_for_update_of",
        "select_for_no_key_update",
    ),
)
_not_told: Final = attrgetter(
    "extra",
    "extra_tables",
    "extra_order_by",
    "group_by",
    "combinator",
    "distinct_fields",
    "explain_info",
    "subquery",
)


class _Odd(Exception):
    """A query has something about it that its shape does not tell."""


@dataclass
class _Compiled:
    """A compiled query. The query is kept, since the shape names parts of it by their addresses."""

    sql: str
    query: Query
    learnt: dict[str, Any]
    converters: Any = None
    uses: int = 0


@contextmanager
def compiled_once(compared_every: int = _COMPARED_EVERY) -> Iterator[None]:
    """Remember compiled queries, and compile every nth query again, to compare."""
    compile_it, find_converters = SQLCompiler.as_sql, SQLCompiler.get_converters
    known: dict[Hashable, _Compiled] = {}

    def as_sql(
        compiler: Any,
        with_limits: bool = True,
        with_col_aliases: bool = False,
    ) -> tuple[str, tuple[Any, ...]]:  # Django's own
        values: list[Any] = []
        compiler.compiled = None
        try:
            shape = _shape_of(compiler, values) if with_limits and not with_col_aliases else None
        except (_Odd, EmptyResultSet):
            shape = None
        if shape is None:
            return _compiled(compile_it(compiler, with_limits, with_col_aliases))
        found = known.get(shape)
        if found is None or found.uses % compared_every == 0:
            compiled = _compiled(compile_it(compiler))
            assert compiled == (found.sql if found else compiled[0], tuple(values)), (
                f"two queries of one shape: {compiled}, {found}, {values}"
            )
            if found is None:
                learnt = {name: getattr(compiler, name) for name in _LEARNT}
                found = known[shape] = _Compiled(compiled[0], compiler.query, learnt)
        found.uses += 1
        vars(compiler).update(found.learnt)
        compiler.compiled = found
        return found.sql, tuple(values)

    def get_converters(compiler: Any, expressions: Any) -> Any:
        found = getattr(compiler, "compiled", None)
        if found is None:
            return find_converters(compiler, expressions)
        if found.converters is None:
            found.converters = find_converters(compiler, expressions)
        return found.converters

    with (
        mock.patch.object(SQLCompiler, "as_sql", as_sql),
        mock.patch.object(SQLCompiler, "get_converters", get_converters),
    ):
        yield


def _compiled(result: Any) -> tuple[str, tuple[Any, ...]]:
    sql, values = result
    return sql, tuple(values)


def _shape_of(compiler: Any, values: list[Any]) -> Hashable:
    """Return the parts that decide a query's SQL, and put the values that go with it into a
    list.
    """
    query = compiler.query
    if (
        type(query) is not Query
        or any(_not_told(query))
        or not {str}.issuperset(map(type, query.order_by))
    ):
        raise _Odd
    only, is_deferred = query.deferred_loading
    return (
        compiler.using,
        compiler.elide_empty,
        query.select_for_update
        and compiler.connection.in_atomic_block,  # outside of one Django refuses
        _told(query),
        tuple([_column(column) for column in query.select]),
        (frozenset(only), is_deferred),
        _nested(query.select_related),
        tuple(
            [
                (name, _constant(annotation, values))
                for name, annotation in query.annotation_select.items()
            ],
        ),
        tuple(
            [
                _table(alias, table, query.alias_refcount[alias])
                for alias, table in query.alias_map.items()
            ],
        ),
        _condition(query.where, compiler, values),
    )


def _nested(names: Any) -> Hashable:
    return (
        tuple((name, _nested(below)) for name, below in names.items())
        if isinstance(names, dict)
        else names
    )


def _column(column: Any) -> Hashable:
    if type(column) is not Col:
        raise _Odd
    return column.alias, id(column.target), id(column.output_field)


def _constant(annotation: Any, values: list[Any]) -> Hashable:
    """Return the shape of a selection beside the columns: the 1 of `exists()`."""
    if type(annotation) is not Value or type(annotation.value) is not int:
        raise _Odd
    values.append(annotation.value)
    return "constant"


def _table(alias: str, table: Any, uses: int) -> Hashable:
    if getattr(table, "filtered_relation", None):
        raise _Odd
    return (
        alias,
        table.table_name,
        table.parent_alias,
        table.join_type,
        id(getattr(table, "join_field", None)),
        uses > 0,
    )


def _condition(node: Any, compiler: Any, values: list[Any]) -> Hashable:
    """Return the shape of a condition: all but the values, which Django itself prepares for the
    database.
    """
    parts: list[Hashable] = [node.connector, node.negated]
    for child in node.children:
        if type(child) is WhereNode:
            parts.append(_condition(child, compiler, values))
        elif isinstance(child, IsNull):
            parts.append((IsNull, _column(child.lhs), child.rhs))
        elif (
            isinstance(child, Lookup)
            and not hasattr(child.rhs, "as_sql")
            and not child.bilateral_transforms
            and not isinstance(child.rhs, bool)
        ):
            sql, prepared = child.process_rhs(compiler, compiler.connection)
            values.extend(prepared)
            parts.append((type(child), _column(child.lhs), sql))
        else:
            raise _Odd
    return tuple(parts)
