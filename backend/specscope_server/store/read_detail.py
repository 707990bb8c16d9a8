"""One request with its steps and draft extends, unpacked from its chunks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from specscope import chunks
from specscope.chunks import ExtendRow, StepRow
from specscope.columns import CodecError
from sqlalchemy import BigInteger, ColumnElement, Connection, Row, and_, bindparam, func, select

from specscope_server.store import joined, schema
from specscope_server.store import rows as names
from specscope_server.store.facts import engine_names
from specscope_server.store.logs import logs_of_trace
from specscope_server.store.model import BoundaryState, JoinedTrace, RequestDetail
from specscope_server.store.opened import Opened
from specscope_server.store.prepared import Prepared
from specscope_server.store.request_rows import Summary, public, selected, silent_before
from specscope_server.store.spans import spans_of_trace
from specscope_server.store.states import Totals, arming, states
from specscope_server.store.told import LogRecord
from specscope_server.store.values import clean

log = logging.getLogger(__name__)
_T = schema.step_chunk.c
_R = schema.request.c
_G = schema.process_gauge.c
# Not sorted by the database, which might walk an index of all arrivals for it.
_REQUEST: Final = Prepared(
    selected().where(_R.workspace == bindparam("workspace"), _R.uid == bindparam("uid"))
)
# With the gauges of the process that tell which boundaries it can see; one row at least.
_BOUNDARIES: Final = Prepared(
    select(_R.boundaries, _G.label, _G.value, _G.reason)
    .join_from(
        schema.request,
        schema.process_gauge,
        and_(_G.engine_uid == _R.engine_uid, _G.process_uid == _R.process_uid, _G.name == bindparam("armed")),
        isouter=True,
    )
    .where(_R.engine_uid == bindparam("engine_uid"), _R.uid == bindparam("uid"))
)


def detail(
    connection: Connection, workspace: str, uid: str, first_step: int, limit: int, now_ns: int, opened: Opened
) -> RequestDetail | None:
    """Return a request with at most ``limit`` steps from ``first_step`` on; ``None`` when there is none.

    Each step row also has ``index``, its number within the request.
    """
    found = request_row(connection, workspace, uid, now_ns)
    if found is None:
        return None
    stored = stored_chunks(connection, found.engine_uid, uid, first_step, limit, "steps", "extends")
    steps = [
        row
        for chunk in stored
        for row in _steps(chunk, opened)
        if first_step <= row["index"] < first_step + limit
    ]
    extends = [
        _recorded(row) for chunk in stored for row in opened.rows(chunk, "extends", chunks.unpack_extends)
    ]
    request = public(found, engine_names(connection, [found.engine_uid])[found.engine_uid])
    whose = joined.request_of(found, workspace)
    own = spans_of_trace(connection, workspace, request.trace_id)
    others = joined.joined_traces(connection, whose)
    recorded = max((row["index"] + 1 for row in steps), default=0)
    return RequestDetail(
        request=replace(request, response_id=joined.response_id(whose, own, others)),
        steps=tuple(_joined(steps)),
        extends=tuple(_joined(extends)),
        boundaries=_boundaries(connection, found),
        spans=own,
        joined=others,
        logs=_logs(connection, workspace, request.trace_id, others),
        steps_total=max(recorded, request.totals.verify_steps + request.totals.overshoot_steps),
    )


def _logs(
    connection: Connection, workspace: str, trace_id: str, others: Sequence[JoinedTrace]
) -> tuple[LogRecord, ...]:
    """Return the records of the request's trace, and of other traces those of its spans alone."""
    found = [*logs_of_trace(connection, workspace, trace_id)]
    for trace in others:
        spans = {span.span_id for span in trace.spans}
        told = logs_of_trace(connection, workspace, trace.trace_id)
        found += [record for record in told if record.span_id in spans]
    return tuple(sorted(found, key=lambda record: (record.time_ns, record.record_id)))


def request_row(connection: Connection, workspace: str, uid: str, now_ns: int) -> Summary | None:
    """Return what is stored of a request.

    More than one only where two environments of a workspace share an instance: then the newest.
    """
    asked = {"workspace": clean(workspace), "uid": clean(uid), "silent_before": silent_before(now_ns)}
    named = map(Summary._make, _REQUEST.rows(connection, asked))
    return max(named, key=lambda row: (row.arrival_ns, row.engine_uid), default=None)


