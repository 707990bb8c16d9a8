"""Upserts, the same for SQLite and PostgreSQL, which have each a construct of their own for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, case, or_
from sqlalchemy.dialects import postgresql, sqlite

Insert = sqlite.Insert | postgresql.Insert
Merge = Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[Any]]
"""(stored value, value told now) to the value to keep."""


def larger(stored: ColumnElement[Any], told: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the larger of two values; one that is NULL does not count.

    Spelt out, because SQLite's ``max`` is NULL as soon as one argument is and PostgreSQL's ``greatest`` not.
    """
    return case((or_(stored.is_(None), told > stored), told), else_=stored)


def smaller(stored: ColumnElement[Any], told: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the smaller of two values; one that is NULL does not count."""
    return case((or_(stored.is_(None), told < stored), told), else_=stored)


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
