"""Keeping a database within its ages and its size, step by step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, and_, select

from specscope_server.store import partitions, schema
from specscope_server.store.database import Database
from specscope_server.store.keep import Keep
from specscope_server.store.port import Pruned, Unavailable
from specscope_server.store.retention import (
    STEP_CHUNKS,
    Limits,
    Target,
    engine_uids,
    forgotten_engines,
    of_engine,
    of_forgotten,
    of_workspaces,
)
from specscope_server.store.sizes import used_bytes
from specscope_server.store.values import to_ns

_HOUR_NS: Final = 3600 * 1_000_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """What is to be done for one database."""

    database: Database
    keep: Keep

    def _limits(self, now: datetime) -> Limits:
        keep = self.keep
        ages = (
            *(keep.steps_days, keep.requests_days, keep.rollups_days),
            *(keep.minutes_days, keep.alerts_days, keep.engines_days),
        )
        return Limits(*(keep.before(days, now) for days in ages))

    def prune(self, now: datetime) -> Iterator[Pruned]:
        """Delete what is too old, a step each time the next one is asked for.

        Raises:
            StoreError: the database cannot serve; what was done before stays done.
        """
        limits = self._limits(now)
        if self.database.capabilities.partitions:
            yield from self._partitions(now, limits)
        for targets in self._plans(limits):
            for target in targets:
                yield from self._emptied(target)
        yield from self.shrink(now)

    def would_prune(self, now: datetime) -> dict[str, int]:
        """Return how many rows :meth:`prune` would delete by age, by table; about, of whole partitions.

        Raises:
            StoreError: the database cannot serve.
        """
        limits = self._limits(now)
        found: dict[str, int] = {}
        if self.database.capabilities.partitions and limits.steps is not None:
            with self.database.read() as connection:
                for day in _days_before(connection, limits.steps):
                    rows = partitions.rows_about(connection, day)
                    found[partitions.name_of(day)] = rows
        for targets in self._plans(limits):
            with self.database.read() as connection:
                for target in targets:
                    if count := target.count(connection):
                        found[target.table.name] = found.get(target.table.name, 0) + count
        return found

    def _plans(self, limits: Limits) -> Iterator[Iterable[Target]]:
        """Yield what is to be deleted, part by part: a long read would keep SQLite's log from ending."""
        with self.database.read() as connection:
            silent = set(forgotten_engines(connection, limits))
            heard = [uid for uid in engine_uids(connection) if uid not in silent]
        if limits.engines is not None:
            for uid in sorted(silent):
                yield list(of_forgotten(uid, limits.engines))
        for uid in heard:
            with self.database.read() as connection:
                plan = list(of_engine(connection, uid, limits))
            yield plan
        with self.database.read() as connection:
            plan = list(of_workspaces(connection, limits))
        yield plan

    def _emptied(self, target: Target) -> Iterator[Pruned]:
        """Delete a target's rows; look first, so that a round without work takes no write lock."""
        with self.database.read() as connection:
            key = next(iter(target.table.primary_key.columns))
            if connection.execute(select(key).where(target.where).limit(1)).first() is None:
                return
        while True:
            if gone := self._some_deleted(target):
                yield Pruned(target.table.name, gone)
            if gone < target.rows:
                return

    def _some_deleted(self, target: Target) -> int:
        """Delete some of a target's rows in one transaction and return how many."""
        gone = 0

        def job(connection: Connection) -> None:
            nonlocal gone
            gone = target.delete_some(connection)

        self.database.write(job)
        return gone

    def _partitions(self, now: datetime, limits: Limits) -> Iterator[Pruned]:
        """Make the partitions of the days to come, and drop those that are wholly too old."""
        with self.database.read() as connection:
            wanted = partitions.missing(connection, to_ns(now))
            old = [] if limits.steps is None else _days_before(connection, limits.steps)
        for day in wanted:
            try:
                self.database.write(lambda connection, day=day: _make(connection, day))
            except Unavailable as error:  # somebody reads there for long; its chunks go to the default one
                log.warning("partition %s is not made yet: %s", partitions.name_of(day), error)
        for day in old:
            try:
                yield self._dropped(day)
            except Unavailable as error:  # likewise; what is too old elsewhere must not wait for that
                log.warning("partition %s is not dropped yet: %s", partitions.name_of(day), error)

    def _dropped(self, day: int) -> Pruned:
        with self.database.read() as connection:
            rows = partitions.rows_about(connection, day)
        self.database.write(lambda connection: partitions.drop(connection, day))
        return Pruned(partitions.name_of(day), rows)

    def shrink(self, now: datetime) -> Iterator[Pruned]:
        """Delete the oldest chunks while the database is larger than it may be.

        Raises:
            StoreError: the database cannot serve; what was done before stays done.
        """
        if not self.keep.max_bytes:
            return
        while self._used_bytes() > self.keep.max_bytes:
            done = (
                self._oldest_partition(now)
                if self.database.capabilities.partitions
                else self._oldest_chunks(now)
            )
            if done is None:
                log.warning(
                    "the database is larger than the %d bytes it may have, with no older chunks to delete: "
                    "raise --max-db-gb or keep the other tables for fewer days",
                    self.keep.max_bytes,
                )
                return
            yield done

    def _used_bytes(self) -> int:
        with self.database.read() as connection:
            return used_bytes(connection)

    def _oldest_partition(self, now: datetime) -> Pruned | None:
        with self.database.read() as connection:
            days = [day for day in partitions.days(connection) if day < partitions.day_of(to_ns(now))]
        return self._dropped(days[0]) if days else None

    def _oldest_chunks(self, now: datetime) -> Pruned | None:
        """Delete some of the oldest hour of the engine that has the oldest chunk."""
        table = schema.step_chunk.c
        first = (
            select(table.end_ns)
            .where(table.engine_uid == schema.engine.c.engine_uid)
            .order_by(table.end_ns)
            .limit(1)
            .scalar_subquery()
        )
        with self.database.read() as connection:
            oldest = connection.execute(
                select(schema.engine.c.engine_uid, first.label("end_ns"))
                .where(first.is_not(None))
                .order_by(first)
                .limit(1)
            ).first()
        # The last hour stays, or a cap below what an hour brings would delete what just came.
        if oldest is None or oldest.end_ns >= to_ns(now) - _HOUR_NS:
            return None
        within = table.end_ns <= min(oldest.end_ns + _HOUR_NS, to_ns(now) - _HOUR_NS)
        target = Target(schema.step_chunk, and_(table.engine_uid == oldest.engine_uid, within), STEP_CHUNKS)
        gone = self._some_deleted(target)
        return Pruned(schema.step_chunk.name, gone) if gone else None


def _days_before(connection: Connection, before_ns: int) -> list[int]:
    """Return the days with a partition that ended before a time."""
    return [day for day in partitions.days(connection) if day + 1 <= partitions.day_of(before_ns)]


def _make(connection: Connection, day: int) -> None:
    partitions.make(connection, day)
