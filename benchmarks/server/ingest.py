"""From POST to commit: the tracer's exports into ``specscope serve`` over HTTP and gRPC."""

from __future__ import annotations

import http.client
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from crash.victim import Victim
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from storekit import postgres

from benchmarks.server import machine
from benchmarks.server.bodies import Body

SENDERS = 4
"""Connections that send at once, each the next export when the last one is answered."""
WARM = 8
"""Exports before the clock starts: imports and compiled statements are paid once a server."""
GRPC = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
Send = Callable[[Body], bool]


@dataclass(frozen=True)
class Rate:
    """One run: steps acknowledged, wall and CPU seconds of server and database, bytes."""

    store: str
    protocol: str
    workers: int
    steps: int
    wall_s: float
    server_s: float
    database_s: float
    disk_bytes: int
    stored_bytes: int
    exports: int

    @property
    def per_s(self) -> float:
        """Steps committed a second of wall time."""
        return self.steps / self.wall_s

    @property
    def per_core_s(self) -> float:
        """Steps a CPU second of the server and the database together."""
        return self.steps / (self.server_s + self.database_s)


@contextmanager
def database(store: str) -> Generator[tuple[str, int | None, Callable[[], int]]]:
    """A database of its own: address, process id if it is a server, and its size in bytes on disk."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="specscope-bench-") as place:
            folder = Path(place)
            url = f"sqlite:///{folder / 'store.db'}"
            yield url, None, lambda: sum(one.stat().st_size for one in folder.glob("*.db*"))
        return
    with postgres.server(durable=True) as server:
        name = server.create()

        def size() -> int:
            with server.connect(name) as connection:
                [(found,)] = connection.execute("SELECT pg_database_size(current_database())").fetchall()
            return int(found)

        yield server.url(name), server.process.pid, size


@contextmanager
def _http(port: int) -> Generator[Send]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}

    def send(body: Body) -> bool:
        connection.request("POST", "/v1/traces", body.zipped, headers)
        answer = connection.getresponse()
        told = answer.read()
        if answer.status in (429, 503):
            return False
        if answer.status != 200 or ExportTraceServiceResponse.FromString(told).partial_success.rejected_spans:
            raise RuntimeError(f"the server answered {answer.status}: {told!r}")
        return True

    try:
        yield send
    finally:
        connection.close()


@contextmanager
def _grpc(port: int) -> Generator[Send]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(GRPC)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

        def send(body: Body) -> bool:
            try:
                told: bytes = call(body.plain, timeout=60)
            except grpc.RpcError as error:
                if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE:
                    return False
                raise
            if ExportTraceServiceResponse.FromString(told).partial_success.rejected_spans:
                raise RuntimeError("the server rejected spans")
            return True

        yield send


def deliver(connect: Callable[[], AbstractContextManager[Send]], bodies: Sequence[Body]) -> float:
    """Send every export until it is taken, some at once; return the wall seconds."""
    following, failed = itertools.count(), list[Exception]()

    def work() -> None:
        try:
            with connect() as send:
                while not failed and (at := next(following)) < len(bodies):
                    while not send(bodies[at]):
                        time.sleep(0.05)
        except Exception as error:  # noqa: BLE001 - told by whoever waits for the threads
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(SENDERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failed:
        raise failed[0]
    return took


def measure(store: str, protocol: str, workers: int, bodies: Sequence[Body]) -> Rate:
    """Send the exports to a new server on a new database."""
    with database(store) as (url, backend, size), tempfile.TemporaryDirectory() as place:
        victim = Victim(url, Path(place), workers)
        victim.start()
        try:
            victim.wait()
            pid = victim.pid

            def connect():
                return _http(victim.port) if protocol == "http" else _grpc(victim.grpc_port)

            deliver(connect, bodies[:WARM])
            rest = bodies[WARM:]
            empty = size()
            server, data = machine.cpu_s(pid), 0.0 if backend is None else machine.cpu_s(backend)
            disk = machine.written(pid) + (0 if backend is None else machine.written(backend))
            wall = deliver(connect, rest)
            server = machine.cpu_s(pid) - server
            data = 0.0 if backend is None else machine.cpu_s(backend) - data
            disk = machine.written(pid) + (0 if backend is None else machine.written(backend)) - disk
            victim.end()
        finally:
            victim.kill()
        steps = sum(body.steps for body in rest)
        return Rate(store, protocol, workers, steps, wall, server, data, disk, size() - empty, len(rest))
