"""From OTLP metric points to heartbeats: ledger totals and the tracer's own counters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
)
from specscope import convention as c
from specscope.rollup import BATCH

from specscope_server.ingest.resource import process_facts
from specscope_server.ingest.values import (
    MAX_COUNT,
    MAX_NAME,
    MAX_TIME_NS,
    Attributes,
    Invalid,
    Tally,
    time_ns,
)
from specscope_server.store.sliced import SLICES
from specscope_server.store.told import Batch, BoundaryTotal, Heartbeat

MAX_SERIES: Final = 1024
"""Series of one heartbeat; a tracer with every boundary, source and mode sends fewer than a hundred."""

Series = tuple[str, ...]
"""A metric's name and the labels that tell its points apart."""


@dataclass(slots=True)
class Beat:
    """A heartbeat while its points are gathered."""

    seen: set[Series] = field(default_factory=set[Series])
    point_ns: int = 0
    heartbeat_ns: int | None = None
    boundaries: list[BoundaryTotal] = field(default_factory=list[BoundaryTotal])
    armed: dict[str, tuple[bool, str]] = field(default_factory=dict[str, tuple[bool, str]])
    arming: dict[str, str] = field(default_factory=dict[str, str])
    requests: dict[str, int] = field(default_factory=dict[str, int])
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    hook_errors: dict[str, int] = field(default_factory=dict[str, int])
    queued: int | None = None
    export_failures: int | None = None
    engine_thread_ns: int | None = None
    passes: dict[str, int] = field(default_factory=dict[str, int])
    pass_ns: dict[str, int] = field(default_factory=dict[str, int])
    speculation: bool | None = None
    ended_ns: int | None = None

    def facts(self) -> Heartbeat:
        """Return it whole. Its time is what the heartbeat gauge says, else that of its newest point."""
        return Heartbeat(
            event_ns=self.heartbeat_ns or self.point_ns,
            boundaries=tuple(self.boundaries),
            armed=self.armed,
            arming=self.arming,
            requests=self.requests,
            dropped=self.dropped,
            hook_errors=self.hook_errors,
            queued=self.queued,
            export_failures=self.export_failures,
            engine_thread_ns=self.engine_thread_ns,
            passes=self.passes,
            pass_ns=self.pass_ns,
            speculation=self.speculation,
            ended_ns=self.ended_ns,
        )


@dataclass(frozen=True, slots=True)
class Point:
    """One number with its labels, checked; ``set`` puts it into a heartbeat."""

    series: Series
    time_ns: int
    set: Callable[[Beat], None]


def batches_of(export: ExportMetricsServiceRequest) -> tuple[list[Batch], Tally]:
    """Return what an export says, and what became of each of its points; never raises on hostile values."""
    tally = Tally()
    batches: list[Batch] = []
    for resource_metrics in export.resource_metrics:
        batch = _batch(resource_metrics, tally)
        if batch is not None:
            batches.append(batch)
    return batches, tally


def _batch(resource_metrics: ResourceMetrics, tally: Tally) -> Batch | None:
    ours: list[Metric] = []
    for scope in resource_metrics.scope_metrics:
        for metric in scope.metrics:
            if scope.scope.name == c.SCOPE_NAME and metric.name in READERS:
                ours.append(metric)
            else:
                tally.foreign += _points_in(metric)
    if not ours:
        return None
    try:
        process = process_facts(resource_metrics.resource, tally)
    except Invalid as error:
        tally.reject(f"resource: {error}", sum(map(_points_in, ours)))
        return None
    points = [point for metric in ours for point in _points(metric, tally)]
    beats = _beats(points, tally)
    return Batch(process, heartbeats=tuple(beat.facts() for beat in beats)) if beats else None


def points_of(metric: Metric) -> Sequence[Any]:
    """Return the points of a metric, whatever its kind."""
    kind = metric.WhichOneof("data")
    return () if kind is None else getattr(metric, kind).data_points


def _points_in(metric: Metric) -> int:
    return len(points_of(metric))


def _beats(points: list[Point], tally: Tally) -> list[Beat]:
    """Group points into heartbeats: one collection has each series once, a collector may send several."""
    beats: list[Beat] = []
    for point in sorted(points, key=lambda p: p.time_ns):
        if not beats or point.series in beats[-1].seen:
            beats.append(Beat())
        beat = beats[-1]
        if len(beat.seen) >= MAX_SERIES:
            tally.reject(f"more than {MAX_SERIES} series in one heartbeat")
            continue
        beat.seen.add(point.series)
        beat.point_ns = max(beat.point_ns, point.time_ns)
        point.set(beat)
        tally.accepted += 1
    return beats


def _points(metric: Metric, tally: Tally) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind not in ("sum", "gauge"):
        tally.reject(f"{metric.name} is neither a sum nor a gauge", _points_in(metric))
        return
    if (
        kind == "sum"
        and metric.sum.aggregation_temporality != AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    ):
        tally.reject(f"{metric.name} is not cumulative", _points_in(metric))
        return
    for point in metric.sum.data_points if kind == "sum" else metric.gauge.data_points:
        if point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            tally.accepted += 1  # says that there is no value: nothing to keep
            continue
        try:
            labels, apply = READERS[metric.name](point, Attributes.of(point.attributes, tally))
            yield Point((metric.name, *labels), time_ns(point.time_unix_nano, "the point's time"), apply)
        except Invalid as error:
            tally.reject(f"{metric.name}: {error}")


