"""Both databases at once, for tests that compare them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from specscope_server.store import open_store
from specscope_server.store.port import Store


@pytest.fixture
def stores(sqlite_url: str, postgres_url: str) -> Iterator[tuple[Store, Store]]:
    """A store on SQLite and one on PostgreSQL."""
    opened = open_store(sqlite_url), open_store(postgres_url)
    yield opened
    for store in opened:
        store.close()
