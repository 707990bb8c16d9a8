"""A database of every schema there was, with data, answers after its upgrade as if it had always been new."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from specscope_server.diagnosis.model import Finding
from specscope_server.store import schema
from specscope_server.store.databases import database
from specscope_server.store.migrate import config
from specscope_server.store.model import AlertRow, RequestFilter
from specscope_server.store.opening import open_store
from specscope_server.store.port import NewDelivery, Store
from sqlalchemy import Connection, MetaData, Table, insert, inspect, select, text
from storekit import facts
from test_migrations import HEAD

QUICK = ("0001", "0006", "0007", HEAD)
"""The first, the last one released, the last one before tables changed their keys, and today's."""
REVISIONS = [
    pytest.param(revision, marks=() if revision in QUICK else pytest.mark.slow)
    for revision in (f"{number:04d}" for number in range(1, int(HEAD) + 1))
]
FINDING = Finding("draft_silent", "F05", "critical", "certain", "Draft silent", "It says nothing.", ())
TOLD = facts.batch(
    facts.REPORT,
    *(facts.request(f"u{n}", arrival_ns=facts.ago_ns(20 + n)) for n in range(5)),
    *(facts.chunk("u0", seq, steps=[facts.step(64 * seq)], extends=[facts.extend(1)]) for seq in range(3)),
    *(facts.increment(seq, bucket_ago=10 * seq) for seq in range(12)),
    facts.heartbeat(boundaries=facts.crossings("draft.fc", "target_fed", 9, eager=3)),
)


def tell(store: Store) -> None:
    """Tell what the first schema could hold."""
    store.write([TOLD], facts.NOW)


def conclude(store: Store) -> None:
    store.replace_findings(facts.ENGINE, [FINDING], facts.NOW)
    at = facts.NOW
    # Who was told that it fires is noted since 0010: before, everybody was.
    alert = AlertRow(
        "silent", "Silent path", facts.ENGINE, "", "firing", "", at, at, told="firing", told_at=at
    )
    store.set_alerts([alert], [NewDelivery("silent", facts.ENGINE, "firing", "t", {})])


def answers(store: Store) -> dict[str, Any]:
    """What the store says of all that."""
    since, until = facts.ago(600), facts.NOW
    return {
        "engines": store.engines("default", since),
        "engine": store.engine("default", facts.ENGINE, since),
        "series": [store.series("default", None, since, until, bucket) for bucket in (10, 60, 120)],
        "requests": store.requests(RequestFilter(), 3),
        "more": store.requests(RequestFilter(), 3, store.requests(RequestFilter(), 3).next_cursor),
        "request": store.request("default", "u0"),
        "counts": store.counts("default", facts.ENGINE, since, until),
        "evidence": store.evidence("default", facts.ENGINE, until, 300),
        "findings": store.findings("default"),
        "alerts": [*store.alerts("default"), *store.alert_history("default", 9)],
        "deliveries": [row.payload for row in store.deliveries("default", 9)],
    }


def rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """Every row as it is in the database, by table, those first that others refer to."""
    opened = database(url)
    with opened.read() as connection:
        found: dict[str, list[dict[str, Any]]] = {}
        # Chunks referred to their processes until 0008.
        for table in sorted(schema.metadata.sorted_tables, key=lambda table: table is schema.step_chunk):
            plain = Table(table.name, MetaData(), autoload_with=connection)
            found[table.name] = [dict(row) for row in connection.execute(select(plain)).mappings()]
    opened.close()
    return found


def fill_as_of(url: str, revision: str, told: dict[str, list[dict[str, Any]]]) -> None:
    """Make a database of an old revision and put rows there, as much of them as it has columns for."""
    opened = database(url)
    with opened.migrating() as connection:
        command.upgrade(config(connection), revision)
    opened.write(lambda connection: _insert(connection, told))
    opened.close()


def _insert(connection: Connection, told: dict[str, list[dict[str, Any]]]) -> None:
    there = set(inspect(connection).get_table_names())
    connection.execute(text("DELETE FROM workspace"))
    for name, found in told.items():
        if name in there and found:
            table = Table(name, MetaData(), autoload_with=connection)
            columns = table.c.keys()
            connection.execute(
                insert(table), [{key: value for key, value in row.items() if key in columns} for row in found]
            )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """All rows of a new database, and what it answers."""
    url = f"sqlite:///{tmp_path_factory.mktemp('new') / 'new.db'}"
    store = open_store(url, clock=lambda: facts.NOW_NS)
    tell(store)
    conclude(store)
    found = rows(url), answers(store)
    store.close()
    return found


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_that_schema_is_as_good_as_new(
    empty_url: str, revision: str, original: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    told, wanted = original
    fill_as_of(empty_url, revision, told)
    store = open_store(empty_url, clock=lambda: facts.NOW_NS)
    try:
        for name, found in answers(store).items():
            assert found == wanted[name], name
        tell(store)  # a tracer that had no answer sends it again
        assert answers(store)["series"] == wanted["series"]
        assert answers(store)["request"] == wanted["request"]
    finally:
        store.close()
    after = rows(empty_url)
    for name in set(told) - {"rollup_applied", "engine_event"}:
        assert sorted(after[name], key=str) == sorted(told[name], key=str), name
