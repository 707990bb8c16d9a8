"""Whole tables of a database, to see that nothing was stored by halves."""

from __future__ import annotations

from specscope_server.store.where import parse
from sqlalchemy import create_engine, inspect, text

NOT_INGESTED = {
    "specscope_version",
    # What the evaluator concludes while the server runs, at moments of its own.
    "finding",
    "alert_state",
    "alert_event",
    "delivery",
}


def contents(url: str) -> dict[str, list[str]]:
    """Every row of every table that the receiver writes, in a stable order."""
    engine = create_engine(parse(url))
    try:
        with engine.connect() as connection:
            names = sorted(set(inspect(connection).get_table_names()) - NOT_INGESTED)
            return {
                name: sorted(repr(tuple(row)) for row in connection.execute(text(f'SELECT * FROM "{name}"')))
                for name in names
            }
    finally:
        engine.dispose()
