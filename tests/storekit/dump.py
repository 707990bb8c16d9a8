"""All rows of all tables, to compare what two ways of writing left behind.

Real numbers are rounded to ten digits: added up in another order they may differ in their last bits.
"""

from __future__ import annotations

from typing import Any

from specscope_server.store import schema
from specscope_server.store.databases import database
from sqlalchemy import Connection, Executable, delete, select

Dump = dict[str, list[tuple[Any, ...]]]


def dump(url: str) -> Dump:
    """Return every table's rows, sorted by key."""
    opened = database(url)
    try:
        with opened.read() as connection:
            return {
                table.name: [
                    tuple(map(_rounded, row))
                    for row in connection.execute(select(table).order_by(*table.primary_key))
                ]
                for table in schema.metadata.sorted_tables
            }
    finally:
        opened.close()


def _rounded(value: Any) -> Any:
    return float(f"{value:.10g}") if isinstance(value, float) else value


def empty(url: str) -> None:
    """Delete everything: every row hangs on a workspace, but chunks, which have no foreign key."""
    for table in (schema.step_chunk, schema.workspace):
        execute(url, delete(table))


def execute(url: str, statement: Executable) -> None:
    """Run a statement that no part of the store would, e.g. damage."""
    opened = database(url)

    def job(connection: Connection) -> None:
        connection.execute(statement)

    try:
        opened.write(job)
    finally:
        opened.close()
