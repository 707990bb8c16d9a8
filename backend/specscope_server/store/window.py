"""Ledger differences within a window: what was crossed since its start, process by process."""

from __future__ import annotations

from collections.abc import Mapping

from specscope.records import Crossing
from specscope.rollup import BUCKET_S
from sqlalchemy import ColumnElement, Connection, ScalarSelect, and_, bindparam, select

from specscope_server.store import schema
from specscope_server.store.facts import StoredEngine
from specscope_server.store.prepared import Prepared

Totals = dict[Crossing, tuple[int | None, int | None]]
_T = schema.boundary_total
_C = schema.boundary_count


def differences(connection: Connection, engine: StoredEngine, start_ns: int) -> Mapping[str, Totals]:
    """Return, by process uid, what each boundary's totals grew by since ``start_ns`` (the engine's clock).

    The base is the value at the end of the last 10 s bucket that ended by then, so a window is up to ten
    seconds longer than asked for. A process that started within the window counts from 0; an older one
    that was first heard within it counts from the first value told.
    """
    last = start_ns // 1_000_000_000 // BUCKET_S * BUCKET_S - BUCKET_S
    found = _GROWN.rows(connection, {"engine": engine.row.engine_uid, "last": last})
    started = {process.uid: process.row.start_ns for process in engine.processes}
    grown: dict[str, Totals] = {process.uid: {} for process in engine.processes}
    for row in found:
        young = started[row.process_uid] >= start_ns
        grown[row.process_uid][row.boundary, row.source, row.mode] = (
            _difference(row.expected, row.expected_before, 0 if young else row.expected_first),
            _difference(row.observed, row.observed_before, 0 if young else row.observed_first),
        )
    return grown


def _at(name: str, when: ColumnElement[bool], *, newest: bool) -> ScalarSelect[int]:
    """Return the value in the newest (or oldest) bucket of those: one index look-up each."""
    key = [_C.c[column.name] == column for column in _T.primary_key.columns]
    order = _C.c.bucket.desc() if newest else _C.c.bucket.asc()
    return select(_C.c[name]).where(and_(*key, when)).order_by(order).limit(1).scalar_subquery()


def _grown() -> Prepared:
    before, first = _C.c.bucket <= bindparam("last"), _C.c.bucket > bindparam("last")
    return Prepared(
        select(
            _T,
            *(_at(name, before, newest=True).label(f"{name}_before") for name in ("expected", "observed")),
            *(_at(name, first, newest=False).label(f"{name}_first") for name in ("expected", "observed")),
        ).where(_T.c.engine_uid == bindparam("engine"))
    )


_GROWN = _grown()


def _difference(now: int | None, before: int | None, otherwise: int | None) -> int | None:
    if now is None:
        return None
    return now - (before if before is not None else otherwise or 0)
