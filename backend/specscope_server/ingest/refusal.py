"""Why an export is not taken: the HTTP status, the matching ``google.rpc`` code and a message."""

from __future__ import annotations

from typing import Final

from google.rpc import code_pb2  # pyright: ignore[reportMissingTypeStubs] - it ships them beside itself

RPC_CODES: Final = {
    400: code_pb2.INVALID_ARGUMENT,
    404: code_pb2.NOT_FOUND,
    405: code_pb2.UNIMPLEMENTED,
    408: code_pb2.DEADLINE_EXCEEDED,
    413: code_pb2.INVALID_ARGUMENT,
    415: code_pb2.INVALID_ARGUMENT,
    429: code_pb2.RESOURCE_EXHAUSTED,
    500: code_pb2.INTERNAL,
    503: code_pb2.UNAVAILABLE,
}
"""``google.rpc.Code`` told with each HTTP status. Of these, OTLP lets a client retry 429 and 503 alone."""

RETRY_AFTER_S: Final = 2
"""Seconds a client is asked to wait; long enough for a commit, short against the tracer's own buffer."""


class Refusal(Exception):
    """The whole request is refused; nothing of it was stored."""

    def __init__(self, status: int, message: str, *, headers: dict[str, str] | None = None) -> None:
        """Say no with an HTTP ``status`` of :data:`RPC_CODES`."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
