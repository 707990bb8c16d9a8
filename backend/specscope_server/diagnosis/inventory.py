"""Readings of the weight inventory and of how well a draft serves, that the rules of weights share. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from specscope_server.diagnosis import facts, sprt, zero_acceptance
from specscope_server.diagnosis.model import Evidence, Finding, Number
from specscope_server.diagnosis.step_evidence import Certainty

CHECK: Final = "check"
MIN_CERTAINTY: Final = 64
"""Steps whose distribution was read from which on its mean says something."""
UPSTREAM: Final = ("draft_silent", "fc_bypassed", "aux_layers", "fed_states_differ")
"""Findings before the draft's own weights: what an absent or unfed draft proposes says nothing of them."""


OPTIONAL: Final = ("input_norm.", "fc_norm.", "aux_norm_")
"""Norms of an EAGLE-3 draft that some configurations switch on (SGLang 0.5.23 models/llama_eagle3.py)."""


@dataclass(frozen=True, slots=True)
class Odd:
    """One oddity of the inventory, with what is told of its tensor (empty: only the name is known)."""

    kind: str
    name: str
    level: str
    text: str
    tensor: Mapping[str, Any]

    def number(self, evidence: Evidence) -> Number:
        """Return it as evidence."""
        return Number(
            f"{self.kind}: {self.name}", self.text, "loaded from the checkpoint", "", link(evidence)
        )


def oddities(evidence: Evidence, *kinds: str) -> tuple[Odd, ...]:
    """Return the oddities of all drafts that are of one of ``kinds``."""
    return tuple(odd for odd in _oddities(evidence) if odd.kind in kinds)


def _oddities(evidence: Evidence) -> Iterator[Odd]:
    for draft in facts.entries(evidence.config, "weights", "drafts"):
        told = facts.entries(draft, "oddities")
        if not told:
            continue  # as of most drafts: a large inventory is not looked through in each round
        tensors = {str(one.get("name")): one for one in facts.entries(draft, "tensors")}
        for odd in told:
            name = str(odd.get("name"))
            yield Odd(
                str(odd.get("kind")), name, str(odd.get("level")), str(odd.get("text")), tensors.get(name, {})
            )


def tensors(evidence: Evidence) -> tuple[Mapping[str, Any], ...]:
    """Return what is told of every tensor of every draft."""
    drafts = facts.entries(evidence.config, "weights", "drafts")
    return tuple(tensor for draft in drafts for tensor in facts.entries(draft, "tensors"))


def extra_norms(evidence: Evidence) -> tuple[Odd, ...]:
    """Return norms that a configuration asked for and the checkpoint has no weight for, under any name.

    Weights of ones: nothing was lost, but the draft's states are normed where its training did not norm them.
    None where the loader dropped names of norms, which may be theirs. Norms that every draft has
    (:data:`OPTIONAL` are not) were lost where they are missing.
    """
    if any("norm" in odd.name for odd in oddities(evidence, "unused")):
        return ()
    return tuple(
        odd
        for odd in oddities(evidence, "missing")
        if any(name in odd.name for name in OPTIONAL)
        and number(odd.tensor.get("mean")) == 1
        and number(odd.tensor.get("std")) == 0
    )


def tied_head(evidence: Evidence) -> Odd | None:
    """Return the head of the checkpoint where the engine dropped it and has no head beside the embedding."""
    if any("lm_head" in str(tensor.get("name")) for tensor in tensors(evidence)):
        return None
    return next((odd for odd in oddities(evidence, "unused") if odd.name.endswith("lm_head.weight")), None)


def head_rows(evidence: Evidence) -> int | None:
    """Return how many tokens the head in use has a row for, ``None`` where none is told."""
    for tensor in tensors(evidence):
        shape: object = tensor.get("shape")
        if str(tensor.get("name")).endswith("lm_head.weight") and isinstance(shape, list | tuple):
            rows = number(next(iter(cast("Sequence[object]", shape)), None))
            return None if rows is None else int(rows)
    return None


def not_observed(evidence: Evidence) -> str:
    """Say why the draft's load is not known; empty: it was watched."""
    drafts = facts.entries(evidence.config, "weights", "drafts")
    if not drafts:
        return "the engine has told no inventory of its draft's weights"
    reasons = [
        str(one.get("reason") or "no reason told") for one in drafts if one.get("observed") is not True
    ]
    return f"the load of the draft was not watched: {reasons[0]}" if reasons else ""


def number(value: object) -> float | None:
    """Return a plain finite number of a configuration, ``None`` where it is something else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def decision(evidence: Evidence) -> str:
    """Return what the test of the first draft token decides; *undecided* without one."""
    test = None if evidence.counts is None else zero_acceptance.first_token(evidence.counts)
    return sprt.UNDECIDED if test is None else test.decision


def first(evidence: Evidence) -> Certainty | None:
    """Return the draft's certainty at position 0, ``None`` where it was not read often enough."""
    told = next((one for one in evidence.steps.certainty if one.position == 0), None)
    return told if told is not None and told.steps >= MIN_CERTAINTY and told.drafted > 0 else None


def draft_vocab(evidence: Evidence) -> int | None:
    """Return how many tokens the draft's head knows."""
    size = number(facts.setting(evidence.config, "d2t", "draft_vocab")) or number(
        facts.setting(evidence.config, "vocab_size")
    )
    return None if size is None or size < 2 else int(size)


def certainty_numbers(evidence: Evidence, told: Certainty) -> tuple[Number, ...]:
    """Return how sure the draft is and how often it is right, as evidence."""
    place = facts.link(evidence, "draft.propose")
    known = draft_vocab(evidence)
    limit = None if known is None else f"ln of its vocabulary: {math.log(known):.2f}"
    return (
        Number("mean probability of the draft's first favourite", round(told.top1, 3), None, "", place),
        Number("mean entropy of the draft's first distribution", round(told.entropy, 3), limit, "nat", place),
        Number("first drafts accepted", told.accepted, told.drafted, "drafts", place),
    )


def upstream(found: tuple[Finding, ...]) -> bool:
    """Say whether something before the draft's own weights is named already."""
    return any(one.kind in UPSTREAM for one in found)


def link(evidence: Evidence) -> str:
    """Return where the inventory is shown."""
    return f"{facts.link(evidence)}#weights"
