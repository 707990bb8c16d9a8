"""What the store answers to the API, the pages and the diagnosis: plain frozen facts of every database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from specscope import hidden_rollup
from specscope.chunks import StepRow
from specscope.hidden import HiddenRow
from specscope.rollup import Counts

from specscope_server.store.told import EngineCounts, ForeignSpan, LogRecord, RequestTotals


@dataclass(frozen=True, slots=True)
class BoundaryState:
    """One line of the ledger: a boundary and source of an engine, over its processes.

    ``observed`` is by mode. ``armed`` False means: nothing can be said, for ``reason``.
    """

    boundary: str
    source: str
    expected: int
    observed: Mapping[str, int]
    armed: bool
    reason: str = ""
    arming: str = ""
    """State of the tracer's hooks, as in ``convention.ARMINGS``; empty: not told."""

    @property
    def observed_total(self) -> int:
        """Return crossings seen in any mode."""
        return sum(self.observed.values())


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of an engine with what it last said of itself."""

    process_uid: str
    role: str
    pid: int
    started: datetime
    tp: int
    dp: int
    pp: int
    serving_role: str
    detail: str
    tracer_version: str
    last_event: datetime
    last_received: datetime
    clock_skewed: bool
    requests: Mapping[str, int]
    dropped: Mapping[str, int]
    hook_errors: Mapping[str, int]
    queued: int | None
    export_failures: int | None


@dataclass(frozen=True, slots=True)
class Heard:
    """An engine that was heard within a day, and when last.

    ``told`` marks what it told and what people said of it: where two marks are equal, nothing came between.
    """

    workspace: str
    engine_uid: str
    last_received: datetime
    told: int


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """What one process told of itself and when: its start, or a change of weights.

    ``weight_version`` is the version from then on (``None``: not told); ``detail`` what the change was.
    """

    at: datetime
    event: str
    process_uid: str
    weight_version: int | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine: one launch (instance) of a serving deployment, all its processes together.

    ``engine_uid`` is its id in URLs. ``counts`` sums the rollups of the asked window (None: no rollup in
    it: no data, not zero). ``positions`` is [drafted, accepted] per position in the same window.
    ``last_request`` is the newest arrival of a user's request, health checks and warm-ups apart.
    """

    engine_uid: str
    workspace: str
    environment: str
    instance: str
    name: str
    model: str
    engine_name: str
    engine_version: str
    speculation: bool | None
    config: Mapping[str, Any]
    started: datetime
    last_received: datetime
    last_request: datetime | None
    counts: Counts | None
    positions: tuple[tuple[int, int], ...]
    ledger: tuple[BoundaryState, ...]
    requests: Mapping[str, int]
    processes: tuple[ProcessRow, ...]
    events: tuple[EngineEvent, ...] = ()
    """Newest first, the newest ones; only where one engine was asked for."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request, summary only. ``state`` may also be ``lost``: its process fell silent before its end."""

    uid: str
    engine_uid: str
    engine: str
    model: str
    rid: str
    trace_id: str
    state: str
    kind: str
    arrival: datetime
    end: datetime | None
    last_received: datetime
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    temperature: float | None
    max_tokens: int | None
    finish_reason: str | None
    queue_s: float | None
    first_token_s: float | None
    totals: RequestTotals
    detail: str
    parent_span_id: str = ""
    engine_counts: EngineCounts | None = None
    """The engine's own counters, where they can be held against ``totals``."""
    response_id: str = ""
    """Id of the answer; empty where it was not told, which on SGLang means: it is the rid."""

    @property
    def acceptance_rate(self) -> float | None:
        """Return accepted / drafted_depth; ``None`` (undefined) when nothing was drafted."""
        return self.totals.accepted / self.totals.drafted_depth if self.totals.drafted_depth else None

    @property
    def acceptance_length(self) -> float | None:
        """Return (accepted + bonus) / verify steps; ``None`` (undefined) without a verify step."""
        if not self.totals.verify_steps:
            return None
        return (self.totals.accepted + self.totals.bonus) / self.totals.verify_steps


