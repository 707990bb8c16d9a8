"""Statistics and fingerprints of hidden states as they travel: one row a request, pass, place and slot.

A *place* is where rows of hidden states [rows, width] are looked at on the draft path; aux hidden states are
looked at slot by slot (one slot an aux layer). A *fingerprint* of a row is :data:`PROJECTIONS` projections
on fixed random signs (:mod:`specscope.tensorstats`), in whole units of the row's own rms so that it takes
eight bytes; its *level* is that rms. Two rows x and y of width H then differ by
|x - y|**2 / H ~ mean over the projections of (p(x) - p(y))**2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from specscope import packed_rows

PROJECTIONS: Final = 8
"""Projections of one row and slot."""
PER_RMS: Final = 16
"""Units of a fingerprint in one rms of its row: a projection of a random row has deviation 1 rms."""
UNIT_VARIANCE: Final = 1 / (12 * PER_RMS**2)
"""What rounding to whole units adds to a squared difference, in units of the row's mean square."""
PER_OCTAVE: Final = 256
"""Units of a level in a factor of two: a step of 0.27 %."""
NO_LEVEL: Final = -32768
"""Level of a row that is all zero, or whose rms is not finite."""

AUX_CAPTURE: Final = "target.aux_capture"
FED: Final = "draft.extend"
FC_IN: Final = "draft.fc.in"
FC_OUT: Final = "draft.fc.out"
EMBEDDING: Final = "draft.embedding"
CARRY: Final = "draft.carry"
START: Final = "draft.start"
PLACES: Final = (AUX_CAPTURE, FED, FC_IN, FC_OUT, EMBEDDING, CARRY, START)
"""In the order in which a draft extend meets them, and then a proposal. ``target.aux_capture``: what the
target packed, per slot. ``draft.extend``: what the draft was fed, per slot. ``draft.fc.in`` and
``draft.fc.out``: input (per slot) and output of fc. ``draft.embedding``: embeddings of the draft's input
tokens. ``draft.carry``: the state that the draft hands to its next step (draft step 0: what the draft extend
leaves for the first one). ``draft.start``: what the proposal of the next pass starts from, which must be that
very state: it may have been kept in a slot, or have come from another engine, meanwhile."""

MAX_ROWS: Final = 4096
"""Rows in one chunk: 64 steps of some 14 places and slots, and prefills."""
MAX_FINGERPRINTS: Final = 512
"""Fingerprints of one request, place and slot in one pass, the first ones: a prefill may have many rows."""


@dataclass(slots=True)
class HiddenRow:
    """What one place and slot held of one request in one pass. ``None``: not recorded.

    ``step``, ``after`` and ``mode`` as in :class:`specscope.chunks.ExtendRow`; ``source`` is ``target_fed``
    (``draft_step`` 0) or ``self_fed`` (from 1). ``position`` counts the tokens of prompt and output before
    the one whose forward gave the first of its ``rows``, the others follow; the embedding at a position is
    that of the next token. Self-fed rows go on behind the last target-fed row before them: draft step k has
    the position k further. The carry of draft step 0 has that of the last target-fed row, and so has the
    start of the proposal that goes on from it. ``mean``, ``std``
    (population) and ``max_abs`` are taken over all finite values, ``nonfinite`` counts the others,
    ``zero_rows`` the rows that are all zero, ``equal_rows`` those equal to the row before (the first row of
    a request is not compared). ``same_as`` names the place whose very tensor this was: the numbers are
    there, and absent here. Of the first :data:`MAX_FINGERPRINTS` rows ``levels`` has one entry each
    (round(256 log2 rms), :data:`NO_LEVEL`), ``fingerprints`` :data:`PROJECTIONS` in 1/16 of the row's rms.
    """

    step: int
    after: str
    mode: str
    place: str
    source: str
    draft_step: int
    slot: int
    position: int
    rows: int
    mean: float | None = None
    std: float | None = None
    max_abs: float | None = None
    nonfinite: int | None = None
    zero_rows: int | None = None
    equal_rows: int | None = None
    same_as: str | None = None
    levels: Sequence[int] | None = None
    fingerprints: Sequence[int] | None = None

    @property
    def rms(self) -> float | None:
        """Return sqrt(mean(x**2)) of the finite values, ``None`` where not recorded."""
        if self.mean is None or self.std is None:
            return None
        return float(np.hypot(self.mean, self.std))


HIDDEN_COLUMNS: Final = tuple(f.name for f in fields(HiddenRow))
_TYPES: Final = packed_rows.types_of(HiddenRow)
REQUIRED: Final = HIDDEN_COLUMNS[: HIDDEN_COLUMNS.index("mean")]
DELTA: Final = ("step", "position")
"""Columns that are stored as differences."""


def pack(rows: Sequence[HiddenRow], *, codec: int | None = None) -> bytes:
    """Pack rows for the wire.

    Raises:
        CodecError: a value does not fit its column.
    """
    return packed_rows.pack(rows, HIDDEN_COLUMNS, _TYPES, delta=DELTA, codec=codec)


def unpack(blob: bytes) -> list[HiddenRow]:
    """Return the rows of a blob.

    Raises:
        CodecError: the blob is damaged, a column is missing or holds values of another kind.
    """
    rows: list[dict[str, Any]] = packed_rows.unpack(blob, "hidden states", _TYPES, REQUIRED, MAX_ROWS)
    return [HiddenRow(**row) for row in rows]


def quantise(rms: NDArray[np.floating], projections: NDArray[np.floating]) -> tuple[list[int], list[int]]:
    """Return (levels, fingerprints) of rows: ``rms`` [rows], ``projections`` [rows, PROJECTIONS].

    Projections are those of :mod:`specscope.tensorstats`: sums over signs divided by sqrt(width).
    """
    levels, units = quantised(rms, projections)
    return levels.tolist(), units.ravel().tolist()


def quantised(
    rms: NDArray[np.floating], projections: NDArray[np.floating]
) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """Return what :func:`quantise` does as arrays: [rows], [rows, PROJECTIONS]."""
    sound = np.isfinite(rms) & (rms > 0)
    scale = np.where(sound, rms, 1.0)
    levels = np.where(sound, np.rint(PER_OCTAVE * np.log2(scale)).clip(-32767, 32767), NO_LEVEL)
    with np.errstate(invalid="ignore", over="ignore"):
        units = np.rint(PER_RMS * projections / scale[:, None])
    units = np.where(sound[:, None] & np.isfinite(units), units, 0).clip(-127, 127)
    return levels.astype(np.int16), units.astype(np.int8)


def restore(
    levels: Sequence[int], fingerprints: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (rms [rows], projections [rows, PROJECTIONS]) as :func:`quantise` took them; NaN: not known.

    Raises:
        ValueError: the lengths do not fit each other.
    """
    units = np.asarray(fingerprints, dtype=np.float64).reshape(-1, PROJECTIONS)
    steps = np.asarray(levels[: len(units)], dtype=np.float64)
    if len(steps) != len(units):
        raise ValueError(f"{len(levels)} levels for {len(units)} fingerprints")
    rms = np.where(steps == NO_LEVEL, np.nan, np.exp2(steps / PER_OCTAVE))
    return rms, units / PER_RMS * rms[:, None]
