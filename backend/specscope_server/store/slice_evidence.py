"""The rollups of a window by every dimension, and its minutes one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from specscope.rollup import ALL, BUCKET_S, CONTEXT, COPY_LIKE, COUNT_FIELDS, STEP, TEMPERATURE
from sqlalchemy import BigInteger, Connection, Table, cast, func, select

from specscope_server.diagnosis.engine_evidence import Moment, Slice
from specscope_server.store import schema
from specscope_server.store.read_rollups import MINUTE_S, Sums

HISTORY_S: Final = 2 * 3600
"""How far back the minutes of an engine are compared with now."""
LONG_S: Final = 1800
"""A window of this many seconds and more is read by the minute."""
MIX: Final = (CONTEXT, TEMPERATURE, COPY_LIKE)
"""Dimensions that tell which traffic it was."""


def slices(connection: Connection, engine_uid: str, since_s: int, window_s: float) -> tuple[Slice, ...]:
    """Return the sums of each slice from the bucket of ``since_s`` on, by dimension and name of the slice."""
    table, width = _table(window_s)
    t = table.c
    found = connection.execute(
        select(t.dimension, t.slice, t.position, *_summed(table))
        .where(t.engine_uid == engine_uid, t.dimension != ALL, t.bucket >= since_s // width * width)
        .group_by(t.dimension, t.slice, t.position)
        .order_by(t.dimension, t.slice, t.position)
    )
    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    for row in found:
        sums[row[0], row[1]].take(row[2], row[3:])
    return tuple(Slice(*key, one.counts, one.positions) for key, one in sums.items())


def history(connection: Connection, engine_uid: str, now_s: int) -> tuple[Moment, ...]:
    """Return the minutes of the last :data:`HISTORY_S` seconds that have a rollup, oldest first."""
    t = schema.rollup_60s.c
    found = connection.execute(
        select(t.bucket, t.dimension, t.slice, t.position, *(t[name] for name in COUNT_FIELDS))
        .where(
            t.engine_uid == engine_uid,
            t.dimension.in_((ALL, *MIX)),
            t.bucket >= now_s - HISTORY_S,
        )
        .order_by(t.bucket)
    )
    sums: dict[int, Sums] = defaultdict(Sums)
    mix: dict[int, dict[str, int]] = defaultdict(dict)
    for row in found:
        if row.dimension == ALL:
            sums[row.bucket].take(row.position, row[4:])
        elif row.position == STEP:
            mix[row.bucket][f"{row.dimension}={row.slice}"] = row.steps
    return tuple(Moment(start, one.counts, one.positions, mix[start]) for start, one in sorted(sums.items()))


def _table(window_s: float) -> tuple[Table, int]:
    return (schema.rollup_60s, MINUTE_S) if window_s >= LONG_S else (schema.rollup_10s, BUCKET_S)


def _summed(table: Table) -> list[Any]:
    # PostgreSQL sums bigint as numeric.
    return [cast(func.sum(table.c[name]), BigInteger) for name in COUNT_FIELDS]
