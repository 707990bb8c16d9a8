"""What is served held against what was promised: position by position, with the odds in plain words.

At a position that was reached n times, promised p and served x, chance alone gives so little at most with
probability exp(-n KL(x || p)) (Chernoff's bound, which holds at any n). Steps of a request are alike: with m
of them a request, n counts as n / (1 + (m - 1) rho), the design effect of clusters (L. Kish, "Survey
Sampling", 1965), rho being :data:`.statistics.ALIKE`. The odds of a draft are those of its worst position
times the number of positions (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specscope_server.diagnosis.statistics import design_effect

MOST_LOG: Final = 300 * math.log(10)


@dataclass(frozen=True, slots=True)
class Place:
    """One position: how often it was reached and accepted, against what was promised of it."""

    position: int
    reached: int
    accepted: int
    promised: float
    log_odds: float
    """Natural logarithm of the bound on the chance of so few (``below``) or so many (else)."""
    below: bool

    @property
    def served(self) -> float:
        """Return the conditional acceptance."""
        return self.accepted / self.reached


@dataclass(frozen=True, slots=True)
class Held:
    """All positions that were promised and reached. ``length`` and ``promised`` are acceptance lengths."""

    places: tuple[Place, ...]
    length: float
    promised: float

    @property
    def lost(self) -> float:
        """Return which share of the promised gain (tokens a step beyond the first) is not served."""
        return 1 - (self.length - 1) / (self.promised - 1) if self.promised > 1 else 0.0

    def odds(self, *, below: bool) -> tuple[float, Place | None]:
        """Return log odds of the worst position below (or above) its promise, and it; 0: there is none."""
        found = min(
            (place for place in self.places if place.below == below), key=lambda p: p.log_odds, default=None
        )
        if found is None:
            return 0.0, None
        return min(found.log_odds + math.log(len(self.places)), 0.0), found


def hold(
    positions: Sequence[tuple[int, int]], per_position: Sequence[float], steps_a_request: float
) -> Held | None:
    """Hold ``positions`` ([drafted, accepted] from 0 on) against a promise; ``None``: no step drafted.

    Acceptance at a position is conditional: of the steps that accepted the one before. A draft that is
    deeper than the promise, or a promise deeper than the draft, is compared as far as both go.
    """
    if not positions or positions[0][0] <= 0:
        return None
    effect = design_effect(steps_a_request)
    places: list[Place] = []
    reached = positions[0][0]
    length = promised = 1.0
    chance = 1.0
    for position, ((drafted, accepted), p) in enumerate(zip(positions, per_position, strict=False)):
        # Of those that accepted the position before, some may not have drafted this one.
        reached = min(reached, drafted)
        if reached <= 0:
            break
        accepted = min(accepted, reached)
        x = accepted / reached
        log_odds = max(-reached / effect * divergence(x, p), -MOST_LOG)
        places.append(Place(position, reached, accepted, p, log_odds, x < p))
        length += accepted / positions[0][0]
        chance *= p
        promised += chance
        reached = accepted
    return Held(tuple(places), length, promised)


def divergence(x: float, p: float) -> float:
    """Return KL(x || p) of two chances, in nats; ``p`` is kept off 0 and 1 by a millionth."""
    p = min(max(p, 1e-6), 1 - 1e-6)
    first = x * math.log(x / p) if x > 0 else 0.0
    return first + ((1 - x) * math.log((1 - x) / (1 - p)) if x < 1 else 0.0)


def odds_words(log_odds: float) -> str:
    """Return a chance in plain words: ``about 1 in 300``, ``less than 1 in a million``."""
    tens = -log_odds / math.log(10)
    if tens < 1:
        return f"about {math.exp(log_odds):.0%}"
    if tens < 6:
        digits = 10 ** (int(tens) - 1) if tens >= 2 else 1
        return f"about 1 in {round(10**tens / digits) * digits:,}"
    words = ((15, "a quadrillion"), (12, "a trillion"), (9, "a billion"), (6, "a million"))
    return "less than 1 in " + next(word for least, word in words if tens >= least)
