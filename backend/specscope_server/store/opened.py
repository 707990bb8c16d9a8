"""Chunks of one request that were opened already, while one snapshot is read: a page asks for them twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from specscope.columns import CodecError
from sqlalchemy import Row

log = logging.getLogger(__name__)
T = TypeVar("T")


class Opened:
    """What was unpacked of the request asked for last. Not thread-safe: one snapshot is one thread's."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._uid = ""
        self._rows: dict[tuple[Any, ...], Sequence[Any]] = {}

    def rows(self, chunk: Row[Any], what: str, unpack: Callable[[bytes], Sequence[T]]) -> Sequence[T]:
        """Return the rows of one payload of a chunk; none, and a log line, when it is damaged."""
        blob: bytes | None = getattr(chunk, what)
        if not blob:
            return []
        if chunk.uid != self._uid:
            self._uid, self._rows = chunk.uid, {}
        # The payload itself tells chunks apart: two engines may have requests of one uid.
        key = chunk.process_uid, chunk.seq, what, blob
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = _unpacked(chunk, what, blob, unpack)
        return cast("Sequence[T]", found)


def _unpacked(chunk: Row[Any], what: str, blob: bytes, unpack: Callable[[bytes], Sequence[T]]) -> Sequence[T]:
    try:
        return unpack(blob)
    except CodecError as error:
        log.warning(
            "request %s: %s of chunk %d of process %s cannot be read: %s",
            chunk.uid,
            what,
            chunk.seq,
            chunk.process_uid,
            error,
        )
        return []
