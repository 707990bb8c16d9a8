"""What references tell of an engine as evidence: what is said, when it is compared again, what it costs."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from specscope import hidden, reference_file
from specscope.reference_file import Facts
from specscope_server.diagnosis import aux_layers, deviation, diagnose
from specscope_server.diagnosis.engine_evidence import ReferenceEvidence
from specscope_server.store import reference_evidence
from specscope_server.store.port import Store
from specscope_server.store.told import Batch
from sqlalchemy import Engine, event
from storekit import facts, references
from storekit.reference_requests import healthy, told
from storekit.references import FACTS, TARGET, passage, rows, states

AGAIN_S = reference_evidence.AGAIN_NS / 1e9


def refer(store: Store, uid: str = "r0", about: Facts = FACTS) -> None:
    file = references.file(passage(states(), name="whole"), facts=about)
    _, sequences = reference_file.read(file.splitlines())
    store.add_reference("default", uid, about, sequences, 1, facts.ago(60))


def compared(
    store: Store, later: float = 0, window_s: float = 300, engine: str = facts.ENGINE
) -> tuple[ReferenceEvidence, ...]:
    found = store.evidence("default", engine, facts.NOW + timedelta(seconds=later), window_s)
    assert found is not None
    return found.reference


def at(batch: Batch, ago: float) -> Batch:
    """Return the requests of a batch as of ``ago`` seconds before now, when they arrive."""
    requests = [replace(one, arrival_ns=facts.ago_ns(ago)) for one in batch.requests]
    chunks = [replace(one, start_ns=facts.ago_ns(ago), end_ns=facts.ago_ns(ago) + 1) for one in batch.chunks]
    return replace(batch, requests=tuple(requests), chunks=tuple(chunks))


@contextmanager
def queries() -> Generator[list[str]]:
    """Collect the queries that are asked."""
    found: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def hidden_reads(asked: list[str]) -> int:
    """Return how many queries read the hidden states of one request."""
    return sum("step_chunk.hidden" in one and "step_chunk.uid =" in one for one in asked)


def test_a_healthy_engine_is_its_reference(store: Store) -> None:
    refer(store)
    store.write([healthy("u0"), healthy("u1")], facts.NOW)
    found = compared(store)
    assert [(one.place, one.slot, one.after, one.rows, one.reference) for one in found] == [
        (hidden.FED, slot, after, rows, "r0")
        for after, rows in (("", 120), ("prefill", 40), ("verify", 80))
        for slot in range(3)
    ]
    for one in found:
        assert one.relative_error < 0.02
        assert one.scale == pytest.approx(1, abs=0.01)
        assert one.cosine == pytest.approx(1, abs=0.001)
        assert set(one.shifted) == {-1, 1} and min(one.shifted.values()) > 0.3
        assert set(one.other_slots) == {0, 1, 2} - {one.slot} and min(one.other_slots.values()) > 0.3
    said = deviation.of_reference(found, hidden.FED, deviation.NOTICED)
    assert said is not None and said.kind == deviation.SAME


def swapped() -> references.States:
    return states()[:, [1, 0, 2]]


def before() -> references.States:
    return np.roll(states(), 1, axis=0)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (swapped(), deviation.ORDER),
        (before(), deviation.SHIFTED),
        (0.5 * states(), deviation.SCALED),
        (states(seed=4), deviation.OTHER),
    ],
)
def test_what_is_wrong_is_told_as_the_rules_want_it(
    store: Store, wrong: references.States, kind: str
) -> None:
    refer(store)
    store.write([told("u0", rows(wrong)), told("u1", rows(wrong, hidden.AUX_CAPTURE))], facts.NOW)
    found = compared(store)
    for place in (hidden.AUX_CAPTURE, hidden.FED):
        said = deviation.of_reference(found, place, deviation.NOTICED)
        assert said is not None
        if kind == deviation.OTHER:
            assert said.kind in (deviation.OTHER, deviation.OTHER_ROWS, deviation.ROTATED)
        else:
            assert said.kind == kind
    if kind == deviation.SCALED:
        assert [one.cosine for one in found] == pytest.approx([1.0] * len(found), abs=1e-4)


def test_a_rule_names_the_order(store: Store) -> None:
    refer(store)
    store.write([told("u0", rows(swapped()))], facts.NOW)
    (found,) = [
        one
        for one in diagnose(store.evidence("default", facts.ENGINE, facts.NOW, 300)).findings
        if one.kind == aux_layers.KIND
    ]
    assert (found.fault_class, found.confidence) == ("F05", "certain")
    assert "slot 0 holds what slot 1 should, slot 1 holds what slot 0 should" in found.sentence


def test_a_reference_of_another_target_tells_nothing(store: Store) -> None:
    refer(store, about=replace(FACTS, target=replace(TARGET, layers=12)))
    store.write([healthy()], facts.NOW)
    with queries() as asked:
        assert compared(store) == ()
    assert hidden_reads(asked) == 0


def test_no_reference_costs_a_look_for_one(store: Store) -> None:
    store.write([healthy()], facts.NOW)
    with queries() as asked:
        assert compared(store) == ()
    assert hidden_reads(asked) == 0
    about = [one for one in asked if "reference" in one]
    assert about and not [one for one in about if "facts" in one or "reference_sequence" in one]


def test_a_level_without_fingerprints_is_not_read(store: Store) -> None:
    refer(store)
    store.write([replace(healthy(), process=replace(facts.PROCESS, detail="tokens"))], facts.NOW)
    with queries() as asked:
        assert compared(store) == ()
    assert hidden_reads(asked) == 0


def test_only_requests_of_the_window_are_compared(store: Store) -> None:
    refer(store)
    store.write([at(healthy("old", scale=0.5), 200), at(healthy("new"), 20)], facts.NOW)
    assert compared(store)[0].rows == 120
    judged = compared(store, window_s=100)
    assert judged[0].rows == 60
    assert judged[0].relative_error < 0.02
    assert compared(store, window_s=10) == ()


def test_it_is_compared_again_when_there_is_more_but_not_at_once(store: Store) -> None:
    refer(store)
    store.write([healthy("u0")], facts.NOW)
    first = compared(store)
    assert first[0].rows == 60
    with queries() as asked:
        assert compared(store, 200) == first
    assert hidden_reads(asked) == 0
    store.write([healthy("u1", scale=0.9)], facts.NOW)
    second = compared(store, 200)
    assert second[0].rows == 120
    store.write([healthy("u2")], facts.NOW)
    with queries() as asked:
        assert compared(store, 200 + AGAIN_S - 1) == second
    assert hidden_reads(asked) == 0
    assert compared(store, 200 + AGAIN_S)[0].rows == 180


def test_a_reference_that_comes_or_goes_counts_at_once(store: Store) -> None:
    store.write([healthy()], facts.NOW)
    assert compared(store) == ()
    refer(store)
    assert {one.reference for one in compared(store)} == {"r0"}
    store.delete_reference("default", "r0")
    assert compared(store) == ()
    refer(store, "r1")
    assert {one.reference for one in compared(store)} == {"r1"}


def test_what_left_the_window_is_told_no_longer(store: Store) -> None:
    refer(store)
    store.write([at(healthy("old", scale=0.5), 95), at(healthy("new"), 20)], facts.NOW)
    assert compared(store, window_s=100)[0].rows == 120
    assert compared(store, 6, window_s=100)[0].rows == 60


def test_more_of_a_running_request_is_something_new(store: Store) -> None:
    refer(store)
    looks = rows(states())
    begun = told("u0", [one for one in looks if one.position < 40])
    store.write([begun], facts.NOW)
    assert compared(store)[0].rows == 40
    more = facts.chunk("u0", 1, looks=[one for one in looks if one.position >= 40], end_ns=facts.ago_ns(1))
    store.write([facts.batch(more, detail="full")], facts.NOW)
    assert compared(store, AGAIN_S)[0].rows == 60


def test_who_asks_meanwhile_waits_for_the_same_answer(store: Store) -> None:
    refer(store)
    store.write([healthy(f"u{number}") for number in range(5)], facts.NOW)
    found: list[tuple[ReferenceEvidence, ...]] = []
    with queries() as asked:
        threads = [threading.Thread(target=lambda: found.append(compared(store))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4 and len(set(map(str, found))) == 1
    assert hidden_reads(asked) == 5


def test_pages_and_evaluator_share_one_comparison(store: Store) -> None:
    refer(store)
    store.write([healthy()], facts.NOW)
    first = compared(store)
    with queries() as asked, store.snapshot() as reads:
        again = reads.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert again is not None and again.reference == first
    assert hidden_reads(asked) == 0


def test_it_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_evidence, "MAX_KEPT", 2)
    refer(store)
    store.write([healthy()], facts.NOW)
    for window_s in (100, 200, 300):
        compared(store, window_s=window_s)
    for window_s, reads in ((300, 0), (200, 0), (100, 1)):
        with queries() as asked:
            compared(store, window_s=window_s)
        assert hidden_reads(asked) == reads
