"""Which database an address means, and how to say so without its password."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from specscope_server.store.port import StoreError

SQLITE = "sqlite"
POSTGRESQL = "postgresql"
_FORMS = "sqlite:///specscope.db (a file) or postgresql://user@host:5432/name (a PostgreSQL database)"


def parse(address: str) -> URL:
    """Return the URL of a database, ``sqlite`` or ``postgresql`` with the driver named.

    A path without a scheme is a SQLite file.

    Raises:
        StoreError: the address is none of the known forms.
    """
    if "://" not in address:
        if not address.strip():
            raise StoreError(f"no database is named; give {_FORMS}")
        return URL.create(SQLITE, database=address)
    try:
        url = make_url(address)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        # The address itself may hold a password, and so may the parser's message.
        raise StoreError(f"the database address cannot be read as a URL; give {_FORMS}") from error
    if backend == SQLITE:
        return _sqlite(url)
    if backend in (POSTGRESQL, "postgres"):
        if url.drivername not in (POSTGRESQL, "postgres", "postgresql+psycopg"):
            raise StoreError(f"the driver in {url.drivername}:// is not supported; write postgresql://")
        if not url.database:
            raise StoreError(f"{where(url)} names no database; add one: postgresql://user@host:5432/name")
        return url.set(drivername="postgresql+psycopg")
    raise StoreError(f"a {backend} database is not supported; give {_FORMS}")


def _sqlite(url: URL) -> URL:
    if url.host or url.username or url.query:
        raise StoreError(
            "a SQLite address is sqlite:///relative/file.db or sqlite:////absolute/file.db, without options"
        )
    if not url.database or url.database == ":memory:":
        raise StoreError("SpecScope needs a SQLite file, not one in memory; give sqlite:///specscope.db")
    return URL.create(SQLITE, database=url.database)


def where(url: URL) -> str:
    """Return the place in words, without user, password or options."""
    if url.get_backend_name() == SQLITE:
        return f"SQLite file {Path(url.database or '').absolute()}"
    host = url.host or "local socket"
    port = f":{url.port}" if url.port else ""
    return f"PostgreSQL database {url.database} at {host}{port}"
