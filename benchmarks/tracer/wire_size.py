"""Bytes on the wire: ``python benchmarks/tracer/wire_size.py``.

Records of :mod:`traffic` go through the real exporter process to a receiver that counts the bodies as they
are sent (OTLP, protobuf, gzip; columns in zstd where it is installed, else zlib): request spans, rollups,
heartbeats and chunks of steps together. Engine steps are told at the pace ``--rate``, for rollups and
heartbeats go out by the clock: at half the pace they weigh twice as much a step. What a body's spans take of
it is shared out by their size before compression.
"""

from __future__ import annotations

import argparse
import os
import platform
import time

from record_path import settle, start
from sink import Sent, Sink
from specscope import convention as c
from traffic import CHAIN, TREE, Traffic


def measure(batch: int, nodes: int, detail: str, rate: float, seconds: float) -> str:
    with Sink(opened=True) as sink:
        found, pump = start(sink.endpoint, detail)
        before = sink.sent()  # the first heartbeats
        traffic = Traffic(found.instance, batch, nodes, hidden=False, every=found.settings.sample_every)
        records, began = 0, time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if (ahead := began + traffic.steps / rate - now) > 0:
                time.sleep(ahead)
            for record in traffic.step():
                found.emit(record)
                records += 1
        took = time.monotonic() - began
        for record in traffic.end():
            found.emit(record)
            records += 1
        settle(pump, records)
        sent, dropped = sink.sent(), found.dropped()
        found.close()
    return row(sent, before, traffic, took) + f" {traffic.steps / took:.0f} | {dropped or 'none'} |"


def row(sent: Sent, before: Sent, traffic: Traffic, took: float) -> str:
    bodies, plain = sent.bodies - before.bodies, sent.plain - before.plain
    whole = bodies.total()
    shares = [bodies[name] / whole for name in (c.SPAN_STEPS, c.SPAN_REQUEST, c.SPAN_ROLLUP, "metrics")]
    return (
        f" {whole / traffic.row_steps:.1f} | {whole / traffic.steps:.0f} | {whole / traffic.requests:.0f} "
        f"| {bodies[c.SPAN_STEPS] / traffic.row_steps:.1f} | {whole / took / 1024:.1f} "
        f"| {plain.total() / whole:.1f} |" + "".join(f" {share:.0%} |" for share in shares)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=50.0, help="engine steps a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="each row of the table")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 64])
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        "| drafts | batch | detail | bytes a sequence-step | an engine step | a request | a sequence-step, "
        "chunks alone | KiB/s | plain : sent | chunks | requests | rollups | heartbeats | steps/s | dropped |"
    )
    print("|---" * 15 + "|")
    for name, nodes in (("chain of 4", CHAIN), ("tree of 16", TREE)):
        for batch in given.batches:
            for detail in c.DETAIL_LEVELS:
                print(
                    f"| {name} | {batch} | {detail} |"
                    + measure(batch, nodes, detail, given.rate, given.seconds),
                    flush=True,
                )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
