"""The hidden states of an engine pass, told as its batch, as rows of each request."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from specscope import convention as c
from specscope import hidden
from specscope.chunks import ExtendRow
from specscope.exporter import looks
from specscope.hidden import HiddenRow
from specscope.records import HiddenLook, HiddenPass

ROW_RAW: Final = 160
"""Bytes of raw body that a row takes at most, without its levels and fingerprints."""

PASSES: Final = 4
"""Passes whose fed states are remembered: the draft extend follows at once, others may come between."""


def raw_size(rows: list[HiddenRow]) -> int:
    """Return a bound of the raw body's bytes that rows of :func:`by_request` take."""
    return sum([ROW_RAW + 2 * len(row.levels or ()) + len(row.fingerprints or ()) for row in rows])


@dataclass(slots=True)
class _Look:
    """A look as lists, [requests][slots] where it has slots."""

    look: HiddenLook
    found: looks.Reduced | None
    rows: list[int]
    reals: list[list[list[float | None]]]
    """Mean, standard deviation and largest absolute value."""
    counts: list[list[list[int]]]
    """Values not finite, rows all zero, rows equal to the one before."""


def by_request(
    record: HiddenPass, reduced: list[looks.Reduced | None]
) -> Iterator[tuple[int, list[HiddenRow]]]:
    """Yield (index of the request, its rows); ``reduced`` has one entry a look, as :func:`reduce` gave it.

    Raises:
        ValueError: requests, positions and a look's counts differ in number.
    """
    read = [_read(look, found) for look, found in zip(record.looks, reduced, strict=True)]
    fed = _fed_rows(record)
    for index, _uid, position in zip(range(len(record.uids)), record.uids, record.positions, strict=True):
        last = position + max(0, fed[index] - 1)
        rows = [row for one in read for row in _rows(record, one, index, position, last)]
        if rows:
            yield index, rows


def reduce(record: HiddenPass) -> list[looks.Reduced | None]:
    """Return the numbers of each look, ``None`` for one that is told as the tensor of another place.

    Raises:
        ValueError: see :func:`specscope.exporter.looks.reduce`.
    """
    for look in record.looks:
        if len(look.counts) != len(record.uids):
            raise ValueError(f"{look.place}: {len(look.counts)} counts for {len(record.uids)} requests")
    return [looks.reduce(look) if look.data else None for look in record.looks]


def _fed_rows(record: HiddenPass) -> list[int]:
    """Return how many rows the draft was fed of each request: the last one leads to its first proposal."""
    fed = [0] * len(record.uids)
    for look in record.looks:
        if look.source == c.TARGET_FED and look.place != hidden.CARRY:
            fed = [max(pair) for pair in zip(fed, look.counts, strict=True)]
    return fed


def _read(look: HiddenLook, found: looks.Reduced | None) -> _Look:
    if found is None:
        return _Look(look, None, list(look.counts), [], [])
    reals = (found.mean, np.sqrt(found.spread), found.max_abs)
    return _Look(
        look,
        found,
        found.rows.tolist(),
        [looks.rounded(one) for one in reals],
        [one.tolist() for one in (found.nonfinite, found.zero, found.equal)],
    )


def _rows(record: HiddenPass, one: _Look, index: int, position: int, last: int) -> Iterator[HiddenRow]:
    look, rows = one.look, one.rows[index]
    if rows <= 0:
        return
    at = last if look.source == c.SELF_FED or look.place == hidden.CARRY else position
    found = one.found
    if found is None:
        for slot in range(look.slots):
            yield HiddenRow(
                record.step, record.after, record.mode, look.place, look.source, look.draft_step, slot, at,
                rows, same_as=look.same_as or None,
            )  # fmt: skip
        return
    (mean, std, peak), (nonfinite, zero, equal) = one.reals, one.counts
    for slot in range(look.slots):
        row = HiddenRow(
            record.step, record.after, record.mode, look.place, look.source, look.draft_step, slot, at, rows,
            mean[index][slot], std[index][slot], peak[index][slot],
            nonfinite[index][slot], zero[index][slot], equal[index][slot],
        )  # fmt: skip
        if found.levels is not None and found.units is not None and found.ends is not None:
            begin, end = found.ends[index - 1] if index else 0, found.ends[index]
            # Arrays: as lists of numbers the fingerprints of 64 running requests would take 20 MB.
            row.levels = array("h", found.levels[slot, begin:end].tobytes())
            row.fingerprints = array("b", found.units[slot, begin:end].tobytes())
        yield row


@dataclass(frozen=True, slots=True)
class Fed:
    """What the draft was fed of one request, over the whole width; as in :class:`chunks.ExtendRow`."""

    rows: int
    mean: float | None
    std: float | None
    rms: float | None
    max_abs: float | None
    nonfinite: int
    zero_rows: int | None

    def fill(self, row: ExtendRow) -> None:
        """Put the numbers into the row of the draft extend."""
        row.rows, row.mean, row.std, row.rms = self.rows, self.mean, self.std, self.rms
        row.max_abs, row.nonfinite, row.zero_rows = self.max_abs, self.nonfinite, self.zero_rows


class LastFed:
    """What the draft was fed in the last passes, for the draft extends that follow them."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._passes: deque[tuple[int, str, Mapping[str, Fed]]] = deque(maxlen=PASSES)

    def add(self, record: HiddenPass, reduced: list[looks.Reduced | None]) -> None:
        """Remember the look at ``draft.extend`` of a pass, if it has one with numbers."""
        for look, found in zip(record.looks, reduced, strict=True):
            if look.place == hidden.FED and found is not None:
                whole = dict(zip(record.uids, _whole_width(found), strict=True))
                kept = {uid: fed for uid, fed in whole.items() if fed.rows > 0}
                self._passes.append((record.step, record.after, kept))

    def of(self, step: int, after: str) -> Mapping[str, Fed]:
        """Return what was fed in the pass of a draft extend, by request; empty where it is not known."""
        for known, kind, fed in reversed(self._passes):
            if (known, kind) == (step, after):
                return fed
        return {}


def _whole_width(found: looks.Reduced) -> list[Fed]:
    """Slots are equally wide, so that each counts alike; one without finite values counts for nothing."""
    known = np.isfinite(found.mean) & np.isfinite(found.spread)
    number = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        average = np.where(known, found.mean, 0.0).sum(axis=1) / number
        off = np.where(known, found.mean - average[:, None], 0.0)
        deviation = np.sqrt((np.where(known, found.spread, 0.0) + off * off).sum(axis=1) / number)
    most = np.where(number > 0, np.where(known, found.max_abs, 0.0).max(axis=1), np.nan)
    reals = looks.rounded(np.stack((average, deviation, np.hypot(deviation, average), most), axis=1))
    counts = zip(
        found.rows.tolist(), found.nonfinite.sum(axis=1).tolist(), found.zero_whole.tolist(), strict=True
    )
    return [
        Fed(rows, mean, std, rms, peak, nonfinite, zero if zero >= 0 else None)
        for (mean, std, rms, peak), (rows, nonfinite, zero) in zip(reals, counts, strict=True)
    ]
