"""The mark of an engine moves with everything that it tells, but for that it is alive."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from specscope_server.store.model import ExpectationRow, ExpectationScope, Heard
from specscope_server.store.port import Store
from storekit import facts

SINCE = facts.ago(900)
BEAT = facts.heartbeat(
    boundaries=facts.crossings("draft.fc", "target_fed", 5, eager=5), requests={"user": 1}, engine_thread_ns=7
)


def told(store: Store) -> dict[str, int]:
    return {one.engine_uid: one.told for one in store.heard(SINCE)}


def later(seconds: float, *parts: Any, **process: Any) -> tuple[Any, Any]:
    return facts.batch(*parts, **process), facts.NOW + timedelta(seconds=seconds)


@pytest.fixture
def both(stores: tuple[Store, Store]) -> tuple[Store, Store]:
    """Two stores whose engines were all heard within a day of facts.NOW."""
    for store in stores:
        store._clock = lambda: facts.NOW_NS + 60 * facts.SECOND  # type: ignore[attr-defined]
        store.write([facts.batch(facts.REPORT, BEAT, facts.request(), facts.increment(1))], facts.NOW)
        store.write([facts.batch(facts.REPORT, BEAT, instance="other", process_uid="p9")], facts.NOW)
    return stores


_SECONDS = count(1)


def beat(**changes: Any) -> Any:
    """A sign of life that is newer than those before."""
    return facts.heartbeat(-next(_SECONDS), **changes)


NEWS: dict[str, Any] = {
    "steps": facts.increment(2),
    "steps told late": facts.increment(0, 200),
    "hidden states alone": facts.hidden_increment(3),
    "another request": facts.request("u1"),
    "a request once more": facts.request(state="finished", output_tokens=5),
    "a chunk": facts.chunk(steps=[facts.step(0)]),
    "an earlier chunk": facts.chunk(
        seq=1, steps=[facts.step(0)], start_ns=facts.ago_ns(90), end_ns=facts.ago_ns(80)
    ),
    "ranks": facts.rank_steps(4),
    "an event": replace(facts.REPORT, event_ns=facts.ago_ns(3), event="weight_update"),
    "crossings": beat(boundaries=facts.crossings("draft.fc", "target_fed", 6, eager=5)),
    "another mode": beat(boundaries=facts.crossings("draft.fc", "target_fed", 6, eager=5, graph=0)),
    "a boundary that can be seen no longer": beat(armed={"draft.fc": (False, "gone")}),
    "speculation switched off": beat(speculation=False),
    "dropped": beat(dropped={"queue_full": 1}),
    "hook errors": beat(hook_errors={"draft.fc": 1}),
    "passes": beat(passes={"step|1": 4}, pass_ns={"step|1": 4000}),
}  # fmt: skip


def test_what_is_told_moves_the_mark_of_its_engine_alone(both: tuple[Store, Store]) -> None:
    for store in both:
        for seconds, (what, news) in enumerate(NEWS.items(), start=1):
            before = told(store)
            batch, at = later(seconds, news)
            store.write([batch], at)
            after = told(store)
            assert {uid for uid in before if before[uid] != after[uid]} == {facts.ENGINE}, what
            store.write([batch], at)
            assert told(store) == after, f"{what}: told twice is told once"


def test_another_process_moves_the_mark(both: tuple[Store, Store]) -> None:
    for store in both:
        before = told(store)
        batch, at = later(2, facts.heartbeat(), process_uid="p1", tp=1)
        store.write([batch], at)
        assert told(store)[facts.ENGINE] != before[facts.ENGINE]


def test_a_sign_of_life_moves_when_it_was_heard_alone(both: tuple[Store, Store]) -> None:
    for store in both:
        before = store.heard(SINCE)
        beat = replace(BEAT, event_ns=facts.NOW_NS + facts.SECOND, queued=3, engine_thread_ns=8)
        batch, at = later(2, beat)
        store.write([batch], at)
        after = store.heard(SINCE)
        assert {one.told for one in after} == {one.told for one in before}
        assert max(one.last_received for one in after) == at > max(one.last_received for one in before)


def test_a_sign_of_life_after_the_end_moves_the_mark(both: tuple[Store, Store]) -> None:
    for store in both:
        batch, at = later(1, replace(BEAT, ended_ns=facts.NOW_NS))
        store.write([batch], at)
        before = told(store)
        batch, at = later(3, BEAT)
        store.write([batch], at)
        assert told(store)[facts.ENGINE] != before[facts.ENGINE]


def test_what_people_say_moves_the_marks_of_their_workspace(both: tuple[Store, Store]) -> None:
    for store in both:
        store.write([facts.batch(facts.REPORT, workspace="another")], facts.NOW)
        before: list[Heard] = store.heard(SINCE)
        row = ExpectationRow(ExpectationScope(), "declared", (0.7,), 0, None, "ann", facts.NOW, "", None)
        store.set_expectation("default", row)
        after = store.heard(SINCE)
        moved = {b.workspace for a, b in zip(before, after, strict=True) if a.told != b.told}
        assert moved == {"default"}
        store.clear_expectations("default", row.scope)
        assert [one.told for one in store.heard(SINCE)] == [one.told for one in before]


def test_only_engines_of_the_last_day_are_heard(both: tuple[Store, Store]) -> None:
    for store in both:
        store.write([facts.batch(facts.REPORT, instance="old", process_uid="p8")], facts.ago(90_000))
        assert [one.workspace for one in store.heard(SINCE)] == ["default", "default"]
        assert [(one.workspace, one.engine_uid) for one in store.heard(SINCE)] == store.engine_uids()
