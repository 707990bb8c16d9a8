"""One request: steps and draft extends unpacked, paged, joined over processes, and damage survived."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from specscope.chunks import pack_boundaries
from specscope_server.store.model import BoundaryState, RequestDetail
from specscope_server.store.port import Store
from specscope_server.store.told import RequestTotals
from storekit import facts


def _detail(store: Store, first_step: int = 0, limit: int = 2000) -> RequestDetail:
    found = store.request("default", "u0", first_step, limit)
    assert found is not None
    return found


def test_unknown_requests_are_none(store: Store) -> None:
    assert store.request("default", "nobody") is None


def test_a_request_without_chunks_has_its_summary(store: Store) -> None:
    store.write([facts.batch(facts.request(), detail="summary")], facts.NOW)
    detail = _detail(store)
    assert (detail.steps, detail.extends, detail.boundaries) == ((), (), ())
    assert (detail.steps_total, detail.request.detail) == (3, "summary")


def test_steps_and_extends_read_back_with_what_was_recorded(store: Store) -> None:
    steps = [facts.step(1, draft_tokens=[5, 6, 7], parents=[-1, 0, 1]), facts.step(2, accepted=0)]
    extends = [facts.extend(1, after="prefill", rms=1.5), facts.extend(1), facts.extend(2, fc_ran=None)]
    store.write([facts.batch(facts.request(), facts.chunk(steps=steps, extends=extends))], facts.NOW)
    detail = _detail(store)
    assert [(row["index"], row["step"], row["accepted"]) for row in detail.steps] == [(0, 1, 1), (1, 2, 0)]
    assert detail.steps[0]["draft_tokens"] == [5, 6, 7]
    assert "draft_tokens" not in detail.steps[1]
    assert [(row["after"], row["step"]) for row in detail.extends] == [
        ("prefill", 1),
        ("verify", 1),
        ("verify", 2),
    ]
    assert detail.extends[0]["rms"] == 1.5
    assert "fc_ran" not in detail.extends[2]


def test_pages_of_steps_read_only_the_chunks_they_need(store: Store) -> None:
    chunks = [facts.chunk(seq=n, steps=[facts.step(64 * n + i) for i in range(64)]) for n in range(3)]
    chunks.append(facts.chunk(seq=3, steps=[facts.step(192)]))
    totals = RequestTotals(verify_steps=193)
    store.write([facts.batch(facts.request(totals=totals), *reversed(chunks))], facts.NOW)
    for first, limit, wanted in (
        (0, 2000, range(193)),
        (0, 64, range(64)),
        (60, 10, range(60, 70)),
        (64, 64, range(64, 128)),
        (191, 5, range(191, 193)),
        (193, 5, range(0)),
        (5000, 5, range(0)),
    ):
        detail = _detail(store, first, limit)
        assert [row["index"] for row in detail.steps] == list(wanted)
        assert detail.steps_total == 193


def test_a_damaged_chunk_is_missing_and_said_so(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    good = facts.chunk(seq=0, steps=[facts.step(1)], extends=[facts.extend(1)])
    whole = facts.chunk(seq=1, steps=[facts.step(2)])
    cut = replace(whole, steps=whole.steps[:-3])
    foreign = replace(whole, seq=2, steps=b"SPSC\x01".ljust(40, b"\xff"), extends=b"nonsense")
    store.write([facts.batch(facts.request(), good, cut, foreign)], facts.NOW)
    with caplog.at_level(logging.WARNING):
        detail = _detail(store)
    assert [row["step"] for row in detail.steps] == [1]
    assert len(detail.extends) == 1
    assert detail.steps_total == 3
    assert [record.message.split(" cannot")[0] for record in caplog.records] == [
        "request u0: steps of chunk 1 of process p0",
        "request u0: steps of chunk 2 of process p0",
        "request u0: extends of chunk 2 of process p0",
    ]


def test_what_two_processes_tell_of_one_step_is_one_row(store: Store) -> None:
    scheduler = facts.chunk(steps=[facts.step(7, accepted=2)])
    worker = facts.chunk(steps=[facts.step(7, accepted=9, draft_tokens=[1, 2, 3], t=facts.ago_ns(1))])
    store.write([facts.batch(facts.request(), scheduler)], facts.NOW)
    store.write([facts.batch(worker, process_uid="p1", role="worker")], facts.NOW)
    (row,) = _detail(store).steps
    assert (row["accepted"], row["draft_tokens"]) == (2, [1, 2, 3])


def test_own_boundaries_with_what_the_process_can_see(store: Store) -> None:
    blob = pack_boundaries(
        {("draft.fc", "target_fed"): 3, ("draft.map", ""): 2},
        {("draft.fc", "target_fed", "graph"): 1, ("draft.forward", "self_fed", "eager"): 5},
    )
    armed = {"draft.fc": (True, ""), "draft.map": (False, "no such symbol"), "draft.forward": (True, "")}
    store.write([facts.batch(facts.request(boundaries=blob), facts.heartbeat(armed=armed))], facts.NOW)
    assert _detail(store).boundaries == (
        BoundaryState("draft.fc", "target_fed", 3, {"graph": 1}, True, arming="armed"),
        BoundaryState("draft.forward", "self_fed", 0, {"eager": 5}, True, arming="armed"),
        BoundaryState("draft.map", "", 2, {}, False, "no such symbol"),
    )


def test_damaged_boundaries_do_not_break_the_page(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.write([facts.batch(facts.request(boundaries=b"junk"))], facts.NOW)
    assert _detail(store).boundaries == ()
    assert "its boundary counts cannot be read" in caplog.text
