"""How large the database is: in all, and table by table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, func, select, text
from sqlalchemy.exc import OperationalError

from specscope_server.store import schema

_EXACT: Final = 100_000
"""Rows up to which PostgreSQL counts instead of telling what it last estimated."""
_BUCKET: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table. Times in ns since 1970, ``None`` where it has none or is empty."""

    name: str
    rows: int
    """About, on PostgreSQL, from 100,000 on."""
    bytes: int | None
    """With indexes; ``None`` where SQLite was built without its ``dbstat``."""
    oldest_ns: int | None = None
    newest_ns: int | None = None


def used_bytes(connection: Connection) -> int:
    """Return the bytes in use: what SQLite can use again for new rows is not counted."""
    if connection.dialect.name == "sqlite":
        pages, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size
    return connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()


def table_sizes(connection: Connection) -> Iterator[TableSize]:
    """Yield each table's size, in order of their names. Reads a whole SQLite file."""
    sizes = _sqlite_sizes(connection) if connection.dialect.name == "sqlite" else None
    for table in sorted(schema.metadata.tables.values(), key=lambda table: table.name):
        if connection.dialect.name == "sqlite":
            rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
            size = None if sizes is None else sizes.get(table.name, 0)
        else:
            rows, size = _postgres_size(connection, table)
        yield TableSize(table.name, rows, size, *_times(connection, table))


def _sqlite_sizes(connection: Connection) -> dict[str, int] | None:
    try:
        found = connection.exec_driver_sql(
            "SELECT tbl_name, SUM(pgsize) FROM dbstat JOIN sqlite_schema USING (name) "
            "WHERE aggregate = TRUE GROUP BY tbl_name"
        ).all()
    except OperationalError:  # no such table: dbstat
        return None
    return {row[0]: row[1] for row in found}


def _postgres_size(connection: Connection, table: Table) -> tuple[int, int]:
    size, about, unknown = connection.execute(
        text(
            "SELECT SUM(pg_total_relation_size(relid)), SUM(GREATEST(reltuples, 0)), "
            "BOOL_OR(reltuples < 0) FROM pg_partition_tree(CAST(:name AS regclass)) "
            "JOIN pg_class ON pg_class.oid = relid WHERE isleaf"
        ),
        {"name": table.name},
    ).one()
    if size is None:  # an ordinary table is no tree
        size, about, unknown = connection.execute(
            text(
                "SELECT pg_total_relation_size(oid), reltuples, reltuples < 0 "
                "FROM pg_class WHERE oid = CAST(:name AS regclass)"
            ),
            {"name": table.name},
        ).one()
    if unknown or about < _EXACT:
        return connection.execute(select(func.count()).select_from(table)).scalar_one(), int(size)
    return round(about), int(size)


def _times(connection: Connection, table: Table) -> tuple[int | None, int | None]:
    """Return the oldest and newest time of a table, from an index."""
    columns = table.c
    if table.name in _BY_ENGINE:
        name, factor = _BY_ENGINE[table.name]
        time: ColumnElement[Any] = columns[name]
        of_engine = columns["engine_uid"] == schema.engine.c.engine_uid
        if "dimension" in columns:
            of_engine &= columns["dimension"] == "all"
        ends = [
            select(time).where(of_engine).order_by(order).limit(1).scalar_subquery()
            for order in (time.asc(), time.desc())
        ]
        each = select(ends[0].label("oldest"), ends[1].label("newest")).select_from(schema.engine).subquery()
        oldest, newest = connection.execute(select(func.min(each.c.oldest), func.max(each.c.newest))).one()
    elif table.name in _WHOLE:
        name, factor = _WHOLE[table.name], 1
        oldest, newest = connection.execute(select(func.min(columns[name]), func.max(columns[name]))).one()
    else:
        return None, None
    return (None if oldest is None else oldest * factor), (None if newest is None else newest * factor)


_BY_ENGINE: Final = {
    "step_chunk": ("end_ns", 1),
    "request": ("arrival_ns", 1),
    "rollup_10s": ("bucket", _BUCKET),
    "rollup_60s": ("bucket", _BUCKET),
    "hidden_stat": ("bucket", _BUCKET),
    "engine_event": ("event_ns", 1),
}
"""Tables whose key or index starts with the engine and a time, with that and the ns of one unit of it."""
_WHOLE: Final = {
    "span": "received_ns",
    "log_record": "received_ns",
    "finding": "opened_ns",
    "alert_event": "since_ns",
    "delivery": "created_ns",
    "audit": "at_ns",
    "engine": "last_received_ns",
}
"""Tables that are small enough to look at whole."""
