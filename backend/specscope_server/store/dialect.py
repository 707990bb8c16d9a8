"""Where SQLite and PostgreSQL differ in what we say to them: upserts and the larger of two values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

Insert = sqlite.Insert | postgresql.Insert
Merge = Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[Any]]
"""(stored value, value told now) to the value to keep."""


class greatest(FunctionElement[Any]):
    """The larger of two values; one that is NULL does not count."""

    name = "greatest"
    inherit_cache = True


class least(FunctionElement[Any]):
    """The smaller of two values; one that is NULL does not count."""

    name = "least"
    inherit_cache = True


@compiles(greatest, "sqlite")
def _greatest(element: greatest, compiler: SQLCompiler, **kw: Any) -> str:
    return _without_null("max", element, compiler, **kw)


@compiles(least, "sqlite")
def _least(element: least, compiler: SQLCompiler, **kw: Any) -> str:
    return _without_null("min", element, compiler, **kw)


def _without_null(name: str, element: FunctionElement[Any], compiler: SQLCompiler, **kw: Any) -> str:
    """Render SQLite's two-argument ``max`` or ``min``, which is NULL as soon as one argument is."""
    one, other = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{name}(coalesce({one}, {other}), coalesce({other}, {one}))"


def insert(connection: Connection, table: Table) -> Insert:
    """Return an INSERT of this connection's dialect, which knows ON CONFLICT."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def add_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose key is not there yet, in key order."""
    if rows:
        connection.execute(insert(connection, table).on_conflict_do_nothing(), _in_order(table, rows))


def merge(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    merges: Mapping[str, Merge],
    *,
    also: Callable[[Insert], Mapping[str, ColumnElement[Any]]] | None = None,
    where: Callable[[Insert], ColumnElement[bool]] | None = None,
) -> None:
    """Insert rows; where the key is there already, merge column by column. Columns not named are kept.

    Rows go in key order, so that two servers that write the same keys wait for each other instead of
    blocking each other for good. ``also`` gives columns whose merge depends on other columns, ``where``
    says when a row may be merged at all.
    """
    if not rows:
        return
    statement = insert(connection, table)
    told = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: how(table.c[name], told[name]) for name, how in merges.items()}
            | ({} if also is None else dict(also(statement))),
            where=None if where is None else where(statement),
        ),
        _in_order(table, rows),
    )


def _in_order(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = [column.name for column in table.primary_key.columns]
    return sorted((dict(row) for row in rows), key=lambda row: tuple(row[name] for name in names))
