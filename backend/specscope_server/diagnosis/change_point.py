"""Where acceptance changed, on sums by the minute: a jump, or a slope, tested against the spread of minutes.

Steps of a request are alike and requests of a template too, so steps are not counted as independent trials.
What varies by chance is taken from the minutes themselves: the spread between neighbouring ones (and between
neighbouring blocks of 2 and 4, since a long request makes neighbours alike), never less than steps that are
drawn independently would have. The pair of neighbours that the jump lies between is left out of it.

The statistic is Student's t of the best split, turned into the standard normal deviate of equal probability
(D. L. Wallace, "Bounds on normal approximations to Student's and the chi-square distributions", Annals of
Mathematical Statistics, 1959), so that a spread known from few minutes proves little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specscope_server.diagnosis.engine_evidence import Moment

MAX_MINUTES: Final = 240
ENGINES: Final = 1000
FALSE_ALARMS_A_DAY: Final = 0.01
ALPHA: Final = FALSE_ALARMS_A_DAY / (ENGINES * 1440 * MAX_MINUTES)
"""Chance of a false alarm a split: 0.01 a day over 1000 engines, 1440 minutes that end and 240 splits."""
MIN_Z: Final = 6.8
"""Standard normal deviate whose two tails are no more than :data:`ALPHA` (they are at 6.65)."""
MIN_SIDE: Final = 3
"""Minutes on each side of a split."""
MIN_PAIRS: Final = 8
"""Pairs of neighbouring blocks from which these have a spread worth comparing with that of minutes."""
MIN_STEPS: Final = 30
"""Verify steps of a minute that counts: fewer say nothing of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A jump between two minutes, or a slope over all of them.

    ``at`` is the start of the first minute after it (of a slope: of all of them), in unix seconds; ``before``
    and ``after`` are accepted tokens a step (of a slope: its two ends), ``z`` how sure.
    """

    at: float
    before: float
    after: float
    z: float
    minutes: tuple[int, int]
    """Minutes before and after."""
    steps: tuple[int, int]

    @property
    def lost(self) -> float:
        """Return which share of the gain (accepted tokens a step) is gone; negative where it grew."""
        return 1 - self.after / self.before if self.before > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Minutes:
    starts: tuple[int, ...]
    weights: tuple[int, ...]
    values: tuple[float, ...]
    most: float
    steps: tuple[int, ...]
    """Those of the minutes before each, and of all."""
    accepted: tuple[int, ...]


def usable(history: Sequence[Moment]) -> list[Moment]:
    """Return the minutes that say something, the newest :data:`MAX_MINUTES` of them, oldest first."""
    told = [one for one in history if one.counts.steps - one.counts.undrafted_steps >= MIN_STEPS]
    return told[-MAX_MINUTES:]


def gain(moments: Sequence[Moment]) -> float:
    """Return accepted tokens a step that drafted; ``moments`` must have such steps."""
    return sum(m.counts.accepted for m in moments) / sum(_drafting(m) for m in moments)


def jump(history: Sequence[Moment]) -> Change | None:
    """Return the largest jump that chance does not explain, ``None`` where there is none."""
    told = usable(history)
    if len(told) < 2 * MIN_SIDE:
        return None
    minutes = _minutes(told)
    at = MIN_SIDE + int(_between(minutes).argmax())
    before, after = _mean(minutes, 0, at), _mean(minutes, at, len(told))
    first, second = sum(minutes.weights[:at]), sum(minutes.weights[at:])
    spread, freedom = _spread(minutes, at)
    error = math.sqrt(spread * (1 / first + 1 / second))
    z = normal(abs(after - before) / error, freedom) if error > 0 else 0.0
    if z < MIN_Z:
        return None
    return Change(minutes.starts[at], before, after, z, (at, len(told) - at), (first, second))


def slope(history: Sequence[Moment]) -> Change | None:
    """Return a slope over all minutes that chance does not explain and a jump explains worse."""
    told = usable(history)
    if len(told) < 2 * MIN_SIDE:
        return None
    m = _minutes(told)
    total = sum(m.weights)
    middle = sum(w * s for w, s in zip(m.weights, m.starts, strict=True)) / total
    level = _mean(m, 0, len(told))
    squares = sum(w * (s - middle) ** 2 for w, s in zip(m.weights, m.starts, strict=True))
    each = zip(m.weights, m.starts, m.values, strict=True)
    rise = sum(w * (s - middle) * (v - level) for w, s, v in each) / squares
    if rise * rise * squares <= float(_between(m).max()):
        return None
    spread, freedom = _spread(m, None)
    z = normal(abs(rise) * math.sqrt(squares / spread), freedom) if spread > 0 else 0.0
    if z < MIN_Z:
        return None
    half = len(told) // 2
    ends = [level + rise * (m.starts[index] - middle) for index in (0, -1)]
    steps = (sum(m.weights[:half]), sum(m.weights[half:]))
    return Change(m.starts[0], ends[0], ends[1], z, (half, len(told) - half), steps)


def normal(t: float, freedom: int) -> float:
    """Return the standard normal deviate about as unlikely as Student's ``t`` of ``freedom`` degrees."""
    if freedom < 1:
        return 0.0
    shrink = (8 * freedom + 1) / (8 * freedom + 3)
    return shrink * math.sqrt(freedom * math.log1p(t * t / freedom))


