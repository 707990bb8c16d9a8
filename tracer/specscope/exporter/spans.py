"""Finished spans, built by hand: up to SDK 1.44 a live span's attribute cleaner drops byte values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from specscope import convention as c
from specscope import identity
from specscope.clock import Anchor
from specscope.exporter.requests import RequestState
from specscope.frames import Hello
from specscope.records import EngineFacts, RankSteps
from specscope.version import __version__

Value = str | int | float | bool | bytes | tuple[str, ...]
Attributes = dict[str, Value]

SCOPE: Final = InstrumentationScope(c.SCOPE_NAME, __version__)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
# What a span costs in memory beyond its texts and bytes: tracemalloc says 1.4 KiB for a steps span of 21
# attributes (Python 3.11, SDK 1.45).
_SPAN_BYTES: Final = 512
_ATTRIBUTE_BYTES: Final = 48


def resource(hello: Hello, facts: EngineFacts | None) -> Resource:
    """Return the resource of one engine process; the SDK's own detectors and variables take no part."""
    settings = hello.settings
    attributes: dict[str, str | int] = {
        c.SERVICE_NAME: settings.name or (facts.model if facts else "") or hello.engine_name,
        c.PROCESS_PID: hello.pid,
        c.WIRE: c.WIRE_VERSION,
        c.TRACER_VERSION: __version__,
        c.WORKSPACE: settings.workspace,
        c.ENVIRONMENT: settings.environment,
        c.INSTANCE: hello.instance,
        c.PROCESS: hello.process,
        c.PROCESS_START: hello.start_ns,
        c.ROLE: hello.role,
        c.RANK_TP: hello.ranks.tp,
        c.RANK_DP: hello.ranks.dp,
        c.RANK_PP: hello.ranks.pp,
        c.SERVING_ROLE: hello.ranks.serving_role,
        c.ENGINE_NAME: hello.engine_name,
        c.ENGINE_VERSION: hello.engine_version,
        c.DETAIL: settings.detail,
    }
    if facts is not None and facts.model:
        attributes[c.MODEL] = facts.model
    return Resource(attributes)


def size_of(attributes: Mapping[str, Value]) -> int:
    """Estimate the bytes that a span with these attributes takes in memory."""
    held = sum(len(v) for v in attributes.values() if isinstance(v, (bytes, str)))
    return _SPAN_BYTES + _ATTRIBUTE_BYTES * len(attributes) + held


