"""What the draft was fed of each request over the whole width, for the draft extends that follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from specscope import hidden
from specscope.chunks import ExtendRow
from specscope.exporter import looks
from specscope.records import HiddenPass

PASSES: Final = 4
"""Passes that are remembered: the draft extend follows at once, others may come between."""
MANTISSA: Final = 10
"""Bits that are kept of each number: they compress to half the size, off by 1/2000 at most."""


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

    def add(self, record: HiddenPass, reduced: Sequence[looks.Reduced | None]) -> None:
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
    whole = np.stack((average, deviation, np.hypot(deviation, average), most), axis=1)
    reals = looks.known(looks.rounded(whole, MANTISSA))
    counts = zip(
        found.rows.tolist(), found.nonfinite.sum(axis=1).tolist(), found.zero_whole.tolist(), strict=True
    )
    return [
        Fed(rows, mean, std, rms, peak, nonfinite, zero if zero >= 0 else None)
        for (mean, std, rms, peak), (rows, nonfinite, zero) in zip(reals, counts, strict=True)
    ]
