"""The same verify steps into Arize Phoenix: a span a step, which is what it can hold, as its users send them.

A real Phoenix server of its own (``.envs/phoenix``) with its SQLite store. It acknowledges before it stores,
so that what counts are the rows in its database, watched until they grow no more.
"""

from __future__ import annotations

import gzip
import http.client
import os
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crash.victim import free_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from specscope import chunks
from specscope import convention as c
from specscope.chunks import StepRow
from wirekit.receiver import attributes_of

from benchmarks.server import bodies, machine

PROGRAM = Path(__file__).parents[2] / ".envs" / "phoenix" / "bin" / "phoenix"
SPANS = 512
"""Spans of one export, the SDK's batch."""
SENDERS = 2
QUIET_S = 60.0
"""Seconds without a new row after which it is taken to have stored all that it will."""
START_S = 180.0


@dataclass(frozen=True)
class Stored:
    """One run: spans sent, acknowledged and stored, and what it took from the first byte to the last row."""

    version: str
    acknowledged: int
    acknowledged_s: float
    stored: int
    wall_s: float
    cpu_s: float
    bytes_a_step: float

    @property
    def per_s(self) -> float:
        """Steps durably stored a second of wall time."""
        return self.stored / self.wall_s

    @property
    def per_core_s(self) -> float:
        """Steps durably stored a CPU second of the server."""
        return self.stored / self.cpu_s


def _steps() -> Iterator[tuple[str, bytes, bytes, StepRow]]:
    """Each verify step with request id, trace id and span id of its request; again and again as other's."""
    told = [
        (attributes_of(span.attributes), span)
        for message in bodies.templates()
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.name == c.SPAN_STEPS
    ]
    steps = [
        (values[c.REQUEST_UID], span.trace_id, span.parent_span_id, row)
        for values, span in told
        for row in chunks.unpack_steps(values[c.CHUNK_STEPS])
    ]
    cycle = 0
    while True:
        for uid, trace, parent, row in steps:
            mark = cycle.to_bytes(4, "big")
            yield f"{cycle:08x}{uid[8:]}", mark + trace[4:], mark + parent[4:], row
        cycle += 1


def exports(count: int) -> list[bytes]:
    """``count`` exports of a span a step, with what a step says as attributes, as sent."""
    following, made = _steps(), list[bytes]()
    for _ in range(count):
        message = ExportTraceServiceRequest()
        scope = message.resource_spans.add().scope_spans.add()
        scope.scope.name = "benchmark"
        for _ in range(SPANS):
            uid, trace, parent, row = next(following)
            span = scope.spans.add()
            span.trace_id, span.span_id, span.parent_span_id = trace, os.urandom(8), parent
            span.name = "verify step"
            span.start_time_unix_nano, span.end_time_unix_nano = row.t, row.t + 8_000_000
            for name in chunks.STEP_COLUMNS:
                value = getattr(row, name)
                if isinstance(value, (int, float)):
                    pair = span.attributes.add()
                    pair.key = f"spec_decode.step.{name}"
                    if isinstance(value, int):
                        pair.value.int_value = value
                    else:
                        pair.value.double_value = value
            pair = span.attributes.add()
            pair.key, pair.value.string_value = c.REQUEST_UID, uid
        made.append(gzip.compress(message.SerializeToString()))
    return made


def installed() -> str:
    """The version of Phoenix in its environment, empty where there is none."""
    found = next(PROGRAM.parents[1].glob("lib/python*/site-packages/arize_phoenix-*.dist-info"), None)
    return "" if found is None else found.name.split("-")[1].removesuffix(".dist")


def measure(seconds: float) -> Stored:
    """Send for so many seconds as fast as it acknowledges, then wait for the last row."""
    made = exports(60)
    with tempfile.TemporaryDirectory(prefix="specscope-phoenix-") as place:
        folder, port = Path(place), free_port()
        environment = os.environ | {
            "PHOENIX_WORKING_DIR": place,
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        environment.pop("PYTHONPATH", None)
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [PROGRAM, "serve"],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            _wait(server, port, folder)
            return _run(server.pid, port, folder, made, seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.5)
    raise RuntimeError(f"Phoenix did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}")


def _rows(path: Path) -> int:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    try:
        return connection.execute("SELECT count(*) FROM spans").fetchone()[0]
    finally:
        connection.close()


def _run(pid: int, port: int, folder: Path, made: list[bytes], seconds: float) -> Stored:
    path = folder / "phoenix.db"
    empty, before = _size(folder), machine.cpu_s(pid)
    taken: list[int] = [0] * SENDERS
    began = time.monotonic()
    threads = [
        threading.Thread(target=_send, args=(port, made[n::SENDERS], began + seconds, taken, n))
        for n in range(SENDERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    acknowledged_s = time.monotonic() - began
    rows, last, cpu = 0, time.monotonic(), before
    while time.monotonic() - last < QUIET_S:
        if (found := _rows(path)) != rows:
            rows, last = found, time.monotonic()
            cpu = machine.cpu_s(pid)
        time.sleep(0.5)
    if not rows:
        raise RuntimeError(f"Phoenix stored nothing: {(folder / 'log').read_text(errors='replace')[-2000:]}")
    size = (_size(folder) - empty) / rows
    spans = SPANS * sum(taken)
    return Stored(installed(), spans, acknowledged_s, rows, last - began, cpu - before, size)


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.glob("phoenix.db*"))


def _send(port: int, made: list[bytes], until: float, taken: list[int], number: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    for body in made:
        status = 0
        while status != 200:
            if time.monotonic() > until:
                connection.close()
                return
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            answer.read()
            status = answer.status
            if status != 200:
                time.sleep(0.2)
        taken[number] += 1
    connection.close()
