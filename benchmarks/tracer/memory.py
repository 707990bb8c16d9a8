"""What the tracer may hold at most: ``python benchmarks/tracer/memory.py``.

With the default settings and the records of :mod:`traffic` at detail ``full``, resident memory in MiB of

- the exporter: when it has answered, when its buffer has overflown because nobody listens, and after as many
  spans again;
- the engine's process: what importing and starting the recorder adds, and what a full queue adds, with an
  exporter that is stopped.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import socket
import time
from pathlib import Path

from specscope import identity, recorder
from specscope.settings import Settings
from traffic import CHAIN, Traffic


def memory(pid: int | str, field: str = "VmRSS:") -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition(field)[2].split()[0]) / 1024


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def start(endpoint: str) -> tuple[recorder.Recorder, int]:
    """A recorder with the default buffers, and the process id of its exporter."""
    found = recorder.start(
        Settings(endpoint=endpoint, detail="full", sample_every=1),
        role="scheduler",
        ranks=identity.Ranks(),
        engine_name="bench",
        engine_version="0",
    )
    while found.exporter_pid is None:
        time.sleep(0.05)
    return found, found.exporter_pid


def buffer_full(batch: int, endpoint: str) -> tuple[float, float, float]:
    """The exporter's memory at its start, when its buffer overflows, and its peak once it turned over."""
    found, pid = start(endpoint)
    traffic = Traffic(found.instance, batch, CHAIN, looks=True, every=1)
    at_start = memory(pid)
    first, dropped, enough = 0.0, 0, 0
    while not first or dropped < enough:
        for record in traffic.step():
            found.emit(record)
        while len(found.queue) > 1000:
            time.sleep(0.01)
        pump = found._pump  # pyright: ignore[reportPrivateUsage]
        dropped = 0 if pump is None or pump.ack is None else pump.ack.dropped.get("buffer_full", 0)
        if dropped and not first:
            first, enough = memory(pid), dropped + 2000
    peak = memory(pid, "VmHWM:")
    found.close()
    os.kill(pid, signal.SIGKILL)
    return at_start, first, peak


def queue_full(batch: int, endpoint: str) -> tuple[float, float]:
    """What a started recorder adds to the engine's process, and a queue that is full and turns over."""
    before = memory("self")
    found, pid = start(endpoint)
    started = memory("self")
    os.kill(pid, signal.SIGSTOP)
    traffic = Traffic(found.instance, batch, CHAIN, looks=True, every=1)
    while found.emitted < 3 * Settings().queue:
        for record in traffic.step():
            found.emit(record)
    full = memory("self")
    os.kill(pid, signal.SIGKILL)
    found.close()
    return started - before, full - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--only", choices=("queue", "buffer"))
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if given.only != "buffer":
        print("\n| batch | engine process: recorder started | queue full |\n|---|---|---|")
        for batch in given.batches:
            started, full = queue_full(batch, nobody())
            print(f"| {batch} | {started:+.1f} MiB | {full:+.1f} MiB |", flush=True)
    if given.only != "queue":
        print("\n| batch | exporter at start | buffer full | peak |\n|---|---|---|---|")
        for batch in given.batches:
            at_start, first, peak = buffer_full(batch, nobody())
            print(f"| {batch} | {at_start:.0f} MiB | {first:.0f} MiB | {peak:.0f} MiB |", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
