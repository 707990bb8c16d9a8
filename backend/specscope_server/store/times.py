"""Mean times of an engine's passes, and of plain decode on other engines of the same model."""

from __future__ import annotations

from typing import Final

from specscope import convention as c
from sqlalchemy import Connection, select

from specscope_server.diagnosis.engine_evidence import PassTime
from specscope_server.store import rows as names
from specscope_server.store import schema
from specscope_server.store.facts import StoredEngine, load

OTHERS: Final = 20
"""Engines of the workspace, those heard last, that are looked at for plain decode."""


def pass_times(connection: Connection, engine: StoredEngine) -> tuple[PassTime, ...]:
    """Return the times of an engine since its start; where it never decodes plainly, another engine's.

    The other one must serve the same model on the same kind of engine without a draft; the hardware is not
    known to be the same, which is said where it is used.
    """
    own = _of(engine, "")
    if not own or any(one.kind == c.PASS_DECODE for one in own):
        return own
    table = schema.engine.c
    recent = connection.execute(
        select(table.engine_uid)
        .where(table.workspace == engine.row.workspace, table.engine_uid != engine.row.engine_uid)
        .order_by(table.last_received_ns.desc(), table.engine_uid)
        .limit(OTHERS)
    ).scalars()
    counter = schema.process_counter.c
    plain = connection.execute(
        select(counter.engine_uid)
        .where(
            counter.engine_uid.in_(sorted(recent)),
            counter.name == names.PASSES,
            counter.label.like(f"{c.PASS_DECODE}|%"),
        )
        .distinct()
    ).scalars()
    found = sorted(plain)
    if not found:
        return own
    for other in load(connection, workspace=engine.row.workspace, uids=found):
        if other.model == engine.model and other.text("engine_name") == engine.text("engine_name"):
            decode = [one for one in _of(other, other.row.engine_uid) if one.kind == c.PASS_DECODE]
            return (*own, *decode)
    return own


def _of(engine: StoredEngine, told_by: str) -> tuple[PassTime, ...]:
    counts, took = engine.summed(names.PASSES), engine.summed(names.PASS_NS)
    return tuple(
        PassTime(kind, int(batch.partition("-")[0]), passes, took[label] / passes / 1e6, told_by)
        for label, passes in sorted(counts.items())
        for kind, _, batch in [label.partition("|")]
        if passes > 0 and label in took
    )
