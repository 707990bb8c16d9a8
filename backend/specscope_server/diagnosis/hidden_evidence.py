"""What was seen of hidden states in a window, one entry a place, slot and draft step. Pure.

Only what was looked at has an entry: a place without one was not seen, which is no number and no zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from specscope import hidden
from specscope.hidden_rollup import Key, Sums

_ORDER: Final = {name: index for index, name in enumerate(hidden.PLACES)}


@dataclass(frozen=True, slots=True)
class HiddenEvidence:
    """Statistics over all looks at one place, of all requests of users.

    A look is one request in one pass. ``mean`` and ``rms`` weigh all ``rows`` alike; ``geometric_rms`` is the
    geometric mean of the looks' own rms over the ``levelled`` looks that had one (finite and above 0) and
    ``deviation`` its standard deviation in octaves. ``nonfinite_per_row`` counts values that are NaN or
    infinite, ``zero_share`` the rows that are all zero, ``equal_share`` of the rows that have one before them
    in their look those that are equal to it. ``None``: nothing to take it from.
    """

    place: str
    source: str
    draft_step: int
    slot: int
    after: str
    mode: str
    looks: int
    rows: int
    mean: float | None
    rms: float | None
    max_abs: float
    levelled: int
    geometric_rms: float | None
    deviation: float | None
    nonfinite_per_row: float | None
    zero_share: float | None
    equal_share: float | None

    @property
    def key(self) -> Key:
        """Return which place this is of."""
        return self.place, self.source, self.draft_step, self.slot, self.after, self.mode


@dataclass(frozen=True, slots=True)
class CarryRatio:
    """What a draft step makes of the size of the state it hands on: rms at step k + 1 over rms at step k."""

    draft_step: int
    slot: int
    after: str
    mode: str
    ratio: float


def of(sums: Mapping[Key, Sums]) -> tuple[HiddenEvidence, ...]:
    """Return the evidence that sums over a window give, along the draft path."""
    return tuple(sorted((_one(key, told) for key, told in sums.items()), key=_along_the_path))


def _along_the_path(one: HiddenEvidence) -> tuple[str, int, int, str, str, int, str]:
    place = _ORDER.get(one.place, len(_ORDER))
    return one.after, one.draft_step, place, one.place, one.source, one.slot, one.mode


def _one(key: Key, told: Sums) -> HiddenEvidence:
    place, source, draft_step, slot, after, mode = key
    level = told.sum_level / told.levelled if told.levelled else None
    compared = told.rows - told.looks
    return HiddenEvidence(
        place=place,
        source=source,
        draft_step=draft_step,
        slot=slot,
        after=after,
        mode=mode,
        looks=told.looks,
        rows=told.rows,
        mean=_ratio(told.sum, told.rows),
        rms=math.sqrt(told.sum_square / told.rows) if told.rows else None,
        max_abs=told.max_abs,
        levelled=told.levelled,
        geometric_rms=None if level is None else 2.0**level,
        # Rounding may leave a little less than nothing.
        deviation=None
        if level is None
        else math.sqrt(max(0.0, told.sum_level2 / told.levelled - level * level)),
        nonfinite_per_row=_ratio(told.nonfinite, told.rows),
        zero_share=_ratio(told.zero_rows, told.rows),
        equal_share=_ratio(told.equal_rows, compared),
    )


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole > 0 else None


def carry_ratios(evidence: Iterable[HiddenEvidence]) -> tuple[CarryRatio, ...]:
    """Return how the carry grows from each draft step to the next, where both were looked at."""
    rms = {
        (one.slot, one.after, one.mode, one.draft_step): one.geometric_rms
        for one in evidence
        if one.place == hidden.CARRY and one.geometric_rms is not None
    }
    return tuple(
        CarryRatio(step, slot, after, mode, following / size)
        for (slot, after, mode, step), size in sorted(rms.items())
        if (following := rms.get((slot, after, mode, step + 1))) is not None
    )
