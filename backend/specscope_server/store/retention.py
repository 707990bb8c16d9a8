"""What is too old goes: bounded rows a transaction, oldest data only, in steps between which others write.

Each step is planned by reads that take an index and deletes what it found, by key, so that nothing else can
go with it. Rows that are needed to read newer ones stay: the last ledger bucket and the last configuration
before the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select, tuple_

from specscope_server.store import partitions, schema
from specscope_server.store.alerts import PENDING
from specscope_server.store.keep import DAY_NS

STEP_ROWS: Final = 2000
"""Rows of one transaction: tens of milliseconds for which exports wait, on SQLite."""
STEP_CHUNKS: Final = 500
"""The same for chunks, of some 8 kB each."""
_PROMPTS: Final = 5000
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """Rows of a table that go. ``guard`` must still hold when they do, else nothing goes."""

    table: Table
    where: ColumnElement[bool]
    rows: int = STEP_ROWS
    guard: Callable[[Connection], bool] | None = None

    def count(self, connection: Connection) -> int:
        """Return how many rows would go."""
        return connection.execute(select(func.count()).select_from(self.table).where(self.where)).scalar_one()

    def delete_some(self, connection: Connection) -> int:
        """Delete up to ``rows`` rows, in the caller's transaction, and return how many."""
        if self.guard is not None and not self.guard(connection):
            return 0
        key = list(self.table.primary_key.columns)
        some = select(*key).where(self.where).limit(self.rows)
        if self.table is schema.request:
            return _delete_requests(connection, [tuple(row) for row in connection.execute(some)])
        chosen = key[0].in_(some) if len(key) == 1 else tuple_(*key).in_(some)
        return connection.execute(delete(self.table).where(chosen)).rowcount


def _delete_requests(connection: Connection, keys: list[tuple[Any, ...]]) -> int:
    """Delete requests with their prompts, which are found through them alone."""
    for table in (schema.request_text, schema.request):
        chosen = tuple_(table.c.engine_uid, table.c.uid).in_(keys)
        connection.execute(delete(table).where(chosen))
    return len(keys)


@dataclass(frozen=True, slots=True)
class Limits:
    """Times, ns since 1970, before which things go; ``None``: they stay."""

    steps: int | None
    requests: int | None
    rollups: int | None
    minutes: int | None
    alerts: int | None
    engines: int | None


def engine_uids(connection: Connection) -> list[str]:
    """Return every engine there is."""
    return list(connection.execute(select(schema.engine.c.engine_uid)).scalars())


def forgotten_engines(connection: Connection, limits: Limits) -> list[str]:
    """Return the engines that were last heard too long ago."""
    if limits.engines is None:
        return []
    table = schema.engine.c
    found = select(table.engine_uid).where(table.last_received_ns < limits.engines)
    return list(connection.execute(found).scalars())


def of_forgotten(engine_uid: str, before_ns: int) -> Iterator[Target]:
    """Yield all rows of an engine that was last heard before a time, itself last."""
    engine = schema.engine
    old = and_(engine.c.engine_uid == engine_uid, engine.c.last_received_ns < before_ns)

    def still_silent(connection: Connection) -> bool:
        """Lock the engine: whoever writes of it meanwhile waits, and then makes it anew."""
        return (
            connection.execute(select(engine.c.engine_uid).where(old).with_for_update()).first() is not None
        )

    for table in reversed(schema.metadata.sorted_tables):
        if "engine_uid" in table.c and table is not engine:
            rows = STEP_CHUNKS if table is schema.step_chunk else STEP_ROWS
            yield Target(table, table.c.engine_uid == engine_uid, rows, still_silent)
    yield Target(engine, old)


