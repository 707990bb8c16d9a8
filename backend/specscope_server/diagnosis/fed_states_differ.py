"""F06, F07, F12: the states that the draft is fed are not those that the target has at these tokens.

They pass through hands: packed by the target, copied, sent from a prefill to a decode engine, scaled. Where
the hand-over changes them, the draft's input differs from what the target packed in the very same pass, which
needs no reference to see. Where the target's own states are others (scaled, rotated, empty), zeros show by
themselves and the rest by a reference. Rows of the token before are :mod:`.shifted`, other layers
:mod:`.aux_layers`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from specscope import hidden

from specscope_server.diagnosis import aux_layers, deviation, facts, fed_rows
from specscope_server.diagnosis.deviation import Deviation
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
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

KIND: Final = "fed_states_differ"
TRANSPORT: Final = "F07"
NUMERIC: Final = "F12"
RESIDUAL: Final = "F06"
COPIED: Final = 0.05
"""Error between two places of one pass below which one is a copy of the other: an exact copy has 0, one
through bfloat16 0.004."""
MIN_LOOKS: Final = 8
SIZE: Final = math.log2(1.02)
"""Octaves between the sizes of the same rows at two places; a copy through bfloat16 keeps them to 0.0001, and
the wire rounds to 0.001."""
ZERO_SHARE: Final = 0.02
ZERO_ROWS: Final = 4
"""Rows of zeros that are no accident: a residual stream to which every layer adds is never exactly 0."""
EQUAL_SHARE: Final = 0.5
"""Share of rows equal to the row before that no text explains, unless its tokens are equal as well."""
_ROOTS: Final = ("draft_silent", "fc_bypassed", "weights_not_finite")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """One slot whose rows have another size where the draft is fed than where the target packed them."""

    fed: HiddenEvidence
    packed: HiddenEvidence
    octaves: float


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft is fed the target's own states."""
    if any(found.kind in _ROOTS for found in roots):
        return CLEAR  # nothing, or nothing sound, is fed there, and that is named already
    if fed_rows.cut(evidence.fed_rows) is not None:
        return CLEAR  # on their way states change in all rows alike: :mod:`.row_or_graph_stale`
    empty = _empty(evidence)
    if empty is not None:
        return _zeros(evidence, empty)
    handed = deviation.of_places(evidence.places, hidden.FED, hidden.AUX_CAPTURE, COPIED)
    if handed is not None and handed.kind == deviation.SHIFTED:
        return CLEAR
    if handed is not None and handed.kind != deviation.SAME:
        return _changed(evidence, handed)
    sizes = _sizes(evidence)
    if sizes is not None:
        return _resized(evidence, sizes)
    told = aux_layers.compared(evidence)
    if told is not None and told.kind in _OF_REFERENCE:
        return _unlike(evidence, told)
    repeated = _repeated(evidence)
    if repeated is not None:
        return _same_rows(evidence, repeated)
    if told is not None:
        return CLEAR
    if handed is not None:
        return Unknown(
            "the draft is fed what the target packed; whether the target's own states are of the scale that"
            " the draft was trained on, a reference alone tells"
        )
    if _looked(evidence):
        return Unknown(
            "states are neither empty nor repeated nor of another size than packed, but none were compared"
            " row by row (detail full, or a reference)"
        )
    return Unknown("no hidden states that the draft is fed were looked at in the window")


def _at(evidence: Evidence, place: str) -> list[HiddenEvidence]:
    return [one for one in evidence.hidden if one.place == place and one.source != "self_fed"]


def _looked(evidence: Evidence) -> bool:
    return any(one.looks >= MIN_LOOKS for one in _at(evidence, hidden.FED))


def _empty(evidence: Evidence) -> HiddenEvidence | None:
    for place in (hidden.FED, hidden.AUX_CAPTURE):
        for one in _at(evidence, place):
            share = one.zero_share or 0.0
            if share >= ZERO_SHARE and share * one.rows >= ZERO_ROWS:
                return one
    return None


def _repeated(evidence: Evidence) -> HiddenEvidence | None:
    """Return where rows equal the one before although their tokens do not (told by the embeddings)."""
    tokens = {
        one.after: one.equal_share for one in _at(evidence, hidden.EMBEDDING) if one.equal_share is not None
    }
    for one in _at(evidence, hidden.FED):
        share, of_tokens = one.equal_share, tokens.get(one.after)
        if share is None or of_tokens is None or one.looks < MIN_LOOKS or one.rows - one.looks < MIN_LOOKS:
            continue
        if share - of_tokens >= EQUAL_SHARE:
            return one
    return None


