"""What the diagnosis gets to see of one engine in a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specscope import convention
from sqlalchemy import Connection, bindparam, func, select

from specscope_server.diagnosis import hidden_evidence
from specscope_server.diagnosis.engine_evidence import Moment, Referred
from specscope_server.diagnosis.model import Evidence
from specscope_server.store import hidden_sums, schema
from specscope_server.store import rows as names
from specscope_server.store.engine_events import engine_events
from specscope_server.store.expectations import expected_of
from specscope_server.store.extends import extends
from specscope_server.store.facts import StoredEngine, load
from specscope_server.store.fed_rows import fed_rows
from specscope_server.store.histories import HISTORY_S
from specscope_server.store.place_evidence import place_evidence
from specscope_server.store.prepared import Prepared
from specscope_server.store.ranks import rank_evidence
from specscope_server.store.read_rollups import window_sums
from specscope_server.store.reconcile import reconciliation
from specscope_server.store.references import uids
from specscope_server.store.slice_evidence import slices
from specscope_server.store.states import states
from specscope_server.store.step_evidence import step_evidence
from specscope_server.store.times import pass_times
from specscope_server.store.window import differences

HEARTBEAT_S = 1.0
"""Seconds between heartbeats of a tracer that is well."""
MAX_EXAMPLES = 5
_MAX_CANDIDATES = 500
_LOOKBACK_NS = 3600 * 1_000_000_000
"""A request may have arrived this long before the window and still be an example of it."""
_SECOND_NS = 1_000_000_000
_R = schema.request.c
_ARRIVED = Prepared(
    select(_R.kind, func.count())
    .where(_R.engine_uid == bindparam("engine"), _R.arrival_ns >= bindparam("start"))
    .group_by(_R.kind)
)
_CANDIDATES = Prepared(
    select(_R.uid, _R.accepted, _R.drafted_depth)
    .where(
        _R.engine_uid == bindparam("engine"),
        _R.arrival_ns >= bindparam("arrived"),
        _R.last_received_ns >= bindparam("received"),
        _R.kind == convention.KIND_USER,
        _R.verify_steps > 0,
    )
    .order_by(_R.arrival_ns.desc(), _R.uid.desc())
    .limit(_MAX_CANDIDATES)
)


def evidence(
    connection: Connection,
    workspace: str,
    engine_uid: str,
    now_ns: int,
    window_ns: int,
    referred: Callable[[int], Referred],
    past: Callable[[int], tuple[Moment, ...]],
) -> Evidence | None:
    """Return the evidence of the window that ends at ``now_ns``; ``None``: the workspace has none of that id.

    ``referred`` tells what a reference says of the requests that arrived from a time (ns) on, ``past`` the
    minutes of the last hours as of a time (unix seconds). Event times are the engine's; where its clock is
    known to be far off, the window moves with it.
    """
    engine = next(iter(load(connection, workspace=workspace, uids=[engine_uid])), None)
    if engine is None:
        return None
    start_ns = now_ns - window_ns - engine.clock_shift_ns
    sums = window_sums(connection, [engine_uid], start_ns // 1_000_000_000).get(engine_uid)
    grown = differences(connection, engine, start_ns)
    armed = {process.uid: process.armed for process in engine.processes}
    arrived = _arrived(connection, engine_uid, start_ns)
    expected = expected_of(connection, engine)
    compared = referred(start_ns)
    beside = place_evidence(connection, engine_uid, start_ns)
    return Evidence(
        engine_uid=engine_uid,
        name=engine.name,
        now=now_ns / 1e9,
        window_s=window_ns / 1e9,
        last_received=engine.row.last_received_ns / 1e9,
        detail=engine.detail,
        references=len(uids(connection, workspace)),
        ended=None if (ended := engine.ended_ns) is None else ended / 1e9,
        heartbeat_s=HEARTBEAT_S,
        speculation=engine.speculation,
        config=engine.config,
        window=states({uid: (totals, armed[uid]) for uid, totals in grown.items()}),
        since_start=states({p.uid: (p.totals, armed[p.uid]) for p in engine.processes}),
        counts=None if sums is None else sums.counts,
        positions=() if sums is None else sums.positions,
        requests=_at_least(engine.requests, arrived),
        window_requests=arrived,
        extends=extends(connection, engine_uid, start_ns),
        places=beside.places,
        hand_overs=compared.hand_overs or beside.hand_overs,
        fed_rows=fed_rows(connection, engine_uid, start_ns, (beside.places, compared.reference)),
        reference=compared.reference,
        draft_states=compared.draft_states,
        reference_weights=compared.weights,
        dropped=engine.summed(names.DROPPED),
        hook_errors=engine.summed(names.HOOK_ERRORS),
        example_requests=_examples(connection, engine, start_ns, now_ns - window_ns),
        ranks=rank_evidence(connection, engine),
        hidden=hidden_evidence.of(hidden_sums.window_sums(connection, engine_uid, start_ns // 1_000_000_000)),
        steps=step_evidence(connection, engine_uid, start_ns),
        slices=slices(connection, engine_uid, start_ns // _SECOND_NS, window_ns / _SECOND_NS),
        history=past((now_ns - engine.clock_shift_ns) // _SECOND_NS),
        events=engine_events(connection, engine_uid, now_ns - engine.clock_shift_ns - HISTORY_S * _SECOND_NS),
        expectation=next((one for one in expected if not one.workload), None),
        times=pass_times(connection, engine),
        workload_expectations=tuple(one for one in expected if one.workload),
        reconciliation=reconciliation(
            connection, engine, now_ns, start_ns - _LOOKBACK_NS, now_ns - window_ns
        ),
    )


def _arrived(connection: Connection, engine_uid: str, start_ns: int) -> dict[str, int]:
    """Return how many requests arrived in the window, by kind."""
    found = _ARRIVED.rows(connection, {"engine": engine_uid, "start": start_ns})
    return {row[0]: row[1] for row in found}


def _at_least(counted: Mapping[str, int], arrived: Mapping[str, int]) -> dict[str, int]:
    """Return requests since start by kind: those of the window are among them.

    The counters come with the heartbeat, the requests themselves before or after it.
    """
    kinds = sorted(counted.keys() | arrived.keys())
    return {kind: max(counted.get(kind, 0), arrived.get(kind, 0)) for kind in kinds}


def _examples(
    connection: Connection, engine: StoredEngine, start_ns: int, received_ns: int
) -> tuple[str, ...]:
    """Return user requests with verify steps that were told of in the window, worst acceptance first.

    Chosen among the newest arrivals, so that a busy engine costs no more than a quiet one.
    """
    found = _CANDIDATES.rows(
        connection,
        {
            "engine": engine.row.engine_uid,
            "arrived": start_ns - _LOOKBACK_NS,
            "received": received_ns,
        },
    )
    # Drafted nothing is undefined, not bad: such requests come last.
    worst = sorted(found, key=lambda r: r.accepted / r.drafted_depth if r.drafted_depth else 2.0)
    return tuple(row.uid for row in worst[:MAX_EXAMPLES])