@dataclass(frozen=True, slots=True)
class JoinedTrace:
    """Spans of another trace that are of one request, by start, with what hangs below them.

    ``rule`` says how they were joined, one of :data:`specscope_server.store.request_names.RULES`.
    """

    trace_id: str
    rule: str
    spans: tuple[ForeignSpan, ...]


@dataclass(frozen=True, slots=True)
class RequestDetail:
    """One request with its decoded chunks; rows are column-name to value, in order of time.

    ``steps`` and ``extends`` hold what was recorded at the request's detail level under the names of
    :class:`specscope.chunks.StepRow` and ``ExtendRow``; an absent key was not recorded. A step also has
    ``index``, its number within the request. Chunks that cannot be read are left out: ``steps_total`` counts
    their steps, overshoot ones too. ``boundaries`` are this request's own expected and observed counts.
    """

    request: RequestRow
    steps: tuple[Mapping[str, Any], ...]
    extends: tuple[Mapping[str, Any], ...]
    boundaries: tuple[BoundaryState, ...]
    steps_total: int
    spans: tuple[ForeignSpan, ...] = ()
    """Other tools' spans of the same trace, by start."""
    joined: tuple[JoinedTrace, ...] = ()
    """Those of other traces, the surest first."""
    logs: tuple[LogRecord, ...] = ()
    """Log records of its trace and of the joined spans, by time."""


@dataclass(frozen=True, slots=True)
class RequestHidden:
    """Hidden states of one request, and the tokens that they belong to.

    ``rows`` go by engine step, then along the draft path; what several processes tell of one place is one
    row. ``left_out`` counts rows beyond the limit. ``prompt_ids`` are ``None`` where the prompt was not told;
    ``output_ids`` are the output's tokens by position (prompt and output counted together, from 0), as far
    as they were told: a position that is absent is not known.
    """

    request: RequestRow
    rows: tuple[HiddenRow, ...]
    left_out: int
    prompt_ids: tuple[int, ...] | None
    prompt_sha256: str
    output_ids: Mapping[int, int]
    steps: tuple[StepRow, ...] = ()
    """The verify steps of the window, in order."""


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """What :meth:`Store.requests` selects by; ``None`` does not filter. Times are inclusive-exclusive.

    ``flag``: ``zero_acceptance`` (verify steps, nothing accepted), ``gap`` (a boundary of its own is short),
    ``unfinished``, ``health_check``. ``text`` matches rid, trace id, response id, request uid exactly or as a
    prefix, and exactly the ids that other tools' spans of the request have. ``response_id`` is the answer's
    id as told by us or by such a span, or the rid, which it is on SGLang.
    """

    workspace: str = "default"
    text: str | None = None
    rid: str | None = None
    trace_id: str | None = None
    response_id: str | None = None
    engine_uid: str | None = None
    model: str | None = None
    kind: str | None = None
    state: str | None = None
    flag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_acceptance_length: float | None = None
    max_acceptance_length: float | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Requests, newest arrival first; ``next_cursor`` is ``None`` on the last page."""

    items: tuple[RequestRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """Rollup sums of one bucket (start, width in seconds given by the query). No point = no data."""

    start: datetime
    counts: Counts
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class HiddenPoint:
    """Sums of hidden states in one bucket, by place. A place not looked at in it has no entry."""

    start: datetime
    sums: Mapping[hidden_rollup.Key, hidden_rollup.Sums]


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """A reference, without its sequences. ``facts`` are :class:`specscope.reference_file.Facts` as JSON."""

    reference_uid: str
    created: datetime
    name: str
    sequences: int
    tokens: int
    bytes: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReferenceSequence:
    """A sequence of a reference, without its numbers; the first ``prompt_tokens`` of its ids were given."""

    number: int
    name: str
    prompt_tokens: int
    ids: NDArray[np.int32]
    """(tokens,); as an array, because a comparison goes through those of every reference that fits."""


@dataclass(frozen=True, slots=True)
class TokenizerRow:
    """A tokenizer, without its vocabulary; ``bytes`` is the size of the file that it was read from."""

    tokenizer_hash: str
    created: datetime
    name: str
    tokens: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A stored finding. ``closed`` is ``None`` while it holds. ``body`` is the finding as JSON."""

    id: int
    engine_uid: str
    engine: str
    kind: str
    fault_class: str
    severity: str
    confidence: str
    title: str
    sentence: str
    opened: datetime
    last_seen: datetime
    closed: datetime | None
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertRow:
    """State of one rule on one engine: ``firing``, ``ok`` or ``no data``, since when and why.

    ``pending`` is a state that waits for its duration since ``pending_since``. ``told`` is ``firing`` where
    somebody was told so, last at ``told_at``, and not of its end; ``quiet`` says why nobody is told.
    """

    rule: str
    title: str
    engine_uid: str
    engine: str
    state: str
    reason: str
    since: datetime
    evaluated: datetime
    severity: str = ""
    pending: str = ""
    pending_since: datetime | None = None
    told: str = ""
    told_at: datetime | None = None
    quiet: str = ""
    acknowledged: datetime | None = None
    acknowledged_by: str = ""
    note: str = ""
    memo: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the rule remembers from one evaluation to the next."""


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """One change of a state, with the evidence as of then: it stays when what it came from goes."""

    id: int
    rule: str
    title: str
    engine_uid: str
    engine: str
    state: str
    reason: str
    since: datetime
    severity: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A stored rule: a change of a built-in one, or one of the workspace's own. ``body`` is its JSON."""

    name: str
    updated: datetime
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SilenceRow:
    """Nobody is told of what fires while it lasts. ``rule`` and ``engine`` are patterns; empty: all."""

    silence_uid: str
    rule: str
    engine: str
    starts: datetime
    ends: datetime
    created: datetime
    author: str
    comment: str


