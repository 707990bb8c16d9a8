"""Upserts: rows merged into those whose key is there already, the same way in SQLite and in PostgreSQL.

Statements are SQLAlchemy's, compiled once; rows go to the driver as tuples. SQLAlchemy's own handling of
parameters takes several times as long as the database does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Table, and_, case, not_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from specscope_server.store import copying
from specscope_server.store.merges import Merge, Together
from specscope_server.store.values import JsonText, packed_json

Insert = sqlite.Insert | postgresql.Insert
Values = tuple[Any, ...]
Rows = Sequence[Mapping[str, Any]] | Sequence[Values]

_DIALECTS = {
    "sqlite": sqlite.dialect(paramstyle="qmark"),
    "postgresql": psycopg_dialect.dialect(paramstyle="format"),
}
"""As the drivers want their parameters: by position."""


def insert(dialect: str, table: Table) -> Insert:
    """Return an INSERT of a dialect (its name), which knows ON CONFLICT."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


@dataclass(frozen=True)
class Upsert:
    """An INSERT that merges into a row whose key is there already, column by column.

    Columns without a merge are kept; no merge at all keeps the row. ``alone`` says that ``together`` decides
    for the whole row, which is not written where it is not replaced. Rows are mappings, all of the same
    columns, or tuples in the order of ``columns`` where that is given.
    """

    table: Table
    merges: Mapping[str, Merge] = field(default_factory=dict[str, Merge])
    together: Together | None = None
    columns: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()
    """Merged columns that indexes hold. SQLite writes an index anew for each row that names one of its
    columns in SET, whatever the value, so rows that change none of these are merged without naming them."""
    changes: Callable[[Values], bool] | None = None
    """Says of a row whether it likely changes one of ``indexed``; it need not be right."""
    _plans: dict[tuple[str, ...], Plan] = field(
        default_factory=dict[tuple[str, ...], "Plan"], init=False, repr=False
    )

    def run(self, connection: Connection, rows: Rows) -> None:
        """Write rows: each key once, whatever the number of its rows, and in key order, so that two servers
        that write the same keys wait for each other instead of blocking each other for good.
        """
        if not rows:
            return
        names = self.columns or tuple(cast("Mapping[str, Any]", rows[0]))
        dialect = connection.dialect.name
        known = (dialect, *names)
        if known not in self._plans:  # making a plan takes longer than carrying it out
            self._plans[known] = Plan(self, dialect, names)
        self._plans[known].run(connection, rows)


def _getter(keys: Sequence[Any]) -> Callable[[Any], Values]:
    """Return what reads several items at once, a tuple also of one."""
    if len(keys) == 1:
        (only,) = keys
        return lambda row: (row[only],)
    return cast("Callable[[Any], Values]", itemgetter(*keys))


