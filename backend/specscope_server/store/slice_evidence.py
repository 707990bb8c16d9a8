"""The rollups of a window by every dimension."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from specscope.rollup import ALL, BUCKET_S, COUNT_FIELDS
from sqlalchemy import BigInteger, Connection, Table, bindparam, cast, func, select

from specscope_server.diagnosis.engine_evidence import Slice
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared
from specscope_server.store.read_rollups import MINUTE_S, Sums

LONG_S: Final = 1800
"""A window of this many seconds and more is read by the minute."""


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


def slices(connection: Connection, engine_uid: str, since_s: int, window_s: float) -> tuple[Slice, ...]:
    """Return the sums of each slice from the bucket of ``since_s`` on, by dimension and name of the slice."""
    query, width = (_BY_MINUTE, MINUTE_S) if window_s >= LONG_S else (_BY_10_S, BUCKET_S)
    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    for row in query.rows(connection, {"engine": engine_uid, "since": since_s // width * width}):
        sums[row[0], row[1]].take(row[2], row[3:])
    return tuple(Slice(*key, one.counts, one.positions) for key, one in sums.items())
