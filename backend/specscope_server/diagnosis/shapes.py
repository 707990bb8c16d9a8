"""The shape of acceptance over draft positions, in words: cliff, progressive, uniform.

A cliff is a hard error at one place, a progressive loss a small error that compounds, the same share
everywhere an input that is wrong (or right) for all positions alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specscope_server.diagnosis import statistics
from specscope_server.diagnosis.statistics import Share

CLIFF: Final = "cliff"
PROGRESSIVE: Final = "progressive"
UNIFORM: Final = "uniform"
UNEVEN: Final = "uneven"
UNKNOWN: Final = "unknown"
MIN_REACHED: Final = 30
FALL: Final = 0.5
"""A position with less than half of the one before stands at a cliff."""
EVEN: Final = 0.15
"""Conditional acceptance varies this much over the positions of a healthy chain (0.69 to 0.80, tiny pair)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``word`` is one of the above, ``at`` the position (from 0) of a cliff, ``conditional`` the curve."""

    word: str
    conditional: tuple[Share, ...]
    at: int | None = None

    @property
    def words(self) -> str:
        """Say it in one sentence without a full stop."""
        curve = ", ".join(f"{one.value:.0%}" for one in self.conditional)
        if self.word == CLIFF and self.at == 0:
            return f"refused from the first draft token on ({curve})"
        if self.word == CLIFF:
            return f"a cliff: well up to draft token {self.at}, refused after it ({curve})"
        if self.word == PROGRESSIVE:
            return f"progressive: each draft token is worse than the one before ({curve})"
        if self.word == UNIFORM:
            return f"uniform: about alike at all draft tokens ({curve})"
        return f"uneven ({curve})" if self.word == UNEVEN else "too few steps to tell"


def conditional(positions: Sequence[tuple[int, int]]) -> tuple[Share, ...]:
    """Return acceptance at each position of those accepted before; ``positions`` are [drafted, accepted].

    Ends where fewer than :data:`MIN_REACHED` steps got to: what is rarely reached has no share.
    """
    told: list[Share] = []
    reached = positions[0][0] if positions else 0
    for drafted, accepted in positions:
        reached = min(reached, drafted)
        if reached < MIN_REACHED:
            break
        told.append(Share(min(accepted, reached), reached))
        reached = min(accepted, reached)
    return tuple(told)


def shape(positions: Sequence[tuple[int, int]], nothing: float = 0.1) -> Shape:
    """Return the shape; ``nothing`` is the share below which a position counts as refused.

    A fall must be beyond the 95 % intervals of both positions (Newcombe), and last to the end of the curve.
    """
    curve = conditional(positions)
    if not curve:
        return Shape(UNKNOWN, ())
    if curve[0].value <= nothing:
        return Shape(CLIFF, curve, 0)
    for at in range(1, len(curve)):
        before = min(one.value for one in curve[:at])
        after = max(one.value for one in curve[at:])
        if after < FALL * before and statistics.newcombe(curve[at - 1], curve[at])[0] > 0:
            return Shape(CLIFF, curve, at)
    if len(curve) == 1:
        return Shape(UNKNOWN, curve)
    values = [one.value for one in curve]
    if max(values) - min(values) <= EVEN:
        return Shape(UNIFORM, curve)
    if all(later < earlier for earlier, later in itertools.pairwise(values)):
        return Shape(PROGRESSIVE, curve)
    return Shape(UNEVEN, curve)
