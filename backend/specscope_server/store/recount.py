"""Rollups against a recount from chunks, where everything that was counted is there to be counted again.

A rollup and a chunk tell of the same verify steps by two ways. Where every chunk arrived they must agree to
the last count; where something is missing (a level of detail without chunks, spans that the tracer dropped,
chunks that are not kept any more, a damaged one) nothing can be said, and that is said.

What the tracer counts (``specscope.exporter.pipeline``): each verify step of a request that is neither a
health check nor a warm-up, in the 10 s bucket of its wall clock, overshoot steps left out. Of the dimensions,
cached prefix and temperature are facts of the request as it was known then and are not in its chunks: they
are not recounted. The sums by the minute are held against those of 10 s in every dimension.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from specscope.rollup import (
    ALL,
    BATCH,
    BUCKET_S,
    CONTEXT,
    COPY_LIKE,
    COUNT_FIELDS,
    DIMENSIONS,
    MODE,
    ROW,
    STEP,
    Counts,
    Key,
    Rollup,
    StepFacts,
)
from sqlalchemy import ColumnElement, Connection, Table, and_, func, select

from specscope_server.store import schema
from specscope_server.store.recount_coverage import (
    LONGEST_S,
    NOT_COUNTED,
    NS,
    STREAMED,
    Gaps,
    coverage,
    not_told_whole,
    readable,
)

RECOUNTED: Final = (ALL, CONTEXT, ROW, BATCH, MODE, COPY_LIKE)
"""Dimensions that a verify step alone decides."""
MOST: Final = 100
"""Differences told one by one; the others are counted."""
WINDOW_S: Final = 600
"""Seconds that are compared at a time: bounds the memory to sixty buckets."""
MINUTE_S: Final = 60
NOT_KEPT: Final = "no chunks of that time are kept"
SUMS_NOT_KEPT: Final = "no sums of that time are kept"
_NEVER: Final = 1 << 62
_YOUNG_S: Final = 86_400
"""Seconds for which everything is kept, whatever the settings: sums that lack of that time are lost."""

Sums = dict[Key, Counts]


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of a rollup table that is not what it should be. ``bucket`` is its start in unix seconds.

    ``wanted`` comes from chunks for ``rollup_10s``, from ``rollup_10s`` for ``rollup_60s``.
    """

    table: str
    engine_uid: str
    bucket: int
    key: Key
    stored: Counts
    wanted: Counts

    def __str__(self) -> str:
        """Say it in one line, with the counts that differ alone."""
        dimension, value, position = self.key
        where = " ".join(
            filter(None, (dimension, value, f"position {position + 1}" if position >= 0 else ""))
        )
        told = ", ".join(
            f"{name} is {getattr(self.stored, name)}, not {getattr(self.wanted, name)}"
            for name in COUNT_FIELDS
            if getattr(self.stored, name) != getattr(self.wanted, name)
        )
        return f"{self.table}, engine {self.engine_uid}, bucket {self.bucket}, {where}: {told}"


@dataclass(slots=True)
class Recount:
    """What the comparison gives: the first :data:`MOST` of ``differing`` rows, and what was not judged.

    ``buckets`` of 10 s with ``steps`` in them were recounted, and ``minutes`` compared; ``not_judged`` counts
    buckets by the reason why nothing can be said of them.
    """

    buckets: int = 0
    steps: int = 0
    minutes: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])
    not_judged: Counter[str] = field(default_factory=Counter[str])

    def compare(
        self,
        table: str,
        engine_uid: str,
        bucket: int,
        stored: Mapping[Key, Counts],
        wanted: Mapping[Key, Counts],
    ) -> None:
        """Note every row that differs; an absent one is all 0."""
        for key in sorted({*stored, *wanted}):
            have, want = stored.get(key, Counts()), wanted.get(key, Counts())
            if have == want:
                continue
            self.differing += 1
            if len(self.differences) < MOST:
                self.differences.append(Difference(table, engine_uid, bucket, key, have, want))


