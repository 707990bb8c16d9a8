"""SQLite's size cap: the oldest chunks go, but for the last hour. And how durable a commit is."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest
from specscope_server.store.care import vacuumed
from specscope_server.store.databases import database
from specscope_server.store.keep import Keep
from specscope_server.store.opening import open_store
from storekit import facts
from storekit.dump import dump

HOURS = 6


def _capped(max_bytes: int) -> Keep:
    return Keep(0, 0, 0, 0, 0, 0, max_bytes=max_bytes)


def _fill(url: str) -> None:
    """Tell of two engines, 1600 steps each ten minutes for six hours."""
    with closing(open_store(url)) as store:
        for minute in range(0, HOURS * 60, 10):
            at = facts.ago_ns(60 * minute + 30)
            chunks = [
                facts.chunk(
                    f"u{minute}", seq, steps=[facts.step(n) for n in range(100)], start_ns=at, end_ns=at
                )
                for seq in range(16)
            ]
            request = facts.request(f"u{minute}", arrival_ns=at, end_ns=at)
            store.write(
                [facts.batch(request, *chunks, instance=f"launch{minute % 20}")],
                facts.NOW - timedelta(minutes=minute),
            )


def test_the_oldest_steps_go_until_the_file_is_small_enough(sqlite_url: str) -> None:
    _fill(sqlite_url)
    with closing(open_store(sqlite_url)) as store:
        full = store.used_bytes()
    before = dump(sqlite_url)
    cap = full - full // 10
    with closing(open_store(sqlite_url, keep=_capped(cap))) as store:
        gone = list(store.shrink(facts.NOW))
        assert {step.table for step in gone} == {"step_chunk"}
        assert store.used_bytes() <= cap
        assert list(store.shrink(facts.NOW)) == [], "it is small enough"
    after = dump(sqlite_url)
    kept = {row[1] for row in after["step_chunk"]}
    minutes = sorted(int(uid[1:]) for uid in kept)
    assert len(before["step_chunk"]) - len(after["step_chunk"]) == sum(step.rows for step in gone)
    assert minutes[0] == 0
    # By the hour and engine: of what is left, nothing is older by more than an hour than what went.
    lost = {int(row[1][1:]) for row in before["step_chunk"]} - set(minutes)
    assert lost
    assert min(lost) >= max(minutes) - 60
    assert {name: rows for name, rows in after.items() if name != "step_chunk"} == {
        name: rows for name, rows in before.items() if name != "step_chunk"
    }
    assert "before" in vacuumed(sqlite_url)


def test_a_cap_that_cannot_be_kept_leaves_the_last_hour_and_says_so(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    _fill(sqlite_url)
    with closing(open_store(sqlite_url, keep=_capped(1))) as store:
        assert list(store.shrink(facts.NOW))
    assert {row[1] for row in dump(sqlite_url)["step_chunk"]} == {f"u{m}" for m in range(0, 60, 10)}
    assert "raise --max-db-gb" in caplog.text


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
def test_whether_a_commit_waits_for_the_disk_is_as_it_was_asked_for(
    sqlite_url: str, durable: bool, level: int
) -> None:
    with closing(open_store(sqlite_url, durable=durable)) as store:
        assert store.capabilities.durable_commit is durable
    opened = database(sqlite_url, durable=durable)
    with opened.migrating() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == level
    opened.close()
