"""Hidden states of an engine against those of a reference run, token by token. Pure functions.

Under greedy and under sampled decoding alike verification keeps the target's tokens, so at the same tokens
a sound engine holds the same states, whatever the draft does. The measure is the **relative error**
sqrt(sum |x - y|**2 / sum |y|**2), not the cosine, which a change of scale leaves at 1. It is 0 for equal
rows, |1 - s| for x = s y, and sqrt(2) for a rotation (:mod:`specscope_server.diagnosis.relative_error`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from specscope import convention, hidden
from specscope.hidden import HiddenRow
from specscope.reference_file import Passage, Track

from specscope_server.diagnosis import relative_error
from specscope_server.diagnosis.engine_evidence import ReferenceEvidence, ReferenceWeight
from specscope_server.diagnosis.relative_error import NOTHING, Array, Estimate, Sums

EQUAL: Final = 0.1
"""Relative error below which a slot is taken for a slot of the reference. Measured on the tiny target: a run
in bfloat16 against one in float32 0.006, the layer beside the right one 0.3."""
_MOST_LEVEL: Final = 128 * hidden.PER_OCTAVE
"""Level of the largest float32; :data:`hidden.NO_LEVEL` is that of the smallest."""
AHEAD: Final = (hidden.EMBEDDING, hidden.CARRY)
"""Places whose rows at a position depend on the token behind it."""
SHIFTS: Final = (-1, 1)
"""Offsets of position that are tried: rows of the token before (stale), or of the one behind."""
PASSES: Final = ("prefill", "verify")
MAX_SERIES: Final = 4096
"""Tokens of one place and slot whose own errors are given."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """One place and slot of an engine against all slots of the reference at that place, and against shifts.

    ``recorded`` counts the engine's rows that have a fingerprint, whether or not the reference knows their
    tokens. ``against`` has one entry a slot of the reference; ``shifted`` is by offset, against the slot of
    the same number. ``errors`` are those of the single tokens at ``positions`` (the first
    :data:`MAX_SERIES`), each with an error of its own of about a quarter of its value.
    """

    place: str
    slot: int
    recorded: int
    against: tuple[Sums, ...]
    shifted: Mapping[int, Sums]
    positions: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()
    after: str = ""
    """Of passes after a ``prefill`` or a ``verify`` alone; empty: of all."""

    def __add__(self, other: Pairs) -> Pairs:
        """Return both together, of the same place and slot of two requests; without the single tokens.

        Raises:
            ValueError: the references have different slots there.
        """
        return Pairs(
            self.place,
            self.slot,
            self.recorded + other.recorded,
            tuple(a + b for a, b in zip(self.against, other.against, strict=True)),
            {shift: self.shifted[shift] + other.shifted[shift] for shift in SHIFTS},
            after=self.after,
        )


@dataclass(frozen=True, slots=True)
class SlotComparison:
    """What is told of one place and slot. ``None``: nothing was compared there.

    ``against`` are the relative errors to each slot of the reference, ``equals`` the slot that it is
    (:data:`EQUAL`), ``shifted`` the relative error to rows that many positions further. ``median_error`` is
    that of the single tokens, which a few tokens of large states (the first one of a text) do not rule.
    """

    place: str
    slot: int
    recorded: int
    estimate: Estimate | None
    median_error: float | None
    against: tuple[float | None, ...]
    equals: int | None
    shifted: Mapping[int, float | None]
    positions: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()
    after: str = ""


@dataclass(slots=True)
class _Rows:
    """Rows of one place and slot as they come."""

    positions: list[Array] = field(default_factory=list[Array])
    rms: list[Array] = field(default_factory=list[Array])
    projections: list[Array] = field(default_factory=list[Array])


def common_prefix(
    one: Sequence[int] | NDArray[np.integer], other: Sequence[int] | NDArray[np.integer]
) -> int:
    """Return how many tokens two sequences share from their start."""
    length = min(len(one), len(other))
    # Ids are a request's own and may be of any size: 64 bits hold what a chunk can.
    differ = np.asarray(one[:length], dtype=np.int64) != np.asarray(other[:length], dtype=np.int64)
    return int(differ.argmax()) if differ.any() else length


def known_ids(prompt: Sequence[int], output: Mapping[int, int]) -> list[int]:
    """Return the ids of a request's prompt and output up to the first that is not known.

    ``output`` is by position in both together. The first output token comes from a prefill and is in no
    verify step's output, so it may be missing, and all behind it then belongs to a context not known.
    """
    ids = list(prompt)
    while (token := output.get(len(ids))) is not None:
        ids.append(token)
    return ids


def compare(
    rows: Iterable[HiddenRow],
    ids: Sequence[int],
    passage: Passage,
    same_as: Mapping[str, str],
) -> list[Pairs]:
    """Return every place and slot of a request's target-fed rows that the reference has numbers of.

    ``ids`` are those of the request (:func:`known_ids`), ``same_as`` is the file's. Compared are positions
    up to which both have the same tokens: a state at position p depends on the tokens up to p, the
    embedding there and what the draft makes of both on the token p + 1. Places are in the order in which
    they come.
    """
    shared = common_prefix(ids, passage.ids)
    tracks: dict[str, dict[int, Track]] = {}
    for track in passage.tracks:
        tracks.setdefault(track.place, {})[track.slot] = track
    found: dict[tuple[str, int], _Rows] = {}
    for row in rows:
        if row.source == convention.TARGET_FED and row.draft_step == 0 and row.fingerprints:
            _take(found.setdefault((row.place, row.slot), _Rows()), row)
    pairs: list[Pairs] = []
    for (place, slot), taken in sorted(found.items(), key=lambda item: _order(*item[0])):
        slots = tracks.get(same_as.get(place, place), {})
        if slots and taken.rms:
            known = shared - 1 if place in AHEAD else shared
            pairs.append(_pairs(place, slot, taken, slots, known))
    return pairs


def compare_by_pass(
    rows: Iterable[HiddenRow],
    ids: Sequence[int],
    passage: Passage,
    same_as: Mapping[str, str],
) -> list[Pairs]:
    """Return :func:`compare` of the rows after prefills alone, and of those after verifies alone."""
    given = list(rows)
    return [
        replace(pairs, after=after, positions=(), errors=())
        for after in PASSES
        for pairs in compare((row for row in given if row.after == after), ids, passage, same_as)
    ]


def conclude(pairs: Pairs) -> SlotComparison:
    """Return what is told of one place and slot."""
    estimates = [sums.estimate() for sums in pairs.against]
    errors = [None if one is None else one.relative_error for one in estimates]
    told = [(error, slot) for slot, error in enumerate(errors) if error is not None]
    least = min(told, default=None)
    shifted = {shift: sums.estimate() for shift, sums in pairs.shifted.items()}
    return SlotComparison(
        place=pairs.place,
        slot=pairs.slot,
        recorded=pairs.recorded,
        estimate=estimates[pairs.slot] if pairs.slot < len(estimates) else None,
        median_error=float(np.median(pairs.errors)) if pairs.errors else None,
        against=tuple(errors),
        equals=least[1] if least is not None and least[0] < EQUAL else None,
        shifted={shift: None if one is None else one.relative_error for shift, one in shifted.items()},
        positions=pairs.positions,
        errors=pairs.errors,
        after=pairs.after,
    )


def as_evidence(compared: Iterable[SlotComparison], reference_uid: str) -> tuple[ReferenceEvidence, ...]:
    """Return what the rules see of a comparison; a slot that the reference does not have is left out."""
    return tuple(_seen(one, told, reference_uid) for one in compared if (told := one.estimate) is not None)


def reference_weights(facts: Mapping[str, Any]) -> tuple[ReferenceWeight, ...]:
    """Return what the draft of a reference holds, of its :class:`specscope.reference_file.Facts` as JSON.

    They were checked when the file was taken; none where it was made without a draft.
    """
    draft = cast("Mapping[str, Any]", facts.get("draft") or {})
    return tuple(
        ReferenceWeight(
            source=tuple(one["source"]),
            shape=tuple(one["shape"]),
            hashes=tuple(one["hash"].split()),
            mean=one["mean"],
            std=one["std"],
            max_abs=one["max_abs"],
        )
        for one in cast("Sequence[Mapping[str, Any]]", draft.get("weights") or ())
    )


def _seen(one: SlotComparison, told: Estimate, reference_uid: str) -> ReferenceEvidence:
    scale, error = told.scale, told.relative_error
    return ReferenceEvidence(
        place=one.place,
        slot=one.slot,
        rows=told.tokens,
        relative_error=error,
        scale=scale,
        cosine=max(-1.0, min(1.0, (1 + scale**2 - error**2) / (2 * scale))) if scale > 0 else None,
        shifted={shift: other for shift, other in one.shifted.items() if other is not None},
        other_slots={
            slot: other for slot, other in enumerate(one.against) if slot != one.slot and other is not None
        },
        reference=reference_uid,
        after=one.after,
    )


def _order(place: str, slot: int) -> tuple[int, int]:
    return (hidden.PLACES.index(place) if place in hidden.PLACES else len(hidden.PLACES)), slot


def _take(into: _Rows, row: HiddenRow) -> None:
    """Add a row of the wire; what makes no sense in it is left out."""
    levels = row.levels or []
    if any(abs(level) > _MOST_LEVEL for level in levels):
        return
    try:
        rms, projections = hidden.restore(levels, row.fingerprints or [])
    except ValueError:
        return
    unknown = sum(level == hidden.NO_LEVEL for level in levels)
    if unknown and unknown == row.zero_rows:
        # No level means all zero, or not finite; here every one of them is told to be the former.
        empty = np.isnan(rms)
        rms = np.where(empty, 0.0, rms)
        projections = np.where(empty[:, None], 0.0, projections)
    into.positions.append(row.position + np.arange(len(rms), dtype=np.float64))
    into.rms.append(rms)
    into.projections.append(projections)


def _pairs(place: str, slot: int, taken: _Rows, tracks: Mapping[int, Track], known: int) -> Pairs:
    positions = np.concatenate(taken.positions).astype(np.int64)
    rms = np.concatenate(taken.rms)
    projections = np.concatenate(taken.projections)
    sound = np.isfinite(rms) & (positions >= 0) & (positions < known)
    positions, rms, projections = positions[sound], rms[sound], projections[sound]
    own = (rms, projections)
    against = tuple(
        _sums(own, positions, tracks[number], known) if number in tracks else NOTHING
        for number in range(max(tracks) + 1)
    )
    mine = tracks.get(slot)
    series = _series(own, positions, mine, known) if mine is not None else ((), ())
    return Pairs(
        place,
        slot,
        sum(len(one) for one in taken.rms),
        against,
        {shift: NOTHING if mine is None else _sums(own, positions + shift, mine, known) for shift in SHIFTS},
        *series,
    )


def _chosen(
    own: tuple[Array, Array], positions: NDArray[np.int64], track: Track, known: int
) -> tuple[NDArray[np.bool_], Array, Array, Array, Array]:
    """Return which rows have one in the track, and (rms, projections) of both sides there."""
    inside = (positions >= 0) & (positions < min(known, len(track.rms)))
    at = positions[inside]
    rms, projections = track.rms[at].astype(np.float64), track.projections[at].astype(np.float64)
    finite = np.isfinite(rms) & np.isfinite(projections).all(axis=1)
    inside[inside] = finite
    return inside, own[0][inside], own[1][inside], rms[finite], projections[finite]


def _sums(own: tuple[Array, Array], positions: NDArray[np.int64], track: Track, known: int) -> Sums:
    _, rms, projections, other_rms, other = _chosen(own, positions, track, known)
    return relative_error.sums((rms, projections), (other_rms, other))


def _series(
    own: tuple[Array, Array], positions: NDArray[np.int64], track: Track, known: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return positions in order and the relative error of each; a row of the reference of zeros has none."""
    inside, rms, projections, other_rms, other = _chosen(own, positions, track, known)
    there = positions[inside]
    order = np.argsort(there, kind="stable")
    order = order[other_rms[order] > 0][:MAX_SERIES]
    errors = relative_error.of_rows((rms[order], projections[order]), (other_rms[order], other[order]))
    return tuple(there[order].tolist()), tuple(errors.tolist())
