"""The three signals of OTLP: where each is sent, how it is read, and how its answer is shaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import (  # pyright: ignore[reportMissingTypeStubs]
    logs_service_pb2,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from specscope_server.ingest import logs, metrics, traces
from specscope_server.ingest.values import Tally
from specscope_server.store.told import Told


@dataclass(frozen=True, slots=True)
class Signal:
    """What differs between the signals.

    ``service`` is the full name of the gRPC service, ``rejected`` the field of ``partial_success`` that
    counts what was not taken, ``levels`` the fields that lead from an export to its resources, scopes, items,
    ``points`` gives what of an item has attributes, where that is not the item itself.
    """

    name: str
    service: str
    request: Callable[[], Message]
    response: Callable[[], Any]
    rejected: str
    read: Callable[[Any], tuple[Sequence[Told], Tally]]
    levels: tuple[str, str, str]
    points: Callable[[Any], Sequence[Any]] | None = None

    def items(self, message: Message) -> int:
        """Return how many resources, scopes, items and points an export holds, without looking at them."""
        resources, scopes, items = self.levels
        listed = getattr(message, resources)
        found = len(listed)
        for resource in listed:
            held = getattr(resource, scopes)
            found += len(held) + sum(len(getattr(scope, items)) for scope in held)
            if self.points is not None:
                found += sum(len(self.points(item)) for scope in held for item in getattr(scope, items))
        return found

    def attributes(self, message: Message) -> int:
        """Return how many attributes there are on resources and on what they tell."""
        resources, scopes, items = self.levels
        found = 0
        for resource in getattr(message, resources):
            found += len(resource.resource.attributes)
            for scope in getattr(resource, scopes):
                for item in getattr(scope, items):
                    if self.points is None:
                        found += len(item.attributes)
                    else:
                        found += sum(len(point.attributes) for point in self.points(item))
        return found

    def respond(self, rejected: int, message: str) -> Message:
        """Return the answer to an export that was taken; it has ``partial_success`` where it must."""
        response = self.response()
        if rejected or message:
            setattr(response.partial_success, self.rejected, rejected)
            response.partial_success.error_message = message
        return response


SIGNALS: Final = {
    "/v1/traces": Signal(
        "traces",
        trace_service_pb2.DESCRIPTOR.services_by_name["TraceService"].full_name,
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
        "rejected_spans",
        traces.read,
        ("resource_spans", "scope_spans", "spans"),
    ),
    "/v1/metrics": Signal(
        "metrics",
        metrics_service_pb2.DESCRIPTOR.services_by_name["MetricsService"].full_name,
        ExportMetricsServiceRequest,
        ExportMetricsServiceResponse,
        "rejected_data_points",
        metrics.batches_of,
        ("resource_metrics", "scope_metrics", "metrics"),
        metrics.points_of,
    ),
    "/v1/logs": Signal(
        "logs",
        logs_service_pb2.DESCRIPTOR.services_by_name["LogsService"].full_name,
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
        "rejected_log_records",
        logs.read,
        ("resource_logs", "scope_logs", "log_records"),
    ),
}
"""By path of OTLP/HTTP."""
