"""Small bodies of very many parts: each is refused before it is read, since one export is read at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from backports import zstd
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from serverkit import otlp
from serverkit.live import JSON, PROTOBUF, Live, serving, status_of
from specscope_server.ingest import plain
from specscope_server.ingest.decode import MAX_VALUES
from specscope_server.ingest.receiver import MAX_ATTRIBUTES, MAX_ITEMS


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('parts') / 'store.db'}") as found:
        yield found


NONE = KeyValue()


def _resource() -> bytes:
    export = ExportTraceServiceRequest()
    export.resource_spans.add().resource.attributes.extend([NONE] * (MAX_ATTRIBUTES + 1))
    return export.SerializeToString()


def _spans(scope: str) -> bytes:
    """Two spans share what is too much together; one of our own scope is read elsewhere."""
    export = otlp.traces(otlp.request_span(1), otlp.request_span(2), scope=scope)
    for span in export.resource_spans[0].scope_spans[0].spans:
        span.attributes.extend([NONE] * (MAX_ATTRIBUTES // 2 + 1))
    return export.SerializeToString()


def _record() -> bytes:
    export = ExportLogsServiceRequest()
    record = export.resource_logs.add().scope_logs.add().log_records.add(trace_id=b"\1" * 16)
    record.attributes.extend([NONE] * (MAX_ATTRIBUTES + 1))
    return export.SerializeToString()


def _point() -> bytes:
    export = ExportMetricsServiceRequest()
    metric = export.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add().attributes.extend([NONE] * (MAX_ATTRIBUTES + 1))
    return export.SerializeToString()


def _points() -> bytes:
    export = ExportMetricsServiceRequest()
    metric = export.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for _ in range(MAX_ITEMS):
        metric.sum.data_points.add()
    return export.SerializeToString()


def _numbers() -> bytes:
    numbers = b",".join([b"0"] * (MAX_VALUES + 1))
    histogram = b'{"dataPoints":[{"bucketCounts":[' + numbers + b"]}]}"
    metric = b'{"name":"m","histogram":' + histogram + b"}"
    return b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[' + metric + b"]}]}]}"


CASES = {
    "attributes of a resource": ("traces", PROTOBUF, _resource, "attributes"),
    "attributes of another tool's spans": ("traces", PROTOBUF, lambda: _spans("shop"), "attributes"),
    "attributes of our spans": ("traces", PROTOBUF, lambda: _spans("specscope"), "attributes"),
    "attributes of a log record": ("logs", PROTOBUF, _record, "attributes"),
    "attributes of a point": ("metrics", PROTOBUF, _point, "attributes"),
    "points of a metric": ("metrics", PROTOBUF, _points, "items"),
    "numbers in JSON": ("metrics", JSON, _numbers, "values"),
    "unknown lists in JSON": (
        "traces", JSON, lambda: b'{"x":[' + b",".join([b"[]"] * (MAX_VALUES + 1)) + b"]}", "values",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_export_of_too_many_parts_is_413(live: Live, case: str) -> None:
    signal, kind, body, named = CASES[case]
    answer = live.client.post(
        f"/v1/{signal}",
        content=zstd.compress(body()),
        headers={"Content-Type": kind, "Content-Encoding": "zstd"},
        timeout=120,
    )
    assert answer.status_code == 413
    if kind == PROTOBUF:
        assert named in status_of(answer).message
    else:
        assert named in answer.json()["message"]


def test_of_doubled_attributes_no_more_are_looked_at_than_of_others() -> None:
    """Else a body of a million pairs of one key is read whole for the one line that is kept of it."""
    looked_at = 0

    def endless() -> Iterator[KeyValue]:
        nonlocal looked_at
        while True:
            looked_at += 1
            yield KeyValue(key="k", value=AnyValue(int_value=looked_at))

    assert plain.attributes(endless()) == {"k": plain.MAX_ATTRIBUTES}
    assert looked_at == plain.MAX_ATTRIBUTES


def test_an_array_within_an_array_is_not_read() -> None:
    value = AnyValue()
    for number in (1, 2):
        value.array_value.values.add(int_value=number)
    value.array_value.values.add().array_value.values.add(int_value=3)
    assert plain.value(value) == "1, 2, array"
