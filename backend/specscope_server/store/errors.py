"""What a driver's error means to whoever runs the server: may it pass, and what to do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from specscope_server.store.port import Refused, StoreError, Unavailable

_RETRY = {"40001", "40P01"}
"""PostgreSQL: serialization failure, deadlock. The same transaction may succeed at once."""
_CHECK_VIOLATION = "23514"
_TRANSIENT = {"08", "53", "55", "57", "58"}
"""PostgreSQL classes: connection, resources (disk full, too many clients), lock not available, operator
intervention (shutdown, timeout), system error."""
_REFUSED = {"22", "23"}
"""PostgreSQL classes: a value it cannot hold, a constraint."""

_SQLITE_ADVICE = {
    sqlite3.SQLITE_BUSY: "another program holds its lock; stop that program or wait",
    sqlite3.SQLITE_LOCKED: "another program holds its lock; stop that program or wait",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "reading or writing the file failed; check the disk",
    sqlite3.SQLITE_READONLY: "the file or its directory is read-only; give this user write permission",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that it exists and this user may write there",
    sqlite3.SQLITE_PERM: "this user may not use the file; check its permissions",
}


def sqlstate(error: DBAPIError) -> str:
    """Return PostgreSQL's five characters, empty where the driver gives none."""
    return getattr(error.orig, "sqlstate", None) or ""


def may_repeat(error: DBAPIError) -> bool:
    """Say whether the transaction lost a race and is worth an immediate repetition."""
    return sqlstate(error) in _RETRY or _lost_its_partition(error)


def _lost_its_partition(error: DBAPIError) -> bool:
    """Say whether the row's partition was made after PostgreSQL had chosen the default one for it.

    The bounds of a partition have no name, which every constraint of ours has.
    """
    named = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    return sqlstate(error) == _CHECK_VIOLATION and named is None


def translate(error: SQLAlchemyError, place: str) -> StoreError:
    """Return the store's error for a driver's one; ``place`` as :func:`where.where` says it."""
    if isinstance(error, PoolTimeout):
        return Unavailable(f"{place}: all connections are in use; the database is too slow or overloaded")
    if not isinstance(error, DBAPIError) or error.orig is None:
        return StoreError(f"{place}: {_first_line(error)}")
    if isinstance(error.orig, sqlite3.Error):
        return of_sqlite(error.orig, place)
    state, text = sqlstate(error), _first_line(error.orig)
    if isinstance(error, DataError) and not state:  # psycopg itself, e.g. of a NUL in a text
        return Refused(f"{place} refused a value: {text}")
    if error.connection_invalidated or not state or state[:2] in _TRANSIENT or may_repeat(error):
        return Unavailable(f"{place} cannot be used now: {text}; check that it runs and can be reached")
    if state[:2] in _REFUSED:
        return Refused(f"{place} refused a value: {text}")
    return StoreError(f"{place}: {text} (SQLSTATE {state})")


def of_sqlite(error: sqlite3.Error, place: str) -> StoreError:
    """Return the store's error for one of the sqlite3 module."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF  # the low byte is the primary code
    if code in _SQLITE_ADVICE:
        return Unavailable(f"{place} cannot be used now: {error}; {_SQLITE_ADVICE[code]}")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreError(
            f"{place}: {error}. It is damaged or not a SQLite database; name another file with --db, "
            "or restore this one from a backup"
        )
    if isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError)):
        return Refused(f"{place} refused a value: {error}")
    return StoreError(f"{place}: {error}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def translated(place: str) -> Generator[None, None, None]:
    """Turn every error of the database layer inside into a :class:`StoreError`.

    Raises:
        StoreError: see :func:`translate`; :class:`Refused` also for a value out of range.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise translate(error, place) from error
    except OverflowError as error:  # sqlite3: an integer beyond 64 bits
        raise Refused(f"{place} refused a value: {error}") from error
