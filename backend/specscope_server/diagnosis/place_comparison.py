"""Places of the draft path held against each other, row by row, by their fingerprints. Pure.

What the target packed is what the draft must be fed, and what fc made of it is not what the draft may hand
on: both are told by one engine alone, without a reference run. Only rows of the very same pass are paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from specscope import convention as c
from specscope import hidden
from specscope.hidden import HiddenRow

from specscope_server.diagnosis import relative_error
from specscope_server.diagnosis.engine_evidence import PlaceComparison
from specscope_server.diagnosis.relative_error import NOTHING, Array, Sums

PAIRS: Final = ((hidden.FED, hidden.AUX_CAPTURE), (hidden.CARRY, hidden.FC_OUT))
"""(place, other): what the draft was fed and what was packed for it; what it hands on and what it took in."""
SHIFTS: Final = (-1, 1)

_Print = tuple[float, Array]
"""rms of a row, and its projections [PROJECTIONS]."""
Key = tuple[str, str, int, str]
"""(place, other, slot, after)."""


@dataclass(slots=True)
class Held:
    """Sums over the pairs of one (place, other, slot, after); ``same`` counts rows of one shared tensor."""

    sums: Sums = NOTHING
    same: int = 0
    shifted: dict[int, Sums] = field(default_factory=lambda: dict.fromkeys(SHIFTS, NOTHING))

    def add(self, other: Held) -> None:
        """Add the pairs of another request."""
        self.sums += other.sums
        self.same += other.same
        for shift in SHIFTS:
            self.shifted[shift] += other.shifted[shift]


def hold(rows: Iterable[HiddenRow]) -> dict[Key, Held]:
    """Return the pairs that the rows of **one** request have; passes of other requests share no position."""
    named: dict[tuple[str, str, int], dict[int, _Print]] = {}
    passes: dict[tuple[int, str, str, int], dict[int, _Print]] = {}
    shared: list[HiddenRow] = []
    for row in rows:
        if row.source != c.TARGET_FED or row.draft_step:
            continue
        if row.same_as is not None:
            shared.append(row)
            continue
        found = _prints(row)
        passes.setdefault((row.step, row.after, row.place, row.slot), {}).update(found)
        # A row of the token before may be of an earlier pass, and there the newest pass counts.
        named.setdefault((row.place, row.after, row.slot), {}).update(found)
    everywhere: dict[tuple[str, int], dict[int, _Print]] = {}
    for (place, _, slot), found in named.items():
        everywhere.setdefault((place, slot), {}).update(found)
    held: dict[Key, Held] = {}
    for place, other in PAIRS:
        for (step, after, at, slot), mine in passes.items():
            if at != place:
                continue
            theirs = passes.get((step, after, other, slot), {})
            one = held.setdefault((place, other, slot, after), Held())
            one.add(_held(mine, theirs, everywhere.get((other, slot), {})))
    for row in shared:
        for place, other in PAIRS:
            # Which of two places the numbers are told at is of no meaning.
            if {row.place, row.same_as} == {place, other}:
                held.setdefault((place, other, row.slot, row.after), Held()).same += row.rows
    return held


def conclude(held: Mapping[Key, Held]) -> tuple[PlaceComparison, ...]:
    """Return what is told of each pair of places; one of which no rows met has no entry."""
    found: list[PlaceComparison] = []
    for (place, other, slot, after), one in sorted(held.items()):
        estimate = one.sums.estimate()
        if estimate is None and not one.same:
            continue
        tokens = 0 if estimate is None else estimate.tokens
        # Rows of one shared tensor are equal, so that the others' squared error is spread over all rows.
        share = tokens / (tokens + one.same)
        shifted = {shift: told for shift in SHIFTS if (told := one.shifted[shift].estimate()) is not None}
        found.append(
            PlaceComparison(
                place=place,
                other=other,
                slot=slot,
                after=after,
                rows=tokens + one.same,
                relative_error=0.0 if estimate is None else estimate.relative_error * share**0.5,
                scale=1.0 if estimate is None else estimate.scale,
                shifted={shift: told.relative_error for shift, told in shifted.items()},
            )
        )
    return tuple(found)


def _prints(row: HiddenRow) -> dict[int, _Print]:
    """Return the fingerprints of a row of the wire by position; what makes no sense in it is left out."""
    try:
        rms, projections = hidden.restore(row.levels or [], row.fingerprints or [])
    except ValueError:
        return {}
    if row.zero_rows and row.zero_rows == sum(level == hidden.NO_LEVEL for level in row.levels or ()):
        empty = np.isnan(rms)
        rms, projections = np.where(empty, 0.0, rms), np.where(empty[:, None], 0.0, projections)
    return {
        row.position + index: (float(level), each)
        for index, (level, each) in enumerate(zip(rms, projections, strict=True))
        if np.isfinite(level)
    }


def _held(mine: Mapping[int, _Print], theirs: Mapping[int, _Print], all_of_it: Mapping[int, _Print]) -> Held:
    return Held(
        sums=_sums(mine, theirs, 0),
        shifted={shift: _sums(mine, all_of_it, shift) for shift in SHIFTS},
    )


def _sums(mine: Mapping[int, _Print], theirs: Mapping[int, _Print], shift: int) -> Sums:
    both = [(own, theirs[at + shift]) for at, own in mine.items() if at + shift in theirs]
    if not both:
        return NOTHING
    return relative_error.sums(_stacked([own for own, _ in both]), _stacked([its for _, its in both]))


def _stacked(prints: list[_Print]) -> tuple[Array, Array]:
    return np.array([rms for rms, _ in prints]), np.stack([projections for _, projections in prints])
