"""What is told too late: older than what is kept, so that the key by which it counts once may be forgotten.

It is left out and counted. What is left of an export is taken as if the rest had not been in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from specscope.rollup import bucket_start

from specscope_server.store.keep import Oldest
from specscope_server.store.told import Batch, Heartbeat, Told

_SECOND_NS = 1_000_000_000
_EVER = -(1 << 64)
"""Before any time that can be told."""


def without_old(batches: Iterable[Told], oldest: Oldest) -> tuple[list[Told], int]:
    """Return batches without what is older than ``oldest``, and how many spans and points that was.

    A batch of which nothing is left goes too: a process is not known by what was refused.
    """
    kept: list[Told] = []
    left_out = 0
    for batch in batches:
        if isinstance(batch, Batch):
            found, less = _without_old(batch, oldest)
            left_out += less
            if found is not None:
                kept.append(found)
        else:
            kept.append(batch)
    return kept, left_out


def _without_old(batch: Batch, oldest: Oldest) -> tuple[Batch | None, int]:
    limits = (oldest.steps_ns, oldest.requests_ns, oldest.rollups_ns)
    steps, ended, rollups = (limit or _EVER for limit in limits)
    chunks = tuple(chunk for chunk in batch.chunks if chunk.end_ns >= steps)
    ranks = tuple(report for report in batch.ranks if report.event_ns >= steps)
    requests = tuple(r for r in batch.requests if r.end_ns is None or r.end_ns >= ended)
    increments = tuple(one for one in batch.rollups if one.bucket * _SECOND_NS >= rollups)
    beats = tuple(b for b in batch.heartbeats if bucket_start(b.event_ns) * _SECOND_NS >= rollups)
    less = len(batch.chunks) - len(chunks) + len(batch.ranks) - len(ranks)
    less += len(batch.requests) - len(requests) + len(batch.rollups) - len(increments)
    less += sum(map(_points, batch.heartbeats)) - sum(map(_points, beats))
    if not less:
        return batch, 0
    # A chunk's span also told its request as of then, and maybe the prompt.
    gone = {chunk.uid for chunk in batch.chunks} - {chunk.uid for chunk in chunks}
    requests = tuple(r for r in requests if r.end_ns is not None or r.uid not in gone)
    prompts = tuple(prompt for prompt in batch.prompts if prompt.uid not in gone)
    if not (batch.engines or requests or chunks or increments or beats or ranks):
        return None, less
    return (
        replace(
            batch,
            chunks=chunks,
            ranks=ranks,
            requests=requests,
            rollups=increments,
            heartbeats=beats,
            prompts=prompts,
        ),
        less,
    )


def _points(beat: Heartbeat) -> int:
    """Return how many points told a heartbeat."""
    alone = (
        beat.queued,
        beat.export_failures,
        beat.engine_thread_ns,
        beat.speculation,
        beat.ended_ns,
        beat.event_ns,
    )
    labelled = (
        beat.boundaries,
        beat.armed,
        beat.requests,
        beat.dropped,
        beat.hook_errors,
        beat.passes,
        beat.pass_ns,
    )
    return sum(map(len, labelled)) + sum(value is not None for value in alone)
