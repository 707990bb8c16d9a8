"""Log records of traces, the engine's or a caller's: kept small beside the spans, never refused."""

from __future__ import annotations

import hashlib
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as Told

from specscope_server.ingest import foreign, plain
from specscope_server.ingest.values import MAX_TIME_NS, Invalid, Tally
from specscope_server.store.told import LogBatch, LogRecord
from specscope_server.store.trace_rows import MAX_BODY

MAX_SEVERITY: Final = 24
"""OTLP's largest severity number."""


def read(export: ExportLogsServiceRequest) -> tuple[list[LogBatch], Tally]:
    """Return the records of an export that belong to a trace, by resource; never raises on hostile values.

    All records are other tools', since ours sends none, and count as foreign. One without a trace cannot be
    shown with a request and is not kept, which is no error and not told to the sender.
    """
    tally = Tally()
    batches: list[LogBatch] = []
    for resource_logs in export.resource_logs:
        total = sum(len(scope.log_records) for scope in resource_logs.scope_logs)
        tally.foreign += total
        try:
            workspace, service = foreign.sender(resource_logs.resource)
        except Invalid as error:
            tally.notes[f"log records were not kept: {error}"] += total
            continue
        records = tuple(
            _record(record, service, plain.name(scope.scope.name))
            for scope in resource_logs.scope_logs
            for record in scope.log_records
            if foreign.is_id(record.trace_id, foreign.TRACE_BYTES)
        )
        if records:
            batches.append(LogBatch(workspace, records))
    return batches, tally


def _record(record: Told, service: str, scope: str) -> LogRecord:
    told = record.time_unix_nano or record.observed_time_unix_nano
    severity = int(record.severity_number)
    return LogRecord(
        trace_id=record.trace_id.hex(),
        record_id=_fingerprint(record, service, scope),
        span_id=record.span_id.hex() if foreign.is_id(record.span_id, foreign.SPAN_BYTES) else "",
        time_ns=told if told <= MAX_TIME_NS else 0,
        severity=severity if 0 <= severity <= MAX_SEVERITY else 0,
        service=service,
        scope=scope,
        body=plain.text(record.body, MAX_BODY) or plain.name(record.event_name),
        attributes=plain.attributes(record.attributes),
    )


def _fingerprint(record: Told, service: str, scope: str) -> str:
    """Return a hash of the whole record.

    When it was observed does not count where it has a time of its own: a collector may say that anew.
    """
    same = Told()
    same.CopyFrom(record)
    if same.time_unix_nano:
        same.observed_time_unix_nano = 0
    parts = (service.encode(), scope.encode(), same.SerializeToString(deterministic=True))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
