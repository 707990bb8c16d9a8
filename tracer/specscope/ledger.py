"""Absence is data: what each engine pass must cross, and what it was seen to cross.

A *contract* says, for one engine configuration, how often each (boundary, source) must be crossed per
prefill pass and per verify step. The ledger counts expectations and observations; a gap is reported only
where the boundary is *armed* (its hook sits on a symbol that exists) and observable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from specscope import convention as c
from specscope.records import Crossing, Expectation

PREFILL = "prefill"
VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Contract:
    """Crossings per pass. ``prefill`` and ``verify`` map (boundary, source) to a count."""

    prefill: Mapping[Expectation, int]
    verify: Mapping[Expectation, int]

    def of(self, kind: str) -> Mapping[Expectation, int]:
        """Return what one pass of ``kind`` (``prefill`` or ``verify``) must cross."""
        return self.prefill if kind == PREFILL else self.verify


def eagle3_contract(*, num_steps: int, has_fc: bool, has_map: bool) -> Contract:
    """Return the contract of EAGLE-3, chain or tree.

    Per verify step the draft proposes once: its first token comes from the draft extend before, the other
    ``num_steps - 1`` from self-fed forwards. After every target pass the draft extends over the target's
    aux hidden states, once, and projects them with fc where it has one (``has_fc``). ``has_map``: draft
    ids go through d2t (a reduced draft vocabulary).
    """
    fed: dict[Expectation, int] = {
        (c.AUX_CAPTURE, c.NO_SOURCE): 1,
        (c.DRAFT_EXTEND, c.TARGET_FED): 1,
        (c.DRAFT_FORWARD, c.TARGET_FED): 1,
    }
    if has_fc:
        fed[c.DRAFT_FC, c.TARGET_FED] = 1
    verify = dict(fed)
    verify[c.DRAFT_PROPOSE, c.NO_SOURCE] = 1
    verify[c.TARGET_VERIFY, c.NO_SOURCE] = 1
    verify[c.ENGINE_COMMIT, c.NO_SOURCE] = 1
    if num_steps > 1:
        verify[c.DRAFT_FORWARD, c.SELF_FED] = num_steps - 1
    if has_map:
        verify[c.DRAFT_MAP, c.NO_SOURCE] = 1
    return Contract(prefill=fed, verify=verify)


@dataclass(slots=True)
class Arming:
    """Whether a boundary can be seen at all, and if not, why."""

    armed: bool
    reason: str = ""


@dataclass(slots=True)
class Ledger:
    """Cumulative counts of one process since its start; small, bounded by the number of boundaries."""

    expected: Counter[Expectation] = field(default_factory=Counter[Expectation])
    observed: Counter[Crossing] = field(default_factory=Counter[Crossing])
    armed: dict[str, Arming] = field(default_factory=dict[str, Arming])
    requests: Counter[str] = field(default_factory=Counter[str])

    def add(self, expected: Mapping[Expectation, int], crossed: Mapping[Crossing, int]) -> None:
        """Count one pass."""
        for key, count in expected.items():
            self.expected[key] += count
        for key, count in crossed.items():
            self.observed[key] += count

    def arm(self, boundary: str) -> None:
        """Note that the hook of ``boundary`` sits on a symbol that exists."""
        self.armed[boundary] = Arming(True)

    def disarm(self, boundary: str, reason: str) -> None:
        """Note that ``boundary`` cannot be seen (any more), and why."""
        self.armed[boundary] = Arming(False, reason)


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
