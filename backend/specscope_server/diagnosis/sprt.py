"""A sequential test on one proportion: does the draft's first token get accepted often enough to help?

Per verify step that drafted, "the token at position 0 was accepted" is one trial with chance p.

* H0, *benefit*: p >= ``P0``. H1, *practically no benefit*: p <= ``P1``.
* Log likelihood ratio after n trials with k successes (Wald, "Sequential Tests of Statistical
  Hypotheses", 1945): L = k ln(P1/P0) + (n - k) ln((1 - P1)/(1 - P0)).
* L >= ln(1/``ALPHA``) decides for H1, L <= ln(``BETA``) for H0, between them the data do not say.

Under H0, exp(L) is a non-negative supermartingale that starts at 1, so by Ville's inequality it reaches
1/ALPHA with a chance of at most ALPHA *however often one looks*. A sliding window is a new test at each
new start; ``ALPHA`` therefore splits ``FALSE_ALARMS_A_DAY`` over all window starts of a day (one a rollup
bucket) and ``ENGINES`` engines (Bonferroni, so no independence is assumed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from specscope.rollup import BUCKET_S

P0: Final = 0.25
"""Least chance that counts as a benefit. A weak but working draft has 0.36, a good one 0.7 (tiny pair)."""
P1: Final = 0.10
"""Practically nothing: the seed's fault (fc bypassed) has 0.05 to 0.11 with the tiny pair."""
ENGINES: Final = 1000
FALSE_ALARMS_A_DAY: Final = 0.01
ALPHA: Final = FALSE_ALARMS_A_DAY / (ENGINES * 86_400 / BUCKET_S)
"""Chance of a false alarm a window start: 0.01 / (1000 x 8640) = 1.2e-9."""
REQUESTS_A_DAY: Final = 1_000_000
REQUEST_ALPHA: Final = FALSE_ALARMS_A_DAY / REQUESTS_A_DAY
"""Chance of a false alarm a request, each of which is one test however often it is looked at: 1e-8."""
BETA: Final = 0.01
"""Chance to take a draft without benefit (p = P1) for one with, a window start."""

NO_BENEFIT: Final = "no benefit"
BENEFIT: Final = "benefit"
UNDECIDED: Final = "undecided"

_HIT: Final = math.log(P1 / P0)
_MISS: Final = math.log((1 - P1) / (1 - P0))
UPPER: Final = math.log(1 / ALPHA)
LOWER: Final = math.log(BETA)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``accepted`` of ``steps`` trials, the log likelihood ratio and what it decides."""

    steps: int
    accepted: int
    ratio: float
    decision: str


def decide(steps: int, accepted: int, alpha: float = ALPHA) -> Verdict:
    """Test ``accepted`` successes in ``steps`` trials; ``alpha`` is the chance to accuse a benefit.

    Raises:
        ValueError: not 0 <= accepted <= steps.
    """
    if not 0 <= accepted <= steps:
        raise ValueError(f"{accepted} accepted of {steps} steps: wanted 0 <= accepted <= steps")
    ratio = accepted * _HIT + (steps - accepted) * _MISS
    decision = NO_BENEFIT if ratio >= math.log(1 / alpha) else BENEFIT if ratio <= LOWER else UNDECIDED
    return Verdict(steps, accepted, ratio, decision)


def drift(p: float) -> float:
    """Return the mean growth of L in one trial of chance ``p``; > 0 leads to *no benefit*."""
    return p * _HIT + (1 - p) * _MISS


def expected_steps(p: float) -> float:
    """Return about how many trials a decision takes at chance ``p``; infinite where L does not drift.

    Wald's approximation: the distance to the bound that L drifts to, over its drift (the chance to end at
    the other bound, at most 1 %, is left out).
    """
    growth = drift(p)
    if math.isclose(growth, 0, abs_tol=1e-9):
        return math.inf
    return (UPPER if growth > 0 else LOWER) / growth
