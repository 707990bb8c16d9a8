"""The hidden states of engine passes as the rows of their requests, from record to packed columns.

One step of one request has some fourteen rows. As objects they would cost the exporter more than all else it
does, so that they stay in arrays, one of each kind a pass, which its requests' chunks share until they close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from specscope import columns, hidden
from specscope import convention as c
from specscope.exporter import looks
from specscope.records import HiddenLook, HiddenPass

ROW_RAW: Final = 160
"""Bytes of raw body that a row takes at most, without its levels and fingerprints."""
FINGERPRINT_RAW: Final = 2 + hidden.PROJECTIONS
MAX_NAMES: Final = 256
"""Names of places, sources, modes that one engine may use: there are a dozen."""

_TEXTS: Final = ("after", "mode", "place", "source", "same_as")
_WHOLE: Final = (
    "step", "after", "mode", "place", "source", "draft_step", "slot", "position", "rows",
    "nonfinite", "zero_rows", "equal_rows", "same_as", "levels",
)  # fmt: skip
"""Columns of :attr:`Part.whole`; that of the levels says how many there are, as many as fingerprints."""
_AT: Final = {name: index for index, name in enumerate(_WHOLE)}
_ABSENT: Final = -1
_REALS: Final = ("mean", "std", "max_abs")
MEAN_BITS: Final = 9
"""A mean is kept in 2**-9 of the power of two below the rms: by chance alone it differs by more."""
DEVIATION_BITS: Final = 10
"""Bits of mantissa that are kept of a deviation, which is compared; a peak is read by its size."""
PEAK_BITS: Final = 7

Whole = NDArray[np.int64]
Reals = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one request in one pass; ``levels`` and ``units`` are of all its rows, in their order."""

    whole: Whole
    reals: Reals
    levels: NDArray[np.int16]
    units: NDArray[np.int8]

    @property
    def raw(self) -> int:
        """Return a bound of the raw body's bytes that it takes."""
        return ROW_RAW * len(self.whole) + FINGERPRINT_RAW * len(self.levels)


def reduce(record: HiddenPass) -> list[looks.Reduced | None]:
    """Return the numbers of each look, ``None`` for one that is told as the tensor of another place.

    Projections of self-fed passes are left out: nothing outside the draft gives what they could be held
    against.

    Raises:
        ValueError: see :func:`specscope.exporter.looks.reduce`; or a look is of other requests.
    """
    for look in record.looks:
        if len(look.counts) != len(record.uids):
            raise ValueError(f"{look.place}: {len(look.counts)} counts for {len(record.uids)} requests")
    return [
        looks.reduce(look, fingerprints=look.source != c.SELF_FED) if look.data else None
        for look in record.looks
    ]


