"""Other tools' spans: kept for the traces of our requests, bounded per trace and per workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, select

from specscope_server.store import schema
from specscope_server.store.bounded import Bounded
from specscope_server.store.prepared import Prepared
from specscope_server.store.told import ForeignSpan
from specscope_server.store.values import unpacked_json

OF_TRACE: Final = 500
"""Spans kept of one trace, those that start first. SGLang makes one a decode step at its finest level."""
OF_WORKSPACE: Final = 50_000
"""Spans kept of a workspace, those received last: some 50 MB as SGLang sends them, ten times that at most.
Whose trace has no request here they go like the others; a tool that sends all its traces here only shortens
the time."""
_T = schema.span.c
_BOUNDED: Final = Bounded(schema.span, name="span_id", by="start_ns")
_OF_TRACE: Final = Prepared(
    select(schema.span)
    .where(_T.workspace == bindparam("workspace"), _T.trace_id == bindparam("trace_id"))
    .order_by(_T.start_ns, _T.span_id)
    .limit(OF_TRACE)
)


def forget(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Delete what is beyond the bounds in the traces and workspaces that these rows are of."""
    _BOUNDED.forget(connection, rows, OF_TRACE, OF_WORKSPACE)


def spans_of_trace(connection: Connection, workspace: str, trace_id: str) -> tuple[ForeignSpan, ...]:
    """Return the spans of a trace, by start."""
    if not trace_id:
        return ()
    found = _OF_TRACE.rows(connection, {"workspace": workspace, "trace_id": trace_id})
    return tuple(map(span_of, found))


def span_of(row: Row[Any]) -> ForeignSpan:
    """Return a row, as :class:`Prepared` gives it, as the span it was made of."""
    return ForeignSpan(
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_id=row.parent_id,
        name=row.name,
        service=row.service,
        scope=row.scope,
        start_ns=row.start_ns,
        end_ns=row.end_ns,
        failed=bool(row.failed),
        attributes=unpacked_json(row.attributes),
        request_id=row.request_id,
        response_id=row.response_id,
    )