def _number(point: NumberDataPoint) -> float | int:
    kind = point.WhichOneof("value")
    if kind is None:
        raise Invalid("the point has no value")
    return point.as_int if kind == "as_int" else point.as_double


def _count(point: NumberDataPoint) -> int:
    value = _number(point)
    if not (math.isfinite(value) and value == int(value) and 0 <= value <= MAX_COUNT):
        raise Invalid(f"the value {value} is not a count from 0 to {MAX_COUNT}")
    return int(value)


def _switch(point: NumberDataPoint) -> bool:
    value = _number(point)
    if value not in (0, 1):
        raise Invalid(f"the value {value} is neither 0 nor 1")
    return value == 1


Reading = tuple[Series, Callable[[Beat], None]]


def _expected(point: NumberDataPoint, labels: Attributes) -> Reading:
    boundary, source = labels.name(c.LABEL_BOUNDARY), labels.choice(c.LABEL_SOURCE, c.SOURCES, c.NO_SOURCE)
    total = BoundaryTotal(boundary, source, "", _count(point), None)
    return (boundary, source), lambda beat: beat.boundaries.append(total)


def _observed(point: NumberDataPoint, labels: Attributes) -> Reading:
    boundary, source = labels.name(c.LABEL_BOUNDARY), labels.choice(c.LABEL_SOURCE, c.SOURCES, c.NO_SOURCE)
    mode = labels.choice(c.LABEL_MODE, c.MODES)
    total = BoundaryTotal(boundary, source, mode, None, _count(point))
    return (boundary, source, mode), lambda beat: beat.boundaries.append(total)


def _armed(point: NumberDataPoint, labels: Attributes) -> Reading:
    boundary = labels.name(c.LABEL_BOUNDARY)
    armed, reason = _switch(point), labels.text(c.LABEL_REASON)
    told = labels.text(c.LABEL_ARMING, limit=MAX_NAME)
    # The value decides. A word that does not fit it, or that only a newer tracer knows, says nothing.
    state = c.ARMING_ARMED if armed else told if told in c.ARMINGS and told != c.ARMING_ARMED else ""

    def put(beat: Beat) -> None:
        beat.armed[boundary], beat.arming[boundary] = (armed, reason), state

    # The reason is a label, so a boundary that disarmed may be told twice in one collection: once as it was.
    return (boundary, told, reason), put


def _requests(point: NumberDataPoint, labels: Attributes) -> Reading:
    kind, count = labels.choice(c.LABEL_KIND, c.REQUEST_KINDS), _count(point)
    return (kind,), lambda beat: beat.requests.__setitem__(kind, count)


def _dropped(point: NumberDataPoint, labels: Attributes) -> Reading:
    reason, count = labels.text(c.LABEL_REASON, limit=MAX_NAME), _count(point)
    return (reason,), lambda beat: beat.dropped.__setitem__(reason, count)


def _hook_errors(point: NumberDataPoint, labels: Attributes) -> Reading:
    hook, count = labels.text(c.LABEL_HOOK, limit=MAX_NAME), _count(point)
    return (hook,), lambda beat: beat.hook_errors.__setitem__(hook, count)


def _passes(point: NumberDataPoint, labels: Attributes) -> Reading:
    name, count = _pass(labels), _count(point)
    return (name,), lambda beat: beat.passes.__setitem__(name, count)


def _pass_time(point: NumberDataPoint, labels: Attributes) -> Reading:
    name, ns = _pass(labels), _count(point)
    return (name,), lambda beat: beat.pass_ns.__setitem__(name, ns)


def _pass(labels: Attributes) -> str:
    kind = labels.choice(c.LABEL_PASS, c.PASS_KINDS)
    batch = labels.text(c.LABEL_BATCH, limit=MAX_NAME)
    if batch not in SLICES[BATCH]:
        raise Invalid(f"{c.LABEL_BATCH} {batch!r} is no power-of-two slice")
    return f"{kind}|{batch}"


def _seconds(point: NumberDataPoint) -> int:
    """Return a wall clock in seconds as ns."""
    seconds = _number(point)
    if not (math.isfinite(seconds) and 0 < seconds <= MAX_TIME_NS / 1e9):
        raise Invalid(f"the value {seconds} is not a time in seconds since 1970")
    return int(seconds * 1e9)


def _scalar(name: str, read: Callable[[NumberDataPoint], int | bool]) -> Callable[..., Reading]:
    def reading(point: NumberDataPoint, _labels: Attributes) -> Reading:
        value = read(point)
        return (), lambda beat: setattr(beat, name, value)

    return reading


READERS: Final[dict[str, Callable[[NumberDataPoint, Attributes], Reading]]] = {
    c.METRIC_EXPECTED: _expected,
    c.METRIC_OBSERVED: _observed,
    c.METRIC_ARMED: _armed,
    c.METRIC_REQUESTS: _requests,
    c.METRIC_HEARTBEAT: _scalar("heartbeat_ns", _seconds),
    c.METRIC_ENDED: _scalar("ended_ns", _seconds),
    c.METRIC_SPECULATION: _scalar("speculation", _switch),
    c.METRIC_DROPPED: _dropped,
    c.METRIC_QUEUED: _scalar("queued", _count),
    c.METRIC_EXPORT_FAILURES: _scalar("export_failures", _count),
    c.METRIC_HOOK_ERRORS: _hook_errors,
    c.METRIC_ENGINE_THREAD: _scalar("engine_thread_ns", _count),
    c.METRIC_PASSES: _passes,
    c.METRIC_PASS_TIME: _pass_time,
}
