"""A gate before the receivers: it refuses, hangs, fails or delays, and passes on what it lets through."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sglang_engine import free_port

PASS = 200
PASSED_ON = ("Content-Type", "Content-Encoding")


@dataclass(frozen=True)
class Mood:
    """How the gate answers. ``status`` 200 passes on; ``hangs`` accepts and never answers."""

    name: str
    status: int = PASS
    hangs: bool = False
    delay_s: float = 0.0
    retry_after: str = ""
    only_spans: bool = False
    """Metrics pass all the same."""


OPEN = Mood("open")


class Gate:
    """Listens on a port of its own; each export that passes goes to every one of ``targets`` (base URLs).

    The answer of the last target is the one that the exporter gets.
    """

    def __init__(self, targets: list[str]) -> None:
        self._targets = targets
        self._mood = OPEN
        self._changed = threading.Event()
        self.attempts: Counter[str] = Counter()
        """Exports by the name of the mood that they met."""
        self._server: ThreadingHTTPServer | None = None
        self.port = free_port()  # which stays free while the gate refuses
        self._open(self.port)
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def be(self, mood: Mood) -> None:
        """Answer so from now on; whoever hangs is let go."""
        self._mood = mood
        self._changed.set()
        self._changed = threading.Event()
        if self._server is None:
            self._open(self.port)

    def refuse(self) -> None:
        """Do not listen any more, until the next mood."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._changed.set()

    close = refuse

    def _open(self, port: int) -> None:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                mood, changed = gate._mood, gate._changed
                gate.attempts[mood.name] += 1
                if mood.hangs:
                    changed.wait(600)
                    self.close_connection = True
                    return
                time.sleep(mood.delay_s)
                status, answer = mood.status, b""
                if status == PASS or (mood.only_spans and self.path != "/v1/traces"):
                    headers = {name: self.headers[name] for name in PASSED_ON if self.headers[name]}
                    status, answer = gate._pass_on(self.path, body, headers)
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                if mood.retry_after and status >= 400:
                    self.send_header("Retry-After", mood.retry_after)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # an exporter that was killed in the middle of an answer

        self._server = Server(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _pass_on(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        status, answer = PASS, b""
        for target in self._targets:
            request = urllib.request.Request(target + path, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as found:
                    status, answer = found.status, found.read()
            except urllib.error.HTTPError as error:
                status, answer = error.code, error.read()
        return status, answer
