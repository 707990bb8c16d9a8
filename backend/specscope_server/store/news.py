"""Which engines told something new, by a dozen queries over all engines at once.

Every fact of an engine that :mod:`specscope_server.store.evidence` reads shows in a sum, a count or a newest
key that takes a database microseconds. Two equal marks: nothing was told between them but that the tracer
is alive, and the evidence differs by the passing of time alone.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any, Final

from specscope.rollup import ALL, STEP
from sqlalchemy import BigInteger, ColumnElement, Connection, Table, bindparam, cast, func, select

from specscope_server.store import rows as names
from specscope_server.store import schema
from specscope_server.store.model import Heard
from specscope_server.store.prepared import Prepared
from specscope_server.store.values import from_ns

_SECOND_NS: Final = 1_000_000_000
_ENGINE: Final = schema.engine.c
_HEARD: Final = select(_ENGINE.engine_uid).where(_ENGINE.last_received_ns >= bindparam("heard"))
_ENGINES: Final = Prepared(
    select(_ENGINE.workspace, _ENGINE.engine_uid, _ENGINE.last_received_ns)
    .where(_ENGINE.last_received_ns >= bindparam("heard"))
    .order_by(_ENGINE.workspace, _ENGINE.engine_uid)
)


def heard(connection: Connection, heard_ns: int, since_ns: int) -> list[Heard]:
    """Return the engines heard (by time of receipt) from ``heard_ns`` on, by workspace and uid.

    Their marks count requests, chunks and rollups from ``since_ns`` (the engine's clock) on: only marks with
    the same ``since_ns`` can be compared.
    """
    values = {"heard": heard_ns, "since": since_ns, "bucket": since_ns // _SECOND_NS}
    told: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for place, query in enumerate(_queries()):
        for row in query.rows(connection, values):
            told[row[0]].append((place, *row[1:]))
    of_workspace: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for place, query in enumerate(_of_workspaces()):
        for row in query.rows(connection, values):
            of_workspace[row[0]].append((place, *row[1:]))
    return [
        Heard(
            workspace,
            uid,
            from_ns(received_ns),
            hash((tuple(told[uid]), tuple(of_workspace[workspace]))),
        )
        for workspace, uid, received_ns in _ENGINES.rows(connection, values)
    ]


@lru_cache(1)
def _queries() -> tuple[Prepared, ...]:
    """Return queries of an engine's uid and what marks it, each in one order."""
    process, applied = schema.process.c, schema.rollup_applied.c
    counter, gauge = schema.process_counter.c, schema.process_gauge.c
    total, event = schema.boundary_total.c, schema.engine_event.c
    request, chunk, rank = schema.request.c, schema.step_chunk.c, schema.rank_steps.c
    rollup = schema.rollup_10s.c
    newest_increment = (
        select(func.max(applied.seq))
        .where(applied.engine_uid == process.engine_uid, applied.process_uid == process.process_uid)
        .scalar_subquery()
    )
    return (
        _each(
            schema.process,
            *(process.process_uid, process.service_name, process.detail, newest_increment),
        ),
        # Since its start an engine only counts up.
        _summed(schema.process_counter, _whole(counter.value), where=(counter.name != names.ENGINE_THREAD,)),
        # An engine that ended may be heard again, which makes its end that of one process alone.
        _ended(),
        _each(
            schema.process_gauge,
            *(gauge.process_uid, gauge.name, gauge.label, gauge.value, gauge.reason),
            where=(gauge.name != names.QUEUED,),
        ),
        _summed(schema.boundary_total, _whole(total.expected), _whole(total.observed)),
        _summed(schema.engine_event, func.max(event.event_ns)),
        _summed(
            schema.rollup_10s,
            _whole(rollup.steps),
            where=(rollup.dimension == ALL, rollup.bucket >= bindparam("bucket"), rollup.position == STEP),
        ),
        _summed(schema.step_chunk, func.max(chunk.end_ns), where=(chunk.end_ns >= bindparam("since"),)),
        _summed(
            schema.request,
            func.max(request.last_received_ns),
            where=(request.arrival_ns >= bindparam("since"),),
        ),
        _summed(schema.rank_steps, _whole(rank.first_step)),
    )


@lru_cache(1)
def _of_workspaces() -> tuple[Prepared, ...]:
    """Return queries of a workspace and what marks what people said of its engines."""
    expected, reference = schema.expectation.c, schema.reference.c
    return tuple(
        Prepared(select(workspace, func.count(), *more).group_by(workspace))
        for workspace, more in (
            (expected.workspace, (func.max(expected.said_ns), func.sum(expected.floor))),
            (reference.workspace, (func.max(reference.created_ns), func.max(reference.reference_uid))),
        )
    )


def _whole(column: ColumnElement[Any]) -> ColumnElement[int]:
    # PostgreSQL sums bigint as numeric.
    return cast(func.sum(column), BigInteger)


def _summed(
    table: Table, *columns: ColumnElement[Any], where: tuple[ColumnElement[bool], ...] = ()
) -> Prepared:
    uid = table.c.engine_uid
    return Prepared(select(uid, func.count(), *columns).where(uid.in_(_HEARD), *where).group_by(uid))


def _each(
    table: Table,
    *columns: ColumnElement[Any],
    where: tuple[ColumnElement[bool], ...] = (),
) -> Prepared:
    uid = table.c.engine_uid
    return Prepared(select(uid, *columns).where(uid.in_(_HEARD), *where).order_by(uid, *columns))


def _ended() -> Prepared:
    counter = schema.process_counter.c
    return Prepared(
        select(counter.engine_uid, func.max(_ENGINE.last_received_ns))
        .join(schema.engine, _ENGINE.engine_uid == counter.engine_uid)
        .where(counter.name == names.ENDED, counter.engine_uid.in_(_HEARD))
        .group_by(counter.engine_uid)
    )
