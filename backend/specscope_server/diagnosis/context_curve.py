"""Acceptance over the length of the context: does it hold, decay, or break off at one length?

Read from the rollups' power-of-two slices. A cliff is a fall between two neighbouring slices that holds
three quarters of the whole fall; anything else that falls is a decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specscope.rollup import CONTEXT, Counts

from specscope_server.diagnosis import slice_compare
from specscope_server.diagnosis.model import Evidence
from specscope_server.diagnosis.slice_compare import BETWEEN, MIN_STEPS, Worse

CLIFF: Final = "cliff"
DECAY: Final = "decay"
CLIFF_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Fall:
    """``word`` is cliff or decay; ``at`` the length where the bad side begins; ``curve`` (slice, share)."""

    word: str
    at: int
    worse: Worse
    curve: tuple[tuple[str, float], ...]

    @property
    def curve_words(self) -> str:
        """Say the whole curve."""
        return ", ".join(f"{value}: {share:.0%}" for value, share in self.curve)


def fall(evidence: Evidence, values: Mapping[str, Counts] | None = None) -> Fall | None:
    """Return how acceptance falls with length as demanded of slices of different requests; ``None``: not."""
    sliced = slice_compare.by_value(evidence, CONTEXT) if values is None else values
    worse = slice_compare.cuts(
        evidence, CONTEXT, sliced, BETWEEN, lambda n: (f"contexts below {n}", f"contexts of {n} and longer")
    )
    if worse is None:
        return None
    curve = [
        (value, share.value)
        for value, counts in sorted(sliced.items(), key=lambda one: slice_compare.start(one[0]))
        if (share := slice_compare.first_token(counts)) is not None and share.of >= MIN_STEPS
    ]
    drops = [(curve[i][1] - curve[i + 1][1], curve[i + 1][0]) for i in range(len(curve) - 1)]
    largest = max(drops, default=(0.0, ""))
    whole = max(share for _, share in curve) - min(share for _, share in curve)
    steep = len(curve) > 2 and largest[0] >= CLIFF_SHARE * whole > 0
    at = slice_compare.start(largest[1]) if steep else slice_compare.start(curve[0][0])
    return Fall(CLIFF if steep else DECAY, at, worse, tuple(curve))
