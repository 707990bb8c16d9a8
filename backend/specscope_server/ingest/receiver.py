"""The OTLP/HTTP endpoints: read within limits, decode, commit, acknowledge, in that order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request, Response
from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.requests import ClientDisconnect

from specscope_server.ingest import body, content, metrics, traces
from specscope_server.ingest.body import Admission, Limits
from specscope_server.ingest.content import Encoding, Format
from specscope_server.ingest.decode import decode
from specscope_server.ingest.refusal import Refusal
from specscope_server.ingest.stats import IngestStats
from specscope_server.ingest.values import Tally
from specscope_server.store.port import Refused, Store, StoreError, Unavailable
from specscope_server.store.told import Told

DECODERS: Final = 1
"""Exports decoded at once. Hostile protobuf takes about 30 times its size in memory (measured: 8 MiB of
empty submessages become 257 MiB), and only one at a time may; Python decodes no faster on two threads."""
WRITERS: Final = 8
"""Exports written at once. The store groups their commits, so more than one shares a disk sync; each may
hold a database connection."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Signal:
    """What differs between traces and metrics."""

    name: str
    request: Callable[[], Message]
    read: Callable[[Any], tuple[Sequence[Told], Tally]]
    respond: Callable[[int, str], Message]


def _trace_response(rejected: int, message: str) -> Message:
    response = ExportTraceServiceResponse()
    if rejected or message:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    return response


def _metrics_response(rejected: int, message: str) -> Message:
    response = ExportMetricsServiceResponse()
    if rejected or message:
        response.partial_success.rejected_data_points = rejected
        response.partial_success.error_message = message
    return response


SIGNALS: Final = {
    "/v1/traces": Signal("traces", ExportTraceServiceRequest, traces.read, _trace_response),
    "/v1/metrics": Signal("metrics", ExportMetricsServiceRequest, metrics.batches_of, _metrics_response),
}


class Receiver:
    """Takes exports for one store."""

    def __init__(self, store: Store, limits: Limits, admission: Admission) -> None:
        """Take exports within ``limits`` while ``admission`` lets them in."""
        self.stats = IngestStats()
        self.limits, self.admission = limits, admission
        admission.tell = self.stats.waiting
        self._store = store
        self._decoders = CapacityLimiter(DECODERS)
        self._writers = CapacityLimiter(WRITERS)

    async def export(self, request: Request, signal: Signal) -> Response:
        """Answer one export."""
        stream = request.stream()
        try:
            return await self._take(request, signal, stream)
        except Refusal as refusal:
            self.stats.refuse(refusal.status, refusal.message)
            answer = content.refuse(refusal, request.headers)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is left to read it
        try:
            whole = await body.drain(stream, self.limits.seconds)
        except ClientDisconnect:
            whole = False
        if not whole:
            answer.headers["Connection"] = "close"
        return answer

    async def _take(self, request: Request, signal: Signal, stream: AsyncIterator[bytes]) -> Response:
        form = content.require_format(request.headers)
        encoding = content.require_encoding(request.headers)
        length = body.declared_length(request.headers.get("content-length"))
        with self.admission.enter() as ticket:
            sent = await body.read(stream, length, self.limits, ticket)
            batches, tally, size = await to_thread.run_sync(
                self._decode, sent, encoding, form, signal, limiter=self._decoders
            )
            # What waits for the database is the inflated content, which gzip can make a thousandfold.
            wire = len(sent)
            ticket.hold(max(0, size - wire))
            del sent
            await self._write(batches)
        self.stats.add(signal.name, tally, size=wire)
        message = tally.explain()
        if tally.rejected and not tally.accepted and not tally.foreign:
            raise Refusal(400, message)
        return content.answer(signal.respond(tally.rejected, message), form)

    def _decode(
        self, sent: bytes, encoding: Encoding, form: Format, signal: Signal
    ) -> tuple[Sequence[Told], Tally, int]:
        raw = body.gunzip(sent, self.limits.raw_bytes) if encoding is Encoding.GZIP else sent
        if len(raw) > self.limits.raw_bytes:
            raise body.too_large(f"{len(raw)} bytes", self.limits.raw_bytes, "after decompression")
        return *signal.read(decode(raw, form, signal.request())), len(raw)

    async def _write(self, batches: Sequence[Told]) -> None:
        """Commit; a client that goes away meanwhile does not stop it.

        Raises:
            Refusal: nothing was stored.
        """
        if not batches:
            return
        try:
            await to_thread.run_sync(
                self.stats.commit, self._store, batches, datetime.now(UTC), limiter=self._writers
            )
        except Unavailable as error:
            raise Refusal(503, f"not stored: {error}") from error
        except Refused as error:
            raise Refusal(400, f"not stored: {error}") from error
        except StoreError as error:  # a database that is damaged may be restored: the client keeps its data
            _log.error("could not store %d batches: %s", len(batches), error)
            raise Refusal(503, "not stored: the database is broken, see the server's log") from error
        except Exception as error:
            _log.exception("could not store %d batches", len(batches))
            raise Refusal(500, "not stored: the server failed, see its log") from error


def install(app: FastAPI, receiver: Receiver) -> None:
    """Add the endpoints, and an answer to every other path and method below ``/v1``."""

    async def endpoint(request: Request) -> Response:
        signal = SIGNALS.get(request.url.path)
        if signal is not None and request.method == "POST":
            return await receiver.export(request, signal)
        if signal is not None:
            refusal = Refusal(405, "exports are sent with POST", headers={"Allow": "POST"})
        else:
            refusal = Refusal(404, f"this server takes {' and '.join(SIGNALS)} alone")
        return content.refuse(refusal, request.headers)

    every = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    app.add_route("/v1/{path:path}", endpoint, methods=every, include_in_schema=False)
