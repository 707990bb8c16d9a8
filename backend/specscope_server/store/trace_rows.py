"""What is kept of other tools, spans and log records, as rows."""

from __future__ import annotations

from typing import Any, Final

from specscope_server.store.told import LogBatch, SpanBatch
from specscope_server.store.values import clean, key

Row = dict[str, Any]
MAX_BODY: Final = 2000
"""Characters kept of a log record's body."""


def span_rows(batch: SpanBatch, received_ns: int) -> list[Row]:
    """Return a row a span."""
    workspace = key(batch.workspace)
    return [
        {
            "workspace": workspace,
            "trace_id": key(span.trace_id),
            "span_id": key(span.span_id),
            "parent_id": key(span.parent_id),
            "name": clean(span.name),
            "service": clean(span.service),
            "scope": clean(span.scope),
            "start_ns": span.start_ns,
            "end_ns": span.end_ns,
            "received_ns": received_ns,
            "failed": int(span.failed),
            "attributes": span.attributes,
            "request_id": clean(span.request_id),
            "response_id": clean(span.response_id),
        }
        for span in batch.spans
    ]


def log_rows(batch: LogBatch, received_ns: int) -> list[Row]:
    """Return a row a log record."""
    workspace = key(batch.workspace)
    return [
        {
            "workspace": workspace,
            "trace_id": key(record.trace_id),
            "record_id": key(record.record_id),
            "span_id": key(record.span_id),
            "time_ns": record.time_ns,
            "received_ns": received_ns,
            "severity": record.severity,
            "service": clean(record.service),
            "scope": clean(record.scope),
            "body": clean(record.body, MAX_BODY),
            "attributes": record.attributes,
        }
        for record in batch.records
    ]
