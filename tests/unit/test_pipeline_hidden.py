"""Hidden states and prompts through the pipeline: which chunk, which rollup, and in bounded memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from specscope import chunks, hidden, hidden_rollup, rollup
from specscope import convention as c
from specscope import records as r
from specscope.exporter import hidden_rows
from specscope.exporter import pipeline as pipeline_module
from specscope.exporter.pipeline import HIDDEN_KEYS, SECOND, Pipeline
from specscope.hidden import HiddenRow
from wirekit import traffic
from wirekit.traffic import MONOTONIC, MS, uid


class Run:
    """A pipeline and what came out of it."""

    def __init__(self, detail: str = c.DETAIL_FULL) -> None:
        self.spans: list[ReadableSpan] = []
        self.pipeline = Pipeline(traffic.hello(detail), self.spans.append)

    def take(self, records: Iterable[r.Record]) -> Run:
        for record in records:
            self.pipeline.take(record, record.t_ns)
        return self

    def end(self) -> Run:
        self.pipeline.tick(MONOTONIC + 1000 * SECOND, last=True)
        return self

    def named(self, name: str, request: str | None = None) -> list[dict[str, Any]]:
        found = [dict(s.attributes or {}) for s in self.spans if s.name == name]
        return [a for a in found if request is None or a[c.REQUEST_UID] == uid(request)]

    def hidden(self, request: str) -> list[list[HiddenRow]]:
        """Rows by chunk."""
        found = self.named(c.SPAN_STEPS, request)
        return [hidden.unpack(a[c.CHUNK_HIDDEN]) for a in found if c.CHUNK_HIDDEN in a]

    def sums(self) -> dict[hidden_rollup.Key, hidden_rollup.Sums]:
        total: dict[hidden_rollup.Key, hidden_rollup.Sums] = {}
        for span in self.named(c.SPAN_ROLLUP):
            for key, sums in hidden_rollup.unpack(span.get(c.ROLLUP_HIDDEN, _NO_SUMS)).items():
                total.setdefault(key, hidden_rollup.Sums()).add(sums)
        return total


_NO_SUMS = hidden_rollup.pack({})
FED = ("draft.extend", "target_fed", 0, 0, "verify", "eager")


def a_pass(step: int, *looks: r.HiddenLook, name: str = "a", after: str = "verify") -> r.HiddenPass:
    return r.HiddenPass(MONOTONIC + step * MS, step, after, "eager", (uid(name),), (10 * step,), looks)


def a_look(place: str = hidden.FED, *, mean: float = 0.5, slots: int = 1, rows: int = 1) -> r.HiddenLook:
    data = struct.pack("<6f", mean, 4.0, 8.0, 0.0, 0.0, 0.0) * rows * slots
    return r.HiddenLook(place, c.TARGET_FED, 0, slots, (0,), (rows,), data)


def test_every_level_but_summary_tells_hidden_states() -> None:
    for detail in c.DETAIL_LEVELS:
        run = Run(detail).take(traffic.story()).end()
        assert bool(run.hidden("long")) == (detail != c.DETAIL_SUMMARY)
        assert bool(run.sums()) == (detail != c.DETAIL_SUMMARY)


def test_a_health_check_has_rows_and_is_in_no_sums() -> None:
    run = Run().take(traffic.started("a", MONOTONIC, kind=kind) for kind in (c.KIND_HEALTH_CHECK,))
    run.take([traffic.started("b", MONOTONIC), a_pass(1, a_look()), a_pass(1, a_look(), name="b")]).end()
    assert [len(run.hidden(name)) for name in ("a", "b")] == [1, 1]
    assert {key: sums.looks for key, sums in run.sums().items()} == {FED: 1}


def test_sums_are_over_what_was_told() -> None:
    run = Run().take([traffic.started("a", MONOTONIC)])
    run.take(a_pass(step, a_look(mean=step, rows=step)) for step in (1, 2, 3)).end()
    (sums,) = run.sums().values()
    assert (sums.looks, sums.rows, sums.levelled, sums.nonfinite) == (3, 6, 3, 0)
    assert sums.sum == 1 * 1 + 2 * 2 + 3 * 3
    assert sums.sum_square == 5 * 1 + 8 * 2 + 13 * 3
    assert sums.max_abs == 8.0
    rows = [row for chunk in run.hidden("a") for row in chunk]
    assert [(row.step, row.rows, row.mean, row.std) for row in rows] == [
        (1, 1, 1.0, 2.0),
        (2, 2, 2.0, 2.0),
        (3, 3, 3.0, 2.0),
    ]


def test_a_bucket_with_looks_alone_has_a_rollup_and_one_without_has_no_sums() -> None:
    run = Run().take([traffic.started("a", MONOTONIC), a_pass(1, a_look())])
    run.pipeline.tick(MONOTONIC + 2 * SECOND)
    (span,) = run.named(c.SPAN_ROLLUP)
    assert rollup.unpack(span[c.ROLLUP_ROWS]) == {}
    assert hidden_rollup.unpack(span[c.ROLLUP_HIDDEN])[FED].looks == 1
    run.take([traffic.verify(2, MONOTONIC + 3 * SECOND, ("a",))])
    run.pipeline.tick(MONOTONIC + 5 * SECOND)
    _, second = run.named(c.SPAN_ROLLUP)
    assert c.ROLLUP_HIDDEN not in second
    assert second[c.ROLLUP_SEQ] > span[c.ROLLUP_SEQ]


def test_a_late_look_is_told_and_the_draft_extend_is_not_guessed() -> None:
    run = Run().take([traffic.started("a", MONOTONIC)])
    run.take([traffic.extend(1, MONOTONIC + MS, ("a",)), a_pass(1, a_look())])
    run.take([a_pass(2, a_look()), traffic.extend(2, MONOTONIC + 2 * MS, ("a",))]).end()
    extends = chunks.unpack_extends(run.named(c.SPAN_STEPS, "a")[0][c.CHUNK_EXTENDS])
    assert [(row.step, row.rows, row.rms) for row in extends] == [
        (1, None, None),
        (2, 1, pytest.approx(4.25**0.5, rel=2**-11)),
    ]
    assert [row.step for chunk in run.hidden("a") for row in chunk] == [1, 2]


def test_looks_after_the_end_of_a_request_are_told() -> None:
    run = Run().take([traffic.started("a", MONOTONIC), traffic.verify(1, MONOTONIC, ("a",))])
    run.take([traffic.finished("a", MONOTONIC + MS, 3), a_pass(1, a_look())]).end()
    first, second = run.named(c.SPAN_STEPS, "a")
    assert c.CHUNK_HIDDEN not in first and c.CHUNK_STEPS not in second
    assert [s[c.CHUNK_SEQ] for s in (first, second)] == [0, 1]
    assert [row.step for row in hidden.unpack(second[c.CHUNK_HIDDEN])] == [1]


@pytest.mark.parametrize(("slots", "rows"), [(50, 1), (1, 512)])
def test_a_chunk_closes_before_its_hidden_states_are_too_large(slots: int, rows: int) -> None:
    def many(step: int) -> r.HiddenPass:
        data = struct.pack("<14f", 0, 1, 1, 0, 0, 0, *range(8)) * rows * slots
        look = r.HiddenLook("draft.fc.out", c.TARGET_FED, 0, slots, (0,), (rows,), data, projections=True)
        return a_pass(step, look)

    run = Run().take([traffic.started("a", MONOTONIC)]).take(map(many, range(70))).end()
    found = run.hidden("a")
    a_pass_takes = slots * (hidden_rows.ROW_RAW + hidden_rows.FINGERPRINT_RAW * rows)
    held = [len(told) // slots for told in found]
    assert held == [pipeline_module.HIDDEN_RAW // a_pass_takes] * (len(held) - 1) + held[-1:]
    assert [row.step for told in found for row in told if row.slot == 0] == list(range(70))


def test_a_pass_of_more_rows_than_a_chunk_holds_is_counted() -> None:
    run = Run().take([traffic.started("a", MONOTONIC), a_pass(1, a_look(slots=hidden.MAX_ROWS + 1))]).end()
    assert run.pipeline.dropped == {pipeline_module.BROKEN: 1}
    assert run.hidden("a") == []
    # Before any memory is taken: a look without data may claim any number.
    many = r.HiddenLook(hidden.FC_IN, c.TARGET_FED, 0, hidden.MAX_ROWS + 1, (0,), (1,), same_as=hidden.FED)
    with pytest.raises(ValueError, match="rows of hidden states of one request"):
        hidden_rows.HiddenRows().parts(a_pass(1, many), [None])


def test_more_kinds_of_looks_than_there_are_places_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_rollup, "MAX_KEYS", 5)
    run = Run().take([traffic.started("a", MONOTONIC)])
    run.take(
        a_pass(step, replace(a_look(), draft_step=step)) for step in range(hidden_rollup.MAX_KEYS + 3)
    ).end()
    assert run.pipeline.dropped == {HIDDEN_KEYS: 3}
    assert sum(sums.looks for sums in run.sums().values()) == hidden_rollup.MAX_KEYS


# --- prompts --------------------------------------------------------------------------------------


def told(start: r.RequestStarted, detail: str = c.DETAIL_TOKENS, *, resumed: bool = False) -> list[Any]:
    run = Run(detail)
    if resumed:
        run.pipeline.resume(start, MONOTONIC)
    else:
        run.take([start])
    run.take(traffic.verify(step, MONOTONIC + step * MS, ("a",)) for step in range(1, 130)).end()
    found = run.named(c.SPAN_STEPS, "a")
    assert len(found) == 3
    return [chunks.unpack_prompt(a[c.CHUNK_PROMPT]) if c.CHUNK_PROMPT in a else None for a in found]


def test_a_whole_prompt_is_told_with_the_first_chunk() -> None:
    start = traffic.started("a", MONOTONIC, prompt=100)
    assert start.prompt_ids is not None
    assert told(start) == [list(start.prompt_ids), None, None]
    block = struct.pack("<3q", 1, 1 << 40, 3)
    as_block = replace(start, prompt_tokens=3, prompt_ids=None, prompt=(block, 8, 3))
    assert told(as_block) == [[1, 1 << 40, 3], None, None]


@pytest.mark.parametrize("detail", [c.DETAIL_SUMMARY, c.DETAIL_STEPS])
def test_without_tokens_no_prompt_leaves(detail: str) -> None:
    run = Run(detail).take(traffic.story()).end()
    assert not any(c.CHUNK_PROMPT in a for a in run.named(c.SPAN_STEPS))


def test_the_end_of_a_prompt_is_not_told_as_the_prompt() -> None:
    start = traffic.started("a", MONOTONIC, prompt=100)
    assert told(replace(start, prompt_tokens=101)) == [None] * 3
    assert told(replace(start, prompt_ids=None)) == [None] * 3
    assert told(start, resumed=True) == [None] * 3


def test_a_prompt_longer_than_any_that_is_kept_is_not_told() -> None:
    longest = traffic.started("a", MONOTONIC, prompt=chunks.MAX_PROMPT)
    assert told(longest)[0] == list(longest.prompt_ids or ())
    assert told(traffic.started("a", MONOTONIC, prompt=chunks.MAX_PROMPT + 1)) == [None] * 3
