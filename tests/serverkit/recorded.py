"""Exports of other tools as they were recorded, with what our tracer told of the same requests."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

FOLDER = Path(__file__).parents[1] / "ingest" / "recorded"
IDS = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True)
class Recorded:
    """``requests`` have ``rid``, ``uid``, ``trace_id``, ``start_ns``, ``end_ns``; SGLang's a parent span."""

    export: ExportTraceServiceRequest
    requests: list[dict[str, Any]]


def recorded(name: str) -> Recorded:
    """Return a recording by the name of its file."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    return Recorded(
        ParseDict(_as_protobuf(document["export"]), ExportTraceServiceRequest()), document["requests"]
    )


def _as_protobuf(told: Any) -> Any:
    """OTLP's JSON has ids in hex, protobuf's own has bytes in base64."""
    if isinstance(told, dict):
        return {
            name: base64.b64encode(bytes.fromhex(value)).decode() if name in IDS else _as_protobuf(value)
            for name, value in cast("dict[str, Any]", told).items()
        }
    return [_as_protobuf(one) for one in cast("list[Any]", told)] if isinstance(told, list) else told
