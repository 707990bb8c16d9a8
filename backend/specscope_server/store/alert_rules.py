"""What people set about alerts: rules, silences; and the engines as rules choose them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, case, delete, func, insert, select, update

from specscope_server.store import schema
from specscope_server.store import upsert as upserts
from specscope_server.store.facts import engine_names
from specscope_server.store.merges import TOLD
from specscope_server.store.model import AlertSubject, RuleRow, SilenceRow
from specscope_server.store.port import Refused
from specscope_server.store.values import clean, from_ns, key, to_ns

MAX_RULES: Final = 200
"""Of one workspace: each is evaluated on each of its engines."""
MAX_SILENCES: Final = 1000
_FRESH_NS: Final = 60_000_000_000
_RULE = upserts.Upsert(schema.alert_rule, {"updated_ns": TOLD, "body": TOLD})
_R = schema.alert_rule.c
_S = schema.silence.c


def rules(connection: Connection, workspace: str) -> list[RuleRow]:
    """Return the stored rules of a workspace by name."""
    query = select(schema.alert_rule).where(_R.workspace == workspace).order_by(_R.name)
    return [RuleRow(row.name, from_ns(row.updated_ns), row.body) for row in connection.execute(query)]


def set_rule(connection: Connection, workspace: str, name: str, body: Mapping[str, Any], at_ns: int) -> None:
    """Store a rule in place of one of its name.

    Raises:
        Refused: the workspace has as many as it may have.
    """
    _owned(connection, workspace, at_ns)
    mine = _R.workspace == workspace
    others = select(func.count()).select_from(schema.alert_rule).where(mine, _R.name != name)
    if connection.execute(others).scalar_one() >= MAX_RULES:
        raise Refused(f"workspace {workspace!r} has {MAX_RULES} rules, as many as may be: delete some")
    row = {"workspace": key(workspace), "name": key(name), "updated_ns": at_ns, "body": body}
    _RULE.run(connection, [row])


def delete_rule(connection: Connection, workspace: str, name: str) -> bool:
    """Delete a stored rule; say whether there was one."""
    mine = delete(schema.alert_rule).where(_R.workspace == workspace, _R.name == name)
    return connection.execute(mine).rowcount > 0


def silences(connection: Connection, workspace: str) -> list[SilenceRow]:
    """Return the silences of a workspace, also those that are over, the last to end first."""
    query = select(schema.silence).where(_S.workspace == workspace)
    return [
        SilenceRow(
            silence_uid=row.silence_uid,
            rule=row.rule,
            engine=row.engine,
            starts=from_ns(row.starts_ns),
            ends=from_ns(row.ends_ns),
            created=from_ns(row.created_ns),
            author=row.author,
            comment=row.comment,
        )
        for row in connection.execute(query.order_by(_S.ends_ns.desc(), _S.silence_uid))
    ]


def add_silence(connection: Connection, workspace: str, silence: SilenceRow) -> None:
    """Store a silence. The oldest ones that are over make room.

    Raises:
        Refused: the workspace has as many as it may have.
    """
    now_ns = to_ns(silence.created)
    _owned(connection, workspace, now_ns)
    mine = _S.workspace == workspace
    count = select(func.count()).select_from(schema.silence).where(mine)
    if connection.execute(count).scalar_one() >= MAX_SILENCES:
        connection.execute(delete(schema.silence).where(mine, _S.ends_ns < now_ns))
        if connection.execute(count).scalar_one() >= MAX_SILENCES:
            raise Refused(f"workspace {workspace!r} has {MAX_SILENCES} silences, as many as may be: end some")
    connection.execute(
        insert(schema.silence),
        {
            "workspace": key(workspace),
            "silence_uid": key(silence.silence_uid),
            "rule": key(silence.rule),
            "engine": key(silence.engine),
            "starts_ns": to_ns(silence.starts),
            "ends_ns": to_ns(silence.ends),
            "created_ns": now_ns,
            "author": clean(silence.author),
            "comment": clean(silence.comment),
        },
    )


def end_silence(connection: Connection, workspace: str, silence_uid: str, at_ns: int) -> bool:
    """End a silence at a time, unless it ended before; say whether there is one."""
    mine = (_S.workspace == workspace, _S.silence_uid == silence_uid)
    if connection.execute(select(_S.silence_uid).where(*mine)).first() is None:
        return False
    ends = case((_S.ends_ns > at_ns, at_ns), else_=_S.ends_ns)
    connection.execute(update(schema.silence).where(*mine).values(ends_ns=ends))
    return True


def _owned(connection: Connection, workspace: str, at_ns: int) -> None:
    """Make the workspace, and let one server at a time add to it (SQLite has one writer anyway)."""
    upserts.Upsert(schema.workspace).run(connection, [{"name": key(workspace), "created_ns": at_ns}])
    owner = schema.workspace.c.name
    connection.execute(select(owner).where(owner == key(workspace)).with_for_update())


def subjects(connection: Connection, workspace: str, since_ns: int, now_ns: int) -> list[AlertSubject]:
    """Return the engines of a workspace that were heard from ``since_ns`` on, as rules choose them."""
    engine, process, event = schema.engine.c, schema.process.c, schema.engine_event
    waited = process.last_received_ns - process.last_event_ns - process.clock_offset_ns
    delay = (
        select(func.max(waited))
        .where(process.engine_uid == engine.engine_uid, process.last_received_ns >= now_ns - _FRESH_NS)
        .scalar_subquery()
    )
    model = (
        select(event.c.model)
        .where(event.c.engine_uid == engine.engine_uid, event.c.model != "")
        .order_by(event.c.event_ns.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(engine.engine_uid, engine.environment, delay.label("delay"), model.label("model"))
        .where(engine.workspace == workspace, engine.last_received_ns >= since_ns)
        .order_by(engine.engine_uid)
    )
    found = connection.execute(query).all()
    names = engine_names(connection, {row.engine_uid for row in found}) if found else {}
    return [
        AlertSubject(
            workspace=workspace,
            engine_uid=row.engine_uid,
            name=names[row.engine_uid],
            model=row.model or "",
            environment=row.environment,
            delay_s=None if row.delay is None else row.delay / 1e9,
        )
        for row in found
    ]
