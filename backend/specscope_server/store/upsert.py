"""Upserts, the same for SQLite and PostgreSQL, which have each a construct of their own for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


def insert(dialect: str, table: Table) -> Insert:
    """Return an INSERT of a dialect (its name), which knows ON CONFLICT."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


@dataclass(frozen=True)
class Upsert:
    """An INSERT that merges into a row whose key is there already, column by column.

    Columns without a merge are kept; no merge at all keeps the row. ``also`` gives columns whose merge
    depends on other columns, ``where`` says when a row may be merged.
    """

    table: Table
    merges: Mapping[str, Merge] = field(default_factory=dict[str, Merge])
    also: Callable[[Insert], Mapping[str, ColumnElement[Any]]] | None = None
    where: Callable[[Insert], ColumnElement[bool]] | None = None
    _statements: dict[str, Insert] = field(default_factory=dict[str, Insert], init=False, repr=False)

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows in key order, so that two servers that write the same keys wait for each other
        instead of blocking each other for good.
        """
        if not rows:
            return
        names = [column.name for column in self.table.primary_key.columns]
        ordered = sorted((dict(row) for row in rows), key=lambda row: tuple(row[name] for name in names))
        connection.execute(self._statement(connection.dialect.name), ordered)

    def _statement(self, dialect: str) -> Insert:
        """Return the statement, built once a dialect: building takes longer than running it."""
        if dialect not in self._statements:
            self._statements[dialect] = self._built(insert(dialect, self.table))
        return self._statements[dialect]

    def _built(self, statement: Insert) -> Insert:
        told = statement.excluded
        merged = {name: how(self.table.c[name], told[name]) for name, how in self.merges.items()}
        if self.also is not None:
            merged |= self.also(statement)
        if not merged:
            return statement.on_conflict_do_nothing()
        return statement.on_conflict_do_update(
            index_elements=list(self.table.primary_key.columns),
            set_=merged,
            where=None if self.where is None else self.where(statement),
        )
