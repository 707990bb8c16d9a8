"""The rollups of a window by every dimension, and its minutes one by one."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Final

from specscope.rollup import ALL, BUCKET_S, CONTEXT, COPY_LIKE, COUNT_FIELDS, STEP, TEMPERATURE
from sqlalchemy import BigInteger, Connection, Table, bindparam, cast, func, or_, select

from specscope_server.diagnosis.engine_evidence import Moment, Slice
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared
from specscope_server.store.read_rollups import MINUTE_S, Sums

HISTORY_S: Final = 2 * 3600
"""How far back the minutes of an engine are compared with now."""
LONG_S: Final = 1800
"""A window of this many seconds and more is read by the minute."""
MIX: Final = (CONTEXT, TEMPERATURE, COPY_LIKE)
"""Dimensions that tell which traffic it was."""


def _slices_of(table: Table) -> Prepared:
    t = table.c
    # PostgreSQL sums bigint as numeric.
    sums = [cast(func.sum(t[name]), BigInteger) for name in COUNT_FIELDS]
    key = t.dimension, t.slice, t.position
    return Prepared(
        select(*key, *sums)
        .where(t.engine_uid == bindparam("engine"), t.dimension != ALL, t.bucket >= bindparam("since"))
        .group_by(*key)
        .order_by(*key)
    )


_BY_10_S: Final = _slices_of(schema.rollup_10s)
_BY_MINUTE: Final = _slices_of(schema.rollup_60s)
_T = schema.rollup_60s.c
_SINCE = _T.engine_uid == bindparam("engine"), _T.bucket >= bindparam("since")
_HISTORY: Final = Prepared(
    select(_T.bucket, _T.position, *(_T[name] for name in COUNT_FIELDS)).where(*_SINCE, _T.dimension == ALL)
)
_TRAFFIC: Final = Prepared(
    select(_T.bucket, _T.dimension, _T.slice, _T.steps).where(
        *_SINCE, or_(*(_T.dimension == name for name in MIX)), _T.position == STEP
    )
)


def slices(connection: Connection, engine_uid: str, since_s: int, window_s: float) -> tuple[Slice, ...]:
    """Return the sums of each slice from the bucket of ``since_s`` on, by dimension and name of the slice."""
    query, width = (_BY_MINUTE, MINUTE_S) if window_s >= LONG_S else (_BY_10_S, BUCKET_S)
    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    for row in query.rows(connection, {"engine": engine_uid, "since": since_s // width * width}):
        sums[row[0], row[1]].take(row[2], row[3:])
    return tuple(Slice(*key, one.counts, one.positions) for key, one in sums.items())


def history(connection: Connection, engine_uid: str, now_s: int) -> tuple[Moment, ...]:
    """Return the minutes of the last :data:`HISTORY_S` seconds that have a rollup, oldest first."""
    values = {"engine": engine_uid, "since": now_s - HISTORY_S}
    sums: dict[int, Sums] = defaultdict(Sums)
    for bucket, position, *numbers in _HISTORY.rows(connection, values):
        sums[bucket].take(position, numbers)
    mix: dict[int, dict[str, int]] = defaultdict(dict)
    for bucket, dimension, value, steps in _TRAFFIC.rows(connection, values):
        mix[bucket][sys.intern(f"{dimension}={value}")] = steps
    return tuple(Moment(start, one.counts, one.positions, mix[start]) for start, one in sorted(sums.items()))
