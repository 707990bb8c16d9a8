"""SQLite: one file, one writer with group commit, readers beside it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from specscope_server.store.database import Job, Joinable
from specscope_server.store.errors import of_sqlite, translated
from specscope_server.store.leases import FileLease
from specscope_server.store.port import Capabilities, Lease, Refused, StoreError
from specscope_server.store.where import where

BUSY_MS = 5000
_GROUP = 64
"""Jobs in one commit at most: bounds how long the first of them waits."""


def _writer_pragmas(connection: sqlite3.Connection, *, durable: bool) -> None:
    for pragma in (
        # Wait for another process (a backup, the sqlite3 shell) instead of failing at once.
        f"busy_timeout = {BUSY_MS}",
        # An acknowledged record survives power loss: FULL syncs the log at each commit, NORMAL does not.
        f"synchronous = {'FULL' if durable else 'NORMAL'}",
        # Pages of indexes are written in no order and come back soon; SQLite's own 2 MB hold too few of them.
        "cache_size = -65536",
        # Pages written again before they are copied back are copied once; SQLite's own 1000 are two exports.
        "wal_autocheckpoint = 4000",
        # SQLite does not check REFERENCES unless told, per connection.
        "foreign_keys = ON",
        # Give the log's disk space back after a burst; 64 MiB is about half a million steps.
        "journal_size_limit = 67108864",
    ):
        connection.execute(f"PRAGMA {pragma}")
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let readers go on while the writer commits; kept in the file, so set once but harmless again.

    Of two that open a new file at once SQLite may answer one BUSY without waiting: both hold a read lock
    that the other's switch needs gone. A repetition finds the switch made.
    """
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def _reader_pragmas(connection: sqlite3.Connection) -> None:
    for pragma in (
        # A reader waits only while the log is being recovered after a crash.
        f"busy_timeout = {BUSY_MS}",
        # A bug in a query must not be able to write; mode=ro would fail where the log must be recovered.
        "query_only = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _engine(url: URL, *, writer: bool, durable: bool) -> Engine:
    size = 1 if writer else 8
    engine = create_engine(
        url,
        pool_size=size,
        max_overflow=0 if writer else 8,
        pool_timeout=30,
        # Safe: the pool lends a connection to one thread at a time.
        connect_args={"check_same_thread": False, "timeout": BUSY_MS / 1000, "isolation_level": None},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        if writer:
            _writer_pragmas(connection, durable=durable)
        else:
            _reader_pragmas(connection)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # The driver's own BEGIN comes too late (not before SELECT or DDL) and is switched off above.
        # IMMEDIATE takes the write lock at once: a later upgrade could fail without waiting.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    _ = prepare, begin
    return engine


@dataclass(slots=True)
class _Entry:
    job: Job
    done: bool = False
    error: Exception | None = None


def _joinable(group: Sequence[_Entry]) -> list[list[_Entry]]:
    """Return a group in its order, jobs that follow one another and can be joined together."""
    found: list[list[_Entry]] = []
    for entry in group:
        kind = type(entry.job)
        if found and isinstance(entry.job, Joinable) and type(found[-1][-1].job) is kind:
            found[-1].append(entry)
        else:
            found.append([entry])
    return found


class SqliteDatabase:
    """A SQLite file. Commits are grouped: calls that wait for the disk at the same time share one sync."""

    def __init__(self, url: URL, durable: bool = True) -> None:
        """Name the file; it is opened at the first use. Not ``durable``: a commit does not wait for the disk.

        Raises:
            StoreError: its directory does not exist or it is not a file.
        """
        self.place = where(url)
        self.capabilities = Capabilities(durable_commit=durable, size_known=True)
        path = Path(url.database or "").absolute()
        if path.is_dir():
            raise StoreError(f"{path} is a directory; name a file in it, e.g. --db sqlite:///specscope.db")
        if not path.parent.is_dir():
            raise StoreError(
                f"directory {path.parent} does not exist; create it or name another file with --db"
            )
        self._path = path
        self._writing = _engine(url, writer=True, durable=durable)
        self._reading = _engine(url, writer=False, durable=durable)
        self._waiting: deque[_Entry] = deque()
        self._turn = threading.Lock()

    @contextmanager
    def read(self) -> Generator[Connection, None, None]:
        """Open a read-only transaction.

        Raises:
            StoreError: the file cannot be read.
        """
        with translated(self.place), self._reading.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def migrating(self) -> Generator[Connection, None, None]:
        """Open the transaction that changes the schema; IMMEDIATE keeps every other writer out.

        Raises:
            StoreError: the file cannot be written.
        """
        with self._turn, translated(self.place), self._writing.begin() as connection:
            yield connection

    def write(self, job: Job) -> None:
        """Run a job and return when it is on disk; what the job raises comes out, with nothing stored.

        Raises:
            StoreError: nothing of this job was stored.
        """
        entry = _Entry(job)
        self._waiting.append(entry)
        with self._turn:
            # Whoever had the turn before may have committed this entry along with its own.
            while not entry.done:
                self._commit([self._waiting.popleft() for _ in range(min(_GROUP, len(self._waiting)))])
        if entry.error is not None:
            raise entry.error

    def _commit(self, group: list[_Entry]) -> None:
        try:
            with translated(self.place), self._writing.begin() as connection:
                if len(group) == 1:
                    group[0].job(connection)
                else:
                    for entries in _joinable(group):
                        self._run_together(entries, connection)
        except Exception as error:  # noqa: BLE001 - each caller gets it: nobody's rows are on disk
            for entry in group:
                entry.error = entry.error or error
        finally:
            for entry in group:
                entry.done = True

    def _run_together(self, entries: list[_Entry], connection: Connection) -> None:
        """Run jobs as one; should what one of them holds be refused, each alone, so that no other suffers."""
        job, others = entries[0].job, [entry.job for entry in entries[1:]]
        if others and isinstance(job, Joinable) and self._tried(job.join(others), connection) is None:
            return
        for entry in entries:
            entry.error = self._tried(entry.job, connection)

    def _tried(self, job: Job, connection: Connection) -> Exception | None:
        """Run a job in a savepoint, so that a bad one takes no other of its group with it; return its error.

        Raises:
            StoreError: the file fails.
        """
        savepoint = connection.begin_nested()
        try:
            with translated(self.place):
                job(connection)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, Refused):
                raise  # the file fails (disk full, ...): SQLite has rolled back all, savepoint included
            savepoint.rollback()
            return error
        savepoint.commit()
        return None

    def lease(self, name: str) -> Lease:
        """Return what one process at a time of all that use the file holds, by name."""
        return FileLease(self._path.with_name(f"{self._path.name}.{name}.lock"))

    def vacuum(self) -> None:
        """Write the file anew without its free pages; needs as much free disk as it takes, and no other user.

        Raises:
            StoreError: it cannot be done now.
        """
        with self._turn, translated(self.place):
            connection = self._writing.raw_connection()
            try:
                cursor = connection.cursor()
                for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "ANALYZE"):
                    cursor.execute(statement)
                cursor.close()
            except sqlite3.Error as error:
                raise of_sqlite(error, self.place) from error
            finally:
                connection.close()

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._writing.dispose()
        self._reading.dispose()
