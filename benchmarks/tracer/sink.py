"""A receiver in a process of its own that takes everything and counts what it was sent."""

from __future__ import annotations

import gzip
import multiprocessing
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

METRICS = "metrics"


@dataclass
class Sent:
    """Bytes by what they tell: a span's name, or :data:`METRICS`."""

    bodies: Counter[str] = field(default_factory=Counter[str])
    """Bytes of the bodies as they were sent, a body's bytes shared out by the size of its spans."""
    plain: Counter[str] = field(default_factory=Counter[str])
    """The same before compression."""
    exports: int = 0
    finished: int = 0
    """Request spans of requests that have ended."""


def _handler(sent: Sent, *, opened: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            if opened:
                count(sent, body, zipped=self.headers.get("content-encoding") == "gzip", path=self.path)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


def count(sent: Sent, body: bytes, *, zipped: bool, path: str) -> None:
    """Add a body that came to ``path``."""
    plain = gzip.decompress(body) if zipped else body
    sizes: Counter[str] = Counter()
    if path.endswith("/v1/traces"):
        for resource in ExportTraceServiceRequest.FromString(plain).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    sizes[span.name] += span.ByteSize()
                    state = [a.value.string_value for a in span.attributes if a.key.endswith("request.state")]
                    sent.finished += span.name.endswith(".request") and state == ["finished"]
    else:
        sizes[METRICS] = len(plain)
    whole = sum(sizes.values())
    for name, size in sizes.items():
        sent.bodies[name] += round(len(body) * size / whole)
        sent.plain[name] += size
    sent.exports += 1


def _serve(pipe: Connection, opened: bool) -> None:
    sent = Sent()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(sent, opened=opened))
    Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_address[1])
    while pipe.recv():
        pipe.send(sent)


class Sink:
    """The receiver's process; ``opened`` looks into what it takes, else it costs next to nothing."""

    def __init__(self, *, opened: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, opened), daemon=True)
        self._process.start()
        self.endpoint = f"http://127.0.0.1:{self._pipe.recv()}"

    def sent(self) -> Sent:
        """Return the counts so far."""
        self._pipe.send(True)
        return self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()
