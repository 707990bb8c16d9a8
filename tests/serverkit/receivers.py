"""A real HTTP receiver in a thread, whose answers a test scripts."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import socket
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Got:
    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes


class Receiver:
    """Answers with ``answers`` in turn, the last one for ever; ``hold`` makes it wait before it answers."""

    def __init__(self, answers: Sequence[int] = (200,), hold: threading.Event | None = None) -> None:
        self.got: list[Got] = []
        self.arrived = threading.Semaphore(0)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append(Got(self.path, headers, json.loads(raw), raw))
                receiver.arrived.release()
                if hold is not None:
                    hold.wait(30)
                status = answers[min(len(receiver.got), len(answers)) - 1]
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def closed_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def root_log() -> Generator[io.StringIO]:
    """Collect what a server's log would show at its most talkative.

    pytest's own ``caplog`` also listens to loggers that do not propagate.
    """
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
