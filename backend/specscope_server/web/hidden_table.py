"""The table of hidden states that both pages show: places along the draft path, with a line a tensor.

Names of places, sources and passes come from an engine and may be anything; numbers are within bounds, but
may be NaN where they travel as floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specscope import convention as c
from specscope import hidden
from specscope.hidden import HiddenRow
from specscope.hidden_rollup import LARGEST, Key, Sums

from specscope_server.diagnosis import hidden_evidence
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.store.model import BoundaryState
from specscope_server.web import hidden_places as places

MAX_LINES: Final = 400
"""Lines of a table: three places of 16 slots and 20 draft steps, after prefill and after verify, take 190."""

_OFTEN_FED: Final = (hidden.AUX_CAPTURE, hidden.FC_IN)
"""In a chain these are one tensor with what the draft is fed."""


@dataclass(frozen=True, slots=True)
class Line:
    """One tensor: ``seen`` has its statistics, ``sums`` its counts; ``compared`` rows had one before them."""

    which: str
    after: str
    mode: str
    seen: HiddenEvidence
    sums: Sums
    std: float | None
    compared: int

    @property
    def zeros_wrong(self) -> bool:
        """Say whether rows of zeros are odd here: a padding token's embedding is one by design."""
        return self.sums.zero_rows > 0 and self.seen.place != hidden.EMBEDDING


@dataclass(frozen=True, slots=True)
class Place:
    """One place: what it is, its lines, and sentences on what it has no numbers of."""

    name: str
    does: str
    lines: tuple[Line, ...]
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """All places along the path; ``left_out`` lines were too many to show."""

    places: tuple[Place, ...]
    left_out: int


def sums_of(rows: Iterable[HiddenRow]) -> dict[Key, Sums]:
    """Return the sums of a request's looks, as :mod:`specscope.hidden_rollup` takes them.

    Looks that name another place have no numbers and are not among them, nor are those without a count.
    """
    found: dict[Key, Sums] = {}
    for row in rows:
        if row.same_as is None and row.nonfinite is not None and row.rows > 0:
            key = row.place, row.source, row.draft_step, row.slot, row.after, row.mode
            found.setdefault(key, Sums()).add(_sums(row))
    return found


def rms_of(row: HiddenRow) -> float | None:
    """Return the rms of a look, ``None`` where it has no finite one that float32 holds."""
    rms = row.rms
    return rms if rms is not None and math.isfinite(rms) and rms <= LARGEST else None


def _sums(row: HiddenRow) -> Sums:
    rms = rms_of(row)
    told = Sums(
        looks=1,
        rows=row.rows,
        nonfinite=row.nonfinite or 0,
        zero_rows=row.zero_rows or 0,
        equal_rows=row.equal_rows or 0,
    )
    if row.max_abs is not None and math.isfinite(row.max_abs):
        told.max_abs = row.max_abs
    if rms is not None and row.mean is not None:
        told.sum, told.sum_square = row.mean * row.rows, rms**2 * row.rows
        if rms > 0:
            level = math.log2(rms)
            told.levelled, told.sum_level, told.sum_level2 = 1, level, level**2
    return told


def table(
    sums: Mapping[Key, Sums],
    same: Mapping[tuple[str, str], Mapping[str, int]] | None,
    ledger: Sequence[BoundaryState],
    detail: str,
) -> Table:
    """Return the places of ``sums``; ``same`` counts, by (place, source), looks by the place they name.

    A place without either is there with the reason why, from the ledger. ``same`` is ``None`` for sums of an
    engine, which leave such looks out: then it is said that a place may be among them.
    """
    named = same or {}
    evidence = hidden_evidence.of(sums)
    kept = evidence[:MAX_LINES]
    by_place: dict[str, list[Line]] = {name: [] for name in hidden.PLACES}
    for one in sorted(kept, key=_in_place):
        by_place.setdefault(one.place, []).append(_line(one, sums[one.key]))
    seen = {(one.place, one.source) for one in evidence}

    def _why_not(place: str, source: str) -> str:
        if same is None and place in _OFTEN_FED and (hidden.FED, source) in seen:
            return f"no numbers of its own; while it is the very tensor of {hidden.FED} only that is counted"
        return places.why_not(place, source, ledger, detail)

    made: list[Place] = []
    for name, lines in by_place.items():
        said = [_same(source, told) for (place, source), told in named.items() if place == name]
        said += [
            f"{places.SOURCES[source]}: {_why_not(place, source)}"
            for place, source in places.EXPECTED
            if place == name and (place, source) not in seen and (place, source) not in named
        ]
        made.append(Place(name, places.DOES.get(name, ""), tuple(lines), tuple(said)))
    return Table(tuple(made), len(evidence) - len(kept))


def _in_place(one: HiddenEvidence) -> tuple[int, int, str, str, str]:
    """Sort so that a tensor's numbers after prefill and after verify stand together."""
    return one.draft_step, one.slot, one.source, one.after, one.mode


def _line(one: HiddenEvidence, sums: Sums) -> Line:
    std = None
    if one.rms is not None and one.mean is not None:
        std = math.sqrt(max(0.0, one.rms**2 - one.mean**2))
    return Line(
        places.which(one.place, one.source, one.draft_step, one.slot),
        one.after,
        "" if one.mode == c.EAGER else one.mode,
        one,
        sums,
        std,
        max(0, sums.rows - sums.looks),
    )


def _same(source: str, told: Mapping[str, int]) -> str:
    names = " and ".join(f"the very tensor of {place} ({number:,} looks)" for place, number in told.items())
    return f"{places.SOURCES.get(source, source)}: {names}, so its numbers stand there"