def _sizes(evidence: Evidence) -> _Sizes | None:
    packed = {(one.slot, one.after, one.mode): one for one in _at(evidence, hidden.AUX_CAPTURE)}
    for one in _at(evidence, hidden.FED):
        other = packed.get((one.slot, one.after, one.mode))
        if other is None or not one.rms or not other.rms or one.looks < MIN_LOOKS:
            continue
        # Only of the very same rows do the sizes have to agree.
        if (one.looks, one.rows) != (other.looks, other.rows):
            continue
        octaves = math.log2(one.rms / other.rms)
        if abs(octaves) > SIZE:
            return _Sizes(one, other, octaves)
    return None


def _place(evidence: Evidence) -> str:
    return facts.link(evidence, "draft.extend")


def _numbers(evidence: Evidence, told: Deviation, against: str, bound: float) -> tuple[Number, ...]:
    numbers: list[Number] = []
    for slot in told.slots:
        name = f"relative error of slot {slot.slot} to {against} ({slot.rows} rows)"
        numbers.append(Number(name, round(slot.error, 3), f"< {bound:g}", "", _place(evidence)))
        if slot.scale is not None:
            numbers.append(Number(f"size of slot {slot.slot} by that", round(slot.scale, 3), 1, ""))
    return tuple(numbers)


def _finding(
    evidence: Evidence,
    fault: str,
    confidence: str,
    title: str,
    sentence: str,
    numbers: tuple[Number, ...],
    ruled: tuple[Ruled, ...],
    check: str,
    fix: str,
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=fault,
        severity=CRITICAL if confidence == CERTAIN else WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(
            *ruled,
            Ruled("F04 aux hidden states not captured", "what the draft is fed is as wide as its fc takes"),
        ),
        next_check=check,
        fix=fix,
        boundary="draft.extend",
    )


_HAND_OVER: Final = (
    "Look at what carries hidden states from the target's pass to the draft's: disaggregated prefill and"
    " decode, migration, graph buffers, quantised or compressed transfer. Send whole states of the right"
    " rows, or prefill and decode in one engine."
)
_ONE_ENGINE: Final = (
    "A/B: the same prompts on one engine that prefills and decodes by itself, without graphs"
    " (--disable-cuda-graph), at SPECSCOPE_DETAIL=full: there draft.extend must equal target.aux_capture"
)
_RIVALS: Final = (
    Ruled("F05 other layers", "the target's own states of the same pass are the measure, not its layers"),
    Ruled("F23 workload", "whatever the prompt, a state is handed over as it is"),
)


def _where(evidence: Evidence) -> str:
    """Say whether only one kind of pass is wrong: a hand-over after prefill shows in the first step alone."""
    wrong: dict[str, bool] = {}
    for after in ("prefill", "verify"):
        told = deviation.of_places(evidence.places, hidden.FED, hidden.AUX_CAPTURE, COPIED, after)
        if told is not None:
            wrong[after] = told.kind != deviation.SAME
    if wrong == {"prefill": True, "verify": False}:
        return (
            " Only the states of prompts are wrong: the first steps after the hand-over suffer, later ones"
            " recover."
        )
    if wrong == {"prefill": False, "verify": True}:
        return " Only what follows a verify is wrong; the states of prompts arrive as they are."
    return ""


def _changed(evidence: Evidence, told: Deviation) -> Finding:
    how = {
        deviation.SCALED: f"it is {told.factor or 0:.3g} times as large",
        deviation.NOISE: "something that knows nothing of it was added",
        deviation.OTHER_ROWS: "it is that of other tokens",
        deviation.ROTATED: "it is as large and points elsewhere",
    }.get(told.kind, "it is another")
    worst = max(told.slots, key=lambda slot: slot.error)
    return _finding(
        evidence,
        NUMERIC if told.kind in (deviation.SCALED, deviation.ROTATED) else TRANSPORT,
        CERTAIN,
        "The draft is fed other states than the target packed",
        "Between the target and the draft the hidden states change: in the same passes, what the draft is fed"
        f" is off by up to {worst.error:.0%} from what the target packed for it; {how}. The draft guesses"
        f" from states that no model ever had.{_where(evidence)}",
        _numbers(evidence, told, "what the target packed", COPIED),
        _RIVALS,
        _ONE_ENGINE,
        _HAND_OVER,
    )


