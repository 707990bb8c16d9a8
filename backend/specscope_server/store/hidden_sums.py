"""Sums of hidden states: over a window, and over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from specscope.hidden_rollup import Key, Sums
from specscope.rollup import BUCKET_S
from sqlalchemy import BigInteger, ColumnElement, Connection, Row, cast, func, select

from specscope_server.store import schema
from specscope_server.store.model import HiddenPoint
from specscope_server.store.schema_hidden import HIDDEN_COUNTS, HIDDEN_REALS

KEY: Final = ("place", "source", "draft_step", "slot", "after", "mode")
_T = schema.hidden_stat.c
_SUMS = [
    # PostgreSQL sums bigint as numeric.
    *(cast(func.sum(_T[name]), BigInteger).label(name) for name in HIDDEN_COUNTS),
    *((func.max if name == "max_abs" else func.sum)(_T[name]).label(name) for name in HIDDEN_REALS),
]


def window_sums(
    connection: Connection, engine_uid: str, since_s: int, until_s: int | None = None
) -> dict[Key, Sums]:
    """Return sums by place from the bucket of ``since_s`` (unix seconds) on, before ``until_s``.

    A place that was not looked at has no entry.
    """
    wanted = [_T.engine_uid == engine_uid, _T.bucket >= since_s // BUCKET_S * BUCKET_S]
    if until_s is not None:
        wanted.append(_T.bucket < until_s)
    names = [_T[name] for name in KEY]
    found = connection.execute(select(*names, *_SUMS).where(*wanted).group_by(*names))
    return {_key(row): _sums(row) for row in found}


def series(
    connection: Connection, workspace: str, engine_uid: str, since_s: int, until_s: int, bucket_s: int
) -> list[HiddenPoint]:
    """Return sums by place over time, oldest first; times in unix seconds. Gaps stay gaps.

    Raises:
        ValueError: ``bucket_s`` is not a positive multiple of 10.
    """
    if bucket_s <= 0 or bucket_s % BUCKET_S:
        raise ValueError(f"bucket width is {bucket_s} s; it must be a multiple of {BUCKET_S}")
    start: ColumnElement[int] = (_T.bucket - _T.bucket % bucket_s).label("start")
    names = [_T[name] for name in KEY]
    points: dict[int, dict[Key, Sums]] = {}
    for row in connection.execute(
        select(start, *names, *_SUMS)
        .where(_T.engine_uid.in_(_mine(workspace, engine_uid)))
        .where(_T.bucket >= since_s // bucket_s * bucket_s, _T.bucket < until_s)
        .group_by(start, *names)
    ):
        points.setdefault(row.start, {})[_key(row)] = _sums(row)
    return [HiddenPoint(datetime.fromtimestamp(at, UTC), points[at]) for at in sorted(points)]


def stats(
    connection: Connection, workspace: str, engine_uid: str, since_s: int, until_s: int
) -> dict[Key, Sums]:
    """Return sums by place of an engine of a workspace; empty where the workspace has no such engine."""
    if not is_of(connection, workspace, engine_uid):
        return {}
    return window_sums(connection, engine_uid, since_s, until_s)


def is_of(connection: Connection, workspace: str, engine_uid: str) -> bool:
    """Say whether a workspace has this engine."""
    return connection.execute(_mine(workspace, engine_uid)).first() is not None


def _mine(workspace: str, engine_uid: str) -> Any:
    engine = schema.engine.c
    return select(engine.engine_uid).where(engine.workspace == workspace, engine.engine_uid == engine_uid)


def _key(row: Row[Any]) -> Key:
    return row.place, row.source, row.draft_step, row.slot, row.after, row.mode


def _sums(row: Row[Any]) -> Sums:
    return Sums(**{name: getattr(row, name) for name in (*HIDDEN_COUNTS, *HIDDEN_REALS)})
