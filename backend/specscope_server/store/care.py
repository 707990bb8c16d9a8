"""What ``specscope db`` does besides the schema: numbers, a recount, disk space given back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from specscope_server.store import recount
from specscope_server.store.database import Database
from specscope_server.store.databases import database
from specscope_server.store.migrate import check, schema_of
from specscope_server.store.sizes import TableSize, table_sizes, used_bytes


@dataclass(frozen=True, slots=True)
class Stats:
    """A database in numbers: bytes in use, and its tables by name."""

    place: str
    schema: str
    bytes: int
    tables: tuple[TableSize, ...]


@contextmanager
def _checked(url: str) -> Generator[Database]:
    """Open a database that is there, sound and of this code's schema."""
    check(url)
    opened = database(url)
    try:
        yield opened
    finally:
        opened.close()


def stats_of(url: str) -> Stats:
    """Return what is stored. Reads all of a SQLite file.

    Raises:
        StoreError: the database cannot be read, or its schema is not this code's.
    """
    with _checked(url) as opened, opened.read() as connection:
        return Stats(
            opened.place,
            schema_of(connection),
            used_bytes(connection),
            tuple(table_sizes(connection)),
        )


def recounted(url: str) -> recount.Recount:
    """Hold the rollups of a database against its chunks.

    Raises:
        StoreError: the database cannot be read, or its schema is not this code's.
    """
    with _checked(url) as opened, opened.read() as connection:
        return recount.recount(connection)


def vacuumed(url: str) -> str:
    """Give back what deleted rows took, and say in a sentence how much that was.

    Raises:
        StoreError: it cannot be done now, e.g. as the disk is full or the file in use.
    """
    with _checked(url) as opened:
        before = _size(opened)
        opened.vacuum()
        return f"{opened.place}: {before:,} bytes before, {_size(opened):,} after"


def _size(opened: Database) -> int:
    with opened.read() as connection:
        if connection.dialect.name == "sqlite":
            pages, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("page_count", "page_size")
            )
            return pages * size
        return used_bytes(connection)
