"""The real OTLP exporters of the SDK, over HTTP and gRPC, with and without gzip, on both databases."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)
from serverkit import otlp
from serverkit.live import PROTOBUF, Live, serving
from serverkit.tables import contents
from specscope import convention as c

Plain = str | int | bool | float


def sdk_resource() -> Resource:
    values: dict[str, Plain] = {}
    for pair in otlp.resource().attributes:
        kind = pair.value.WhichOneof("value")
        assert kind is not None
        values[pair.key] = getattr(pair.value, kind)
    return Resource(values)


def sdk_span(number: int) -> ReadableSpan:
    values: dict[str, Any] = otlp.request_values(number)
    values[c.GEN_AI_FINISH_REASONS] = tuple(values[c.GEN_AI_FINISH_REASONS])
    return ReadableSpan(
        name=c.SPAN_REQUEST,
        context=SpanContext(1 + number, 2 + number, is_remote=False, trace_flags=TraceFlags(1)),
        resource=sdk_resource(),
        attributes=values,
        kind=SpanKind.INTERNAL,
        start_time=otlp.now_ns(),
        end_time=otlp.now_ns() + 1,
        instrumentation_scope=InstrumentationScope(c.SCOPE_NAME),
    )


@dataclass(frozen=True)
class Kind:
    """The exporters of one protocol, compressing or not."""

    spans: Callable[[Live], SpanExporter]
    metrics: Callable[[Live], MetricExporter]
    logs: Callable[[Live], LogRecordExporter]


def over_http(compression: Compression) -> Kind:
    return Kind(
        lambda live: OTLPSpanExporter(f"{live.url}/v1/traces", compression=compression),
        lambda live: OTLPMetricExporter(f"{live.url}/v1/metrics", compression=compression),
        lambda live: OTLPLogExporter(f"{live.url}/v1/logs", compression=compression),
    )


def over_grpc(compression: grpc.Compression) -> Kind:
    def options(live: Live) -> dict[str, Any]:
        return {"endpoint": live.settings.grpc_address, "insecure": True, "compression": compression}

    return Kind(
        lambda live: GrpcSpanExporter(**options(live)),
        lambda live: GrpcMetricExporter(**options(live)),
        lambda live: GrpcLogExporter(**options(live)),
    )


KINDS = {
    "http": over_http(Compression.NoCompression),
    "http-gzip": over_http(Compression.Gzip),
    "http-deflate-refused": over_http(Compression.Deflate),
    "grpc": over_grpc(grpc.Compression.NoCompression),
    "grpc-gzip": over_grpc(grpc.Compression.Gzip),
}
TAKEN = pytest.mark.parametrize("kind", [kind for kind in KINDS if "refused" not in kind])
COMPRESSED = pytest.mark.parametrize("kind", ["http-gzip", "grpc-gzip"])


@TAKEN
def test_span_exporter(store_url: str, kind: str) -> None:
    with serving(store_url, grpc=True) as live:
        exporter = KINDS[kind].spans(live)
        spans = [sdk_span(n) for n in range(3)]
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        assert exporter.export(spans) is SpanExportResult.SUCCESS  # repeated: the same end state
        exporter.shutdown()
        items = live.get("/api/v1/requests")["items"]
        assert sorted(item["rid"] for item in items) == ["rid-0", "rid-1", "rid-2"]
        assert {item["acceptance_length"] for item in items} == {2.5}


@COMPRESSED
def test_metric_exporter(store_url: str, kind: str) -> None:
    with serving(store_url, grpc=True) as live:
        reader = PeriodicExportingMetricReader(
            KINDS[kind].metrics(live),
            export_interval_millis=3_600_000,
        )
        provider = MeterProvider([reader], resource=sdk_resource())
        meter = provider.get_meter(c.SCOPE_NAME)
        fed = {c.LABEL_BOUNDARY: c.DRAFT_FC, c.LABEL_SOURCE: c.TARGET_FED}
        meter.create_counter(c.METRIC_EXPECTED).add(9, fed)
        meter.create_counter(c.METRIC_OBSERVED).add(4, {**fed, c.LABEL_MODE: c.EAGER})
        meter.create_gauge(c.METRIC_ARMED).set(1, {c.LABEL_BOUNDARY: c.DRAFT_FC})
        assert provider.force_flush()
        [engine] = live.get("/api/v1/engines")["items"]
        [line] = engine["ledger"]
        assert (line["boundary"], line["expected"], line["observed"]) == (c.DRAFT_FC, 9, 4)
        assert (line["armed"], line["observed_by_mode"]) == (True, {"eager": 4})
        provider.shutdown()
        status = live.get("/api/v1/status")["ingest"]["metrics"]
        assert (status["rejected"], status["foreign"]) == (0, 0)


@COMPRESSED
def test_log_exporter(store_url: str, kind: str) -> None:
    with serving(store_url, grpc=True) as live:
        provider = LoggerProvider(resource=sdk_resource())
        provider.add_log_record_processor(SimpleLogRecordProcessor(KINDS[kind].logs(live)))
        span = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
        provider.get_logger("an.engine").emit(
            LogRecord(
                timestamp=otlp.now_ns(),
                context=set_span_in_context(NonRecordingSpan(span)),
                severity_number=SeverityNumber.ERROR,
                body="the draft lost its fc",
                attributes={"rank": 3},
            )
        )
        provider.shutdown()
        [row] = contents(store_url)["log_record"]
        assert "the draft lost its fc" in row and f"{0xABC:032x}" in row
        assert live.get("/api/v1/status")["ingest"]["logs"]["foreign"] == 1


def test_an_encoding_that_is_not_taken_costs_one_answer_and_no_retry(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as live:
        exporter = KINDS["http-deflate-refused"].spans(live)
        assert exporter.export([sdk_span(1)]) is SpanExportResult.FAILURE
        assert live.get("/api/v1/status")["ingest"]["refused"] == {"415": 1}


def everything(number: int) -> bytes:
    spans = (otlp.engine_span(), otlp.request_span(number), otlp.steps_span(number), otlp.rollup_span(number))
    return gzip.compress(otlp.traces(*spans).SerializeToString())


def send(live: Live, number: int) -> int:
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    return live.client.post("/v1/traces", content=everything(number), headers=headers).status_code


def test_many_clients_at_once_lose_and_double_nothing(store_url: str) -> None:
    with serving(store_url) as live:
        with ThreadPoolExecutor(16) as pool:  # each export twice, as a client does that missed the answer
            statuses = list(pool.map(partial(send, live), [*range(24), *range(24)]))
        assert set(statuses) == {200}
        assert len(live.get("/api/v1/requests", limit=500)["items"]) == 24
        [engine] = live.get("/api/v1/engines")["items"]
        assert engine["counts"]["verify_steps"] == 24 * 8
        assert engine["counts"]["accepted"] == 24 * 12


def test_acknowledged_data_is_there_after_the_server_is_gone(store_url: str) -> None:
    with serving(store_url) as live:
        assert send(live, 1) == 200
    stored = contents(store_url)
    with serving(store_url) as live:
        [found] = live.get("/api/v1/requests")["items"]
        assert found["rid"] == "rid-1"
    assert contents(store_url)["step_chunk"] == stored["step_chunk"] != []
