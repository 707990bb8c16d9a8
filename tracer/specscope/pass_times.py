"""How long passes of an engine take, by host clock alone: from the begin of one to the begin of the next.

Nothing waits for a device. Counted is only a pair of passes of one kind that follow each other on the very
same requests: the engine had work all the while, and nothing (a prefill, an idle moment) lay between. On a
GPU the host runs ahead of the device by a pass or two and is held back by it, so that over many pairs the
mean is the device's; a single one is not. Parts of a pass are told only where the device is the host (CPU).
"""

from __future__ import annotations

import time
from typing import Any

from specscope import convention as c

Key = tuple[str, int]
"""(kind, bits of the number of requests in the batch): powers of two without a text made in the engine."""


class PassTimes:
    """Sums of one process: ``sums`` are (passes, ns) by :data:`Key`; the engine's thread alone adds."""

    def __init__(self) -> None:
        """Start empty."""
        self.sums: dict[Key, tuple[int, int]] = {}
        self.host_is_device = False
        """Else a forward returns before the device has done it."""
        self._last: tuple[str, list[Any], int, int] = ("", [], -2, 0)

    def begins(self, kind: str, reqs: list[Any], step: int) -> int:
        """Note that a pass begins on ``reqs``, a list that nobody changes; return when (monotonic, ns).

        ``step`` is the engine's number of it; an empty ``kind`` is one that is not timed.
        """
        now = time.monotonic_ns()
        last_kind, last_reqs, last_step, last_ns = self._last
        self._last = (kind, reqs, step, now)
        if kind and kind == last_kind and step == last_step + 1 and reqs == last_reqs:
            self.add(kind, len(reqs), now - last_ns)
        return now

    def part_begins(self) -> int | None:
        """Return when the target's forward begins, ``None`` where its time on the host means nothing."""
        return time.monotonic_ns() if self.host_is_device else None

    def parts(self, rows: int, began_ns: int, target_ns: int) -> None:
        """Note the parts of a step that ends now: the target's forward, and the rest."""
        self.add(c.PASS_VERIFY, rows, target_ns)
        self.add(c.PASS_DRAFT, rows, time.monotonic_ns() - began_ns - target_ns)

    def clear(self) -> None:
        """Forget all: in a forked child."""
        self.sums.clear()
        self.pause()

    def pause(self) -> None:
        """Note that something else lay between."""
        self._last = ("", [], -2, 0)

    def add(self, kind: str, rows: int, ns: int) -> None:
        """Add one pass of ``rows`` requests that took ``ns``."""
        key = (kind, rows.bit_length())
        passes, total = self.sums.get(key, (0, 0))
        self.sums[key] = (passes + 1, total + ns)
