"""What chunks come to, remembered while somebody asks for it: an engine is judged mostly by the same ones.

Opening a chunk takes longer than all else that is done with it, and a fleet of 1,000 engines is judged by
60,000 of them. So what they come to is kept packed: a fifth of the size of the objects.
"""

from __future__ import annotations

import marshal
import time
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
UNUSED_S: Final = 60.0
"""What nobody asked for in this time is forgotten, at the latest after twice as long."""
MOST: Final = 65_536
"""Chunks of one kind that are remembered as young, and as many as old; each takes 1 to 2 kB."""


class Remembered(Generic[T]):
    """Results of work on blobs, by their content. Thread-safe."""

    def __init__(
        self, work: Callable[[bytes], T], pack: Callable[[T], Any], unpack: Callable[[Any], T]
    ) -> None:
        """Remember what ``work`` comes to.

        ``pack`` makes plain data of it (numbers, texts, tuples, lists, dictionaries), ``unpack`` the reverse.
        """
        self._work, self._pack, self._unpack = work, pack, unpack
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}
        self._since = time.monotonic()
        self._lock = Lock()

    def of(self, blob: bytes) -> T:
        """Return what ``work`` makes of a blob. Raises what it raises, which is not remembered."""
        key = blake2b(blob, digest_size=16).digest()
        with self._lock:
            found = self._young.get(key)
            if found is None and (found := self._old.get(key)) is not None:
                self._young[key] = found
        if found is not None:
            # Our own process made it: the one use that marshal is safe for, and nothing else is as fast.
            return self._unpack(marshal.loads(found))
        made = self._work(blob)
        packed = marshal.dumps(self._pack(made))
        with self._lock:
            now = time.monotonic()
            if now - self._since > UNUSED_S or len(self._young) >= MOST:
                self._young, self._old, self._since = {}, self._young, now
            self._young[key] = packed
        return made
