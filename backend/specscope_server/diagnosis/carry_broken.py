"""F06: the state that the draft hands to its own next step is not the one that it was trained to get.

The first draft token needs the target's states alone, each further one the draft's own state of the step
before (the carry). So a broken carry leaves position 0 as good as ever and ruins the rest. What is carried
tells how: nothing, its own input, the same state again and again, the normed state in place of the plain
one, or one that grows from step to step. Norm weights near 0 and norms that the engine built otherwise than
the checkpoint states break the draft from position 0 on, and the configuration and inventory tell of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from specscope import convention as c
from specscope import hidden

from specscope_server.diagnosis import (
    deviation,
    draft_differs,
    draft_state,
    facts,
    inventory,
    sprt,
    statistics,
    zero_acceptance,
)
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

KIND: Final = "carry_broken"
_VERIFY: Final = "verify"
FAULT: Final = "F06"
MIN_LOOKS: Final = 16
ZERO_SHARE: Final = 0.5
ECHO: Final = 0.02
"""Error to its own input below which the draft's layers added nothing. Measured: 0.8 to 1.5 healthy, 0 where
the input is handed on; the estimate itself is off by 0.004 at most."""
GROWTH: Final = 4.0
"""Factor between the carry of two steps. Healthy: 0.96 to 1.08. Layers behind a norm add the same whatever
the carry's size, so it cannot grow by a factor step after step."""
NORMED: Final = (0.5, 1.25)
"""Size of a normed state by that of the norm's weights: between least and largest of these weights. Measured
0.7 to 0.97."""
APART: Final = 4.0
"""Factor between fc's output and the carry below which sizes do not tell a normed state from a plain one."""
COLLAPSE: Final = 0.75
"""Acceptance at position 1, of drafts whose predecessor was accepted, by that at position 0, below which the
carry is in question. Measured: 1.07 to 1.10 healthy and 0.9 to 2 with faults of the input; 0.15 to 0.64 with
a broken carry."""
COLLAPSE_ALONE: Final = 0.6
"""The same where nothing but acceptance speaks."""
ERRORS: Final = 3.0
"""Standard errors for a collapse that the carry's own numbers support."""
ERRORS_ALONE: Final = 5.7
"""Standard errors where nothing else speaks: one false alarm in 1e8 looks, as 100 engines give in some
months (8640 windows a day each)."""
MIN_WRONG: Final = 32
EVERY: Final = 0.98
"""Tokens, and their share, at which the draft's state is wrong where what is wrong touches every token."""
_UPDATE: Final = "weights_changed"
_ROOTS: Final = ("draft_silent", "fc_bypassed", "weights_missing", "weights_not_finite")


