"""Slices of rollups: which there are of each dimension, in which order, and series of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specscope import convention as c
from specscope.rollup import (
    ALL,
    BATCH,
    CACHED,
    CONTEXT,
    COPY_LIKE,
    MODE,
    ROW,
    TEMPERATURE,
    power_slice,
)

from specscope_server.store.model import SeriesPoint

_POWERS: Final = (power_slice(0), *(power_slice(1 << bits) for bits in range(64)))
SLICES: Final[Mapping[str, tuple[str, ...]]] = {
    ALL: (),
    CONTEXT: _POWERS,
    ROW: _POWERS,
    BATCH: _POWERS,
    MODE: c.MODES,
    CACHED: ("hit", "miss"),
    TEMPERATURE: ("0", "<=0.5", "<=1", ">1"),
    COPY_LIKE: ("yes", "no"),
}
"""The slices of each dimension, smallest first; ``all`` has none."""
MOST: Final = 64
"""Slices of one answer: no dimension of our tracer has more in use."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """Series by slice, in the order of :data:`SLICES`; slices that only another tracer knows come last.

    A slice without a step has no entry. ``left_out`` slices had fewer steps than all of these.
    """

    series: Mapping[str, Sequence[SeriesPoint]]
    left_out: int = 0


def ordered(dimension: str, found: Sequence[str]) -> list[str]:
    """Return slices in the order of :data:`SLICES`."""
    known = {name: place for place, name in enumerate(SLICES.get(dimension, ()))}
    return sorted(found, key=lambda name: (known.get(name, len(known)), name))
