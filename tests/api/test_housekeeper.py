"""The task that keeps house: it counts what it deletes, and one of two servers does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry
from serverkit.live import Live
from specscope_server.housekeeper import Housekeeper
from specscope_server.store.keep import Keep
from specscope_server.store.opening import open_store
from specscope_server.store.port import Store
from storekit import facts

KEEP = Keep(1, 0, 0, 0, 0, 0)
DELETED = "specscope_housekeeping_deleted_rows_total"


async def _until(done: Callable[[], bool], *keepers: Housekeeper) -> None:
    """Let housekeepers run until something is so."""
    tasks = [asyncio.create_task(keeper.run()) for keeper in keepers]
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)
    for keeper in keepers:
        keeper.stop()
    await asyncio.gather(*tasks)


def _fill(store: Store) -> None:
    now = facts.NOW_NS
    for number in range(3):
        chunk = facts.chunk(f"u{number}", steps=[facts.step(1)], start_ns=now, end_ns=now)
        store.write([facts.batch(facts.request(f"u{number}"), chunk)], facts.NOW)


def test_what_is_deleted_is_counted_by_table(store_url: str) -> None:
    """Also what a database does not keep in one table: no label is the name of a day."""
    later = facts.NOW + timedelta(days=9)
    with closing(open_store(store_url, keep=KEEP)) as store:
        _fill(store)
        mine = CollectorRegistry()
        keeper = Housekeeper(store, size_every_s=0.01, clock=lambda: later, registry=mine)
        told = {"table": "step_chunk"}
        asyncio.run(_until(lambda: mine.get_sample_value(DELETED, told) == 3, keeper))


def test_one_of_two_servers_keeps_house_and_the_other_takes_over(store_url: str) -> None:
    rounds = {"first": 0, "second": 0}

    def clock(name: str) -> Callable[[], datetime]:
        def now() -> datetime:
            rounds[name] += 1
            return datetime.now(UTC)

        return now

    with closing(open_store(store_url)) as one, closing(open_store(store_url)) as two:
        first = Housekeeper(one, size_every_s=0.01, ages_every_s=0.01, clock=clock("first"))
        second = Housekeeper(two, size_every_s=0.01, ages_every_s=0.01, clock=clock("second"))

        async def run() -> None:
            leading = asyncio.create_task(first.run())
            async with asyncio.timeout(60):
                while rounds["first"] < 3:
                    await asyncio.sleep(0.01)
                following = asyncio.create_task(second.run())
                before = rounds["first"]
                while rounds["first"] < before + 5:
                    await asyncio.sleep(0.01)
                assert rounds["second"] == 0
                first.stop()
                await leading
                while rounds["second"] < 2:
                    await asyncio.sleep(0.01)
            second.stop()
            await following

        asyncio.run(run())


def test_a_server_tells_it(live: Live) -> None:
    assert "# TYPE specscope_housekeeping_deleted_rows_total counter" in live.client.get("/metrics").text