def stored_chunks(
    connection: Connection,
    engine_uid: str,
    uid: str,
    first_step: int,
    limit: int,
    *payloads: str,
    most: int | None = None,
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the chunks that hold these steps: from the last one that starts at or before the first.

    ``payloads`` names the packed columns to read with them; of ``most`` chunks, if told. Of the request's
    other chunks the keys alone are looked at, one in 64 steps: an index of first steps would cost every chunk
    that is written an eighth of its time, and save a reader of 100,000 steps less than a millisecond.
    """
    window = _window(engine_uid, uid, first_step, limit)
    return _chunks(payloads, most).rows(connection, window)


@lru_cache
def _chunks(payloads: tuple[str, ...], most: int | None) -> Prepared:
    return Prepared(
        select(_T.uid, _T.process_uid, _T.seq, _T.first_step, *(_T[name] for name in payloads))
        .where(*_holding())
        .order_by(_T.first_step, _T.process_uid, _T.seq)
        .limit(most)
    )


def chunks_with_hidden(connection: Connection, engine_uid: str, uid: str, first_step: int, limit: int) -> int:
    """Return how many chunks that hold these steps have hidden states."""
    told = select(func.count(_T.hidden)).where(*_holding())
    return connection.execute(told, _window(engine_uid, uid, first_step, limit)).scalar_one()


def _window(engine_uid: str, uid: str, first_step: int, limit: int) -> dict[str, Any]:
    """Return the values of :func:`_holding`."""
    return {"engine_uid": engine_uid, "uid": uid, "first": first_step, "end": first_step + limit}


def _holding() -> tuple[ColumnElement[bool], ...]:
    mine = (_T.engine_uid == bindparam("engine_uid"), _T.uid == bindparam("uid"))
    before = _T.first_step <= bindparam("first", type_=BigInteger)
    start = select(func.max(_T.first_step)).where(*mine, before).scalar_subquery()
    return *mine, _T.first_step >= func.coalesce(start, 0), _T.first_step < bindparam("end")


def _steps(chunk: Row[Any], opened: Opened) -> Iterable[dict[str, Any]]:
    for offset, row in enumerate(opened.rows(chunk, "steps", chunks.unpack_steps)):
        yield {"index": chunk.first_step + offset} | _recorded(row)


def _recorded(row: StepRow | ExtendRow) -> dict[str, Any]:
    """Return a row without what was not recorded; ``asdict`` would take ten times as long."""
    names = chunks.STEP_COLUMNS if isinstance(row, StepRow) else chunks.EXTEND_COLUMNS
    return {name: value for name in names if (value := getattr(row, name)) is not None}


def _joined(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows in order of time; what several processes tell of one engine step is one row.

    Ranks are joined by the engine's step number, never by time; the first process named by uid counts.
    """
    by_step: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        kept = by_step.setdefault((row["step"], row.get("after")), dict(row))
        kept |= {name: value for name, value in row.items() if name not in kept}
    return sorted(by_step.values(), key=lambda row: (row["t"], row["step"]))


def _boundaries(connection: Connection, request: Summary) -> tuple[BoundaryState, ...]:
    """Return the request's own ledger; empty when none was told or it cannot be read."""
    told = _BOUNDARIES.rows(
        connection, {"engine_uid": request.engine_uid, "uid": request.uid, "armed": names.ARMED}
    )
    packed: bytes | None = told[0].boundaries
    if packed is None:
        return ()
    try:
        expected, observed = chunks.unpack_boundaries(packed)
    except CodecError as error:
        log.warning("request %s: its boundary counts cannot be read: %s", request.uid, error)
        return ()
    totals: dict[tuple[str, str, str], tuple[int | None, int | None]] = {
        (boundary, source, ""): (count, None) for (boundary, source), count in expected.items()
    }
    totals |= {crossing: (None, count) for crossing, count in observed.items()}
    armed = {row.label: arming(row.value, row.reason) for row in told if row.label is not None}
    own: Totals = totals
    return tuple(s for s in states({request.process_uid: (own, armed)}) if s.expected or s.observed)
