"""The OTLP/gRPC services, in the event loop of the HTTP server: one admission counts the exports of both.

An export is a unary call; the handlers are those of a client's stream, which is the same on the wire, because
that way they run before the message is read, and can refuse it first. Messages are inflated here: gRPC up to
1.80 inflates one whole before it looks at its size (measured: 300 MB at a limit of 1 MiB).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import grpc
import grpc.aio
from google.rpc import code_pb2  # pyright: ignore[reportMissingTypeStubs]

from specscope_server.ingest.body import Arrived, Ticket
from specscope_server.ingest.content import Format
from specscope_server.ingest.inflate import Encoding, Inflater
from specscope_server.ingest.receiver import Receiver
from specscope_server.ingest.refusal import GRPC_CODES, Refusal
from specscope_server.ingest.signals import SIGNALS, Signal
from specscope_server.ingest.stats import GRPC

DRAIN_S: Final = 5
"""Seconds that exports under way get to finish at shutdown, after those of HTTP had theirs."""
READERS: Final = 8
"""Messages read at once: gRPC holds all of one before it hands it over, so that up to so many of the largest
are in memory beside those that the admission counts."""
PATIENCE_S: Final = 4.0
"""Seconds that a message may take to arrive while others wait to be read; below the 10 s after which the
OpenTelemetry SDKs give up. Alone it has the time of all bodies."""
GZIP_MAGIC: Final = b"\x1f\x8b"
"""Begins every gzip message and no protobuf one: it would be field 3 of wire type 7, which does not exist."""
IDENTITY_AND_GZIP: Final = 0b101
"""Bit set of gRPC's algorithms without deflate, which OTLP does not ask for and no magic tells apart."""
PING_MS: Final = 10_000
"""A client may ping that often to keep its connection; gRPC's own minimum of 5 minutes would end it."""
MAX_DETAILS: Final = 1000
"""Characters of a status message: it travels twice in the trailers, of which a client reads 8 KiB."""

Context = grpc.aio.ServicerContext[Any, bytes]
Handler = Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]


class GrpcServer:
    """OTLP/gRPC for one receiver. Belongs to the event loop that it was made in."""

    def __init__(self, receiver: Receiver) -> None:
        """Make a server that listens nowhere yet."""
        self._receiver = receiver
        self._readers = asyncio.Semaphore(READERS)
        self._queued = 0
        """Exports that wait for a reader."""
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", receiver.limits.wire_bytes),
                ("grpc.per_message_decompression", 0),
                ("grpc.compression_enabled_algorithms_bitset", IDENTITY_AND_GZIP),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                # Else gRPC lets clients send megabytes ahead of messages that nobody reads yet.
                ("grpc.http2.bdp_probe", 0),
                # Who started us has made sure that the port is ours, and holds it for all our processes.
                ("grpc.so_reuseport", 1),
            )
        )
        for signal in SIGNALS.values():
            handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
                "Export": grpc.stream_unary_rpc_method_handler(cast("Any", self._handler(signal)))
            }
            services = grpc.method_handlers_generic_handler(signal.service, handlers)
            self._server.add_generic_rpc_handlers((services,))

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        """Listen on ``host:port``, with TLS where there are credentials.

        Raises:
            RuntimeError: the address cannot be listened on.
        """
        if credentials is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, credentials)
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new export, and return when those under way have ended, ``grace_s`` seconds at most."""
        await self._server.stop(grace_s)

    def _handler(self, signal: Signal) -> Handler:
        async def export(_messages: AsyncIterator[bytes], context: Context) -> bytes:
            try:
                return await self._export(signal, context)
            except Refusal as refusal:
                await self._refuse(refusal, context)

        return export

    async def _export(self, signal: Signal, context: Context) -> bytes:
        receiver = self._receiver
        workspace = await receiver.authorize(_metadata(context, "authorization"))
        with receiver.admission.enter() as ticket:
            message = await self._read(context, ticket)
            encoding = Encoding.GZIP if message.startswith(GZIP_MAGIC) else Encoding.IDENTITY
            arrived = Arrived(Inflater(encoding, receiver.limits.raw_bytes), message, len(message))
            del message
            taken = receiver.take(arrived, Format.PROTOBUF, signal, ticket, GRPC, workspace)
            work = asyncio.ensure_future(taken)
            try:
                response = await asyncio.shield(work)
            except asyncio.CancelledError:
                # The client is gone. What was begun goes on, and keeps its place until it has ended.
                await asyncio.wait((work,))
                raise
        return response.SerializeToString()

    async def _read(self, context: Context, ticket: Ticket) -> bytes:
        """Return the message as sent, held by ``ticket``.

        Raises:
            Refusal: 429, too much is being read or waiting, or it came slowly while others waited; 408, it
                did not arrive in time; 413, it is too large.
        """
        seconds = self._receiver.limits.seconds
        self._queued += 1
        try:
            async with asyncio.timeout(seconds):
                await self._readers.acquire()
        except TimeoutError as error:
            raise Refusal(
                429, f"{READERS} exports have been arriving for {seconds:g} s; try again"
            ) from error
        finally:
            self._queued -= 1
        reading = asyncio.ensure_future(context.read())
        try:
            async with asyncio.timeout(seconds):
                while not (await asyncio.wait((reading,), timeout=PATIENCE_S))[0]:
                    if self._queued:  # else a few clients that send nothing would keep all others out
                        raise Refusal(
                            429,
                            f"the message did not arrive within {PATIENCE_S:g} s, and others wait; try again",
                        )
            message = cast("bytes | object", reading.result())
        except TimeoutError as error:
            raise Refusal(408, f"the message did not arrive within {seconds:g} s") from error
        finally:
            reading.cancel()
            self._readers.release()
        if not isinstance(message, bytes):
            # gRPC has told the client by itself of a message that is too large.
            raise Refusal(
                413, f"no message, or one over the limit of {self._receiver.limits.wire_bytes} bytes"
            )
        ticket.hold(len(message))
        return message

    async def _refuse(self, refusal: Refusal, context: Context) -> NoReturn:
        code = GRPC_CODES[refusal.status]
        name = code_pb2.Code.Name(code)
        self._receiver.stats.refuse(name, refusal.message, protocol=GRPC)
        refusal.message = refusal.message[:MAX_DETAILS]
        details = refusal.rpc_status(code).SerializeToString()
        await context.abort(grpc.StatusCode[name], refusal.message, (("grpc-status-details-bin", details),))


@asynccontextmanager
async def listening(receiver: Receiver, address: str, cert: str, key: str) -> AsyncGenerator[None]:
    """Take exports on ``host:port``, with TLS where PEM files are named; drain when the block ends.

    An empty address takes none.

    Raises:
        RuntimeError: the address cannot be listened on.
    """
    if not address:
        yield
        return
    credentials = None
    if cert:
        credentials = grpc.ssl_server_credentials([(Path(key).read_bytes(), Path(cert).read_bytes())])
    server = GrpcServer(receiver)
    await server.start(address, credentials)
    try:
        yield
    finally:
        await server.stop(DRAIN_S)


def _metadata(context: Context, name: str) -> str | None:
    """Return the first value of a header; gRPC's are in lower case."""
    sent = cast("Sequence[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    found = next((value for key, value in sent if key == name), None)
    return found.decode("latin-1") if isinstance(found, bytes) else found
