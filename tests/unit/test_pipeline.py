"""Records to spans: chunks, totals, rollups, detail levels, and bounded memory."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from specscope import chunks, columns, identity, ledger, rollup
from specscope import convention as c
from specscope import records as r
from specscope.exporter import pipeline as pipeline_module
from specscope.exporter.pipeline import SECOND, Pipeline
from specscope.exporter.requests import PassKinds, RequestTable
from wirekit import traffic
from wirekit.traffic import MS, uid


class Run:
    """A pipeline and what came out of it, in order."""

    def __init__(self, detail: str = c.DETAIL_FULL) -> None:
        self.spans: list[ReadableSpan] = []
        self.pipeline = Pipeline(traffic.hello(detail), self.spans.append)
        self.now = traffic.MONOTONIC

    def take(self, records: Iterable[r.Record]) -> "Run":
        for record in records:
            self.now = record.t_ns
            self.pipeline.take(record, self.now)
        return self

    def tick(self, after_ns: int = 0, *, last: bool = False) -> int:
        self.now += after_ns
        return self.pipeline.tick(self.now, last=last)

    def named(self, name: str, request: str | None = None) -> list[dict[str, Any]]:
        found = [dict(s.attributes or {}) for s in self.spans if s.name == name]
        return [a for a in found if request is None or a[c.REQUEST_UID] == uid(request)]

    def steps(self, request: str) -> list[chunks.StepRow]:
        blobs = [a[c.CHUNK_STEPS] for a in self.named(c.SPAN_STEPS, request) if c.CHUNK_STEPS in a]
        return [row for blob in blobs for row in chunks.unpack_steps(blob)]

    def extends(self, request: str) -> list[chunks.ExtendRow]:
        blobs = [a[c.CHUNK_EXTENDS] for a in self.named(c.SPAN_STEPS, request) if c.CHUNK_EXTENDS in a]
        return [row for blob in blobs for row in chunks.unpack_extends(blob)]


@pytest.fixture
def told() -> Run:
    run = Run().take(traffic.story())
    run.tick(last=True)
    return run


def test_every_step_is_told_once_in_order(told: Run) -> None:
    assert [row.step for row in told.steps("long")] == list(range(1, 72))
    assert [row.step for row in told.steps("open")] == list(range(1, 7))
    assert [row.step for row in told.extends("long")] == list(range(71))
    assert [row.after for row in told.extends("long")] == ["prefill"] + ["verify"] * 70


def test_a_chunk_has_at_most_64_steps_and_says_where_it_begins(told: Run) -> None:
    spans = told.named(c.SPAN_STEPS, "long")
    assert [s[c.CHUNK_SEQ] for s in spans] == [0, 1, 2]
    assert [s[c.CHUNK_FIRST_STEP] for s in spans] == [0, 64, 70]
    assert [len(chunks.unpack_steps(s[c.CHUNK_STEPS])) for s in spans] == [64, 6, 1]
    assert [s[c.REQUEST_STATE] for s in spans] == ["running", "finished", "finished"]
    assert [s[c.REQUEST_VERIFY_STEPS] for s in spans] == [64, 70, 70]


def test_totals_leave_overshoot_apart(told: Run) -> None:
    last = told.named(c.SPAN_REQUEST, "long")[-1]
    rows = [row for row in told.steps("long") if not row.overshoot]
    assert last[c.REQUEST_VERIFY_STEPS] == len(rows) == 70
    assert last[c.REQUEST_OVERSHOOT] == 1
    assert last[c.REQUEST_ACCEPTED] == sum(row.accepted for row in rows) == 53 * 2
    assert last[c.REQUEST_DRAFTED_DEPTH] == last[c.REQUEST_DRAFTED_NODES] == 210
    assert last[c.REQUEST_BONUS] == 70
    assert last[c.REQUEST_COMMITTED] == sum(row.committed for row in rows)
    assert last[c.REQUEST_ZERO_STEPS] == 17
    assert last[c.REQUEST_PREFILLS] == 1


def test_the_request_span_says_who_and_how_it_ended(told: Run) -> None:
    last = told.named(c.SPAN_REQUEST, "long")[-1]
    assert last[c.GEN_AI_REQUEST_ID] == "long"
    assert last[c.GEN_AI_PROVIDER] == "sglang"
    assert last[c.MODEL] == "tiny-target"
    assert last[c.GEN_AI_INPUT_TOKENS] == 6
    assert last[c.GEN_AI_OUTPUT_TOKENS] == 177
    assert last[c.GEN_AI_FINISH_REASONS] == ("stop",)
    assert last[c.GEN_AI_TEMPERATURE] == 0.0
    assert last[c.REQUEST_STATE] == "finished"
    assert (last[c.REQUEST_QUEUE_S], last[c.REQUEST_FIRST_TOKEN_S]) == (0.125, 0.5)
    running = told.named(c.SPAN_REQUEST, "open")[-1]
    assert running[c.REQUEST_STATE] == "running"
    assert running[c.REQUEST_CACHED] == 4
    assert c.GEN_AI_OUTPUT_TOKENS not in running


def test_a_request_tells_its_own_boundary_counts(told: Run) -> None:
    expected, observed = chunks.unpack_boundaries(
        told.named(c.SPAN_REQUEST, "open")[-1][c.REQUEST_BOUNDARIES]
    )
    wanted: dict[Any, int] = defaultdict(int)
    for part, times in ((traffic.CONTRACT.prefill, 1), (traffic.CONTRACT.verify, 6)):
        for key, count in part.items():
            wanted[key] += count * times
    assert expected == wanted
    assert ledger.gaps(expected, observed, dict.fromkeys(c.BOUNDARIES, True)) == []


def test_a_missing_crossing_shows_in_the_request() -> None:
    run = Run()
    step = traffic.verify(1, traffic.MONOTONIC, ("a",))
    crossed = {k: n for k, n in step.crossed.items() if k[0] != c.DRAFT_FC}
    run.take([traffic.started("a", traffic.MONOTONIC), replace(step, crossed=crossed)])
    run.tick(last=True)
    expected, observed = chunks.unpack_boundaries(run.named(c.SPAN_REQUEST, "a")[-1][c.REQUEST_BOUNDARIES])
    (gap,) = ledger.gaps(expected, observed, dict.fromkeys(c.BOUNDARIES, True))
    assert (gap.boundary, gap.source, gap.expected, gap.observed) == (c.DRAFT_FC, c.TARGET_FED, 1, 0)


def test_ids_and_parents_are_derived_and_times_are_wall_clock(told: Run) -> None:
    process = traffic.hello().process
    for span in told.spans:
        attributes: Any = span.attributes
        context: Any = span.context
        if span.name == c.SPAN_STEPS:
            request = attributes[c.REQUEST_UID]
            assert context.trace_id == identity.trace_id(request)
            assert context.span_id == identity.chunk_span_id(process, request, attributes[c.CHUNK_SEQ])
            assert span.parent is not None
            assert span.parent.span_id == identity.request_span_id(request)
        elif span.name == c.SPAN_REQUEST:
            assert context.span_id == identity.request_span_id(attributes[c.REQUEST_UID])
            assert span.parent is None
        else:
            assert context.trace_id == identity.process_trace_id(process)
        assert span.start_time is not None
        assert span.end_time is not None
        assert traffic.WALL - 10 * SECOND <= span.start_time <= span.end_time < traffic.WALL + 2 * SECOND
    (first, *_) = told.steps("long")
    assert first.t == traffic.WALL + 10 * MS


def test_a_trace_context_that_came_with_the_request_is_kept() -> None:
    run = Run()
    start = r.RequestStarted(1, uid("a"), "a", c.KIND_USER, traffic.WALL, 3, trace=(0xABC, 0xDEF))
    run.take([start, traffic.verify(1, 2, ("a",))])
    run.tick(last=True)
    by_name = {span.name: span for span in run.spans}
    for span in (by_name[c.SPAN_REQUEST], by_name[c.SPAN_STEPS]):
        assert span.context is not None
        assert span.context.trace_id == 0xABC
    parent = by_name[c.SPAN_REQUEST].parent
    assert parent is not None
    assert (parent.span_id, parent.is_remote) == (0xDEF, True)


def test_rollups_count_every_user_step_once_and_no_health_check(told: Run) -> None:
    spans = told.named(c.SPAN_ROLLUP)
    assert [s[c.ROLLUP_SEQ] for s in spans] == sorted({s[c.ROLLUP_SEQ] for s in spans})
    assert all(s[c.ROLLUP_BUCKET] == 1_790_000_000 for s in spans)
    total = rollup.Counts()
    for span in spans:
        total.add(rollup.unpack(span[c.ROLLUP_ROWS])[rollup.ALL, "", rollup.STEP])
    assert total.steps == 70 + 6
    last = [told.named(c.SPAN_REQUEST, name)[-1] for name in ("long", "open")]
    assert total.accepted == sum(a[c.REQUEST_ACCEPTED] for a in last)
    assert total.committed == sum(a[c.REQUEST_COMMITTED] for a in last)


@pytest.mark.parametrize(
    ("detail", "has_steps", "has_ids"),
    [("summary", False, False), ("steps", True, False), ("tokens", True, True), ("full", True, True)],
)
def test_detail_levels(detail: str, has_steps: bool, has_ids: bool) -> None:
    run = Run(detail).take(traffic.story())
    run.tick(last=True)
    assert bool(run.named(c.SPAN_STEPS)) == has_steps
    for row in run.steps("long"):
        assert (row.draft_tokens is not None) == has_ids
        assert (row.output_ids is not None) == has_ids
        assert row.ids_max == 20 + row.step % 5 if row.step % 5 > 2 else row.ids_max == 22
    whole = Run().take(traffic.story())
    whole.tick(last=True)
    for name in ("long", "open", "health"):
        here, there = run.named(c.SPAN_REQUEST, name)[-1], whole.named(c.SPAN_REQUEST, name)[-1]
        assert here == there
    here, there = run.named(c.SPAN_ROLLUP)[0], whole.named(c.SPAN_ROLLUP)[0]
    assert (c.ROLLUP_HIDDEN in here) == has_steps
    assert {**here, c.ROLLUP_HIDDEN: b""} == {**there, c.ROLLUP_HIDDEN: b""}


def test_facts_of_ids_are_taken_before_redaction() -> None:
    run = Run("steps").take(traffic.story())
    run.tick(last=True)
    row = run.steps("long")[1]
    assert (row.ids_min, row.ids_max, row.ids_distinct, row.ids_above_vocab) == (21, 22, 2, 0)
    assert row.ids_repeats_last == 0
    assert row.shift_of is not None
    assert row.shift_of[2] == 3


def test_a_chunk_is_sent_a_second_after_it_opened() -> None:
    run = Run().take([traffic.started("a", traffic.MONOTONIC), traffic.verify(1, traffic.MONOTONIC, ("a",))])
    assert run.tick(999 * MS) == 1  # the start is told, the step is held back
    assert not run.named(c.SPAN_STEPS)
    assert run.tick(MS) == 2
    assert len(run.named(c.SPAN_STEPS)) == 1


def test_a_request_is_known_within_a_second_of_its_start() -> None:
    run = Run()
    run.tick()
    run.take([traffic.started("a", traffic.MONOTONIC)])
    run.tick(SECOND)
    (span,) = run.named(c.SPAN_REQUEST, "a")
    assert span[c.REQUEST_STATE] == "running"
    assert span[c.REQUEST_VERIFY_STEPS] == 0
    run.tick(SECOND)
    assert len(run.named(c.SPAN_REQUEST, "a")) == 1  # nothing new: nothing sent


def test_at_summary_running_totals_come_with_the_request_span() -> None:
    run = Run("summary").take([traffic.started("a", traffic.MONOTONIC)])
    run.tick(SECOND)
    run.take([traffic.verify(1, run.now, ("a",))])
    run.tick(SECOND)
    assert [s[c.REQUEST_VERIFY_STEPS] for s in run.named(c.SPAN_REQUEST, "a")] == [0, 1]


def test_a_broken_record_is_counted_and_the_rest_goes_on() -> None:
    run = Run().take([traffic.started("a", traffic.MONOTONIC)])
    good = traffic.verify(1, traffic.MONOTONIC, ("a",))
    run.take([replace(good, accepted=()), good])
    run.tick(last=True)
    assert run.pipeline.dropped == {pipeline_module.BROKEN: 1}
    assert [row.step for row in run.steps("a")] == [1]


def test_a_chunk_that_cannot_be_packed_is_counted_and_the_rest_goes_on() -> None:
    run = Run().take([traffic.started(name, traffic.MONOTONIC) for name in ("a", "b")])
    good = traffic.verify(1, traffic.MONOTONIC, ("a",))
    run.take([replace(good, step=1 << 70), traffic.verify(2, traffic.MONOTONIC, ("b",))])
    run.tick(last=True)
    assert run.pipeline.dropped == {pipeline_module.BROKEN: 1}
    assert [row.step for row in run.steps("b")] == [2]


def test_after_a_new_exporter_no_sequence_number_comes_twice_and_no_total_is_guessed() -> None:
    first, second = Run(), Run()
    start = traffic.started("a", traffic.MONOTONIC)
    first.take([start, *(traffic.verify(i, traffic.MONOTONIC + i * 10 * MS, ("a",)) for i in range(200))])
    first.tick(last=True)
    second.pipeline.resume(start, traffic.MONOTONIC + 3000 * MS)
    second.take(traffic.verify(i, traffic.MONOTONIC + (3000 + i) * MS, ("a",)) for i in range(200, 300))
    second.tick(last=True)
    for name, key in ((c.SPAN_STEPS, c.CHUNK_SEQ), (c.SPAN_ROLLUP, c.ROLLUP_SEQ)):
        used = [{s[key] for s in run.named(name)} for run in (first, second)]
        assert used[0].isdisjoint(used[1])
        assert max(used[1]) < 1 << 31
    resumed = second.named(c.SPAN_REQUEST, "a")[-1]
    assert resumed[c.GEN_AI_REQUEST_ID] == "a"
    assert c.REQUEST_VERIFY_STEPS not in resumed


def test_steps_of_a_request_whose_start_was_lost_are_told() -> None:
    run = Run().take([traffic.verify(1, traffic.MONOTONIC, ("a",))])
    run.tick(last=True)
    assert [row.step for row in run.steps("a")] == [1]
    span = run.named(c.SPAN_REQUEST, "a")[-1]
    assert c.GEN_AI_REQUEST_ID not in span
    assert c.REQUEST_KIND not in span
    assert c.REQUEST_VERIFY_STEPS not in span


def test_the_least_recently_seen_request_is_forgotten_and_counted() -> None:
    table = RequestTable(running=2, ended=1)
    table.add("a")
    table.add("b")
    assert table.get("a") is not None
    _, gone = table.add("c")
    assert gone is not None
    assert gone.uid == "b"
    assert table.get("b") is None
    ended = [table.get("a"), table.get("c")]
    for state in ended:
        assert state is not None
        table.end(state)
    assert table.get("a") is None
    assert table.get("c") is ended[1]


def test_an_evicted_request_has_its_open_chunk_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_module, "RequestTable", lambda: RequestTable(running=2))
    run = Run()
    for name in ("a", "b", "c"):
        run.take([traffic.started(name, traffic.MONOTONIC), traffic.verify(1, traffic.MONOTONIC, (name,))])
    assert [row.step for row in run.steps("a")] == [1]
    assert run.pipeline.dropped == {pipeline_module.EVICTED: 1}


def test_kinds_of_passes_are_bounded() -> None:
    kinds = PassKinds()
    numbers = [kinds.number({("b", ""): i}, {}) for i in range(PassKinds.LIMIT + 2)]
    assert numbers[-2:] == [PassKinds.OTHER] * 2
    assert kinds.number({("b", ""): 5}, {}) == numbers[5]
    expected, _ = kinds.sum({numbers[5]: 2, PassKinds.OTHER: 9})
    assert expected == {("b", ""): 10}


def test_packed_steps_cost_little(told: Run) -> None:
    blob = told.named(c.SPAN_STEPS, "long")[0][c.CHUNK_STEPS]
    assert len(blob) / 64 < 118  # bytes a step that the store was designed with
    assert columns.decode(blob)["step"] == list(range(1, 65))
