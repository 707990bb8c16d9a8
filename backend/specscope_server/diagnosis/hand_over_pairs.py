"""What proposals start from, held against what the draft extends before them left. Pure.

One is looked at in the pass that left it and the other in the next pass of the request; between them it lies
in the engine's memory, or is sent to another engine. A token has one state, so its position joins them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from specscope import convention as c
from specscope import hidden
from specscope.hidden import HiddenRow

from specscope_server.diagnosis import relative_error
from specscope_server.diagnosis.engine_evidence import HandOver

_PLACES: Final = (hidden.CARRY, hidden.START)


def hand_overs(rows: Iterable[HiddenRow], request: str) -> list[HandOver]:
    """Return the hand-overs of **one** request, in order; what was not looked at on both sides has none."""
    left: dict[int, HiddenRow] = {}
    pairs: list[tuple[HiddenRow, HiddenRow]] = []
    for row in sorted(filter(_compared, rows), key=lambda row: row.step):
        if row.place == hidden.CARRY:
            left[row.position] = row
        elif (before := left.get(row.position)) is not None and before.step < row.step:
            pairs.append((before, row))
    if not pairs:
        return []
    own, other = (_restored([pair[side] for pair in pairs]) for side in (1, 0))
    known = np.isfinite(own[0]) & np.isfinite(other[0]) & (other[0] > 0)
    errors = np.full(len(pairs), np.nan)
    errors[known] = relative_error.of_rows((own[0][known], own[1][known]), (other[0][known], other[1][known]))
    return [
        HandOver(
            request=request,
            position=before.position,
            after=before.after,
            relative_error=float(errors[n]),
            scale=float(own[0][n] / other[0][n]),
        )
        for n, (before, _) in enumerate(pairs)
        if known[n]
    ]


def _compared(row: HiddenRow) -> bool:
    return (
        row.place in _PLACES
        and row.source == c.TARGET_FED
        and row.draft_step == 0
        and len(row.levels or ()) == 1
        and len(row.fingerprints or ()) == hidden.PROJECTIONS
    )


def _restored(rows: list[HiddenRow]) -> tuple[relative_error.Array, relative_error.Array]:
    """Return rms and projections; a row that is told to be all zero has none of either."""
    levels = [level for row in rows for level in (row.levels or ())]
    rms, projections = hidden.restore(levels, [unit for row in rows for unit in (row.fingerprints or ())])
    zero = np.array([row.zero_rows == 1 for row in rows]) & np.isnan(rms)
    return np.where(zero, 0.0, rms), np.where(zero[:, None], 0.0, projections)
