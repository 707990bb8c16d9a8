"""Sums over the looks at hidden states of **all** user requests, which baselines and timelines read.

They are cut at the same UTC 10-second boundaries as :mod:`specscope.rollup`, sent on the same spans as
increments and applied exactly once with them. A *look* is one request at one place and slot in one pass; of
looks that are told as the tensor of another place there are no numbers, and they are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Final, cast

import numpy as np

from specscope import columns, rollup

MAX_KEYS: Final = 1024
"""Keys held until they are sent, and rows of one record: a chain of 16 drafts with 8 aux layers, eager and
replayed, has under two hundred."""
LARGEST: Final = float(np.finfo(np.float32).max)
"""Sums that float32 cannot hold travel as its largest number."""


Key = tuple[str, str, int, int, str, str]
"""(place, source, draft step, slot, after, mode) as in :class:`specscope.hidden.HiddenRow`."""
KEY_FIELDS: Final = ("place", "source", "draft_step", "slot", "after", "mode")


@dataclass(slots=True)
class Sums:
    """Sums over looks and over their ``rows``.

    ``sum`` and ``sum_square`` add each look's mean and mean square times its rows; a look without a finite
    value adds nothing. ``levelled`` counts the looks with a finite rms above 0, ``sum_level`` and
    ``sum_level2`` add log2 of it and its square. ``max_abs`` is the largest finite value of all, in size.
    """

    looks: int = 0
    rows: int = 0
    nonfinite: int = 0
    zero_rows: int = 0
    equal_rows: int = 0
    levelled: int = 0
    sum: float = 0.0
    sum_square: float = 0.0
    max_abs: float = 0.0
    sum_level: float = 0.0
    sum_level2: float = 0.0

    def add(self, other: Sums) -> None:
        """Add ``other``; of ``max_abs`` the larger one stays."""
        largest = max(self.max_abs, other.max_abs)
        for name in SUM_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max_abs = largest


SUM_FIELDS: Final = tuple(f.name for f in fields(Sums))
COUNTS: Final = SUM_FIELDS[: SUM_FIELDS.index("sum")]
COLUMNS: Final = (*KEY_FIELDS, *SUM_FIELDS)


class HiddenRollup:
    """Increments of one process since the last :meth:`take`, by bucket, at most :data:`MAX_KEYS`."""

    def __init__(self) -> None:
        """Start empty."""
        self._buckets: dict[int, dict[Key, Sums]] = {}
        self._keys = 0

    def add(self, wall_ns: int, key: Key, sums: Sums) -> bool:
        """Add some looks at one key; return whether there was room for the key."""
        found = self._buckets.setdefault(rollup.bucket_start(wall_ns), {})
        if key not in found:
            if self._keys >= MAX_KEYS:
                return False
            self._keys += 1
            found[key] = Sums()
        found[key].add(sums)
        return True

    def take(self) -> dict[int, dict[Key, Sums]]:
        """Return by bucket (its start in unix seconds) everything since the last call."""
        taken, self._buckets, self._keys = self._buckets, {}, 0
        return {bucket: sums for bucket, sums in taken.items() if sums}


def pack(rows: Mapping[Key, Sums], *, codec: int | None = None) -> bytes:
    """Pack the rows of one bucket for the wire; ``codec`` as in :func:`specscope.columns.encode`."""
    keys = sorted(rows)
    packed: dict[str, columns.Column] = {}
    for at, name in enumerate(KEY_FIELDS):
        packed[name] = cast("columns.Column", [key[at] for key in keys])
    for at, name in enumerate(SUM_FIELDS):
        values = [astuple(rows[key])[at] for key in keys]
        packed[name] = values if name in COUNTS else [max(-LARGEST, min(LARGEST, one)) for one in values]
    return columns.encode(packed, codec=codec)


def unpack(blob: bytes, *, max_raw: int = columns.MAX_RAW) -> dict[Key, Sums]:
    """Return the rows of a packed rollup. Unknown columns are ignored, so that new ones may be added.

    Raises:
        CodecError: the blob is damaged, a column is missing, a value absent, of another kind, negative or
            not finite, a key doubled, its raw body is larger than ``max_raw`` bytes, or it has more than
            :data:`MAX_KEYS` rows.
    """
    decoded = columns.decode(blob, max_raw=max_raw, max_rows=MAX_KEYS)
    missing = [name for name in COLUMNS if name not in decoded]
    if missing:
        raise columns.CodecError(f"hidden-state sums lack the columns {missing}")
    rows: dict[Key, Sums] = {}
    for values in _rows(decoded):
        place, source, draft_step, slot, after, mode, *numbers = values
        texts, whole = (place, source, after, mode), (draft_step, slot)
        if not all(isinstance(v, str) for v in texts) or not all(
            isinstance(v, int) and v >= 0 for v in whole
        ):
            raise columns.CodecError(f"key {values[:6]!r} of hidden-state sums is not texts and numbers >= 0")
        key = cast("Key", values[:6])
        if key in rows:
            raise columns.CodecError(f"key {key!r} of hidden-state sums is doubled")
        counts, reals = numbers[: len(COUNTS)], numbers[len(COUNTS) :]
        if not all(isinstance(n, int) and n >= 0 for n in counts):
            raise columns.CodecError(f"counts of {key!r} in hidden-state sums must be integers >= 0")
        if not all(isinstance(n, float) and np.isfinite(n) for n in reals):
            raise columns.CodecError(f"sums of {key!r} in hidden-state sums must be finite numbers")
        rows[key] = Sums(*cast("list[int]", counts), *cast("list[float]", reals))
    return rows


def _rows(decoded: columns.Decoded) -> Iterable[tuple[object, ...]]:
    return zip(*(cast("list[object]", decoded[name]) for name in COLUMNS), strict=True)