class HiddenRows:
    """Cuts passes into the parts of their requests and packs these. It numbers the names they use."""

    def __init__(self) -> None:
        """Know no name."""
        self._names: dict[str, int] = {}

    def _name(self, name: str) -> int:
        number = self._names.setdefault(name, len(self._names))
        if number >= MAX_NAMES:
            del self._names[name]
            raise ValueError(f"more than {MAX_NAMES} names of places, sources and modes: {name!r}")
        return number

    def parts(self, record: HiddenPass, reduced: Sequence[looks.Reduced | None]) -> list[Part | None]:
        """Return the rows of each request of a pass, ``None`` for one without.

        ``reduced`` as :func:`reduce` gave it.

        Raises:
            ValueError: positions are not as many as requests, or there are too many names or rows.
        """
        requests, slots = len(record.uids), sum([look.slots for look in record.looks])
        position = np.array(record.positions, dtype=np.int64)
        if len(position) != requests:
            raise ValueError(f"{len(position)} positions for {requests} requests")
        if slots > hidden.MAX_ROWS:
            raise ValueError(f"{slots} rows of hidden states of one request in one pass")
        fed = np.zeros(requests, dtype=np.int64)
        for look in record.looks:
            if look.source == c.TARGET_FED and look.place not in (hidden.CARRY, hidden.START):
                fed = np.maximum(fed, look.counts)
        whole = np.full((requests, slots, len(_WHOLE)), _ABSENT, dtype=np.int64)
        reals = np.full((requests, slots, len(_REALS)), np.nan)
        for name, value in (
            ("step", record.step),
            ("after", self._name(record.after)),
            ("mode", self._name(record.mode)),
        ):
            whole[:, :, _AT[name]] = value
        last, at = position + np.maximum(fed - 1, 0), 0
        for look, found in zip(record.looks, reduced, strict=True):
            # A proposal goes on from the last target-fed row before this pass, which is one before its first.
            proposal = look.source == c.SELF_FED or look.place == hidden.START
            own = position - 1 + look.draft_step if proposal else position
            rows = whole[:, at : at + look.slots]
            self._fill(rows, look, found, last if look.place == hidden.CARRY and not look.draft_step else own)
            if found is not None:
                for column, values in enumerate((found.mean, found.spread, found.max_abs)):
                    reals[:, at : at + look.slots, column] = values
            at += look.slots
        kept = _rounded(reals)
        ends, levels, units = _fingerprints(requests, reduced)
        there = cast("list[bool]", (whole[:, :, _AT["rows"]] > 0).any(axis=1).tolist())
        return [
            Part(whole[index], kept[index], levels[begin:end], units[begin:end]) if there[index] else None
            for index, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
        ]

    def _fill(self, rows: Whole, look: HiddenLook, found: looks.Reduced | None, position: Whole) -> None:
        """Fill the whole numbers of a look: ``rows`` [requests, slots, columns]."""
        rows[:, :, _AT["place"]] = self._name(look.place)
        rows[:, :, _AT["source"]] = self._name(look.source)
        rows[:, :, _AT["draft_step"]] = look.draft_step
        rows[:, :, _AT["slot"]] = range(look.slots)
        rows[:, :, _AT["position"]] = position[:, None]
        if found is None:
            rows[:, :, _AT["rows"]] = np.array(look.counts)[:, None]
            if look.same_as:
                rows[:, :, _AT["same_as"]] = self._name(look.same_as)
            return
        rows[:, :, _AT["rows"]] = found.rows[:, None]
        rows[:, :, _AT["nonfinite"]] = found.nonfinite
        rows[:, :, _AT["zero_rows"]] = found.zero
        rows[:, :, _AT["equal_rows"]] = found.equal
        if found.fingerprints is not None:
            rows[:, :, _AT["levels"]] = found.fingerprints.kept[:, None]

    def pack(self, parts: Sequence[Part], *, codec: int | None = None) -> bytes:
        """Pack the rows of a chunk as :func:`specscope.hidden.pack` does, a place's rows one after the other.

        So they compress best. Requests without rows at a place have none there.
        """
        whole = np.concatenate([part.whole for part in parts])
        reals = np.concatenate([part.reals for part in parts])
        order = np.lexsort([whole[:, _AT[name]] for name in ("slot", "draft_step", "source", "place")])
        order = order[whole[order, _AT["rows"]] > 0]
        counts = np.maximum(whole[:, _AT["levels"]], 0)
        begins = np.cumsum(counts) - counts
        whole, reals, counts = whole[order], reals[order], counts[order]
        take = np.arange(int(counts.sum())) + np.repeat(begins[order] - (np.cumsum(counts) - counts), counts)
        found: dict[str, columns.Array] = {
            name: columns.Array(
                whole[:, at],
                None if name in hidden.REQUIRED else whole[:, at] != _ABSENT,
                tuple(self._names) if name in _TEXTS else None,
            )
            for name, at in _AT.items()
        }
        for at, name in enumerate(_REALS):
            found[name] = columns.Array(reals[:, at], np.isfinite(reals[:, at]))
        present = found["levels"].present
        levels, units = (
            np.concatenate(one)[take] for one in zip(*[(p.levels, p.units) for p in parts], strict=True)
        )
        found["levels"] = columns.Array(levels, present, lengths=counts)
        found["fingerprints"] = columns.Array(units.ravel(), present, lengths=hidden.PROJECTIONS * counts)
        kept = [name for name in hidden.HIDDEN_COLUMNS if _any(found[name])]
        return columns.encode({name: found[name] for name in kept}, delta=hidden.DELTA, codec=codec)


def _rounded(reals: NDArray[np.float64]) -> Reals:
    """Return mean, deviation and peak as they are sent; of ``reals`` [..., mean, variance, peak]."""
    mean, deviation, peak = reals[..., 0], np.sqrt(reals[..., 1]), reals[..., 2]
    parts = (
        looks.in_parts(mean, np.hypot(mean, deviation), MEAN_BITS),
        looks.rounded(deviation, DEVIATION_BITS),
        looks.rounded(peak, PEAK_BITS),
    )
    return np.stack(parts, axis=-1)


def _any(column: columns.Array) -> bool:
    return column.present is None or bool(column.present.any())


def _fingerprints(
    requests: int, reduced: Sequence[looks.Reduced | None]
) -> tuple[list[int], NDArray[np.int16], NDArray[np.int8]]:
    """Return (where those of each request end, levels, fingerprints): a request's lie as its rows do."""
    prints = [found.fingerprints for found in reduced if found is not None and found.fingerprints is not None]
    if not prints:
        return [0] * requests, np.empty(0, np.int16), np.empty((0, hidden.PROJECTIONS), np.int8)
    owners = [np.tile(np.repeat(np.arange(requests), one.kept), len(one.levels)) for one in prints]
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    levels = np.concatenate([one.levels.ravel() for one in prints])[order]
    units = np.concatenate([one.units.reshape(-1, hidden.PROJECTIONS) for one in prints])[order]
    return np.cumsum(np.bincount(owner, minlength=requests)).tolist(), levels, units
