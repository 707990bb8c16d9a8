"""What recording costs the engine: ``python benchmarks/tracer/record_path.py [--seconds N]``.

Three numbers by batch size, with a real exporter process and a receiver that takes everything:

- *emit*: time of the engine thread to build and queue one verify step with ids and tree (chain of 3), ns:
  least and median of a paced run;
- *pump*: CPU time of the drain thread over wall time, at 100 verify steps a second: what it may hold the
  GIL for, at most;
- *exporter*: CPU time of the exporter process a sequence-step, and how many it takes a second at most.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from specscope import contracts, identity, recorder
from specscope import records as r
from specscope.settings import Settings

RATE = 100
CONTRACT = contracts.contract("EAGLE3", contracts.Shape(3, fc=True, map=True))
CROSSED = {(boundary, source, "eager"): n for (boundary, source), n in CONTRACT.verify.items()}


class Handler(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read and answer."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def receive(pipe: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_address[1])
    server.serve_forever()


def step(number: int, uids: tuple[str, ...]) -> r.VerifyStep:
    n = len(uids)
    drafts = (17, 900 + number % 97, 40_000 + number % 1013)
    return r.VerifyStep(
        t_ns=time.monotonic_ns(),
        step=number,
        mode="eager",
        batch_size=n,
        uids=uids,
        rows=tuple(range(n)),
        context=(100 + 3 * number,) * n,
        drafted_depth=(3,) * n,
        drafted_nodes=(3,) * n,
        accepted=(2,) * n,
        bonus=(1,) * n,
        committed=(3,) * n,
        expected=CONTRACT.verify,
        crossed=CROSSED,
        draft_tokens=(drafts,) * n,
        parents=((-1, 0, 1),) * n,
        accepted_path=((0, 1),) * n,
        output_ids=((*drafts[:2], 5),) * n,
    )


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(endpoint: str, batch: int) -> tuple[recorder.Recorder, tuple[str, ...], int]:
    settings = Settings(endpoint=endpoint, detail="full", queue=1_000_000)
    found = recorder.start(
        settings, role="scheduler", ranks=identity.Ranks(), engine_name="bench", engine_version="0"
    )
    uids = tuple(identity.request_uid(found.instance, 0, f"r{i}", 0) for i in range(batch))
    prompt = tuple(i * 7 % 5000 for i in range(512))
    for i, uid in enumerate(uids):
        now = time.monotonic_ns(), time.time_ns()
        found.emit(r.RequestStarted(now[0], uid, f"r{i}", "user", now[1], 512, 0.0, 99, None, prompt))
    while found.exporter_pid is None or found.queue:
        time.sleep(0.05)
    return found, uids, found.exporter_pid


def measure(endpoint: str, batch: int, seconds: float) -> str:
    found, uids, exporter = start(endpoint, batch)
    pump = found._pump  # pyright: ignore[reportPrivateUsage]
    assert pump is not None
    # Paced: what an engine feels.
    spent: list[int] = []
    cpu, wall, count = pump.cpu_ns, time.monotonic_ns(), 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        before = time.perf_counter_ns()
        found.emit(step(count, uids))
        spent.append(time.perf_counter_ns() - before)
        count += 1
        time.sleep(1 / RATE)
    time.sleep(0.2)
    share = (pump.cpu_ns - cpu) / (time.monotonic_ns() - wall)
    # At once: what the exporter can take.
    burst = max(200, 20_000 // batch)
    used, began = cpu_s(exporter), time.monotonic()
    for number in range(burst):
        found.emit(step(count + number, uids))
    sent = batch + count + burst
    while (ack := pump.ack) is None or ack.settled < sent:
        time.sleep(0.05)
    took = time.monotonic() - began
    per_row = (cpu_s(exporter) - used) / (burst * batch)
    dropped = found.dropped()
    found.close()
    middle = statistics.median(spent)
    return (
        f"| {batch} | {min(spent)} | {middle:.0f} | {middle / batch:.0f} | {share:.3%} "
        f"| {per_row * 1e6:.0f} | {burst * batch / took:.0f} | {dropped or 'none'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="paced part, for each batch size")
    seconds: float = parser.parse_args().seconds
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs,), daemon=True)
    server.start()
    endpoint = f"http://127.0.0.1:{ours.recv()}"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        "| batch | emit, least ns | emit, median ns | median a sequence | pump, share of the GIL at most "
        "| exporter, µs CPU a sequence-step | sequence-steps a second at most | dropped |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for batch in (1, 8, 64):
        print(measure(endpoint, batch, seconds), flush=True)
    server.terminate()


if __name__ == "__main__":
    main()
