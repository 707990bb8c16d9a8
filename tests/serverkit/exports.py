"""One export of each signal in each of the ways an answer can go, and a gRPC client for them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (  # pyright: ignore
    LogsServiceStub,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from specscope import convention as c
from specscope_server.ingest.signals import SIGNALS

from serverkit import otlp

PATHS = {signal.name: path for path, signal in SIGNALS.items()}
NAMES = tuple(PATHS)
STUBS: dict[str, Any] = {"traces": TraceServiceStub, "metrics": MetricsServiceStub, "logs": LogsServiceStub}
CHANNEL = (("grpc.enable_retries", 0), ("grpc.max_send_message_length", -1))


def log_record(number: int = 0, **changed: Any) -> LogRecord:
    values: dict[str, Any] = {
        "time_unix_nano": otlp.now_ns() + number,
        "trace_id": bytes([7] * 16),
        "span_id": bytes([8] * 8),
        "severity_number": SeverityNumber.SEVERITY_NUMBER_WARN,
        "body": otlp.any_value(f"line {number}"),
    }
    return LogRecord(**(values | changed))


def logs(*records: LogRecord, about: Resource | None = None) -> ExportLogsServiceRequest:
    scope = ScopeLogs(scope=InstrumentationScope(name="an.engine"), log_records=records)
    resource = otlp.resource() if about is None else about
    return ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=resource, scope_logs=[scope])])


def good(signal: str, number: int = 0) -> Message:
    """An export of which everything is taken."""
    match signal:
        case "traces":
            return otlp.traces(otlp.request_span(number), otlp.steps_span(number))
        case "metrics":
            return otlp.metrics(*otlp.heartbeat_metrics())
        case _:
            return logs(log_record(number))


def partly(signal: str) -> Message:
    """An export of which two items are rejected and one is not; no log record is ever rejected alone."""
    if signal == "traces":
        bad = otlp.rollup_span(**{c.ROLLUP_ROWS: b"SPSC" + bytes(20)})
        return otlp.traces(otlp.request_span(7), bad, bad)
    bad_point = otlp.total(c.METRIC_REQUESTS, otlp.point(-1, {c.LABEL_KIND: "user"}))
    return otlp.metrics(bad_point, bad_point, otlp.gauge(c.METRIC_QUEUED, otlp.point(1)))


def warned(signal: str) -> Message:
    """An export that is taken and about which there is something to say all the same."""
    if signal == "traces":
        return otlp.traces(otlp.request_span(8, **{c.GEN_AI_REQUEST_ID: "r" * 600}))
    nameless = otlp.resource(**{c.WORKSPACE: "n" * 1000})
    return logs(log_record(), about=nameless)


def bad(signal: str) -> Message:
    """An export of which nothing can be taken."""
    if signal == "traces":
        return otlp.traces(otlp.request_span(**{c.REQUEST_UID: "x"}))
    return otlp.metrics(otlp.total(c.METRIC_REQUESTS, otlp.point(-1, {c.LABEL_KIND: "user"})))


def responses(signal: str) -> Any:
    """The class of a signal's answer."""
    return SIGNALS[PATHS[signal]].response


def rejected(signal: str, answer: Any) -> int:
    return getattr(answer.partial_success, SIGNALS[PATHS[signal]].rejected)


@contextmanager
def channel(
    address: str, credentials: grpc.ChannelCredentials | None = None, options: Sequence[tuple[str, Any]] = ()
) -> Generator[grpc.Channel]:
    every = (*CHANNEL, *options)
    made = (
        grpc.insecure_channel(address, every)
        if credentials is None
        else grpc.secure_channel(address, credentials, every)
    )
    with made as opened:
        yield opened


def send(to: grpc.Channel, signal: str, message: Message, **options: Any) -> Any:
    """Export over gRPC with the generated stub; raises ``grpc.RpcError``."""
    return STUBS[signal](to).Export(message, timeout=300, **options)


def raw_call(to: grpc.Channel, signal: str, *, stream: bool = False) -> Any:
    """The method as a callable of bytes, or of an iterator of them."""
    method = f"/{SIGNALS[PATHS[signal]].service}/Export"
    made: Any = to.stream_unary if stream else to.unary_unary
    return made(method)


def status_of(error: grpc.RpcError) -> Status:
    """The ``google.rpc.Status`` in an error's details."""
    call: Any = error  # what a stub raises is a call as well
    return Status.FromString(dict(call.trailing_metadata())["grpc-status-details-bin"])


def retry_delay_s(status: Status) -> int | None:
    """Seconds that a status asks to wait; ``None``: it says nothing of it."""
    for detail in status.details:
        info = RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.seconds
    return None