class Plan:
    """How rows of an upsert's columns are merged and written with one dialect."""

    def __init__(self, upsert: Upsert, dialect: str, names: tuple[str, ...]) -> None:
        """Compile the statements."""
        self._upsert, self._dialect = upsert, dialect
        table = upsert.table
        self._names = tuple(column.name for column in table.c if column.name in names)
        if upsert.columns not in ((), self._names):
            raise ValueError(f"columns of {table.name} are not in its order: {upsert.columns}")
        # Without one for rows that are tuples in this order.
        self._of_mapping = None if upsert.columns else _getter(self._names)
        at = self._names.index
        self._key = _getter([at(column.name) for column in table.primary_key.columns])
        self._packed = [at(name) for name in self._names if isinstance(table.c[name].type, JsonText)]
        self._merges = [(at(name), merge.python) for name, merge in upsert.merges.items() if name in names]
        together = upsert.together
        self._by = [at(name) for name in together.by] if together else []
        self._carried = [at(name) for name in together.columns] if together else []
        self._full = self._compiled(self._values(), upsert.merges)
        self._light = self._rest = ""
        if dialect == "sqlite" and upsert.indexed:
            light = {name: merge for name, merge in upsert.merges.items() if name not in upsert.indexed}
            self._light = self._compiled(self._values(), light, same=True)
            self._rest = self._compiled(self._values(), upsert.merges, same=False)
        self._stage = None
        if dialect == "postgresql":
            self._stage = copying.Stage(table, self._names)
            staged = insert(dialect, table).from_select(list(self._names), self._stage.selected())
            self._from_stage = self._compiled(staged, upsert.merges)

    # --- in Python ----------------------------------------------------------------------------------

    def _merged(self, rows: Rows) -> list[Values]:
        """Return one row a key, in order of keys."""
        of_mapping = self._of_mapping
        tuples = cast("Sequence[Values]", rows) if of_mapping is None else list(map(of_mapping, rows))
        found: dict[Any, Values] = {}
        for key, row in zip(map(self._key, tuples), tuples, strict=True):
            before = found.setdefault(key, row)
            if before is not row:
                found[key] = self._merge(before, row)
        merged = [found[key] for key in sorted(found)]
        return [self._pack(row) for row in merged] if self._packed else merged

    def _merge(self, stored: Values, told: Values) -> Values:
        merged = list(stored)
        for at, merge in self._merges:
            merged[at] = merge(stored[at], told[at])
        together = self._upsert.together
        if together is not None and together.replaces(
            [stored[at] for at in self._by], [told[at] for at in self._by]
        ):
            for at in self._carried:
                merged[at] = told[at]
        return tuple(merged)

    def _pack(self, row: Values) -> Values:
        packed = list(row)
        for at in self._packed:
            packed[at] = packed_json(packed[at])
        return tuple(packed)

    # --- in SQL -------------------------------------------------------------------------------------

    def _values(self) -> Insert:
        return insert(self._dialect, self._upsert.table)

    def _compiled(self, statement: Insert, merges: Mapping[str, Merge], *, same: bool | None = None) -> str:
        """Return the text of an upsert; ``same`` restricts it to rows that keep, or change, ``indexed``."""
        upsert, table, told = self._upsert, self._upsert.table, statement.excluded
        set_: dict[str, ColumnElement[Any]] = {
            name: merge.sql(table.c[name], told[name])
            for name, merge in merges.items()
            if name in self._names
        }
        where: ColumnElement[bool] | None = None
        if upsert.together is not None:
            replaces = upsert.together.replaces_sql(table.c.__getitem__, told.__getitem__)
            if merges or same is not None:
                carried = [
                    name for name in upsert.together.columns if same is not True or name not in upsert.indexed
                ]
                set_ |= {name: case((replaces, told[name]), else_=table.c[name]) for name in carried}
            else:
                set_, where = {name: told[name] for name in upsert.together.columns}, replaces
        if same is not None:
            where = and_(*(self._kept(name, told) for name in upsert.indexed))
            where = where if same else not_(where)
        if set_:
            statement = statement.on_conflict_do_update(
                index_elements=list(table.primary_key.columns), set_=set_, where=where
            )
        else:
            statement = statement.on_conflict_do_nothing()
        compiled = statement.compile(dialect=_DIALECTS[self._dialect], column_keys=list(self._names))
        return str(compiled)

    def _kept(self, name: str, told: Any) -> ColumnElement[bool]:
        """Return the condition that a row keeps a column as it is stored."""
        upsert, stored = self._upsert, self._upsert.table.c[name]
        if upsert.together is not None and name in upsert.together.columns:
            replaces = upsert.together.replaces_sql(upsert.table.c.__getitem__, told.__getitem__)
            return case((replaces, told[name]), else_=stored).is_not_distinct_from(stored)
        return upsert.merges[name].sql(stored, told[name]).is_not_distinct_from(stored)

    def run(self, connection: Connection, rows: Rows) -> None:
        """Merge rows with one another and with what is stored."""
        merged = self._merged(rows)
        if self._stage is not None and len(merged) >= copying.FROM:
            self._stage.fill(connection, merged)
            connection.exec_driver_sql(self._from_stage)
        elif self._light:
            self._run_lightly(connection, merged)
        else:
            connection.exec_driver_sql(self._full, merged)

    def _run_lightly(self, connection: Connection, rows: list[Values]) -> None:
        changes = self._upsert.changes
        light = rows if changes is None else [row for row in rows if not changes(row)]
        if light and connection.exec_driver_sql(self._light, light).rowcount < len(light):
            connection.exec_driver_sql(self._rest, light)
        if changes is not None and (full := [row for row in rows if changes(row)]):
            connection.exec_driver_sql(self._full, full)


class Once:
    """Keys that are noted the first time they come."""

    def __init__(self, table: Table) -> None:
        """Note keys in a table; rows are tuples of all its columns."""
        names = [column.name for column in table.c]
        self._statements = {
            name: str(
                insert(name, table).on_conflict_do_nothing().compile(dialect=dialect, column_keys=names)
            )
            for name, dialect in _DIALECTS.items()
        }

    def note(self, connection: Connection, row: Values) -> bool:
        """Note a row and say whether its key is new."""
        statement = self._statements[connection.dialect.name]
        return connection.exec_driver_sql(statement, row).rowcount == 1