@dataclass(frozen=True, slots=True)
class Collapse:
    """Accepted at position 0, and at position 1 of those whose predecessor was."""

    first: float
    second: float
    drafted: int
    effect: float
    """How many steps tell as much as one independent step: those of one request are alike."""

    def clear(self, ratio: float, errors: float) -> bool:
        """Say whether the second is below ``ratio`` times the first by this many standard errors."""
        reached = self.first * self.drafted
        if min(self.drafted, reached) < 1 or self.first <= 0:
            return False
        variance = self.effect * (
            self.second * (1 - self.second) / reached
            + ratio**2 * self.first * (1 - self.first) / self.drafted
            + 1 / reached**2
        )
        return ratio * self.first - self.second > errors * math.sqrt(variance)


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft hands its own next step what it was trained to get."""
    if any(
        found.kind in _ROOTS or (found.kind == _UPDATE and found.confidence == CERTAIN) for found in roots
    ):
        return CLEAR  # what an unsound or unfed draft hands on is a consequence
    carry = _carry(evidence)
    for told in (
        _zero(evidence, carry),
        _input_again(evidence),
        _unchanged(evidence, carry),
        _growing(evidence, carry),
        _normed(evidence, carry),
        _norms(evidence),
        _other_layer(evidence),
        _collapsed(evidence, carry),
    ):
        if told is not None:
            return told
    if len(carry) < 2:
        if facts.setting(evidence.config, "speculative", "num_steps") == 1:
            return CLEAR  # one draft a step: nothing is handed on
        return Unknown("the states that the draft hands to its next steps were not looked at (detail steps)")
    return CLEAR


def collapse(evidence: Evidence) -> Collapse | None:
    """Return acceptance at positions 0 and 1; ``None`` where there are none."""
    if len(evidence.positions) < 2:
        return None
    (drafted, accepted), (_, second) = evidence.positions[:2]
    if not drafted or not accepted or accepted > drafted or second > accepted:
        return None
    users = evidence.window_requests.get(c.KIND_USER, 0)
    effect = statistics.design_effect(drafted / max(users, 1))
    return Collapse(accepted / drafted, second / accepted, drafted, effect)


def _carry(evidence: Evidence) -> Sequence[HiddenEvidence]:
    """Return the carry by draft step, after verifies: after a prefill there is one a request alone."""
    found = [
        one
        for one in evidence.hidden
        if one.place == hidden.CARRY and one.after == _VERIFY and one.looks >= MIN_LOOKS
    ]
    modes = {one.mode for one in found}
    mode = max(modes, key=lambda m: sum(one.looks for one in found if one.mode == m), default="")
    return sorted((one for one in found if one.mode == mode), key=lambda one: one.draft_step)


def _place(evidence: Evidence) -> str:
    return facts.link(evidence, c.DRAFT_FORWARD)


def _sizes(evidence: Evidence, carry: Sequence[HiddenEvidence]) -> tuple[Number, ...]:
    return tuple(
        Number(
            f"size of the carry of draft step {one.draft_step} (geometric mean of rms, {one.looks} looks)",
            None if one.geometric_rms is None else round(one.geometric_rms, 4),
            None,
            "",
            _place(evidence),
        )
        for one in carry
    )


def _curve(evidence: Evidence) -> tuple[Number, ...]:
    told = collapse(evidence)
    if told is None:
        return ()
    place = facts.link(evidence)
    return (
        Number("accepted at position 0", round(told.first, 3), None, "", place),
        Number("accepted at position 1, of those accepted before", round(told.second, 3),
               f"about {told.first:.2g}", "", place),
    )  # fmt: skip


def _finding(
    evidence: Evidence,
    confidence: str,
    title: str,
    sentence: str,
    numbers: tuple[Number, ...],
    fix: str,
    check: str = "",
) -> Finding:
    ruled = [Ruled("F04, F05, F07 wrong input", "these spoil position 0 as well, which needs no carry")]
    told = collapse(evidence)
    if told is None or told.first < sprt.P0:
        ruled = []
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL if confidence == CERTAIN else WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *_curve(evidence), *facts.examples(evidence)),
        ruled_out=tuple(ruled),
        next_check=check
        or "A/B: the same prompts with --speculative-num-steps 1 and with the present setting; where the"
        " carry is broken, the first position accepts alike in both and the later ones bring next to nothing",
        fix=fix,
        boundary=c.DRAFT_FORWARD,
    )


_HANDS_ON: Final = (
    "Make the draft hand on what its layer leaves before its final norm, residual included, as in its"
    " training: look at the engine's class of the draft, its norm_output setting, and plugins or patches that"
    " touch its hidden states."
)


def _zero(evidence: Evidence, carry: Sequence[HiddenEvidence]) -> Finding | None:
    empty = [one for one in carry if (one.zero_share or 0.0) >= ZERO_SHARE]
    if not empty:
        return None
    steps = ", ".join(str(one.draft_step) for one in empty)
    return _finding(
        evidence,
        CERTAIN,
        "The draft hands zeros to its next step",
        f"What the draft hands on from draft step {steps} holds nothing but zeros: after its first token it"
        " drafts without knowing what went before.",
        tuple(
            Number(f"share of zero rows in the carry of draft step {one.draft_step}", one.zero_share, 0, "",
                   _place(evidence))
            for one in empty
        ),
        _HANDS_ON,
    )  # fmt: skip


def _input_again(evidence: Evidence) -> Finding | None:
    told = deviation.of_places(evidence.places, hidden.CARRY, hidden.FC_OUT, ECHO)
    if told is None or told.kind != deviation.SAME:
        return None
    (slot, *_) = told.slots
    return _finding(
        evidence,
        CERTAIN,
        "The draft hands on what it was given",
        "What the draft hands to its first step of its own is what fc made of the target's states, row for"
        f" row ({slot.rows} rows): what its own layer made of that is lost, so it drafts its second token"
        " as if it had not drafted the first.",
        (
            Number(f"relative error of the first carry to fc's output ({slot.rows} rows)",
                   round(slot.error, 3), "far above 0", "", _place(evidence)),
        ),
        _HANDS_ON,
    )  # fmt: skip


def _unchanged(evidence: Evidence, carry: Sequence[HiddenEvidence]) -> Finding | None:
    """Two draft steps that hand on the very same numbers in all looks: a layer that works changes them."""
    for one, following in pairwise(carry):
        if one.rms and following.draft_step == one.draft_step + 1 and _sums(one) == _sums(following):
            break
    else:
        return None
    return _finding(
        evidence,
        CERTAIN,
        "The draft hands on the same state at every step",
        f"The states handed on by draft steps {one.draft_step} and {following.draft_step} are the same to the"
        f" last bit in all {one.looks} looks: what the draft makes of a token does not reach its next step.",
        _sizes(evidence, carry),
        _HANDS_ON,
    )


def _sums(one: HiddenEvidence) -> tuple[object, ...]:
    return one.looks, one.rows, one.mean, one.rms, one.max_abs, one.geometric_rms


def _growing(evidence: Evidence, carry: Sequence[HiddenEvidence]) -> Finding | None:
    sizes = [one.geometric_rms for one in carry if one.geometric_rms]
    ratios = [after / before for before, after in pairwise(sizes)]
    grows, shrinks = all(r >= GROWTH for r in ratios), all(r <= 1 / GROWTH for r in ratios)
    if len(ratios) < 2 or not (grows or shrinks):
        return None
    return _finding(
        evidence,
        CERTAIN,
        f"The draft's state {'grows' if grows else 'shrinks'} from step to step",
        f"Each draft step hands on a state at least {GROWTH:g} times as {'large' if grows else 'small'} as"
        f" the one before ({', '.join(f'{ratio:.3g}' for ratio in ratios)}): a norm is missing or the"
        " residual is added wrongly, so it soon drowns everything else.",
        _sizes(evidence, carry),
        "Look for a norm that the engine leaves out (hidden_norm, input_layernorm) or a residual that is"
        " dropped or doubled in its class of the draft, and correct it.",
    )


def _normed(evidence: Evidence, carry: Sequence[HiddenEvidence]) -> Finding | None:
    weights = _final_norm(evidence)
    sizes = [one.geometric_rms for one in carry if one.geometric_rms]
    told = collapse(evidence)
    if weights is None or len(sizes) < 2 or told is None or not told.clear(COLLAPSE, ERRORS):
        return None
    if not all(NORMED[0] * weights <= size <= NORMED[1] * weights for size in sizes):
        return None
    taken_in = [
        one.geometric_rms
        for one in evidence.hidden
        if one.place == hidden.FC_OUT and one.after == _VERIFY and one.geometric_rms
    ]
    apart = any(max(size / weights, weights / size) >= APART for size in taken_in)
    return _finding(
        evidence,
        CERTAIN if apart else SUSPECTED,
        "The draft hands on its state after the norm",
        "What the draft hands to its next step has the size of its final norm's weights at every step"
        f" ({', '.join(f'{size:.3g}' for size in sizes)} beside {weights:.3g}) where the plain state is as"
        " large as what it takes in: the state after the norm is carried in place of the one before it.",
        (
            *_sizes(evidence, carry),
            Number("root mean square of the final norm's weights", round(weights, 4), None, "",
                   f"{facts.link(evidence)}#weights"),
            *(Number("size of fc's output", round(size, 4), None, "", _place(evidence)) for size in taken_in),
        ),
        _HANDS_ON,
    )  # fmt: skip


def _final_norm(evidence: Evidence) -> float | None:
    """Return the root mean square of the weights of the draft's last norm, as the inventory tells them."""
    for draft in facts.entries(evidence.config, "weights", "drafts"):
        for tensor in facts.entries(draft, "tensors"):
            name, mean, std = tensor.get("name"), tensor.get("mean"), tensor.get("std")
            if name in ("model.norm.weight", "norm.weight") and isinstance(mean, float | int):
                return math.hypot(mean, std if isinstance(std, float | int) else 0.0) or None
    return None


