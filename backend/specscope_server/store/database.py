"""What the adapter needs of a database: consistent reads, transactions on disk when they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from sqlalchemy import Connection

from specscope_server.store.port import Capabilities, Lease

Job = Callable[[Connection], None]
"""Statements of one transaction. It may run more than once, so it keeps no state of its own."""


@runtime_checkable
class Joinable(Protocol):
    """A job that can be done together with others of its type, in one go and with the same end."""

    def __call__(self, connection: Connection) -> None:
        """Run it."""
        ...

    def join(self, others: Sequence[Any]) -> Job:
        """Return the job of this one and of others of its type, in their order."""
        ...


class Database(Protocol):
    """One database, told apart from others only where its dialect differs."""

    @property
    def place(self) -> str:
        """Say which database it is, without its password."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Say what it can do."""
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """Open a read-only transaction: one consistent view.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    def migrating(self) -> AbstractContextManager[Connection]:
        """Open the transaction that changes the schema; no other server does so meanwhile.

        Raises:
            StoreError: it cannot be written.
        """
        ...

    def write(self, job: Job) -> None:
        """Run a job and return when it is on disk; what the job raises comes out, with nothing stored.

        Raises:
            StoreError: nothing of this job was stored.
        """
        ...

    def lease(self, name: str) -> Lease:
        """Return what one at a time of all that use the database holds, by name."""
        ...

    def vacuum(self) -> None:
        """Give the disk what deleted rows took, as far as the database can, and count its rows anew.

        Raises:
            StoreError: it cannot be done now.
        """
        ...

    def close(self) -> None:
        """Close all connections; idempotent."""
        ...
