"""Expectations in the database: said, listed, cleared, and those that hold of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, insert, select

from specscope_server.diagnosis.engine_evidence import Expectation
from specscope_server.store import schema
from specscope_server.store import upsert as upserts
from specscope_server.store.facts import StoredEngine
from specscope_server.store.model import ExpectationRow, ExpectationScope
from specscope_server.store.port import Refused
from specscope_server.store.values import clean, count, from_ns, key, to_ns

MAX_EXPECTATIONS: Final = 1000
"""Of one workspace: each evaluation of an engine reads those of its workspace."""
_E = schema.expectation.c


def say(connection: Connection, workspace: str, row: ExpectationRow) -> None:
    """Store an expectation; the one of the same scope and source is replaced.

    Raises:
        Refused: the workspace has as many as it may have, or a number is out of range.
    """
    name = key(workspace)
    upserts.Upsert(schema.workspace).run(connection, [{"name": name, "created_ns": to_ns(row.said)}])
    # Lets one server at a time add to a workspace (SQLite has one writer anyway).
    of = schema.workspace.c
    connection.execute(select(of.name).where(of.name == name).with_for_update())
    clear(connection, name, row.scope, row.source)
    held: int = connection.execute(
        select(func.count()).select_from(schema.expectation).where(_E.workspace == name)
    ).scalar_one()
    if held >= MAX_EXPECTATIONS:
        raise Refused(f"workspace {workspace!r} has {held} expectations, as many as may be: clear old ones")
    period = None if row.period is None else [to_ns(moment) for moment in row.period]
    connection.execute(
        insert(schema.expectation),
        {
            "workspace": name,
            **_keys(row.scope),
            "source": key(row.source),
            "steps": count(row.steps, "steps of an expectation"),
            "floor": row.floor,
            "who": clean(row.who),
            "said_ns": to_ns(row.said),
            "body": {
                "per_position": list(row.per_position),
                "note": clean(row.note),
                "period_ns": period,
                "learned_on": clean(row.learned_on),
            },
        },
    )


def clear(connection: Connection, workspace: str, scope: ExpectationScope, source: str | None) -> int:
    """Delete the expectations of a scope (of one source, if named); return how many there were."""
    keys = _keys(scope)
    found = delete(schema.expectation).where(
        _E.workspace == key(workspace), *(_E[column] == value for column, value in keys.items())
    )
    if source is not None:
        found = found.where(_E.source == key(source))
    return connection.execute(found).rowcount


def listed(connection: Connection, workspace: str) -> list[ExpectationRow]:
    """Return the expectations of a workspace, in the order of their scopes."""
    found = connection.execute(
        select(schema.expectation)
        .where(_E.workspace == workspace)
        .order_by(_E.engine, _E.model, _E.workload, _E.source)
    )
    return [_row(row) for row in found]


def expected_of(connection: Connection, engine: StoredEngine) -> tuple[Expectation, ...]:
    """Return what is expected of an engine: one of all its traffic, if any, and then one a workload.

    Of several that hold, the most specific counts (engine before model before any), and of two of one scope
    (declared and learned) the one said last.
    """
    names = (engine.row.engine_uid, engine.row.instance, engine.name, "")
    best: dict[str, tuple[tuple[int, int, float], ExpectationRow]] = {}
    for row in listed(connection, engine.row.workspace):
        scope = row.scope
        if scope.engine not in names or scope.model not in (engine.model, ""):
            continue
        rank = (-names.index(scope.engine), int(scope.model != ""), row.said.timestamp())
        if scope.workload not in best or rank > best[scope.workload][0]:
            best[scope.workload] = (rank, row)
    return tuple(_plain(best[workload][1]) for workload in sorted(best))


def _keys(scope: ExpectationScope) -> dict[str, str]:
    return {"engine": key(scope.engine), "model": key(scope.model), "workload": key(scope.workload)}


def _plain(row: ExpectationRow) -> Expectation:
    return Expectation(
        source=row.source,
        per_position=row.per_position,
        steps=row.steps,
        floor=row.floor,
        who=row.who,
        said=row.said.timestamp(),
        workload=row.scope.workload,
    )


def _row(row: Row[Any]) -> ExpectationRow:
    body: dict[str, Any] = row.body
    per_position: Sequence[float] = body["per_position"]
    period: Sequence[int] | None = body["period_ns"]
    return ExpectationRow(
        scope=ExpectationScope(row.engine, row.model, row.workload),
        source=row.source,
        per_position=tuple(per_position),
        steps=row.steps,
        floor=row.floor,
        who=row.who,
        said=from_ns(row.said_ns),
        note=body["note"],
        period=None if period is None else (from_ns(period[0]), from_ns(period[1])),
        learned_on=body["learned_on"],
    )
