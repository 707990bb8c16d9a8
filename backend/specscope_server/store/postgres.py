"""PostgreSQL through psycopg 3: a pool, and repetition of transactions that lost a race."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from specscope_server.store import copying
from specscope_server.store.database import Job
from specscope_server.store.errors import may_repeat, translated
from specscope_server.store.leases import AdvisoryLease
from specscope_server.store.port import Capabilities, Lease, StoreError
from specscope_server.store.where import where

MIGRATION_LOCK = 0x5370_6563_5363_6F70
"""Advisory lock ("SpecScop") that one server holds while it changes the schema."""
_TRIES = 4


def _engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        pool_size=8,
        max_overflow=8,
        pool_timeout=10,
        # One round trip finds connections that a restarted server has dropped, before a query fails on them.
        pool_pre_ping=True,
        # In a database made under LANG=C (SQL_ASCII) psycopg would answer text as bytes.
        connect_args={"connect_timeout": 5, "application_name": "specscope", "client_encoding": "utf8"},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        # A lock or a query that takes this long is a fault elsewhere: say so instead of hanging.
        cursor.execute("SET lock_timeout = '10s'")
        cursor.execute("SET statement_timeout = '60s'")
        cursor.close()
        connection.commit()

    _ = prepare
    copying.follow(engine)
    return engine


class PostgresDatabase:
    """A PostgreSQL database; several servers may write to it at once."""

    def __init__(self, url: URL) -> None:
        """Name the database; it is reached at the first use.

        Raises:
            StoreError: the driver is not installed.
        """
        if importlib.util.find_spec("psycopg") is None:
            raise StoreError("PostgreSQL needs a driver; install it with: pip install 'specscope[postgres]'")
        self.place = where(url)
        self.capabilities = Capabilities(
            several_servers=True, durable_commit=True, bulk_copy=True, partitions=True, size_known=True
        )
        self._url = url
        self._engine = _engine(url)
        self._reading = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    @contextmanager
    def read(self) -> Generator[Connection, None, None]:
        """Open a read-only transaction; REPEATABLE READ gives all its queries the same view.

        Raises:
            StoreError: the database cannot be read.
        """
        with translated(self.place), self._reading.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def migrating(self) -> Generator[Connection, None, None]:
        """Open the transaction that changes the schema, alone among all servers.

        Raises:
            StoreError: the database cannot be written, or another server has been migrating for a minute.
        """
        with translated(self.place), self._engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '60s'"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
            yield connection

    def write(self, job: Job) -> None:
        """Run a job and return when it is on disk; what the job raises comes out, with nothing stored.

        Raises:
            StoreError: nothing of this job was stored.
        """
        with translated(self.place):
            for attempt in range(_TRIES):
                try:
                    with self._engine.begin() as connection:
                        job(connection)
                except SQLAlchemyError as error:
                    if attempt + 1 < _TRIES and isinstance(error, DBAPIError) and may_repeat(error):
                        continue
                    raise
                return

    def lease(self, name: str) -> Lease:
        """Return what one server at a time of all that use the database holds, by name."""
        return AdvisoryLease(self._url, name, self.place)

    def vacuum(self) -> None:
        """Let new rows have what deleted ones took, and count the rows anew; others go on meanwhile.

        Raises:
            StoreError: it cannot be done now.
        """
        engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with translated(self.place), engine.connect() as connection:
            connection.execute(text("SET statement_timeout = 0"))
            connection.detach()  # closed at the end: its setting must not come back to the pool
            connection.execute(text("VACUUM (ANALYZE)"))

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._engine.dispose()
