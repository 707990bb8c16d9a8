"""Valid requests and blobs to start from: what the tracer and other tools really send."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard
from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from serverkit import otlp
from specscope import chunks, columns, hidden_rollup, rollup
from specscope import convention as c
from specscope_server.ingest.decode import HEX_IDS
from wirekit import golden

from fuzz.case import JSON, PROTOBUF, Case
from fuzz.mutate import keys_of

CORPUS = Path(__file__).parent / "corpus"

QUERIES = (
    "/api/v1/requests?limit=50",
    "/api/v1/requests?text=rid-1&flag=short",
    "/api/v1/engines?window_s=3600",
    "/api/v1/series?minutes=60&bucket_s=10",
    "/api/v1/status",
    "/api/v1/alerts",
    "/api/v1/findings",
    "/metrics",
    "/requests?text=rid-1",
    "/status",
    "/",
)


def messages() -> list[tuple[str, Message]]:
    """Exports of each signal with their paths."""
    frozen = bytes.fromhex((golden.FOLDER / "request.hex").read_text().replace("\n", ""))
    spans = (otlp.engine_span(), otlp.request_span(), otlp.steps_span(), otlp.rollup_span())
    nested = AnyValue(kvlist_value=KeyValueList(values=otlp.attributes({"a": ["b", 1, 2.5, True]})))
    foreign = otlp.request_span(3)
    foreign.attributes.add(key="nested", value=nested)
    log = LogRecord(time_unix_nano=otlp.now_ns(), trace_id=b"1" * 16, span_id=b"2" * 8)
    log.body.string_value = "said"
    logs = ResourceLogs(resource=otlp.resource(), scope_logs=[ScopeLogs(log_records=[log])])
    return [
        ("/v1/traces", ExportTraceServiceRequest.FromString(frozen)),
        ("/v1/traces", otlp.traces(*spans)),
        ("/v1/traces", otlp.traces(otlp.rank_span([4, 5, 6]))),
        ("/v1/traces", otlp.traces(foreign, scope="sglang")),
        ("/v1/metrics", otlp.metrics(*otlp.heartbeat_metrics())),
        ("/v1/logs", ExportLogsServiceRequest(resource_logs=[logs])),
    ]


def exports() -> Iterator[Case]:
    """Each export in both formats and with each encoding, and queries."""
    for path, message in messages():
        binary, text = message.SerializeToString(), as_json(message)
        yield Case(binary, path)
        yield Case(text, path, headers=(("content-type", JSON),))
        zipped = (("content-type", PROTOBUF), ("content-encoding", "gzip"))
        yield Case(gzip.compress(binary), path, headers=zipped)
        yield Case(
            zstandard.compress(text), path, headers=(("content-type", JSON), ("content-encoding", "zstd"))
        )
    for query in QUERIES:
        yield Case(b"", query, "GET", ())


def as_json(message: Message) -> bytes:
    """A message in OTLP's JSON, whose ids are hex."""
    document: Any = json_format.MessageToDict(message)
    pending: list[Any] = [document]
    while pending:
        node = pending.pop()
        for key in keys_of(node):
            if key in HEX_IDS:
                node[key] = base64.b64decode(node[key]).hex()
            else:
                pending.append(node[key])
    return json.dumps(document).encode()


def blobs() -> list[bytes]:
    """A packed blob of each kind."""
    expected = {("draft.fc", "target_fed"): 3}
    sums = {("draft.fc.in", "target_fed", 0, 0, "verify", "eager"): hidden_rollup.Sums(looks=1, rows=2)}
    return [
        chunks.pack_steps(otlp.step_rows(8), tokens=True),
        chunks.pack_extends(otlp.extend_rows(), codec=columns.ZLIB),
        chunks.pack_boundaries(expected, {("draft.fc", "target_fed", "eager"): 3}),
        chunks.pack_ranks([1, 2], [3, None], [4, 5], [None, tuple(range(9))]),
        chunks.pack_prompt(list(range(100))),
        rollup.pack(otlp.rollup_rows()),
        hidden_rollup.pack(sums),
        *(_blob(message) for _, message in messages()[:1]),
    ]


def _blob(message: Any) -> bytes:
    spans = (s for r in message.resource_spans for o in r.scope_spans for s in o.spans)
    return next(
        pair.value.bytes_value for span in spans for pair in span.attributes if pair.key == c.CHUNK_HIDDEN
    )


def kept(target: str) -> list[Path]:
    """The reproducers that are kept for a target."""
    return sorted((CORPUS / target).glob("*"))
