"""Lists of requests: filters, search and paging."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from specscope import convention
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    and_,
    bindparam,
    exists,
    literal,
    tuple_,
)

from specscope_server.store import cursor as cursors
from specscope_server.store import rows as names
from specscope_server.store import schema, search
from specscope_server.store.facts import engine_names
from specscope_server.store.model import Page, RequestFilter
from specscope_server.store.prepared import Prepared
from specscope_server.store.request_rows import (
    LOST,
    Summary,
    is_running,
    public,
    selected,
    silent_before,
    state_now,
)
from specscope_server.store.values import clean, to_ns

_T = schema.request.c
_SAME: Final = ("rid", "trace_id", "engine_uid", "model", "kind")
"""Texts that a request has as they are asked for."""
_LENGTHS: Final = ("min_acceptance_length", "max_acceptance_length")
_FEW: Final = frozenset(("text", "rid", "trace_id", "response_id"))
"""What few requests have."""
_SHAPES: Final = 256
"""Queries kept; an interface asks in some twenty ways."""


class _Shape(NamedTuple):
    """All of a question but its values: which filters there are."""

    filters: frozenset[str]
    flag: str | None
    maybe_running: bool
    """Requests are asked for of a state that only those have which did not end."""
    following: bool
    """It is not the first page."""


def page(connection: Connection, where: RequestFilter, limit: int, cursor: str | None, now_ns: int) -> Page:
    """Return a page of requests, newest arrival first.

    Raises:
        ValueError: the cursor, a flag or a time is not valid, or the limit is not positive.
    """
    if limit <= 0:
        raise ValueError(f"limit is {limit}; it must be at least 1")
    if where.flag is not None and where.flag not in FLAGS:
        raise ValueError(f"flag {where.flag!r} is unknown; known are {', '.join(sorted(FLAGS))}")
    asked = _asked(where)
    shape = _Shape(
        frozenset(asked), where.flag, where.state in (convention.STATE_RUNNING, LOST), cursor is not None
    )
    values = search.parameters(where) | asked
    values |= {"most": limit + 1, "silent_before": silent_before(now_ns)}
    if cursor is not None:
        values["after_ns"], values["after_uid"] = cursors.unpack(cursor)
    found = _query(shape).rows(connection, values)
    shown = [Summary._make(row) for row in found[:limit]]
    engines = engine_names(connection, {row.engine_uid for row in shown}) if shown else {}
    following = cursors.pack(shown[-1].arrival_ns, shown[-1].uid) if len(found) > limit else None
    return Page(tuple(public(row, engines.get(row.engine_uid, "")) for row in shown), following)


def _asked(where: RequestFilter) -> dict[str, Any]:
    """Return the values of the filters that there are, by name.

    Raises:
        ValueError: a time has no zone.
    """
    told = {name: getattr(where, name) for name in (*_SAME, "response_id", "state", *_LENGTHS)}
    asked: dict[str, Any] = {
        name: clean(value) if isinstance(value, str) else value
        for name, value in told.items()
        if value is not None
    }
    if where.text:
        asked["text"] = search.wanted(where.text)
    for name, moment in (("since", where.since), ("until", where.until)):
        if moment is not None:
            asked[name] = to_ns(moment)
    return asked


@lru_cache(_SHAPES)
def _query(shape: _Shape) -> Prepared:
    arrival: ColumnElement[int] = _T.arrival_ns
    if shape.filters & _FEW:
        # A search has few hits. Sorted by a bare column, both planners may walk the index by arrival instead,
        # through every request there is; a sum they cannot look up in it.
        arrival = _T.arrival_ns + 0
    query = selected().where(*_conditions(shape))
    if shape.following:
        last = bindparam("after_ns", type_=BigInteger), bindparam("after_uid", type_=_T.uid.type)
        query = query.where(tuple_(arrival, _T.uid) < tuple_(*last))
    most = bindparam("most", type_=BigInteger)
    return Prepared(query.order_by(arrival.desc(), _T.uid.desc()).limit(most))


def _conditions(shape: _Shape) -> list[ColumnElement[bool]]:
    """Return what a filter asks for."""
    asked = shape.filters
    workspace: ColumnElement[str] = _T.workspace
    if "engine_uid" in asked:
        # Of two indexes that give the order SQLite guesses by their widths; one engine has fewer requests
        # than its workspace, and an expression it cannot look up in the other index.
        workspace = _T.workspace.concat("")
    wanted: list[ColumnElement[bool]] = [workspace == bindparam("in_workspace")]
    if "text" in asked:
        wanted.append(search.FOUND)
    if "response_id" in asked:
        wanted.append(search.ANSWERED)
    wanted += [_T[name] == bindparam(name) for name in _SAME if name in asked]
    if "state" in asked:
        if shape.maybe_running:
            wanted += [is_running(), state_now().element == bindparam("state")]
        else:
            # What ended is in the column as it is, of which PostgreSQL knows how often it comes; of an
            # expression it takes one in 200, sorts all that match and then takes a page of them.
            wanted.append(_T.state == bindparam("state"))
    if shape.flag is not None:
        wanted.append(FLAGS[shape.flag]())
    if "since" in asked:
        wanted.append(_T.arrival_ns >= bindparam("since"))
    if "until" in asked:
        wanted.append(_T.arrival_ns < bindparam("until"))
    # Acceptance length = (accepted + bonus) / verify steps; undefined without a step, then no match.
    emitted = _T.accepted + _T.bonus
    least, most = (bindparam(name, type_=Double) * _T.verify_steps for name in _LENGTHS)
    if "min_acceptance_length" in asked:
        wanted += [_T.verify_steps > 0, emitted >= least]
    if "max_acceptance_length" in asked:
        wanted += [_T.verify_steps > 0, emitted <= most]
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
