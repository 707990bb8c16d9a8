"""Who and which: deterministic ids, so that retries are idempotent and processes agree without talking.

Every id is BLAKE2b over length-prefixed UTF-8 fields (so ``("ab", "c")`` and ``("a", "bc")`` differ).
Frozen as wire version 1: ``tests/wire/v1/identity.json`` holds golden values.
"""

from __future__ import annotations

import hashlib
import uuid
from array import array
from dataclasses import dataclass

SLOTS = 65_536
"""Arrival counters kept per process; 256 KiB whatever the traffic."""


def _hash(size: int, kind: str, *fields: str | int) -> bytes:
    digest = hashlib.blake2b(digest_size=size, person=b"specscope.v1")
    for field in (kind, *fields):
        data = str(field).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return digest.digest()


def new_instance() -> str:
    """Return a fresh instance id (32 hex digits): one launch of a serving deployment."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where a process stands in its deployment. Ranks count from 0."""

    tp: int = 0
    dp: int = 0
    pp: int = 0
    serving_role: str = "both"


def process_uid(instance: str, role: str, ranks: Ranks, pid: int, start_ns: int) -> str:
    """Return the 32 hex digits that name one process of an instance; ``start_ns`` is wall clock."""
    return _hash(
        16, "process", instance, role, ranks.tp, ranks.dp, ranks.pp, ranks.serving_role, pid, start_ns
    ).hex()


def request_uid(instance: str, dp: int, rid: str, ordinal: int) -> str:
    """Return the 32 hex digits that name one request.

    ``rid`` is the engine-internal id, which callers may choose and reuse; ``ordinal`` (see
    :class:`ArrivalOrdinals`) tells its uses apart; ``dp`` keeps data-parallel ranks, which each count
    their own arrivals, apart.
    """
    return _hash(16, "request", instance, dp, rid, ordinal).hex()


def trace_id(uid: str) -> int:
    """Return the 128-bit trace id of a request that came without a trace context (never 0)."""
    return int.from_bytes(_hash(16, "trace", uid), "big") or 1


def request_span_id(uid: str) -> int:
    """Return the 64-bit id of the ``spec_decode.request`` span (never 0)."""
    return int.from_bytes(_hash(8, "request_span", uid), "big") or 1


def chunk_span_id(process: str, uid: str, seq: int) -> int:
    """Return the 64-bit id of chunk ``seq`` of a request as told by one process (never 0)."""
    return int.from_bytes(_hash(8, "chunk_span", process, uid, seq), "big") or 1


def process_span_id(process: str, kind: str, seq: int) -> int:
    """Return the 64-bit id of the ``seq``-th span of ``kind`` (a span name) of a process (never 0)."""
    return int.from_bytes(_hash(8, "process_span", process, kind, seq), "big") or 1


def process_trace_id(process: str) -> int:
    """Return the 128-bit trace id under which a process tells of itself (engine, rollups)."""
    return int.from_bytes(_hash(16, "process_trace", process), "big") or 1


class ArrivalOrdinals:
    """Counts arrivals so that a reused rid gets another request_uid, in bounded memory.

    A rid always falls into the same one of 65,536 slots, whose counter only grows: two uses of one rid
    never get the same ordinal, and ranks that see the same arrivals in the same order agree.
    """

    def __init__(self) -> None:
        """Start with every counter at 0."""
        self._counts = array("I", bytes(4 * SLOTS))

    def next(self, rid: str) -> int:
        """Return the ordinal of this arrival of ``rid`` and count it."""
        slot = int.from_bytes(_hash(2, "arrival", rid), "little") % SLOTS
        ordinal = self._counts[slot]
        self._counts[slot] = (ordinal + 1) & 0xFFFFFFFF
        return ordinal
