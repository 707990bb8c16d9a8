"""Many threads and several servers: nothing is lost, nothing counts twice, nobody spoils another's export."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from specscope_server.store import open_store
from specscope_server.store.adapter import SqlStore
from specscope_server.store.databases import database
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Refused, Store
from specscope_server.store.told import Batch
from storekit import facts


def _export(number: int) -> list[Batch]:
    """Return an export that shares its request, engine and rollup rows with all others."""
    return [
        facts.batch(
            facts.request("shared"),
            facts.request(f"u{number}"),
            facts.increment(number),
            facts.heartbeat(
                number % 7, boundaries=facts.crossings("draft.fc", "target_fed", number, eager=1)
            ),
        )
    ]


def _write_all(stores: list[Store], exports: list[list[Batch]]) -> None:
    def one(numbered: tuple[int, list[Batch]]) -> None:
        number, export = numbered
        stores[number % len(stores)].write(export, facts.NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, enumerate(exports)))


def _counted(store: Store, exports: int) -> None:
    (point,) = store.series("default", None, facts.ago(60), facts.NOW, 10)
    assert point.counts.steps == 3 * exports
    assert len(store.requests(RequestFilter(), 1000).items) == exports + 1


def test_threads_write_at_once(store: Store) -> None:
    _write_all([store], [_export(n) for n in range(1, 41)])
    _counted(store, 40)


def test_two_servers_write_the_same_exports_at_once(store: Store, store_url: str) -> None:
    other = open_store(store_url)
    doubled = [export for n in range(1, 21) for export in (_export(n), _export(n))]
    _write_all([store, other], doubled)
    other.close()
    _counted(store, 20)


def test_exports_that_name_the_same_rows_in_opposite_orders_do_not_deadlock(store: Store) -> None:
    names = [f"u{n:02d}" for n in range(30)]
    one, two = facts.batch(*map(facts.request, names)), facts.batch(*map(facts.request, reversed(names)))
    _write_all([store], [[one, replace(two)], [two, replace(one)]] * 10)
    assert len(store.requests(RequestFilter(), 1000).items) == 30


def test_a_refused_export_takes_no_other_with_it(store: Store) -> None:
    def one(number: int) -> bool:
        bad = facts.batch(facts.request(f"bad{number}", arrival_ns=2**63))
        try:
            store.write([bad] if number % 3 == 0 else _export(number), facts.NOW)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(one, range(1, 31)))
    assert stored == [number % 3 != 0 for number in range(1, 31)]
    _counted(store, 20)


@pytest.mark.parametrize("bad", [(), (3,), (0, 7)], ids=["all good", "one bad", "two bad"])
def test_exports_that_wait_together_are_written_as_one_and_a_bad_one_alone_is_refused(
    sqlite_url: str, bad: tuple[int, ...]
) -> None:
    open_store(sqlite_url).close()
    opened = database(sqlite_url)
    store = SqlStore(opened, lambda: facts.NOW_NS)

    def one(number: int) -> bool:
        wrong = facts.batch(facts.request(f"bad{number}", arrival_ns=2**63))
        try:
            store.write([wrong] if number in bad else _export(number + 1), facts.NOW)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(9) as pool:
        with opened.migrating():  # nobody else has a turn meanwhile
            waiting = [pool.submit(one, number) for number in range(8)]
            twice = pool.submit(store.write, _export(2), facts.NOW)  # told again, in the same commit
            time.sleep(0.3)
        assert [future.result() for future in waiting] == [number not in bad for number in range(8)]
        twice.result()
    _counted(store, 8 - len(bad))
    store.close()


def test_an_acknowledged_export_is_seen_by_the_next_read(store: Store) -> None:
    def one(number: int) -> bool:
        store.write([facts.batch(facts.request(f"u{number}"))], facts.NOW)
        return store.request("default", f"u{number}") is not None

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(one, range(30)))


def test_reads_go_on_while_a_write_is_open(store: Store, store_url: str) -> None:
    store.write([facts.batch(facts.request())], facts.NOW)
    writer = database(store_url)
    with writer.migrating() as connection:
        connection.exec_driver_sql("UPDATE request SET rid = 'changed'")
        (row,) = store.requests(RequestFilter(), 10).items
        assert row.rid == "rid-u0"
    writer.close()
    (row,) = store.requests(RequestFilter(), 10).items
    assert row.rid == "changed"


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_capabilities(kind: str, request: pytest.FixtureRequest) -> None:
    store = open_store(request.getfixturevalue(f"{kind}_url"))
    assert store.capabilities.durable_commit
    assert store.capabilities.several_servers == (kind == "postgres")
    store.close()
