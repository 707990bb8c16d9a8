"""What cannot serve says what, where and what to do, and never the password."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from specscope_server.store import check, open_store, upgrade
from specscope_server.store import sqlite as sqlite_store
from specscope_server.store.adapter import SqlStore
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import StoreError, Unavailable
from specscope_server.store.sqlite import SqliteDatabase
from specscope_server.store.where import parse
from sqlalchemy import Connection
from storekit import facts
from storekit.postgres import Server

ACTS = pytest.mark.parametrize("act", [open_store, upgrade, check])
Act = Callable[[str], object]


@ACTS
def test_missing_directory(tmp_path: Path, act: Act) -> None:
    place = tmp_path / "nowhere"
    with pytest.raises(StoreError, match=f"directory {place} does not exist; create it or name another"):
        act(f"sqlite:///{place}/store.db")


@ACTS
def test_a_directory_is_no_file(tmp_path: Path, act: Act) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path} is a directory; name a file in it"):
        act(f"sqlite:///{tmp_path}")


@ACTS
def test_not_a_database(tmp_path: Path, act: Act) -> None:
    place = tmp_path / "notes.txt"
    place.write_text("Dear diary, today was long.\n" * 100)
    with pytest.raises(StoreError, match=rf"SQLite file {place}: file is not a database\. .*--db"):
        act(f"sqlite:///{place}")
    assert place.read_text().startswith("Dear diary")


def test_check_of_a_missing_file_says_so_and_makes_none(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    with pytest.raises(StoreError, match=r"none\.db is not there; name another with --db"):
        check(str(missing))
    assert not missing.exists()


def test_a_damaged_file_is_found_by_check(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    store = open_store(str(place))
    store.write([facts.batch(*(facts.request(f"{n:04d}") for n in range(200)))], facts.NOW)
    store.close()
    raw = bytearray(place.read_bytes())
    raw[-8192:] = os.urandom(8192)
    place.write_bytes(raw)
    with pytest.raises(StoreError, match="damaged"):
        check(str(place))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "no database is named"),
        ("   ", "no database is named"),
        ("mysql://u:s3cret@h/db", "a mysql database is not supported; give sqlite:///specscope.db"),
        ("clickhouse://u:s3cret@h/db", "clickhouse"),
        ("://u:s3cret@h", "cannot be read as a URL"),
        ("postgresql://u:s3cret@h:port/db", "cannot be read as a URL"),
        ("postgresql://u:s3cret@h:5432", "PostgreSQL database None at h:5432 names no database"),
        ("postgresql+asyncpg://u:s3cret@h/db", r"driver in postgresql\+asyncpg:// is not supported"),
        ("sqlite://", "needs a SQLite file, not one in memory"),
        ("sqlite:///:memory:", "needs a SQLite file, not one in memory"),
        ("sqlite://u:s3cret@host/file.db", "a SQLite address is sqlite:///relative/file.db"),
        ("sqlite:///file.db?mode=s3cret", "without options"),
    ],
)
def test_wrong_addresses(address: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_store(address)
    _keeps_the_secret(caught.value)


def _keeps_the_secret(error: BaseException | None) -> None:
    while error is not None:
        assert "s3cret" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A SQLite file whose lock another program holds."""
    monkeypatch.setattr(sqlite_store, "BUSY_MS", 100)
    place = tmp_path / "store.db"
    open_store(str(place)).close()
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield str(place)


@pytest.mark.parametrize("act", [open_store, upgrade])
def test_locked_at_start(locked: str, act: Act) -> None:
    with pytest.raises(Unavailable, match=r"cannot be used now: database is locked; another program holds"):
        act(locked)


def test_locked_while_running_and_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_MS", 100)
    place = tmp_path / "store.db"
    store = open_store(str(place))
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="database is locked"):
            store.write([facts.batch(facts.request())], facts.NOW)
        # Readers do not mind.
        assert store.requests(RequestFilter(), 10).items == ()
        other.execute("ROLLBACK")
    store.write([facts.batch(facts.request())], facts.NOW)
    assert len(store.requests(RequestFilter(), 10).items) == 1
    store.close()


def test_disk_full_stores_nothing_and_recovers(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    open_store(str(place)).close()
    big = facts.chunk(steps=[facts.step(n, draft_tokens=list(range(n, n + 3))) for n in range(64)])
    file = SqliteDatabase(parse(str(place)))
    store = SqlStore(file, time.time_ns)
    store.write([facts.batch(facts.request("before"))], facts.NOW)
    file.write(lambda connection: _limit_pages(connection, 60))
    many = [facts.chunk("u9", seq, steps=[facts.step(seq)]) for seq in range(2000)]
    with pytest.raises(Unavailable, match="database or disk is full; the disk is full; free some space"):
        store.write([facts.batch(facts.request("after"), big, *many)], facts.NOW)
    assert [row.uid for row in store.requests(RequestFilter(), 10).items] == ["before"]
    file.write(lambda connection: _limit_pages(connection, 1_000_000))
    store.write([facts.batch(facts.request("after"), big, *many)], facts.NOW)
    assert len(store.requests(RequestFilter(), 10).items) == 2
    store.close()


def _limit_pages(connection: Connection, pages: int) -> None:
    """Let the writer's one connection take the disk for full at so many pages of 4 KiB."""
    connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_file(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    open_store(str(place)).close()
    place.chmod(0o444)
    with pytest.raises(StoreError, match="read-only"):
        open_store(str(place))


@ACTS
def test_postgres_away(act: Act) -> None:
    with socket.socket() as free:  # bound and not listening: connections are refused
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        place = f"PostgreSQL database shop at 127.0.0.1:{port}"
        with pytest.raises(Unavailable, match=f"{place} cannot be used now: .*check that it runs") as caught:
            act(f"postgresql://u:s3cret@127.0.0.1:{port}/shop")
    _keeps_the_secret(caught.value)


@pytest.mark.postgres
def test_postgres_without_that_database(postgres_server: Server) -> None:
    with pytest.raises(StoreError, match='database "absent" does not exist'):
        open_store(postgres_server.url("absent"))


@pytest.mark.postgres
def test_postgres_connections_lost_while_running(postgres_url: str, postgres_server: Server) -> None:
    store = open_store(postgres_url)
    store.write([facts.batch(facts.request())], facts.NOW)
    with postgres_server.connect() as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'")
    # The pool notices before use and connects again.
    store.write([facts.batch(facts.request("u1"))], facts.NOW)
    assert len(store.requests(RequestFilter(), 10).items) == 2
    store.close()


@pytest.mark.postgres
def test_postgres_taking_no_writes_is_unavailable(postgres_url: str, postgres_server: Server) -> None:
    store = open_store(postgres_url)
    name = postgres_url.split("@/")[1].split("?")[0]
    with postgres_server.connect() as other:
        other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        with pytest.raises(Unavailable, match="cannot be used now"):
            store.write([facts.batch(facts.request())], facts.NOW)
        other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    store.write([facts.batch(facts.request())], facts.NOW)
    store.close()


def test_closing_twice_is_fine(store_url: str) -> None:
    store = open_store(store_url)
    store.close()
    store.close()
