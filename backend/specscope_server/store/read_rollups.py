"""Sums of rollups: over a window for each engine, and over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from specscope.rollup import ALL, BUCKET_S, COUNT_FIELDS, STEP, Counts
from sqlalchemy import BigInteger, ColumnElement, Connection, Row, cast, func, select

from specscope_server.store import schema
from specscope_server.store.model import SeriesPoint

_T = schema.rollup_10s.c
# PostgreSQL sums bigint as numeric.
_SUMS = [cast(func.sum(_T[name]), BigInteger).label(name) for name in COUNT_FIELDS]


@dataclass(slots=True)
class Sums:
    """Step counts and, by position, [drafted, accepted]."""

    counts: Counts = field(default_factory=Counts)
    by_position: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    @property
    def positions(self) -> tuple[tuple[int, int], ...]:
        """Return [drafted, accepted] from position 0 on."""
        width = max(self.by_position, default=-1) + 1
        return tuple(self.by_position.get(index, (0, 0)) for index in range(width))

    def take(self, row: Row[Any]) -> None:
        """Take in the sums of one position."""
        if row.position == STEP:
            self.counts = Counts(**{name: getattr(row, name) for name in COUNT_FIELDS})
        else:
            self.by_position[row.position] = (row.steps, row.accepted)


def window_sums(
    connection: Connection, uids: Iterable[str], since_s: int, until_s: int | None = None
) -> Mapping[str, Sums]:
    """Return sums by engine from the bucket of ``since_s`` (unix seconds) on, before ``until_s``.

    No rollup, no entry.
    """
    since = _floor(since_s, BUCKET_S)
    wanted = [_T.engine_uid.in_(sorted(set(uids))), _T.dimension == ALL, _T.bucket >= since]
    if until_s is not None:
        wanted.append(_T.bucket < until_s)
    found: dict[str, Sums] = {}
    for row in connection.execute(
        select(_T.engine_uid, _T.position, *_SUMS).where(*wanted).group_by(_T.engine_uid, _T.position)
    ):
        found.setdefault(row.engine_uid, Sums()).take(row)
    return found


def series(
    connection: Connection,
    workspace: str,
    engine_uid: str | None,
    since_s: int,
    until_s: int,
    bucket_s: int,
) -> list[SeriesPoint]:
    """Return sums over time, oldest first; times in unix seconds.

    Raises:
        ValueError: ``bucket_s`` is not a positive multiple of 10.
    """
    if bucket_s <= 0 or bucket_s % BUCKET_S:
        raise ValueError(f"bucket width is {bucket_s} s; it must be a multiple of {BUCKET_S}")
    start: ColumnElement[int] = (_T.bucket - _T.bucket % bucket_s).label("start")
    mine = select(schema.engine.c.engine_uid).where(schema.engine.c.workspace == workspace)
    if engine_uid is not None:
        mine = mine.where(schema.engine.c.engine_uid == engine_uid)
    points: dict[int, Sums] = {}
    for row in connection.execute(
        select(start, _T.position, *_SUMS)
        .where(_T.engine_uid.in_(mine), _T.dimension == ALL)
        .where(_T.bucket >= _floor(since_s, bucket_s), _T.bucket < until_s)
        .group_by(start, _T.position)
    ):
        points.setdefault(row.start, Sums()).take(row)
    return [
        SeriesPoint(datetime.fromtimestamp(at, UTC), points[at].counts, points[at].positions)
        for at in sorted(points)
    ]


def _floor(value: int, width: int) -> int:
    return value // width * width