class Spans:
    """Builds the spans of one engine process."""

    def __init__(self, hello: Hello) -> None:
        """Speak for the process of ``hello``."""
        self._hello = hello
        self._resource = resource(hello, None)
        self._model = ""

    @property
    def resource(self) -> Resource:
        """Return the resource that spans and metrics carry."""
        return self._resource

    def _span(
        self,
        name: str,
        trace: int,
        span: int,
        times: tuple[int, int],
        attributes: Attributes,
        parent: SpanContext | None = None,
    ) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=SpanKind.INTERNAL,
            start_time=times[0],
            end_time=max(times),
            instrumentation_scope=SCOPE,
        )

    def engine(self, facts: EngineFacts, number: int, anchor: Anchor) -> ReadableSpan:
        """Return the span of the ``number``-th engine record; the resource follows its model."""
        self._model = facts.model
        self._resource = resource(self._hello, facts)
        at = anchor.wall(facts.t_ns)
        attributes: Attributes = {
            c.ENGINE_EVENT: facts.event,
            c.METRIC_SPECULATION: facts.speculation,
            c.ENGINE_CONFIG: json.dumps(facts.config, sort_keys=True, default=str),
            c.MODEL: facts.model,
            **_clock(anchor),
        }
        return self._process_span(c.SPAN_ENGINE, number, (at, at), attributes)

    def rollup(
        self, seq: int, bucket: int, rows: bytes, hidden: bytes | None, now_ns: int, anchor: Anchor
    ) -> ReadableSpan:
        """Return a rollup span; ``bucket`` in unix seconds, ``now_ns`` wall clock.

        ``hidden`` are the packed sums over hidden states, ``None`` where nothing was looked at.
        """
        attributes: Attributes = {c.ROLLUP_SEQ: seq, c.ROLLUP_BUCKET: bucket, c.ROLLUP_ROWS: rows}
        _put(attributes, c.ROLLUP_HIDDEN, hidden)
        attributes |= _clock(anchor)
        return self._process_span(c.SPAN_ROLLUP, seq, (bucket * 1_000_000_000, now_ns), attributes)

    def ranks(self, record: RankSteps, packed: bytes, anchor: Anchor) -> ReadableSpan:
        """Return the span of some verify steps of this rank; ``packed`` are their checksums.

        A process tells each step once, so that the first one numbers the span.
        """
        at = anchor.wall(record.t_ns)
        attributes: Attributes = {c.RANKS_SIZE: record.size, c.RANKS_STEPS: packed, **_clock(anchor)}
        return self._process_span(c.SPAN_RANKS, record.steps[0], (at, at), attributes)

    def _process_span(
        self, name: str, seq: int, times: tuple[int, int], attributes: Attributes
    ) -> ReadableSpan:
        process = self._hello.process
        return self._span(
            name,
            identity.process_trace_id(process),
            identity.process_span_id(process, name, seq),
            times,
            attributes,
        )

    def request(self, state: RequestState, boundaries: bytes, anchor: Anchor) -> ReadableSpan:
        """Return the request span as it stands; the same ids each time, the last one tells it all."""
        attributes = self._identity(state)
        attributes[c.GEN_AI_OPERATION] = "text_completion"
        attributes[c.GEN_AI_PROVIDER] = self._hello.engine_name
        started, finished = state.started, state.finished
        _put(attributes, c.GEN_AI_TEMPERATURE, None if started is None else started.temperature)
        _put(attributes, c.GEN_AI_MAX_TOKENS, None if started is None else started.max_tokens)
        if finished is not None:
            attributes[c.GEN_AI_OUTPUT_TOKENS] = finished.output_tokens
            attributes[c.GEN_AI_FINISH_REASONS] = (finished.reason,)
            _put(attributes, c.REQUEST_QUEUE_S, finished.queue_s)
            _put(attributes, c.REQUEST_FIRST_TOKEN_S, finished.first_token_s)
            _put(attributes, c.REQUEST_ENGINE_STEPS, finished.engine_verify_steps)
            _put(attributes, c.REQUEST_ENGINE_ACCEPTED, finished.engine_accepted)
        attributes[c.REQUEST_BOUNDARIES] = boundaries
        attributes |= _clock(anchor)
        trace, parent = _trace(state)
        return self._span(
            c.SPAN_REQUEST,
            trace,
            identity.request_span_id(state.uid),
            (state.first_wall_ns, state.last_wall_ns),
            attributes,
            SpanContext(trace, parent, is_remote=True, trace_flags=_SAMPLED) if parent else None,
        )

    def steps(
        self,
        state: RequestState,
        seq: int,
        first_step: int,
        payload: Attributes,
        times: tuple[int, int],
        anchor: Anchor,
    ) -> ReadableSpan:
        """Return the span of chunk ``seq``; ``payload`` holds its packed columns, ``times`` wall clock ns."""
        attributes = self._identity(state)
        attributes[c.CHUNK_SEQ] = seq
        attributes[c.CHUNK_FIRST_STEP] = first_step
        attributes |= payload
        attributes |= _clock(anchor)
        trace, _ = _trace(state)
        return self._span(
            c.SPAN_STEPS,
            trace,
            identity.chunk_span_id(self._hello.process, state.uid, seq),
            times,
            attributes,
            SpanContext(trace, identity.request_span_id(state.uid), is_remote=False, trace_flags=_SAMPLED),
        )

    def _identity(self, state: RequestState) -> Attributes:
        """Return who the request is and its totals so far; totals only where every step was seen."""
        attributes: Attributes = {c.REQUEST_UID: state.uid, c.REQUEST_STATE: state.state}
        if self._model:
            attributes[c.MODEL] = self._model
        started = state.started
        if started is not None:
            attributes[c.GEN_AI_REQUEST_ID] = started.rid
            attributes[c.REQUEST_KIND] = started.kind
            attributes[c.REQUEST_ARRIVAL] = started.arrival_ns
            attributes[c.GEN_AI_INPUT_TOKENS] = started.prompt_tokens
        _put(attributes, c.REQUEST_CACHED, state.cached)
        if state.whole:
            totals = state.totals
            attributes[c.REQUEST_VERIFY_STEPS] = totals.verify_steps
            attributes[c.REQUEST_DRAFTED_DEPTH] = totals.drafted_depth
            attributes[c.REQUEST_DRAFTED_NODES] = totals.drafted_nodes
            attributes[c.REQUEST_ACCEPTED] = totals.accepted
            attributes[c.REQUEST_BONUS] = totals.bonus
            attributes[c.REQUEST_COMMITTED] = totals.committed
            attributes[c.REQUEST_ZERO_STEPS] = totals.zero_steps
            attributes[c.REQUEST_OVERSHOOT] = totals.overshoot
            attributes[c.REQUEST_PREFILLS] = totals.prefills
        return attributes


def _put(attributes: Attributes, name: str, value: Value | None) -> None:
    if value is not None:
        attributes[name] = value


def _clock(anchor: Anchor) -> Attributes:
    return {c.CLOCK_MONOTONIC: anchor.monotonic_ns, c.CLOCK_WALL: anchor.wall_ns}


def _trace(state: RequestState) -> tuple[int, int]:
    """Return (trace id, parent span id or 0): the request's own context, else derived from its uid."""
    started = state.started
    if started is not None and started.trace is not None and started.trace[0]:
        return started.trace
    return identity.trace_id(state.uid), 0
