"""A full disk, a read-only file, a database that goes away: nothing is lost that was acknowledged, and all
recover by themselves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from serverkit import otlp
from serverkit.live import serving
from specscope_server.store import check, open_store
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Store, Unavailable
from storekit import facts, postgres

SMALL = "48m"


@contextmanager
def small_disk(place: Path, size: str, owner: int | None = None) -> Generator[Path]:
    """A file system of its own with little room; skips where none may be mounted."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        if owner is not None:
            os.chown(place, owner, -1)
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill_up(place: Path) -> Path:
    """Leave no room on the file system of a folder."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(os.urandom(1 << 16)):
                pass
        except OSError:
            pass
    return filler


BLOB = os.urandom(64 << 10)
"""In place of steps: chunks are stored unopened."""


def export(number: int) -> list[object]:
    """Facts of about a MB that are found again by their request."""
    uid = f"u{number}"
    return [facts.request(uid), *(replace(facts.chunk(uid, seq), steps=BLOB) for seq in range(16))]


def write_until_full(store: Store) -> list[str]:
    """Write until the disk is full and return the requests that were acknowledged."""
    done: list[str] = []
    for number in range(400):
        try:
            store.write([facts.batch(*export(number))], facts.NOW)
        except Unavailable as error:
            assert "full" in str(error) or "space" in str(error), error
            return done
        done.append(f"u{number}")
    raise AssertionError("the disk is never full")


def stored(store: Store) -> list[str]:
    return sorted(row.uid for row in store.requests(RequestFilter(), 1000).items)


def recovers(store: Store, filler: Path) -> list[str]:
    """Fill the disk, free it, and return what must be there at the end."""
    acknowledged = write_until_full(store)
    assert stored(store) == sorted(acknowledged)
    filler.unlink()
    store.write([facts.batch(*export(999))], facts.NOW)
    return sorted([*acknowledged, "u999"])


def test_sqlite_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "24m") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(12 << 20))
        url = f"sqlite:///{disk / 'store.db'}"
        store = open_store(url)
        wanted = recovers(store, filler)
        assert stored(store) == wanted
        store.close()
        assert check(url).endswith("sound")


@pytest.mark.postgres
def test_postgres_on_a_full_disk(postgres_url: str, postgres_server: postgres.Server, tmp_path: Path) -> None:
    owner = postgres_server.root.stat().st_uid
    # Where the account of PostgreSQL may go: pytest's folders are ours alone.
    place = postgres_server.root / f"disk-{tmp_path.name}"
    name = postgres_url.split("@/")[1].split("?")[0]
    with small_disk(place, SMALL, owner) as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(20 << 20))
        with postgres_server.connect() as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
            try:
                connection.execute(f"ALTER DATABASE {name} SET TABLESPACE small".encode())
                store = open_store(postgres_url)
                wanted = recovers(store, filler)
                assert stored(store) == wanted
                store.close()
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                connection.execute(b"DROP TABLESPACE small")
                connection.execute(f"CREATE DATABASE {name} TEMPLATE {postgres.TEMPLATE}".encode())


def test_a_full_disk_is_said_to_the_sender(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk, serving(f"sqlite:///{disk / 'store.db'}") as live:
        assert live.export(otlp.traces(otlp.request_span(0))).status_code == 200
        filler = fill_up(disk)
        acknowledged = {otlp.request_uid(0)}
        number = 1
        while True:
            answer = live.export(otlp.traces(otlp.request_span(number), otlp.steps_span(number)))
            if answer.status_code != 200 or number == 2000:
                break
            acknowledged.add(otlp.request_uid(number))
            number += 1
        assert answer.status_code == 503, "the disk is never full"
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert b"disk is full" in answer.content
        filler.unlink()
        assert live.export(otlp.traces(otlp.request_span(5000))).status_code == 200
        acknowledged.add(otlp.request_uid(5000))
        rows = live.store.requests(RequestFilter(), 5000).items
        assert {row.uid for row in rows} == acknowledged