def _drafting(moment: Moment) -> int:
    return moment.counts.steps - moment.counts.undrafted_steps


def _minutes(told: Sequence[Moment]) -> _Minutes:
    weights = tuple([_drafting(m) for m in told])
    return _Minutes(
        starts=tuple([m.start for m in told]),
        weights=weights,
        values=tuple([m.counts.accepted / weight for m, weight in zip(told, weights, strict=True)]),
        most=max([m.counts.drafted_depth / weight for m, weight in zip(told, weights, strict=True)]),
        steps=(0, *accumulate(weights)),
        accepted=(0, *accumulate(m.counts.accepted for m in told)),
    )


def _mean(m: _Minutes, start: int, end: int) -> float:
    return (m.accepted[end] - m.accepted[start]) / (m.steps[end] - m.steps[start])


def _between(m: _Minutes) -> NDArray[np.float64]:
    """Return the sum of squares that each split explains, from that after :data:`MIN_SIDE` minutes on."""
    inside = slice(MIN_SIDE, len(m.weights) - MIN_SIDE + 1)
    first, accepted = np.array(m.steps[inside]), np.array(m.accepted[inside])
    every, rest = m.steps[-1], m.steps[-1] - first
    apart = accepted / first - (m.accepted[-1] - accepted) / rest
    return apart * apart * first * rest / every


def _spread(m: _Minutes, split: int | None) -> tuple[float, int]:
    """Return the variance of one step's accepted tokens, and from how many pairs it is known."""
    level = _mean(m, 0, len(m.weights))
    # Least: accepts that stop at the first refusal are geometric, and none has more than a bounded one.
    found, freedom = min(level * (1 + level), m.most * m.most / 4), 0
    sides = [(0, len(m.weights))] if split is None else [(0, split), (split, len(m.weights))]
    for size in (1, 2, 4):
        pairs = [pair for start, end in sides for pair in _pairs(m, start, end, size)]
        if size == 1:
            freedom = len(pairs)
        if len(pairs) >= (2 * MIN_SIDE - 2 if size == 1 else MIN_PAIRS):
            found = max(found, sum(pairs) / len(pairs))
    return found, freedom


def _pairs(m: _Minutes, start: int, end: int, size: int) -> list[float]:
    """Return the squared difference of neighbouring blocks, each as the variance of one step."""
    blocks = [(at, at + size) for at in range(start, end - size + 1, size)]
    sums = [(m.steps[b] - m.steps[a], _mean(m, a, b)) for a, b in blocks]
    return [(x - y) ** 2 / (1 / n + 1 / k) for (n, x), (k, y) in pairwise(sums)]
