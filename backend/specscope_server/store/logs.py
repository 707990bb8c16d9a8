"""Log records of traces: kept beside the spans, bounded per trace and per workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from specscope_server.store import schema
from specscope_server.store.bounded import Bounded
from specscope_server.store.prepared import Prepared
from specscope_server.store.told import LogRecord
from specscope_server.store.values import unpacked_json

OF_TRACE: Final = 500
"""Records kept of one trace, the first ones by their time."""
OF_WORKSPACE: Final = 50_000
"""Records kept of a workspace, those received last: up to 7 kB each, most some hundred bytes."""
_T = schema.log_record.c
_BOUNDED: Final = Bounded(schema.log_record, name="record_id", by="time_ns")
_OF_TRACE: Final = Prepared(
    select(schema.log_record)
    .where(_T.workspace == bindparam("workspace"), _T.trace_id == bindparam("trace_id"))
    .order_by(_T.time_ns, _T.record_id)
    .limit(OF_TRACE)
)


def forget(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Delete what is beyond the bounds in the traces and workspaces that these rows are of."""
    _BOUNDED.forget(connection, rows, OF_TRACE, OF_WORKSPACE)


def logs_of_trace(connection: Connection, workspace: str, trace_id: str) -> tuple[LogRecord, ...]:
    """Return the records of a trace, by time."""
    if not trace_id:
        return ()
    found = _OF_TRACE.rows(connection, {"workspace": workspace, "trace_id": trace_id})
    return tuple(
        LogRecord(
            trace_id=row.trace_id,
            record_id=row.record_id,
            span_id=row.span_id,
            time_ns=row.time_ns,
            severity=row.severity,
            service=row.service,
            scope=row.scope,
            body=row.body,
            attributes=unpacked_json(row.attributes),
        )
        for row in found
    )
