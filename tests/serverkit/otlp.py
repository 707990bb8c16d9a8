"""OTLP messages as our tracer sends them, built by hand so that every field can be made wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from specscope import chunks, identity, rollup
from specscope import convention as c
from specscope_server.store.values import engine_uid as uid_of

INSTANCE = "launch-1"
PID = 4242
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE

Values = Mapping[str, Any]

_now = [time.time_ns()]


def start_module() -> None:
    """Let :func:`now_ns` tell the time from here on: servers in tests judge by their real clock."""
    _now[0] = time.time_ns()


def now_ns() -> int:
    """When the running module of tests started. Collection may be an hour ago, which no window reaches."""
    return _now[0]


def started_ns() -> int:
    """When the process started that tells: a minute before, so that the window in which it is judged has
    all of its counters.
    """
    return now_ns() - 60_000_000_000


def process() -> str:
    """The uid of the process that :func:`resource` is of."""
    return identity.process_uid(INSTANCE, "scheduler", identity.Ranks(), PID, started_ns())


def any_value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[any_value(v) for v in value]))  # pyright: ignore[reportUnknownVariableType]
        case _:
            return AnyValue(string_value=str(value))


def attributes(values: Values) -> list[KeyValue]:
    """``None`` leaves an attribute out."""
    return [KeyValue(key=k, value=any_value(v)) for k, v in values.items() if v is not None]


def resource(**changed: Any) -> Resource:
    """The resource of a scheduler; names in ``changed`` have ``__`` for dots."""
    values: dict[str, Any] = {
        c.WIRE: 1,
        c.TRACER_VERSION: "0.1.0",
        c.SERVICE_NAME: "tiny",
        c.WORKSPACE: "default",
        c.ENVIRONMENT: "default",
        c.INSTANCE: INSTANCE,
        c.PROCESS: process(),
        c.PROCESS_START: started_ns(),
        c.ROLE: "scheduler",
        c.PROCESS_PID: PID,
        c.ENGINE_NAME: "sglang",
        c.ENGINE_VERSION: "0.5.23",
        c.DETAIL: "steps",
    }
    values.update({name.replace("__", "."): value for name, value in changed.items()})
    return Resource(attributes=attributes(values))


def engine_uid() -> str:
    """The engine that :func:`resource` is of."""
    return uid_of("default", "default", INSTANCE)


def request_uid(number: int) -> str:
    return identity.request_uid(INSTANCE, 0, f"rid-{number}", 0)


def span(
    name: str, values: Values, *, number: int = 0, start_ns: int | None = None, end_ns: int | None = None
) -> Span:
    start_ns = now_ns() if start_ns is None else start_ns
    return Span(
        trace_id=identity.trace_id(request_uid(number)).to_bytes(16, "big"),
        span_id=identity.request_span_id(name + str(number)).to_bytes(8, "big"),
        name=name,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + 1_000_000 if end_ns is None else end_ns,
        attributes=attributes(values),
    )


def request_values(number: int, /, **changed: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        c.REQUEST_UID: request_uid(number),
        c.GEN_AI_REQUEST_ID: f"rid-{number}",
        c.REQUEST_STATE: c.STATE_FINISHED,
        c.REQUEST_KIND: c.KIND_USER,
        c.REQUEST_ARRIVAL: now_ns() - 5_000_000_000 + number,
        c.MODEL: "tiny-target",
        c.GEN_AI_INPUT_TOKENS: 12,
        c.GEN_AI_OUTPUT_TOKENS: 20,
        c.GEN_AI_FINISH_REASONS: ["length"],
        c.REQUEST_VERIFY_STEPS: 8,
        c.REQUEST_DRAFTED_DEPTH: 24,
        c.REQUEST_DRAFTED_NODES: 24,
        c.REQUEST_ACCEPTED: 12,
        c.REQUEST_BONUS: 8,
        c.REQUEST_COMMITTED: 20,
        c.REQUEST_PREFILLS: 1,
    }
    values.update(changed)
    return values


def request_span(number: int = 0, /, **changed: Any) -> Span:
    return span(c.SPAN_REQUEST, request_values(number, **changed), number=number)


def step_rows(count: int = 4) -> list[chunks.StepRow]:
    return [
        chunks.StepRow(
            step=i,
            t=now_ns() + i * 1_000_000,
            mode=c.EAGER,
            batch_size=1,
            row=0,
            context=12 + i,
            drafted_depth=3,
            drafted_nodes=3,
            accepted=i % 4,
            bonus=1,
            committed=i % 4 + 1,
            overshoot=0,
            weight_version=0,
        )
        for i in range(count)
    ]


def extend_rows() -> list[chunks.ExtendRow]:
    return [
        chunks.ExtendRow(
            step=0,
            t=now_ns(),
            after="prefill",
            mode=c.EAGER,
            fed_width=192,
            dtype="float32",
            aux_states=3,
            fc_in=192,
            fc_ran=1,
            rows=12,
            mean=float("nan"),
            std=1.0,
            rms=1.0,
            max_abs=3.0,
            nonfinite=0,
            zero_rows=0,
        )
    ]


def steps_span(number: int = 0, /, **changed: Any) -> Span:
    values = request_values(number, **{c.REQUEST_STATE: c.STATE_RUNNING})
    values |= {
        c.CHUNK_SEQ: 0,
        c.CHUNK_FIRST_STEP: 0,
        c.CHUNK_STEPS: chunks.pack_steps(step_rows(), tokens=False),
        c.CHUNK_EXTENDS: chunks.pack_extends(extend_rows()),
    }
    values.update(changed)
    return span(c.SPAN_STEPS, values, number=number)


def rollup_rows(steps: int = 8, accepted: int = 12) -> dict[rollup.Key, rollup.Counts]:
    return {
        (rollup.ALL, "", rollup.STEP): rollup.Counts(
            steps=steps,
            drafted_depth=3 * steps,
            drafted_nodes=3 * steps,
            accepted=accepted,
            bonus=steps,
            committed=accepted + steps,
            zero_steps=1,
        ),
        (rollup.ALL, "", 0): rollup.Counts(steps=steps, accepted=accepted // 2),
    }


def rollup_span(seq: int = 0, /, **changed: Any) -> Span:
    values: dict[str, Any] = {
        c.ROLLUP_SEQ: seq,
        c.ROLLUP_BUCKET: rollup.bucket_start(now_ns()),
        c.ROLLUP_ROWS: rollup.pack(rollup_rows()),
    }
    values.update(changed)
    return span(c.SPAN_ROLLUP, values, number=seq)


def rank_span(steps: Sequence[int], /, *, size: int = 2, **changed: Any) -> Span:
    sums = chunks.pack_ranks(steps, [10 * step for step in steps], [None] * len(steps))
    values: dict[str, Any] = {c.RANKS_SIZE: size, c.RANKS_STEPS: sums}
    values.update(changed)
    return span(c.SPAN_RANKS, values, number=steps[0])


def engine_span(**changed: Any) -> Span:
    values: dict[str, Any] = {
        c.ENGINE_EVENT: "start",
        c.MODEL: "tiny-target",
        c.METRIC_SPECULATION: True,
        c.ENGINE_CONFIG: '{"speculative": {"algorithm": "EAGLE3", "num_steps": 3}}',
    }
    values.update(changed)
    return span(c.SPAN_ENGINE, values)


def traces(
    *spans: Span, scope: str = c.SCOPE_NAME, about: Resource | None = None
) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=resource() if about is None else about,
                scope_spans=[ScopeSpans(scope=InstrumentationScope(name=scope), spans=spans)],
            )
        ]
    )


def point(value: float, labels: Values | None = None, *, time_ns: int | None = None) -> NumberDataPoint:
    time_ns = now_ns() if time_ns is None else time_ns
    made = NumberDataPoint(time_unix_nano=time_ns, attributes=attributes(labels or {}))
    if isinstance(value, int):
        made.as_int = value
    else:
        made.as_double = value
    return made


def gauge(name: str, *points: NumberDataPoint) -> Metric:
    return Metric(name=name, gauge=Gauge(data_points=points))


def total(
    name: str, *points: NumberDataPoint, temporality: AggregationTemporality.ValueType = CUMULATIVE
) -> Metric:
    return Metric(
        name=name,
        sum=Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=True),
    )


def heartbeat_metrics(time_ns: int | None = None, expected: int = 9, fc: int = 9) -> list[Metric]:
    time_ns = now_ns() if time_ns is None else time_ns
    fed = {c.LABEL_BOUNDARY: c.DRAFT_FC, c.LABEL_SOURCE: c.TARGET_FED}
    return [
        gauge(c.METRIC_HEARTBEAT, point(time_ns / 1e9, time_ns=time_ns)),
        gauge(c.METRIC_SPECULATION, point(1, time_ns=time_ns)),
        gauge(c.METRIC_ARMED, point(1, {c.LABEL_BOUNDARY: c.DRAFT_FC}, time_ns=time_ns)),
        total(c.METRIC_EXPECTED, point(expected, fed, time_ns=time_ns)),
        total(c.METRIC_OBSERVED, point(fc, fed | {c.LABEL_MODE: c.EAGER}, time_ns=time_ns)),
        total(c.METRIC_REQUESTS, point(3, {c.LABEL_KIND: c.KIND_USER}, time_ns=time_ns)),
        total(c.METRIC_DROPPED, point(2, {c.LABEL_REASON: "queue full"}, time_ns=time_ns)),
        total(c.METRIC_HOOK_ERRORS, point(1, {c.LABEL_HOOK: "fc"}, time_ns=time_ns)),
        gauge(c.METRIC_QUEUED, point(5, time_ns=time_ns)),
        total(c.METRIC_EXPORT_FAILURES, point(4, time_ns=time_ns)),
        total(c.METRIC_ENGINE_THREAD, point(77, time_ns=time_ns)),
    ]


def metrics(
    *found: Metric, scope: str = c.SCOPE_NAME, about: Resource | None = None
) -> ExportMetricsServiceRequest:
    return ExportMetricsServiceRequest(
        resource_metrics=[
            ResourceMetrics(
                resource=resource() if about is None else about,
                scope_metrics=[ScopeMetrics(scope=InstrumentationScope(name=scope), metrics=found)],
            )
        ]
    )
