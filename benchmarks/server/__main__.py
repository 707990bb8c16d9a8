"""``make bench-server``: the receiver, the stores and the questions to them, and Arize Phoenix beside them.

    make bench-server                                        all but 100 M steps and Phoenix' installation
    make bench-server ARGS="--only ingest --exports 400"     a part of it
    make bench-server ARGS="--only reading --steps 100M"     about 7 GB of disk and some minutes on SQLite
    make bench-server ARGS="--only evaluate --engines 1000"  what a round of all rules on all engines takes

Phoenix is measured where ``.envs/phoenix`` has it (``--install-phoenix`` makes that). Prints Markdown tables
for docs/benchmarks.md. Leave the machine idle.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.server import bodies, evaluate, ingest, machine, phoenix, reading, stages

PARTS = ("ingest", "stages", "reading", "evaluate", "phoenix")
SIZES = {"1M": 1_000_000, "10M": 10_000_000, "100M": 100_000_000}
RUNS = (
    *(("sqlite", "http", 1), ("sqlite", "grpc", 1)),
    *(("postgresql", "http", 1), ("postgresql", "grpc", 1), ("postgresql", "http", 2)),
)
"""SQLite has one writer: its server is one process."""


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--exports", type=int, default=400, help="of 4096 steps each (default %(default)s)")
    parser.add_argument("--steps", choices=SIZES, action="append", help="sizes to read at; default 1M, 10M")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), action="append", help="default: both")
    parser.add_argument("--engines", type=int, default=1000, help="to evaluate (default %(default)s)")
    parser.add_argument("--phoenix-seconds", type=float, default=20.0, help="default %(default)s")
    parser.add_argument("--install-phoenix", action="store_true", help="into .envs/phoenix, with pip")
    options = parser.parse_args()
    parts, stores = options.only or PARTS, options.store or ["sqlite", "postgresql"]
    if options.install_phoenix:
        _install()
    print(machine.line())
    with tempfile.TemporaryDirectory() as place:
        print(f"a write of 500 kB with its sync to this disk: {machine.sync_ms(Path(place)):.1f} ms\n")
    ours = 0.0
    if "ingest" in parts or "stages" in parts:
        made = list(bodies.bodies(options.exports))
        steps = sum(body.steps for body in made)
        zipped, plain = sum(len(body.zipped) for body in made), sum(len(body.plain) for body in made)
        print(f"{len(made)} exports, {steps:,} verify steps;", end=" ")
        print(f"{zipped / steps:.1f} bytes a step as sent over HTTP, {plain / steps:.1f} over gRPC\n")
        if "ingest" in parts:
            ours = _ingest(made, stores)
        if "stages" in parts:
            _stages(made[:80], stores)
    if "reading" in parts:
        _reading(stores, [SIZES[name] for name in options.steps or ("1M", "10M")])
    if "evaluate" in parts:
        _evaluate(stores, options.engines)
    if "phoenix" in parts:
        _phoenix(options.phoenix_seconds, ours)
    return 0


def _install() -> None:
    place = phoenix.PROGRAM.parents[1]
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "pip", "install", "--quiet", "arize-phoenix>=20,<21"], check=True)


def _ingest(made: list[bodies.Body], stores: list[str]) -> float:
    """Print what is committed; return the steps a second of SQLite over HTTP."""
    print(
        "| store | protocol | workers | steps/s | steps/s per core | server, cores | database, cores |",
        end="",
    )
    print(" MB/s to disk | ms an export | bytes a step stored |\n" + "|---" * 10 + "|")
    first = 0.0
    for store, protocol, workers in RUNS:
        if store not in stores:
            continue
        rate = ingest.measure(store, protocol, workers, made)
        first = first or rate.per_s
        print(
            f"| {store} | {protocol} | {workers} | {rate.per_s:,.0f} | {rate.per_core_s:,.0f} "
            f"| {rate.server_s / rate.wall_s:.2f} | {rate.database_s / rate.wall_s:.2f} "
            f"| {rate.disk_bytes / rate.wall_s / 1e6:.1f} | {1000 * rate.wall_s / rate.exports:.1f} "
            f"| {rate.stored_bytes / rate.steps:.1f} |",
            flush=True,
        )
    print()
    return first


def _stages(made: list[bodies.Body], stores: list[str]) -> None:
    print("| stage | " + " | ".join(f"{store}: CPU ns a step | wall" for store in stores) + " |")
    print("|---" * (1 + 2 * len(stores)) + "|")
    found: list[stages.Stages] = []
    for store in stores:
        with ingest.database(store) as (url, _, _):
            found.append(stages.measure(url, made))
    for name in stages.NAMES:
        cells = (f"{one.cpu[name]:,.0f} | {one.wall[name]:,.0f}" for one in found)
        print(f"| {name} | {' | '.join(cells)} |")
    print(flush=True)


def _reading(stores: list[str], sizes: list[int]) -> None:
    print(
        "| store | steps | loaded, steps/s | bytes a step | question | store p50, ms | p99 | API p50 | p99 |"
    )
    print("|---" * 9 + "|")
    for store in stores:
        for steps in sizes:
            with ingest.database(store) as (url, _, size):
                found = reading.measure(url, steps, size)
            for one in found.answers:
                print(
                    f"| {store} | {found.steps:,} | {found.steps / found.load_s:,.0f} "
                    f"| {found.bytes_a_step:.0f} | {one.question} | {one.store[0]:.2f} | {one.store[1]:.2f} "
                    f"| {one.api[0]:.2f} | {one.api[1]:.2f} |",
                    flush=True,
                )
    print()


def _evaluate(stores: list[str], engines: int) -> None:
    print("| store | engines | a round in which | CPU s, mean | most | database, CPU s | rules firing |")
    print("|---" * 7 + "|")
    for store in stores:
        with ingest.database(store) as (url, database, _):
            for one in evaluate.measure(url, engines, database):
                print(
                    f"| {store} | {engines:,} | {one.kind} | {one.mean_s:.2f} | {one.most_s:.2f} "
                    f"| {one.database_s:.2f} | {one.firing} |",
                    flush=True,
                )
        print(machine.line())
    print()


def _phoenix(seconds: float, ours: float) -> None:
    version = phoenix.installed()
    if not version:
        print("Arize Phoenix: not measured, .envs/phoenix has none (--install-phoenix)")
        return
    found = phoenix.measure(seconds)
    print(f"Arize Phoenix {version}, SQLite, a span a step, HTTP: {found.acknowledged:,} steps", end=" ")
    print(f"acknowledged within {found.acknowledged_s:.0f} s,", end=" ")
    print(f"{found.stored:,} stored within {found.wall_s:.0f} s:")
    print(f"{found.per_s:,.0f} steps/s durably stored, {found.per_core_s:,.0f} per core,", end=" ")
    print(f"{found.bytes_a_step:,.0f} bytes a step")
    if ours:
        times = ours / found.per_s
        print(f"SpecScope into SQLite over HTTP in the same run: {times:,.0f} times as many a second")


if __name__ == "__main__":
    sys.exit(main())
