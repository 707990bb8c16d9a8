"""F08: weights or states of the draft are NaN or infinite.

A NaN spreads: all that comes after it in a pass is NaN too, and the draft then proposes one constant id. So
the first place of the draft path where values are not finite names where they come from.
"""

from __future__ import annotations

from typing import Final

from specscope import hidden

from specscope_server.diagnosis import facts, inventory
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.diagnosis.model import CERTAIN, CRITICAL, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "weights_not_finite"
FAULT: Final = "F08"
_PATH: Final = (hidden.AUX_CAPTURE, hidden.FED, hidden.EMBEDDING, hidden.FC_OUT, hidden.CARRY)
_WORDS: Final = {
    hidden.AUX_CAPTURE: "in the states that the target hands over",
    hidden.FED: "in what the draft is fed, on the way from the target",
    hidden.EMBEDDING: "in the embeddings of the draft's input tokens",
    hidden.FC_OUT: "in what the draft's fc makes of finite states",
    hidden.CARRY: "in what the draft's own layers make of finite input",
}


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft computes with numbers that are none."""
    root = next(
        (one.kind for one in found if one.kind == "weights_changed" and one.confidence == CERTAIN), ""
    )
    odd = inventory.oddities(evidence, "not finite")
    if odd:
        names = ", ".join(one.name for one in odd[:3])
        return _finding(
            evidence,
            "Weights of the draft are not finite",
            f"{len(odd)} of the draft's tensors hold NaN or infinite values ({names}): all that the draft"
            " computes from them is NaN, and it proposes one constant token.",
            tuple(one.number(evidence) for one in odd[:5]),
            root,
        )
    first = _first(evidence)
    if first is not None:
        share = first.nonfinite_per_row
        return _finding(
            evidence,
            "The draft computes with values that are not finite",
            f"NaN or infinite values appear first {_WORDS[first.place]} ({first.looks} looks); what the draft"
            " makes of them says nothing of the text.",
            (
                Number(
                    f"values not finite a row at {first.place}",
                    None if share is None else round(share, 3),
                    0,
                    "",
                    facts.link(evidence),
                ),
            ),
            root,
        )
    if not inventory.tensors(evidence) and not any(one.place in _PATH for one in evidence.hidden):
        return Unknown(
            inventory.not_observed(evidence)
            or "neither weights nor hidden states of the draft were looked at"
        )
    return CLEAR


def _first(evidence: Evidence) -> HiddenEvidence | None:
    broken = [one for one in evidence.hidden if one.place in _PATH and (one.nonfinite_per_row or 0.0) > 0]
    # A first draft step comes before the later ones, whose input it makes.
    return min(broken, key=lambda one: (one.draft_step, _PATH.index(one.place)), default=None)


def _finding(
    evidence: Evidence, title: str, sentence: str, numbers: tuple[Number, ...], root: str
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=CERTAIN,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(Ruled("F23 workload", "no prompt makes sound weights give NaN"),),
        next_check="load the draft's checkpoint and test every tensor with torch.isfinite(); if all are"
        " finite, the engine spoils them: serve once with --dtype float32, without quantisation",
        fix="Export the draft again from its training, in a type that holds its values (bfloat16 or float32"
        " where float16 overflows), and reload it.",
        boundary="draft.forward",
        root=root,
    )
