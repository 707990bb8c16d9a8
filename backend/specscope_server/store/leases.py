"""What one server alone does among those of a database: evaluate alerts, keep house."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import zlib
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from specscope_server.store.errors import translated
from specscope_server.store.port import Unavailable

_CLASS: Final = 0x5370_6563
"""First half of our advisory locks ("Spec"); the second is made of the lease's name."""
_CONNECT: Final = {
    "connect_timeout": 5,
    "application_name": "specscope lease",
    "options": "-c statement_timeout=10s",
    # A network that swallows everything must not leave us in doubt for longer than this.
    "tcp_user_timeout": 10_000,
}


class FileLease:
    """A lock file beside a SQLite file. The system lets go of it when its process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made at the first :meth:`hold` and stays, empty."""
        self._path = path
        self._file: int | None = None
        self._turn = threading.Lock()

    def hold(self) -> bool:
        """See the port."""
        with self._turn:
            if self._file is not None and self._is_ours(self._file):
                return True
            self._drop()
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise Unavailable(
                    f"lock file {self._path} cannot be used: {error.strerror}; "
                    "check the disk and the permissions of its directory"
                ) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                return False
            self._file = file
            return True

    def _is_ours(self, file: int) -> bool:
        """Say whether the file that we locked is still the one of that name: it may have been removed."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except OSError:
            return False

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def release(self) -> None:
        """See the port."""
        with self._turn:
            self._drop()


class AdvisoryLease:
    """An advisory lock of PostgreSQL, held by a connection of its own: it goes when that one does."""

    def __init__(self, url: URL, name: str, place: str) -> None:
        """Name the lock; the connection is made at the first :meth:`hold`."""
        self._engine = create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=dict(_CONNECT)
        )
        number = zlib.crc32(name.encode())
        self._number = number - (1 << 32) if number >= 1 << 31 else number
        self._place = place
        self._connection: Connection | None = None
        self._turn = threading.Lock()

    def hold(self) -> bool:
        """See the port."""
        with self._turn:
            if self._connection is not None:
                try:
                    self._connection.execute(text("SELECT 1"))
                except SQLAlchemyError:
                    # Another server may have the lock by now: ask for it like anybody else.
                    self._drop()
                else:
                    return True
            with translated(self._place):
                return self._take()

    def _take(self) -> bool:
        connection = self._engine.connect()
        try:
            # The lock of a machine that vanished without a word is free after a minute.
            for name, seconds in (("idle", 30), ("interval", 10), ("count", 3)):
                connection.execute(text(f"SET tcp_keepalives_{name} = {seconds}"))
            taken = connection.execute(
                text("SELECT pg_try_advisory_lock(:class, :number)"),
                {"class": _CLASS, "number": self._number},
            ).scalar_one()
        except BaseException:
            connection.close()
            raise
        if not taken:
            connection.close()
            return False
        self._connection = connection
        return True

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None

    def release(self) -> None:
        """See the port."""
        with self._turn:
            self._drop()
