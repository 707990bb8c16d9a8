"""Whether a draft ends at a length of the context: below it drafts are accepted, from it on none is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from specscope.rollup import Counts

from specscope_server.diagnosis.model import Evidence
from specscope_server.diagnosis.step_evidence import LENGTH

MIN_STEPS: Final = 32
"""Verify steps on each side: 32 without an accepted draft have a chance of 1e-4 at an acceptance of 0.25."""
_DIMENSION: Final = "context"


@dataclass(frozen=True, slots=True)
class Limit:
    """From contexts of ``start`` tokens on nothing is accepted in ``steps_above`` steps (``undrafted`` of
    them drafted nothing); below, ``accepted`` drafts in ``steps_below``.
    """

    start: int
    steps_above: int
    undrafted: int
    steps_below: int
    accepted: int


def find(evidence: Evidence) -> Limit | None:
    """Return the length at which drafts end; ``None``: none is seen, or too few steps on either side."""
    rollup = [(one.value, one.counts) for one in evidence.slices if one.dimension == _DIMENSION]
    return _limit(rollup) or _limit(evidence.steps.slices.get(LENGTH, {}).items())


def _limit(told: Iterable[tuple[str, Counts]]) -> Limit | None:
    slices = sorted(
        (int(start), counts) for value, counts in told if (start := value.partition("-")[0]).isdecimal()
    )
    cut = len(slices)
    while cut and slices[cut - 1][1].accepted == 0:
        cut -= 1
    below, above = slices[:cut], slices[cut:]
    steps_below, steps_above = (sum(counts.steps for _, counts in part) for part in (below, above))
    if min(steps_below, steps_above) < MIN_STEPS:
        return None
    return Limit(
        start=above[0][0],
        steps_above=steps_above,
        undrafted=sum(counts.undrafted_steps for _, counts in above),
        steps_below=steps_below,
        accepted=sum(counts.accepted for _, counts in below),
    )
