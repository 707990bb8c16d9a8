"""Reading a request body within limits: bytes on the wire, bytes inflated, bytes of all waiting together."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from specscope_server.ingest.refusal import Refusal

GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""``wbits`` that makes zlib read a gzip header and check its trailer."""
INFLATE_STEP: Final = 1 << 20
"""Bytes inflated at a time, so that a bomb is noticed within 1 MiB of the limit."""
MAX_MEMBERS: Final = 100
"""Gzip members in one body; senders make one. Each costs a copy of what follows it, so that a body of empty
members alone would take hours."""
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


async def read(stream: AsyncIterator[bytes], length: int | None, limits: Limits, ticket: Ticket) -> bytes:
    """Return the body as sent, held by ``ticket``.

    Raises:
        Refusal: 413, it is larger than allowed; 408, it did not arrive in time; 429, too much is waiting.
    """
    if length is not None and length > limits.wire_bytes:
        raise too_large(f"{length} bytes", limits.wire_bytes, "as sent")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in stream:
                size += len(part)
                if size > limits.wire_bytes:
                    raise too_large(f"more than {limits.wire_bytes} bytes", limits.wire_bytes, "as sent")
                ticket.hold(len(part))
                parts.append(part)
    except TimeoutError as error:
        raise Refusal(
            408,
            f"the body did not arrive within {limits.seconds:g} s ({size} bytes did)",
            headers={"Connection": "close"},
        ) from error
    return b"".join(parts)


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


def gunzip(data: bytes, limit: int) -> bytes:
    """Return the inflated bytes of one or more gzip members; never inflates past ``limit``.

    Raises:
        Refusal: 413, there is more; 400, it is not gzip, damaged or cut off.
    """
    out: list[bytes] = []
    size = 0
    members = 0
    while data:
        members += 1
        if members > MAX_MEMBERS:
            raise Refusal(400, f"the gzip body has more than {MAX_MEMBERS} members")
        member = zlib.decompressobj(GZIP_WINDOW)
        while not member.eof:
            try:
                part = member.decompress(data, INFLATE_STEP)
            except zlib.error as error:
                raise Refusal(400, f"the body is not valid gzip: {error}") from error
            size += len(part)
            if size > limit:
                raise too_large(f"more than {limit} bytes", limit, "after decompression")
            data = member.unconsumed_tail
            if not part and not data and not member.eof:
                raise Refusal(400, "the gzip body is cut off")
            out.append(part)
        data = member.unused_data
    return b"".join(out)


def too_large(found: str, limit: int, when: str) -> Refusal:
    """Return the refusal of a body that is ``found`` long ``when`` it is compared with ``limit``."""
    return Refusal(
        413,
        f"the body has {found} {when}, over the limit of {limit}: send smaller batches, "
        "or raise the server's --max-body-mb or --max-inflated-mb",
    )
