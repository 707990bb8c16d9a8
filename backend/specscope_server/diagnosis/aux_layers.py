"""F05: the draft is fed hidden states of other layers than it was trained on, or in another order.

Width and counts are all right, so nothing fails: the loss is mild and uniform, and acceptance alone cannot
tell it from a harder workload. What tells is the configuration (which layers the checkpoint names, which the
engine captures), two slots that hold the very same numbers, and a reference of the target.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Final

from specscope import hidden

from specscope_server.diagnosis import deviation, facts
from specscope_server.diagnosis.deviation import Deviation
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.diagnosis.model import (
    CERTAIN,
    SUSPECTED,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "aux_layers"
FAULT: Final = "F05"
MIN_LOOKS: Final = 8
"""Looks in which two slots must have held the same numbers: one could be a prompt of one token."""
_ROOTS: Final = ("draft_silent", "fc_bypassed", "tree_mask")
_FED: Final = (hidden.AUX_CAPTURE, hidden.FED)


@dataclass(frozen=True, slots=True)
class _Layers:
    """What the configuration says: a difference that matters, and ids of layers as outputs."""

    named: object
    captured: object
    why: str
    proven: bool


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft is fed the layers that it was trained on, in their order."""
    if any(found.kind in _ROOTS for found in roots):
        return CLEAR  # which layers they would be of plays no part where none arrive
    layers = _layers(evidence)
    twice = _twice(evidence)
    told = compared(evidence)
    if twice is not None:
        return _same_twice(evidence, twice, layers)
    if told is not None and told.kind == deviation.ORDER:
        return _displaced(evidence, told, layers)
    if told is not None and told.kind == deviation.OTHER and not _fed_otherwise(evidence):
        return _others(evidence, told, layers)
    if layers is not None:
        # That a reference agrees says nothing here: it reads the same configuration as the engine.
        return _configured(evidence, layers, told)
    if told is not None:
        return CLEAR
    if facts.setting(evidence.config, "draft") and not facts.setting(evidence.config, "fc"):
        return CLEAR  # a draft that reads no aux hidden states
    return Unknown(
        "no request of the window has a reference, and without one states of another layer look as good as"
        " the right ones"
    )


def compared(evidence: Evidence) -> Deviation | None:
    """Return what a reference says of the states that the target packed, else of what the draft was fed."""
    found = [deviation.of_reference(evidence.reference, place, noticed(evidence)) for place in _FED]
    return next((one for one in found if one is not None), None)


def noticed(evidence: Evidence) -> float:
    """Return the error from which on states count as others than the reference's."""
    quantised = facts.setting(evidence.config, "target", "quantization_config") or facts.setting(
        evidence.config, "arguments", "quantization"
    )
    return deviation.NOTICED_QUANTISED if quantised else deviation.NOTICED


def _layers(evidence: Evidence) -> _Layers | None:
    for line in facts.entries(evidence.config, "differences"):
        why = line.get("why")
        if line.get("field") != "aux_layer_ids" or line.get("level") != "check" or not isinstance(why, str):
            continue
        named, captured = line.get("checkpoint"), line.get("target")
        if FAULT not in why or not captured:
            continue
        return _Layers(named, captured, why, proven=named is not None and named != captured)
    return None


def _twice(evidence: Evidence) -> tuple[HiddenEvidence, HiddenEvidence] | None:
    """Return two slots that held the same numbers in every look: different layers never do."""
    for place in _FED:
        slots = [one for one in evidence.hidden if one.place == place and one.looks >= MIN_LOOKS and one.rms]
        for at, one in enumerate(slots):
            for other in slots[at + 1 :]:
                if _pass(one) == _pass(other) and _sums(one) == _sums(other):
                    return one, other
    return None


def _pass(one: HiddenEvidence) -> tuple[str, str, str, int]:
    return one.source, one.after, one.mode, one.draft_step


def _sums(one: HiddenEvidence) -> tuple[Any, ...]:
    return one.looks, one.rows, one.mean, one.rms, one.max_abs, one.geometric_rms, one.deviation


def _fed_otherwise(evidence: Evidence) -> bool:
    """Say whether the hand-over itself changed the states: then their layer is not what is wrong."""
    told = deviation.of_places(evidence.places, hidden.FED, hidden.AUX_CAPTURE, deviation.NOTICED)
    return told is not None and told.kind != deviation.SAME


def errors(evidence: Evidence, told: Deviation) -> tuple[Number, ...]:
    """Return the slots of a comparison with a reference as evidence."""
    return tuple(
        Number(
            f"relative error of slot {slot.slot} to the reference ({slot.rows} rows)",
            round(slot.error, 3),
            f"< {noticed(evidence):g}",
            "",
            facts.link(evidence, "draft.extend"),
        )
        for slot in told.slots
    )


