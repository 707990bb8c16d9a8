"""A batch as rows: pure translation, so that what is written can be read off one place."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, cast

from specscope import convention
from specscope.columns import CodecError
from specscope.rollup import BUCKET_S, COUNT_FIELDS, bucket_start

from specscope_server.store import hidden_rows, trace_rows
from specscope_server.store.keep import Oldest
from specscope_server.store.short import short_of
from specscope_server.store.told import (
    Batch,
    Heartbeat,
    LogBatch,
    ProcessFacts,
    RequestReport,
    RequestTotals,
    RollupIncrement,
    SpanBatch,
    Told,
)
from specscope_server.store.too_old import without_old
from specscope_server.store.values import (
    MAX_COUNT,
    MAX_NS,
    clean,
    count,
    engine_uid,
    finite,
    key,
    optional_count,
)

log = logging.getLogger(__name__)

Row = dict[str, Any]
Values = tuple[Any, ...]
"""A row of a table that takes many, in the order of its columns."""
PROCESS_TEXTS = (
    *("role", "serving_role", "service_name", "engine_name"),
    *("engine_version", "tracer_version", "detail"),
)
TOTALS = tuple(f.name for f in fields(RequestTotals))
_totals_of = attrgetter(*TOTALS)
_counts_of = attrgetter(*COUNT_FIELDS)

TAKE_ALL = Oldest()
MAX_DEPTH = 1024
"""Draft positions counted by depth; a reader lays them out side by side."""

# Names in process_counter and process_gauge.
REQUESTS = "requests"
DROPPED = "dropped"
HOOK_ERRORS = "hook_errors"
EXPORT_FAILURES = "export_failures"
ENGINE_THREAD = "engine_thread_ns"
PASSES = "passes"
PASS_NS = "pass_ns"
ENDED = "ended_ns"
QUEUED = "queued"
SPECULATION = "speculation"
ARMED = "armed"
ARMINGS = ("", *convention.ARMINGS)
"""Values of the gauge ``armed``: 1 where the boundary can be seen, else the kind of reason why not, 0 where
that was not told."""


@dataclass(slots=True)
class Rows:
    """Rows by table, in no order; one key may come several times."""

    workspaces: list[Row] = field(default_factory=list[Row])
    models: list[Row] = field(default_factory=list[Row])
    engines: list[Row] = field(default_factory=list[Row])
    processes: list[Row] = field(default_factory=list[Row])
    events: list[Row] = field(default_factory=list[Row])
    counters: list[Row] = field(default_factory=list[Row])
    gauges: list[Row] = field(default_factory=list[Row])
    boundary_totals: list[Row] = field(default_factory=list[Row])
    boundary_counts: list[Row] = field(default_factory=list[Row])
    requests: list[Values] = field(default_factory=list[Values])
    chunks: list[Values] = field(default_factory=list[Values])
    prompts: list[Row] = field(default_factory=list[Row])
    ranks: list[Row] = field(default_factory=list[Row])
    spans: list[Row] = field(default_factory=list[Row])
    logs: list[Row] = field(default_factory=list[Row])
    rollups: dict[tuple[str, str, int], list[Values]] = field(
        default_factory=dict[tuple[str, str, int], list[Values]]
    )
    """By (engine uid, process uid, seq), the key that makes an increment count once."""
    hidden: dict[tuple[str, str, int], list[Row]] = field(
        default_factory=dict[tuple[str, str, int], list[Row]]
    )
    """What the same increments add to the sums of hidden states; each key of ``rollups`` is there."""
    too_old: int = 0
    """Spans and points that were left out."""

    def with_others(self, others: Iterable[Rows]) -> Rows:
        """Return these rows and others; an increment that is told twice is there once."""
        together = Rows()
        for rows in (self, *others):
            for one in fields(Rows):
                held, more = getattr(together, one.name), getattr(rows, one.name)
                if isinstance(held, list):
                    cast("list[Any]", held).extend(more)
                elif isinstance(held, dict):
                    cast("dict[Any, Any]", held).update(more)
        return together


def rows_of(batches: Iterable[Told], received_ns: int, oldest: Oldest = TAKE_ALL) -> Rows:
    """Translate batches, but for what in them is older than ``oldest``.

    Raises:
        Refused: a count is out of range.
    """
    young, left_out = without_old(batches, oldest)
    rows = Rows(too_old=left_out)
    for batch in young:
        if isinstance(batch, Batch):
            _Translation(rows, batch, received_ns).run()
        else:
            _of_other_tools(rows, batch, received_ns)
    return rows


def _of_other_tools(rows: Rows, batch: SpanBatch | LogBatch, received_ns: int) -> None:
    rows.workspaces.append({"name": key(batch.workspace), "created_ns": received_ns})
    if isinstance(batch, SpanBatch):
        rows.spans += trace_rows.span_rows(batch, received_ns)
    else:
        rows.logs += trace_rows.log_rows(batch, received_ns)


class _Translation:
    """One batch on its way into rows."""

    def __init__(self, rows: Rows, batch: Batch, received_ns: int) -> None:
        self._rows, self._batch, self._received = rows, batch, received_ns
        self._workspace = key(batch.process.workspace)
        self._engine = engine_uid(
            self._workspace, key(batch.process.environment), key(batch.process.instance)
        )
        self._of_engine: Row = {"engine_uid": self._engine}
        self._process = key(batch.process.process_uid)
        self._of_process: Row = {"engine_uid": self._engine, "process_uid": self._process}

    def run(self) -> None:
        batch = self._batch
        self._owners(batch.process)
        for report in batch.engines:
            self._rows.events.append(
                self._of_process
                | {
                    "event_ns": report.event_ns,
                    "event": key(report.event),
                    "model": clean(report.model),
                    "speculation": int(report.speculation),
                    "config": report.config,
                    **_event(report.config),
                }
            )
        for heartbeat in batch.heartbeats:
            self._heartbeat(heartbeat)
        for request in batch.requests:
            self._request(request)
        for chunk in batch.chunks:
            # As a tuple in the order of schema.step_chunk.
            self._rows.chunks.append(
                (
                    self._engine,
                    key(chunk.uid),
                    self._process,
                    count(chunk.seq, "chunk sequence number", MAX_NS),
                    count(chunk.first_step, "chunk's first step"),
                    chunk.start_ns,
                    chunk.end_ns,
                    chunk.steps,
                    chunk.extends,
                    chunk.hidden or None,
                )
            )
        self._rows.prompts += [hidden_rows.prompt_row(prompt, self._of_engine) for prompt in batch.prompts]
        for report in batch.ranks:
            self._rows.ranks.append(
                self._of_process
                | {
                    "first_step": count(report.first_step, "first step of a rank", MAX_NS),
                    "last_step": count(report.last_step, "last step of a rank", MAX_NS),
                    "size": count(report.size, "ranks of a group"),
                    "event_ns": report.event_ns,
                    "sums": report.sums,
                }
            )
        self._rollups()
        models = {clean(r.model) for r in (*batch.engines, *batch.requests)} - {""}
        self._rows.models += [{"workspace": self._workspace, "name": name} for name in models]

    def _owners(self, process: ProcessFacts) -> None:
        batch, received = self._batch, self._received
        events = [report.event_ns for report in batch.engines]
        events += [heartbeat.event_ns for heartbeat in batch.heartbeats]
        events += [chunk.end_ns for chunk in batch.chunks]
        events += [report.event_ns for report in batch.ranks]
        arrivals = [r.arrival_ns for r in batch.requests if r.kind == convention.KIND_USER]
        self._rows.workspaces.append({"name": self._workspace, "created_ns": received})
        self._rows.engines.append(
            self._of_engine
            | {
                "workspace": self._workspace,
                "environment": key(process.environment),
                "instance": key(process.instance),
                "started_ns": process.start_ns,
                "last_received_ns": received,
                "last_request_ns": max(arrivals, default=None),
            }
        )
        self._rows.processes.append(
            self._of_process
            | {name: clean(getattr(process, name)) for name in PROCESS_TEXTS}
            | {name: getattr(process, name) for name in ("pid", "start_ns", "tp", "dp", "pp")}
            | {
                "last_event_ns": max(events, default=None),
                "last_received_ns": received,
                "clock_offset_ns": min((received - event for event in events), default=None),
            }
        )

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        def counter(name: str, label: str, value: int, limit: int = MAX_NS) -> None:
            self._rows.counters.append(
                self._of_process
                | {"name": name, "label": key(label), "value": count(value, f"{name} {label}".strip(), limit)}
            )

        def gauge(name: str, label: str, value: int, reason: str = "") -> None:
            self._rows.gauges.append(
                self._of_process
                | {"name": name, "label": key(label), "event_ns": heartbeat.event_ns}
                | {"value": value, "reason": clean(reason)}
            )

        for name, values in (
            (REQUESTS, heartbeat.requests),
            (DROPPED, heartbeat.dropped),
            (HOOK_ERRORS, heartbeat.hook_errors),
            (PASSES, heartbeat.passes),
            (PASS_NS, heartbeat.pass_ns),
        ):
            for label, value in values.items():
                counter(name, label, value)
        for name, value in (
            (EXPORT_FAILURES, heartbeat.export_failures),
            (ENGINE_THREAD, heartbeat.engine_thread_ns),
        ):
            if value is not None:
                counter(name, "", value)
        if heartbeat.queued is not None:
            gauge(QUEUED, "", heartbeat.queued)
        if heartbeat.ended_ns is not None:
            counter(ENDED, "", heartbeat.ended_ns)
        if heartbeat.speculation is not None:
            gauge(SPECULATION, "", int(heartbeat.speculation))
        for boundary, (armed, reason) in heartbeat.armed.items():
            state = heartbeat.arming.get(boundary, "")
            gauge(ARMED, boundary, 1 if armed else ARMINGS.index(state), reason)
        for total in heartbeat.boundaries:
            row = self._of_process | {
                "boundary": key(total.boundary),
                "source": key(total.source),
                "mode": key(total.mode),
                "expected": optional_count(total.expected, f"expected crossings of {total.boundary}"),
                "observed": optional_count(total.observed, f"observed crossings of {total.boundary}"),
            }
            self._rows.boundary_totals.append(row)
            self._rows.boundary_counts.append(row | {"bucket": bucket_start(heartbeat.event_ns)})

    def _request(self, report: RequestReport) -> None:
        totals = _totals_of(report.totals)
        if not (min(totals) >= 0 and max(totals) <= MAX_COUNT):
            for name, value in zip(TOTALS, totals, strict=True):
                count(value, name)  # says which
        passes = report.totals.verify_steps + report.totals.prefill_passes
        ended = report.state != convention.STATE_RUNNING
        engine = report.engine
        # As a tuple in the order of schema.request: one is made a chunk.
        self._rows.requests.append(
            (
                self._engine,
                key(report.uid),
                self._workspace,
                self._process,
                clean(report.rid),
                key(report.trace_id),
                key(report.state),
                key(report.kind),
                clean(report.model),
                report.arrival_ns,
                report.end_ns,
                self._received,
                optional_count(report.prompt_tokens, "prompt tokens"),
                optional_count(report.output_tokens, "output tokens"),
                optional_count(report.cached_tokens, "cached tokens"),
                report.max_tokens,
                clean(report.finish_reason or ""),
                finite(report.temperature),
                finite(report.queue_s),
                finite(report.first_token_s),
                *totals,
                report.boundaries,
                # The blob that had seen the most passes is the newest; the final report beats a running one.
                0 if report.boundaries is None else 1 + 2 * passes + ended,
                _short(report),
                key(report.parent_span_id),
                optional_count(engine and engine.verify_steps, "engine's steps"),
                optional_count(engine and engine.accepted, "engine's accepted drafts"),
                clean(report.response_id),
            )
        )

    def _rollups(self) -> None:
        for increment in self._batch.rollups:
            seq = count(increment.seq, "rollup sequence number", MAX_NS)
            if increment.bucket % BUCKET_S:
                log.warning("rollup bucket %d is not on a %d s boundary", increment.bucket, BUCKET_S)
            identity = self._engine, self._process, seq
            self._rows.hidden[identity] = hidden_rows.increment_rows(increment, self._of_engine)
            self._rows.rollups[identity] = self._increment(increment)

    def _increment(self, increment: RollupIncrement) -> list[Values]:
        """Return what an increment adds, as tuples in the order of schema.rollup_10s."""
        bucket = bucket_start(increment.bucket * 1_000_000_000)
        found: list[Values] = []
        for (dimension, value, position), counts in increment.rows.items():
            numbers = _counts_of(counts)
            if not (min(numbers) >= 0 and max(numbers) <= MAX_COUNT):
                for name, number in zip(COUNT_FIELDS, numbers, strict=True):
                    count(number, f"rollup {name}")  # says which
            at = count(position + 1, "rollup position", MAX_DEPTH) - 1
            found.append((self._engine, key(dimension), bucket, key(value), at, *numbers))
        return found


def _event(config: Mapping[str, Any]) -> Row:
    """Return what a report says of the change it was sent for, apart from the whole configuration."""
    told: object = config.get("weights")
    weights = cast("Mapping[str, object]", told) if isinstance(told, Mapping) else dict[str, object]()
    version, detail = weights.get("version"), weights.get("event")
    known = isinstance(version, int) and not isinstance(version, bool) and 0 <= version <= MAX_NS
    return {
        "weight_version": version if known else None,
        "detail": cast("Mapping[str, Any]", detail) if isinstance(detail, Mapping) else {},
    }


def _short(report: RequestReport) -> str:
    """Return the request's boundaries that were crossed too seldom, see :func:`short.short_of`."""
    if report.boundaries is None:
        return ""
    try:
        return short_of(report.boundaries)
    except CodecError as error:
        log.warning("request %s: its boundary counts cannot be read: %s", report.uid, error)
        return ""
