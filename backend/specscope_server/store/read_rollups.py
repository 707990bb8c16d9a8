"""Sums of rollups: over a window for each engine, and over time, by slice.

Every window is read from as few rows as there can be: whole minutes from the sums by the minute, what is
before and after them from those by 10 s. Both are written in one transaction, so the sums are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from typing import cast as cast_to

from specscope.rollup import ALL, BUCKET_S, COUNT_FIELDS, STEP, Counts
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Table,
    cast,
    func,
    select,
    union_all,
)

from specscope_server.store import schema
from specscope_server.store.model import SeriesPoint
from specscope_server.store.sliced import MOST, Sliced, ordered
from specscope_server.store.values import clean

MINUTE_S: Final = 60
_EVER: Final = 1 << 62
_STEPS, _ACCEPTED = (COUNT_FIELDS.index(name) for name in ("steps", "accepted"))


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

    def take(self, position: int, numbers: Sequence[int]) -> None:
        """Take in the sums of one position, in the order of :data:`COUNT_FIELDS`."""
        if position == STEP:
            self.counts = Counts(*numbers)
        else:
            self.by_position[position] = (numbers[_STEPS], numbers[_ACCEPTED])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which rows: of these engines (ids or a query of them) and dimension; of ``values`` slices if told."""

    engines: Any
    dimension: str = ALL
    values: Sequence[str] | None = None
    position: int | None = None

    def of(self, table: Table, since: int, until: int) -> Any:
        """Return the query of one table."""
        t = table.c
        wanted = [t.engine_uid.in_(self.engines), t.dimension == self.dimension, t.bucket >= since]
        if until != _EVER:
            wanted.append(t.bucket < until)
        if self.values is not None:
            wanted.append(t.slice.in_(self.values))
        if self.position is not None:
            wanted.append(t.position.in_({STEP, self.position}))
        return select(t.engine_uid, t.bucket, t.slice, t.position, *(t[name] for name in COUNT_FIELDS)).where(
            *wanted
        )

    def between(self, since: int, until: int, bucket_s: int = MINUTE_S) -> FromClause:
        """Return them of a window, from the sums by the minute where ``bucket_s`` is whole minutes."""
        first, last = -(-since // MINUTE_S) * MINUTE_S, until // MINUTE_S * MINUTE_S
        if bucket_s % MINUTE_S or first >= last:
            return self.of(schema.rollup_10s, since, until).subquery()
        parts = [self.of(schema.rollup_60s, first, _EVER if until == _EVER else last)]
        if since < first:
            parts.append(self.of(schema.rollup_10s, since, first))
        if until not in (last, _EVER):
            parts.append(self.of(schema.rollup_10s, last, until))
        return union_all(*parts).subquery() if len(parts) > 1 else parts[0].subquery()


def _sums(rows: FromClause) -> list[ColumnElement[int]]:
    # PostgreSQL sums bigint as numeric.
    return [cast(func.sum(rows.c[name]), BigInteger).label(name) for name in COUNT_FIELDS]


def window_sums(
    connection: Connection, uids: Iterable[str], since_s: int, until_s: int | None = None
) -> Mapping[str, Sums]:
    """Return sums by engine from the bucket of ``since_s`` (unix seconds) on, before ``until_s``.

    No rollup, no entry.
    """
    rows = _Rows(sorted(set(uids))).between(_floor(since_s, BUCKET_S), _EVER if until_s is None else until_s)
    found: dict[str, Sums] = {}
    for row in connection.execute(
        select(rows.c.engine_uid, rows.c.position, *_sums(rows)).group_by(rows.c.engine_uid, rows.c.position)
    ):
        found.setdefault(row.engine_uid, Sums()).take(row.position, row[2:])
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
    found = sliced(connection, workspace, engine_uid, since_s, until_s, bucket_s, ALL)
    return list(found.series.get("", ()))


def sliced(
    connection: Connection,
    workspace: str,
    engine_uid: str | None,
    since_s: int,
    until_s: int,
    bucket_s: int,
    dimension: str,
    value: str | None = None,
    position: int | None = None,
) -> Sliced:
    """Return sums over time by slice of a dimension, of at most :data:`MOST` slices: those with most steps.

    Of one slice ``value``, and of one ``position`` (from 0) beside the steps, if told.

    Raises:
        ValueError: ``bucket_s`` is not a positive multiple of 10.
    """
    if bucket_s <= 0 or bucket_s % BUCKET_S:
        raise ValueError(f"bucket width is {bucket_s} s; it must be a multiple of {BUCKET_S}")
    mine = select(schema.engine.c.engine_uid).where(schema.engine.c.workspace == workspace)
    if engine_uid is not None:
        mine = mine.where(schema.engine.c.engine_uid == engine_uid)
    since, left_out = _floor(since_s, bucket_s), 0
    values = None if value is None else [clean(value)]
    if dimension != ALL and values is None:
        steps = _Rows(mine, dimension, None, STEP).between(since, until_s)
        found = connection.execute(
            select(steps.c.slice)
            .group_by(steps.c.slice)
            .order_by(func.sum(steps.c.steps).desc(), steps.c.slice)
        ).scalars().all()  # fmt: skip
        values, left_out = list(found[:MOST]), len(found[MOST:])
    rows = _Rows(mine, dimension, values, position).between(since, until_s, bucket_s)
    start: ColumnElement[int] = (rows.c.bucket - rows.c.bucket % bucket_s).label("start")
    points: dict[str, dict[int, Sums]] = {}
    sums = select(start, rows.c.slice, rows.c.position, *_sums(rows))
    # All at once and by place: an hour at 10 s has thousands of rows, and a row by name takes twice as long.
    found = connection.execute(sums.group_by(start, rows.c.slice, rows.c.position)).all()
    for row in cast_to("Sequence[tuple[Any, ...]]", found):
        points.setdefault(row[1], {}).setdefault(row[0], Sums()).take(row[2], row[3:])
    return Sliced({name: _points(points[name]) for name in ordered(dimension, list(points))}, left_out)


def _points(sums: Mapping[int, Sums]) -> list[SeriesPoint]:
    return [
        SeriesPoint(datetime.fromtimestamp(at, UTC), sums[at].counts, sums[at].positions)
        for at in sorted(sums)
    ]


def _floor(value: int, width: int) -> int:
    return value // width * width
