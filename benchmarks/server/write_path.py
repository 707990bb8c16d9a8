"""How fast exports are committed: steps a second into SQLite and into PostgreSQL.

    python benchmarks/server/write_path.py                        SQLite, in a temporary directory
    python benchmarks/server/write_path.py --db postgresql://...  an empty PostgreSQL database
    python benchmarks/server/write_path.py --postgres             a PostgreSQL server of its own, with fsync

An export is what one engine sends in half a second at 64 running requests: a chunk of 64 verify steps with
as many draft extends and running totals for each request, one rollup increment, one heartbeat. Packing
happens before the clock starts; the clock covers translation, SQL and the sync to disk.
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

from specscope.chunks import ExtendRow, StepRow, pack_boundaries, pack_extends, pack_steps
from specscope.rollup import Rollup, StepFacts
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
)

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


def measure(url: str, exports: Sequence[tuple[int, Batch]], senders: int) -> tuple[float, float, float]:
    """Write the exports of each sender in order, all senders at once; return (wall s, CPU s, reading s)."""
    store = open_store(url)
    now = datetime.now(UTC)

    def send(sender: int) -> None:
        for owner, batch in exports:
            if owner == sender:
                store.write([batch], now)

    store.write([exports[0][1]], now)  # imports and compiled statements are paid once a server, not measured
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", help="an empty database; default: a SQLite file in a temporary directory")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL server, with fsync on")
    parser.add_argument("--exports", type=int, default=96, help="exports a sender (default %(default)s)")
    parser.add_argument(
        "--senders", type=int, default=1, help="engines that send at once (default %(default)s)"
    )
    options = parser.parse_args()
    now_ns = time.time_ns() - options.exports * 500_000_000
    made = [(s, *export(n, s, now_ns)) for n in range(options.exports) for s in range(options.senders)]
    steps = len(made) * STEPS * REQUESTS
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    size = sum(bytes_ for _, _, bytes_ in made) / steps
    print(f"{len(made)} exports of {REQUESTS} chunks, {steps} steps, {size:.1f} packed bytes a step")
    exports = [(sender, batch) for sender, batch, _ in made]
    with tempfile.TemporaryDirectory() as place:
        if options.postgres:
            sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
            from storekit import postgres

            with postgres.server(durable=True) as server:
                _report(server.url(server.create()), exports, options.senders, steps)
        else:
            _report(options.db or f"sqlite:///{place}/store.db", exports, options.senders, steps)


def _report(url: str, exports: Sequence[tuple[int, Batch]], senders: int, steps: int) -> None:
    wall, cpu, reading = measure(url, exports, senders)
    print("PostgreSQL" if url.startswith("postgres") else "SQLite")
    print(f"  {steps / wall:,.0f} steps/s committed, {steps / cpu:,.0f} steps per CPU second of this process")
    print(f"  {1000 * wall * senders / len(exports):.1f} ms an export")
    print(f"  evidence of an engine in {1000 * reading:.0f} ms")


if __name__ == "__main__":
    main()