def _numbers(evidence: Evidence, told: Deviation | None, layers: _Layers | None) -> tuple[Number, ...]:
    place = f"{facts.link(evidence)}#configuration"
    numbers = list(errors(evidence, told)) if told is not None else []
    if told is not None:
        numbers += [
            Number(f"size of slot {slot.slot} by the reference's", round(slot.scale, 3), 1, "")
            for slot in told.slots
            if slot.scale is not None
        ]
    if layers is not None:
        numbers.append(
            Number("layers captured, as outputs", str(layers.captured), str(layers.named or ""), "", place)
        )
    else:
        captured = facts.setting(evidence.config, "capture", "layer_ids")
        if captured is not None:
            numbers.append(Number("layers captured, as inputs", str(captured), None, "", place))
    return (*numbers, *facts.examples(evidence))


def _check(evidence: Evidence) -> str:
    target = facts.setting(evidence.config, "target", "path")
    draft = facts.setting(evidence.config, "draft", "path")
    words = [shlex.quote(path) if isinstance(path, str) and path else name for path, name in (
        (target, "TARGET"), (draft, "DRAFT"),
    )]  # fmt: skip
    return (
        f"specscope fingerprint --target {words[0]} --draft {words[1]} --prompts prompts.jsonl --layers"
        " <inputs of the layers that the training used> --out reference.jsonl --send SERVER  # then the same"
        " prompts with SPECSCOPE_DETAIL=full: the layers whose error is below 0.1 are those captured"
    )


_FIX: Final = (
    "Set eagle_config.eagle_aux_hidden_state_layer_ids of the draft's config.json to the layers of its"
    " training, in their order, counted as the engine counts (SGLang 0.5.23: outputs of layers, it adds 1"
    " to take the input of the next), and restart."
)


def _finding(
    evidence: Evidence,
    confidence: str,
    title: str,
    sentence: str,
    told: Deviation | None,
    layers: _Layers | None,
    numbers: tuple[Number, ...] = (),
) -> Finding:
    ruled = [Ruled("F04 aux hidden states not captured", "what the draft is fed is as wide as its fc takes")]
    if told is not None:
        ruled += [
            Ruled("F12 another scale", "the errors are not those of a mere factor"),
            Ruled("F14 shifted", "the states of the neighbouring tokens fit no better"),
            Ruled("F23 workload", "at the same tokens a target has the same states, whatever the prompt"),
        ]
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *_numbers(evidence, told, layers)),
        ruled_out=tuple(ruled),
        next_check=_check(evidence),
        fix=_FIX,
        boundary="target.aux_capture",
    )


def _same_twice(
    evidence: Evidence, twice: tuple[HiddenEvidence, HiddenEvidence], layers: _Layers | None
) -> Finding:
    one, other = twice
    return _finding(
        evidence,
        CERTAIN,
        "One layer is fed twice",
        f"Slots {one.slot} and {other.slot} of what the draft is fed held exactly the same numbers in all"
        f" {one.looks} looks: the same layer of the target stands in both, and the one that the draft expects"
        " there is missing. It guesses from fewer layers than it was trained on.",
        None,
        layers,
        (
            Number(f"rms of slot {one.slot}", one.rms, None, "", facts.link(evidence, "draft.extend")),
            Number(
                f"rms of slot {other.slot}", other.rms, "another", "", facts.link(evidence, "draft.extend")
            ),
        ),
    )


def _displaced(evidence: Evidence, told: Deviation, layers: _Layers | None) -> Finding:
    named = ", ".join(f"slot {slot} holds what slot {home} should" for slot, home in told.moved.items())
    whole = {slot.slot for slot in told.slots}
    permuted = set(told.moved) == set(told.moved.values()) and set(told.moved) <= whole
    title = "Aux hidden states in another order" if permuted else "Aux hidden states of other layers"
    return _finding(
        evidence,
        CERTAIN,
        title,
        f"Held against a reference run of the target on the same tokens, {named}. The draft reads each layer"
        " by its place, so it guesses from states that mean something else to it than in its training;"
        " acceptance falls for all prompts alike.",
        told,
        layers,
    )


def _configured(evidence: Evidence, layers: _Layers, told: Deviation | None) -> Finding:
    return _finding(
        evidence,
        CERTAIN if layers.proven else SUSPECTED,
        "Aux hidden states of other layers",
        "The draft is fed the target's states of other layers than it was trained on, as far as its"
        f" configuration tells: {layers.why[0].lower()}{layers.why[1:].rstrip('.')}.",
        told,
        layers,
    )


def _others(evidence: Evidence, told: Deviation, layers: _Layers | None) -> Finding:
    worst = max(told.slots, key=lambda slot: slot.error)
    because = "" if layers is None else f" Its configuration says why: {layers.why}"
    return _finding(
        evidence,
        SUSPECTED if layers is None else CERTAIN,
        "Aux hidden states of other layers",
        "What the target hands to the draft is not what it holds at the layers of the reference: at the same"
        f" tokens slot {worst.slot} is off by {worst.error:.0%} of its size. Neither a factor, nor noise, nor"
        f" a shift gives these numbers; another layer does.{because}".rstrip(".")
        + ".",
        told,
        layers,
    )
