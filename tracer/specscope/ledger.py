"""Absence is data: what each engine pass must cross, and what it was seen to cross.

What a pass must cross stands in :mod:`specscope.contracts`. The ledger counts expectations and observations;
a gap is reported only where the boundary is *armed* (its hook sits on a symbol that exists) and observable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from specscope import convention as c
from specscope.records import Crossing, Expectation

Sums = tuple[Counter[Expectation], Counter[Crossing]]


@dataclass(slots=True)
class Arming:
    """Whether a boundary can be seen at all, and if not, why.

    ``state`` is one of :data:`specscope.convention.ARMINGS`; ``reason`` is empty where it is armed.
    """

    armed: bool
    reason: str = ""
    state: str = c.ARMING_OFF


@dataclass(slots=True)
class _Kind:
    """Passes that were told with the same two mappings."""

    expected: Mapping[Expectation, int]
    crossed: Mapping[Crossing, int]
    times: int = 1


class _Passes:
    """Counts of passes by the mappings they were told with, so that counting one costs one look-up.

    The engine thread counts, the pump's thread sums up: a kind that is once here stays until
    :meth:`folded` starts a new object, so a sum is never taken of something half changed.
    """

    LIMIT: Final = 512

    def __init__(self, base: Sums | None = None) -> None:
        self._base = base or (Counter(), Counter())
        self._kinds: dict[tuple[int, int], _Kind] = {}

    def count(self, expected: Mapping[Expectation, int], crossed: Mapping[Crossing, int]) -> bool:
        """Count one pass; ``False``: there are too many kinds, fold first."""
        key = (id(expected), id(crossed))  # ids stay theirs: the kind keeps both mappings alive
        kind = self._kinds.get(key)
        if kind is not None:
            kind.times += 1
            return True
        if len(self._kinds) >= self.LIMIT:
            return False
        self._kinds[key] = _Kind(expected, crossed)
        return True

    def sums(self) -> Sums:
        """Return (expected, observed) of all passes."""
        expected, observed = Counter(self._base[0]), Counter(self._base[1])
        for kind in list(self._kinds.values()):
            times = kind.times
            for key, count in kind.expected.items():
                expected[key] += count * times
            for crossing, count in kind.crossed.items():
                observed[crossing] += count * times
        return expected, observed

    def folded(self) -> _Passes:
        """Return the same counts in a new object with room for other kinds."""
        return _Passes(self.sums())


@dataclass(slots=True)
class Ledger:
    """Cumulative counts of one process since its start; small, bounded by the number of boundaries."""

    armed: dict[str, Arming] = field(default_factory=dict[str, Arming])
    requests: Counter[str] = field(default_factory=Counter[str])
    _passes: _Passes = field(default_factory=_Passes)

    def sums(self) -> Sums:
        """Return (expected, observed): how often each boundary had to be crossed so far, and was."""
        return self._passes.sums()

    def add(self, expected: Mapping[Expectation, int], crossed: Mapping[Crossing, int]) -> None:
        """Count one pass. Neither mapping may change afterwards."""
        if not self._passes.count(expected, crossed):
            self._passes = self._passes.folded()
            self._passes.count(expected, crossed)

    def arm(self, boundary: str) -> None:
        """Note that the hook of ``boundary`` sits on a symbol that exists."""
        self.armed[boundary] = Arming(True, state=c.ARMING_ARMED)

    def disarm(self, boundary: str, reason: str, state: str = c.ARMING_OFF) -> None:
        """Note that ``boundary`` cannot be seen (any more), why, and what kind of reason that is."""
        self.armed[boundary] = Arming(False, reason, state)


@dataclass(frozen=True, slots=True)
class Gap:
    """An armed boundary that was crossed less often than its contract says."""

    boundary: str
    source: str
    expected: int
    observed: int

    @property
    def missing(self) -> int:
        """Return how many crossings are missing."""
        return self.expected - self.observed


def gaps(
    expected: Mapping[Expectation, int], observed: Mapping[Crossing, int], armed: Mapping[str, bool]
) -> list[Gap]:
    """Return the gaps, in the order of the path; boundaries that are not armed never make one."""
    seen: Counter[Expectation] = Counter()
    for (boundary, source, _mode), count in observed.items():
        seen[boundary, source] += count
    found = [
        Gap(boundary, source, count, seen[boundary, source])
        for (boundary, source), count in expected.items()
        if armed.get(boundary, False) and seen[boundary, source] < count
    ]
    order = {name: index for index, name in enumerate(c.BOUNDARIES)}
    return sorted(found, key=lambda gap: (order.get(gap.boundary, len(order)), gap.source))
