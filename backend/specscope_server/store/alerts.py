"""States of alert rules, their history, and the notifications that each change causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, case, insert, select, update

from specscope_server.store import schema
from specscope_server.store.facts import engine_names
from specscope_server.store.findings import lock_engine
from specscope_server.store.merges import TOLD, Merge
from specscope_server.store.model import AlertRow, DeliveryRow
from specscope_server.store.port import NewDelivery
from specscope_server.store.upsert import Upsert
from specscope_server.store.values import clean, from_ns, key, optional_from_ns, to_ns

FIRING = "firing"
_STATES = (FIRING, "no data", "ok")
_TOLD: dict[str, Merge] = dict.fromkeys(("title", "state", "reason", "since_ns", "evaluated_ns"), TOLD)
_STATE = Upsert(schema.alert_state, _TOLD)
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"


def set_states(
    connection: Connection, alerts: Sequence[AlertRow], queued: Sequence[NewDelivery], now_ns: int
) -> None:
    """Store rule states, add an event for each that changed, and queue notifications due at once.

    A rule that is first heard of has changed only when it fires. While a state lasts, its ``since`` stays.
    Where a state given here was stored before, its notification was queued then, maybe by another server
    that had not yet been told that it evaluates no longer: it is not queued again.

    Raises:
        Refused: there is no such engine.
    """
    table = schema.alert_state.c
    for engine_uid in sorted({a.engine_uid for a in alerts} | {d.engine_uid for d in queued}):
        lock_engine(connection, engine_uid)
    stored_before: set[tuple[str, str, str]] = set()
    for alert in alerts:
        rule = key(alert.rule)
        before = connection.execute(
            select(table.state, table.since_ns).where(
                table.engine_uid == alert.engine_uid, table.rule == rule
            )
        ).first()
        same = before is not None and before.state == alert.state
        if same:
            stored_before.add((alert.engine_uid, rule, alert.state))
        values = {
            "engine_uid": alert.engine_uid,
            "rule": rule,
            "title": clean(alert.title),
            "state": clean(alert.state),
            "reason": clean(alert.reason),
            "since_ns": before.since_ns if before is not None and same else to_ns(alert.since),
            "evaluated_ns": to_ns(alert.evaluated),
        }
        _STATE.run(connection, [values])
        if not same and (before is not None or alert.state == FIRING):
            connection.execute(insert(schema.alert_event).values(values))
    due_now = [new for new in queued if (new.engine_uid, key(new.rule), new.state) not in stored_before]
    if due_now:
        connection.execute(
            insert(schema.delivery),
            [
                {
                    "engine_uid": new.engine_uid,
                    "rule": key(new.rule),
                    "state": clean(new.state),
                    "target": clean(new.target, 4096),
                    "status": PENDING,
                    "attempts": 0,
                    "next_attempt_ns": now_ns,
                    "error": "",
                    "created_ns": now_ns,
                    "payload": new.payload,
                }
                for new in due_now
            ],
        )


def states(connection: Connection, workspace: str) -> list[AlertRow]:
    """Return the state of every rule on every engine, firing first, then newest change."""
    table = schema.alert_state
    rank = case({word: index for index, word in enumerate(_STATES)}, value=table.c.state, else_=9)
    return _alerts(
        connection, table, workspace, (rank, table.c.since_ns.desc(), table.c.rule, table.c.engine_uid), None
    )


def history(connection: Connection, workspace: str, limit: int) -> list[AlertRow]:
    """Return state changes, newest first."""
    table = schema.alert_event
    return _alerts(connection, table, workspace, (table.c.id.desc(),), limit)


def _alerts(
    connection: Connection, table: Table, workspace: str, order: Iterable[Any], limit: int | None
) -> list[AlertRow]:
    found = _of_workspace(connection, table, workspace, order, limit)
    names = engine_names(connection, {row.engine_uid for row in found}) if found else {}
    return [
        AlertRow(
            rule=row.rule,
            title=row.title,
            engine_uid=row.engine_uid,
            engine=names[row.engine_uid],
            state=row.state,
            reason=row.reason,
            since=from_ns(row.since_ns),
            evaluated=from_ns(row.evaluated_ns),
        )
        for row in found
    ]


def _of_workspace(
    connection: Connection, table: Table, workspace: str, order: Iterable[Any], limit: int | None
) -> Sequence[Row[Any]]:
    engine = schema.engine
    return connection.execute(
        select(table)
        .join(engine, engine.c.engine_uid == table.c.engine_uid)
        .where(engine.c.workspace == workspace)
        .order_by(*order)
        .limit(limit)
    ).all()


def deliveries(connection: Connection, workspace: str, limit: int) -> list[DeliveryRow]:
    """Return notifications, newest first."""
    table = schema.delivery
    return [
        _delivery(row) for row in _of_workspace(connection, table, workspace, (table.c.id.desc(),), limit)
    ]


def due(connection: Connection, now_ns: int, limit: int) -> list[DeliveryRow]:
    """Return pending notifications whose next attempt is due, oldest first."""
    table = schema.delivery
    return [
        _delivery(row)
        for row in connection.execute(
            select(table)
            .where(table.c.status == PENDING, table.c.next_attempt_ns <= now_ns)
            .order_by(table.c.next_attempt_ns, table.c.id)
            .limit(limit)
        )
    ]


def settle(connection: Connection, delivery_id: int, error: str, next_attempt_ns: int | None) -> None:
    """Record an attempt: delivered, to be tried again, or given up. One that is settled stays so."""
    table = schema.delivery
    status = DELIVERED if not error else FAILED if next_attempt_ns is None else PENDING
    connection.execute(
        update(table)
        .where(table.c.id == delivery_id, table.c.status == PENDING)
        .values(
            status=status,
            attempts=table.c.attempts + 1,
            error=clean(error),
            next_attempt_ns=next_attempt_ns if status == PENDING else None,
        )
    )


def _delivery(row: Row[Any]) -> DeliveryRow:
    return DeliveryRow(
        id=row.id,
        rule=row.rule,
        engine_uid=row.engine_uid,
        state=row.state,
        target=row.target,
        status=row.status,
        attempts=row.attempts,
        next_attempt=optional_from_ns(row.next_attempt_ns),
        error=row.error,
        created=from_ns(row.created_ns),
        payload=row.payload,
    )
