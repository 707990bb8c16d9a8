"""A real OTLP/HTTP receiver in this process: it keeps what it is sent and reads it as the server would."""

from __future__ import annotations

import copy
import gzip
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from specscope import chunks, hidden
from specscope import convention as c
from specscope.hidden import HiddenRow
from specscope.records import Crossing, Expectation

Labels = tuple[tuple[str, str], ...]


@dataclass
class RequestTold:
    """One request as the spans tell it; ``attributes`` are those of its last request span."""

    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    steps: list[chunks.StepRow] = field(default_factory=list[chunks.StepRow])
    extends: list[chunks.ExtendRow] = field(default_factory=list[chunks.ExtendRow])
    hidden: list[HiddenRow] = field(default_factory=list[HiddenRow])
    expected: dict[Expectation, int] = field(default_factory=dict[Expectation, int])
    observed: dict[Crossing, int] = field(default_factory=dict[Crossing, int])

    def __deepcopy__(self, _memo: object) -> RequestTold:
        """A snapshot: what was read is added to, never changed, and rows of hidden states are many."""
        steps, extends, rows = self.steps.copy(), self.extends.copy(), self.hidden.copy()
        return RequestTold(self.attributes, steps, extends, rows, self.expected, self.observed)

    @property
    def counted(self) -> list[chunks.StepRow]:
        """The steps that are in a total: those that ran while the request did."""
        return [step for step in self.steps if not step.overshoot]


@dataclass
class Told:
    """Everything a receiver got, read."""

    requests: dict[str, RequestTold]
    """By rid; the tests never use one twice."""
    engines: list[dict[str, Any]]
    """The configuration of each engine span."""
    rollups: int
    resources: list[dict[str, Any]]
    metrics: dict[str, dict[Labels, float]]
    """The latest value of each metric, by its labels."""
    events: list[str] = field(default_factory=list[str])
    """What each of ``engines`` was told for."""

    def metric(self, name: str, **labels: str) -> float:
        """The value of the only series of ``name`` that has ``labels``; 0.0 when there is none."""
        found = [
            value
            for series, value in self.metrics.get(name, {}).items()
            if labels.items() <= {k.rsplit(".", 1)[-1]: v for k, v in series}.items()
        ]
        return sum(found)

    def ledger(self) -> tuple[dict[Expectation, float], dict[Crossing, float]]:
        """(expected, observed) as the metrics tell them."""
        expected: dict[Expectation, float] = {}
        observed: dict[Crossing, float] = {}
        for labels, value in self.metrics.get(c.METRIC_EXPECTED, {}).items():
            one = dict(labels)
            expected[one[c.LABEL_BOUNDARY], one[c.LABEL_SOURCE]] = value
        for labels, value in self.metrics.get(c.METRIC_OBSERVED, {}).items():
            one = dict(labels)
            observed[one[c.LABEL_BOUNDARY], one[c.LABEL_SOURCE], one[c.LABEL_MODE]] = value
        return expected, observed

    def armed(self) -> dict[str, str]:
        """Each boundary with the reason why it is not armed, empty when it is."""
        return {
            dict(labels)[c.LABEL_BOUNDARY]: "" if value else dict(labels)[c.LABEL_REASON]
            for labels, value in self.metrics.get(c.METRIC_ARMED, {}).items()
        }

    def arming(self) -> dict[str, str]:
        """Each boundary with the state of its hooks."""
        return {
            dict(labels)[c.LABEL_BOUNDARY]: dict(labels)[c.LABEL_ARMING]
            for labels in self.metrics.get(c.METRIC_ARMED, {})
        }


class Receiver:
    """Listens on 127.0.0.1; ``port`` 0 takes any free one."""

    def __init__(self, port: int = 0) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self._told = Told({}, [], 0, [], {})
        self._by_uid: dict[str, RequestTold] = {}
        self._next_trace = self._next_metric = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    receiver.traces.append(ExportTraceServiceRequest.FromString(body))
                else:
                    receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, what: str, done: Callable[[Told], bool], seconds: float = 120.0) -> Told:
        """Return what was told once ``done`` says that it is enough."""
        deadline = time.monotonic() + seconds
        while not done(told := self._read()):
            if time.monotonic() > deadline:
                names = {rid: one.attributes.get(c.REQUEST_STATE) for rid, one in told.requests.items()}
                raise AssertionError(f"the receiver never got {what}; requests {names}; {told.metrics}")
            time.sleep(0.3)
        return copy.deepcopy(told)

    def settled(self, rids: list[str]) -> Told:
        """Return what was told once these requests have ended and a heartbeat came after that."""
        ended = (c.STATE_FINISHED, c.STATE_ABORTED)
        self.wait(
            f"the end of {rids}",
            lambda t: all(
                rid in t.requests and t.requests[rid].attributes.get(c.REQUEST_STATE) in ended for rid in rids
            ),
        )
        beats = len(self.metrics)
        return self.wait("a heartbeat", lambda _: len(self.metrics) >= beats + 2)

    def _read(self) -> Told:
        """Read what came since the last time."""
        while self._next_trace < len(self.traces):
            export = self.traces[self._next_trace]
            self._next_trace += 1
            for group in export.resource_spans:
                self._told.resources.append(_attributes(list(group.resource.attributes)))
                for scope in group.scope_spans:
                    for span in scope.spans:
                        self._add(span.name, _attributes(list(span.attributes)))
        while self._next_metric < len(self.metrics):
            metrics = self.metrics[self._next_metric]
            self._next_metric += 1
            for group in metrics.resource_metrics:
                for scope in group.scope_metrics:
                    for metric in scope.metrics:
                        data = metric.sum if metric.HasField("sum") else metric.gauge
                        # A whole metric at once: a series that is gone (a reason that changed) goes.
                        self._told.metrics[metric.name] = {
                            _labels(list(point.attributes)): point.as_double
                            if point.HasField("as_double")
                            else float(point.as_int)
                            for point in data.data_points
                        }
        return self._told

    def _add(self, name: str, attributes: dict[str, Any]) -> None:
        if name == c.SPAN_ENGINE:
            self._told.engines.append(json.loads(attributes[c.ENGINE_CONFIG]))
            self._told.events.append(attributes[c.ENGINE_EVENT])
        elif name == c.SPAN_ROLLUP:
            self._told.rollups += 1
        else:
            one = self._by_uid.setdefault(attributes[c.REQUEST_UID], RequestTold())
            if name == c.SPAN_REQUEST:
                one.attributes = attributes
                one.expected, one.observed = chunks.unpack_boundaries(attributes[c.REQUEST_BOUNDARIES])
                self._told.requests[attributes[c.GEN_AI_REQUEST_ID]] = one
            if c.CHUNK_STEPS in attributes:
                one.steps += chunks.unpack_steps(attributes[c.CHUNK_STEPS])
            if c.CHUNK_EXTENDS in attributes:
                one.extends += chunks.unpack_extends(attributes[c.CHUNK_EXTENDS])
            if c.CHUNK_HIDDEN in attributes:
                one.hidden += hidden.unpack(attributes[c.CHUNK_HIDDEN])


def _attributes(pairs: list[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _labels(pairs: list[KeyValue]) -> Labels:
    return tuple(sorted((pair.key, str(_value(pair.value))) for pair in pairs))


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
