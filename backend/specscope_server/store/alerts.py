"""States of alert rules, their history, and the notifications that each change causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, case, func, insert, or_, select, update

from specscope_server.store import schema
from specscope_server.store.facts import engine_names
from specscope_server.store.findings import lock_engines
from specscope_server.store.merges import TOLD, Merge
from specscope_server.store.model import AlertEvent, AlertRow, DeliveryRow
from specscope_server.store.port import NewDelivery
from specscope_server.store.upsert import Upsert
from specscope_server.store.values import clean, from_ns, key, optional_from_ns, to_ns

FIRING, NO_DATA = "firing", "no data"
_STATES = (FIRING, NO_DATA, "ok")
_KEPT: dict[str, Merge] = dict.fromkeys(
    (
        *("title", "state", "reason", "since_ns", "evaluated_ns", "severity", "pending", "pending_since_ns"),
        *("told", "told_ns", "quiet", "memo"),
    ),
    TOLD,
)
_STATE = Upsert(schema.alert_state, _KEPT)
"""Of a state that lasts: who acknowledged it is written by others meanwhile, and stays."""
_CHANGED = Upsert(schema.alert_state, _KEPT | dict.fromkeys(("ack_ns", "ack_by", "ack_note"), TOLD))
_NOBODY: dict[str, Any] = {"ack_ns": None, "ack_by": "", "ack_note": ""}
_AT_ONCE = 500
"""Engines of one query."""
REMINDED_NS = 30_000_000_000
"""Two reminders of one state that are closer than this come from two servers."""
LONGEST_WAIT_NS = 3_600_000_000_000
"""No attempt is put off for so long."""
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"
REASON_CHARS = 2048


def set_states(
    connection: Connection,
    alerts: Sequence[AlertRow],
    queued: Sequence[NewDelivery],
    now_ns: int,
    evidence: Mapping[tuple[str, str], Mapping[str, Any]],
) -> None:
    """Store rule states, add an event for each that changed, and queue notifications due at once.

    A rule that is first heard of has changed only when it fires. While a state lasts, its ``since`` and who
    acknowledged it stay. Where a state given here was stored before and as many were told of it, its
    notification was queued then, maybe by another server that had not yet been told that it evaluates no
    longer: it is not queued again. ``evidence`` by (engine uid, rule) is kept with the event.

    Raises:
        Refused: there is no such engine.
    """
    uids = sorted({a.engine_uid for a in alerts} | {d.engine_uid for d in queued})
    lock_engines(connection, uids)
    before = _before(connection, sorted({a.engine_uid for a in alerts}))
    same_rows: list[dict[str, Any]] = []
    changed_rows: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    settled: set[tuple[str, str, str]] = set()
    for alert in alerts:
        rule = key(alert.rule)
        stored = before.get((alert.engine_uid, rule))
        same = stored is not None and stored.state == alert.state
        if stored is not None and same and _as_told(stored, alert):
            settled.add((alert.engine_uid, rule, alert.state))
        values = _values(alert) | {
            "since_ns": stored.since_ns if stored is not None and same else to_ns(alert.since)
        }
        (same_rows if same else changed_rows).append(values | _NOBODY)
        if not same and (stored is not None or alert.state == FIRING):
            told = evidence.get((alert.engine_uid, alert.rule), {})
            names = ("engine_uid", "rule", "title", "state", "reason", "since_ns", "evaluated_ns", "severity")
            events.append({name: values[name] for name in names} | {"evidence": told})
    _STATE.run(connection, same_rows)
    _CHANGED.run(connection, changed_rows)
    if events:
        connection.execute(insert(schema.alert_event), events)
    queue(
        connection,
        [new for new in queued if (new.engine_uid, key(new.rule), new.state) not in settled],
        now_ns,
    )


def _before(connection: Connection, uids: Sequence[str]) -> dict[tuple[str, str], Row[Any]]:
    table = schema.alert_state.c
    found: dict[tuple[str, str], Row[Any]] = {}
    for first in range(0, len(uids), _AT_ONCE):
        some = uids[first : first + _AT_ONCE]
        query = select(
            table.engine_uid, table.rule, table.state, table.since_ns, table.told, table.told_ns
        ).where(table.engine_uid.in_(some))
        found |= {(row.engine_uid, row.rule): row for row in connection.execute(query)}
    return found


def _as_told(stored: Row[Any], alert: AlertRow) -> bool:
    """Say whether others were told as much of this state already."""
    if stored.told != alert.told:
        return False
    if stored.told_ns is None or alert.told_at is None:
        return True
    return abs(to_ns(alert.told_at) - stored.told_ns) < REMINDED_NS


def _values(alert: AlertRow) -> dict[str, Any]:
    return {
        "engine_uid": alert.engine_uid,
        "rule": key(alert.rule),
        "title": clean(alert.title),
        "state": clean(alert.state),
        "reason": clean(alert.reason, REASON_CHARS),
        "evaluated_ns": to_ns(alert.evaluated),
        "severity": clean(alert.severity),
        "pending": clean(alert.pending),
        "pending_since_ns": None if alert.pending_since is None else to_ns(alert.pending_since),
        "told": clean(alert.told),
        "told_ns": None if alert.told_at is None else to_ns(alert.told_at),
        "quiet": clean(alert.quiet),
        "memo": alert.memo,
    }


def queue(connection: Connection, new: Sequence[NewDelivery], now_ns: int) -> None:
    """Queue notifications that are due at once."""
    if new:
        connection.execute(
            insert(schema.delivery),
            [
                {
                    "engine_uid": one.engine_uid,
                    "rule": key(one.rule),
                    "state": clean(one.state),
                    "target": clean(one.target, 4096),
                    "status": PENDING,
                    "attempts": 0,
                    "next_attempt_ns": now_ns,
                    "error": "",
                    "created_ns": now_ns,
                    "payload": one.payload,
                }
                for one in new
            ],
        )


def alerted(connection: Connection, workspace: str) -> list[str]:
    """Return the uids of engines on which any rule is in another state than no data."""
    engine, state = schema.engine.c, schema.alert_state.c
    mine = select(engine.engine_uid).where(engine.workspace == workspace)
    found = select(state.engine_uid).where(state.engine_uid.in_(mine), state.state != NO_DATA).distinct()
    return sorted(connection.execute(found).scalars())


def states(
    connection: Connection, workspace: str, engine_uids: Sequence[str] | None = None
) -> list[AlertRow]:
    """Return the state of every rule on every engine (or on some), firing first, then newest change."""
    table = schema.alert_state
    rank = case({word: index for index, word in enumerate(_STATES)}, value=table.c.state, else_=9)
    order = (rank, table.c.since_ns.desc(), table.c.rule, table.c.engine_uid)
    mine = () if engine_uids is None else (table.c.engine_uid.in_(sorted(engine_uids)),)
    found = _of_workspace(connection, table, workspace, order, None, *mine)
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
            severity=row.severity,
            pending=row.pending,
            pending_since=optional_from_ns(row.pending_since_ns),
            told=row.told,
            told_at=optional_from_ns(row.told_ns),
            quiet=row.quiet,
            acknowledged=optional_from_ns(row.ack_ns),
            acknowledged_by=row.ack_by,
            note=row.ack_note,
            memo=row.memo,
        )
        for row in found
    ]


def history(connection: Connection, workspace: str, limit: int) -> list[AlertEvent]:
    """Return state changes, newest first."""
    table = schema.alert_event
    return _events(connection, _of_workspace(connection, table, workspace, (table.c.id.desc(),), limit))


def event(connection: Connection, workspace: str, event_id: int) -> AlertEvent | None:
    """Return one state change, ``None`` when the workspace has none of that id."""
    table = schema.alert_event
    found = _of_workspace(connection, table, workspace, (table.c.id,), 1, table.c.id == event_id)
    return next(iter(_events(connection, found)), None)


def _events(connection: Connection, found: Sequence[Row[Any]]) -> list[AlertEvent]:
    names = engine_names(connection, {row.engine_uid for row in found}) if found else {}
    return [
        AlertEvent(
            id=row.id,
            rule=row.rule,
            title=row.title,
            engine_uid=row.engine_uid,
            engine=names[row.engine_uid],
            state=row.state,
            reason=row.reason,
            since=from_ns(row.since_ns),
            severity=row.severity,
            evidence=row.evidence,
        )
        for row in found
    ]


def _of_workspace(
    connection: Connection,
    table: Table,
    workspace: str,
    order: Iterable[Any],
    limit: int | None,
    *where: ColumnElement[bool],
) -> Sequence[Row[Any]]:
    engine = schema.engine
    return connection.execute(
        select(table)
        .join(engine, engine.c.engine_uid == table.c.engine_uid)
        .where(engine.c.workspace == workspace, *where)
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
    """Return pending notifications that may be sent now, oldest first, at most ``limit`` an address.

    Of each address, rule and engine that is the first one pending, once its attempt is due: what comes after
    waits for it. The limit is one an address, so that many that wait for one keep nothing from another.
    """
    table = schema.delivery
    first = (
        select(func.min(table.c.id))
        .where(table.c.status == PENDING)
        .group_by(table.c.target, table.c.rule, table.c.engine_uid)
    )
    place = func.row_number().over(
        partition_by=table.c.target, order_by=(table.c.next_attempt_ns, table.c.id)
    )
    ready = (
        select(table.c.id.label("id"), place.label("place"))
        .where(
            table.c.id.in_(first),
            or_(
                table.c.next_attempt_ns <= now_ns,
                # Neither waits for a clock that was ahead and was set right.
                table.c.attempts == 0,
                table.c.next_attempt_ns > now_ns + LONGEST_WAIT_NS,
            ),
        )
        .subquery()
    )
    return [
        _delivery(row)
        for row in connection.execute(
            select(table)
            .join(ready, ready.c.id == table.c.id)
            .where(ready.c.place <= limit)
            .order_by(table.c.next_attempt_ns, table.c.id)
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


def send_again(connection: Connection, workspace: str, delivery_id: int, now_ns: int) -> bool:
    """Queue a notification that was given up again, from its first attempt; say whether there was one."""
    table = schema.delivery
    mine = select(schema.engine.c.engine_uid).where(schema.engine.c.workspace == workspace)
    done = connection.execute(
        update(table)
        .where(table.c.id == delivery_id, table.c.status == FAILED, table.c.engine_uid.in_(mine))
        .values(status=PENDING, attempts=0, next_attempt_ns=now_ns)
    )
    return done.rowcount > 0


def acknowledge(
    connection: Connection, workspace: str, engine_uid: str, rule: str, by: str, note: str, at_ns: int
) -> bool:
    """Note who took on a rule that fires; say whether it does."""
    table = schema.alert_state
    mine = select(schema.engine.c.engine_uid).where(schema.engine.c.workspace == workspace)
    done = connection.execute(
        update(table)
        .where(
            table.c.engine_uid == engine_uid,
            table.c.engine_uid.in_(mine),
            table.c.rule == rule,
            table.c.state == FIRING,
        )
        .values(ack_ns=at_ns, ack_by=clean(by), ack_note=clean(note))
    )
    return done.rowcount > 0


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
