"""Of several servers on one database one evaluates and notifies; another takes over when that one is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from alert_world import Engine
from serverkit.receivers import Receiver
from specscope_server.alerts import Evaluator
from specscope_server.alerts.evaluator import LEASE
from specscope_server.store import open_store
from specscope_server.store.port import Store
from sqlalchemy import text
from storekit.dump import execute

PATIENCE_S = 60


def now() -> datetime:
    return datetime.now(UTC)


class Wall:
    """The clock that an engine and a server of today share."""

    @property
    def now(self) -> datetime:
        return now()


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(true):
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.05)


def evaluated(store: Store) -> list[datetime]:
    return [row.evaluated for row in store.alerts("default")]


def firing(store: Store) -> bool:
    return "firing" in {row.state for row in store.alerts("default")}


def test_two_servers_notify_once_and_the_second_takes_over(store_url: str) -> None:
    first, second = open_store(store_url), open_store(store_url)
    engine = Engine(first, Wall())  # type: ignore[arg-type]
    engine.bypassed()

    async def work(receiver: Receiver) -> None:
        target = [f"webhook+http://127.0.0.1:{receiver.port}/hook"]
        servers = [Evaluator(store, target, interval_s=0.05) for store in (first, second)]
        tasks = [asyncio.create_task(server.run()) for server in servers]
        await until(lambda: firing(first) and bool(receiver.got))
        assert sorted(server.leads for server in servers) == [False, True]
        leader = next(server for server in servers if server.leads)
        await leader.stop()
        # The other goes on where this one stopped: what fires already is told to nobody again.
        seen = evaluated(first)
        await until(lambda: min(evaluated(second)) > max(seen))
        for server in servers:
            await server.stop()
        await asyncio.gather(*tasks)

    with Receiver() as receiver:
        asyncio.run(work(receiver))
        assert [got.body["rule"] for got in receiver.got] == ["silent_path"]
    for store in (first, second):
        store.close()


def test_one_holds_a_lease_until_it_lets_go(store_url: str) -> None:
    first, second = open_store(store_url), open_store(store_url)
    mine, theirs = first.lease(LEASE), second.lease(LEASE)
    assert mine.hold()
    assert not theirs.hold()
    assert mine.hold()
    assert second.lease("another").hold()
    mine.release()
    mine.release()
    assert theirs.hold()
    assert not mine.hold()
    theirs.release()
    for store in (first, second):
        store.close()


@pytest.mark.postgres
def test_a_lost_connection_loses_the_lease(postgres_url: str) -> None:

    store = open_store(postgres_url)
    mine, theirs = store.lease(LEASE), store.lease(LEASE)
    assert mine.hold()
    ended = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'specscope lease'"
    )
    execute(postgres_url, text(ended))
    held = [theirs.hold(), mine.hold()]
    assert held == [True, False], "the one that lost it must not believe that it has it"
    for lease in (mine, theirs):
        lease.release()
    store.close()


def test_a_notification_is_not_queued_for_a_state_that_another_stored(store_url: str) -> None:
    """Two that both believe to be alone, for the moment in which a lease is lost without a word."""
    first, second = open_store(store_url), open_store(store_url)
    Engine(first, Wall()).bypassed()  # type: ignore[arg-type]
    target = ["webhook+http://127.0.0.1:9/hook"]
    one, two = (Evaluator(store, target) for store in (first, second))

    class Late:
        """The second's store, whose view of the alerts is from before the first wrote."""

        def __init__(self) -> None:
            self.before = second.alerts("default")

        def __getattr__(self, name: str) -> object:
            return getattr(second, name)

        def alerts(self, _workspace: str, _engines: object = None) -> object:
            return self.before

    late = Evaluator(Late(), target)  # type: ignore[arg-type]
    one.evaluate_now()
    late.evaluate_now()
    two.evaluate_now()
    assert len(first.deliveries("default", 10)) == 1
    for evaluator in (one, two, late):
        evaluator.deliverer.close()
    for store in (first, second):
        store.close()
