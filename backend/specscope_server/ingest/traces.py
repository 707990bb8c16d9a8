"""From OTLP spans to batches: engines, requests, chunks, rollups, ranks; other tools' spans beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from specscope import chunks, columns, rollup
from specscope import convention as c

from specscope_server.ingest import foreign, hidden_states, lean
from specscope_server.ingest.lean import LeanSpan
from specscope_server.ingest.resource import process_facts
from specscope_server.ingest.values import (
    MAX_COUNT,
    MAX_SMALL,
    MAX_TIME_NS,
    Attributes,
    Field,
    Invalid,
    Tally,
    time_ns,
)
from specscope_server.store import short
from specscope_server.store.told import (
    Batch,
    Chunk,
    EngineCounts,
    EngineReport,
    PromptText,
    RankReport,
    RequestReport,
    RequestTotals,
    RollupIncrement,
    Told,
)

MAX_BLOB: Final = chunks.MAX_RAW
"""Bytes of one packed attribute as sent: packing never makes it larger than its raw body."""
MAX_ROLLUP_RAW: Final = 1 << 20
"""Raw bytes of one rollup; some dozens of slices by position take 50 KiB."""
MAX_STEP_COUNT: Final = 1 << 40
"""Largest count of one rollup row: eight million such rows still fit a 64-bit sum in the database."""
MAX_RANKS: Final = 65_536
"""Ranks of one group."""
MAX_SLICE: Final = 64
"""Characters of a rollup's dimension or slice."""


@dataclass(slots=True)
class Spans:
    """What the spans of one resource say, by kind."""

    engines: list[EngineReport] = field(default_factory=list[EngineReport])
    requests: list[RequestReport] = field(default_factory=list[RequestReport])
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    rollups: list[RollupIncrement] = field(default_factory=list[RollupIncrement])
    ranks: list[RankReport] = field(default_factory=list[RankReport])
    prompts: list[PromptText] = field(default_factory=list[PromptText])


def read(export: ExportTraceServiceRequest) -> tuple[list[Told], Tally]:
    """Return what our tracers say in an export, and the spans of other tools beside it.

    What became of each span is told as in :func:`batches_of`; never raises on hostile values.
    """
    batches, tally = batches_of(export)
    spans = (foreign.spans_of(resource_spans, tally) for resource_spans in export.resource_spans)
    return [*batches, *(batch for batch in spans if batch is not None)], tally


def batches_of(export: ExportTraceServiceRequest) -> tuple[list[Batch], Tally]:
    """Return what an export says, and what became of each of its spans; never raises on hostile values."""
    tally = Tally()
    batches: list[Batch] = []
    for resource_spans in export.resource_spans:
        batch = _batch(resource_spans, tally)
        if batch is not None:
            batches.append(batch)
    return batches, tally


def _batch(resource_spans: ResourceSpans, tally: Tally) -> Batch | None:
    ours: list[LeanSpan] = []
    for scope in resource_spans.scope_spans:
        if scope.scope.name == c.SCOPE_NAME:
            ours.extend(lean.spans_of(scope))
        else:
            tally.foreign += len(scope.spans)
    if not ours:
        return None
    try:
        process = process_facts(resource_spans.resource, tally)
    except Invalid as error:
        tally.reject(f"resource: {error}", len(ours))
        return None
    found = Spans()
    for span in ours:
        read = READERS.get(span.name)
        if read is None:  # a newer tracer may tell more within the same wire version
            tally.foreign += 1
            continue
        try:
            _check_ids(span)
            read(span, Attributes(lean.values_of(span.attributes), tally), found)
        except (Invalid, columns.CodecError) as error:
            tally.reject(f"{span.name}: {error}")
        else:
            tally.accepted += 1
    if not (found.engines or found.requests or found.chunks or found.rollups or found.ranks):
        return None  # a process is not known by what was rejected
    return Batch(
        process,
        tuple(found.engines),
        tuple(found.requests),
        tuple(found.chunks),
        tuple(found.rollups),
        ranks=tuple(found.ranks),
        prompts=tuple(found.prompts),
    )


_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)


def _check_ids(span: LeanSpan) -> None:
    trace, own = span.trace_id, span.span_id
    if len(trace) != 16 or trace == _NO_TRACE:
        raise Invalid("the trace id is not 16 bytes that are not all zero")
    if len(own) != 8 or own == _NO_SPAN:
        raise Invalid("the span id is not 8 bytes that are not all zero")


