"""Shares and how sure they are: intervals, two shares against each other at any time, steps that are alike.

Plain math, since the backend depends on no statistics package. Sources:

* Interval of one share: E. B. Wilson, "Probable inference", 1927; of a difference: R. G. Newcombe, "Interval
  estimation for the difference between independent proportions", 1998 (method 10). For numbers that are read,
  at one look.
* At any number of looks: with a uniform prior over p, M = B(k + 1, n - k + 1) / (p^k (1 - p)^(n - k)) is a
  martingale that starts at 1 under p (H. Robbins, "Statistical methods related to the law of the iterated
  logarithm", 1970), so by Ville's inequality it ever reaches 1 / alpha with a chance of at most alpha. Of two
  independent shares the product is one too, and the least product over all pairs with p_a - p_b <= floor
  proves a difference beyond ``floor``, however often one looks (:func:`log_evidence`).
* Steps of one request are alike: n of them count as n / (1 + (m - 1) rho) with m a request (L. Kish, "Survey
  Sampling", 1965). Requests differ in length, which weighs like longer ones; see :data:`ALIKE`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALIKE: Final = 0.1
"""Correlation of the accepts of one request: on the 18 reference prompts of the tiny pair
(models/tiny/prompts-with-references.json, one-way analysis of variance by prompt) 0.02 for whether the first
draft was accepted and 0.07 for how many were. Rounded up: other workloads are not measured."""
Z95: Final = 1.959964
_EDGE: Final = 1e-9
_ROUNDS: Final = 40
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Share:
    """``hits`` of ``of`` trials; not whole numbers once weighed down by :func:`effective`."""

    hits: float
    of: float

    def __post_init__(self) -> None:
        """Refuse what is no share.

        Raises:
            ValueError: not 0 <= hits <= of.
        """
        if not 0 <= self.hits <= self.of:
            raise ValueError(f"{self.hits} hits of {self.of} trials: wanted 0 <= hits <= trials")

    @property
    def value(self) -> float:
        """Return hits / trials; not a number without a trial (no data is not 0)."""
        return self.hits / self.of if self.of else math.nan


def wilson(share: Share, z: float = Z95) -> tuple[float, float]:
    """Return the interval of a share at one look; without a trial everything is possible: (0, 1)."""
    n = share.of
    if n <= 0:
        return 0.0, 1.0
    p, square = share.value, z * z
    middle = (p + square / (2 * n)) / (1 + square / n)
    half = z * math.sqrt(p * (1 - p) / n + square / (4 * n * n)) / (1 + square / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def newcombe(a: Share, b: Share, z: float = Z95) -> tuple[float, float]:
    """Return the interval of a - b at one look; (-1, 1) where one of them has no trial."""
    if a.of <= 0 or b.of <= 0:
        return -1.0, 1.0
    (low_a, high_a), (low_b, high_b) = wilson(a, z), wilson(b, z)
    gap = a.value - b.value
    down = math.hypot(a.value - low_a, high_b - b.value)
    up = math.hypot(high_a - a.value, b.value - low_b)
    return max(gap - down, -1.0), min(gap + up, 1.0)


def design_effect(steps_a_request: float, alike: float = ALIKE) -> float:
    """Return how many steps of requests this long tell as much as one independent step; at least 1."""
    return 1 + max(steps_a_request - 1, 0.0) * alike


def measured_alike(requests: Sequence[tuple[int, int]]) -> float | None:
    """Return the correlation of hits within requests, each (hits, trials); ``None``: too few to tell.

    The analysis-of-variance estimate (M. Ridout et al., "Estimating intraclass correlation for binary data",
    1999), not below 0. It needs two requests and one of two trials or more, and hits that vary.
    """
    told = [(hits, of) for hits, of in requests if of > 0]
    total = sum(of for _, of in told)
    groups = len(told)
    if groups < 2 or total <= groups:
        return None
    mean = sum(hits for hits, _ in told) / total
    between = sum(of * (hits / of - mean) ** 2 for hits, of in told) / (groups - 1)
    within = sum(hits * (of - hits) / of for hits, of in told) / (total - groups)
    size = (total - sum(of * of for _, of in told) / total) / (groups - 1)
    spread = between + (size - 1) * within
    return max((between - within) / spread, 0.0) if spread > 0 else None


def effective(share: Share, steps_a_request: float, alike: float = ALIKE) -> Share:
    """Return the share as independent trials would give it: the same value, fewer trials."""
    # A slice of fewer steps than a request has may be of one request, not of less.
    effect = design_effect(min(steps_a_request, share.of), alike)
    return Share(share.hits / effect, share.of / effect)


def log_evidence(a: Share, b: Share, floor: float = 0.0) -> float:
    """Return the natural logarithm of the evidence that share a is higher than b by more than ``floor``.

    Where it is not, this ever reaches ln(1 / alpha) with a chance of at most alpha, however often one looks
    while trials come in. Not below 0: no evidence is no evidence of the opposite.

    Raises:
        ValueError: ``floor`` is not in [0, 1).
    """
    if not 0 <= floor < 1:
        raise ValueError(f"floor {floor}: wanted 0 <= floor < 1")
    if a.of <= 0 or b.of <= 0 or a.value - b.value <= floor:
        return 0.0
    # The least product is on the border p_a = p_b + floor, and convex along it.
    low, high = _EDGE, 1.0 - floor - _EDGE
    for _ in range(_ROUNDS):
        step = _GOLDEN * (high - low)
        if _rest(a, high - step + floor) + _rest(b, high - step) < _rest(a, low + step + floor) + _rest(
            b, low + step
        ):
            high = low + step
        else:
            low = high - step
    p = (low + high) / 2
    return max(_surprise(a, p + floor) + _surprise(b, p), 0.0)


def always_valid(share: Share, alpha: float) -> tuple[float, float]:
    """Return an interval that holds the true share at every look together, but for a chance of ``alpha``.

    Raises:
        ValueError: ``alpha`` is not in (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha}: wanted 0 < alpha < 1")
    if share.of <= 0:
        return 0.0, 1.0
    bound = math.log(1 / alpha)
    return _border(share, bound, 0.0), _border(share, bound, 1.0)


def _border(share: Share, bound: float, outside: float) -> float:
    if _surprise(share, outside) < bound:
        return outside
    inside, mixture = share.value, _mixture(share)
    for _ in range(_ROUNDS):
        middle = (inside + outside) / 2
        if mixture + _rest(share, min(max(middle, _EDGE), 1 - _EDGE)) < bound:
            inside = middle
        else:
            outside = middle
    return outside


def _surprise(share: Share, p: float) -> float:
    """Return ln M of a share under the chance p (the module's head)."""
    return _mixture(share) + _rest(share, min(max(p, _EDGE), 1 - _EDGE))


def _mixture(share: Share) -> float:
    """Return the part of ln M that does not depend on p."""
    misses = share.of - share.hits
    return math.lgamma(share.hits + 1) + math.lgamma(misses + 1) - math.lgamma(share.of + 2)


def _rest(share: Share, p: float) -> float:
    """Return the part of ln M that depends on p; ``p`` is in (0, 1)."""
    return -share.hits * math.log(p) - (share.of - share.hits) * math.log(1 - p)
