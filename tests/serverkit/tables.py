"""Whole tables of a database, to see that nothing was stored by halves."""

from __future__ import annotations

from specscope_server.store.where import parse
from sqlalchemy import create_engine, inspect, text


def contents(url: str) -> dict[str, list[str]]:
    """Every row of every table but the schema's version, in a stable order."""
    engine = create_engine(parse(url))
    try:
        with engine.connect() as connection:
            names = sorted(set(inspect(connection).get_table_names()) - {"specscope_version"})
            return {
                name: sorted(repr(tuple(row)) for row in connection.execute(text(f'SELECT * FROM "{name}"')))
                for name in names
            }
    finally:
        engine.dispose()
