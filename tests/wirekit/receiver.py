"""A real OTLP/HTTP receiver that keeps what it was sent, decoded by OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from specscope import chunks
from specscope import convention as c


def value_of(value: AnyValue) -> Any:
    """Return an attribute's value as a builtin."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return tuple(value_of(v) for v in value.array_value.values)
    return getattr(value, kind)


def attributes_of(pairs: Iterator[KeyValue] | Any) -> dict[str, Any]:
    """Return attributes as a dict."""
    return {pair.key: value_of(pair.value) for pair in pairs}


@dataclass(frozen=True)
class Span:
    """One span as it arrived; times in ns since 1970, ids as hex."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


def spans_of(request: ExportTraceServiceRequest) -> list[Span]:
    """Return the spans of one export."""
    return [
        Span(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            attributes_of(span.attributes),
            attributes_of(resource.resource.attributes),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@dataclass
class Received:
    """Everything that arrived and was answered with 200."""

    traces: list[ExportTraceServiceRequest] = field(default_factory=list[ExportTraceServiceRequest])
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list[ExportMetricsServiceRequest])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def spans(self, name: str | None = None) -> list[Span]:
        """Return the spans in order of arrival."""
        found = [span for request in list(self.traces) for span in spans_of(request)]
        return [span for span in found if name is None or span.name == name]

    def steps(self, uid: str) -> list[chunks.StepRow]:
        """Return the verify steps of a request, each chunk once, in order of sequence."""
        by_seq = {
            span.attributes[c.CHUNK_SEQ]: span.attributes[c.CHUNK_STEPS]
            for span in self.spans(c.SPAN_STEPS)
            if span.attributes[c.REQUEST_UID] == uid and c.CHUNK_STEPS in span.attributes
        }
        return [row for seq in sorted(by_seq) for row in chunks.unpack_steps(by_seq[seq])]

    def request(self, uid: str) -> Span | None:
        """Return the last span of a request."""
        found = [s for s in self.spans(c.SPAN_REQUEST) if s.attributes[c.REQUEST_UID] == uid]
        return found[-1] if found else None

    def points(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the newest points of a metric by their label values, in order of label name."""
        newest: dict[tuple[str, ...], float] = {}
        for request in list(self.metrics):
            for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
                if metric.name != name:
                    continue
                newest = {}
                data = metric.sum if metric.HasField("sum") else metric.gauge
                for point in data.data_points:
                    labels = attributes_of(point.attributes)
                    value = point.as_int if point.HasField("as_int") else point.as_double
                    newest[tuple(labels[k] for k in sorted(labels))] = value
        return newest


class Receiver:
    """Listens on loopback; ``answer`` decides the status of each export, ``delay_s`` how slowly."""

    def __init__(self, port: int = 0) -> None:
        """Listen."""
        self.received = Received()
        self.answer: Callable[[str, Any], int] = lambda _path, _message: 200
        self.refuse_spans = 0
        self.endless = False
        """Answers never end."""
        self.retry_after = ""
        """Value of the header of that name in answers that are no success."""
        self.delay_s = 0.0
        self.released = threading.Event()
        """Ends the delay of answers under way."""
        self.attempts: Counter[str] = Counter()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            kinds: ClassVar[dict[str, Any]] = {
                "/v1/traces": ExportTraceServiceRequest,
                "/v1/metrics": ExportMetricsServiceRequest,
            }

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                kind = self.kinds.get(self.path)
                message = None if kind is None else kind.FromString(body)
                receiver.attempts[self.path] += 1
                receiver.released.wait(receiver.delay_s)
                status = 404 if message is None else receiver.answer(self.path, message)
                response = b""
                if status == 200 and message is not None:
                    receiver.received.headers.append({k.lower(): v for k, v in self.headers.items()})
                    receiver.keep(message)
                    if receiver.refuse_spans and self.path == "/v1/traces":
                        partial = ExportTracePartialSuccess(rejected_spans=receiver.refuse_spans)
                        response = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                if receiver.endless:
                    self.close_connection = True
                    self.end_headers()
                    self._pour()
                    return
                self.send_header("content-length", str(len(response)))
                if status >= 400 and receiver.retry_after:
                    self.send_header("retry-after", receiver.retry_after)
                self.end_headers()
                self.wfile.write(response)

            def _pour(self) -> None:
                with suppress(OSError):  # the exporter hangs up
                    while True:
                        self.wfile.write(bytes(4096))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # an exporter that was killed in the middle of an answer

        self._server = Server(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.port}"

    def keep(self, message: Any) -> None:
        """Keep an accepted export."""
        if isinstance(message, ExportTraceServiceRequest):
            self.received.traces.append(message)
        else:
            self.received.metrics.append(message)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Receiver:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.close()


def eventually(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Wait until ``condition`` returns something true, and return it.

    Raises:
        AssertionError: it did not within ``seconds``; only a fault takes so long.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