def recount(
    connection: Connection,
    *,
    engine_uid: str | None = None,
    since_s: int | None = None,
    until_s: int | None = None,
    now_s: float | None = None,
) -> Recount:
    """Compare engine by engine and ten minutes at a time, in one read transaction.

    Buckets from that of ``since_s`` on, before ``until_s`` (unix seconds). What engines tell just now arrives
    bit by bit: leave out the last minute of a server that is at work, or it will differ. ``now_s``, the
    system's time if left out, decides which sums can be missing by their age alone.
    """
    young = int(time.time() if now_s is None else now_s) - _YOUNG_S
    result = Recount()
    engines = select(schema.engine.c.engine_uid).order_by(schema.engine.c.engine_uid)
    if engine_uid is not None:
        engines = engines.where(schema.engine.c.engine_uid == engine_uid)
    since = 0 if since_s is None else since_s // BUCKET_S * BUCKET_S
    for uid in connection.execute(engines).scalars().all():
        _Engine(connection, uid, result, young).run(since, _NEVER if until_s is None else until_s)
    return result


class _Engine:
    """The recount of one engine."""

    def __init__(self, connection: Connection, uid: str, result: Recount, young: int) -> None:
        self._connection, self._uid, self._result, self._young = connection, uid, result, young

    def run(self, since: int, until: int) -> None:
        why = not_told_whole(self._connection, self._uid)
        gaps = Gaps() if why else coverage(self._connection, self._uid)
        first = self._first_bucket(schema.rollup_10s, 0)
        oldest = self._oldest_chunk()
        if first is not None and first < oldest:
            oldest += BUCKET_S  # of the bucket at the limit of what is kept some chunks may be gone
        first_minute = self._first_minute()
        for start, end in self._windows(since, until, first_minute):
            stored = self._stored(schema.rollup_10s, start, end)
            self._minutes(max(start, since, first_minute), min(end, until), stored)
            told = {} if why else self._told(start, end)
            for bucket in sorted({*stored, *told}):
                if not since <= bucket < until:
                    continue
                missing = why or (NOT_KEPT if bucket < oldest else gaps.reason(bucket))
                if bucket < self._young and (first is None or bucket < first):
                    missing = missing or SUMS_NOT_KEPT
                if missing:
                    self._result.not_judged[missing] += 1
                else:
                    self._bucket(bucket, stored.get(bucket, {}), told.get(bucket, {}))

    def _bucket(self, bucket: int, stored: Sums, told: Sums) -> None:
        self._result.buckets += 1
        self._result.steps += told.get((ALL, "", STEP), Counts()).steps
        comparable = {key: counts for key, counts in stored.items() if key[0] in RECOUNTED}
        self._result.compare(schema.rollup_10s.name, self._uid, bucket, comparable, told)

    def _minutes(self, start: int, end: int, stored: Mapping[int, Sums]) -> None:
        """Hold the minutes that lie wholly in the window against the sums of their 10 s buckets."""
        wanted: dict[int, Sums] = {}
        for bucket, rows in stored.items():
            sums = wanted.setdefault(bucket // MINUTE_S * MINUTE_S, {})
            for key, counts in rows.items():
                sums.setdefault(key, Counts()).add(counts)
        minutes = self._stored(schema.rollup_60s, start, end)
        for bucket in sorted({*wanted, *minutes}):
            if start <= bucket and bucket + MINUTE_S <= end:
                self._result.minutes += 1
                self._result.compare(
                    schema.rollup_60s.name, self._uid, bucket, minutes.get(bucket, {}), wanted.get(bucket, {})
                )

    def _stored(self, table: Table, start: int, end: int) -> dict[int, Sums]:
        """Return the rows of a rollup table by bucket; rows without a count are as good as absent."""
        found: dict[int, Sums] = {}
        for row in self._connection.execute(
            select(table).where(
                table.c.engine_uid == self._uid,
                table.c.dimension.in_(DIMENSIONS),
                table.c.bucket >= start,
                table.c.bucket < end,
            )
        ):
            counts = Counts(**{name: getattr(row, name) for name in COUNT_FIELDS})
            found.setdefault(row.bucket, {})[row.dimension, row.slice, row.position] = counts
        return found

    def _told(self, start: int, end: int) -> dict[int, Sums]:
        """Count the steps of a window again, by bucket, as the tracer counts them."""
        chunk, request = schema.step_chunk.c, schema.request.c
        same = and_(chunk.engine_uid == request.engine_uid, chunk.uid == request.uid)
        chunks = (
            select(chunk.steps)
            .join_from(schema.step_chunk, schema.request, same)
            .where(
                chunk.engine_uid == self._uid,
                chunk.end_ns >= start * NS,
                chunk.end_ns < (end + LONGEST_S) * NS,
                chunk.start_ns >= (start - LONGEST_S) * NS,
                chunk.start_ns < end * NS,
                request.kind.not_in(NOT_COUNTED),
            )
        )
        rollup = Rollup()
        for row in self._connection.execute(chunks.execution_options(yield_per=STREAMED)):
            for step in readable(row.steps) or ():
                if not step.overshoot and start * NS <= step.t < end * NS:
                    rollup.add(
                        step.t,
                        StepFacts(
                            drafted_depth=step.drafted_depth,
                            drafted_nodes=step.drafted_nodes,
                            accepted=step.accepted,
                            bonus=step.bonus,
                            committed=step.committed,
                            context=step.context,
                            row=step.row,
                            batch_size=step.batch_size,
                            mode=step.mode,
                            copy_like=None if step.copy_like is None else bool(step.copy_like),
                        ),
                    )
        return dict(rollup.take())

    def _windows(self, since: int, until: int, first_minute: int) -> Iterator[tuple[int, int]]:
        """Return the windows in which there is anything, oldest first."""
        at = since
        while (following := self._next(at, first_minute)) is not None and following < until:
            start = following // WINDOW_S * WINDOW_S
            yield start, start + WINDOW_S
            at = start + WINDOW_S

    def _next(self, at: int, first_minute: int) -> int | None:
        """Return when, from ``at`` on, there may be something next."""
        end_ns = schema.step_chunk.c.end_ns
        chunk = self._least(schema.step_chunk, end_ns, end_ns >= at * NS)
        found = [
            self._first_bucket(schema.rollup_10s, at),
            self._first_bucket(schema.rollup_60s, max(at, first_minute)),
            None if chunk is None else chunk // NS - LONGEST_S,
        ]
        return min((max(at, one) for one in found if one is not None), default=None)

    def _first_bucket(self, table: Table, at: int) -> int | None:
        return self._least(table, table.c.bucket, table.c.dimension == ALL, table.c.bucket >= at)

    def _oldest_chunk(self) -> int:
        """Return the first second of which a chunk is kept; never, where none is."""
        found = self._least(schema.step_chunk, schema.step_chunk.c.start_ns)
        return _NEVER if found is None else found // NS // BUCKET_S * BUCKET_S

    def _first_minute(self) -> int:
        """Return the first minute all of whose 10 s buckets are kept: sums of 10 s are forgotten earlier."""
        ten = self._first_bucket(schema.rollup_10s, 0)
        if ten is None:
            return _NEVER
        minute = ten // MINUTE_S * MINUTE_S
        oldest = self._first_bucket(schema.rollup_60s, 0)
        return minute if oldest is None or oldest >= minute else minute + MINUTE_S

    def _least(self, table: Table, column: ColumnElement[int], *where: ColumnElement[bool]) -> int | None:
        mine = table.c.engine_uid == self._uid
        return self._connection.execute(select(func.min(column)).where(mine, *where)).scalar_one()
