"""What a list or a page shows of a request: the columns to select and the row made of them."""

from __future__ import annotations

from typing import Any

from specscope import convention
from sqlalchemy import ColumnElement, Row, Select, and_, case, literal, select

from specscope_server.store import schema
from specscope_server.store.model import RequestRow
from specscope_server.store.rows import TOTALS
from specscope_server.store.told import EngineCounts, RequestTotals
from specscope_server.store.values import from_ns, optional_from_ns

LOST = "lost"
LOST_AFTER_NS = 60 * 1_000_000_000
"""A request still running whose process has been silent for this long (by received time) is lost."""

_SUMMARY = [column for column in schema.request.c if column.name not in ("boundaries", "state")]


def state_at(now_ns: int) -> ColumnElement[str]:
    """Return the state as of now: the stored one, or ``lost``."""
    table, process = schema.request.c, schema.process.c
    silent = process.last_received_ns < now_ns - LOST_AFTER_NS
    return case((and_(table.state == convention.STATE_RUNNING, silent), LOST), else_=table.state).label(
        "state"
    )


def selected(now_ns: int) -> Select[Any]:
    """Return the query of request summaries, joined to the process that tells of each."""
    table, process = schema.request, schema.process
    same = and_(table.c.engine_uid == process.c.engine_uid, table.c.process_uid == process.c.process_uid)
    return select(*_SUMMARY, state_at(now_ns), process.c.detail).join_from(table, process, same, isouter=True)


def is_running() -> ColumnElement[bool]:
    """Return the condition of the partial index: its constant must be in the statement to be recognised."""
    return schema.request.c.state == literal(convention.STATE_RUNNING, literal_execute=True)


def public(row: Row[Any], engine: str) -> RequestRow:
    """Return a request as the port shows it; ``engine`` is the name of its engine."""
    return RequestRow(
        uid=row.uid,
        engine_uid=row.engine_uid,
        engine=engine,
        model=row.model,
        rid=row.rid,
        trace_id=row.trace_id,
        state=row.state,
        kind=row.kind,
        arrival=from_ns(row.arrival_ns),
        end=optional_from_ns(row.end_ns),
        last_received=from_ns(row.last_received_ns),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        cached_tokens=row.cached_tokens,
        temperature=row.temperature,
        max_tokens=row.max_tokens,
        finish_reason=row.finish_reason or None,
        queue_s=row.queue_s,
        first_token_s=row.first_token_s,
        totals=RequestTotals(**{name: getattr(row, name) for name in TOTALS}),
        detail=row.detail or "",
        parent_span_id=row.parent_span_id,
        response_id=row.response_id,
        engine_counts=None
        if row.engine_verify_steps is None or row.engine_accepted is None
        else EngineCounts(row.engine_verify_steps, row.engine_accepted),
    )
