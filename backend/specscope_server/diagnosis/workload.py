"""F23: acceptance that differs by what is asked, said in a sentence and never as a finding.

A draft is better at text that copies its context, at greedy decoding, at lengths and kinds of text that it
was trained for. Where an engine is well, such differences belong to its traffic; the sentence names the slice
that is worst off, so that nobody looks for a fault.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Final

from specscope.rollup import CACHED, CONTEXT, COPY_LIKE, TEMPERATURE, Counts

from specscope_server.diagnosis import slice_compare
from specscope_server.diagnosis.model import Evidence, Finding
from specscope_server.diagnosis.slice_compare import Demand, Worse

NOTED: Final = Demand(gap=0.05, ratio=0.9, bound=math.log(1000))
"""A smaller difference is not worth a sentence. It accuses nobody, so one in 1000 may be chance."""


def differences(evidence: Evidence) -> tuple[Worse, ...]:
    """Return the workloads of the window between which acceptance differs, the surest first."""
    found = [
        one
        for dimension, first, names in (
            (COPY_LIKE, "yes", ("text that copies", "text that does not copy")),
            (TEMPERATURE, "0", ("greedy decoding", "sampling")),
            (CACHED, "miss", ("a cold prompt", "a cached prefix")),
        )
        if (one := _either(evidence, dimension, first.__eq__, names)) is not None
    ]
    border = _middle(slice_compare.by_value(evidence, CONTEXT))
    if border is not None:
        length = _either(
            evidence,
            CONTEXT,
            lambda value: slice_compare.start(value) < border,
            (f"contexts below {border}", f"contexts of {border} and longer"),
        )
        found += [length] if length is not None else []
    return tuple(sorted(found, key=lambda one: -one.log_evidence))


def sentence(evidence: Evidence, found: tuple[Finding, ...] = ()) -> str:
    """Say which workload is worst off; empty where none differs or a fault is found that may be why."""
    if any(one.fault_class for one in found):
        return ""
    told = differences(evidence)
    if not told:
        return ""
    return (
        f"Acceptance differs by workload, which is no fault: {told[0].words}. The draft knows that traffic"
        " less well; train it on such text if it matters."
    )


def _either(
    evidence: Evidence, dimension: str, split: Callable[[str], bool], names: tuple[str, str]
) -> Worse | None:
    values = slice_compare.by_value(evidence, dimension)
    one = (names[0], slice_compare.total(n for value, n in values.items() if split(value)))
    other = (names[1], slice_compare.total(n for value, n in values.items() if not split(value)))
    return slice_compare.worse(evidence, dimension, one, other, NOTED) or slice_compare.worse(
        evidence, dimension, other, one, NOTED
    )


def _middle(values: dict[str, Counts]) -> int | None:
    """Return the length that parts the steps most evenly; ``None``: there is but one slice."""
    ordered = sorted((slice_compare.start(value), counts.steps) for value, counts in values.items())
    whole = sum(steps for _, steps in ordered)
    below = 0
    cuts: list[tuple[int, int]] = []
    for (_, steps), (after, _) in itertools.pairwise(ordered):
        below += steps
        cuts.append((abs(2 * below - whole), after))
    return min(cuts)[1] if cuts else None
