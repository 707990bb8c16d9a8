"""Requests and rollups field by field: what is known stays, totals only grow, an increment counts once."""

from __future__ import annotations

from dataclasses import replace

from specscope_server.store.model import RequestFilter, RequestRow
from specscope_server.store.port import Store
from specscope_server.store.told import RequestTotals
from storekit import facts


def _only(store: Store, workspace: str = "default") -> RequestRow:
    (row,) = store.requests(RequestFilter(workspace=workspace), 10).items
    return row


def test_a_request_reads_back_as_it_was_told(store: Store) -> None:
    store.write([facts.batch(facts.REPORT, facts.request())], facts.NOW)
    row = _only(store)
    assert row == RequestRow(
        uid="u0",
        engine_uid=facts.ENGINE,
        engine="tiny",
        model="tiny",
        rid="rid-u0",
        trace_id="trace-u0",
        state="finished",
        kind="user",
        arrival=facts.ago(20),
        end=facts.ago(18),
        last_received=facts.NOW,
        prompt_tokens=10,
        output_tokens=4,
        cached_tokens=0,
        temperature=0.0,
        max_tokens=16,
        finish_reason="length",
        queue_s=0.25,
        first_token_s=0.5,
        totals=facts.request().totals,
        detail="steps",
    )
    assert row.acceptance_rate == 1 / 9
    assert row.acceptance_length == 4 / 3


def test_a_running_snapshot_after_the_end_takes_nothing_back(store: Store) -> None:
    late = facts.request(
        state="running",
        rid="",
        trace_id="",
        model="",
        end_ns=None,
        prompt_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        temperature=None,
        max_tokens=None,
        finish_reason=None,
        queue_s=None,
        first_token_s=None,
        totals=RequestTotals(verify_steps=1, accepted=0),
    )
    store.write([facts.batch(facts.request())], facts.NOW)
    before = _only(store)
    store.write([facts.batch(late)], facts.NOW)
    assert _only(store) == before


def test_totals_going_backwards_keep_the_largest_of_each(store: Store) -> None:
    told = [
        RequestTotals(verify_steps=9, drafted_depth=27, accepted=3),
        RequestTotals(verify_steps=4, drafted_depth=30, accepted=1, bonus=7),
    ]
    store.write([facts.batch(facts.request(totals=totals)) for totals in told], facts.NOW)
    assert _only(store).totals == RequestTotals(verify_steps=9, drafted_depth=30, accepted=3, bonus=7)


def test_aborted_outlasts_finished_whichever_comes_first(store: Store) -> None:
    for uid, states in (("a", ("aborted", "finished", "running")), ("b", ("running", "finished", "aborted"))):
        for state in states:
            store.write([facts.batch(facts.request(uid, state=state))], facts.NOW)
    assert [row.state for row in store.requests(RequestFilter(), 10).items] == ["aborted", "aborted"]


def test_a_request_first_known_by_a_chunk_is_there_with_its_steps(store: Store) -> None:
    running = facts.request(state="running", end_ns=None, finish_reason=None)
    store.write([facts.batch(running, facts.chunk(steps=[facts.step(1)]))], facts.NOW)
    detail = store.request("default", "u0")
    assert detail is not None
    assert detail.request.rid == "rid-u0"
    assert [row["step"] for row in detail.steps] == [1]


def test_an_increment_counts_once_and_increments_add_up(store: Store) -> None:
    store.write([facts.batch(facts.increment(1)), facts.batch(facts.increment(1))], facts.NOW)
    store.write([facts.batch(facts.increment(1), facts.increment(2))], facts.NOW)
    (point,) = store.series("default", None, facts.ago(60), facts.NOW, 10)
    assert (point.counts.steps, point.counts.accepted) == (6, 2)
    assert point.positions == ((6, 2),)


def test_two_processes_use_the_same_sequence_numbers(store: Store) -> None:
    store.write(
        [facts.batch(facts.increment(1)), facts.batch(facts.increment(1), process_uid="p1", dp=1)], facts.NOW
    )
    (engine,) = store.engines("default", facts.ago(60))
    assert engine.counts is not None
    assert engine.counts.steps == 6


def test_nothing_to_write_writes_nothing(store: Store) -> None:
    store.write([], facts.NOW)
    assert store.engines("default", facts.ago(60)) == []


def test_an_export_is_all_or_nothing(store: Store) -> None:
    bad = replace(facts.increment(2), rows={("all", "", -1): replace(facts.increment(1).rows["all", "", -1])})
    bad.rows["all", "", -1].steps = -1  # type: ignore[index]
    try:
        store.write([facts.batch(facts.request()), facts.batch(bad)], facts.NOW)
    except Exception as error:
        assert "rollup steps is -1" in str(error)
    else:
        raise AssertionError("a negative count was taken")
    assert store.engines("default", facts.ago(60)) == []
