"""What a pass adds to the sums over looks at hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specscope.exporter import looks
from specscope.hidden_rollup import LARGEST, Key, Sums
from specscope.records import HiddenPass


def of(
    record: HiddenPass, reduced: Sequence[looks.Reduced | None], counted: NDArray[np.bool_]
) -> Iterator[tuple[Key, Sums]]:
    """Yield the sums of a pass over the requests that are ``counted`` [requests], by place and slot."""
    for look, found in zip(record.looks, reduced, strict=True):
        if found is None:
            continue
        mine = counted & (found.rows > 0)
        if not mine.any():
            continue
        for slot in range(look.slots):
            key = (look.place, look.source, look.draft_step, slot, record.after, record.mode)
            yield key, _sums(found, slot, mine)


def _sums(found: looks.Reduced, slot: int, mine: NDArray[np.bool_]) -> Sums:
    rows = found.rows[mine]
    mean, spread, peak = (one[mine, slot] for one in (found.mean, found.spread, found.max_abs))
    square = spread + mean * mean
    known = np.isfinite(square)
    levels = 0.5 * np.log2(square[known & (square > 0)])
    return Sums(
        looks=len(rows),
        rows=int(rows.sum()),
        nonfinite=int(found.nonfinite[mine, slot].sum()),
        zero_rows=int(found.zero[mine, slot].sum()),
        equal_rows=int(found.equal[mine, slot].sum()),
        levelled=len(levels),
        sum=float((mean * rows)[known].sum()),
        sum_square=float((square * rows)[known].sum()),
        max_abs=float(np.nan_to_num(peak, nan=0.0, posinf=LARGEST).max()),
        sum_level=float(levels.sum()),
        sum_level2=float((levels * levels).sum()),
    )
