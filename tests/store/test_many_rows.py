"""Exports of many rows go another way (PostgreSQL: COPY) than those of few, to the same end."""

from __future__ import annotations

import pytest
from specscope.rollup import ALL, CONTEXT, STEP, Counts
from specscope_server.store import copying, open_store
from specscope_server.store.databases import database
from specscope_server.store.port import Refused, Store
from specscope_server.store.rows import rows_of
from specscope_server.store.told import Batch, RollupIncrement
from specscope_server.store.write import write
from sqlalchemy import Connection
from storekit import facts
from storekit.dump import dump, empty

MANY = 4 * copying.FROM
NAMES = [f"u{number:03d}" for number in range(MANY)]


def _increment(seq: int) -> RollupIncrement:
    rows = {(CONTEXT, f"{number}", STEP): Counts(steps=number + 1) for number in range(MANY)}
    return RollupIncrement(
        seq, facts.NOW_NS // facts.SECOND // 10 * 10 - 20, rows | {(ALL, "", STEP): Counts(1)}
    )


def _export(seq: int) -> Batch:
    chunks = [facts.chunk(name, seq, [facts.step(seq)]) for name in NAMES]
    return facts.batch(*map(facts.request, NAMES), *chunks, _increment(seq))


def test_many_rows_end_as_few_do(store: Store, store_url: str) -> None:
    empty(store_url)
    export = _export(1)
    few = [
        facts.batch(*export.requests[at : at + 3], *export.chunks[at : at + 3]) for at in range(0, MANY, 3)
    ]
    for batch in [*few, facts.batch(_increment(1))]:
        store.write([batch], facts.NOW)
    wanted = dump(store_url)
    empty(store_url)
    for _ in range(2):
        store.write([export], facts.NOW)
    assert dump(store_url) == wanted


def test_what_one_export_left_in_passing_is_not_written_by_the_next(store: Store) -> None:
    for seq in (1, 2, 2, 3):
        store.write([_export(seq)], facts.NOW)
    (point,) = store.series("default", None, facts.ago(60), facts.NOW, 10)
    assert point.counts.steps == 3


def test_the_same_table_twice_in_one_transaction_counts_each_row_once(store_url: str) -> None:
    store = open_store(store_url)
    opened = database(store_url)
    rows = [rows_of([_export(seq)], facts.NOW_NS) for seq in (1, 2)]

    def both(connection: Connection) -> None:
        for one in rows:
            write(connection, one)

    opened.write(both)
    opened.close()
    (point,) = store.series("default", None, facts.ago(60), facts.NOW, 10)
    assert point.counts.steps == 2
    store.close()


@pytest.mark.parametrize("at", [0, MANY - 1])
def test_one_bad_row_of_many_refuses_the_export_and_the_next_is_taken(
    store: Store, store_url: str, at: int
) -> None:
    empty(store_url)
    requests = [facts.request(name) for name in NAMES]
    requests[at] = facts.request("bad", arrival_ns=2**63)
    for _ in range(2):
        with pytest.raises(Refused, match="refused a value"):
            store.write([facts.batch(*requests)], facts.NOW)
    assert [name for name, rows in dump(store_url).items() if rows] == []
    store.write([_export(1)], facts.NOW)
    assert len(dump(store_url)["request"]) == MANY
