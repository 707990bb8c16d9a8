"""What chunks come to, remembered while somebody asks for it: an engine is judged mostly by the same ones.

Opening a chunk takes longer than all else that is done with it, and a fleet of 1,000 engines is judged by
60,000 of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

T = TypeVar("T")
UNUSED_S: Final = 60.0
"""What nobody asked for in this time is forgotten, at the latest after twice as long."""
MOST: Final = 65_536
"""Chunks of one kind that are remembered as young, and as many as old; each takes 1 to 2 kB."""
_Key = tuple[int, int, int]


class Remembered(Generic[T]):
    """Results of work on blobs, by their content. Thread-safe; nobody may change a result."""

    def __init__(self, work: Callable[[bytes, int], T]) -> None:
        """Remember what ``work`` makes of a blob and of a number that belongs to it."""
        self._work = work
        self._young: dict[_Key, T] = {}
        self._old: dict[_Key, T] = {}
        self._since = time.monotonic()
        self._lock = Lock()

    def of(self, blob: bytes, number: int = 0) -> T:
        """Return what ``work`` makes of a blob. Raises what it raises, which is not remembered."""
        # Python's own hash: keyed by chance, so that nobody can make two chunks of one, and 64 bits
        # wide: two of 60,000 are one by accident once in ten billion runs. A digest takes twice as long.
        key = hash(blob), len(blob), number
        with self._lock:
            found = self._young.get(key)
            if found is None and (found := self._old.get(key)) is not None:
                self._young[key] = found
        if found is not None:
            return found
        made = self._work(blob, number)
        with self._lock:
            now = time.monotonic()
            if now - self._since > UNUSED_S or len(self._young) >= MOST:
                self._young, self._old, self._since = {}, self._young, now
            self._young[key] = made
        return made
