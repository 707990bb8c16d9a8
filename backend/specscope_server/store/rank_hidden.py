"""What the draft was fed on the ranks of one group, held against each other slot by slot.

Ranks hold the same aux hidden states, up to the last bits of a reduction. Of each step they tell the mean row
of the batch as a level and a fingerprint, both rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from specscope import hidden
from specscope.chunks import RANK_SLOT

from specscope_server.diagnosis.model import RankHidden

ROUNDING: Final = 2 * hidden.UNIT_VARIANCE
"""What the rounding of both fingerprints adds to a squared difference, in units of the mean square."""
Told = Mapping[int, tuple[int, ...]]
"""By tensor-parallel rank: :data:`specscope.chunks.RANK_SLOT` numbers a slot."""
Array = NDArray[np.float64]


def compared(steps: Mapping[int, Told], place: str = hidden.FED) -> tuple[RankHidden, ...]:
    """Return one entry a slot of ``place`` that two ranks told of in a step, each against the lowest rank."""
    own: list[tuple[int, ...]] = []
    first: list[tuple[int, ...]] = []
    where: list[tuple[int, int, int]] = []
    for step, told in sorted(steps.items()):
        lowest, *others = sorted(told)
        for rank in others:
            if len(told[rank]) != len(told[lowest]):
                continue  # another number of slots: two engines' worth of steps, and no comparison
            for slot, at in enumerate(range(0, len(told[rank]), RANK_SLOT)):
                own.append(told[rank][at : at + RANK_SLOT])
                first.append(told[lowest][at : at + RANK_SLOT])
                where.append((slot, step, rank))
    if not where:
        return ()
    errors = relative_errors(np.array(own), np.array(first))
    slots, numbers, ranks = np.array(where).T
    found: list[RankHidden] = []
    for slot in sorted({slot for slot, _, _ in where}):
        mine = (slots == slot) & np.isfinite(errors)
        if mine.any():
            worst = int(np.flatnonzero(mine)[np.argmax(errors[mine])])
            told, each = np.unique(numbers[mine], return_inverse=True)
            largest = np.zeros(len(told))
            np.maximum.at(largest, each, errors[mine])
            found.append(
                RankHidden(
                    slot=slot,
                    compared=len(told),
                    relative_error=float(errors[worst]),
                    step=int(numbers[worst]),
                    rank=int(ranks[worst]),
                    place=place,
                    median=float(np.median(largest)),
                )
            )
    return tuple(found)


def relative_errors(own: NDArray[np.int64], other: NDArray[np.int64]) -> Array:
    """Return |x - y| / sqrt((|x|**2 + |y|**2) / 2) of rows told as [rows, level and fingerprint].

    0 is told for what the rounding alone explains. A row without a level (all zero, or not finite) counts as
    zero beside one that has a level; NaN: neither has one.
    """
    (rms, projections), (other_rms, others) = _restored(own), _restored(other)
    square = (rms**2 + other_rms**2) / 2
    known = square > 0
    scale = np.where(known, square, 1.0)
    distance = ((projections - others) ** 2).mean(axis=1) / scale - ROUNDING
    return np.where(known, np.sqrt(np.maximum(distance, 0.0)), np.nan)


def _restored(told: NDArray[np.int64]) -> tuple[Array, Array]:
    rms, projections = hidden.restore(told[:, 0].tolist(), told[:, 1:].ravel().tolist())
    return np.nan_to_num(rms), np.nan_to_num(projections)
