"""F06, F08, F12, F21: the draft that serves holds other numbers than the one that a reference was made with.

A reference that was made where the draft was trained says what each of its tensors holds. Which of them an
engine holds otherwise, and how, names what a conversion or a deployment did to it: norm weights less one, the
same numbers in another place, the same size in another direction, or all of another training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from specscope_server.diagnosis import facts, inventory, sprt
from specscope_server.diagnosis.engine_evidence import ReferenceWeight
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    SUSPECTED,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "draft_differs"
SAME, LESS_ONE, MOVED, TURNED, OTHER = "same", "less one", "moved", "turned", "other"
_EMBEDDING: Final = "embed_tokens"
_EXACT: Final = 2e-3
"""Relative difference that rounding to another type leaves in moments of a tensor: bfloat16 keeps 8 bits of
each number, and a mean over many is far more exact than one of them."""
_ONE: Final = 0.02
"""How far the means of a norm's weights may be from exactly 1 apart where it is stored as w - 1."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor of the engine beside that of the reference, and in which way they differ."""

    name: str
    kind: str
    told: Mapping[str, Any]
    wanted: ReferenceWeight

    def number(self, evidence: Evidence) -> Number:
        """Return both as evidence."""
        return Number(
            f"{self.name} ({self.kind}): deviation, largest value",
            f"{self.told.get('std')}, {self.told.get('max_abs')}",
            f"{self.wanted.std:.5g}, {self.wanted.max_abs:.5g}",
            "",
            _place(evidence),
        )


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft is the one that the reference was made with, and what was done to it."""
    if any(one.kind in ("weights_missing", "weights_not_finite", "weights_changed") for one in found):
        return CLEAR  # these tell which tensors hold nothing of use, or since when others
    if not evidence.reference_weights:
        return Unknown("no reference of this engine tells what its draft's tensors hold")
    held = compared(evidence)
    if not held:
        return Unknown("no tensor of the draft is one that the reference tells of")
    by_kind = {kind: [one for one in held if one.kind == kind] for kind in (LESS_ONE, MOVED, TURNED, OTHER)}
    if other_head(held):
        return CLEAR  # head_replaced tells of it
    if by_kind[LESS_ONE]:
        return _less_one(evidence, by_kind[LESS_ONE])
    odd = [*by_kind[MOVED], *by_kind[TURNED]]
    if by_kind[OTHER]:
        return _other(evidence, held, by_kind[OTHER])
    if odd:
        return _other_form(evidence, odd, len(held))
    return CLEAR


def compared(evidence: Evidence) -> list[Held]:
    """Return the draft's tensors that the reference tells of and that are whole here."""
    wanted = {frozenset(one.source): one for one in evidence.reference_weights}
    held: list[Held] = []
    for tensor in inventory.tensors(evidence):
        other = wanted.get(_source(tensor))
        if tensor.get("status") != "loaded" or other is None:
            continue
        if tensor.get("shape") != list(other.shape):
            continue  # a part of one rank
        held.append(Held(str(tensor.get("name")), _way(tensor, other), tensor, other))
    return held


def other_head(held: Sequence[Held]) -> Held | None:
    """Return the head where it alone holds other values: no conversion turns a head and nothing before it."""
    odd = [one for one in held if one.kind != SAME]
    if len(odd) == 1 and len(held) > 1 and odd[0].kind in (TURNED, OTHER) and "lm_head" in odd[0].name:
        return odd[0]
    return None


def _source(tensor: Mapping[str, Any]) -> frozenset[str]:
    """Return the checkpoint's names of a tensor; none where an engine tells something else there."""
    told: object = tensor.get("from")
    if not isinstance(told, list | tuple):
        return frozenset()
    return frozenset(name for name in cast("Sequence[object]", told) if isinstance(name, str))


def _way(told: Mapping[str, Any], wanted: ReferenceWeight) -> str:
    if told.get("hash") in wanted.hashes:
        return SAME
    mean, std, largest = (inventory.number(told.get(name)) for name in ("mean", "std", "max_abs"))
    if mean is None or std is None or largest is None:
        return SAME  # nothing is told that could differ
    alike = math.isclose(std, wanted.std, rel_tol=_EXACT)
    if len(wanted.shape) == 1:
        return LESS_ONE if abs(wanted.mean - mean - 1) < _ONE and abs(std - wanted.std) < _ONE else OTHER
    exact = alike and math.isclose(largest, wanted.max_abs, rel_tol=_EXACT)
    if exact and abs(mean - wanted.mean) <= _EXACT * wanted.std:
        return MOVED
    sizes = math.hypot(mean, std), math.hypot(wanted.mean, wanted.std)
    return TURNED if math.isclose(*sizes, rel_tol=_EXACT) else OTHER


