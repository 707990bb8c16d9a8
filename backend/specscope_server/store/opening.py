"""Opening a store: address, database, schema, adapter."""

from __future__ import annotations

import time
from collections.abc import Callable

from specscope_server.store.adapter import SqlStore
from specscope_server.store.databases import database
from specscope_server.store.migrate import migrate


def open_store(url: str, *, clock: Callable[[], int] = time.time_ns) -> SqlStore:
    """Open the database of an address and bring its schema up to date; ``clock`` tells ns since 1970.

    Raises:
        StoreError: the address, place, file or schema cannot serve; the message says what to do.
    """
    opened = database(url)
    try:
        migrate(opened)
    except BaseException:
        opened.close()
        raise
    return SqlStore(opened, clock)
