"""Frames between an engine process and its exporter process, over a local socket pair.

A frame is its length (4 bytes, little-endian) and a marshalled ``(kind, payload)``. Both ends are the same
interpreter of the same user; nothing from outside ever reaches this decoder.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from specscope.clock import Anchor
from specscope.identity import Ranks
from specscope.records import Crossing, Expectation
from specscope.settings import Settings

HELLO: Final = "hello"
ENGINE: Final = "engine"  # (number of this engine record in its process, record tuple)
RECORDS: Final = "records"  # list of record tuples
RESUMED: Final = "resumed"  # starts of requests that ran before this exporter did
BEAT: Final = "beat"
BYE: Final = "bye"  # whether the engine ends in order
ACK: Final = "ack"  # from the exporter

_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Hello:
    """Who the engine process is, and what its exporters so far have counted."""

    settings: Settings
    instance: str
    process: str
    pid: int
    start_ns: int
    role: str
    ranks: Ranks
    engine_name: str
    engine_version: str
    anchor: Anchor
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    export_failures: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: the engine process' clocks and cumulative counts. Times in ns."""

    anchor: Anchor
    expected: dict[Expectation, int]
    observed: dict[Crossing, int]
    armed: dict[str, tuple[str, str]]
    """Boundary to (state as in :data:`specscope.convention.ARMINGS`, reason)."""
    requests: dict[str, int]
    dropped: dict[str, int]
    queued: int
    hook_errors: dict[str, int]
    engine_thread_ns: int
    missed: dict[str, int] = field(default_factory=dict[str, int])
    """Values of steps that a device did not hand over, by reason."""
    pass_times: dict[tuple[str, int], tuple[int, int]] = field(
        default_factory=dict[tuple[str, int], tuple[int, int]]
    )
    """(passes, ns) by kind and bits of the size of the batch, see :mod:`specscope.pass_times`."""


@dataclass(frozen=True, slots=True)
class Ack:
    """What the exporter has done so far. ``settled``: records whose data the receiver has, or that are
    counted as dropped; ``dropped`` and ``export_failures`` are the exporter's own, all generations.
    """

    pid: int
    settled: int
    dropped: dict[str, int]
    export_failures: int
    reachable: bool
    done: bool = False


def _flat(value: Any) -> Any:
    """Turn the dataclasses above into tuples that ``marshal`` takes."""
    if isinstance(value, (Hello, Beat, Ack, Settings, Ranks, Anchor)):
        return tuple(_flat(getattr(value, f.name)) for f in fields(value))
    return value


def pack(kind: str, payload: Any = None) -> bytes:
    """Return one frame.

    Raises:
        ValueError: the payload holds something that is not a builtin.
    """
    data = marshal.dumps((kind, _flat(payload)))
    return _LENGTH.pack(len(data)) + data


def hello(payload: tuple[Any, ...]) -> Hello:
    """Rebuild a :class:`Hello`."""
    values = dict(zip((f.name for f in fields(Hello)), payload, strict=True))
    values["settings"] = Settings(*values["settings"])
    values["ranks"] = Ranks(*values["ranks"])
    values["anchor"] = Anchor(*values["anchor"])
    return Hello(**values)


def beat(payload: tuple[Any, ...]) -> Beat:
    """Rebuild a :class:`Beat`."""
    return Beat(Anchor(*payload[0]), *payload[1:])


class Reader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        """Start at a frame boundary."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[str, Any]]:
        """Take received bytes and return the (kind, payload) of each frame that is complete."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame = marshal.loads(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
            yield frame
