"""What a list or a page shows of a request: the columns to select and the row made of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from specscope import convention
from sqlalchemy import ColumnElement, Select, and_, bindparam, case, literal, select

from specscope_server.store import schema
from specscope_server.store.model import RequestRow
from specscope_server.store.told import EngineCounts, RequestTotals
from specscope_server.store.values import from_ns, optional_from_ns

LOST = "lost"
LOST_AFTER_NS = 60 * 1_000_000_000
"""A request still running whose process has been silent for this long (by received time) is lost."""


class Summary(NamedTuple):
    """What the store has of a request and of the process that tells of it.

    ``detail`` and ``engine_name`` are ``None`` where the process has not told of itself.
    """

    uid: str
    engine_uid: str
    process_uid: str
    model: str
    rid: str
    trace_id: str
    state: str
    kind: str
    arrival_ns: int
    end_ns: int | None
    last_received_ns: int
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    temperature: float | None
    max_tokens: int | None
    finish_reason: str
    queue_s: float | None
    first_token_s: float | None
    verify_steps: int
    drafted_depth: int
    drafted_nodes: int
    accepted: int
    bonus: int
    committed: int
    zero_accept_steps: int
    overshoot_steps: int
    prefill_passes: int
    parent_span_id: str
    response_id: str
    engine_verify_steps: int | None
    engine_accepted: int | None
    detail: str | None
    engine_name: str | None


def state_now() -> ColumnElement[str]:
    """Return the state as of now: the stored one, or ``lost``. A parameter is :func:`silent_before`."""
    table, process = schema.request.c, schema.process.c
    silent = process.last_received_ns < bindparam("silent_before")
    return case((and_(table.state == convention.STATE_RUNNING, silent), LOST), else_=table.state).label(
        "state"
    )


def silent_before(now_ns: int) -> int:
    """Return when a process must have been heard last that is silent now."""
    return now_ns - LOST_AFTER_NS


def selected() -> Select[*tuple[Any, ...]]:
    """Return the query of :class:`Summary` rows, joined to the process that tells of each."""
    table, process = schema.request, schema.process
    same = and_(table.c.engine_uid == process.c.engine_uid, table.c.process_uid == process.c.process_uid)
    other = {"state": state_now(), "detail": process.c.detail, "engine_name": process.c.engine_name}
    columns = [other[name] if name in other else table.c[name] for name in Summary._fields]
    return select(*columns).join_from(table, process, same, isouter=True)


def is_running() -> ColumnElement[bool]:
    """Return the condition of the partial index: its constant must be in the statement to be recognised."""
    return schema.request.c.state == literal(convention.STATE_RUNNING, literal_execute=True)


def public(row: Summary, engine: str) -> RequestRow:
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
        totals=RequestTotals(
            row.verify_steps,
            row.drafted_depth,
            row.drafted_nodes,
            row.accepted,
            row.bonus,
            row.committed,
            row.zero_accept_steps,
            row.overshoot_steps,
            row.prefill_passes,
        ),
        detail=row.detail or "",
        parent_span_id=row.parent_span_id,
        response_id=row.response_id,
        engine_counts=None
        if row.engine_verify_steps is None or row.engine_accepted is None
        else EngineCounts(row.engine_verify_steps, row.engine_accepted),
    )