def _engine(span: LeanSpan, attributes: Attributes, found: Spans) -> None:
    found.engines.append(
        EngineReport(
            event_ns=time_ns(span.start_time_unix_nano, "the span's start"),
            event=attributes.name(c.ENGINE_EVENT),
            model=attributes.text(c.MODEL),
            speculation=attributes.flag(c.METRIC_SPECULATION) is True,
            config=attributes.json_object(c.ENGINE_CONFIG),
        )
    )


def _request(span: LeanSpan, attributes: Attributes, found: Spans) -> None:
    # Whose child it is; of a chunk the parent is the request itself, which says nothing.
    parent = span.parent_span_id
    found.requests.append(_report(span, attributes, parent.hex() if len(parent) == 8 else ""))


def _steps(span: LeanSpan, attributes: Attributes, found: Spans) -> None:
    start = time_ns(span.start_time_unix_nano, "the span's start")
    end = time_ns(span.end_time_unix_nano, "the span's end")
    if end < start:
        raise Invalid("the span ends before it starts")
    report = _report(span, attributes)
    chunk = Chunk(
        report.uid,
        attributes.required(c.CHUNK_SEQ, MAX_SMALL),
        attributes.required(c.CHUNK_FIRST_STEP, MAX_SMALL),
        start,
        end,
        _blob(attributes, c.CHUNK_STEPS),
        _blob(attributes, c.CHUNK_EXTENDS),
        hidden_states.rows(attributes, c.CHUNK_HIDDEN),
    )
    prompt = hidden_states.prompt(attributes, report.uid)
    # A request exists from its first chunk: the totals and identity on it are a report of their own.
    found.requests.append(report)
    found.chunks.append(chunk)
    if prompt is not None:
        found.prompts.append(prompt)


