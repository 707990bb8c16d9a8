"""F13 by its effect: fine when short, worse with every doubling of the context, from the first step on.

Positions that are off by a scale (theta, scaling, maximum) look so. That the configuration differs is told
by another rule; this one has the curve alone and only suspects. What grows with the *generated* length at
any length of context is F15, what breaks off at one length F17.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c
from specscope.rollup import CONTEXT

from specscope_server.diagnosis import context_curve, draft_kv_stale, facts, slice_compare
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, WARNING, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "context_decay"
FAULT: Final = "F13"


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether acceptance decays with the length of the context."""
    if any(one.fault_class == FAULT and one.confidence == CERTAIN for one in found):
        return CLEAR  # the configuration says more than the curve
    values = slice_compare.by_value(evidence, CONTEXT)
    if len(values) < 2:
        return Unknown("all contexts were of about one length: nothing to compare")
    if slice_compare.steps_a_request(evidence) is None:
        return Unknown(slice_compare.too_little(evidence))
    fall = context_curve.fall(evidence)
    if fall is None or fall.word != context_curve.DECAY:
        return CLEAR
    if draft_kv_stale.grows(evidence) is not None:
        return CLEAR  # contexts grow by what is generated: that rule tells it
    excuse = slice_compare.traffic_explains(evidence, fall.worse)
    if excuse:
        return Unknown(f"{fall.worse.words}, but {excuse}: it may be the traffic")
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=SUSPECTED,
        title="Acceptance decays with the length of the context",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {fall.worse.words}: the longer the context, the less"
            " is accepted. A draft whose positions are scaled otherwise than in its training looks so."
        ),
        numbers=(
            *fall.worse.numbers(evidence),
            Number("acceptance by length of context", fall.curve_words, None, "", facts.link(evidence)),
            *facts.examples(evidence),
        ),
        ruled_out=(Ruled("F17 window or mask", "no single length holds most of the fall"),),
        next_check="Compare rope_theta, rope_scaling and max_position_embeddings of the draft's config.json"
        " with its training; then A/B one prompt, short and behind a long text of the same kind",
        fix="Restore the rope settings of the draft's training. If the draft was trained on short texts only,"
        " nothing is broken: train it on longer ones.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )
