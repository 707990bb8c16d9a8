"""What exports say, by the keys under which a store must have it exactly once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from specscope import convention as c
from specscope import rollup
from specscope_server.store.values import engine_uid
from wirekit.receiver import attributes_of

Key = tuple[Any, ...]

TOTALS = {
    "verify_steps": c.REQUEST_VERIFY_STEPS,
    "drafted_depth": c.REQUEST_DRAFTED_DEPTH,
    "accepted": c.REQUEST_ACCEPTED,
    "committed": c.REQUEST_COMMITTED,
}
LEDGER = {c.METRIC_EXPECTED: "expected", c.METRIC_OBSERVED: "observed"}


@dataclass
class Told:
    """Everything that exports have told, each thing once. Safe to use from several threads."""

    chunks: dict[Key, tuple[bytes, bytes]] = field(default_factory=dict[Key, tuple[bytes, bytes]])
    """(engine, uid, process, seq) to packed steps and extends."""
    requests: dict[Key, dict[str, int]] = field(default_factory=dict[Key, dict[str, int]])
    """(engine, uid) to the largest totals, and whether an end was told."""
    rollups: dict[Key, tuple[int, dict[rollup.Key, rollup.Counts]]] = field(
        default_factory=dict[Key, tuple[int, dict[rollup.Key, rollup.Counts]]]
    )
    """(engine, process, seq) to bucket and rows."""
    ledger: dict[Key, int] = field(default_factory=dict[Key, int])
    """(engine, process, boundary, source, mode, kind) to the largest count: they are cumulative."""
    events: set[Key] = field(default_factory=set[Key])
    """(engine, process, time, event)."""
    spans: set[Key] = field(default_factory=set[Key])
    """(trace id, span id) of other tools' spans."""
    exports: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, message: ExportTraceServiceRequest | ExportMetricsServiceRequest) -> None:
        """Note what an export says.

        Raises:
            AssertionError: the sender told another thing under a key that it has used.
        """
        with self._lock:
            self.exports += 1
            if isinstance(message, ExportTraceServiceRequest):
                self._traces(message)
            else:
                self._metrics(message)

    def _traces(self, message: ExportTraceServiceRequest) -> None:
        for resource in message.resource_spans:
            about = attributes_of(resource.resource.attributes)
            engine = _engine(about)
            process = about.get(c.PROCESS, "")
            for scope in resource.scope_spans:
                for span in scope.spans:
                    if scope.scope.name != c.SCOPE_NAME:
                        self.spans.add((span.trace_id.hex(), span.span_id.hex()))
                        continue
                    values = attributes_of(span.attributes)
                    if span.name in (c.SPAN_REQUEST, c.SPAN_STEPS):
                        self._request((engine, values[c.REQUEST_UID]), values)
                    if span.name == c.SPAN_STEPS:
                        key = (engine, values[c.REQUEST_UID], process, values[c.CHUNK_SEQ])
                        told = values.get(c.CHUNK_STEPS, b""), values.get(c.CHUNK_EXTENDS, b"")
                        assert self.chunks.setdefault(key, told) == told, f"chunk {key} was told differently"
                    elif span.name == c.SPAN_ROLLUP:
                        key = (engine, process, values[c.ROLLUP_SEQ])
                        rows = values[c.ROLLUP_BUCKET], rollup.unpack(values[c.ROLLUP_ROWS])
                        assert self.rollups.setdefault(key, rows) == rows, f"rollup {key} differs"
                    elif span.name == c.SPAN_ENGINE:
                        self.events.add((engine, process, span.start_time_unix_nano, values[c.ENGINE_EVENT]))

    def _request(self, key: Key, values: dict[str, Any]) -> None:
        known = self.requests.setdefault(key, {**dict.fromkeys(TOTALS, 0), "ended": 0})
        for name, attribute in TOTALS.items():
            known[name] = max(known[name], values.get(attribute, 0))
        known["ended"] |= values[c.REQUEST_STATE] != c.STATE_RUNNING

    def _metrics(self, message: ExportMetricsServiceRequest) -> None:
        for resource in message.resource_metrics:
            about = attributes_of(resource.resource.attributes)
            who = _engine(about), about.get(c.PROCESS, "")
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                kind = LEDGER.get(metric.name)
                for point in metric.sum.data_points if kind else ():
                    labels = attributes_of(point.attributes)
                    names = (c.LABEL_BOUNDARY, c.LABEL_SOURCE, c.LABEL_MODE)
                    key = (*who, *(labels.get(name, "") for name in names), kind)
                    self.ledger[key] = max(self.ledger.get(key, 0), point.as_int)


def _engine(about: dict[str, Any]) -> str:
    names = (c.WORKSPACE, c.ENVIRONMENT, c.INSTANCE)
    return engine_uid(*(about.get(name, "default") for name in names))
