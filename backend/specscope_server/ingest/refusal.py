"""Why an export is not taken: the HTTP status, the matching ``google.rpc`` code and a message."""

from __future__ import annotations

from typing import Final

from google.rpc import code_pb2  # pyright: ignore[reportMissingTypeStubs] - it ships them beside itself
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

RPC_CODES: Final = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
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

GRPC_CODES: Final = RPC_CODES | {
    # Over gRPC the code is all a client goes by: OTLP wants a message over the limit to be this one, without
    # RetryInfo, and a server that cannot keep up to be UNAVAILABLE.
    413: code_pb2.RESOURCE_EXHAUSTED,
    429: code_pb2.UNAVAILABLE,
}
"""The gRPC status that stands for each HTTP status."""

RETRYABLE: Final = (429, 503)
RETRY_AFTER_S: Final = 2
"""Seconds a client is asked to wait; long enough for a commit, short against the tracer's own buffer."""
MAX_MESSAGE: Final = 4096
"""Characters of a message to a client: an answer stays far below the 4 MiB that OTLP's clients read."""


class Refusal(Exception):
    """The whole request is refused; nothing of it was stored."""

    def __init__(self, status: int, message: str, *, headers: dict[str, str] | None = None) -> None:
        """Say no with an HTTP ``status`` of :data:`RPC_CODES`."""
        super().__init__(message)
        self.status = status
        self.message = short(message)
        self.headers = dict(headers or {})
        if status in RETRYABLE:
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_S))

    def rpc_status(self, code: int | None = None) -> Status:
        """Return the ``google.rpc.Status``: what was bad in bad data, when to retry what may be retried."""
        status = Status(code=RPC_CODES[self.status] if code is None else code, message=self.message)
        if self.status == 400:
            violation = BadRequest.FieldViolation(field="body", description=short(self.message, 200))
            status.details.add().Pack(BadRequest(field_violations=[violation]))
        elif self.status in RETRYABLE:
            info = RetryInfo()
            info.retry_delay.seconds = RETRY_AFTER_S
            status.details.add().Pack(info)
        return status


def short(message: str, most: int = MAX_MESSAGE) -> str:
    """Return a message of at most ``most`` characters."""
    return message if len(message) <= most else message[: most - 1] + "…"