def _less_one(evidence: Evidence, norms: Sequence[Held]) -> Finding:
    return Finding(
        kind=KIND,
        fault_class="F06",
        severity=CRITICAL,
        confidence=CERTAIN,
        title="Norm weights are stored less one",
        sentence=(
            f"{len(norms)} norms of the draft have weights that are exactly 1 less than those that the"
            " reference was made with: they are stored as w - 1, for a class that adds 1, and the engine's"
            " class multiplies by them as they are. Every state behind them has another scale."
        ),
        numbers=tuple(
            Number(
                f"mean of {one.name}", one.told.get("mean"), round(one.wanted.mean, 4), "", _place(evidence)
            )
            for one in norms[:5]
        ),
        ruled_out=(Ruled("another training", "the differences are 1 and the deviations are equal"),),
        next_check="add 1 to these weights in a copy of the checkpoint and serve it: acceptance must return",
        fix="Export the norm weights as the engine's class of the draft reads them: add 1 to each.",
        boundary="draft.forward",
    )


def _other_form(evidence: Evidence, odd: Sequence[Held], of: int) -> Finding:
    moved = all(one.kind == MOVED for one in odd)
    what = (
        "hold the same numbers in other places (mean, deviation and largest value are equal, the hash is not)"
        if moved
        else "are as large as they were, and hold other numbers: they are turned"
    )
    return Finding(
        kind=KIND,
        fault_class="F12",
        severity=CRITICAL,
        confidence=CERTAIN if moved else SUSPECTED,
        title="The draft's weights are in another representation",
        sentence=(
            f"{len(odd)} of {of} tensors of the draft ({', '.join(one.name for one in odd[:3])}) {what}, held"
            " against those that the reference was made with; all others are the very same. A conversion has"
            " exchanged, permuted or rotated them, and statistics of single tensors look right."
        ),
        numbers=tuple(_numbers(evidence, odd)),
        ruled_out=(Ruled("F21 another version of the draft", "the other tensors are the very same"),),
        next_check="compare these tensors of the served checkpoint with those of the training, row by row:"
        " exchanged parts (gate and up), permuted heads (rotary layout) or a rotation show at once",
        fix="Convert the checkpoint again for the layout that the engine's class of the draft reads, or serve"
        " the edition of the target that the draft was converted for.",
        boundary="draft.forward",
    )


def _other(evidence: Evidence, held: Sequence[Held], other: Sequence[Held]) -> Finding | Clear | Unknown:
    told = f"{len(other)} of {len(held)} tensors of the draft hold other values than the reference's draft"
    if sum(one.kind == SAME for one in held) > len(other):
        # A draft with a table of its own was trained with it: embedding_wrong and head_replaced tell of that.
        if inventory.oddities(evidence, "replaced by the target's") or all(
            _EMBEDDING in one.name for one in other
        ):
            return CLEAR
        return _some(evidence, told, other)
    if inventory.decision(evidence) == sprt.BENEFIT:
        return Unknown(f"{told}, and it serves well: the reference may be of another version")
    return Finding(
        kind=KIND,
        fault_class="F21",
        severity=WARNING,
        confidence=CERTAIN if inventory.decision(evidence) == sprt.NO_BENEFIT else SUSPECTED,
        title="Another draft serves than the one of this target",
        sentence=(
            f"{told}, which was made with this very target. Draft and target are of different trainings: the"
            " one was replaced and the other was not."
        ),
        numbers=tuple(_numbers(evidence, other)),
        ruled_out=(
            Ruled("F12 another representation", "no rotation or permutation gives such values"),
            Ruled("another target", "the reference fits the target: hashes of its norms are equal"),
        ),
        next_check="compare the SHA-256 of the served draft's files with those in the reference"
        " (GET /api/v1/references/{uid}, facts.draft.files)",
        fix="Serve the draft that was trained for this version of the target; deploy both together.",
        boundary="draft.forward",
    )


def _some(evidence: Evidence, told: str, other: Sequence[Held]) -> Finding:
    return Finding(
        kind=KIND,
        fault_class="F08",
        severity=WARNING,
        confidence=SUSPECTED,
        title="Some of the draft's weights are not those of its training",
        sentence=(
            f"{told} ({', '.join(one.name for one in other[:3])}), and most of the others are the very same:"
            " it is this version of the draft, and these were made, changed or damaged after its training. A"
            " draft that still helps would help more with its own."
        ),
        numbers=tuple(_numbers(evidence, other)),
        ruled_out=(
            Ruled("F12 another representation", "no rotation or permutation gives such values"),
            Ruled("F21 another version of the draft", "most of its tensors are the very same"),
        ),
        next_check="compare these tensors of the served checkpoint with those of its training. Where they"
        " were trained on by themselves, make a new reference of this draft (specscope fingerprint)",
        fix="Load these tensors from the draft's own checkpoint, whole, under the names that the engine's"
        " class of the draft reads.",
        boundary="draft.forward",
    )


def _numbers(evidence: Evidence, held: Sequence[Held]) -> list[Number]:
    return [one.number(evidence) for one in held[:5]]


def _place(evidence: Evidence) -> str:
    return f"{facts.link(evidence)}#weights"
