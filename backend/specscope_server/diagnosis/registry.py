"""Every rule, root before symptom: a rule is given what the rules before it found.

To add a fault family, write its module and name it here.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import (
    aux_layers,
    carry_broken,
    cliff,
    collapse,
    context_decay,
    detail,
    draft_differs,
    draft_kv_stale,
    draft_silent,
    drift,
    embedding_wrong,
    expectation,
    facts,
    fc_bypassed,
    fed_states_differ,
    hand_over,
    head_replaced,
    pays_off,
    position_config,
    prefix_draft_kv,
    rank_divergence,
    recurrent_state,
    row_or_graph_stale,
    shifted,
    token_map,
    too_good,
    totals_differ,
    tree_mask,
    verify_wrong,
    vocabulary,
    weights_changed,
    weights_missing,
    weights_not_finite,
    zero_acceptance,
)
from specscope_server.diagnosis.model import CERTAIN, Diagnosis, Evidence, Finding, State
from specscope_server.diagnosis.state import state
from specscope_server.diagnosis.verdict import Rule, Unknown

RULES: Final = (
    Rule(draft_silent.KIND, draft_silent.judge),
    # What an update broke is the root of what is missing since.
    Rule(weights_changed.KIND, weights_changed.judge),
    Rule(weights_not_finite.KIND, weights_not_finite.judge, c.DETAIL_STEPS),
    Rule(weights_missing.KIND, weights_missing.judge),
    Rule(fc_bypassed.KIND, fc_bypassed.judge),
    # What a conversion did to the weights, before what they make of states.
    Rule(draft_differs.KIND, draft_differs.judge),
    # Before wrong layers, which it looks like: it asks for a target that carries a state, they for nothing.
    Rule(recurrent_state.KIND, recurrent_state.judge, c.DETAIL_FULL),
    # Likewise: wrong in the passes of a tree alone.
    Rule(tree_mask.KIND, tree_mask.judge, c.DETAIL_FULL),
    Rule(aux_layers.KIND, aux_layers.judge, c.DETAIL_FULL),
    Rule(fed_states_differ.KIND, fed_states_differ.judge, c.DETAIL_FULL),
    Rule(hand_over.KIND, hand_over.judge, c.DETAIL_FULL),
    # Another vocabulary before the map that it makes wrong.
    Rule(vocabulary.KIND, vocabulary.judge, c.DETAIL_STEPS),
    Rule(token_map.KIND, token_map.judge, c.DETAIL_STEPS),
    Rule(head_replaced.KIND, head_replaced.judge, c.DETAIL_STEPS),
    Rule(embedding_wrong.KIND, embedding_wrong.judge, c.DETAIL_STEPS),
    Rule(carry_broken.KIND, carry_broken.judge, c.DETAIL_STEPS),
    Rule(shifted.KIND, shifted.judge, c.DETAIL_STEPS),
    # The configuration before the curve that it explains.
    Rule(position_config.KIND, position_config.judge),
    # By slices: what the scheduler decides first, since no prompt can be its cause.
    Rule(row_or_graph_stale.KIND, row_or_graph_stale.judge),
    Rule(prefix_draft_kv.KIND, prefix_draft_kv.judge),
    Rule(draft_kv_stale.KIND, draft_kv_stale.judge, c.DETAIL_STEPS),
    Rule(cliff.KIND, cliff.judge),
    Rule(context_decay.KIND, context_decay.judge),
    Rule(verify_wrong.KIND, verify_wrong.judge, c.DETAIL_STEPS),
    # What acceptance did and should have done, before that there is none.
    Rule(collapse.KIND, collapse.judge),
    Rule(drift.KIND, drift.judge),
    Rule(too_good.KIND, too_good.judge),
    Rule(expectation.KIND, expectation.judge),
    Rule(zero_acceptance.KIND, zero_acceptance.judge),
    # What all of it comes to.
    Rule(pays_off.KIND, pays_off.judge),
    # After acceptance, which it does not explain: ranks that part accept as much as ranks that agree.
    Rule(rank_divergence.KIND, rank_divergence.judge),
    # Last: that a counter is wrong explains no acceptance.
    Rule(totals_differ.KIND, totals_differ.judge),
)

KINDS: Final = frozenset(rule.kind for rule in RULES)
"""What can be found at all: of any other kind a missing finding says nothing."""


def diagnose(evidence: Evidence | None) -> Diagnosis:
    """Return the state of an engine and what is found on it; pure, the same evidence gives the same answer.

    Findings come certain first, then in the order of :data:`RULES`; a consequence follows its cause. Of an
    engine without evidence (``None``) nothing is said but that.
    """
    if evidence is None:
        return Diagnosis(State("not observable", "the store has no evidence of it"), ())
    found: list[Finding] = []
    unknown: dict[str, str] = {}
    nothing = _nothing_to_judge(evidence)
    for rule in RULES:
        verdict = Unknown(nothing) if nothing else rule.judge(evidence, _ordered(found))
        if isinstance(verdict, Finding):
            found.append(verdict)
        elif isinstance(verdict, Unknown):
            unknown[rule.kind] = detail.reason(evidence, verdict.reason, rule.detail)
    findings = _ordered(found)
    return Diagnosis(state(evidence, findings), findings, unknown)


def _nothing_to_judge(evidence: Evidence) -> str:
    if facts.gone(evidence):
        return "the tracer is silent"
    if evidence.speculation is False:
        return "speculation is off"
    return ""


def _ordered(found: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda f: (f.kind == zero_acceptance.KIND, f.confidence != CERTAIN)))
