"""Other tools' spans: kept for the traces of our requests, bounded per trace and per workspace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, and_, delete, func, or_, select, tuple_

from specscope_server.store import schema
from specscope_server.store.rows import Row
from specscope_server.store.told import ForeignSpan

OF_TRACE: Final = 500
"""Spans kept of one trace, those that start first. SGLang makes one a decode step at its finest level."""
OF_WORKSPACE: Final = 50_000
"""Spans kept of a workspace, those received last: some 50 MB as SGLang sends them, ten times that at most.
Whose trace has no request here they go like the others; a tool that sends all its traces here only shortens
the time."""
_AT_ONCE: Final = 500
"""Traces counted with one query: an export may hold hundreds of thousands."""
_T = schema.span.c


def forget(connection: Connection, rows: Iterable[Row]) -> None:
    """Delete what is beyond the bounds in the traces and workspaces that these rows are of."""
    traces = sorted({(row["workspace"], row["trace_id"]) for row in rows})
    for workspace, trace_id in _too_long(connection, traces):
        mine = and_(_T.workspace == workspace, _T.trace_id == trace_id)
        last = connection.execute(
            select(_T.start_ns, _T.span_id)
            .where(mine)
            .order_by(_T.start_ns, _T.span_id)
            .offset(OF_TRACE - 1)
            .limit(1)
        ).first()
        if last is not None:
            later = or_(
                _T.start_ns > last.start_ns, and_(_T.start_ns == last.start_ns, _T.span_id > last.span_id)
            )
            connection.execute(delete(schema.span).where(mine, later))
    for workspace in sorted({workspace for workspace, _ in traces}):
        mine = _T.workspace == workspace
        oldest = connection.execute(
            select(_T.received_ns, _T.trace_id, _T.span_id)
            .where(mine)
            .order_by(_T.received_ns.desc(), _T.trace_id.desc(), _T.span_id.desc())
            .offset(OF_WORKSPACE)
            .limit(1)
        ).first()
        if oldest is not None:
            # By the whole order: one export, received at one time, may hold more than is kept.
            beyond = tuple_(_T.received_ns, _T.trace_id, _T.span_id) <= tuple_(*oldest)
            connection.execute(delete(schema.span).where(mine, beyond))


def _too_long(connection: Connection, traces: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the traces that hold more than is kept of one."""
    for start in range(0, len(traces), _AT_ONCE):
        part = traces[start : start + _AT_ONCE]
        for workspace in sorted({name for name, _ in part}):
            ids = [trace_id for name, trace_id in part if name == workspace]
            found = connection.execute(
                select(_T.trace_id)
                .where(_T.workspace == workspace, _T.trace_id.in_(ids))
                .group_by(_T.trace_id)
                .having(func.count() > OF_TRACE)
            ).scalars()
            yield from [(workspace, trace_id) for trace_id in found]


def spans_of_trace(connection: Connection, workspace: str, trace_id: str) -> tuple[ForeignSpan, ...]:
    """Return the spans of a trace, by start."""
    if not trace_id:
        return ()
    found = connection.execute(
        select(schema.span)
        .where(_T.workspace == workspace, _T.trace_id == trace_id)
        .order_by(_T.start_ns, _T.span_id)
        .limit(OF_TRACE)
    )
    return tuple(
        ForeignSpan(
            trace_id=row.trace_id,
            span_id=row.span_id,
            parent_id=row.parent_id,
            name=row.name,
            service=row.service,
            scope=row.scope,
            start_ns=row.start_ns,
            end_ns=row.end_ns,
            failed=bool(row.failed),
            attributes=row.attributes,
        )
        for row in found
    )
