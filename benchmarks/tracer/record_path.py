"""What recording costs beside the engine's thread: ``python benchmarks/tracer/record_path.py``.

By batch size, with the records of :mod:`traffic`, a real exporter process and a receiver that takes all:

- *GIL*: CPU time of the tracer's only other thread in the engine's process, the pump, over wall time, at 100
  engine steps a second, without that of sending, for which it lets go of the GIL: the most it can hold it.
  *device*: hidden states lie on a device, their statistics are not told; *host*: they are told for every
  request in every step. *paced*: the engine steps a second that the machine had room for. Here a process
  that throws everything away reads in the exporter's place;
- *exporter*: CPU time of the exporter process a sequence-step, and how many it takes a second at most, at the
  detail level ``--detail``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sink import Sink
from specscope import identity, recorder
from specscope.pump import Pump
from specscope.settings import Settings
from traffic import CHAIN, TREE, Traffic

RATE = 100
"""Engine steps a second: one takes 10 ms."""


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(endpoint: str, detail: str) -> tuple[recorder.Recorder, Pump]:
    """A recorder whose exporter has answered."""
    every = 1 if detail == "full" else Settings().sample_every
    settings = Settings(endpoint=endpoint, detail=detail, queue=1_000_000, sample_every=every)
    found = recorder.start(
        settings, role="scheduler", ranks=identity.Ranks(), engine_name="bench", engine_version="0"
    )
    while found.exporter_pid is None:
        time.sleep(0.05)
    pump = found._pump  # pyright: ignore[reportPrivateUsage]
    ours = {thread.name for thread in threading.enumerate()} - {threading.main_thread().name}
    assert pump is not None and ours == {"specscope-pump"}, f"threads of the tracer: {ours}"
    return found, pump


class Drain:
    """Stands in for the exporter, which does not keep up with the largest batches: reads and throws away."""

    def __init__(self, pump: Pump) -> None:
        self.sending_ns = 0
        """CPU time of the pump's sending."""
        ours, theirs = socket.socketpair()
        helper: Any = pump._keeper.helper  # pyright: ignore[reportPrivateUsage]
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, helper._socket.getsockopt(*_SEND_BUFFER) // 2)
        helper._socket.close()
        helper._socket = ours
        self._process = multiprocessing.get_context("spawn").Process(
            target=_read, args=(theirs,), daemon=True
        )
        self._process.start()
        theirs.close()
        send: Callable[[bytes], None] = helper.send

        def timed(frame: bytes) -> None:
            before = time.thread_time_ns()
            send(frame)
            self.sending_ns += time.thread_time_ns() - before

        helper.send = timed

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


_SEND_BUFFER = (socket.SOL_SOCKET, socket.SO_SNDBUF)  # the kernel tells twice what was set


def _read(connection: socket.socket) -> None:
    while connection.recv(1 << 18):
        pass


def settle(pump: Pump, records: int) -> None:
    """Wait until the receiver has everything."""
    while (ack := pump.ack) is None or ack.settled < records:
        time.sleep(0.05)


def gil(endpoint: str, batch: int, nodes: int, seconds: float, *, hidden: bool) -> tuple[float, float, float]:
    """Shares of the wall time that the pump ran without sending and that it sent, and steps a second."""
    found, pump = start(endpoint, "steps")
    traffic = Traffic(found.instance, batch, nodes, looks=hidden, every=Settings().sample_every)
    for _ in range(10):  # the first requests have come
        for record in traffic.step():
            found.emit(record)
    settled(found)
    drain = Drain(pump)
    used, began, count = pump.cpu_ns, time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        if now < began + count / RATE:
            time.sleep(began + count / RATE - now)
        for record in traffic.step():
            found.emit(record)
        count += 1
    took = time.monotonic() - began
    settled(found)
    # A machine that is too busy for the pace counts as if it had kept it.
    wall_ns = 1e9 * count / RATE
    ran, sent = pump.cpu_ns - used, drain.sending_ns
    if dropped := found.dropped():
        print(f"dropped: {dropped}")
    found.close()
    drain.close()
    return (ran - sent) / wall_ns, sent / wall_ns, count / took


def settled(found: recorder.Recorder) -> None:
    """Wait until the pump has handed everything over and told its time."""
    while found.queue:
        time.sleep(0.05)
    time.sleep(0.5)


def exporter(endpoint: str, batch: int, nodes: int, detail: str, rows: int) -> tuple[float, float]:
    """CPU seconds of the exporter a sequence-step, and sequence-steps a second at most."""
    found, pump = start(endpoint, detail)
    assert found.exporter_pid is not None
    every = found.settings.sample_every
    traffic = Traffic(found.instance, batch, nodes, looks=True, every=every)
    records = [record for _ in range(max(1, rows // batch)) for record in traffic.step()]
    records += traffic.end()
    used, began = cpu_s(found.exporter_pid), time.monotonic()
    for record in records:
        found.emit(record)
    settle(pump, len(records))
    took = time.monotonic() - began
    cpu = cpu_s(found.exporter_pid) - used
    if dropped := found.dropped():
        print(f"dropped: {dropped}")
    found.close()
    return cpu / traffic.row_steps, traffic.row_steps / took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="each measurement of the GIL")
    parser.add_argument("--rows", type=int, default=20_000, help="sequence-steps for each exporter")
    parser.add_argument("--detail", default="full", help="detail level of the exporter's part")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--only", choices=("gil", "exporter"))
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with Sink(opened=False) as sink:
        if given.only != "exporter":
            print("\n| drafts | batch | GIL, device | sending | paced | GIL, host | sending | paced |")
            print("|---|---|---|---|---|---|---|---|")
            for name, nodes in (("chain of 4", CHAIN), ("tree of 16", TREE)):
                for batch in given.batches:
                    line = f"| {name} | {batch} |"
                    for hidden in (False, True):
                        held, sent, paced = gil(sink.endpoint, batch, nodes, given.seconds, hidden=hidden)
                        line += f" {held:.2%} | {sent:.2%} | {paced:.0f} |"
                    print(line, flush=True)
        if given.only != "gil":
            print(f"\ndetail {given.detail}")
            print("| drafts | batch | exporter, µs CPU a sequence-step | sequence-steps a second at most |")
            print("|---|---|---|---|")
            for name, nodes in (("chain of 4", CHAIN), ("tree of 16", TREE)):
                for batch in given.batches:
                    cpu, most = exporter(sink.endpoint, batch, nodes, given.detail, given.rows)
                    print(f"| {name} | {batch} | {cpu * 1e6:.0f} | {most:.0f} |", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
