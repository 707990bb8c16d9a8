"""What a workspace has stored, and from when to when: one index look-up an engine and kind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from specscope.rollup import ALL
from sqlalchemy import Connection, ScalarSelect, Table, func, select

from specscope_server.store import schema
from specscope_server.store.model import Held, Holdings
from specscope_server.store.values import from_ns

_KINDS = {
    "requests": (schema.request, "arrival_ns"),
    "steps": (schema.step_chunk, "end_ns"),
    "sums": (schema.rollup_10s, "bucket"),
    "minutes": (schema.rollup_60s, "bucket"),
}


def holdings(connection: Connection, workspace: str) -> Holdings:
    """Return what there is."""
    columns: list[ScalarSelect[Any]] = []
    for table, name in _KINDS.values():
        columns += [_end(table, name, newest=False), _end(table, name, newest=True)]
    mine = schema.engine.c.workspace == workspace
    engines = connection.execute(select(schema.engine.c.engine_uid, *columns).where(mine)).all()
    found: dict[str, Held | None] = {}
    for place, (kind, (_, name)) in enumerate(_KINDS.items()):
        oldest = min((row[2 * place + 1] for row in engines if row[2 * place + 1] is not None), default=None)
        newest = max((row[2 * place + 2] for row in engines if row[2 * place + 2] is not None), default=None)
        moment = _from_s if name == "bucket" else from_ns
        found[kind] = None if oldest is None or newest is None else Held(moment(oldest), moment(newest))
    return Holdings(len(engines), **found)


def _end(table: Table, name: str, *, newest: bool) -> ScalarSelect[Any]:
    """Return an engine's smallest or largest value."""
    end = (func.max if newest else func.min)(table.c[name])
    wanted = [table.c.engine_uid == schema.engine.c.engine_uid]
    if name == "bucket":
        wanted.append(table.c.dimension == ALL)
    return select(end).where(*wanted).correlate(schema.engine).scalar_subquery()


def _from_s(value: int) -> datetime:
    return datetime.fromtimestamp(value, UTC)
