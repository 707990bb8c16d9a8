"""One slice of an engine's own traffic held against another: is it worse, beyond chance and beyond workload?

The trial is a verify step that drafted, the hit that its first draft was accepted. Steps of a request are
alike and weighed so; requests of one template are alike too, and no test can see that. A rule therefore asks
for more than proof: a difference of at least :attr:`Demand.gap`, and a worse side that has at most
:attr:`Demand.ratio` of the better one.

Error rate: as :mod:`specscope_server.diagnosis.sprt`, 0.01 false alarms a day over 1000 engines, split over
:data:`COMPARISONS` pairs of slices (Bonferroni), at any number of looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from specscope import convention as c
from specscope.rollup import COPY_LIKE, TEMPERATURE, Counts

from specscope_server.diagnosis import facts, sprt, statistics
from specscope_server.diagnosis.model import CERTAIN, Evidence, Finding, Number
from specscope_server.diagnosis.statistics import Share

COMPARISONS: Final = 60
"""Pairs of slices that all rules together look at: at most ten cuts of six dimensions."""
BOUND: Final = math.log(COMPARISONS / sprt.ALPHA)
MIN_STEPS: Final = 50
"""A side with fewer steps that drafted is not looked at."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How much worse a slice must be: by ``gap``, at most ``ratio`` of the other, and at most ``most``.

    ``bound`` is the logarithm of the evidence that it takes.
    """

    gap: float
    ratio: float
    most: float = 1.0
    bound: float = BOUND


WITHIN: Final = Demand(gap=0.15, ratio=0.5)
"""For slices that the scheduler deals out (row, batch, graph): no prompt chooses its row. Small batches may
still be the last steps of few long requests, hence a ratio too."""
BETWEEN: Final = Demand(gap=0.2, ratio=0.5, most=sprt.P0)
"""For slices that differ by the requests in them (length, cache): the worse one must be without benefit too,
since sound drafts are half as good on prompts of another kind (0.36 to 0.74 on the tiny pair)."""


@dataclass(frozen=True, slots=True)
class Worse:
    """Of ``dimension``, ``bad`` is worse than ``good``: names of the slices and plain shares of steps."""

    dimension: str
    good: str
    bad: str
    good_share: Share
    bad_share: Share
    log_evidence: float

    @property
    def words(self) -> str:
        """Say both shares."""
        return (
            f"the first draft token was accepted in {self.bad_share.value:.0%} of {self.bad_share.of:.0f}"
            f" verify steps with {self.bad}, and in {self.good_share.value:.0%} of"
            f" {self.good_share.of:.0f} with {self.good}"
        )

    def numbers(self, evidence: Evidence) -> tuple[Number, ...]:
        """Return the comparison as evidence: shares with intervals of 95 %, and how sure it is."""
        place = f"{facts.link(evidence)}?dimension={self.dimension}"
        sides = ((self.good, self.good_share, None), (self.bad, self.bad_share, self.good_share.value))
        return (
            *(
                Number(
                    f"first-token acceptance, {name}",
                    round(share.value, 3),
                    None if wanted is None else round(wanted, 3),
                    "of {:.0f} steps, 95 % interval {:.3f} to {:.3f}".format(
                        share.of, *statistics.wilson(_weighed(evidence, share))
                    ),
                    place,
                )
                for name, share, wanted in sides
            ),
            Number(
                "log evidence of the difference", round(self.log_evidence, 1), f"< {BOUND:.1f}", "", place
            ),
        )


def first_token(counts: Counts) -> Share | None:
    """Return the first-token acceptance of counts; ``None`` where nothing drafted or counts contradict."""
    drafted = counts.steps - counts.undrafted_steps
    hits = drafted - counts.zero_steps
    return Share(hits, drafted) if drafted > 0 and 0 <= hits <= drafted else None


def steps_a_request(evidence: Evidence) -> float | None:
    """Return the verify steps of a request; ``None``: it is not known how many requests the steps are of."""
    if evidence.steps.requests > 0:
        return evidence.steps.steps / evidence.steps.requests
    users = evidence.window_requests.get(c.KIND_USER, 0)
    return evidence.counts.steps / users if users and evidence.counts is not None else None


def by_value(evidence: Evidence, dimension: str) -> dict[str, Counts]:
    """Return the counts of the window by slice of ``dimension``."""
    return {one.value: one.counts for one in evidence.slices if one.dimension == dimension}


def worse(
    evidence: Evidence,
    dimension: str,
    good: tuple[str, Counts],
    bad: tuple[str, Counts],
    demand: Demand,
) -> Worse | None:
    """Return the comparison where ``bad`` is worse as demanded; ``None``: not shown."""
    sides = _looked_at(good[1], bad[1])
    if sides is None or steps_a_request(evidence) is None:
        return None
    better, worst = sides
    if worst.value > demand.most or worst.value > demand.ratio * better.value:
        return None
    found = statistics.log_evidence(_weighed(evidence, better), _weighed(evidence, worst), demand.gap)
    return Worse(dimension, good[0], bad[0], better, worst, found) if found >= demand.bound else None


def cuts(
    evidence: Evidence,
    dimension: str,
    values: Mapping[str, Counts],
    demand: Demand,
    name: Callable[[int], tuple[str, str]],
) -> Worse | None:
    """Return the cut of power-of-two slices above which it is most surely worse than below.

    ``name`` gives the words for below and from a number on.
    """
    ordered = sorted((start(value), counts) for value, counts in values.items())
    found: list[Worse] = []
    for at in range(1, len(ordered)):
        border = ordered[at][0]
        low, high = name(border)
        one = worse(
            evidence,
            dimension,
            (low, total(counts for _, counts in ordered[:at])),
            (high, total(counts for _, counts in ordered[at:])),
            demand,
        )
        if one is not None:
            found.append(one)
    return max(found, key=lambda one: one.log_evidence, default=None)


def too_little(evidence: Evidence, *sides: Counts | None) -> str:
    """Say why slices cannot be compared; empty where they can."""
    if steps_a_request(evidence) is None:
        return "it is not known of how many requests the steps are, so steps that are alike cannot be weighed"
    shares = [None if side is None else first_token(side) for side in sides]
    if any(share is None or share.of < MIN_STEPS for share in shares):
        return f"one of the slices has fewer than {MIN_STEPS} verify steps that drafted"
    return ""


def traffic_explains(evidence: Evidence, found: Worse) -> str:
    """Say which workload of the same window is as bad and as large as the bad slice; empty: none.

    Then requests of that workload may simply be those of the slice, and nothing is told. Only the natural
    direction counts: text that copies nothing, and sampling, are harder.
    """
    for dimension, easy, hard, words in (
        (COPY_LIKE, ("yes",), ("no",), "text that copies nothing"),
        (TEMPERATURE, ("0",), ("<=0.5", "<=1", ">1"), "sampling"),
    ):
        values = by_value(evidence, dimension)
        soft = first_token(total(values[v] for v in easy if v in values))
        rough = first_token(total(values[v] for v in hard if v in values))
        if soft is None or rough is None or rough.of < found.bad_share.of / 2:
            continue
        if rough.value <= (found.good_share.value + found.bad_share.value) / 2 < soft.value:
            return f"{words} is accepted as rarely ({rough.value:.0%} of {rough.of:.0f} steps)"
    return ""


def root(found: tuple[Finding, ...]) -> str:
    """Return the kind of the certain finding that a slice's loss may follow from; empty: none."""
    return next((one.kind for one in found if one.confidence == CERTAIN), "")


def start(value: str) -> int:
    """Return the smallest number of a power-of-two slice; 0 where it is none."""
    head = value.split("-", 1)[0]
    return int(head) if head.isdecimal() else 0


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    summed = Counts()
    for one in counts:
        summed.add(one)
    return summed


def _looked_at(good: Counts, bad: Counts) -> tuple[Share, Share] | None:
    better, worst = first_token(good), first_token(bad)
    if better is None or worst is None or min(better.of, worst.of) < MIN_STEPS:
        return None
    return better, worst


def _weighed(evidence: Evidence, share: Share) -> Share:
    return statistics.effective(share, steps_a_request(evidence) or share.of)