def _resized(evidence: Evidence, sizes: _Sizes) -> Finding:
    return _finding(
        evidence,
        TRANSPORT,
        CERTAIN,
        "The draft is fed other states than the target packed",
        "Between the target and the draft the hidden states change: over the very same"
        f" {sizes.fed.rows} rows, what the draft is fed in slot {sizes.fed.slot} is"
        f" {2**sizes.octaves:.3g} times as large as what the target packed for it.",
        (
            Number(
                f"rms of slot {sizes.fed.slot} where the draft is fed, after {sizes.fed.after}",
                sizes.fed.rms,
                sizes.packed.rms,
                "",
                _place(evidence),
            ),
            Number("rows of both", sizes.fed.rows, sizes.packed.rows, "rows"),
        ),
        _RIVALS,
        _ONE_ENGINE,
        _HAND_OVER,
    )


def _zeros(evidence: Evidence, one: HiddenEvidence) -> Finding:
    share = one.zero_share or 0.0
    return _finding(
        evidence,
        TRANSPORT,
        CERTAIN,
        "The draft is fed empty states",
        f"After {one.after}, {share:.0%} of the {one.rows} rows at {one.place} (slot {one.slot}) hold nothing"
        " but zeros. A target's states are never exactly zero, so these rows were not filled: the draft"
        " guesses without having seen the text.",
        (
            Number(
                f"share of rows of zeros at {one.place}, after {one.after}", share, 0, "", _place(evidence)
            ),
            Number("rows", one.rows, None, "rows"),
        ),
        (Ruled("F23 workload", "no prompt makes a state zero"),),
        _ONE_ENGINE,
        _HAND_OVER,
    )


def _same_rows(evidence: Evidence, one: HiddenEvidence) -> Finding:
    share = one.equal_share or 0.0
    return _finding(
        evidence,
        TRANSPORT,
        SUSPECTED,
        "The draft is fed the same state again and again",
        f"After {one.after}, {share:.0%} of the rows in slot {one.slot} equal the row before to the last bit,"
        " although their tokens differ: one state seems to be handed over in place of many.",
        (Number("share of rows equal to the row before", share, 0, "", _place(evidence)),),
        (Ruled("F23 workload: repeated tokens", "their embeddings are not equal"),),
        _ONE_ENGINE,
        _HAND_OVER,
    )


_OF_REFERENCE: Final = {
    deviation.SCALED: (NUMERIC, CERTAIN, "Hidden states of another scale"),
    deviation.ROTATED: (NUMERIC, SUSPECTED, "Hidden states of another representation"),
    deviation.NOISE: (TRANSPORT, SUSPECTED, "Noise in the hidden states that the draft is fed"),
    deviation.OTHER_ROWS: (TRANSPORT, SUSPECTED, "The draft is fed states of other tokens"),
    deviation.PARTIAL: (RESIDUAL, SUSPECTED, "Hidden states without their residual"),
}


def _unlike(evidence: Evidence, told: Deviation) -> Finding:
    fault, confidence, title = _OF_REFERENCE[told.kind]
    sentence = {
        deviation.SCALED: (
            f"At the same tokens the states that the draft is fed are {told.factor or 0:.3g} times as large"
            " as the target's own in a reference run, and otherwise the same. The draft was not trained on"
            " that scale."
        ),
        deviation.ROTATED: (
            "At the same tokens the states that the draft is fed are as large as the target's own in a"
            " reference run and have no direction in common with them: rotated, permuted or requantised"
            " weights stand on one side and plain ones on the other."
        ),
        deviation.NOISE: (
            "At the same tokens the states that the draft is fed are the target's own and something more that"
            " knows nothing of them: size and error are those of added noise."
        ),
        deviation.PARTIAL: (
            "At the same tokens every slot that the draft is fed is a small part of the target's state in a"
            " reference run: what one sublayer puts out, without the residual that it is added to. The sum of"
            " another layer would share far more with it."
        ),
        deviation.OTHER_ROWS: (
            "At the same tokens the states that the draft is fed are as large as the target's own in a"
            " reference run, but those of other tokens: stale or misplaced rows."
        ),
    }[told.kind]
    numeric = fault == NUMERIC
    return _finding(
        evidence,
        fault,
        confidence,
        title,
        sentence,
        aux_layers.errors(evidence, told),
        (
            Ruled("F05 other layers", "sizes and errors of all slots fit that alone"),
            Ruled("F23 workload", "at the same tokens a target has the same states, whatever the prompt"),
        ),
        "A/B: the plain, unquantised target with the same draft and prompts; if its states equal the"
        " reference's, the converted weights are the cause"
        if numeric
        else _ONE_ENGINE,
        "Serve the target in the representation that the draft was trained on, or convert the draft with it"
        " (fold the same rotation or scale into fc)."
        if numeric
        else _HAND_OVER,
    )
