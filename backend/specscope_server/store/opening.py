"""Opening a store: address, database, schema, adapter."""

from __future__ import annotations

import time
from collections.abc import Callable

from specscope_server.store.adapter import SqlStore
from specscope_server.store.databases import database
from specscope_server.store.keep import NOTHING_GOES, Keep
from specscope_server.store.migrate import migrate


def open_store(
    url: str,
    *,
    clock: Callable[[], int] = time.time_ns,
    keep: Keep = NOTHING_GOES,
    durable: bool = True,
) -> SqlStore:
    """Open the database of an address and bring its schema up to date; ``clock`` tells ns since 1970.

    ``keep`` says what is deleted and refused for its age, by default nothing. Not ``durable``: a SQLite file
    may lose what it took last when the power goes (``synchronous = NORMAL``).

    Raises:
        StoreError: the address, place, file or schema cannot serve; the message says what to do.
    """
    opened = database(url, durable=durable)
    try:
        migrate(opened)
    except BaseException:
        opened.close()
        raise
    return SqlStore(opened, clock, keep)
