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

from specscope import hidden, tensorstats
from specscope.records import HiddenLook

STATISTICS: Final = len(tensorstats.COLUMNS)
MEAN, VARIANCE, MAX_ABS, NONFINITE, ZERO, EQUAL = range(STATISTICS)
"""Columns of a row; of rows combined already they follow the number of rows."""

Reals = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(slots=True)
class Fingerprints:
    """Of the first ``kept`` [requests] rows of each request, one request after the other.

    ``levels`` [slots, rows] and ``units`` [slots, rows, projections] as :func:`hidden.quantised` gives them.
    """

    kept: Whole
    levels: NDArray[np.int16]
    units: NDArray[np.int8]


@dataclass(slots=True)
class Reduced:
    """One look by request: ``rows`` [requests]; the others [requests, slots], NaN: not known.

    ``zero_whole`` [requests] counts the rows that are zero in every slot; -1: not known.
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
    fingerprints: Fingerprints | None = None


def reduce(look: HiddenLook, *, fingerprints: bool = True) -> Reduced:
    """Return the numbers of a look that holds data; ``fingerprints``: those too, where it has projections.

    Raises:
        ValueError: the data are no whole rows, or of a request they do not hold; a count is no number.
    """
    counts = np.array(look.counts, dtype=np.int64)
    if len(look.starts) != len(counts):
        raise ValueError(f"{look.place}: {len(look.starts)} starts for {len(counts)} counts")
    width = STATISTICS + (1 if look.summed else hidden.PROJECTIONS if look.projections else 0)
    each = np.frombuffer(look.data, dtype="<f4").reshape(-1, look.slots, width)
    if look.summed:
        if len(each) != len(counts):
            raise ValueError(f"{look.place}: {len(each)} sums for {len(counts)} requests")
        return _reduced(look, _whole(look, each[:, 0, 0]), each[:, :, 1:].astype(np.float64))
    return _by_row(look, each, counts, fingerprints=fingerprints and look.projections)


def _reduced(look: HiddenLook, rows: Whole, sums: Reals, zero_whole: Whole | None = None) -> Reduced:
    """Return the numbers by request of ``sums`` [requests, slots, statistics]."""
    nonfinite, zero, equal = (_whole(look, sums[:, :, column]) for column in (NONFINITE, ZERO, EQUAL))
    if zero_whole is None:
        # Rows that are zero in one slot and rows that are in another need not be the same ones.
        least = zero.min(axis=1)
        zero_whole = np.where((least == 0) | (least == rows) | (look.slots == 1), least, -1)
    known = (rows[:, None] > 0) & _has_finite(sums)
    mean, spread, peak = (np.where(known, sums[:, :, column], np.nan) for column in (MEAN, VARIANCE, MAX_ABS))
    return Reduced(rows, mean, spread, peak, nonfinite, zero, equal, zero_whole)


def _has_finite(found: Reals) -> NDArray[np.bool_]:
    """Say of which rows and slots any value is finite."""
    return np.isfinite(found[:, :, MEAN]) & ((found[:, :, NONFINITE] == 0) | (found[:, :, MAX_ABS] > 0))


def _by_row(look: HiddenLook, each: NDArray[np.float32], counts: Whole, *, fingerprints: bool) -> Reduced:
    starts = np.array(look.starts, dtype=np.int64)
    if counts.size and (counts.min() < 0 or starts.min() < 0 or (starts + counts).max() > len(each)):
        raise ValueError(f"{look.place}: a request's rows are not among the {len(each)} there are")
    offsets = np.cumsum(counts) - counts
    rows = np.arange(int(counts.sum())) + np.repeat(starts - offsets, counts)
    each = each[rows]
    found = each[:, :, :STATISTICS].astype(np.float64)
    zero_whole: Whole | None = None
    if counts.size and counts.min() == counts.max() == 1:
        sums = found
        sums[:, :, EQUAL] = 0.0
    else:
        sums, zero_whole = _summed(found, counts, offsets)
    reduced = _reduced(look, counts, sums, zero_whole)
    if fingerprints:
        reduced.fingerprints = _fingerprints(each, counts, offsets)
    return reduced


def _summed(found: Reals, counts: Whole, offsets: Whole) -> tuple[Reals, Whole]:
    """Return (statistics of each request's rows together, its rows that are zero in every slot)."""
    sums = np.zeros((len(counts), *found.shape[1:]))
    zero_whole = np.zeros(len(counts), dtype=np.int64)
    filled = np.flatnonzero(counts)
    if not filled.size:
        return sums, zero_whole
    at = offsets[filled]
    finite = _has_finite(found)
    usual = bool(finite.all())
    moments = found[:, :, : VARIANCE + 1]
    if not usual:
        moments = np.where(finite[:, :, None], moments, 0.0)
    number = counts[filled, None] if usual else np.add.reduceat(finite.astype(np.float64), at)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, spread = np.moveaxis(np.add.reduceat(moments, at) / np.asarray(number)[:, :, None], 2, 0)
        off = moments[:, :, MEAN] - np.repeat(mean, counts[filled], axis=0)
        if not usual:
            off = np.where(finite, off, 0.0)
        spread = spread + np.add.reduceat(off * off, at) / number
    tally = np.add.reduceat(found[:, :, NONFINITE:], at)
    tally[:, :, EQUAL - NONFINITE] -= found[at, :, EQUAL]  # each request's first row is not compared
    peak = np.maximum.reduceat(found[:, :, MAX_ABS], at)
    sums[filled] = np.concatenate((np.stack((mean, spread, peak), axis=2), tally), axis=2)
    zero_whole[filled] = np.add.reduceat((found[:, :, ZERO] > 0).all(axis=1).astype(np.int64), at)
    return sums, zero_whole


def _fingerprints(each: NDArray[np.float32], counts: Whole, offsets: Whole) -> Fingerprints:
    kept = np.minimum(counts, hidden.MAX_FINGERPRINTS)
    ends = np.cumsum(kept)
    if kept.sum() < len(each):
        each = each[np.arange(int(kept.sum())) + np.repeat(offsets - (ends - kept), kept)]
    rms = np.hypot(np.sqrt(each[:, :, VARIANCE].astype(np.float64)), each[:, :, MEAN])
    slots = each.shape[1]
    levels, units = hidden.quantised(
        rms.T.ravel(), each[:, :, STATISTICS:].transpose(1, 0, 2).reshape(-1, hidden.PROJECTIONS)
    )
    return Fingerprints(kept, levels.reshape(slots, -1), units.reshape(slots, -1, hidden.PROJECTIONS))


def _whole(look: HiddenLook, values: NDArray[np.floating]) -> Whole:
    if not np.isfinite(values).all():
        raise ValueError(f"{look.place}: a count of rows or values is not finite")
    return values.astype(np.int64)


def rounded(values: Reals, bits: int) -> NDArray[np.float32]:
    """Return numbers with ``bits`` of mantissa, off by 2**-(bits + 1) at most, so that they compress.

    NaN for what is not finite as a float32.
    """
    with np.errstate(over="ignore"):
        single = np.asarray(values, dtype="<f4")
    dropped = np.uint32(23 - bits)
    half = np.uint32(1) << (dropped - np.uint32(1))
    found = (((single.view("<u4") + half) >> dropped) << dropped).view("<f4")
    return np.where(np.isfinite(single) & np.isfinite(found), found, np.float32(np.nan))


def in_parts(values: Reals, whole: Reals, bits: int) -> NDArray[np.float32]:
    """Return numbers in 2**-bits of the power of two below ``whole``, which none exceeds.

    NaN for what is not finite as a float32.
    """
    sound = np.isfinite(whole) & (whole > 0)
    unit = np.exp2(np.floor(np.log2(np.where(sound, whole, 1.0))) - bits)
    return rounded(np.rint(values / unit) * unit, bits)


def known(values: NDArray[np.float32]) -> list[list[float | None]]:
    """Return numbers [rows, columns] as Python's, ``None`` for NaN."""
    listed: list[list[float | None]] = values.tolist()
    if np.isfinite(values).all():
        return listed
    return [[None if value != value else value for value in row] for row in listed]
