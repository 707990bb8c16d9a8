"""Hidden states that an engine pass looked at, reduced to numbers a request and slot.

The columns of a look are those of :mod:`specscope.tensorstats`. Mean and variance of a request's rows are
combined by the law of total variance, which stays exact when the mean is large against the deviation. Each
row counts alike: how many of its values were left out as not finite is known, how many it has is not. A row
without any finite value counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specscope import hidden
from specscope.records import HiddenLook

MEAN, VARIANCE, MAX_ABS, NONFINITE, ZERO, EQUAL = range(6)
"""Columns of a row; of rows combined already they follow the number of rows."""
STATISTICS: Final = 6

Reals = NDArray[np.float64]
Whole = NDArray[np.int64]

_MANTISSA: Final = 10
_DROPPED: Final = np.uint32(23 - _MANTISSA)
_HALF: Final = np.uint32(1 << (22 - _MANTISSA))


@dataclass(slots=True)
class Reduced:
    """One look by request: ``rows`` [requests]; the others [requests, slots], NaN: not known.

    ``zero_whole`` [requests] counts the rows that are zero in every slot; -1: not known.
    ``levels`` [slots, fingerprints] and ``units`` [slots, fingerprints, projections] belong to the first
    rows of each request, one request after the other, ``ends`` [requests] says where each ends.
    """

    rows: Whole
    mean: Reals
    spread: Reals
    """Population variance."""
    max_abs: Reals
    nonfinite: Whole
    zero: Whole
    equal: Whole
    zero_whole: Whole
    levels: NDArray[np.int16] | None = None
    units: NDArray[np.int8] | None = None
    ends: list[int] | None = None


def reduce(look: HiddenLook) -> Reduced:
    """Return the numbers of a look that holds data.

    Raises:
        ValueError: the data are no whole rows, or of a request they do not hold; a count is no number.
    """
    counts = np.array(look.counts, dtype=np.int64)
    if len(look.starts) != len(counts):
        raise ValueError(f"{look.place}: {len(look.starts)} starts for {len(counts)} counts")
    width = STATISTICS + (1 if look.summed else hidden.PROJECTIONS if look.projections else 0)
    each = np.frombuffer(look.data, dtype="<f4").reshape(-1, look.slots, width)
    return _summed(look, each) if look.summed else _by_row(look, each, counts)


def _summed(look: HiddenLook, each: NDArray[np.float32]) -> Reduced:
    if len(each) != len(look.counts):
        raise ValueError(f"{look.place}: {len(each)} sums for {len(look.counts)} requests")
    rows = _whole(look, each[:, 0, 0])
    found = each[:, :, 1:].astype(np.float64)
    zero = _whole(look, found[:, :, ZERO])
    least = zero.min(axis=1)
    # Rows that are zero in one slot and rows that are in another need not be the same ones.
    sure = np.full(len(rows), look.slots == 1) | (least == 0) | (least == rows)
    nonfinite = _whole(look, found[:, :, NONFINITE])
    known = (rows[:, None] > 0) & ~((nonfinite > 0) & (found[:, :, MAX_ABS] == 0))
    return Reduced(
        rows,
        _where(known, found[:, :, MEAN]),
        _where(known, found[:, :, VARIANCE]),
        _where(known, found[:, :, MAX_ABS]),
        nonfinite,
        zero,
        _whole(look, found[:, :, EQUAL]),
        np.where(sure, least, -1),
    )


def _by_row(look: HiddenLook, each: NDArray[np.float32], counts: Whole) -> Reduced:
    starts = np.array(look.starts, dtype=np.int64)
    if counts.size and (counts.min() < 0 or starts.min() < 0 or (starts + counts).max() > len(each)):
        raise ValueError(f"{look.place}: a request's rows are not among the {len(each)} there are")
    offsets = np.cumsum(counts) - counts
    if not counts.any():
        nothing = np.full((len(counts), look.slots), np.nan)
        none = np.zeros_like(nothing, dtype=np.int64)
        return Reduced(counts, nothing, nothing, nothing, none, none, none, none[:, 0])
    row = np.arange(int(counts.sum())) + np.repeat(starts - offsets, counts)
    each = each[row]
    found = each[:, :, :STATISTICS].astype(np.float64)
    filled = np.flatnonzero(counts)
    at = offsets[filled]

    def spread_out(values: Reals, fill: float) -> Reals:
        """By request: also those without rows."""
        whole = np.full((len(counts), *values.shape[1:]), fill)
        whole[filled] = values
        return whole

    finite = ~((found[:, :, NONFINITE] > 0) & (found[:, :, MAX_ABS] == 0))
    sums = np.add.reduceat(found * finite[:, :, None], at)
    number = np.add.reduceat(finite.astype(np.float64), at)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums[:, :, MEAN] / number
        off = (found[:, :, MEAN] - np.repeat(mean, counts[filled], axis=0)) * finite
        spread = (sums[:, :, VARIANCE] + np.add.reduceat(off * off, at)) / number
    peak = np.where(number > 0, np.maximum.reduceat(found[:, :, MAX_ABS], at), np.nan)
    tally = np.add.reduceat(found[:, :, NONFINITE:], at)
    tally[:, :, EQUAL - NONFINITE] -= found[at, :, EQUAL]
    nonfinite, zero, equal = (_whole(look, spread_out(tally[:, :, i], 0.0)) for i in range(3))
    zero_whole = np.add.reduceat((found[:, :, ZERO] > 0).all(axis=1).astype(np.int64), at)
    reduced = Reduced(
        counts,
        spread_out(mean, np.nan),
        spread_out(spread, np.nan),
        spread_out(peak, np.nan),
        nonfinite,
        zero,
        equal,
        _whole(look, spread_out(zero_whole.astype(np.float64), 0.0)),
    )
    if look.projections:
        _fingerprints(reduced, each, counts, offsets)
    return reduced


def _fingerprints(reduced: Reduced, each: NDArray[np.float32], counts: Whole, offsets: Whole) -> None:
    kept = np.minimum(counts, hidden.MAX_FINGERPRINTS)
    ends = np.cumsum(kept)
    if kept.sum() < len(each):
        each = each[np.arange(int(kept.sum())) + np.repeat(offsets - (ends - kept), kept)]
    rms = np.hypot(np.sqrt(each[:, :, VARIANCE].astype(np.float64)), each[:, :, MEAN])
    slots = each.shape[1]
    levels, units = hidden.quantised(
        rms.T.ravel(), each[:, :, STATISTICS:].transpose(1, 0, 2).reshape(-1, hidden.PROJECTIONS)
    )
    reduced.levels = levels.reshape(slots, -1)
    reduced.units = units.reshape(slots, -1, hidden.PROJECTIONS)
    reduced.ends = ends.tolist()


def _where(known: NDArray[np.bool_], values: Reals) -> Reals:
    return np.where(known, values, np.nan)


def _whole(look: HiddenLook, values: NDArray[np.floating]) -> Whole:
    if not np.isfinite(values).all():
        raise ValueError(f"{look.place}: a count of rows or values is not finite")
    return values.astype(np.int64)


def rounded(values: Reals) -> list[list[float | None]]:
    """Return numbers [rows, columns] with 10 bits of mantissa (off by 2**-11 at most), so that they compress.

    ``None`` for what is not finite as a float32.
    """
    with np.errstate(over="ignore"):
        single = np.asarray(values, dtype="<f4")
    reals = (((single.view("<u4") + _HALF) >> _DROPPED) << _DROPPED).view("<f4")
    sound = np.isfinite(single) & np.isfinite(reals)
    listed: list[list[float | None]] = reals.tolist()
    if sound.all():
        return listed
    return [
        [value if fine else None for value, fine in zip(*row, strict=True)]
        for row in zip(listed, sound.tolist(), strict=True)
    ]
