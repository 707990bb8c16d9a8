"""The minutes of the last two hours of each engine, of which only the newest change."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from threading import Lock
from typing import Final

from specscope.rollup import ALL, CONTEXT, COPY_LIKE, COUNT_FIELDS, STEP, TEMPERATURE, Counts
from sqlalchemy import Connection, bindparam, or_, select

from specscope_server.diagnosis.engine_evidence import Moment
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared
from specscope_server.store.read_rollups import Sums

HISTORY_S: Final = 2 * 3600
"""How far back the minutes of an engine are compared with now."""
MIX: Final = (CONTEXT, TEMPERATURE, COPY_LIKE)
"""Dimensions that tell which traffic it was."""
ANEW_S: Final = 300
"""How long minutes are kept at most before all are read anew."""
MAX_ENGINES: Final = 2048
"""Engines that are kept, those asked for last; two busy hours take about 130 kB."""
_T = schema.rollup_60s.c
_SINCE = _T.engine_uid == bindparam("engine"), _T.bucket >= bindparam("since")
_STEPS: Final = Prepared(
    select(_T.bucket, *(_T[name] for name in COUNT_FIELDS)).where(
        *_SINCE, _T.dimension == ALL, _T.slice == "", _T.position == STEP
    )
)
_PLACES: Final = Prepared(
    select(_T.bucket, _T.position, _T.steps, _T.accepted).where(
        *_SINCE, _T.dimension == ALL, _T.slice == "", _T.position > STEP
    )
)
_TRAFFIC: Final = Prepared(
    select(_T.bucket, _T.dimension, _T.slice, _T.steps).where(
        *_SINCE, or_(*(_T.dimension == name for name in MIX)), _T.position == STEP
    )
)
_Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    read_s: int
    moments: dict[int, tuple[_Numbers, Moment]]
    """By start: the counts that a minute had when it was read, and what was read."""


class Histories:
    """The minutes of the engines of one store. Thread-safe."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = Lock()

    def of(self, connection: Connection, engine_uid: str, now_s: int) -> tuple[Moment, ...]:
        """Return the minutes of the last :data:`HISTORY_S` seconds that have a rollup, oldest first.

        A minute whose steps count the same as before is taken to be the same in all.
        """
        with self._lock:
            kept = self._kept.get(engine_uid)
        known = kept.moments if kept is not None and 0 <= now_s - kept.read_s < ANEW_S else {}
        values = {"engine": engine_uid, "since": now_s - HISTORY_S}
        told = {row[0]: tuple(row[1:]) for row in _STEPS.rows(connection, values)}
        changed = [start for start, numbers in told.items() if known.get(start, ((),))[0] != numbers]
        found = {start: known[start] for start in told.keys() - changed}
        for moment in _read(connection, engine_uid, told, changed):
            found[moment.start] = told[moment.start], moment
        read_s = kept.read_s if kept is not None and known else now_s
        with self._lock:
            self._kept[engine_uid] = _Kept(read_s, found)
            self._kept.move_to_end(engine_uid)
            while len(self._kept) > MAX_ENGINES:
                self._kept.popitem(last=False)
        return tuple(found[start][1] for start in sorted(found))


def _read(
    connection: Connection, engine_uid: str, told: dict[int, _Numbers], starts: Collection[int]
) -> list[Moment]:
    """Return some minutes, of which the counts are known: the rest is read from the first of them on."""
    if not starts:
        return []
    values = {"engine": engine_uid, "since": min(starts)}
    wanted = set(starts)
    places: dict[int, Sums] = defaultdict(Sums)
    for bucket, position, drafted, accepted in _PLACES.rows(connection, values):
        places[bucket].by_position[position] = (drafted, accepted)
    mix: dict[int, dict[str, int]] = defaultdict(dict)
    for bucket, dimension, value, steps in _TRAFFIC.rows(connection, values):
        if bucket in wanted:
            mix[bucket][sys.intern(f"{dimension}={value}")] = steps
    return [Moment(start, Counts(*told[start]), places[start].positions, mix[start]) for start in starts]
