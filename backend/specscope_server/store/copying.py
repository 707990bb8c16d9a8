"""COPY into PostgreSQL: many rows in the driver's binary form, at a tenth of what their INSERTs take.

COPY itself knows no ON CONFLICT, so rows go to a temporary table first, which belongs to the connection,
keeps nothing over a commit and is written to no log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import ColumnClause, Connection, Engine, Select, Table, column, event, select
from sqlalchemy import table as named
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    import psycopg

FROM: Final = 8
"""Rows from which on the two more round trips of COPY are worth it."""
_MADE: Final = "specscope stages"
_FILLED: Final = "specscope stages in use"
_DIALECT: Final = psycopg_dialect.dialect()
_TYPES: Final = {
    "BIGINT": "int8",
    "INTEGER": "int4",
    "TEXT": "text",
    "BYTEA": "bytea",
    "DOUBLE PRECISION": "float8",
}


def follow(engine: Engine) -> None:
    """Follow the temporary tables of an engine's connections: a commit empties them, a rollback that of the
    transaction that made them takes them back.
    """

    @event.listens_for(engine, "commit")
    def emptied(connection: Connection) -> None:
        connection.info.pop(_FILLED, None)

    @event.listens_for(engine, "rollback")
    def gone(connection: Connection) -> None:
        connection.info.pop(_FILLED, None)
        connection.info.pop(_MADE, None)

    _ = emptied, gone


class Stage:
    """A temporary table for some columns of a table."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        """Name it; each connection makes its own when it first needs it."""
        self._name, self._of, self._names = f"stage_{table.name}", table, tuple(names)
        kinds = [table.c[name].type.compile(_DIALECT).partition(" COLLATE")[0] for name in names]
        self._types = [_TYPES[kind] for kind in kinds]
        self._copy = f"COPY {self._name} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"

    def selected(self) -> Select[Any]:
        """Return the query of all its rows, in order of the table's key."""
        columns: list[ColumnClause[Any]] = [column(name) for name in self._names]
        staged = named(self._name, *columns)
        keys = [staged.c[one.name] for one in self._of.primary_key.columns]
        return select(*staged.c).order_by(*keys)

    def fill(self, connection: Connection, rows: Iterable[Sequence[Any]]) -> None:
        """Put rows into it.

        Raises:
            DBAPIError: as SQLAlchemy's own statements.
        """
        made: set[str] = connection.info.setdefault(_MADE, set())
        filled: set[str] = connection.info.setdefault(_FILLED, set())
        if self._name in filled:  # by this transaction, whose rows are in the table by now
            connection.exec_driver_sql(f"TRUNCATE {self._name}")
        filled.add(self._name)
        if self._name not in made:
            connection.exec_driver_sql(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {self._name} "
                f"(LIKE {self._of.name} INCLUDING STORAGE) ON COMMIT DELETE ROWS"
            )
            made.add(self._name)
        driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        with (
            _as_sqlalchemy(connection, self._copy),
            driver.cursor() as cursor,
            cursor.copy(self._copy.encode()) as copy,
        ):
            copy.set_types(self._types)
            for row in rows:
                copy.write_row(row)


@contextmanager
def _as_sqlalchemy(connection: Connection, statement: str) -> Generator[None, None, None]:
    """Turn the driver's errors into SQLAlchemy's, which the store tells apart."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, dialect=connection.dialect
        ) from error
