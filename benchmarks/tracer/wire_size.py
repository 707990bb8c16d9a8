"""Bytes on the wire: ``python benchmarks/tracer/wire_size.py``.

Records of :mod:`traffic`, hidden states included, go through the real exporter process to a receiver that
counts the bodies as they are sent (OTLP, protobuf, gzip; columns in zstd where it is installed, else zlib):
request spans, rollups, heartbeats and chunks of steps together. Engine steps are told at the pace ``--rate``,
for rollups and heartbeats go out by the clock: at half the pace they weigh twice as much a step. What a
body's spans take of it is shared out by their size before compression.

With ``--clock told`` the exporter's pipeline runs in this process by a clock that keeps the pace whatever
else the machine does; heartbeats are left out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import time
from dataclasses import replace

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from record_path import settle, start
from sink import Sent, Sink, count
from specscope import convention as c
from specscope import identity
from specscope.clock import Anchor
from specscope.exporter.__main__ import TICK_S
from specscope.exporter.pipeline import Pipeline
from specscope.frames import Hello
from specscope.settings import Settings
from traffic import CHAIN, PROMPT, SHORT, TREE, Traffic

DRAFTS = {"chain of 3": SHORT, "chain of 4": CHAIN, "tree of 16": TREE}


def measure(batch: int, nodes: int, detail: str, given: argparse.Namespace) -> str:
    with Sink(opened=True) as sink:
        found, pump = start(sink.endpoint, detail)
        before = sink.sent()  # the first heartbeats
        every = found.settings.sample_every
        traffic = Traffic(
            found.instance, batch, nodes, looks=not given.no_hidden, every=every, prompt=given.prompt
        )
        records, began = 0, time.monotonic()
        while (now := time.monotonic()) < began + given.seconds:
            if (ahead := began + traffic.steps / given.rate - now) > 0:
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


def told(batch: int, nodes: int, detail: str, given: argparse.Namespace) -> str:
    """The same by a clock of our own, one export every :data:`TICK_S` seconds."""
    settings = Settings(detail=detail)
    every = 1 if detail == c.DETAIL_FULL else settings.sample_every
    start, instance, ranks = time.time_ns(), "0" * 32, identity.Ranks()
    hello = Hello(
        settings, instance, identity.process_uid(instance, "scheduler", ranks, 1, start), 1, start,
        "scheduler", ranks, "bench", "0", Anchor(0, start),
    )  # fmt: skip
    spans: list[ReadableSpan] = []
    pipeline = Pipeline(hello, spans.append)
    traffic = Traffic(instance, batch, nodes, looks=not given.no_hidden, every=every, prompt=given.prompt)
    found, now_ns, next_ns = Sent(), 0, 0

    def export(*, last: bool = False) -> None:
        pipeline.tick(now_ns, last=last)
        if spans:
            message = encode_spans(spans).SerializeToString()
            count(found, gzip.compress(message), zipped=True, path="/v1/traces")
            spans.clear()

    for number in range(int(given.seconds * given.rate)):
        now_ns = int(number / given.rate * 1e9)
        for record in traffic.step():
            pipeline.take(replace(record, t_ns=now_ns), now_ns)
        if now_ns >= next_ns:
            next_ns = now_ns + int(TICK_S * 1e9)
            export()
    for record in traffic.end():
        pipeline.take(replace(record, t_ns=now_ns), now_ns)
    export(last=True)
    dropped = dict(pipeline.dropped)
    return row(found, Sent(), traffic, given.seconds) + f" {given.rate:.0f} | {dropped or 'none'} |"


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
    parser.add_argument("--details", nargs="+", choices=c.DETAIL_LEVELS, default=c.DETAIL_LEVELS)
    parser.add_argument("--drafts", nargs="+", choices=tuple(DRAFTS), default=tuple(DRAFTS))
    parser.add_argument("--prompt", type=int, default=PROMPT, help="tokens of each prompt")
    parser.add_argument("--clock", choices=("real", "told"), default="real")
    parser.add_argument("--no-hidden", action="store_true", help="hidden states are not looked at")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        "| drafts | batch | detail | bytes a sequence-step | an engine step | a request | a sequence-step, "
        "chunks alone | KiB/s | plain : sent | chunks | requests | rollups | heartbeats | steps/s | dropped |"
    )
    print("|---" * 15 + "|")
    way = told if given.clock == "told" else measure
    for name in given.drafts:
        for batch in given.batches:
            for detail in given.details:
                print(
                    f"| {name} | {batch} | {detail} |" + way(batch, DRAFTS[name], detail, given),
                    flush=True,
                )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
