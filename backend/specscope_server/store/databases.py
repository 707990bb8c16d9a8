"""The registry of databases: adding one is adding its module and a line here."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import URL

from specscope_server.store.database import Database
from specscope_server.store.postgres import PostgresDatabase
from specscope_server.store.sqlite import SqliteDatabase
from specscope_server.store.where import POSTGRESQL, SQLITE, parse

DATABASES: dict[str, Callable[[URL, bool], Database]] = {
    SQLITE: SqliteDatabase,
    # How durable a commit is there is set in PostgreSQL itself.
    POSTGRESQL: lambda url, _durable: PostgresDatabase(url),
}


def database(address: str, *, durable: bool = True) -> Database:
    """Return the database an address means, not yet connected.

    Not ``durable``: SQLite commits without waiting for the disk, see ``docs/reference/store.md``.

    Raises:
        StoreError: the address or its place cannot serve.
    """
    url = parse(address)
    return DATABASES[url.get_backend_name()](url, durable)
