"""F13: the draft's positions are encoded otherwise than in its training.

The configuration tells: what the engine built is not what the checkpoint states (certain), or draft and
target encode positions by different bases. The latter alone is no fault, many drafts are trained so; it is
suspected where acceptance shows the effect: the draft's attention no longer finds earlier text, so acceptance
decays with the context, or text that copies its context is accepted *less* than other text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from specscope.rollup import COPY_LIKE

from specscope_server.diagnosis import context_curve, draft_state, facts, inventory, slice_compare, statistics
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, WARNING, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.slice_compare import MIN_STEPS
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "position_config"
FAULT: Final = "F13"
FIELDS: Final = ("rope_theta", "rope_scaling", "partial_rotary_factor", "max_positions")
GAP: Final = 0.1
"""How much less copied text must be accepted. Sound drafts accept it more (0.9 against 0.7 on the tiny pair);
with a wrong base nearly none."""


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft's positions are encoded as in its training."""
    if any(one.kind in ("draft_silent", "fc_bypassed") for one in found):
        return CLEAR
    if "differences" not in evidence.config:
        return Unknown("the engine has not told how draft, checkpoint and target differ")
    lines = [
        line
        for line in facts.entries(evidence.config, "differences")
        if line.get("field") in FIELDS and line.get("level") == inventory.CHECK
    ]
    lost = [
        line for line in lines if line.get("checkpoint") is not None and _apart(line, "checkpoint", "draft")
    ]
    if lost:
        return _finding(
            evidence,
            CERTAIN,
            "The draft's positions are built otherwise than its checkpoint states",
            f"The engine gave the draft another {_names(lost)} than its checkpoint states: it is fine on"
            " short contexts and decays with their length.",
            _numbers(evidence, lost, "checkpoint"),
        )
    # A limit on positions is no encoding: what happens beyond it is told by the rules of lengths.
    paired = [line for line in lines if line.get("field") != "max_positions"]
    if not paired:
        return CLEAR
    elsewhere = draft_state.elsewhere(evidence)
    if elsewhere is not None:
        return _finding(
            evidence,
            CERTAIN,
            "The draft's positions are encoded otherwise than its reference's",
            f"Draft and target differ in {_names(paired)}, and at {elsewhere.words} the draft's layer leaves"
            " another state than the reference's draft, from the same input: its attention looks elsewhere.",
            (
                *_numbers(evidence, paired, "target"),
                Number("draft states that are not the reference's", len(elsewhere.wrong), 0,
                       f"of {len(elsewhere.states)} tokens", facts.link(evidence, "draft.forward")),
            ),
        )  # fmt: skip
    shown = effect(evidence)
    if shown is None:
        return Unknown(
            f"draft and target differ in {_names(paired)}; a draft trained so is well, and acceptance neither"
            " decays with the context nor fails on copied text as far as is known"
        )
    words, numbers = shown
    return _finding(
        evidence,
        SUSPECTED,
        "Draft and target encode positions differently, and it shows",
        f"Draft and target differ in {_names(paired)}, and {words}: a draft whose attention does not find"
        " earlier text looks so.",
        (*_numbers(evidence, paired, "target"), *numbers),
    )


def _apart(line: Mapping[str, Any], one: str, other: str) -> bool:
    first, second = inventory.number(line.get(one)), inventory.number(line.get(other))
    if first is not None and second is not None:
        return abs(first - second) > 1e-9 * max(abs(first), abs(second))
    return line.get(one) != line.get(other)


def effect(evidence: Evidence) -> tuple[str, tuple[Number, ...]] | None:
    """Return (words, numbers) of an acceptance that suffers where a draft looks back; ``None``: not shown.

    It decays with the context, or text that copies its context is accepted less than other text.
    """
    fall = context_curve.fall(evidence)
    if fall is not None and fall.word == context_curve.DECAY:
        return fall.worse.words, fall.worse.numbers(evidence)
    values = slice_compare.by_value(evidence, COPY_LIKE)
    if "yes" not in values or "no" not in values:
        return None
    copied, other = slice_compare.first_token(values["yes"]), slice_compare.first_token(values["no"])
    requests = slice_compare.steps_a_request(evidence)
    if copied is None or other is None or requests is None or min(copied.of, other.of) < MIN_STEPS:
        return None
    weighed = statistics.effective(other, requests), statistics.effective(copied, requests)
    if statistics.log_evidence(*weighed, GAP) < slice_compare.BOUND:
        return None
    place = f"{facts.link(evidence)}?dimension={COPY_LIKE}"
    return (
        f"text that copies its context is accepted less ({copied.value:.0%}) than other text"
        f" ({other.value:.0%})",
        (
            Number("first-token acceptance, copied text", round(copied.value, 3), round(other.value, 3),
                   f"of {copied.of:.0f} steps", place),
            Number("first-token acceptance, other text", round(other.value, 3), None,
                   f"of {other.of:.0f} steps", place),
        ),
    )  # fmt: skip


def _names(lines: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(line.get("field")) for line in lines)


def _numbers(evidence: Evidence, lines: Sequence[Mapping[str, Any]], other: str) -> tuple[Number, ...]:
    place = f"{facts.link(evidence)}#differences"
    return tuple(
        Number(f"{line.get('field')} of the draft as built", str(line.get("draft")),
               f"{line.get(other)} ({other})", "", place)
        for line in lines
    )  # fmt: skip


def _finding(
    evidence: Evidence, confidence: str, title: str, sentence: str, numbers: tuple[Number, ...]
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(Ruled("F23 workload", "the setting differs whatever is served"),)
        if confidence == CERTAIN
        else (),
        next_check="A/B: the same long and copying prompts with the draft's rope_theta and rope_scaling set"
        " to those of its training (its training's config.json, or the target's)",
        fix="Set rope_theta, rope_scaling and max_position_embeddings in the draft's config.json to those of"
        " its training, under the names that the engine reads.",
        boundary="draft.forward",
    )
