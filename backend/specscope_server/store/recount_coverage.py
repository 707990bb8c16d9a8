"""When all that happened is in the chunks that are kept, so that they can be counted again, and when not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from specscope import convention as c
from specscope.chunks import StepRow, unpack_steps
from specscope.columns import CodecError
from specscope.rollup import BUCKET_S
from sqlalchemy import Connection, Row, and_, select

from specscope_server.store import rows as names
from specscope_server.store import schema

NS: Final = 1_000_000_000
LONGEST_S: Final = 60
"""Seconds that a chunk may last; the tracer closes one after a second."""
NOT_COUNTED: Final = (c.KIND_HEALTH_CHECK, c.KIND_WARMUP)
"""Kinds of request that are in no rollup."""
HARMLESS: Final = frozenset(("queue_full", "rank_steps_full", "draft_tree", "hidden_keys"))
"""Reasons of dropping after which chunks and rollups still tell of the same steps: what was lost is in
neither of them, or was no step."""
MISSING: Final = "a chunk of a request in it is missing, damaged or older than what is kept"
ALONE: Final = "a request in it is not kept any more, or not told"
UNKNOWN: Final = "a request in it has no totals to hold its chunks against"
ODD: Final = "a chunk in it lasts over a minute, or tells steps outside of its time"
STREAMED: Final = 500
"""Rows that are in memory at a time."""
_MERGE: Final = 4096


@dataclass(slots=True)
class Gaps:
    """Buckets that cannot be recounted, as ranges (first, last) in unix seconds, by reason."""

    found: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, list[tuple[int, int]]])

    def add(self, reason: str, start_ns: int, end_ns: int) -> None:
        """Note that the buckets from that of ``start_ns`` to that of ``end_ns`` lack something."""
        ranges = self.found.setdefault(reason, [])
        ranges.append((start_ns // NS // BUCKET_S * BUCKET_S, end_ns // NS // BUCKET_S * BUCKET_S))
        if len(ranges) > _MERGE:
            ranges[:] = _merged(ranges)

    def close(self) -> Gaps:
        """Sort what was added; to be called before :meth:`reason`."""
        for ranges in self.found.values():
            ranges[:] = _merged(ranges)
        return self

    def reason(self, bucket: int) -> str:
        """Return why a bucket cannot be recounted, empty where it can."""
        for reason, ranges in self.found.items():
            at = bisect_right(ranges, (bucket, 1 << 62)) - 1
            if at >= 0 and ranges[at][1] >= bucket:
                return reason
        return ""


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1] + BUCKET_S:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def not_told_whole(connection: Connection, engine_uid: str) -> str:
    """Return why nothing of an engine can be recounted, empty where that depends on the time."""
    process, counter = schema.process.c, schema.process_counter.c
    details = connection.execute(
        select(process.detail).where(process.engine_uid == engine_uid).distinct()
    ).scalars()
    if c.DETAIL_SUMMARY in set(details):
        return "a process of the engine tells no steps (detail level summary)"
    dropped = connection.execute(
        select(counter.label)
        .where(
            counter.engine_uid == engine_uid,
            counter.name == names.DROPPED,
            counter.value > 0,
            counter.label.not_in(HARMLESS),
        )
        .order_by(counter.label)
    ).scalars()
    if reasons := sorted(set(dropped)):
        return f"a tracer of the engine dropped what it had to tell ({', '.join(reasons)})"
    return ""


def coverage(connection: Connection, engine_uid: str) -> Gaps:
    """Return when the chunks of an engine do not tell all: the totals of each request against its steps."""
    request, chunk = schema.request.c, schema.step_chunk.c
    told = (
        select(
            *(
                request.uid,
                request.verify_steps,
                request.arrival_ns,
                request.end_ns,
                request.last_received_ns,
            ),
            *(chunk.process_uid, chunk.start_ns, chunk.end_ns.label("chunk_end_ns"), chunk.steps),
        )
        .join_from(
            schema.request,
            schema.step_chunk,
            and_(request.engine_uid == chunk.engine_uid, request.uid == chunk.uid),
            isouter=True,
        )
        .where(request.engine_uid == engine_uid, request.kind.not_in(NOT_COUNTED))
        .order_by(request.uid)
    )
    gaps = Gaps()
    rows = connection.execute(told.execution_options(yield_per=STREAMED))
    for _, group in groupby(rows, key=attrgetter("uid")):
        _request(group, gaps)
    _alone(connection, engine_uid, gaps)
    return gaps.close()


def _alone(connection: Connection, engine_uid: str, gaps: Gaps) -> None:
    """Note chunks whose request is not there: it may have been one that is not counted."""
    request, chunk = schema.request.c, schema.step_chunk.c
    theirs = and_(request.engine_uid == chunk.engine_uid, request.uid == chunk.uid)
    found = (
        select(chunk.start_ns, chunk.end_ns)
        .join_from(schema.step_chunk, schema.request, theirs, isouter=True)
        .where(chunk.engine_uid == engine_uid, request.uid.is_(None))
    )
    for row in connection.execute(found.execution_options(yield_per=STREAMED)):
        gaps.add(ALONE, row.start_ns, row.end_ns)


def _request(group: Iterator[Row[*tuple[Any, ...]]], gaps: Gaps) -> None:
    """Note what one request lacks: each process that tells of it must have told as many steps as it had."""
    by_process: dict[str, int] = {}
    start, end, steps = 1 << 62, 0, 0
    for row in group:
        steps = row.verify_steps
        start = min(start, row.arrival_ns)
        end = max(end, row.last_received_ns if row.end_ns is None else row.end_ns)
        if row.process_uid is None:
            continue
        start, end = min(start, row.start_ns), max(end, row.chunk_end_ns)
        found = readable(row.steps)
        if found is None:
            by_process[row.process_uid] = -1
            continue
        outside = any(not row.start_ns <= step.t <= row.chunk_end_ns for step in found)
        if outside or row.chunk_end_ns - row.start_ns > LONGEST_S * NS:
            gaps.add(
                ODD,
                min([row.start_ns, *(s.t for s in found)]),
                max([row.chunk_end_ns, *(s.t for s in found)]),
            )
        mine = sum(not step.overshoot for step in found)
        if by_process.get(row.process_uid, 0) >= 0:
            by_process[row.process_uid] = by_process.get(row.process_uid, 0) + mine
    told = {count for count in by_process.values() if count} or {0}
    if steps == 0 and told != {0}:
        gaps.add(UNKNOWN, start, end)
    elif told != {steps}:
        gaps.add(MISSING, start, end)


def readable(blob: bytes) -> list[StepRow] | None:
    """Return the steps of a chunk, ``None`` where it is damaged."""
    try:
        return unpack_steps(blob) if blob else []
    except CodecError:
        return None
