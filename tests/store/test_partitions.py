"""A day's chunks in a partition of their own: made ahead, filled from the default one, dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from specscope_server.store import partitions, schema
from specscope_server.store.databases import database
from specscope_server.store.keep import DAY_NS, Keep
from specscope_server.store.migrate import check
from specscope_server.store.opening import open_store
from specscope_server.store.port import Store
from sqlalchemy import func, select, text, update
from storekit import facts
from storekit.kinds import need

KEEP = Keep(7, 0, 0, 0, 0, 0)
TODAY = partitions.day_of(facts.NOW_NS)
HOSTILE = (0, 1, 2**62, facts.NOW_NS + 400 * DAY_NS, facts.NOW_NS - 4000 * DAY_NS)


@pytest.fixture
def kept(store_url: str) -> Iterator[Store]:
    store = open_store(store_url, keep=KEEP)
    try:
        need(store, "partitions")
        yield store
    finally:
        store.close()


def write(store: Store, name: str, start_ns: int, received_days_ago: int = 0) -> None:
    chunk = facts.chunk(name, steps=[facts.step(1)], start_ns=start_ns, end_ns=start_ns + facts.SECOND)
    received = datetime.fromtimestamp(facts.NOW_NS // facts.SECOND - 86_400 * received_days_ago, UTC)
    store.write([facts.batch(facts.request(name), chunk)], received)


def keep_house(store: Store, days_later: int = 0) -> dict[str, int]:
    now = datetime.fromtimestamp(facts.NOW_NS // facts.SECOND + 86_400 * days_later, UTC)
    gone: dict[str, int] = {}
    for step in store.prune(now):
        gone[step.table] = gone.get(step.table, 0) + step.rows
    return gone


def days(url: str) -> list[int]:
    opened = database(url)
    with opened.read() as connection:
        found = partitions.days(connection)
    opened.close()
    return [day - TODAY for day in found]


def in_default(url: str) -> int:
    opened = database(url)
    with opened.read() as connection:
        found = connection.execute(select(func.count()).select_from(partitions.DEFAULT)).scalar_one()
    opened.close()
    return found


def steps(store: Store, uid: str) -> int:
    detail = store.request("default", uid)
    return 0 if detail is None else len(detail.steps)


def test_days_are_made_ahead_and_take_what_waited(kept: Store, store_url: str) -> None:
    write(kept, "before", facts.NOW_NS)
    assert in_default(store_url) == 1
    keep_house(kept)
    assert days(store_url) == [0, 1, 2, 3]
    assert in_default(store_url) == 0
    write(kept, "before", facts.NOW_NS)  # told again: the same chunk, not another one
    write(kept, "after", facts.NOW_NS + DAY_NS)
    assert in_default(store_url) == 0
    assert (steps(kept, "before"), steps(kept, "after")) == (1, 1)
    assert check(store_url).endswith("up to date and sound")


def test_made_up_times_make_no_partitions(kept: Store, store_url: str) -> None:
    unlimited = open_store(store_url)
    for number, start in enumerate(HOSTILE):
        write(unlimited, f"h{number}", start)
    unlimited.close()
    keep_house(kept)
    assert days(store_url) == [0, 1, 2, 3]
    assert in_default(store_url) == 2, "what is to come stays, what is long over goes"


def test_a_day_that_is_over_is_dropped_whole(kept: Store, store_url: str) -> None:
    keep_house(kept)
    write(kept, "today", facts.NOW_NS)
    write(kept, "tomorrow", facts.NOW_NS + DAY_NS)
    assert "step_chunk_20260301" not in keep_house(kept, days_later=7)
    assert steps(kept, "today") == 1
    assert "step_chunk_20260301" in keep_house(kept, days_later=8)
    assert (steps(kept, "today"), steps(kept, "tomorrow")) == (0, 1)
    assert min(days(store_url)) == 1


def test_a_day_with_too_many_chunks_elsewhere_gets_no_partition(
    kept: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_MOVED", 2)
    for number in range(3):
        write(kept, f"u{number}", facts.NOW_NS)
    keep_house(kept)
    assert days(store_url) == [1, 2, 3]
    assert [steps(kept, f"u{number}") for number in range(3)] == [1, 1, 1]
    keep_house(kept, days_later=9)
    assert in_default(store_url) == 0


def test_two_servers_may_keep_house_at_once(kept: Store, store_url: str) -> None:
    other = open_store(store_url, keep=KEEP)
    write(kept, "before", facts.NOW_NS)
    rounds = [store.prune(facts.NOW) for store in (kept, other)]
    for each in rounds:
        assert list(each) == []
    other.close()
    assert days(store_url) == [0, 1, 2, 3]


def _wait_for_lock(url: str) -> None:
    """Return once somebody waits for a lock."""
    opened = database(url)
    try:
        for _ in range(600):
            with opened.read() as connection:
                waits = select(func.count()).select_from(text("pg_locks")).where(text("NOT granted"))
                if connection.execute(waits).scalar_one():
                    return
            time.sleep(0.01)
    finally:
        opened.close()
    raise AssertionError("nobody waits for a lock")


def test_a_chunk_that_comes_while_its_day_is_made_moves_there(kept: Store, store_url: str) -> None:
    """As when a server starts for the first time, under load."""
    write(kept, "first", facts.NOW_NS + 9 * DAY_NS)
    writer, moved = database(store_url), schema.step_chunk.c.uid == "first"
    with ThreadPoolExecutor() as pool:
        with writer.migrating() as connection:
            # Told, but not committed: whoever makes the partition cannot see it yet.
            connection.execute(update(schema.step_chunk).where(moved).values(start_ns=facts.NOW_NS))
            making = pool.submit(keep_house, kept)
            _wait_for_lock(store_url)
        making.result()
    writer.close()
    assert days(store_url) == [0, 1, 2, 3]
    assert in_default(store_url) == 0


def test_a_chunk_told_while_its_day_is_made_is_stored(kept: Store, store_url: str) -> None:
    """PostgreSQL sends it to the default partition, which no longer takes it: the same try again succeeds."""
    write(kept, "first", facts.NOW_NS)  # this connection knows the partitions as they are now
    maker = database(store_url)
    with ThreadPoolExecutor() as pool:
        with maker.migrating() as connection:
            partitions.make(connection, TODAY)
            writing = pool.submit(write, kept, "second", facts.NOW_NS)
            _wait_for_lock(store_url)
        writing.result()
    maker.close()
    assert [steps(kept, name) for name in ("first", "second")] == [1, 1]
    assert in_default(store_url) == 0


def test_a_partition_in_use_holds_up_nothing_else(
    kept: Store, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep_house(kept)
    write(kept, "today", facts.NOW_NS)
    write(kept, "old", (TODAY - 100) * DAY_NS, received_days_ago=99)
    reader = database(store_url)
    with reader.read() as connection:  # a backup, say, for hours
        connection.execute(select(func.count()).select_from(schema.step_chunk))
        gone = keep_house(kept, days_later=8)
    reader.close()
    assert gone == {"step_chunk_default": 1}
    assert "step_chunk_20260301 is not dropped yet" in caplog.text
    assert "step_chunk_20260301" in keep_house(kept, days_later=8)


def test_a_size_cap_drops_the_oldest_days(store_url: str) -> None:
    store = open_store(store_url, keep=Keep(0, 0, 0, 0, 0, 0, max_bytes=1))
    try:
        need(store, "partitions")
        keep_house(store)
        for ahead in range(3):
            write(store, f"d{ahead}", facts.NOW_NS + ahead * DAY_NS)
        later = datetime.fromtimestamp(facts.NOW_NS // facts.SECOND + 2 * 86_400, UTC)
        assert [step.table for step in store.shrink(later)] == ["step_chunk_20260301", "step_chunk_20260302"]
        assert [steps(store, f"d{ahead}") for ahead in range(3)] == [0, 0, 1]
    finally:
        store.close()