def _norms(evidence: Evidence) -> Finding | None:
    """Judge norms by configuration and inventory; acceptance decides between certain and suspected."""
    built = [
        line
        for line in facts.entries(evidence.config, "differences")
        if line.get("field") in ("norm_flags", "norm_eps") and line.get("level") == "check"
    ]
    zero = [
        odd
        for draft in facts.entries(evidence.config, "weights", "drafts")
        for odd in facts.entries(draft, "oddities")
        if odd.get("kind") == "norm near zero"
    ]
    extra = inventory.extra_norms(evidence)
    if not built and not zero and not extra:
        return None
    place = f"{facts.link(evidence)}#weights"
    numbers = tuple(
        Number(f"norm {odd.get('name')}", str(odd.get("text")), "mean about 1", "", place) for odd in zero
    ) + tuple(
        Number(f"{line.get('field')} of the draft as built", str(line.get("draft")),
               str(line.get("checkpoint")), "", place)
        for line in built
    ) + tuple(odd.number(evidence) for odd in extra)  # fmt: skip
    what = (
        f"the engine norms them where the checkpoint has no norm ({', '.join(odd.name for odd in extra)})"
        if extra
        else f"{len(zero)} norms of the draft have weights near 0, as where w - 1 is stored and read as w"
        if zero
        else "the engine built the draft's norms otherwise than its checkpoint states"
    )
    counts = evidence.counts
    test = zero_acceptance.first_token(counts) if counts is not None else None
    loses = test is not None and test.decision == sprt.NO_BENEFIT
    return _finding(
        evidence,
        CERTAIN if loses else SUSPECTED,
        "Norms of the draft are wrong",
        f"The draft's states have another scale than in its training: {what}.",
        numbers,
        "Store norm weights as the engine's class of the draft reads them (add 1 to each, or use the class"
        " that adds it), or serve the draft with a class that has the norms that its checkpoint states.",
        "A/B: the same prompts with the norm weights of the checkpoint increased by 1, or with the engine's"
        " class that the checkpoint was trained with; acceptance must return",
    )


