"""Sums of rollups: over a window for each engine, and over time, by slice.

Every window is read from as few rows as there can be: whole minutes from the sums by the minute, what is
before and after them from those by 10 s. Both are written in one transaction, so the sums are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from specscope.rollup import ALL, BUCKET_S, COUNT_FIELDS, STEP, Counts
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    bindparam,
    cast,
    func,
    select,
    union_all,
)

from specscope_server.store import schema
from specscope_server.store.model import SeriesPoint
from specscope_server.store.prepared import Prepared
from specscope_server.store.sliced import MOST, Sliced, ordered
from specscope_server.store.values import clean

MINUTE_S: Final = 60
_EVER: Final = 1 << 62
_AT_PLACE: Final = ("steps", "accepted")
_STEPS, _ACCEPTED = (COUNT_FIELDS.index(name) for name in _AT_PLACE)
_10S, _60S = schema.rollup_10s, schema.rollup_60s


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


class _Position(Enum):
    """Which rows: by what they count."""

    ANY = "any"
    STEPS = "steps"
    PLACES = "places"
    """Drafts by position, all of them: of these only two numbers are counted."""
    PLACE = "place"
    """Those of one position."""

    @property
    def counted(self) -> Sequence[str]:
        """Return what they count."""
        return _AT_PLACE if self in (_Position.PLACES, _Position.PLACE) else COUNT_FIELDS


class _Shape(NamedTuple):
    """All of a question but its values."""

    tables: tuple[str, ...]
    """Of each part of the window."""
    position: _Position
    of_workspace: bool
    """Only engines of one workspace."""
    engines: int
    """Only so many engines, by uid; 0: all."""
    slices: int | None = None
    """Only so many slices; ``None``: all."""


class _Window(NamedTuple):
    """What a window is read from: tables, and the values that tell from where to where of each."""

    tables: tuple[str, ...]
    values: Mapping[str, int]


def _window(since: int, until: int, bucket_s: int = MINUTE_S) -> _Window:
    """Return it, with the sums by the minute where ``bucket_s`` is whole minutes."""
    first, last = -(-since // MINUTE_S) * MINUTE_S, until // MINUTE_S * MINUTE_S
    if until == _EVER:
        last = until
    if bucket_s % MINUTE_S or first >= last:
        parts = [(_10S, since, until)]
    else:
        parts = [(_60S, first, last)]
        if since < first:
            parts.append((_10S, since, first))
        if last < until:
            parts.append((_10S, last, until))
    values = {f"since_{place}": start for place, (_, start, _) in enumerate(parts)}
    values |= {f"until_{place}": end for place, (*_, end) in enumerate(parts)}
    return _Window(tuple(table.name for table, *_ in parts), values)


def _named(column: ColumnElement[str], name: str, count: int) -> ColumnElement[bool]:
    return column.in_([bindparam(f"{name}_{place}", type_=column.type) for place in range(count)])


def _values(name: str, values: Iterable[str]) -> dict[str, Any]:
    """Return the values of :func:`_named`."""
    return {f"{name}_{place}": value for place, value in enumerate(values)}


def _rows(shape: _Shape) -> FromClause:
    """Return the rows that a question is about."""
    engine = schema.engine.c
    mine = select(engine.engine_uid).where(engine.workspace == bindparam("workspace"))
    if shape.engines:
        mine = mine.where(_named(engine.engine_uid, "engine", shape.engines))
    parts: list[Any] = []
    for place, name in enumerate(shape.tables):
        t = schema.metadata.tables[name].c
        uid: ColumnElement[str] = t.engine_uid
        wanted = [
            uid.in_(mine) if shape.of_workspace else _named(uid, "engine", shape.engines),
            t.dimension == bindparam("dimension"),
            t.bucket >= bindparam(f"since_{place}"),
            t.bucket < bindparam(f"until_{place}"),
        ]
        if shape.slices is not None:
            wanted.append(_named(t.slice, "slice", shape.slices))
        match shape.position:
            case _Position.ANY:
                pass
            case _Position.STEPS:
                wanted.append(t.position == STEP)
            case _Position.PLACES:
                wanted.append(t.position > STEP)
            case _Position.PLACE:
                wanted.append(t.position == bindparam("position"))
        counted = (t[name] for name in shape.position.counted)
        parts.append(select(t.engine_uid, t.bucket, t.slice, t.position, *counted).where(*wanted))
    return union_all(*parts).subquery() if len(parts) > 1 else parts[0].subquery()


def _sums(rows: FromClause, shape: _Shape) -> list[ColumnElement[int]]:
    # PostgreSQL sums bigint as numeric.
    return [cast(func.sum(rows.c[name]), BigInteger).label(name) for name in shape.position.counted]


@lru_cache(64)
def _by_engine(shape: _Shape) -> Prepared:
    rows = _rows(shape)
    key = rows.c.engine_uid, rows.c.position
    return Prepared(select(*key, *_sums(rows, shape)).group_by(*key))


@lru_cache(64)
def _over_time(shape: _Shape) -> Prepared:
    """Return the query of sums by slice, start and, if asked for, position; in this order."""
    rows = _rows(shape)
    start: ColumnElement[int] = rows.c.bucket - rows.c.bucket % bindparam("width", type_=BigInteger)
    key: list[ColumnElement[Any]] = [rows.c.slice, start.label("start")]
    if shape.position is not _Position.STEPS:
        key.append(rows.c.position)
    return Prepared(select(*key, *_sums(rows, shape)).group_by(*key).order_by(*key))


@lru_cache(16)
def _slices(shape: _Shape) -> Prepared:
    """Return the query of the slices that there are, those with most steps first."""
    rows = _rows(shape)
    slices = select(rows.c.slice).group_by(rows.c.slice)
    return Prepared(slices.order_by(func.sum(rows.c.steps).desc(), rows.c.slice))


def window_sums(
    connection: Connection, uids: Iterable[str], since_s: int, until_s: int | None = None
) -> Mapping[str, Sums]:
    """Return sums by engine from the bucket of ``since_s`` (unix seconds) on, before ``until_s``.

    No rollup, no entry.
    """
    engines = sorted(set(uids))
    found: dict[str, Sums] = {}
    if not engines:
        return found
    window = _window(_floor(since_s, BUCKET_S), _EVER if until_s is None else until_s)
    query = _by_engine(_Shape(window.tables, _Position.ANY, of_workspace=False, engines=len(engines)))
    values = _values("engine", engines) | {"dimension": ALL, **window.values}
    for row in query.rows(connection, values):
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
    since, left_out = _floor(since_s, bucket_s), 0
    window = _window(since, until_s, bucket_s)
    engines = [] if engine_uid is None else [engine_uid]
    shape = _Shape(window.tables, _Position.STEPS, of_workspace=True, engines=len(engines))
    values = _values("engine", engines)
    values |= {"workspace": workspace, "dimension": dimension, "width": bucket_s, **window.values}
    if dimension != ALL or value is not None:
        slices = [clean(value)] if value is not None else []
        if value is None:
            # Whole minutes, if there are some: the steps of a slice are the same from wherever they are read.
            whole = _window(since, until_s)
            told = _slices(shape._replace(tables=whole.tables)).rows(connection, values | dict(whole.values))
            slices = [row[0] for row in told]
            slices, left_out = slices[:MOST], len(slices[MOST:])
            if not slices:
                return Sliced({})
        shape = shape._replace(slices=len(slices))
        values |= _values("slice", slices)
    if position is not None:
        values["position"] = position
    steps = _over_time(shape).rows(connection, values)
    at_place = shape._replace(position=_Position.PLACES if position is None else _Position.PLACE)
    points = _points(steps, _over_time(at_place).rows(connection, values))
    return Sliced({name: points[name] for name in ordered(dimension, list(points))}, left_out)


def _points(steps: Iterable[Sequence[Any]], places: Iterable[Sequence[Any]]) -> dict[str, list[SeriesPoint]]:
    """Return the points of each slice, oldest first, of rows of :func:`_over_time`."""
    counts = {(name, start): Counts(*numbers) for name, start, *numbers in steps}
    positions: dict[tuple[str, int], list[tuple[int, int]]] = {}
    last, found = ("", -1), list[tuple[int, int]]()
    for name, start, position, drafted, accepted in places:
        if start != last[1] or name != last[0]:  # sorted, so a row of the next point
            last = name, start
            found = positions[last] = []
        if len(found) < position:  # none was drafted there
            found += [(0, 0)] * (position - len(found))
        found.append((drafted, accepted))
    points: dict[str, list[SeriesPoint]] = {}
    for key in sorted(counts.keys() | positions.keys()):
        at = datetime.fromtimestamp(key[1], UTC)
        point = SeriesPoint(at, counts.get(key) or Counts(), tuple(positions.get(key, ())))
        points.setdefault(key[0], []).append(point)
    return points


def _floor(value: int, width: int) -> int:
    return value // width * width
