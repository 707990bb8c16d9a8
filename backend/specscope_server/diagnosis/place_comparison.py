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
_MOST: Final = 128 * hidden.PER_OCTAVE
"""Level of the largest float32; :data:`hidden.NO_LEVEL` is that of the smallest."""

_Numbers = tuple[Array, Array]
"""rms of rows [n], NaN where it is not finite, and their projections [n, PROJECTIONS]."""
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


@dataclass(slots=True)
class _Rows:
    """Rows of one place and slot as they come; ``keys`` has (engine step, after, position) of each."""

    keys: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    levels: list[int] = field(default_factory=list[int])
    fingerprints: list[int] = field(default_factory=list[int])
    zeros: list[bool] = field(default_factory=list[bool])

    def take(self, row: HiddenRow) -> None:
        """Add a row of the wire; one that makes no sense is left out."""
        levels, fingerprints = row.levels or (), row.fingerprints or ()
        if len(fingerprints) != len(levels) * hidden.PROJECTIONS or any(abs(n) > _MOST for n in levels):
            return
        # No level means all zero, or not finite; here every one of them is told to be the former.
        unknown = sum(level == hidden.NO_LEVEL for level in levels)
        zero = unknown > 0 and unknown == row.zero_rows
        self.keys += [(row.step, row.after, row.position + index) for index in range(len(levels))]
        self.zeros += [zero and level == hidden.NO_LEVEL for level in levels]
        self.levels += levels
        self.fingerprints += fingerprints

    def numbers(self) -> _Numbers:
        """Return all rows in one array: restored one by one they would take ten times as long."""
        rms, projections = hidden.restore(self.levels, self.fingerprints)
        zero = np.array(self.zeros, dtype=bool)
        return np.where(zero, 0.0, rms), np.where(zero[:, None], 0.0, projections)


def hold(rows: Iterable[HiddenRow]) -> dict[Key, Held]:
    """Return the pairs that the rows of **one** request have; passes of other requests share no position."""
    found: dict[tuple[str, int], _Rows] = {}
    held: dict[Key, Held] = {}
    for row in rows:
        if row.source != c.TARGET_FED or row.draft_step:
            continue
        if row.same_as is None:
            found.setdefault((row.place, row.slot), _Rows()).take(row)
            continue
        for place, other in PAIRS:
            # Which of two places the numbers are told at is of no meaning.
            if {row.place, row.same_as} == {place, other}:
                held.setdefault((place, other, row.slot, row.after), Held()).same += row.rows
    for place, other in PAIRS:
        for (at, slot), mine in found.items():
            theirs = found.get((other, slot))
            if at == place and theirs is not None:
                for after, one in _held(mine, theirs).items():
                    held.setdefault((place, other, slot, after), Held()).add(one)
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


def _held(mine: _Rows, theirs: _Rows) -> dict[str, Held]:
    """Return the pairs of two places by the kind of pass."""
    own, its = mine.numbers(), theirs.numbers()
    # A row of the token before may be of an earlier pass, and there the newest one counts.
    newest = {position: index for index, (_, _, position) in enumerate(theirs.keys)}
    same_pass = {key: index for index, key in enumerate(theirs.keys)}
    found: dict[str, Held] = {}
    for after in dict.fromkeys(after for _, after, _ in mine.keys):
        keys = [(index, key) for index, key in enumerate(mine.keys) if key[1] == after]
        found[after] = Held(
            sums=_sums(own, its, [(index, same_pass.get(key)) for index, key in keys]),
            shifted={
                shift: _sums(own, its, [(index, newest.get(key[2] + shift)) for index, key in keys])
                for shift in SHIFTS
            },
        )
    return found


def _sums(own: _Numbers, its: _Numbers, pairs: list[tuple[int, int | None]]) -> Sums:
    """Return the sums over pairs of indices whose rows are both finite."""
    met = np.array([(a, b) for a, b in pairs if b is not None], dtype=np.int64).reshape(-1, 2)
    met = met[np.isfinite(own[0][met[:, 0]]) & np.isfinite(its[0][met[:, 1]])]
    if not len(met):
        return NOTHING
    a, b = met[:, 0], met[:, 1]
    return relative_error.sums((own[0][a], own[1][a]), (its[0][b], its[1][b]))
