"""Reading a request body within limits: bytes on the wire, bytes inflated, bytes of all waiting together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from specscope_server.ingest.inflate import Inflater, too_large
from specscope_server.ingest.refusal import Refusal

FEED: Final = 256 << 10
"""Bytes as sent that are gathered before they are inflated: the way to another thread and back takes 0.1 ms,
and most exports are smaller than this and take it once, to be inflated and decoded together."""
DRAIN_LIMIT: Final = 64 << 20
"""Bytes of a refused body that are read and thrown away, so that the client gets to read the answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one export may be: bytes as sent, bytes after decompression, seconds until all has arrived."""

    wire_bytes: int
    raw_bytes: int
    seconds: float


class Admission:
    """Counts exports that wait for their commit, so that a slow database cannot fill the memory.

    Used from the event loop alone, hence without a lock.
    """

    def __init__(self, requests: int, total_bytes: int) -> None:
        """Admit at most ``requests`` at once with at most ``total_bytes`` of bodies among them."""
        self._requests, self._bytes = requests, total_bytes
        self.waiting = 0
        self.waiting_bytes = 0
        self.tell: Callable[[int, int], None] = lambda _exports, _bytes: None
        """Is called with both whenever they change."""

    @contextmanager
    def enter(self) -> Generator[Ticket]:
        """Admit one export until the block is left.

        Raises:
            Refusal: 429, as many as may wait are waiting.
        """
        if self.waiting >= self._requests:
            raise Refusal(429, f"{self.waiting} exports are waiting to be stored already; try again")
        self.waiting += 1
        self.tell(self.waiting, self.waiting_bytes)
        ticket = Ticket(self)
        try:
            yield ticket
        finally:
            self.waiting -= 1
            self.waiting_bytes -= ticket.size
            self.tell(self.waiting, self.waiting_bytes)

    def hold(self, size: int) -> None:
        """Count ``size`` more bytes.

        Raises:
            Refusal: 429, they would be too many.
        """
        if self.waiting_bytes + size > self._bytes:
            raise Refusal(429, f"{self.waiting_bytes} bytes are waiting to be stored already; try again")
        self.waiting_bytes += size
        self.tell(self.waiting, self.waiting_bytes)


@dataclass(slots=True)
class Ticket:
    """One admitted export and the bytes it holds."""

    admission: Admission
    size: int = 0

    def hold(self, size: int) -> None:
        """Count ``size`` more bytes for this export, see :meth:`Admission.hold`."""
        self.admission.hold(size)
        self.size += size

    def release(self, size: int) -> None:
        """Give back ``size`` of the bytes held."""
        self.size -= size
        self.admission.hold(-size)


def declared_length(header: str | None) -> int | None:
    """Return ``Content-Length``, ``None`` when the body is chunked.

    Raises:
        Refusal: 400, it is not a number.
    """
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and len(header) < 19):
        raise Refusal(400, "Content-Length is not a number")
    return int(header)


async def arriving(
    stream: AsyncIterator[bytes], length: int | None, limits: Limits, ticket: Ticket
) -> AsyncGenerator[bytes]:
    """Give the parts of a body as they come, each held by ``ticket``.

    Only the time spent waiting for the sender counts against ``limits.seconds``.

    Raises:
        Refusal: 413, it is larger than allowed; 408, it did not arrive in time; 429, too much is waiting.
    """
    if length is not None and length > limits.wire_bytes:
        raise too_large(f"{length} bytes", limits.wire_bytes, "as sent")
    size, left = 0, limits.seconds
    parts = aiter(stream)
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(left):
                part = await anext(parts, None)
        except TimeoutError as error:
            raise Refusal(
                408,
                f"the body did not arrive within {limits.seconds:g} s ({size} bytes did)",
                headers={"Connection": "close"},
            ) from error
        if part is None:
            return
        left -= time.monotonic() - began
        size += len(part)
        if size > limits.wire_bytes:
            raise too_large(f"more than {limits.wire_bytes} bytes", limits.wire_bytes, "as sent")
        ticket.hold(len(part))
        yield part


async def read(stream: AsyncIterator[bytes], length: int | None, limits: Limits, ticket: Ticket) -> bytes:
    """Return a body as sent, see :func:`arriving`."""
    return b"".join([part async for part in arriving(stream, length, limits, ticket)])


@dataclass(slots=True)
class Arrived:
    """A body that is all there: ``rest``, as sent, is not yet inflated. ``wire`` counts all bytes as sent."""

    inflater: Inflater
    rest: bytes
    wire: int

    def inflate(self) -> bytes:
        """Return the whole body. Takes time: not for the event loop.

        Raises:
            Refusal: 413, it becomes more than the limit; 400, it is damaged.
        """
        self.inflater.feed(self.rest)
        self.rest = b""
        return self.inflater.finish()


Elsewhere = Callable[[Callable[[bytes], None], bytes], Awaitable[None]]
"""Calls a function with bytes in another thread."""


async def inflating(
    parts: AsyncIterator[bytes], inflater: Inflater, ticket: Ticket, elsewhere: Elsewhere
) -> Arrived:
    """Inflate the parts of a body while more of them come; ``ticket`` holds what they have become.

    Raises:
        Refusal: as :func:`arriving` and :meth:`Inflater.feed`.
    """
    pending: list[bytes] = []
    waiting = wire = 0
    async for part in parts:
        pending.append(part)
        waiting += len(part)
        wire += len(part)
        if waiting >= FEED:
            before = inflater.size
            await elsewhere(inflater.feed, b"".join(pending))
            ticket.release(waiting)
            ticket.hold(inflater.size - before)
            pending, waiting = [], 0
    return Arrived(inflater, b"".join(pending), wire)


async def drain(stream: AsyncIterator[bytes], seconds: float) -> bool:
    """Read what is left of a refused body and forget it; say whether its end was seen."""
    left = DRAIN_LIMIT
    try:
        async with asyncio.timeout(seconds):
            async for part in stream:
                left -= len(part)
                if left < 0:
                    return False
    except TimeoutError:
        return False
    return True
