"""``python -m crash``: kill the server over and over under load; nothing acknowledged may be lost or doubled.

    make crash-test                              100 kills on SQLite, 100 on PostgreSQL
    make crash-test ARGS="--store sqlite --kills 20 --seed 7 --workers 2"

What is killed and after how many exports follows from the seed; where in an export it hits does not, because
processes take turns as the kernel likes. Ends with 1 when anything was lost, doubled or miscounted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from storekit import postgres

from crash.kills import BACKEND, SERVER, START, Outcome, backends, run
from crash.victim import takes_grpc

STORES = ("sqlite", "postgresql")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m crash", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="of each store (default %(default)s)")
    parser.add_argument("--store", choices=STORES, action="append", help="default: both, one after the other")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="default: by the clock")
    parser.add_argument("--workers", type=int, default=1, help="of the server on PostgreSQL")
    options = parser.parse_args()
    print(f"seed {options.seed}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"OTLP/gRPC sender: {'yes' if takes_grpc() else 'no, this server has no --grpc-port'}", flush=True)
    outcomes = [_of(store, options) for store in options.store or STORES]
    _print(outcomes)
    return 0 if all(one.sound for one in outcomes) else 1


def _of(store: str, options: argparse.Namespace) -> Outcome:
    say = partial(print, flush=True)
    with tempfile.TemporaryDirectory(prefix="specscope-crash-") as place:
        folder = Path(place)
        if store == "sqlite":
            url = f"sqlite:///{folder / 'store.db'}"
            return run(store, url, folder, kills=options.kills, seed=options.seed, say=say)
        with postgres.server(durable=True) as server:
            name = server.create()
            return run(
                store,
                server.url(name),
                folder,
                kills=options.kills,
                seed=options.seed,
                workers=options.workers,
                database=partial(backends, server, name),
                say=say,
            )


def _print(outcomes: list[Outcome]) -> None:
    def line(what: str, *values: object) -> None:
        print(f"{what:42}" + "".join(f"{value!s:>14}" for value in values))

    print()
    line("", *(one.store for one in outcomes))
    for what in (SERVER, START, BACKEND):
        line(f"kills of the {what}", *(one.kills[what] for one in outcomes))
    line("  with an export under way", *(one.busy for one in outcomes))
    line("exports sent", *(one.exports for one in outcomes))
    line("exports acknowledged", *(one.acknowledged for one in outcomes))
    for what in dict.fromkeys(name for one in outcomes for name in one.report.compared):
        line(f"{what}, compared", *(one.report.compared[what] for one in outcomes))
    for what in dict.fromkeys(name for one in outcomes for name in one.report.wrong):
        line(f"WRONG {what}", *(one.report.wrong[what] for one in outcomes))
    line("tracebacks in the server's log", *(one.tracebacks for one in outcomes))
    line("seconds", *(round(one.seconds) for one in outcomes))
    line("", *("sound" if one.sound else "BROKEN" for one in outcomes))
    for one in outcomes:
        for example in one.report.examples:
            print(f"{one.store}: {example}")


if __name__ == "__main__":
    sys.exit(main())