def of_engine(connection: Connection, engine_uid: str, limits: Limits) -> Iterator[Target]:
    """Yield what is too old of a living engine."""
    yield from _steps(connection, engine_uid, limits.steps)
    if limits.requests is not None:
        table, old = schema.request.c, limits.requests
        yield Target(
            schema.request,
            and_(
                table.engine_uid == engine_uid, table.arrival_ns < old,
                # One that arrived long ago and is still told of is none of the old ones.
                table.last_received_ns < old,
            ),
        )  # fmt: skip
        yield from _events(connection, engine_uid, old)
    yield from _sums(connection, engine_uid, schema.rollup_10s, limits.rollups)
    yield from _sums(connection, engine_uid, schema.rollup_60s, limits.minutes)
    if limits.rollups is not None:
        hidden = schema.hidden_stat.c
        old_hidden = hidden.bucket < limits.rollups // _SECOND_NS
        yield Target(schema.hidden_stat, and_(hidden.engine_uid == engine_uid, old_hidden))
        yield from _ledger(connection, engine_uid, limits.rollups // _SECOND_NS)
    if limits.alerts is not None:
        yield from _conclusions(engine_uid, limits.alerts)


def _steps(connection: Connection, engine_uid: str, before_ns: int | None) -> Iterator[Target]:
    if before_ns is None:
        return
    # PostgreSQL drops the days' partitions whole.
    table = schema.step_chunk if connection.dialect.name == "sqlite" else partitions.DEFAULT
    column = table.c
    yield Target(
        table,
        and_(column.engine_uid == engine_uid, column.end_ns < before_ns, column.start_ns < before_ns),
        STEP_CHUNKS,
    )
    prompt, request = schema.request_text.c, schema.request.c
    last = ""
    while True:
        page = connection.execute(
            select(prompt.uid, request.arrival_ns)
            .outerjoin_from(
                schema.request_text,
                schema.request,
                and_(request.engine_uid == prompt.engine_uid, request.uid == prompt.uid),
            )
            .where(prompt.engine_uid == engine_uid, prompt.uid > last)
            .order_by(prompt.uid)
            .limit(_PROMPTS)
        ).all()
        old = [row.uid for row in page if row.arrival_ns is not None and row.arrival_ns < before_ns]
        if old:
            yield Target(schema.request_text, and_(prompt.engine_uid == engine_uid, prompt.uid.in_(old)))
        if len(page) < _PROMPTS:
            return
        last = page[-1].uid


def _events(connection: Connection, engine_uid: str, before_ns: int) -> Iterator[Target]:
    table = schema.engine_event.c
    last = func.max(table.event_ns).label("last")
    found = connection.execute(
        select(table.process_uid, last)
        .where(table.engine_uid == engine_uid, table.event_ns < before_ns)
        .group_by(table.process_uid)
        .having(func.min(table.event_ns) < last)
    )
    for row in found:
        mine = and_(table.engine_uid == engine_uid, table.process_uid == row.process_uid)
        yield Target(schema.engine_event, and_(mine, table.event_ns < row.last))


def _sums(connection: Connection, engine_uid: str, table: Table, before_ns: int | None) -> Iterator[Target]:
    if before_ns is None:
        return
    column, before = table.c, before_ns // _SECOND_NS
    # From one dimension to the next by the key: few of them, over very many rows.
    name = ""
    while True:
        found = connection.execute(
            select(column.dimension)
            .where(column.engine_uid == engine_uid, column.dimension > name)
            .order_by(column.dimension)
            .limit(1)
        ).scalar()
        if found is None:
            return
        name = found
        mine = and_(column.engine_uid == engine_uid, column.dimension == name)
        yield Target(table, and_(mine, column.bucket < before))


def _ledger(connection: Connection, engine_uid: str, before: int) -> Iterator[Target]:
    """Yield the buckets before the last one before the limit: that one tells what was crossed since."""
    total, count = schema.boundary_total.c, schema.boundary_count.c
    names = ("engine_uid", "process_uid", "boundary", "source", "mode")
    same = [count[name] == total[name] for name in names]
    buckets = select(count.bucket).where(*same, count.bucket < before).limit(1)
    first = buckets.order_by(count.bucket).scalar_subquery()
    last = buckets.order_by(count.bucket.desc()).scalar_subquery()
    each = (
        select(*(total[name] for name in names), first.label("first"), last.label("last"))
        .where(total.engine_uid == engine_uid)
        .subquery()
    )
    for row in connection.execute(select(each).where(each.c.first < each.c.last)):
        key = [count[name] == getattr(row, name) for name in names]
        yield Target(schema.boundary_count, and_(*key, count.bucket < row.last))


def _conclusions(engine_uid: str, before_ns: int) -> Iterator[Target]:
    finding, event, delivery = schema.finding.c, schema.alert_event.c, schema.delivery.c
    for table, *old in (
        (schema.finding, finding.opened_ns < before_ns, finding.closed_ns < before_ns),
        (schema.alert_event, event.since_ns < before_ns, event.evaluated_ns < before_ns),
        (schema.delivery, delivery.created_ns < before_ns, delivery.status != PENDING),
    ):
        yield Target(table, and_(table.c.engine_uid == engine_uid, *old))


def of_workspaces(connection: Connection, limits: Limits) -> Iterator[Target]:
    """Yield what is too old and no engine's: other tools' spans and logs, the audit trail, which increments
    are in.
    """
    if limits.requests is not None:
        for workspace in connection.execute(select(schema.workspace.c.name)).scalars():
            for table in (schema.span, schema.log_record):
                old = table.c.received_ns < limits.requests
                yield Target(table, and_(table.c.workspace == workspace, old))
    if limits.alerts is not None:
        yield Target(schema.audit, schema.audit.c.at_ns < limits.alerts)
    if limits.rollups is not None:
        # A day later than the sums: an increment is refused by its age before it could count twice, also
        # by a server whose clock is behind. 0 was noted by a version that did not know the bucket.
        bucket = schema.rollup_applied.c.bucket
        before = (limits.rollups - DAY_NS) // _SECOND_NS
        yield Target(schema.rollup_applied, and_(bucket > 0, bucket < before))
