"""Totals of requests against the engine's own counters: compared only where that says something."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from specscope_server.diagnosis.model import Difference, Reconciliation
from specscope_server.store.port import Store
from specscope_server.store.reconcile import SAMPLE, UNSEEN
from specscope_server.store.told import EngineCounts, RequestReport
from storekit import facts

ARMED = {"engine.commit": (True, "")}


def _told(store: Store, *reports: RequestReport, **beat: Any) -> Reconciliation:
    told: dict[str, Any] = {"armed": ARMED} | beat
    store.write([facts.batch(facts.REPORT, *reports, facts.heartbeat(**told))], facts.NOW)
    return _seen(store, 5)


def _seen(store: Store, seconds_later: float) -> Reconciliation:
    found = store.evidence("default", facts.ENGINE, facts.NOW + timedelta(seconds=seconds_later), 60)
    assert found is not None
    return found.reconciliation


def _of(uid: str, steps: int, accepted: int, **changes: Any) -> RequestReport:
    return facts.request(uid, engine=EngineCounts(steps, accepted), **changes)


def test_equal_totals_are_compared_and_nothing_more(store: Store) -> None:
    assert _told(store, _of("a", 3, 1), _of("b", 3, 1, state="aborted")) == Reconciliation(2)


def test_a_request_is_judged_when_a_heartbeat_must_have_told_of_losses(store: Store) -> None:
    assert _told(store, _of("a", 4, 1)).compared == 1
    assert _seen(store, 4.9) == Reconciliation(0)


def test_a_difference_comes_with_both_numbers_newest_first(store: Store) -> None:
    told = _told(store, _of("a", 3, 1), _of("b", 3, 2, arrival_ns=facts.ago_ns(30)), _of("c", 4, 1))
    assert told == Reconciliation(
        3,
        (
            Difference("c", "rid-c", 3, 1, EngineCounts(4, 1)),
            Difference("b", "rid-b", 3, 1, EngineCounts(3, 2)),
        ),
    )


def test_what_the_engine_did_not_count_or_we_did_not_see_is_not_compared(store: Store) -> None:
    running = facts.request("running", state="running", end_ns=None)
    assert _told(store, facts.request("a"), _of("b", 3, 1), running) == Reconciliation(1, (), {UNSEEN: 1})


def test_without_a_commit_that_can_be_seen_nothing_is_compared(store: Store) -> None:
    told = _told(store, _of("a", 9, 9), armed={"engine.commit": (False, "another algorithm")})
    assert told == Reconciliation(0, (), {"engine.commit cannot be seen: another algorithm": 1})


@pytest.mark.parametrize("lost", [{"dropped": {"queue_full": 2}}, {"hook_errors": {"verify": 2}}])
def test_after_a_loss_only_a_smaller_count_of_the_engine_says_something(
    store: Store, lost: dict[str, Any]
) -> None:
    told = _told(store, _of("equal", 3, 1), _of("more", 4, 2), _of("less", 3, 0), **lost)
    assert [one.uid for one in told.differing] == ["less"]
    assert told.compared == 2
    ((reason, count),) = told.not_compared.items()
    assert count == 1 and "since its start" in reason


def test_spans_lost_on_the_way_leave_totals_whole(store: Store) -> None:
    told = _told(store, _of("more", 4, 2), dropped={"buffer_full": 5})
    assert [one.uid for one in told.differing] == ["more"]


def test_one_process_that_lost_records_does_not_excuse_another(store: Store) -> None:
    other = replace(facts.PROCESS, process_uid="p1", dp=1)
    store.write([facts.batch(_of("b", 4, 1), facts.heartbeat(armed=ARMED), process=other)], facts.NOW)
    told = _told(store, _of("a", 4, 1), dropped={"queue_full": 1})
    assert [one.uid for one in told.differing] == ["b"]


def test_a_long_request_that_ended_in_the_window_counts_and_an_old_one_does_not(store: Store) -> None:
    old = _of("old", 4, 1, arrival_ns=facts.ago_ns(900))
    store.write([facts.batch(old)], facts.ago(800))
    told = _told(store, _of("long", 4, 1, arrival_ns=facts.ago_ns(900)))
    assert [one.uid for one in told.differing] == ["long"]
    assert told.compared == 1


def test_differences_are_found_behind_a_thousand_newer_requests(store: Store) -> None:
    newer = [_of(f"n{n}", 3, 1, arrival_ns=facts.ago_ns(10) + n) for n in range(SAMPLE)]
    told = _told(store, _of("lie", 3, 2, arrival_ns=facts.ago_ns(40)), *newer)
    assert [one.uid for one in told.differing] == ["lie"]
    assert told.compared == SAMPLE


def test_a_request_reads_back_with_what_its_engine_counted(store: Store) -> None:
    store.write([facts.batch(facts.request("running", engine=None), _of("a", 3, 2))], facts.NOW)
    detail = store.request("default", "a")
    assert detail is not None and detail.request.engine_counts == EngineCounts(3, 2)
    other = store.request("default", "running")
    assert other is not None and other.request.engine_counts is None
    # A later snapshot that does not tell them takes nothing back.
    store.write([facts.batch(facts.request("a", engine=None))], facts.NOW)
    again = store.request("default", "a")
    assert again is not None and again.request.engine_counts == EngineCounts(3, 2)
