"""Where the time goes: the stages of the write path one after the other, in CPU and wall time."""

from __future__ import annotations

import gzip
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from specscope_server.ingest import traces
from specscope_server.store import open_store

from benchmarks.server.bodies import Body

NAMES = ("inflate", "parse protobuf", "read spans", "write and commit")


@dataclass
class Stages:
    """Nanoseconds a verify step by stage: CPU of this process, and wall time."""

    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))
    wall: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))


def measure(url: str, bodies: Sequence[Body]) -> Stages:
    """Run every stage for every export, one export at a time: no two share a commit."""
    found = Stages()
    store = open_store(url)
    steps = sum(body.steps for body in bodies[1:])
    for number, body in enumerate(bodies):
        marks = [(time.process_time_ns(), time.perf_counter_ns())]

        def mark(marks: list[tuple[int, int]] = marks) -> None:
            marks.append((time.process_time_ns(), time.perf_counter_ns()))

        raw = gzip.decompress(body.zipped)
        mark()
        message = ExportTraceServiceRequest.FromString(raw)
        mark()
        batches, _ = traces.read(message)
        mark()
        store.write(batches, datetime.now(UTC))
        mark()
        if number:  # the first one pays for imports and statements
            for name, (cpu, wall), (cpu_after, wall_after) in zip(NAMES, marks, marks[1:], strict=False):
                found.cpu[name] += (cpu_after - cpu) / steps
                found.wall[name] += (wall_after - wall) / steps
    store.close()
    return found
