"""A relay between an exporter and the server that notes what the server acknowledged.

The exporter is the real one, so nobody can be asked what it was told; here it is seen on the wire. A server
that dies in the middle hangs up on the exporter as it would without a relay.
"""

from __future__ import annotations

import gzip
import http.client
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from crash.load import Load

KINDS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}
PASSED_ON = ("Content-Type", "Content-Encoding")
ANSWER_S = 60


class Relay:
    """Listens on loopback and passes exports on to ``port``."""

    def __init__(self, port: int, load: Load) -> None:
        self.answers: Counter[int] = Counter()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                plain = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
                message = KINDS[self.path].FromString(plain)
                headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
                with load.export(message) as acknowledge:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
                    try:
                        connection.request("POST", self.path, body, headers)
                        answer = connection.getresponse()
                        told = answer.read()
                    except (OSError, http.client.HTTPException):
                        self.close_connection = True  # no answer, as from the server itself
                        return
                    finally:
                        connection.close()
                    relay.answers[answer.status] += 1
                    if answer.status == 200:
                        acknowledge(_rejected(self.path, told))
                self.send_response(answer.status)
                for name in ("Content-Type", "Retry-After"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _rejected(path: str, told: bytes) -> int:
    if path != "/v1/traces":
        return 0
    return ExportTraceServiceResponse.FromString(told).partial_success.rejected_spans
