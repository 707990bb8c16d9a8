"""Queries that are compiled once: the same answers as SQLAlchemy's, for other values each time."""

from __future__ import annotations

import pytest
from specscope_server.store import schema
from specscope_server.store.databases import database
from specscope_server.store.facts import engine_names, load
from specscope_server.store.joined import NONE
from specscope_server.store.opening import open_store
from specscope_server.store.prepared import Prepared
from sqlalchemy import bindparam, select
from storekit import facts

_R = schema.request.c
FINISHED = Prepared(
    select(_R.uid, _R.temperature)
    .where(
        _R.state == "finished",
        _R.rid >= bindparam("least"),
        _R.rid != NONE,
        _R.trace_id != bindparam("least"),
        _R.arrival_ns < bindparam("end"),
    )
    .order_by(_R.uid)
    .limit(2)
)


def test_values_change_and_constants_stay(store_url: str) -> None:
    store = open_store(store_url)
    told = (*(facts.request(uid) for uid in "abc"), facts.request("d", state="running", end_ns=None))
    store.write([facts.batch(*told, facts.request("e", trace_id="rid-b"))], facts.NOW)
    store.close()
    opened = database(store_url)
    with opened.read() as connection:

        def asked(least: str) -> list[tuple[object, ...]]:
            values = {"least": least, "end": facts.NOW_NS, "of no use": object()}
            return [tuple(row) for row in FINISHED.rows(connection, values)]

        assert asked("rid-a") == [("a", 0.0), ("b", 0.0)]
        assert asked("rid-b") == [("b", 0.0), ("c", 0.0)]  # not e, whose trace is called so
        assert asked("rid-d") == [("e", 0.0)]
        assert asked("x%s'; --") == []
        with pytest.raises(KeyError, match="end"):
            FINISHED.rows(connection, {"least": ""})
    opened.close()


def test_engines_are_called_alike_wherever_they_are_named(store_url: str) -> None:
    store = open_store(store_url)
    later = facts.EngineReport(facts.REPORT.event_ns + 1, "weights", "later", True, {})
    unnamed = facts.EngineReport(later.event_ns, "weights", "", True, {})
    store.write(
        [
            facts.batch(instance="nothing told"),
            facts.batch(facts.REPORT, later, instance="model"),
            facts.batch(later, instance="two tell", process_uid="p1"),
            facts.batch(unnamed, instance="two tell", process_uid="p0"),
            facts.batch(facts.REPORT, instance="service"),
            facts.batch(instance="service", process_uid="p2", service_name="third", start_ns=3),
            facts.batch(instance="service", process_uid="p1", service_name="second", start_ns=2),
            facts.batch(instance="service", process_uid="p3", start_ns=1),
        ],
        facts.NOW,
    )
    store.close()
    opened = database(store_url)
    with opened.read() as connection:
        whole = {engine.row.engine_uid: engine.name for engine in load(connection)}
        assert sorted(whole.values()) == ["later", "nothing told", "second", "two tell"]
        assert engine_names(connection, whole) == whole
        assert engine_names(connection, [*list(whole)[:1], "unknown"]) == dict(list(whole.items())[:1])
        assert engine_names(connection, []) == {}
    opened.close()
