"""Decompression in small steps, as the bytes come: no more than a step past the limit is ever inflated."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Final, Protocol

from specscope_server.ingest.refusal import Refusal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""``wbits`` that makes zlib read a gzip header and check its trailer."""
ZSTD_WINDOW_LOG: Final = 23
"""8 MiB: RFC 9659 lets no sender of this encoding use a larger window."""
STEP: Final = 1 << 20
"""Bytes inflated at a time, so that a bomb is noticed within 1 MiB of the limit."""
MAX_FRAMES: Final = 100
"""Gzip members or zstd frames in one body; senders make one. Each costs a copy of what follows it, so that a
body of empty ones alone would take hours."""


class Encoding(Enum):
    """What a body may be compressed with."""

    IDENTITY = "identity"
    GZIP = "gzip"
    ZSTD = "zstd"


class _Frame(Protocol):
    """One gzip member or zstd frame."""

    def inflate(self, data: bytes) -> Iterator[bytes]:
        """Take ``data`` and give what it becomes, at most :data:`STEP` bytes at a time."""
        ...

    @property
    def rest(self) -> bytes | None:
        """What was given beyond the end; ``None``: the end has not come."""
        ...


class _Member:
    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(GZIP_WINDOW)

    def inflate(self, data: bytes) -> Iterator[bytes]:
        part = b""
        # zlib may hold back output although all input is taken: it is empty when it fills no whole step.
        while (data or len(part) == STEP) and not self._zlib.eof:
            part = self._zlib.decompress(data, STEP)
            data = self._zlib.unconsumed_tail
            yield part

    @property
    def rest(self) -> bytes | None:
        return self._zlib.unused_data if self._zlib.eof else None


class _ZstdFrame:
    def __init__(self) -> None:
        self._zstd = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
        )

    def inflate(self, data: bytes) -> Iterator[bytes]:
        yield self._zstd.decompress(data, STEP)
        while not (self._zstd.eof or self._zstd.needs_input):
            yield self._zstd.decompress(b"", STEP)

    @property
    def rest(self) -> bytes | None:
        return self._zstd.unused_data if self._zstd.eof else None


_FRAMES: Final[dict[Encoding, type[_Frame]]] = {Encoding.GZIP: _Member, Encoding.ZSTD: _ZstdFrame}


class Inflater:
    """A body while it arrives. Not thread-safe, but each call may come from another thread."""

    def __init__(self, encoding: Encoding, limit: int) -> None:
        """Inflate what is encoded with ``encoding`` to at most ``limit`` bytes."""
        self.encoding = encoding
        self.size = 0
        """Bytes inflated so far."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._frame: _Frame | None = None
        self._frames = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes as sent.

        Raises:
            Refusal: 413, they become more than the limit; 400, they are damaged.
        """
        kind = _FRAMES.get(self.encoding)
        if kind is None:
            self._add(data)
            return
        try:
            while data:
                frame = self._frame or self._next(kind)
                for part in frame.inflate(data):
                    self._add(part)
                data = frame.rest or b""
                self._frame = None if frame.rest is not None else frame
        except (zlib.error, zstd.ZstdError) as error:
            raise Refusal(400, f"the body is not valid {self.encoding.value}: {error}") from error

    def finish(self) -> bytes:
        """Return the whole body.

        Raises:
            Refusal: 400, its end is missing.
        """
        if self._frame is not None:
            raise Refusal(400, f"the {self.encoding.value} body is cut off")
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next(self, kind: type[_Frame]) -> _Frame:
        self._frames += 1
        if self._frames > MAX_FRAMES:
            raise Refusal(400, f"the {self.encoding.value} body has more than {MAX_FRAMES} parts")
        return kind()

    def _add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > self._limit:
            raise too_large(f"more than {self._limit} bytes", self._limit, "after decompression")
        if part:
            self._parts.append(part)


def too_large(found: str, limit: int, when: str) -> Refusal:
    """Return the refusal of a body that is ``found`` long ``when`` it is compared with ``limit``."""
    return Refusal(
        413,
        f"the body has {found} {when}, over the limit of {limit}: send smaller batches, "
        "or raise the server's --max-body-mb or --max-inflated-mb",
    )
