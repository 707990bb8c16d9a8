"""For all tests: how workers share them, and stores on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serverkit import otlp
from specscope_server.store import open_store, upgrade
from specscope_server.store.port import Store
from storekit import kinds, postgres
from streams import Streams
from xdist.remote import Producer  # pyright: ignore[reportMissingTypeStubs]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Streams:
    """Deal the tests out as :mod:`streams` says."""
    return Streams(config, log)


@pytest.fixture(autouse=True, scope="module")
def _start_module() -> None:
    """Give what a module's tests send the time at which they run."""
    otlp.start_module()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server for this session, with a migrated database to copy from."""
    with postgres.server() as server:
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {postgres.TEMPLATE} TEMPLATE template0")
        upgrade(server.url(postgres.TEMPLATE))
        yield server


@pytest.fixture
def empty_postgres_url(postgres_server: postgres.Server) -> Iterator[str]:
    """The address of a PostgreSQL database without tables."""
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> Iterator[str]:
    """The address of a PostgreSQL database with the schema and no data."""
    name = postgres_server.create(postgres.TEMPLATE)
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=kinds.params())
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of a database, once for each kind that the store supports."""
    return request.getfixturevalue(request.param.migrated)


@pytest.fixture(params=kinds.params())
def empty_url(request: pytest.FixtureRequest) -> str:
    """The address of a database without tables, once for each kind."""
    return request.getfixturevalue(request.param.empty)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An open store, once for each kind of database."""
    opened = open_store(store_url)
    yield opened
    opened.close()
