"""What the store is told: plain facts of the receiver, written in one transaction.

All are frozen but those made once a chunk, though nobody changes one: freezing doubles the time it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specscope import hidden_rollup
from specscope.rollup import Counts, Key


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Who speaks: the resource of an export. ``process_uid`` is unique within a workspace."""

    workspace: str
    environment: str
    instance: str
    process_uid: str
    role: str
    pid: int
    start_ns: int
    tp: int
    dp: int
    pp: int
    serving_role: str
    service_name: str
    engine_name: str
    engine_version: str
    tracer_version: str
    detail: str


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An ``spec_decode.engine`` span: configuration at start or after a weight update."""

    event_ns: int
    event: str
    model: str
    speculation: bool
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BoundaryTotal:
    """Cumulative crossings since the process started; ``expected`` is told without a mode."""

    boundary: str
    source: str
    mode: str
    expected: int | None
    observed: int | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of one process at ``event_ns``: ledger totals and the tracer's own counters."""

    event_ns: int
    boundaries: tuple[BoundaryTotal, ...] = ()
    armed: Mapping[str, tuple[bool, str]] = field(default_factory=dict[str, tuple[bool, str]])
    arming: Mapping[str, str] = field(default_factory=dict[str, str])
    """Boundary to the state of its hooks as in ``convention.ARMINGS``, where it was told."""
    requests: Mapping[str, int] = field(default_factory=dict[str, int])
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    hook_errors: Mapping[str, int] = field(default_factory=dict[str, int])
    queued: int | None = None
    export_failures: int | None = None
    engine_thread_ns: int | None = None
    passes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Timed passes of the engine by ``kind|slice of the batch``."""
    pass_ns: Mapping[str, int] = field(default_factory=dict[str, int])
    """What these took."""
    speculation: bool | None = None
    ended_ns: int | None = None
    """When the process told that it ends in order; ``None``: it has not."""


@dataclass(slots=True)
class RequestTotals:
    """Running totals of a request; they only grow, so the largest told is the newest."""

    verify_steps: int = 0
    drafted_depth: int = 0
    drafted_nodes: int = 0
    accepted: int = 0
    bonus: int = 0
    committed: int = 0
    zero_accept_steps: int = 0
    overshoot_steps: int = 0
    prefill_passes: int = 0


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """The engine's own counters of a request that ended, told beside totals of ours that are whole."""

    verify_steps: int
    accepted: int


@dataclass(slots=True)
class RequestReport:
    """What one span says of a request: identity, state and totals as of then."""

    uid: str
    rid: str
    trace_id: str
    state: str
    kind: str
    model: str
    arrival_ns: int
    end_ns: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    temperature: float | None
    max_tokens: int | None
    finish_reason: str | None
    queue_s: float | None
    first_token_s: float | None
    totals: RequestTotals
    boundaries: bytes | None = None
    parent_span_id: str = ""
    """Hex; empty where the request came without a trace context."""
    engine: EngineCounts | None = None
    """``None``: not told, or told without totals of ours that are whole."""
    response_id: str = ""
    """Id of the answer, where it was told."""


@dataclass(slots=True)
class Chunk:
    """A ``spec_decode.steps`` span: packed columns, stored as they came. Keyed (process, uid, seq)."""

    uid: str
    seq: int
    first_step: int
    start_ns: int
    end_ns: int
    steps: bytes
    extends: bytes
    hidden: bytes = b""
    """Rows of :mod:`specscope.hidden`; empty: none told."""


@dataclass(frozen=True, slots=True)
class PromptText:
    """The prompt of a request as token ids, packed as they came; ``sha256`` is of little-endian int32 ids."""

    uid: str
    tokens: int
    sha256: str
    ids: bytes


@dataclass(frozen=True, slots=True)
class RollupIncrement:
    """Counts to add once, keyed (process, seq)."""

    seq: int
    bucket: int
    rows: Mapping[Key, Counts]
    hidden: Mapping[hidden_rollup.Key, hidden_rollup.Sums] = field(
        default_factory=dict[hidden_rollup.Key, hidden_rollup.Sums]
    )


@dataclass(frozen=True, slots=True)
class RankReport:
    """A ``spec_decode.ranks`` span: the verify steps of one rank. Keyed (process, first step).

    ``size`` is how many ranks must agree, ``sums`` the packed checksums and fingerprints as they came.
    """

    first_step: int
    last_step: int
    size: int
    event_ns: int
    sums: bytes


@dataclass(frozen=True, slots=True)
class ForeignSpan:
    """A span of another tool: the engine's own, a caller's. Ids are lower-case hex, empty: no parent."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    scope: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: Mapping[str, Any]
    request_id: str = ""
    """Which request it says it is of; after an ellipsis: only the end of the id. Empty: it does not say."""
    response_id: str = ""


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """Spans of other tools in one export, of a workspace."""

    workspace: str
    spans: tuple[ForeignSpan, ...]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log record of a trace. ``record_id`` is a hash of all of it; ``time_ns`` 0: it has no time.

    ``severity`` is OTLP's number from 1 (finest trace) to 24 (fatal); 0: not told.
    """

    trace_id: str
    record_id: str
    span_id: str
    time_ns: int
    severity: int
    service: str
    scope: str
    body: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Log records in one export, of a workspace."""

    workspace: str
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything one resource said in one export."""

    process: ProcessFacts
    engines: tuple[EngineReport, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    rollups: tuple[RollupIncrement, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    ranks: tuple[RankReport, ...] = ()
    prompts: tuple[PromptText, ...] = ()


Told = Batch | SpanBatch | LogBatch
"""What an export may hold."""
