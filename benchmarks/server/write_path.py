"""How fast exports are committed: steps a second into SQLite and into PostgreSQL.

    python benchmarks/server/write_path.py                        SQLite, in a temporary directory
    python benchmarks/server/write_path.py --db postgresql://...  an empty PostgreSQL database
    python benchmarks/server/write_path.py --postgres             a PostgreSQL server of its own, with fsync
    python benchmarks/server/write_path.py --bodies               from the bytes of bodies

An export is what one engine sends in half a second at 64 running requests: a chunk of 64 verify steps with
as many draft extends and running totals for each request, one rollup increment, one heartbeat. Packing
happens before the clock starts; the clock covers translation, SQL and the sync to disk.

With ``--bodies`` it also covers protobuf and every check of what is told. The bodies are the tracer's own
(``bodies.py``), and each chunk is the first of its request: its row and all its index entries are new.
Decoded are spans, attributes, rollups and the boundary counts of requests that ended; the packed columns of
steps and draft extends are stored unopened, after a look at their headers.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from specscope.chunks import ExtendRow, StepRow, pack_boundaries, pack_extends, pack_steps
from specscope.rollup import Rollup, StepFacts
from specscope_server.ingest import traces
from specscope_server.store import open_store
from specscope_server.store.told import (
    Batch,
    BoundaryTotal,
    Chunk,
    Heartbeat,
    ProcessFacts,
    RequestReport,
    RequestTotals,
    RollupIncrement,
    Told,
)

ROOT = Path(__file__).parents[2]
STEPS = 64
REQUESTS = 64
BOUNDARIES = (
    *(("target.aux_capture", ""), ("draft.extend", "target_fed"), ("draft.fc", "target_fed")),
    *(("draft.forward", "target_fed"), ("draft.forward", "self_fed"), ("draft.propose", "")),
    *(("target.verify", ""), ("engine.commit", "")),
)


def crossed(steps: int) -> bytes:
    """Return the boundary counts of a request, which its last report brings."""
    return pack_boundaries(dict.fromkeys(BOUNDARIES, steps), {(*key, "graph"): steps for key in BOUNDARIES})


def export(number: int, sender: int, now_ns: int) -> tuple[Batch, int]:
    """Return export ``number`` of a sender, and the bytes of its packed steps and extends."""
    dice = random.Random(number * 1000 + sender)
    requests: list[RequestReport] = []
    chunks: list[Chunk] = []
    rollup = Rollup()
    for row in range(REQUESTS):
        uid = f"{sender:04x}{number // 4:08x}{row:020x}"
        steps: list[StepRow] = []
        extends: list[ExtendRow] = []
        for index in range(STEPS):
            at = now_ns + number * 500_000_000 + index * 8_000_000
            accepted = min(dice.randrange(5), 3)
            steps.append(
                StepRow(
                    step=number * STEPS + index,
                    t=at,
                    mode="graph",
                    batch_size=REQUESTS,
                    row=row,
                    context=500 + index * 3,
                    drafted_depth=3,
                    drafted_nodes=3,
                    accepted=accepted,
                    bonus=1,
                    committed=accepted + 1,
                    overshoot=0,
                    weight_version=0,
                )
            )
            extends.append(
                ExtendRow(
                    step=number * STEPS + index,
                    t=at,
                    after="verify",
                    mode="graph",
                    fed_width=12288,
                    dtype="bfloat16",
                    aux_states=3,
                    fc_in=12288,
                    fc_ran=1,
                    rows=accepted + 1,
                    mean=dice.gauss(0, 0.01),
                    std=dice.uniform(0.8, 1.2),
                    rms=dice.uniform(0.8, 1.2),
                    max_abs=dice.uniform(8, 30),
                    nonfinite=0,
                    zero_rows=0,
                )
            )
            rollup.add(
                at, StepFacts(3, 3, accepted, 1, accepted + 1, 500, row, REQUESTS, "graph", 0, 0.0, False)
            )
        chunks.append(
            Chunk(
                uid=uid,
                seq=number % 4,
                first_step=STEPS * (number % 4),
                start_ns=steps[0].t,
                end_ns=steps[-1].t,
                steps=pack_steps(steps, tokens=False),
                extends=pack_extends(extends),
            )
        )
        done = STEPS * (number % 4 + 1)
        requests.append(
            RequestReport(
                uid=uid,
                rid=f"chatcmpl-{uid}",
                trace_id=uid,
                state="finished" if number % 4 == 3 else "running",
                kind="user",
                model="meta-llama/Llama-3.1-8B-Instruct",
                arrival_ns=now_ns + number // 4 * 2_000_000_000 + row,
                end_ns=None,
                prompt_tokens=500,
                output_tokens=done * 3,
                cached_tokens=0,
                temperature=0.0,
                max_tokens=2048,
                finish_reason=None,
                queue_s=0.01,
                first_token_s=0.2,
                totals=RequestTotals(verify_steps=done, drafted_depth=done * 3, accepted=done, bonus=done),
                boundaries=crossed(done) if number % 4 == 3 else None,
            )
        )
    total = (number + 1) * STEPS
    heartbeat = Heartbeat(
        event_ns=now_ns + number * 500_000_000,
        boundaries=tuple(
            BoundaryTotal(name, source, mode, *counts)
            for name, source in BOUNDARIES
            for mode, counts in (("", (total, None)), ("graph", (None, total)))
        ),
        armed={name: (True, "") for name, _ in BOUNDARIES},
        requests={"user": number},
        queued=0,
        speculation=True,
    )
    increments = [RollupIncrement(2 * number + i, at, rows) for i, (at, rows) in enumerate(rollup.take())]
    process = ProcessFacts(
        workspace="default",
        environment="benchmark",
        instance=f"launch-{sender}",
        process_uid=f"{sender:032x}",
        role="scheduler",
        pid=sender,
        start_ns=now_ns,
        tp=0,
        dp=0,
        pp=0,
        serving_role="both",
        service_name="",
        engine_name="sglang",
        engine_version="0.5.23",
        tracer_version="0.1.0",
        detail="steps",
    )
    size = sum(len(chunk.steps) + len(chunk.extends) for chunk in chunks)
    batch = Batch(process, (), tuple(requests), tuple(chunks), tuple(increments), (heartbeat,))
    return batch, size


def _told(export: Batch | bytes) -> Sequence[Told]:
    """Return what an export tells; of a body it is decoded."""
    if isinstance(export, bytes):
        return traces.read(ExportTraceServiceRequest.FromString(export))[0]
    return [export]


def measure(
    url: str, exports: Sequence[tuple[int, Batch | bytes]], senders: int
) -> tuple[float, float, float]:
    """Write the exports of each sender in order, all senders at once; return (wall s, CPU s, reading s).

    An export is what a body tells, or the body itself.
    """
    store = open_store(url)
    now = datetime.now(UTC)

    def send(sender: int) -> None:
        for owner, told in exports:
            if owner == sender:
                store.write(_told(told), now)

    # Imports and compiled statements are paid once a server, not measured.
    store.write(_told(exports[0][1]), now)
    wall, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(send, range(senders)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    started = time.perf_counter()
    for _, uid in store.engine_uids():
        store.evidence("default", uid, now, 60)
    reading = (time.perf_counter() - started) / senders
    store.close()
    return wall, cpu, reading


def made(count: int, senders: int, *, bodies: bool) -> tuple[list[tuple[int, Batch | bytes]], int]:
    """Return ``count`` exports of each sender, with whose each is, and the bytes of all of them."""
    if bodies:
        sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
        from benchmarks.server import bodies as tracer

        told = list(tracer.bodies(count * senders, engines=senders))
        return [(n % senders, body.plain) for n, body in enumerate(told)], sum(
            len(body.plain) for body in told
        )
    now_ns = time.time_ns() - count * 500_000_000
    found = [(s, *export(n, s, now_ns)) for n in range(count) for s in range(senders)]
    return [(sender, batch) for sender, batch, _ in found], sum(size for _, _, size in found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", help="an empty database; default: a SQLite file in a temporary directory")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL server, with fsync on")
    parser.add_argument("--exports", type=int, default=96, help="exports a sender (default %(default)s)")
    parser.add_argument(
        "--senders", type=int, default=1, help="engines that send at once (default %(default)s)"
    )
    parser.add_argument("--bodies", action="store_true", help="decode each export from its bytes as well")
    options = parser.parse_args()
    exports, size = made(options.exports, options.senders, bodies=options.bodies)
    steps = len(exports) * STEPS * REQUESTS
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    of = "bytes of protobuf" if options.bodies else "packed bytes"
    print(f"{len(exports)} exports of {REQUESTS} chunks, {steps} steps, {size / steps:.1f} {of} a step")
    with tempfile.TemporaryDirectory() as place:
        if options.postgres:
            sys.path.insert(0, str(ROOT / "tests"))
            from storekit import postgres

            with postgres.server(durable=True) as server:
                _report(server.url(server.create()), exports, options.senders, steps)
        else:
            _report(options.db or f"sqlite:///{place}/store.db", exports, options.senders, steps)


def _report(url: str, exports: Sequence[tuple[int, Batch | bytes]], senders: int, steps: int) -> None:
    wall, cpu, reading = measure(url, exports, senders)
    print("PostgreSQL" if url.startswith("postgres") else "SQLite")
    print(f"  {steps / wall:,.0f} steps/s committed, {steps / cpu:,.0f} steps per CPU second of this process")
    print(f"  {1000 * wall * senders / len(exports):.1f} ms an export")
    print(f"  evidence of an engine in {1000 * reading:.0f} ms")


if __name__ == "__main__":
    main()
