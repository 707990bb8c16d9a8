"""The ledger and the tracer's own counts as finished OTLP metrics, cumulative since the process started.

Built by hand like the spans: the SDK would give a restarted exporter's sums a new start time, and the
server takes a new start time for a new process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from specscope import convention as c
from specscope.exporter.spans import SCOPE
from specscope.frames import Beat
from specscope.rollup import power_slice

Labels = dict[str, str]
Series = Iterable[tuple[Labels, int | float]]


class _Builder:
    def __init__(self, start_ns: int, now_ns: int) -> None:
        self._start_ns, self._now_ns = start_ns, now_ns
        self.metrics: list[Metric] = []

    def _points(self, series: Series) -> list[NumberDataPoint]:
        return [NumberDataPoint(labels, self._start_ns, self._now_ns, value) for labels, value in series]

    def sum(self, name: str, unit: str, description: str, series: Series) -> None:
        if points := self._points(series):
            data = Sum(points, AggregationTemporality.CUMULATIVE, True)
            self.metrics.append(Metric(name, description, unit, data))

    def gauge(self, name: str, unit: str, description: str, series: Series) -> None:
        if points := self._points(series):
            self.metrics.append(Metric(name, description, unit, Gauge(points)))


def build(
    resource: Resource,
    start_ns: int,
    now_ns: int,
    beat: Beat,
    *,
    speculation: bool | None,
    dropped: Mapping[str, int],
    export_failures: int,
    ended_ns: int | None = None,
) -> MetricsData:
    """Return everything that a heartbeat tells, in one batch.

    ``start_ns`` and ``now_ns`` are wall clock. ``speculation`` is ``None`` until the engine has said
    whether it drafts; it is then not sent. ``dropped`` adds the exporter's own to the engine process'.
    ``ended_ns`` is when the engine said that it ends in order, ``None`` before.
    """
    b = _Builder(start_ns, now_ns)
    b.gauge(
        c.METRIC_HEARTBEAT,
        "s",
        "Wall clock of the process' last heartbeat",
        [({}, beat.anchor.wall_ns / 1e9)],
    )
    if ended_ns is not None:
        b.gauge(c.METRIC_ENDED, "s", "Wall clock when the process ended in order", [({}, ended_ns / 1e9)])
    b.sum(
        c.METRIC_EXPECTED,
        "{crossing}",
        "Crossings that the passes run so far must have made",
        [
            ({c.LABEL_BOUNDARY: name, c.LABEL_SOURCE: source}, n)
            for (name, source), n in sorted(beat.expected.items())
        ],
    )
    b.sum(
        c.METRIC_OBSERVED,
        "{crossing}",
        "Crossings seen",
        [
            ({c.LABEL_BOUNDARY: name, c.LABEL_SOURCE: source, c.LABEL_MODE: mode}, n)
            for (name, source, mode), n in sorted(beat.observed.items())
        ],
    )
    b.gauge(
        c.METRIC_ARMED,
        "1",
        "1: the boundary can be seen; 0: it cannot, for the reason given",
        [
            (
                {c.LABEL_BOUNDARY: name, c.LABEL_ARMING: state}
                | ({c.LABEL_REASON: reason} if reason else {}),
                int(state == c.ARMING_ARMED),
            )
            for name, (state, reason) in sorted(beat.armed.items())
        ],
    )
    b.sum(
        c.METRIC_REQUESTS,
        "{request}",
        "Requests that reached the process",
        [({c.LABEL_KIND: kind}, n) for kind, n in sorted(beat.requests.items())],
    )
    if speculation is not None:
        b.gauge(c.METRIC_SPECULATION, "1", "1: the engine is set to draft", [({}, int(speculation))])
    reasons = sorted({*beat.dropped, *dropped})
    b.sum(
        c.METRIC_DROPPED,
        "{record}",
        "Records and spans that were lost",
        [
            ({c.LABEL_REASON: reason}, beat.dropped.get(reason, 0) + dropped.get(reason, 0))
            for reason in reasons
        ],
    )
    b.gauge(c.METRIC_QUEUED, "{record}", "Records waiting for the exporter", [({}, beat.queued)])
    b.sum(c.METRIC_EXPORT_FAILURES, "{export}", "Exports that did not arrive", [({}, export_failures)])
    b.sum(
        c.METRIC_HOOK_ERRORS,
        "{error}",
        "Exceptions caught in the tracer's hooks",
        [({c.LABEL_HOOK: hook}, n) for hook, n in sorted(beat.hook_errors.items())],
    )
    b.sum(
        c.METRIC_ENGINE_THREAD,
        "ns",
        "Time that the tracer took from the engine thread",
        [({}, beat.engine_thread_ns)],
    )
    b.sum(
        c.METRIC_MISSED,
        "{copy}",
        "Copies of a step's values that a device did not hand over",
        [({c.LABEL_REASON: reason}, n) for reason, n in sorted(beat.missed.items())],
    )
    labelled = [
        ({c.LABEL_PASS: kind, c.LABEL_BATCH: power_slice((1 << bits) - 1)}, passes, ns)
        for (kind, bits), (passes, ns) in sorted(beat.pass_times.items())
    ]
    b.sum(
        c.METRIC_PASSES,
        "{pass}",
        "Passes of the engine that were timed",
        [(labels, passes) for labels, passes, _ in labelled],
    )
    b.sum(
        c.METRIC_PASS_TIME,
        "ns",
        "Host time that these took, each to the begin of the next",
        [(labels, ns) for labels, _, ns in labelled],
    )
    scope = ScopeMetrics(SCOPE, b.metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])
