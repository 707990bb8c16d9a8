"""Time: steps carry monotonic nanoseconds, an anchor turns them into wall time.

The anchor is taken again with every heartbeat, so a wall clock that NTP moves is followed. Frozen as
wire version 1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

SKEW_FLAG_NS = 5 * 60 * 1_000_000_000
"""A process whose clock is this far from the server's is kept and flagged."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on both clocks of a process, in ns."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def now(cls) -> Anchor:
        """Read both clocks; the wall reading lies between two monotonic ones, whose middle is kept."""
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        return cls(monotonic_ns=(before + after) // 2, wall_ns=wall)

    def wall(self, monotonic_ns: int) -> int:
        """Return the wall time (ns since 1970) of a monotonic reading of the same process."""
        return self.wall_ns + (monotonic_ns - self.monotonic_ns)


def is_skewed(event_ns: int, received_ns: int) -> bool:
    """Say whether an event's clock and the receiver's are more than five minutes apart."""
    return abs(event_ns - received_ns) > SKEW_FLAG_NS
