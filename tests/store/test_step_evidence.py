"""What the newest steps, slices, minutes and events tell the diagnosis, on both databases, by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from specscope.rollup import Counts
from specscope_server.diagnosis.model import Evidence
from specscope_server.diagnosis.step_evidence import AFTER, LENGTH, PREFIX, REQUEST, SINCE_PREFILL
from specscope_server.store.port import Store
from storekit import facts


def _evidence(store: Store, window_s: float = 300) -> Evidence:
    found = store.evidence("default", facts.ENGINE, facts.NOW, window_s)
    assert found is not None
    return found


ROWS = [
    # accepted all it drafted, then nothing twice; the last drafted nothing
    facts.step(0, context=10, accepted=3, committed=4, ids_min=5, ids_max=40, ids_mode_share=0.5,
               ids_even_share=1.0, ids_below_zero=0, ids_above_vocab=0, ids_repeats_last=1,
               shift_hits=[0, 1, 3, 0, 0], shift_of=[1, 2, 3, 2, 1], draft_top1=[9000, 8000, -1],
               draft_entropy=[500, 700, -1]),
    facts.step(1, context=14, accepted=0, committed=1, ids_min=-1, ids_max=9, ids_mode_share=1.0,
               ids_even_share=0.0, ids_below_zero=2, ids_above_vocab=1, ids_repeats_last=0,
               shift_hits=[0, 2, 0, 0, 0], shift_of=[1, 2, 3, 2, 1], draft_top1=[5000, 4000, 1000],
               draft_entropy=[1500, 1700, 2000], target_rank=4, target_prob=0.25, draft_prob=0.5,
               outside_draft_vocab=1),
    facts.step(2, context=15, accepted=0, committed=1, weight_version=1, target_rank=8, target_prob=0.75,
               outside_draft_vocab=0),
    facts.step(3, context=16, drafted_depth=0, drafted_nodes=0, accepted=0, committed=1),
    facts.step(4, context=17, accepted=2, overshoot=1),
]  # fmt: skip


@pytest.fixture
def told(store: Store) -> Store:
    chunks = [facts.chunk("u0", steps=ROWS), facts.chunk("check", steps=ROWS)]
    asked = replace(facts.request("u0"), cached_tokens=7)
    check = replace(facts.request("check"), kind="health_check")
    store.write([facts.batch(asked, check, *chunks)], facts.NOW)
    return store


def test_single_proposals_by_hand(told: Store) -> None:
    found = _evidence(told).steps
    assert (found.steps, found.requests) == (4, 1), "neither a health check nor what ran after the end"
    ids = found.ids
    assert ids is not None
    assert (ids.steps, ids.nodes, ids.smallest, ids.largest) == (2, 6, -1, 40)
    assert (ids.mode_share, ids.even_share, ids.below_zero, ids.above_vocab) == (0.75, 0.5, 2, 1)
    assert (ids.repeats_last, ids.outside_draft_vocab) == (0.5, 0.5)
    assert (ids.distinct, ids.same_mode, ids.mode_id) == (None, None, None), "ids were not recorded"
    assert [(one.offset, one.hits, one.of) for one in found.shifts] == [
        (-2, 0, 2), (-1, 3, 4), (0, 3, 6), (1, 0, 4), (2, 0, 2),
    ]  # fmt: skip
    first, second, third = found.certainty
    assert (first.position, first.steps, first.drafted, first.accepted) == (0, 2, 2, 1)
    assert (first.top1, first.entropy) == (pytest.approx(0.7), pytest.approx(1.0))
    assert (second.steps, second.drafted, second.accepted) == (2, 1, 1), "after an accepted one alone"
    assert (third.steps, third.drafted) == (1, 0), "-1 is not known"
    refusal = found.refusal
    assert refusal is not None
    assert (refusal.steps, refusal.target_rank, refusal.target_prob, refusal.draft_prob) == (2, 6.0, 0.5, 0.5)


def test_where_in_a_request(told: Store) -> None:
    slices = _evidence(told).steps.slices
    steps = {name: {value: one.steps for value, one in told.items()} for name, told in slices.items()}
    assert steps[SINCE_PREFILL] == {"0": 1, "1": 1, "2-3": 2}
    assert steps[AFTER] == {"first": 1, "all": 1, "none": 2}
    assert steps[LENGTH] == {"8-15": 3, "16-31": 1}
    assert steps[PREFIX] == {"cached": 4}
    assert steps[REQUEST] == {"first": 4}
    assert slices[AFTER]["all"].zero_steps == 1
    versions = _evidence(told).steps.versions
    assert {version: one.steps for version, one in versions.items()} == {0: 3, 1: 1}
    assert _evidence(told).steps.undrafted == {"16-31": 1}


def test_recorded_ids(store: Store) -> None:
    rows = [facts.step(n, ids_min=3, ids_max=4, draft_tokens=[3, 3, 4]) for n in range(3)]
    store.write([facts.batch(facts.request(), facts.chunk(steps=rows))], facts.NOW)
    ids = _evidence(store).steps.ids
    assert ids is not None
    assert (ids.distinct, ids.mode_id, ids.same_mode) == (2, 3, pytest.approx(2 / 3))


def test_a_later_chunk_does_not_know_the_step_before_it(store: Store) -> None:
    chunk = facts.chunk("u0", 1, steps=[facts.step(64), facts.step(65)])
    store.write([facts.batch(facts.request(), chunk)], facts.NOW)
    slices = _evidence(store).steps.slices
    assert {value: one.steps for value, one in slices[AFTER].items()} == {"some": 1}
    assert {value: one.steps for value, one in slices[SINCE_PREFILL].items()} == {"64-127": 2}


def test_what_cannot_be_read_is_left_out(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    good = facts.chunk("u0", 0, steps=[facts.step(0)])
    damaged = replace(facts.chunk("u0", 1, steps=[facts.step(64)]), steps=good.steps[:-3])
    store.write([facts.batch(facts.request(), good, damaged)], facts.NOW)
    assert _evidence(store).steps.steps == 1
    assert "steps of chunk 1 cannot be read" in caplog.text


def test_slices_and_minutes(store: Store) -> None:
    store.write(
        [facts.batch(facts.increment(1), facts.increment(2), facts.increment(3, bucket_ago=3600))], facts.NOW
    )
    found = _evidence(store)
    told = Counts(steps=6, drafted_depth=18, accepted=2, bonus=6, zero_steps=4)
    [one] = found.slices
    assert (one.dimension, one.value, one.counts) == ("context", "8-15", told)
    before, now = found.history
    assert now.start - before.start == 3600 - 60 * ((now.start - before.start) // 60 < 60)
    assert (now.counts, now.positions) == (told, ((6, 2),))
    assert now.mix == {"context=8-15": 6}
    [long] = _evidence(store, 7200).slices
    assert long.counts.steps == 9
    assert _evidence(store, 7200).counts == replace(
        told, steps=9, drafted_depth=27, accepted=3, bonus=9, zero_steps=6
    )


def test_nothing_told_is_empty(store: Store) -> None:
    store.write([facts.batch(facts.heartbeat())], facts.NOW)
    found = _evidence(store)
    assert (found.steps.steps, found.steps.ids, found.slices, found.history, found.events) == (
        0,
        None,
        (),
        (),
        (),
    )


def test_events_say_what_they_changed(store: Store) -> None:
    def event(ago: float, name: str, config: dict[str, Any]) -> Any:
        at = facts.NOW - timedelta(seconds=ago)
        return replace(facts.REPORT, event_ns=facts.to_ns(at), event=name, config=config)

    start = {"arguments": {"topk": 1, "steps": 4}, "model": "a"}
    update = {
        **start,
        "weights": {"version": 3, "event": {"changed": ["draft 0: fc.weight", "draft 0: midlayer"]}},
    }
    other = {"arguments": {"topk": 2, "steps": 4}, "model": "b"}
    told = [event(900, "start", start), event(600, "weight_update", update), event(60, "start", other)]
    store.write([facts.batch(*told)], facts.NOW)
    events = _evidence(store).events
    assert [(one.name, one.changed) for one in events] == [
        ("start", ()),
        ("weight_update", ("draft weights",)),
        ("start", ("arguments.topk", "model")),
    ]
    assert [events[2].at - one.at for one in events] == [pytest.approx(n) for n in (840, 540, 0)]