@dataclass(frozen=True, slots=True)
class AlertSubject:
    """An engine as rules choose it: by name, model and environment.

    ``delay_s`` is how long the newest that it told had waited when it arrived, over its processes heard in
    the last minute, beyond the least that was ever seen of each (which takes its clock off); ``None``: none.
    """

    workspace: str
    engine_uid: str
    name: str
    model: str
    environment: str
    delay_s: float | None


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One notification to one address: ``pending``, ``delivered`` or ``failed`` after ``attempts``."""

    id: int
    rule: str
    engine_uid: str
    state: str
    target: str
    status: str
    attempts: int
    next_attempt: datetime | None
    error: str
    created: datetime
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExpectationScope:
    """Of whom something is expected; empty: of any engine, any model, all traffic together.

    ``engine`` is its uid, its instance or its name (which outlives a launch), ``workload`` a slice of the
    rollups as ``dimension=value``.
    """

    engine: str = ""
    model: str = ""
    workload: str = ""


@dataclass(frozen=True, slots=True)
class ExpectationRow:
    """What is promised of a draft; ``per_position`` conditional on the position before, from position 0.

    ``source`` is ``declared`` or ``learned``. Of a learned one ``steps`` counts the verify steps of
    ``period`` on the engine ``learned_on`` (its uid) that ``who`` confirmed to be healthy. ``floor`` is the
    acceptance length below which it is wrong whatever is served.
    """

    scope: ExpectationScope
    source: str
    per_position: tuple[float, ...]
    steps: int
    floor: float | None
    who: str
    said: datetime
    note: str = ""
    period: tuple[datetime, datetime] | None = None
    learned_on: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """From when to when there is something of a kind."""

    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a workspace has; ``None``: nothing of that kind."""

    engines: int
    requests: Held | None
    steps: Held | None
    sums: Held | None
    minutes: Held | None
