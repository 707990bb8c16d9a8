"""Chunks of a day in a partition of their own on PostgreSQL: made ahead, dropped whole.

Partitions are made for the days around now alone, so that made-up times cannot make more of them; chunks of
any other day are in the default partition, where retention deletes them by the row.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, MetaData, text

from specscope_server.store import schema
from specscope_server.store.keep import DAY_NS

AHEAD_DAYS: Final = 3
"""Days made ahead: servers may be down over a weekend and still find a partition."""
MAX_MOVED: Final = 20_000
"""Chunks of one day that are moved out of the default partition at most (about 160 MB), in one transaction
that holds up whoever reads or writes there. A day that has more keeps them there, and no partition."""
_LOCK: Final = 0x5370_6563_4461_7973
"""Advisory lock ("SpecDays") of whoever makes or drops a partition: a server and ``specscope db prune``."""
_PARENT: Final = schema.step_chunk.name
_NAME: Final = re.compile(rf"{_PARENT}_(\d{{8}})")

DEFAULT: Final = schema.step_chunk.to_metadata(MetaData(), name=schema.DEFAULT_PARTITION)
"""The default partition as a table of its own."""

log = logging.getLogger(__name__)


def day_of(ns: int) -> int:
    """Return the number of the UTC day since 1970."""
    return ns // DAY_NS


def name_of(day: int) -> str:
    """Return the name of a day's partition, e.g. ``step_chunk_20260301``."""
    return f"{_PARENT}_{datetime.fromtimestamp(day * 86_400, UTC):%Y%m%d}"


def days(connection: Connection) -> list[int]:
    """Return the days that have a partition, oldest first."""
    names = connection.execute(
        text(
            "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid "
            "WHERE inhparent = CAST(:parent AS regclass)"
        ),
        {"parent": _PARENT},
    ).scalars()
    found = [match[1] for match in map(_NAME.fullmatch, names) if match]
    return sorted(
        int(datetime.strptime(text_, "%Y%m%d").replace(tzinfo=UTC).timestamp()) // 86_400 for text_ in found
    )


def missing(connection: Connection, now_ns: int) -> list[int]:
    """Return the days from today on that should have a partition and have none."""
    there = set(days(connection))
    today = day_of(now_ns)
    return [day for day in range(today, today + AHEAD_DAYS + 1) if day not in there]


def rows_about(connection: Connection, day: int) -> int:
    """Return about how many chunks a day's partition holds, as PostgreSQL last counted them."""
    found = connection.execute(
        text("SELECT reltuples FROM pg_class WHERE oid = to_regclass(:name)"), {"name": name_of(day)}
    ).scalar()
    return max(0, round(found or 0))


def _alone(connection: Connection) -> None:
    """Wait for nobody for long: whoever comes after us waits as well."""
    connection.execute(text("SET LOCAL lock_timeout = '2s'"))
    connection.execute(text("SET LOCAL statement_timeout = '20s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def make(connection: Connection, day: int) -> bool:
    """Make a day's partition, with the chunks of that day that came before it; say whether it is there."""
    _alone(connection)
    if day in days(connection):
        return True
    low, high = day * DAY_NS, (day + 1) * DAY_NS
    of_day = f"start_ns >= {low} AND start_ns < {high}"
    # Before counting: a chunk that comes between would be one that the partition does not take.
    connection.execute(text(f"LOCK TABLE {DEFAULT.name} IN ACCESS EXCLUSIVE MODE"))
    waiting = connection.execute(
        text(
            f"SELECT COUNT(*) FROM (SELECT 1 FROM {DEFAULT.name} WHERE {of_day} LIMIT {MAX_MOVED + 1}) AS few"
        )
    ).scalar_one()
    name = name_of(day)
    if waiting > MAX_MOVED:
        log.info("more than %d chunks of %s stay in %s", MAX_MOVED, name, DEFAULT.name)
        return False
    connection.execute(text(f"CREATE TABLE {name} (LIKE {_PARENT} INCLUDING ALL)"))
    if waiting:
        connection.execute(
            text(
                f"WITH moved AS (DELETE FROM {DEFAULT.name} WHERE {of_day} RETURNING *) "
                f"INSERT INTO {name} SELECT * FROM moved"
            )
        )
    connection.execute(
        text(f"ALTER TABLE {_PARENT} ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})")
    )
    return True


def drop(connection: Connection, day: int) -> None:
    """Drop a day's partition with all its chunks."""
    _alone(connection)
    connection.execute(text(f"DROP TABLE IF EXISTS {name_of(day)}"))