def _other_layer(evidence: Evidence) -> Finding | None:
    """Say that the layer makes another state of the right input at every token, and with the right weights.

    What it sees of earlier tokens matters at some tokens and not at others; a norm, a residual or another
    activation matters at all of them.
    """
    held = draft_differs.compared(evidence)
    every = draft_state.Side("tokens", evidence.draft_states)
    if not held or any(one.kind != draft_differs.SAME for one in held) or _encoded_otherwise(evidence):
        return None
    if len(held) < sum(one.get("status") == "loaded" for one in inventory.tensors(evidence)):
        return None  # a tensor that was not compared may be the cause
    if not draft_state.inputs_right(evidence) or len(every.wrong) < MIN_WRONG or every.right:
        return None
    if len(every.wrong) < EVERY * len(every.states):
        return None
    errors = sorted(one.error for one in every.wrong)
    return _finding(
        evidence,
        CERTAIN,
        "The draft's layer computes otherwise than in its training",
        f"Held against the reference draft, the state that the draft's layer leaves is wrong at all of"
        f" {len(every.wrong)} tokens, in prefill and after verify steps alike, though the layer is given the"
        " right states and holds the very weights of the reference. What it sees of earlier tokens matters at"
        " some tokens only: a norm or a residual inside of the layer is missing, doubled or misplaced.",
        (
            Number("tokens at which the draft's state is another than the reference's", len(every.wrong), 0,
                   f"of {len(every.states)}", _place(evidence)),
            Number("median of their relative errors", round(errors[len(errors) // 2], 3),
                   f"< {draft_state.RIGHT:g}", "", _place(evidence)),
            Number("tensors of the draft that are the reference's", len(held), len(held), "tensors",
                   f"{facts.link(evidence)}#weights"),
        ),
        "Compare the engine's class of the draft with the code of its training: norms before and after the"
        " attention, what is added as residual, the activation; take out plugins and patches that touch it.",
        "A/B: the same prompts with an engine (or version) whose class of the draft is known to serve it",
    )  # fmt: skip


def _encoded_otherwise(evidence: Evidence) -> bool:
    """Say whether the draft's positions are told to be encoded otherwise: then that is the cause."""
    return any(
        str(line.get("field")).startswith("rope") and line.get("level") == "check"
        for line in facts.entries(evidence.config, "differences")
    )


def _collapsed(evidence: Evidence, carry: Sequence[HiddenEvidence]) -> Finding | None:
    """Suspect the carry of an EAGLE-3 draft by acceptance alone: it was trained on its own states."""
    told = collapse(evidence)
    trained = facts.setting(evidence.config, "fc") and facts.setting(evidence.config, "capture")
    if told is None or not trained or len(carry) < 2 or not told.clear(COLLAPSE_ALONE, ERRORS_ALONE):
        return None
    return _finding(
        evidence,
        SUSPECTED,
        "Drafts collapse after the first",
        f"The draft's first token is accepted in {told.first:.0%} of its steps, and the second in"
        f" {told.second:.0%} of those whose first was: it is fed well and goes wrong once it goes on from its"
        " own state. The state that it hands to its next step is in question, or what its attention sees.",
        _sizes(evidence, carry),
        _HANDS_ON,
    )
