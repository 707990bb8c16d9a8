"""What statistics of hidden states cost in host memory: ``python benchmarks/tracer/hidden_stats.py``.

Runs under the interpreter that has torch (``.envs/sglang/bin/python``, ``OMP_NUM_THREADS=1``). For shapes of
the tiny pair and of a large model, bfloat16: the CPU time of one :func:`specscope.tensorstats.reduce`,
without and with projections, and of torch's ``sum`` over the same tensor, in turn in one run. The *ratio* of
the two is what to compare; ``sum`` is about as fast as memory can be read. The time of both is that of the
thread, so other work on the machine adds what it takes of caches and memory, not what it takes of the core.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

from specscope import tensorstats

torch: Any = importlib.import_module("torch")

SHAPES = ((1, 1, 128), (3, 3, 128), (64, 3, 128), (256, 3, 128), (64, 3, 7168), (4096, 3, 7168))
"""Rows, slots and values a slot. 128: the tiny pair; 7168: a large model."""


def time_of(calls: list[Callable[[], object]], seconds: float) -> list[list[float]]:
    """Return microseconds of CPU of each call, taken in turn for ``seconds`` and at least five times."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(taken[0]) < 5:
        for call, times in zip(calls, taken, strict=True):
            began = time.thread_time_ns()
            call()
            times.append((time.thread_time_ns() - began) / 1e3)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure statistics of hidden states in host memory.")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, torch {torch.__version__}, 1 thread"
    )
    print("| rows | columns | sum, µs | reduce, µs median | least | ratio of medians | of least | µs a row |")
    print("|---|---|---|---|---|---|---|---|")
    for n, slots, width in SHAPES:
        rows = torch.randn(n, slots * width, generator=torch.Generator().manual_seed(1)).bfloat16()
        read, plain, full = time_of(
            [
                rows.sum,
                lambda rows=rows, slots=slots: tensorstats.reduce(rows, slots, projections=False),
                lambda rows=rows, slots=slots: tensorstats.reduce(rows, slots, projections=True),
            ],
            seconds,
        )
        for columns, taken in ((6, plain), (14, full)):
            middle, least = statistics.median(taken), min(taken)
            print(
                f"| [{n}, {slots} × {width}] | {columns} | {statistics.median(read):.1f} | {middle:.1f} | "
                f"{least:.1f} | {middle / statistics.median(read):.1f} | {least / min(read):.1f} | "
                f"{middle / n:.2f} |"
            )


if __name__ == "__main__":
    main()
