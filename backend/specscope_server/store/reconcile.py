"""Our totals of requests against the engine's own counters of them.

Compared is only what was seen whole. A record that the tracer lost can only make our totals smaller, so
after a loss a difference in that direction says nothing; one in the other still does.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from specscope import convention
from sqlalchemy import Connection, Row, bindparam, case, func, or_, select, text

from specscope_server.diagnosis.model import Difference, Reconciliation
from specscope_server.store import rows as names
from specscope_server.store import schema
from specscope_server.store.facts import StoredEngine, StoredProcess
from specscope_server.store.prepared import Prepared
from specscope_server.store.states import UNTOLD
from specscope_server.store.told import EngineCounts

SAMPLE: Final = 1000
"""Newest requests of the window that are counted as compared or not; differing ones are looked up apart."""
MAX_DIFFERENCES: Final = 200
"""Differing requests that are looked at: enough to show that there are many."""
SETTLED_NS: Final = 5 * 1_000_000_000
"""A request is judged when this long has passed since it was told of: what its tracer lost on the way is told
with a heartbeat, at least every two seconds."""
LOSSES: Final = ("queue_full", "not_plain", "record_error")
"""Reasons of dropped records by which steps may be missing in totals that look whole."""
UNSEEN: Final = "not every step was seen, or the engine told no counters of its own"

_T = schema.request.c
_ENDED = (convention.STATE_FINISHED, convention.STATE_ABORTED)


def reconciliation(
    connection: Connection, engine: StoredEngine, now_ns: int, arrived_ns: int, received_ns: int
) -> Reconciliation:
    """Compare requests that arrived since ``arrived_ns`` and were told of since ``received_ns``."""
    values = {
        "engine": engine.row.engine_uid,
        "arrived": arrived_ns,
        "received": received_ns,
        "settled": now_ns - SETTLED_NS,
    }
    return _concluded(engine, _COUNTED.rows(connection, values), _DIFFERING.rows(connection, values))


def _counted() -> Prepared:
    newest = (
        select(_T.process_uid, _T.engine_verify_steps)
        .where(*_TOLD)
        .order_by(_T.arrival_ns.desc(), _T.uid.desc())
        .limit(SAMPLE)
        .subquery()
    )
    whole = func.sum(case((newest.c.engine_verify_steps.is_not(None), 1), else_=0))
    counted = select(newest.c.process_uid, func.count().label("ended"), whole.label("whole"))
    return Prepared(counted.group_by(newest.c.process_uid))


_TOLD = (
    _T.engine_uid == bindparam("engine"),
    _T.arrival_ns >= bindparam("arrived"),
    _T.last_received_ns >= bindparam("received"),
    _T.last_received_ns <= bindparam("settled"),
    or_(*(_T.state == state for state in _ENDED)),
)
_COUNTED: Final = _counted()
_DIFFERING: Final = Prepared(
    select(
        *(_T.uid, _T.rid, _T.process_uid, _T.verify_steps, _T.accepted),
        *(_T.engine_verify_steps, _T.engine_accepted),
    )
    .where(*_TOLD, text(f"({schema.DIFFERING})"))
    .order_by(_T.arrival_ns.desc(), _T.uid.desc())
    .limit(MAX_DIFFERENCES)
)


def _concluded(engine: StoredEngine, counted: Any, differing: Any) -> Reconciliation:
    blind = {process.uid: _unarmed(process) for process in engine.processes}
    lossy = {process.uid: _losses(process) for process in engine.processes}
    compared = 0
    left_out: Counter[str] = Counter()
    for row in counted:
        reason = blind.get(row.process_uid, "")
        compared += 0 if reason else row.whole
        left_out[UNSEEN] += row.ended - row.whole
        if reason:
            left_out[reason] += row.whole
    found: list[Difference] = []
    for row in differing:
        if blind.get(row.process_uid):
            continue
        reason = lossy.get(row.process_uid, "")
        if reason and not _ours_is_larger(row):
            compared -= 1
            left_out[reason] += 1
        else:
            found.append(_difference(row))
    return Reconciliation(max(compared, len(found)), tuple(found), {k: n for k, n in left_out.items() if n})


def _unarmed(process: StoredProcess) -> str:
    """Say why our totals of this process mean nothing, empty where they do."""
    found = process.armed.get(convention.ENGINE_COMMIT, UNTOLD)
    return "" if found.armed else f"{convention.ENGINE_COMMIT} cannot be seen: {found.reason}"


def _losses(process: StoredProcess) -> str:
    """Say what the tracer of this process lost since its start, empty where nothing."""
    dropped = sum(process.counters[names.DROPPED].get(reason, 0) for reason in LOSSES)
    errors = sum(process.counters[names.HOOK_ERRORS].values())
    said = [f"dropped {dropped} records"] if dropped else []
    said += [f"failed {errors} times in its hooks"] if errors else []
    return f"fewer steps seen by a tracer that {' and '.join(said)} since its start" if said else ""


def _ours_is_larger(row: Row[Any]) -> bool:
    return row.verify_steps > row.engine_verify_steps or row.accepted > row.engine_accepted


def _difference(row: Row[Any]) -> Difference:
    return Difference(
        uid=row.uid,
        rid=row.rid,
        verify_steps=row.verify_steps,
        accepted=row.accepted,
        engine=EngineCounts(row.engine_verify_steps, row.engine_accepted),
    )
