"""Engines as the port shows them."""

from __future__ import annotations

from sqlalchemy import Connection, select

from specscope_server.store import schema
from specscope_server.store.facts import StoredEngine, load
from specscope_server.store.model import EngineEvent, EngineRow
from specscope_server.store.read_rollups import Sums, window_sums
from specscope_server.store.states import states
from specscope_server.store.values import from_ns, optional_from_ns

MAX_EVENTS = 100
"""Events of an engine that are read: an engine may be given new weights every minute."""


def engines(
    connection: Connection, workspace: str, since_ns: int, engine_uid: str | None = None
) -> list[EngineRow]:
    """Return the engines of a workspace (or the one asked for), newest start first."""
    found = load(connection, workspace=workspace, uids=None if engine_uid is None else [engine_uid])
    sums = window_sums(connection, [e.row.engine_uid for e in found], since_ns // 1_000_000_000)
    events = () if engine_uid is None else _events(connection, engine_uid)
    return [_public(engine, sums.get(engine.row.engine_uid), events) for engine in found]


def _events(connection: Connection, engine_uid: str) -> tuple[EngineEvent, ...]:
    table = schema.engine_event.c
    found = connection.execute(
        select(table.event_ns, table.event, table.process_uid, table.weight_version, table.detail)
        .where(table.engine_uid == engine_uid)
        .order_by(table.event_ns.desc(), table.process_uid, table.event)
        .limit(MAX_EVENTS)
    )
    return tuple(
        EngineEvent(from_ns(row.event_ns), row.event, row.process_uid, row.weight_version, row.detail)
        for row in found
    )


def _public(engine: StoredEngine, sums: Sums | None, events: tuple[EngineEvent, ...]) -> EngineRow:
    row = engine.row
    return EngineRow(
        engine_uid=row.engine_uid,
        workspace=row.workspace,
        environment=row.environment,
        instance=row.instance,
        name=engine.name,
        model=engine.model,
        engine_name=engine.text("engine_name"),
        engine_version=engine.text("engine_version"),
        speculation=engine.speculation,
        config=engine.config,
        started=from_ns(row.started_ns),
        last_received=from_ns(row.last_received_ns),
        last_request=optional_from_ns(row.last_request_ns),
        counts=None if sums is None else sums.counts,
        positions=() if sums is None else sums.positions,
        ledger=states({p.uid: (p.totals, p.armed) for p in engine.processes}),
        requests=engine.requests,
        processes=tuple(p.public() for p in engine.processes),
        events=events,
    )


def models(connection: Connection, workspace: str) -> list[str]:
    """Return the model names seen in a workspace, sorted."""
    table = schema.model
    return list(
        connection.execute(
            select(table.c.name).where(table.c.workspace == workspace).order_by(table.c.name)
        ).scalars()
    )


def heard_since(connection: Connection, since_ns: int) -> list[tuple[str, str]]:
    """Return (workspace, engine uid) of engines heard from since a time of receipt."""
    table = schema.engine
    return [
        (row.workspace, row.engine_uid)
        for row in connection.execute(
            select(table.c.workspace, table.c.engine_uid)
            .where(table.c.last_received_ns >= since_ns)
            .order_by(table.c.workspace, table.c.engine_uid)
        )
    ]
