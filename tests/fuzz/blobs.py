"""Mutations of bytes, and of packed blobs behind their checksum and compressor."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Final

import zstandard
from specscope import columns

Dice = random.Random

NUMBERS: Final = (
    *(0, 1, -1, 2, 63, 64, 65, 127, 128, 255, 256, 1023, 1024, 4096, 65_535, 65_536),
    *(2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**40, 2**40 + 1, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1),
    # Times: one second, 2100, 2200 and some, in ns; a bucket that is none.
    *(1_000_000_000, 4_102_444_800_000_000_000, 7_258_118_400_000_000_001, 1_790_000_005),
)
MOST: Final = 1 << 20
"""Bytes that a case may grow to before it is encoded; larger ones are the business of :mod:`fuzz.scaling`."""
INFLATED: Final = 4 << 20


def bytewise(data: bytes, dice: Dice) -> bytes:
    """Flip, cut, double or overwrite some bytes."""
    out = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 1, 2, 4, 16))):
        at = dice.randrange(len(out) + 1)
        way = dice.randrange(6)
        if way == 0 and at < len(out):
            out[at] ^= 1 << dice.randrange(8)
        elif way == 1:
            del out[at : at + dice.choice((1, 2, 8, 64, 10_000))]
        elif way == 2:
            out[at:at] = dice.randbytes(dice.choice((1, 2, 4, 8, 32)))
        elif way == 3:
            out[at:at] = out[at : at + dice.choice((1, 8, 64, 512))]
        elif way == 4:
            number = dice.choice(NUMBERS) & 0xFFFF_FFFF_FFFF_FFFF
            width = dice.choice((1, 2, 4, 8))
            out[at : at + width] = number.to_bytes(8, "little")[:width]
        elif at < len(out):
            out[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        out = out or bytearray(1)
    return bytes(out[:MOST])


def sealed(body: bytes, codec: int) -> bytes:
    """A blob whose header fits ``body``."""
    if codec == columns.ZLIB:
        data = zlib.compress(body, 1)
    elif codec == columns.ZSTD:
        data = zstandard.ZstdCompressor(level=1).compress(body)
    else:
        codec, data = columns.PLAIN, body
    return struct.pack("<4sBBHII", b"SPSC", 1, codec, 0, len(body), zlib.crc32(body)) + data


def packed(blob: bytes, dice: Dice) -> bytes:
    """Change a packed blob: mostly its body under a right checksum, else the blob as it stands."""
    if dice.random() < 0.1:
        return bytewise(blob, dice)
    try:
        body = columns.open_body(blob, max_raw=INFLATED)
    except columns.CodecError:
        return bytewise(blob, dice)
    parts = _columns(body)
    if parts is None or dice.random() < 0.3:
        body = bytewise(body, dice)
    else:
        body = _restructured(*parts, dice)
    if dice.random() < 0.02:  # a bomb: megabytes of zeros in a kilobyte
        body = body[: dice.randrange(1, len(body) + 1)] + bytes(dice.choice((1 << 16, 1 << 20, 3 << 20)))
    return sealed(body, dice.choice((columns.PLAIN, columns.ZLIB, columns.ZSTD)))


_Parts = list[tuple[bytes, int, int, bytes]]
"""(name, kind, flags, data) of each column."""


def _columns(body: bytes) -> tuple[int, _Parts] | None:
    try:
        rows, count = struct.unpack_from("<IH", body)
        at, parts = 6, list[tuple[bytes, int, int, bytes]]()
        for _ in range(count):
            length = body[at]
            name = body[at + 1 : at + 1 + length]
            kind, flags, size = struct.unpack_from("<BBI", body, at + 1 + length)
            at += 7 + length
            parts.append((name, kind, flags, body[at : at + size]))
            at += size
    except (struct.error, IndexError):
        return None
    return rows, parts


def _restructured(rows: int, parts: _Parts, dice: Dice) -> bytes:
    if dice.random() < 0.15:
        rows = (
            dice.choice(NUMBERS) & 0xFFFF_FFFF if dice.random() < 0.5 else max(0, rows + dice.choice((-1, 1)))
        )
    for _ in range(dice.choice((1, 1, 2, 3))):
        if not parts:
            break
        at = dice.randrange(len(parts))
        name, kind, flags, data = parts[at]
        way = dice.randrange(7)
        if way == 0:
            del parts[at]
        elif way == 1:
            parts.append(parts[at])
        elif way == 2:
            parts[at] = (name, dice.randrange(6), flags, data)
        elif way == 3:
            parts[at] = (name, kind, flags ^ dice.choice((1, 2, 3, 4)), data)
        elif way == 4:
            other = dice.choice(parts)
            parts[at] = (name, other[1], other[2], other[3])
        elif way == 5:
            parts[at] = (bytewise(name, dice)[:255], kind, flags, data)
        else:
            parts[at] = (name, kind, flags, bytewise(data, dice))
    out = struct.pack("<IH", min(rows, 0xFFFF_FFFF), min(len(parts), 65_535))
    for name, kind, flags, data in parts:
        out += bytes((len(name),)) + name + struct.pack("<BBI", kind, flags, len(data)) + data
    return out
