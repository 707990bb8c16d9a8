"""SQLite has no statistics of a young file: look-ups must take their index, not walk all of a workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import pytest
from specscope_server.store import open_store
from specscope_server.store.databases import database
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Store
from sqlalchemy import Connection, Engine, event
from storekit import facts

Ask = Callable[[Store], object]


@contextmanager
def _asked() -> Generator[list[tuple[str, Any]], None, None]:
    """Collect every query of this thread with its parameters: servers of other tests may still run."""
    queries: list[tuple[str, Any]] = []
    mine = get_ident()

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT") and get_ident() == mine:
            queries.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def _plans(url: str, ask: Ask) -> list[str]:
    """Return the steps of the plans of all queries that ``ask`` leads to."""
    store = open_store(url)
    store.write([facts.batch(facts.REPORT, facts.request(), facts.heartbeat())], facts.NOW)
    with _asked() as queries:
        ask(store)
    store.close()
    opened = database(url)
    with opened.read() as connection:
        steps = [
            row[-1]
            for statement, parameters in queries
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]
    opened.close()
    return steps


def _listed(cursor: str | None = None, **where: Any) -> Ask:
    return lambda store: store.requests(RequestFilter(**where), 10, cursor)


def _detail(store: Store) -> object:
    return store.request("default", "u0")


def _evidence(store: Store) -> object:
    return store.evidence("default", facts.ENGINE, facts.NOW, 60)


def _heard(store: Store) -> object:
    return store.heard(facts.ago(900))


def _series(store: Store) -> object:
    return store.series("default", None, facts.ago(60), facts.NOW, 10)


def _by_the_minute(store: Store) -> object:
    return store.sliced("default", facts.ENGINE, facts.ago(3600), facts.NOW, 60, "batch")


def _window(store: Store) -> object:
    return store.engines("default", facts.ago(3605))


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        (_listed(), r"request_by_arrival \(workspace=\?\)"),
        (_listed("MS8x"), r"request_by_arrival \(workspace=\? AND \(arrival_ns,uid\)<"),
        (_listed(since=facts.NOW), r"request_by_arrival \(workspace=\? AND arrival_ns>"),
        (_listed(rid="r"), r"request_by_rid \(workspace=\? AND rid=\?\)"),
        (_listed(trace_id="t"), r"request_by_trace \(workspace=\? AND trace_id=\?\)"),
        (_listed(text="r"), r"request_by_rid \(workspace=\? AND rid>\? AND rid<\?\)"),
        (_listed(text="r"), r"request_by_trace \(workspace=\? AND trace_id>\? AND trace_id<\?\)"),
        (_listed(text="r"), r"SEARCH request USING INDEX request_by_uid \(workspace=\? AND uid=\?\)"),
        (_listed(text="r"), r"request_by_response \(workspace=\? AND response_id>\? AND response_id<\?\)"),
        (_listed(text="r"), r"span USING INDEX \S+ \(workspace=\? AND trace_id=\?\)"),
        (_listed(text="r"), r"span_by_request \(workspace=\? AND request_id=\?\)"),
        (_listed(response_id="r"), r"request_by_response \(workspace=\? AND response_id=\?\)"),
        (_listed(response_id="r"), r"span_by_response \(workspace=\? AND response_id=\?\)"),
        (_listed(engine_uid="e"), r"request_by_engine \(engine_uid=\?"),
        (_listed(flag="unfinished"), r"request_running \(workspace=\?"),
        (_listed(state="lost"), r"request_running \(workspace=\?"),
        (_listed(flag="gap"), r"request_short \(workspace=\?"),
        (_detail, r"request_by_uid \(workspace=\? AND uid=\?\)"),
        (_detail, r"step_chunk USING INDEX \S+ \(engine_uid=\? AND uid=\?\)"),
        (_detail, r"span_by_request \(workspace=\? AND request_id=\?\)"),
        (_detail, r"span_by_response \(workspace=\? AND response_id=\?\)"),
        (_detail, r"log_record USING INDEX \S+ \(workspace=\? AND trace_id=\?\)"),
        (_evidence, r"boundary_count USING PRIMARY KEY \(engine_uid=\? AND .*mode=\? AND bucket<\?\)"),
        (_evidence, r"step_chunk_by_end \(engine_uid=\? AND end_ns>\?\)"),
        (_evidence, r"COVERING INDEX request_by_engine \(engine_uid=\? AND arrival_ns>\?\)"),
        (_evidence, r"request USING INDEX request_differing \(engine_uid=\? AND arrival_ns>\?\)"),
        (_heard, r"rollup_10s USING PRIMARY KEY \(engine_uid=\? AND dimension=\? AND bucket>\?"),
        (_heard, r"COVERING INDEX step_chunk_by_end \(engine_uid=\? AND end_ns>\?\)"),
        (_heard, r"request_by_engine \(engine_uid=\? AND arrival_ns>\?\)"),
        (_heard, r"rollup_applied USING PRIMARY KEY \(engine_uid=\? AND process_uid=\?\)"),
        (
            _series,
            r"rollup_10s USING PRIMARY KEY \(engine_uid=\? AND dimension=\? AND bucket>\?",
        ),
        *(
            (ask, rf"{table} USING PRIMARY KEY \(engine_uid=\? AND dimension=\? AND bucket>\?")
            for ask in (_by_the_minute, _window)
            for table in ("rollup_60s", "rollup_10s")
        ),
    ],
)
def test_look_ups_take_their_index(sqlite_url: str, ask: Ask, wanted: str) -> None:
    steps = _plans(sqlite_url, ask)
    assert any(re.search(wanted, step) for step in steps), steps
    assert [
        step
        for step in steps
        if re.match(r"SCAN (request|searched|span|log_record|step_chunk|rollup|boundary)", step)
    ] == []


def _analyzed(connection: Connection) -> None:
    connection.exec_driver_sql("ANALYZE request")


def _postgres_plans(url: str, ask: Ask) -> str:
    """Return the plans of all queries that ``ask`` leads to, over some requests that were analyzed."""
    store = open_store(url)
    told = [facts.request(f"u{number}") for number in range(400)]
    store.write([facts.batch(facts.REPORT, *told, facts.heartbeat())], facts.NOW)
    with _asked() as queries:
        ask(store)
    store.close()
    opened = database(url)
    opened.write(_analyzed)
    with opened.read() as connection:
        # The other tables are empty, and reading all of nothing is cheap.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        steps = [
            row[0]
            for statement, parameters in queries
            for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        ]
    opened.close()
    return "\n".join(steps)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        (_listed(rid="r"), r"request_by_rid.*\n\s+Index Cond: \(\(workspace = .*\) AND \(rid = "),
        (_listed(trace_id="t"), r"request_by_trace.*\n\s+Index Cond: \(\(workspace = .*\) AND \(trace_id = "),
        (_detail, r"request_by_uid.*\n\s+Index Cond: \(\(workspace = .*\) AND \(uid = "),
        (_detail, r"step_chunk\S*_pkey.*\n\s+Index Cond: \(\(engine_uid = .*\) AND \(uid = "),
        (
            _series,
            r"rollup_10s_pkey.*\n\s+Index Cond: \(\(engine_uid = .* AND \(dimension = .* AND \(bucket >= ",
        ),
        (
            _by_the_minute,
            r"rollup_60s_pkey.*\n\s+Index Cond: \(\(engine_uid = .* AND \(dimension = .* AND \(bucket >= ",
        ),
    ],
)
def test_postgresql_can_look_up_the_same(postgres_url: str, ask: Ask, wanted: str) -> None:
    plan = _postgres_plans(postgres_url, ask)
    assert re.search(wanted, plan), plan


@pytest.mark.postgres
def test_postgresql_knows_how_often_an_ended_state_comes(postgres_url: str) -> None:
    plan = _postgres_plans(postgres_url, _listed(state="finished", since=facts.ago(60)))
    assert re.search(r"\(state = 'finished'", plan), plan
    assert "CASE" not in plan, "of an expression it guesses one row in 200 and sorts all that match"
