"""One request is forgotten: its row, its prompt and its steps.

What was summed of it (rollups, ledger, counters) stays: those numbers are of the engine. So do spans and log
records of its trace, which other tools sent.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from specscope_server.store import schema


def request(connection: Connection, workspace: str, uid: str) -> bool:
    """Delete a request with all that is of it alone; say whether there was one."""
    row, engine = schema.request.c, schema.engine.c
    found = connection.execute(
        select(row.engine_uid)
        .join_from(schema.request, schema.engine, engine.engine_uid == row.engine_uid)
        .where(row.workspace == workspace, engine.workspace == workspace, row.uid == uid)
    ).scalars()
    engines = list(found)
    for engine_uid in engines:
        for table in (schema.step_chunk, schema.request_text, schema.request):
            connection.execute(delete(table).where(table.c.engine_uid == engine_uid, table.c.uid == uid))
    return bool(engines)
