"""Engines: names, ledger, counters and gauges, in a number of queries that does not grow with them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import get_ident
from typing import Any

from specscope_server.store.model import BoundaryState, EngineEvent, EngineRow, RequestFilter
from specscope_server.store.port import Store
from specscope_server.store.told import EngineReport
from specscope_server.store.values import engine_uid
from sqlalchemy import Engine, event
from storekit import facts


def _only(store: Store) -> EngineRow:
    (row,) = store.engines("default", facts.ago(60))
    return row


def test_an_engine_reads_back_as_it_was_told(store: Store) -> None:
    beat = facts.heartbeat(
        requests={"user": 4, "health_check": 9},
        dropped={"queue_full": 2},
        hook_errors={"fc": 1},
        queued=7,
        export_failures=3,
    )
    store.write([facts.batch(facts.REPORT, facts.request(), facts.increment(1), beat)], facts.NOW)
    row = _only(store)
    started = EngineEvent(facts.ago(3599), "start", "p0", None, {})
    assert store.engine("default", row.engine_uid, facts.ago(60)) == replace(row, events=(started,))
    assert (row.engine_uid, row.workspace, row.environment, row.instance) == (
        facts.ENGINE,
        "default",
        "test",
        "launch",
    )
    assert (row.name, row.model, row.engine_name, row.engine_version) == ("tiny", "tiny", "sglang", "0.5.23")
    assert (row.speculation, row.config) == (True, {"draft": {"layers": 1}})
    assert (row.started, row.last_received, row.last_request) == (facts.ago(3600), facts.NOW, facts.ago(20))
    assert row.counts is not None
    assert (row.counts.steps, row.counts.drafted_depth, row.positions) == (3, 9, ((3, 1),))
    assert row.requests == {"user": 4, "health_check": 9}
    (process,) = row.processes
    assert (process.process_uid, process.role, process.pid, process.detail) == (
        "p0",
        "scheduler",
        100,
        "steps",
    )
    assert (process.started, process.last_event, process.last_received) == (
        facts.ago(3600),
        facts.ago(1),
        facts.NOW,
    )
    assert (process.dropped, process.hook_errors) == ({"queue_full": 2}, {"fc": 1})
    assert (process.queued, process.export_failures, process.clock_skewed) == (7, 3, False)


def test_what_was_not_told_is_unknown_not_zero(store: Store) -> None:
    store.write([facts.batch()], facts.NOW)
    row = _only(store)
    assert (row.counts, row.positions, row.speculation, row.last_request) == (None, (), None, None)
    assert (row.ledger, row.requests, row.config) == ((), {}, {})
    assert (row.processes[0].queued, row.processes[0].export_failures) == (None, None)


def test_health_checks_are_no_last_request(store: Store) -> None:
    store.write([facts.batch(facts.request(kind="health_check"))], facts.NOW)
    assert _only(store).last_request is None


def test_name_is_service_else_model_else_instance(store: Store) -> None:
    store.write([facts.batch()], facts.NOW)
    assert _only(store).name == "launch"
    store.write([facts.batch(facts.REPORT)], facts.NOW)
    assert _only(store).name == "tiny"
    store.write([facts.batch(facts.request(), service_name="shop")], facts.NOW)
    assert _only(store).name == "shop"
    (request,) = store.requests(RequestFilter(), 10).items
    assert request.engine == "shop"


def test_the_newest_report_and_gauge_count(store: Store) -> None:
    newer = EngineReport(facts.ago_ns(100), "weight_update", "tiny-2", False, {"v": 2})
    store.write([facts.batch(newer), facts.batch(facts.REPORT)], facts.NOW)
    assert (_only(store).model, _only(store).config, _only(store).speculation) == ("tiny-2", {"v": 2}, False)
    store.write([facts.batch(facts.heartbeat(5, speculation=True, queued=1))], facts.NOW)
    store.write([facts.batch(facts.heartbeat(9, speculation=False, queued=99))], facts.NOW)
    assert (_only(store).speculation, _only(store).processes[0].queued) == (True, 1)
    assert store.models("default") == ["tiny", "tiny-2"]


def test_of_ranks_the_lowest_is_what_the_engine_reports(store: Store) -> None:
    """Each tells of its own part of the weights, in an order that is chance; updates come from all."""
    reports = [
        EngineReport(facts.ago_ns(ago), event, "tiny", True, {"rank": rank, "event": event})
        for rank, ago, event in (
            (0, 100, "start"),
            (1, 99, "start"),
            (0, 50, "weight_update"),
            (1, 49, "weight_update"),
        )
    ]
    for number, report in enumerate(reports):
        uid, tp = ("a", "b")[number % 2], number % 2
        store.write([facts.batch(report, process_uid=uid, tp=tp)], facts.NOW)
        assert _only(store).config == {"rank": 0, "event": reports[number - tp].event}


def test_every_change_of_weights_is_kept_with_its_version(store: Store) -> None:
    def change(seconds_ago: float, event: str, weights: Any) -> EngineReport:
        return EngineReport(facts.ago_ns(seconds_ago), event, "tiny", True, {"weights": weights})

    update = change(60, "weight_update", {"version": 1, "event": {"changed": ["fc"]}, "drafts": [{"big": 1}]})
    nonsense = (
        change(50, "lora_load", {"version": True, "event": "x"}),
        change(40, "lora_unload", {"version": -1}),
        change(30, "memory_release", [1]),
        change(20, "memory_resume", {"version": 2**64}),
    )
    store.write([facts.batch(facts.REPORT, update)], facts.NOW)
    store.write([facts.batch(*nonsense, update)], facts.NOW)
    store.write([facts.batch(change(60, "weight_update", {"version": 1}), process_uid="p1", tp=1)], facts.NOW)
    row = store.engine("default", facts.ENGINE, facts.ago(60))
    assert row is not None
    told = [(one.event, one.process_uid, one.weight_version, one.detail) for one in row.events]
    assert told == [
        ("memory_resume", "p0", None, {}),
        ("memory_release", "p0", None, {}),
        ("lora_unload", "p0", None, {}),
        ("lora_load", "p0", None, {}),
        ("weight_update", "p0", 1, {"changed": ["fc"]}),
        ("weight_update", "p1", 1, {}),
        ("start", "p0", None, {}),
    ]
    assert [one.at for one in row.events[:2]] == [facts.ago(20), facts.ago(30)]
    assert _only(store).events == (), "not read for lists"


def test_ranks_of_one_group_see_the_same_requests(store: Store) -> None:
    beat = facts.heartbeat(requests={"user": 5})
    for uid, dp, tp in (("a", 0, 0), ("b", 0, 1), ("c", 1, 0), ("d", 1, 1)):
        store.write([facts.batch(beat, process_uid=uid, dp=dp, tp=tp)], facts.NOW)
    assert _only(store).requests == {"user": 10}


def test_a_clock_that_is_far_off_is_kept_and_flagged(store: Store) -> None:
    store.write([facts.batch(facts.heartbeat(400))], facts.NOW)
    assert _only(store).processes[0].clock_skewed
    # A prompt report shows that only the first one was late.
    store.write([facts.batch(facts.heartbeat(2))], facts.NOW)
    assert not _only(store).processes[0].clock_skewed
    store.write([facts.batch(facts.heartbeat(-4000), process_uid="p1")], facts.NOW)
    assert [process.clock_skewed for process in _only(store).processes] == [False, True]


def test_ledger_in_the_order_of_the_path(store: Store) -> None:
    boundaries = (
        *facts.crossings("engine.commit", "", 4, eager=4),
        *facts.crossings("draft.fc", "target_fed", 5, eager=1, graph=2),
        *facts.crossings("draft.forward", "self_fed", 8, graph=8),
        *facts.crossings("draft.forward", "target_fed", 4, graph=4),
    )
    seen = ("engine.commit", "draft.fc", "draft.forward", "target.verify")
    armed: dict[str, tuple[bool, str]] = dict.fromkeys(seen, (True, ""))
    armed["draft.map"] = (False, "the draft shares the target's vocabulary")
    store.write([facts.batch(facts.heartbeat(boundaries=boundaries, armed=armed))], facts.NOW)
    ledger = _only(store).ledger
    assert ledger == (
        BoundaryState("draft.fc", "target_fed", 5, {"eager": 1, "graph": 2}, True, arming="armed"),
        BoundaryState("draft.forward", "self_fed", 8, {"graph": 8}, True, arming="armed"),
        BoundaryState("draft.forward", "target_fed", 4, {"graph": 4}, True, arming="armed"),
        BoundaryState("draft.map", "", 0, {}, False, "the draft shares the target's vocabulary"),
        BoundaryState("target.verify", "", 0, {}, True, arming="armed"),
        BoundaryState("engine.commit", "", 4, {"eager": 4}, True, arming="armed"),
    )
    assert ledger[0].observed_total == 3


def test_a_blind_process_makes_no_gap(store: Store) -> None:
    told = facts.crossings("draft.fc", "target_fed", 5, eager=5)
    unseen = facts.crossings("draft.fc", "target_fed", 5, eager=0)
    store.write([facts.batch(facts.heartbeat(boundaries=told))], facts.NOW)
    blind = facts.heartbeat(boundaries=unseen, armed={"draft.fc": (False, "symbol missing")})
    store.write([facts.batch(blind, process_uid="p1", tp=1)], facts.NOW)
    assert _only(store).ledger == (
        BoundaryState(
            "draft.fc",
            "target_fed",
            5,
            {"eager": 5},
            True,
            "not seen in 1 of 2 processes: symbol missing",
            "armed",
        ),
    )


def test_why_a_boundary_is_not_armed_is_kept(store: Store) -> None:
    reasons = {
        "draft.fc": "missing",
        "draft.map": "off",
        "target.verify": "failed",
        "draft.propose": "changed",
        "engine.commit": "",
    }
    armed = {name: (False, f"why {name}") for name in reasons} | {"draft.forward": (True, "")}
    told = facts.heartbeat(armed=armed, arming=reasons | {"draft.forward": "armed"})
    store.write([facts.batch(told)], facts.NOW)
    found = {line.boundary: (line.arming, line.armed, line.reason) for line in _only(store).ledger}
    assert found == {name: (state, False, f"why {name}") for name, state in reasons.items()} | {
        "draft.forward": ("armed", True, "")
    }


def test_boundaries_of_which_nothing_is_said_are_not_armed(store: Store) -> None:
    told = facts.crossings("draft.fc", "target_fed", 5, eager=0)
    store.write([facts.batch(facts.heartbeat(boundaries=told, armed={}))], facts.NOW)
    (state,) = _only(store).ledger
    assert not state.armed
    assert "has not said" in state.reason


def test_engines_heard_within_a_day(store: Store) -> None:
    now = datetime.now(UTC)
    store.write([facts.batch(workspace="b")], now)
    store.write([facts.batch(workspace="a")], now - timedelta(hours=23))
    store.write([facts.batch(workspace="c")], now - timedelta(hours=25))
    wanted = [(name, engine_uid(name, "test", "launch")) for name in ("a", "b")]
    assert store.engine_uids() == wanted


@contextmanager
def _statements() -> Generator[list[str], None, None]:
    """Collect every statement that this thread sends to a database: servers of other tests may still run."""
    sent: list[str] = []
    mine = get_ident()

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if get_ident() == mine:
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_queries_do_not_grow_with_engines_or_processes(store: Store) -> None:
    def fill(instance: str, process: str) -> None:
        told = facts.batch(
            facts.REPORT,
            facts.request(f"{instance}{process}"),
            facts.increment(1),
            facts.heartbeat(boundaries=facts.crossings("draft.fc", "target_fed", 3, eager=3)),
            process=replace(facts.PROCESS, instance=instance, process_uid=process),
        )
        store.write([told], facts.NOW)

    fill("one", "p0")
    with _statements() as of_one:
        store.engines("default", facts.ago(60))
        store.requests(RequestFilter(), 100)
    for instance in ("two", "three", "four"):
        for process in ("p0", "p1"):
            fill(instance, process)
    with _statements() as of_many:
        assert len(store.engines("default", facts.ago(60))) == 4
        assert len(store.requests(RequestFilter(), 100).items) == 7
    assert len(of_one) == len(of_many)