def _rollup(span: LeanSpan, attributes: Attributes, found: Spans) -> None:
    blob = attributes.data(c.ROLLUP_ROWS, MAX_BLOB)
    if blob is None:
        raise Invalid(f"{c.ROLLUP_ROWS} is missing")
    rows = rollup.unpack(blob, max_raw=MAX_ROLLUP_RAW)
    for (dimension, value, position), counts in rows.items():
        for text in (dimension, value):
            if len(text) > MAX_SLICE or not text.isprintable():
                raise Invalid(f"{c.ROLLUP_ROWS} has a slice name that is too long or cannot be printed")
        if position >= MAX_SMALL or any(getattr(counts, n) > MAX_STEP_COUNT for n in rollup.COUNT_FIELDS):
            raise Invalid(f"{c.ROLLUP_ROWS} has a count that is too large")
    bucket = attributes.required(c.ROLLUP_BUCKET, MAX_TIME_NS // 1_000_000_000)
    if bucket % rollup.BUCKET_S:
        raise Invalid(f"{c.ROLLUP_BUCKET} is {bucket}, not a multiple of {rollup.BUCKET_S}")
    found.rollups.append(
        RollupIncrement(
            seq=attributes.required(c.ROLLUP_SEQ, MAX_SMALL),
            bucket=bucket,
            rows=rows,
            hidden=hidden_states.sums(attributes),
        )
    )


def _ranks(span: LeanSpan, attributes: Attributes, found: Spans) -> None:
    blob = attributes.data(c.RANKS_STEPS, MAX_BLOB)
    if blob is None:
        raise Invalid(f"{c.RANKS_STEPS} is missing")
    rows, looks = chunks.unpack_ranks(blob), hidden_states.of_rank(blob)
    steps = [step for step, _, _ in rows]
    if not steps or max(steps) > MAX_COUNT:
        raise Invalid(f"{c.RANKS_STEPS} has no step, or one beyond {MAX_COUNT}")
    found.ranks.append(
        RankReport(
            first_step=min(steps),
            last_step=max(steps),
            size=attributes.required(c.RANKS_SIZE, MAX_RANKS, low=2),
            event_ns=time_ns(span.start_time_unix_nano, "the span's start"),
            # Ours alone: a blob may hold more columns.
            sums=chunks.pack_ranks(*zip(*rows, strict=True), **looks),
        )
    )


READERS: Final[dict[str, Callable[[LeanSpan, Attributes, Spans], None]]] = {
    c.SPAN_ENGINE: _engine,
    c.SPAN_REQUEST: _request,
    c.SPAN_STEPS: _steps,
    c.SPAN_ROLLUP: _rollup,
    c.SPAN_RANKS: _ranks,
}


def _blob(attributes: Attributes, name: str) -> bytes:
    """Return a packed attribute whose header is sound; its body stays unopened. Absent: empty.

    Opening it takes longer than storing it. A body that turns out damaged is left out where it is read.
    """
    blob = attributes.data(name, MAX_BLOB)
    if blob is None:
        return b""
    try:
        columns.check_header(blob, max_raw=chunks.MAX_RAW)
    except columns.CodecError as error:
        raise Invalid(f"{name}: {error}") from error
    return blob


def _boundaries(attributes: Attributes) -> bytes | None:
    blob = attributes.data(c.REQUEST_BOUNDARIES, MAX_BLOB)
    if blob is None:
        return None
    try:
        short.short_of(blob)
    except columns.CodecError as error:
        raise Invalid(f"{c.REQUEST_BOUNDARIES}: {error}") from error
    return blob


_TOTALS: Final = (
    c.REQUEST_VERIFY_STEPS,
    c.REQUEST_DRAFTED_DEPTH,
    c.REQUEST_DRAFTED_NODES,
    c.REQUEST_ACCEPTED,
    c.REQUEST_BONUS,
    c.REQUEST_COMMITTED,
    c.REQUEST_ZERO_STEPS,
    c.REQUEST_OVERSHOOT,
    c.REQUEST_PREFILLS,
)
"""In the order of the fields of :class:`RequestTotals`."""
_COUNTS: Final[tuple[Field, ...]] = (
    (c.REQUEST_ARRIVAL, int, 1, MAX_TIME_NS),
    (c.GEN_AI_INPUT_TOKENS, int, 0, MAX_SMALL),
    (c.GEN_AI_OUTPUT_TOKENS, int, 0, MAX_SMALL),
    (c.REQUEST_CACHED, int, 0, MAX_SMALL),
    (c.GEN_AI_MAX_TOKENS, int, 0, MAX_SMALL),
    (c.REQUEST_ENGINE_STEPS, int, 0, MAX_STEP_COUNT),
    (c.REQUEST_ENGINE_ACCEPTED, int, 0, MAX_STEP_COUNT),
    *((name, int, 0, MAX_STEP_COUNT) for name in _TOTALS),
)


def _report(span: LeanSpan, attributes: Attributes, parent: str = "") -> RequestReport:
    state = attributes.choice(c.REQUEST_STATE, c.REQUEST_STATES, c.STATE_RUNNING)
    start = time_ns(span.start_time_unix_nano, "the span's start")
    arrival, prompt, output, cached, most, steps, accepted, *totals = attributes.fields(_COUNTS)
    # Held against totals of ours, which a tracer leaves out where it did not see every step.
    ended = state != c.STATE_RUNNING
    # By position: a call with two dozen keywords takes three times as long, and one is made a span.
    return RequestReport(
        attributes.hex_id(c.REQUEST_UID),
        attributes.text(c.GEN_AI_REQUEST_ID),
        span.trace_id.hex(),
        state,
        attributes.choice(c.REQUEST_KIND, c.REQUEST_KINDS, ""),  # unknown where its start was not seen
        attributes.text(c.MODEL),
        arrival or start,
        time_ns(span.end_time_unix_nano, "the span's end") if ended else None,
        prompt,
        output,
        cached,
        attributes.number(c.GEN_AI_TEMPERATURE),
        most,
        attributes.first_text(c.GEN_AI_FINISH_REASONS),
        attributes.number(c.REQUEST_QUEUE_S),
        attributes.number(c.REQUEST_FIRST_TOKEN_S),
        # A total that is not told adds nothing, since the store keeps the largest.
        RequestTotals(*[total or 0 for total in totals]),
        _boundaries(attributes),
        parent,
        # Held against totals of ours, which a tracer leaves out where it did not see every step.
        None if steps is None or accepted is None or totals[0] is None else EngineCounts(steps, accepted),
        attributes.text(c.GEN_AI_RESPONSE_ID),
    )
