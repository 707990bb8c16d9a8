"""Two engines, builds, drafts or spans of time held against each other: is B's acceptance as good as A's?

Steps of one request are alike, so a request is the unit that is drawn: acceptance length is a ratio of
sums over requests, its variance that of a ratio estimator (Cochran, *Sampling Techniques*, 3rd ed., 6.4:
linearised residuals), and a difference is judged on the logarithm of the ratio. Traffic differs as well: the
mix is taken out by direct standardisation, both sides weighted by the pooled steps of the strata that both
have.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

LEVEL: Final = 0.95
"""Confidence of every interval."""
LEAST_UNITS: Final = 10
"""Requests, or buckets, of each side below which nothing is said."""
LEAST_OF_STRATUM: Final = 5
"""Requests of each side in a stratum that is compared."""
LEAST_COVERED: Final = 0.8
"""Share of each side's steps that the compared strata must have."""

AT_LEAST: Final = "at least as good"
BELOW: Final = "below"
NOT_SHOWN: Final = "not shown"


@dataclass(frozen=True, slots=True)
class Unit:
    """One request (or one bucket of time): ``value`` of ``weight``, and the stratum of traffic it is of.

    For the acceptance length ``value`` is accepted + bonus and ``weight`` verify steps.
    """

    value: int
    weight: int
    stratum: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Sum of values over sum of weights, the variance of that, and from how many units."""

    value: float
    variance: float
    units: int

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the ratio."""
        half = t_quantile(level, self.units - 1) * math.sqrt(self.variance)
        return self.value - half, self.value + half


@dataclass(frozen=True, slots=True)
class Compared:
    """B's ratio over A's with its interval; ``b_over_a`` is ``None`` where ``why_not`` says why."""

    a: Ratio | None
    b: Ratio | None
    b_over_a: float | None
    low: float | None
    high: float | None
    why_not: str = ""

    def verdict(self, least: float) -> str:
        """Say whether B has at least ``least`` of A: shown, shown not, or not shown."""
        if self.low is None or self.high is None:
            return NOT_SHOWN
        return AT_LEAST if self.low >= least else BELOW if self.high < least else NOT_SHOWN


@dataclass(frozen=True, slots=True)
class Corrected:
    """The comparison on the traffic that both sides have, and how much of each side's steps that is."""

    compared: Compared
    covered_a: float
    covered_b: float
    mix: Mapping[str, tuple[float, float]]
    """Share of A's and of B's steps by stratum."""


def t_quantile(level: float, freedom: int) -> float:
    """Return Student's two-sided quantile, by the expansion in 1/freedom (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    nu = max(freedom, 1)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / nu + second / nu**2 + third / nu**3


def ratio(units: Sequence[Unit]) -> Ratio | None:
    """Return the ratio of sums, ``None`` without weight or with one unit, which has no variance."""
    weight = sum(unit.weight for unit in units)
    if weight <= 0 or len(units) < 2:
        return None
    found = sum(unit.value for unit in units) / weight
    residuals = sum((unit.value - found * unit.weight) ** 2 for unit in units)
    return Ratio(found, len(units) / (len(units) - 1) * residuals / weight**2, len(units))


def compare(a: Sequence[Unit], b: Sequence[Unit]) -> Compared:
    """Hold B against A as they are."""
    return _compared(ratio(a), ratio(b), min(len(a), len(b)))


def _compared(a: Ratio | None, b: Ratio | None, units: int) -> Compared:
    if a is None or b is None or units < LEAST_UNITS:
        return Compared(a, b, None, None, None, f"fewer than {LEAST_UNITS} units on one side")
    if a.value <= 0 or b.value <= 0:
        return Compared(a, b, None, None, None, "nothing to take a ratio of on one side")
    log = math.log(b.value / a.value)
    error = math.sqrt(a.variance / a.value**2 + b.variance / b.value**2)
    half = t_quantile(LEVEL, min(a.units, b.units) - 1) * error
    return Compared(a, b, math.exp(log), math.exp(log - half), math.exp(log + half))


def corrected(a: Sequence[Unit], b: Sequence[Unit]) -> Corrected:
    """Hold B against A on the strata of traffic that both have, weighted by the steps of both together."""
    mine, theirs = _by_stratum(a), _by_stratum(b)
    total_a, total_b = sum(u.weight for u in a), sum(u.weight for u in b)
    shares = {
        name: (_weight(mine.get(name, ())) / (total_a or 1), _weight(theirs.get(name, ())) / (total_b or 1))
        for name in sorted(mine.keys() | theirs.keys())
    }
    both = [n for n in shares if min(len(mine.get(n, ())), len(theirs.get(n, ()))) >= LEAST_OF_STRATUM]
    covered_a, covered_b = (sum(shares[name][side] for name in both) for side in (0, 1))
    if min(covered_a, covered_b) < LEAST_COVERED:
        why = (
            f"the traffic differs too much: {covered_a:.0%} of A's and {covered_b:.0%} of B's verify steps"
            f" have a counterpart of {LEAST_OF_STRATUM} requests, {LEAST_COVERED:.0%} are needed"
        )
        return Corrected(Compared(None, None, None, None, None, why), covered_a, covered_b, shares)
    weights = {name: _weight(mine[name]) + _weight(theirs[name]) for name in both}
    pooled = sum(weights.values())
    pooled_shares = {name: weight / pooled for name, weight in weights.items()}
    units = min(sum(len(side[name]) for name in both) for side in (mine, theirs))
    left, right = _standardised(mine, pooled_shares), _standardised(theirs, pooled_shares)
    return Corrected(_compared(left, right, units), covered_a, covered_b, shares)


def _by_stratum(units: Iterable[Unit]) -> dict[str, list[Unit]]:
    found: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        found[unit.stratum].append(unit)
    return found


def _weight(units: Iterable[Unit]) -> int:
    return sum(unit.weight for unit in units)


def _standardised(side: Mapping[str, Sequence[Unit]], shares: Mapping[str, float]) -> Ratio | None:
    found = {name: ratio(side[name]) for name in shares}
    known = {name: one for name, one in found.items() if one is not None}
    if len(known) < len(shares):
        return None
    return Ratio(
        sum(share * known[name].value for name, share in shares.items()),
        sum(share**2 * known[name].variance for name, share in shares.items()),
        # The degrees of freedom that all strata have together, and one for the mean as elsewhere.
        sum(one.units for one in known.values()) - len(known) + 1,
    )
