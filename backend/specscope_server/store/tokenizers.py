"""Tokenizers in the database: added, listed, read, deleted; and which one an engine says it has."""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from specscope_server.store import schema
from specscope_server.store import upsert as upserts
from specscope_server.store.model import TokenizerRow
from specscope_server.store.port import Refused
from specscope_server.store.prepared import Prepared
from specscope_server.store.values import clean, from_ns, key, to_ns, unpacked_json

MAX_TOKENIZERS: Final = 100
"""Tokenizers of one workspace."""
_REPORTS: Final = 8
"""Newest reports that are looked at: ranks report at the same time, and not all tell of tokenizers."""
_T = schema.tokenizer.c
_E = schema.engine_event.c
_LISTED: Final = Prepared(
    select(_T.tokenizer_hash, _T.created_ns, _T.name, _T.tokens, _T.bytes)
    .where(_T.workspace == bindparam("workspace"))
    .order_by(_T.created_ns.desc(), _T.tokenizer_hash)
)
_VOCABULARY: Final = Prepared(
    select(_T.vocabulary).where(
        _T.workspace == bindparam("workspace"), _T.tokenizer_hash == bindparam("tokenizer_hash")
    )
)
_CONFIGS: Final = Prepared(
    select(_E.config)
    .join_from(schema.engine_event, schema.engine, schema.engine.c.engine_uid == _E.engine_uid)
    .where(_E.engine_uid == bindparam("engine_uid"), schema.engine.c.workspace == bindparam("workspace"))
    .order_by(_E.event_ns.desc(), _E.process_uid)
    .limit(_REPORTS)
)


def add(connection: Connection, workspace: str, row: TokenizerRow, vocabulary: bytes) -> None:
    """Store a tokenizer; one that is there already stays as it is.

    Raises:
        Refused: the workspace has as many as it may have.
    """
    scope = {"name": key(workspace), "created_ns": to_ns(row.created)}
    upserts.Upsert(schema.workspace).run(connection, [scope])
    mine = _T.workspace == scope["name"]
    # Lets one server at a time add to a workspace (SQLite has one writer anyway).
    owner = schema.workspace.c
    connection.execute(select(owner.name).where(owner.name == scope["name"]).with_for_update())
    there = select(_T.tokenizer_hash).where(mine, _T.tokenizer_hash == row.tokenizer_hash)
    if connection.execute(there).first() is not None:
        return
    count: int = connection.execute(
        select(func.count()).select_from(schema.tokenizer).where(mine)
    ).scalar_one()
    if count >= MAX_TOKENIZERS:
        raise Refused(f"workspace {workspace!r} has {count} tokenizers, as many as may be: remove old ones")
    connection.execute(
        insert(schema.tokenizer),
        {
            "workspace": scope["name"],
            "tokenizer_hash": key(row.tokenizer_hash),
            "created_ns": scope["created_ns"],
            "name": clean(row.name),
            "tokens": row.tokens,
            "bytes": row.bytes,
            "vocabulary": vocabulary,
        },
    )


def remove(connection: Connection, workspace: str, tokenizer_hash: str) -> bool:
    """Delete a tokenizer; say whether there was one."""
    found = delete(schema.tokenizer).where(_T.workspace == workspace, _T.tokenizer_hash == tokenizer_hash)
    return connection.execute(found).rowcount > 0


def listed(connection: Connection, workspace: str) -> list[TokenizerRow]:
    """Return the tokenizers of a workspace, newest first."""
    return [
        TokenizerRow(row.tokenizer_hash, from_ns(row.created_ns), row.name, row.tokens, row.bytes)
        for row in _LISTED.rows(connection, {"workspace": workspace})
    ]


def vocabulary(connection: Connection, workspace: str, tokenizer_hash: str) -> bytes | None:
    """Return the packed vocabulary of a tokenizer; ``None``: there is none."""
    asked = {"workspace": workspace, "tokenizer_hash": tokenizer_hash}
    rows = _VOCABULARY.rows(connection, asked)
    return bytes(rows[0].vocabulary) if rows else None


def of_engine(connection: Connection, workspace: str, engine_uid: str) -> str:
    """Return the hash of the target's tokenizer as the engine told it last, empty where it told none."""
    for row in _CONFIGS.rows(connection, {"workspace": workspace, "engine_uid": engine_uid}):
        told: Any = unpacked_json(row.config)
        for name in ("tokenizers", "target", "hash"):
            told = cast("dict[str, Any]", told).get(name) if isinstance(told, dict) else None
        if isinstance(told, str) and told:
            return told
    return ""
