"""Lists of requests: filters, search and paging."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specscope import convention
from sqlalchemy import ColumnElement, Connection, and_, exists, literal, tuple_

from specscope_server.store import cursor as cursors
from specscope_server.store import rows as names
from specscope_server.store import schema, search
from specscope_server.store.facts import engine_names
from specscope_server.store.model import Page, RequestFilter
from specscope_server.store.request_rows import LOST, is_running, public, selected, state_at
from specscope_server.store.values import clean, to_ns

_T = schema.request.c


def page(connection: Connection, where: RequestFilter, limit: int, cursor: str | None, now_ns: int) -> Page:
    """Return a page of requests, newest arrival first.

    Raises:
        ValueError: the cursor, a flag or a time is not valid, or the limit is not positive.
    """
    if limit <= 0:
        raise ValueError(f"limit is {limit}; it must be at least 1")
    where = replace(where, workspace=clean(where.workspace))
    query = selected(now_ns).where(*conditions(where, now_ns))
    arrival: ColumnElement[int] = _T.arrival_ns
    if where.text or any(told is not None for told in (where.rid, where.trace_id, where.response_id)):
        # A search has few hits. Sorted by a bare column, both planners may walk the index by arrival instead,
        # through every request there is; a sum they cannot look up in it.
        arrival = _T.arrival_ns + 0
    if cursor is not None:
        query = query.where(tuple_(arrival, _T.uid) < tuple_(*cursors.unpack(cursor)))
    query = query.order_by(arrival.desc(), _T.uid.desc()).limit(limit + 1)
    found = connection.execute(query, search.parameters(where)).all()
    shown = found[:limit]
    engines = engine_names(connection, {row.engine_uid for row in shown}) if shown else {}
    following = cursors.pack(shown[-1].arrival_ns, shown[-1].uid) if len(found) > limit else None
    return Page(tuple(public(row, engines.get(row.engine_uid, "")) for row in shown), following)


def conditions(where: RequestFilter, now_ns: int) -> list[ColumnElement[bool]]:
    """Return what a filter asks for.

    Raises:
        ValueError: a flag is unknown or a time has no zone.
    """
    workspace: ColumnElement[str] = _T.workspace
    if where.engine_uid is not None:
        # Of two indexes that give the order SQLite guesses by their widths; one engine has fewer requests
        # than its workspace, and an expression it cannot look up in the other index.
        workspace = _T.workspace.concat("")
    wanted: list[ColumnElement[bool]] = [workspace == where.workspace]
    if where.text:
        wanted.append(search.FOUND)
    if where.response_id is not None:
        wanted.append(search.ANSWERED)
    for column, value in (
        (_T.rid, where.rid),
        (_T.trace_id, where.trace_id),
        (_T.engine_uid, where.engine_uid),
        (_T.model, where.model),
        (_T.kind, where.kind),
    ):
        if value is not None:
            wanted.append(column == clean(value))
    if where.state is not None:
        if where.state in (convention.STATE_RUNNING, LOST):
            wanted.append(is_running())
        wanted.append(state_at(now_ns).element == clean(where.state))
    if where.flag is not None:
        if where.flag not in FLAGS:
            raise ValueError(f"flag {where.flag!r} is unknown; known are {', '.join(sorted(FLAGS))}")
        wanted.append(FLAGS[where.flag]())
    if where.since is not None:
        wanted.append(_T.arrival_ns >= to_ns(where.since))
    if where.until is not None:
        wanted.append(_T.arrival_ns < to_ns(where.until))
    # Acceptance length = (accepted + bonus) / verify steps; undefined without a step, then no match.
    emitted = _T.accepted + _T.bonus
    if where.min_acceptance_length is not None:
        wanted += [_T.verify_steps > 0, emitted >= where.min_acceptance_length * _T.verify_steps]
    if where.max_acceptance_length is not None:
        wanted += [_T.verify_steps > 0, emitted <= where.max_acceptance_length * _T.verify_steps]
    return wanted


def _gap() -> ColumnElement[bool]:
    """Return whether a boundary that the request's process can see was crossed too seldom."""
    gauge = schema.process_gauge.c
    armed = exists().where(
        gauge.engine_uid == _T.engine_uid,
        gauge.process_uid == _T.process_uid,
        gauge.name == names.ARMED,
        gauge.value == 1,
        _T.short.like(literal("%,").concat(gauge.label).concat(",%")),
    )
    return and_(_T.short != literal("", literal_execute=True), armed)


FLAGS: dict[str, Callable[[], ColumnElement[bool]]] = {
    "zero_acceptance": lambda: and_(_T.verify_steps > 0, _T.accepted == 0),
    "gap": _gap,
    "unfinished": is_running,
    "health_check": lambda: _T.kind == convention.KIND_HEALTH_CHECK,
}
"""Flags by name."""
