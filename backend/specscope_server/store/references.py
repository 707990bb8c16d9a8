"""References in the database: added, listed, read, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from specscope.reference_file import Facts, Stored
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from specscope_server.store import schema
from specscope_server.store import upsert as upserts
from specscope_server.store.model import ReferenceRow, ReferenceSequence
from specscope_server.store.port import Refused
from specscope_server.store.prepared import Prepared
from specscope_server.store.values import clean, from_ns, key

MAX_REFERENCES: Final = 100
"""References of one workspace; a comparison looks at the newest of them."""
_R = schema.reference.c
_S = schema.reference_sequence.c
_UIDS = Prepared(
    select(_R.reference_uid).where(_R.workspace == bindparam("workspace")).order_by(_R.reference_uid)
)


def add(
    connection: Connection,
    workspace: str,
    uid: str,
    facts: Facts,
    sequences: Sequence[Stored],
    size: int,
    at_ns: int,
) -> None:
    """Store a reference; one that is there already stays as it is.

    Raises:
        Refused: the workspace has as many as it may have.
    """
    scope = {"name": key(workspace), "created_ns": at_ns}
    upserts.Upsert(schema.workspace).run(connection, [scope])
    mine = _R.workspace == scope["name"]
    # Lets one server at a time add to a workspace (SQLite has one writer anyway).
    owner = schema.workspace.c
    connection.execute(select(owner.name).where(owner.name == scope["name"]).with_for_update())
    if connection.execute(select(_R.reference_uid).where(mine, _R.reference_uid == uid)).first() is not None:
        return
    count: int = connection.execute(
        select(func.count()).select_from(schema.reference).where(mine)
    ).scalar_one()
    if count >= MAX_REFERENCES:
        raise Refused(f"workspace {workspace!r} has {count} references, as many as may be: delete old ones")
    owned = {"workspace": scope["name"], "reference_uid": uid}
    connection.execute(
        insert(schema.reference),
        owned
        | {
            "created_ns": at_ns,
            "name": clean(facts.target.name),
            "sequences": len(sequences),
            "tokens": sum(len(one.ids) for one in sequences),
            "bytes": size,
            "facts": asdict(facts),
        },
    )
    connection.execute(
        insert(schema.reference_sequence),
        [
            owned
            | {
                "number": number,
                "name": clean(one.name),
                "tokens": len(one.ids),
                "prompt_tokens": one.prompt_tokens,
                "ids": np.array(one.ids, dtype="<i4").tobytes(),
                "numbers": one.packed,
            }
            for number, one in enumerate(sequences)
        ],
    )


def remove(connection: Connection, workspace: str, uid: str) -> bool:
    """Delete a reference; say whether there was one."""
    found = delete(schema.reference).where(_R.workspace == workspace, _R.reference_uid == uid)
    return connection.execute(found).rowcount > 0


def listed(connection: Connection, workspace: str, uid: str | None = None) -> list[ReferenceRow]:
    """Return references of a workspace, newest first; of ``uid`` alone where it is given."""
    query = select(schema.reference).where(_R.workspace == workspace)
    if uid is not None:
        query = query.where(_R.reference_uid == uid)
    found = connection.execute(query.order_by(_R.created_ns.desc(), _R.reference_uid)).all()
    return [_row(one) for one in found]


def sequences(connection: Connection, workspace: str, uid: str) -> list[ReferenceSequence]:
    """Return the sequences of a reference without their numbers, in the order of the file."""
    found = connection.execute(
        select(_S.number, _S.name, _S.prompt_tokens, _S.ids)
        .where(_S.workspace == workspace, _S.reference_uid == uid)
        .order_by(_S.number)
    )
    return [
        ReferenceSequence(one.number, one.name, one.prompt_tokens, np.frombuffer(one.ids, dtype="<i4"))
        for one in found
    ]


def sequence(connection: Connection, workspace: str, uid: str, number: int) -> Stored | None:
    """Return one sequence with its packed numbers; ``None``: there is none."""
    found = connection.execute(
        select(_S.name, _S.prompt_tokens, _S.ids, _S.numbers).where(
            _S.workspace == workspace, _S.reference_uid == uid, _S.number == number
        )
    ).one_or_none()
    return None if found is None else Stored(found.name, _ids(found.ids), found.prompt_tokens, found.numbers)


def uids(connection: Connection, workspace: str) -> tuple[str, ...]:
    """Return which references a workspace has, in no order that means anything; cheap."""
    return tuple(row[0] for row in _UIDS.rows(connection, {"workspace": workspace}))


def _ids(packed: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(packed, dtype="<i4").tolist())


def _row(row: Row[Any]) -> ReferenceRow:
    return ReferenceRow(
        reference_uid=row.reference_uid,
        created=from_ns(row.created_ns),
        name=row.name,
        sequences=row.sequences,
        tokens=row.tokens,
        bytes=row.bytes,
        facts=row.facts,
    )
