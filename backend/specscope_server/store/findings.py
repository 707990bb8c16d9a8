"""Findings over time: opened, seen again, closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, case, insert, select, update

from specscope_server.diagnosis import model as facts
from specscope_server.diagnosis.model import Finding
from specscope_server.store import schema
from specscope_server.store.facts import engine_names
from specscope_server.store.model import FindingRow
from specscope_server.store.port import Refused
from specscope_server.store.values import clean, from_ns, key, optional_from_ns

_T = schema.finding.c
_SEVERITIES = (facts.CRITICAL, facts.WARNING, facts.INFO)
_CONFIDENCES = (facts.CERTAIN, facts.SUSPECTED, facts.OBSERVATION)
_AT_ONCE = 500
"""Engines of one query."""


def replace(connection: Connection, engine_uid: str, found: Sequence[Finding], at_ns: int) -> None:
    """Open new findings of an engine, refresh those that still hold, close the others.

    A finding is the same while its kind and boundary are.

    Raises:
        Refused: there is no such engine.
    """
    lock_engine(connection, engine_uid)
    open_ids = {
        (row.kind, row.boundary): row.id
        for row in connection.execute(
            select(_T.id, _T.kind, _T.boundary).where(_T.engine_uid == engine_uid, _T.closed_ns.is_(None))
        )
    }
    holding = {(key(finding.kind), key(finding.boundary)): finding for finding in found}
    for identity, finding in holding.items():
        values = _values(finding) | {"last_seen_ns": at_ns}
        if identity in open_ids:
            connection.execute(update(schema.finding).where(_T.id == open_ids[identity]).values(values))
        else:
            own = {"engine_uid": engine_uid, "opened_ns": at_ns}
            connection.execute(insert(schema.finding).values(values | own))
    gone = [number for identity, number in open_ids.items() if identity not in holding]
    if gone:
        connection.execute(update(schema.finding).where(_T.id.in_(gone)).values(closed_ns=at_ns))


def lock_engine(connection: Connection, engine_uid: str) -> None:
    """Let one server at a time decide about an engine (SQLite has one writer anyway).

    Raises:
        Refused: there is no such engine.
    """
    lock_engines(connection, [engine_uid])


def lock_engines(connection: Connection, engine_uids: Sequence[str]) -> None:
    """Let one server at a time decide about engines; in the order of their uids, so that none deadlocks.

    Raises:
        Refused: there is no such engine.
    """
    uid = schema.engine.c.engine_uid
    wanted = sorted(set(engine_uids))
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        found = connection.execute(select(uid).where(uid.in_(some)).order_by(uid).with_for_update())
        missing = set(some) - set(found.scalars())
        if missing:
            raise Refused(f"there is no engine {min(missing)!r}")


def _values(finding: Finding) -> dict[str, Any]:
    return {
        "kind": key(finding.kind),
        "boundary": key(finding.boundary),
        "fault_class": clean(finding.fault_class),
        "severity": clean(finding.severity),
        "confidence": clean(finding.confidence),
        "title": clean(finding.title),
        "sentence": clean(finding.sentence, 4096),
        "body": asdict(finding),
    }


def read(connection: Connection, workspace: str, engine_uid: str | None, active: bool) -> list[FindingRow]:
    """Return findings, worst first, then newest; ``active`` leaves out the closed ones."""
    engine = schema.engine.c
    query = (
        select(schema.finding)
        .join(schema.engine, engine.engine_uid == _T.engine_uid)
        .where(engine.workspace == workspace)
        .order_by(
            _T.closed_ns.is_not(None),
            _rank(_T.severity, _SEVERITIES),
            _rank(_T.confidence, _CONFIDENCES),
            _T.opened_ns.desc(),
            _T.id.desc(),
        )
    )
    if engine_uid is not None:
        query = query.where(_T.engine_uid == engine_uid)
    if active:
        query = query.where(_T.closed_ns.is_(None))
    found = connection.execute(query).all()
    names = engine_names(connection, {row.engine_uid for row in found}) if found else {}
    return [
        FindingRow(
            id=row.id,
            engine_uid=row.engine_uid,
            engine=names[row.engine_uid],
            kind=row.kind,
            fault_class=row.fault_class,
            severity=row.severity,
            confidence=row.confidence,
            title=row.title,
            sentence=row.sentence,
            opened=from_ns(row.opened_ns),
            last_seen=from_ns(row.last_seen_ns),
            closed=optional_from_ns(row.closed_ns),
            body=row.body,
        )
        for row in found
    ]


def _rank(column: Any, words: Sequence[str]) -> Any:
    return case({word: index for index, word in enumerate(words)}, value=column, else_=len(words))
