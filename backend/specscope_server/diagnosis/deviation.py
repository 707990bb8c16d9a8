"""In which way hidden states are not those that they should be, slot by slot. Pure.

Two numbers tell most of it: the relative error e = |x - y| / |y| and the scale s = |x| / |y|. They give
the cosine (1 + s**2 - e**2) / 2s, and each kind of difference has its own place in that plane: a mere factor
has e = |1 - s|, noise that knows nothing of y has s**2 = 1 + e**2, a rotation s = 1 and a cosine of 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from specscope_server.diagnosis.engine_evidence import PlaceComparison, ReferenceEvidence

SAME: Final = "same"
SHIFTED: Final = "shifted"
ORDER: Final = "order"
SCALED: Final = "scaled"
ROTATED: Final = "rotated"
NOISE: Final = "noise"
OTHER_ROWS: Final = "other rows"
PARTIAL: Final = "partial"
OTHER: Final = "other"

MIN_ROWS: Final = 32
"""Rows below which a comparison says nothing: the 8 projections of 32 rows tell an error to about 6 %."""
EQUAL: Final = 0.1
"""Error below which states are those of another slot or token: bfloat16 against float32 has 0.006, and the
layer next to the right one 0.3 on a model of 8 layers."""
NOTICED: Final = 0.15
"""Error of one slot below which states are taken for the reference's; what another number format adds."""
NOTICED_QUANTISED: Final = 0.5
"""The same where the target is quantised, and the reference may not be."""
FAR: Final = 0.3
"""Error that states of the right token must have at least where those of its neighbour fit."""
_FACTOR: Final = 0.03
"""How exactly e = |1 - s| must hold: a factor is estimated exactly, whatever the projections."""
_NO_SCALE: Final = 0.1
"""Scales within this of 1 are no change of size."""
_UNRELATED: Final = 0.7
"""Error from which on rows of the same size have nothing much in common with those they should be."""
_PART: Final = 0.5
"""Scale of every slot below which it holds a part of the state: what one sublayer adds is small beside the
sum that it is added to (0.17 to 0.25 on the tiny target, whose own layers are within 0.72 to 1.53)."""
_PART_COSINE: Final = 0.7
"""Cosine of every slot below which it is a part: the sums of two layers share all that came before (0.79 and
more on the tiny target), what one sublayer adds does not (0.34 to 0.60)."""
_TURNED: Final = 0.15
"""Cosine below which rows have nothing in common at all: rows of one model share their mean."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot held against what it should be."""

    slot: int
    rows: int
    error: float
    scale: float | None = None
    shifted: Mapping[int, float] = field(default_factory=dict[int, float])
    others: Mapping[int, float] = field(default_factory=dict[int, float])

    @property
    def cosine(self) -> float | None:
        """Return the cosine that error and scale leave, ``None`` where the scale is not known."""
        if not self.scale:
            return None
        return (1 + self.scale**2 - self.error**2) / (2 * self.scale)


@dataclass(frozen=True, slots=True)
class Deviation:
    """``kind`` of the slots that differ, all together; ``slots`` are all that were compared."""

    kind: str
    slots: tuple[Slot, ...]
    shift: int = 0
    """Offset of the token whose states they are, with :data:`SHIFTED`."""
    factor: float | None = None
    """With :data:`SCALED`: mean factor of the slots."""
    moved: Mapping[int, int] = field(default_factory=dict[int, int])
    """With :data:`ORDER`: which slot of the reference each displaced slot is."""

    @property
    def rows(self) -> int:
        """Return the rows that were compared in the slot that had least."""
        return min(slot.rows for slot in self.slots)


def of_reference(
    told: Sequence[ReferenceEvidence], place: str, noticed: float, after: str = ""
) -> Deviation | None:
    """Return how ``place`` differs from the reference; ``None``: too little was compared.

    In all passes, or in those ``after`` a ``prefill`` or a ``verify`` alone.
    """
    return classify(
        [
            Slot(one.slot, one.rows, one.relative_error, one.scale, one.shifted, one.other_slots)
            for one in told
            if one.place == place and one.after == after
        ],
        noticed,
    )


def of_places(
    told: Sequence[PlaceComparison], place: str, other: str, noticed: float, after: str = ""
) -> Deviation | None:
    """Return how ``place`` differs from ``other`` in the same passes (``after`` one kind of pass alone)."""
    return classify(
        [
            Slot(one.slot, one.rows, one.relative_error, one.scale, one.shifted)
            for one in told
            if one.place == place and one.other == other and after in ("", one.after)
        ],
        noticed,
    )


def classify(slots: Sequence[Slot], noticed: float) -> Deviation | None:
    """Return in which way ``slots`` differ; ``None``: none has :data:`MIN_ROWS` rows."""
    enough = tuple(slot for slot in slots if slot.rows >= MIN_ROWS)
    if not enough:
        return None
    differing = [slot for slot in enough if slot.error >= noticed]
    if not differing:
        return Deviation(SAME, enough)
    for shift in (-1, 1):
        if all(slot.error >= FAR and slot.shifted.get(shift, FAR) < EQUAL for slot in differing):
            return Deviation(SHIFTED, enough, shift=shift)
    moved = {slot.slot: least for slot in differing if (least := _displaced(slot)) is not None}
    if moved:
        return Deviation(ORDER, enough, moved=moved)
    scales = [slot.scale for slot in differing if slot.scale is not None]
    if len(scales) < len(differing):
        return Deviation(OTHER, enough)
    if all(abs(s.error - abs(1 - (s.scale or 0))) <= _FACTOR * s.error for s in differing):
        return Deviation(SCALED, enough, factor=sum(scales) / len(scales))
    if all(abs(scale - 1) <= _NO_SCALE for scale in scales) and all(
        slot.error >= _UNRELATED for slot in differing
    ):
        turned = all(abs(slot.cosine or 0.0) < _TURNED for slot in differing)
        return Deviation(ROTATED if turned else OTHER_ROWS, enough)
    if len(differing) == len(enough) > 1 and all(_part(slot) for slot in differing):
        return Deviation(PARTIAL, enough)
    if all(_noisy(slot) for slot in differing):
        return Deviation(NOISE, enough)
    return Deviation(OTHER, enough)


def _displaced(slot: Slot) -> int | None:
    least = min(((error, number) for number, error in slot.others.items()), default=None)
    return least[1] if least is not None and least[0] < EQUAL and least[1] != slot.slot else None


def _part(slot: Slot) -> bool:
    return (slot.scale or 0.0) <= _PART and (slot.cosine or 0.0) <= _PART_COSINE


def _noisy(slot: Slot) -> bool:
    """Say whether the states are the right ones plus something that knows nothing of them."""
    scale, square = slot.scale or 0.0, slot.error**2
    return scale > 1 and square <= 1 and abs(scale**2 - (1 + square)) <= 0.25 * square
