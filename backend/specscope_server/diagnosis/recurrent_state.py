"""F20: a hybrid target keeps the recurrent state of refused tokens, so that its own output changes.

A layer with a recurrent state (Mamba, linear attention) cannot forget a token by dropping a row of a cache:
the state must be put back after every refusal. Where it is not, the states of the target differ from a plain
forward over the very same tokens, at all captured layers behind such a layer, by no factor, no shift and no
other layer. Acceptance says nothing, it may even rise.
"""

from __future__ import annotations

import re
from typing import Final

from specscope import hidden

from specscope_server.diagnosis import aux_layers, deviation, facts, slice_compare
from specscope_server.diagnosis.model import CRITICAL, SUSPECTED, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "recurrent_state"
FAULT: Final = "F20"
_RECURRENT: Final = re.compile(
    r"mamba|jamba|bamba|zamba|rwkv|recurrent|hybrid|qwen3_?next|falcon_?h1|nemotron_?h|lfm2|kimi_?linear|plamo2",
    re.IGNORECASE,
)
"""Architectures of the transformers library with layers that carry a state from token to token."""
EVERY: Final = 0.5
"""Each slot must be off by this share of the worst one: wrong layers may leave one slot right."""


def recurrent(evidence: Evidence) -> bool | None:
    """Say whether the target carries a recurrent state; ``None``: its architecture is not told."""
    told = [
        str(name)
        for key in ("class", "model_type", "architectures")
        if (name := facts.setting(evidence.config, "target", key))
    ]
    return any(_RECURRENT.search(name) for name in told) if told else None


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the target seems to go on from the state of refused tokens."""
    hybrid = recurrent(evidence)
    if hybrid is None:
        return Unknown("the architecture of the target is not told")
    if not hybrid:
        return CLEAR
    told = [one for one in evidence.reference if one.place == hidden.AUX_CAPTURE and one.rows > 0]
    counts = evidence.counts
    if not told:
        return Unknown("no request of the window has a reference, and acceptance does not show this fault")
    if counts is None or counts.accepted >= counts.drafted_depth:
        return CLEAR  # nothing was refused, so there is no state to put back
    worst = max(one.relative_error for one in told)
    same = any(
        error < one.relative_error / 2
        for one in told
        for error in (*one.shifted.values(), *one.other_slots.values())
    )
    scaled = any(
        one.scale is not None and one.cosine is not None and one.cosine > 0.999 and abs(one.scale - 1) > 0.01
        for one in told
    )
    if worst < aux_layers.noticed(evidence) or same or scaled:
        return CLEAR
    if min(one.relative_error for one in told) < EVERY * worst:
        return CLEAR
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=SUSPECTED,
        title="The target seems to keep the state of refused tokens",
        sentence=(
            "The target has layers with a recurrent state, and at all captured layers its states differ from"
            f" a plain forward over the same tokens (error up to {worst:.2f}). If the state of refused drafts"
            " is not put back, the answers themselves are wrong."
        ),
        numbers=(
            *(
                Number(
                    f"relative error of slot {one.slot} to the reference",
                    round(one.relative_error, 3),
                    f"< {deviation.NOTICED}",
                    f"{one.rows} rows",
                    facts.link(evidence),
                )
                for one in told
            ),
            *facts.examples(evidence),
        ),
        ruled_out=(
            Ruled("F05 other layers or order", "no slot is nearer to another one's reference"),
            Ruled("F14 shifted", "no slot is nearer to a neighbouring token's reference"),
        ),
        next_check="A/B: the same prompts at temperature 0 with and without speculation: the answers differ"
        " from the first refusal on",
        fix="Serve this target without speculation, or with an engine version that restores recurrent states"
        " after verification.",
        boundary="target.verify",
        root=slice_compare.root(found),
    )
