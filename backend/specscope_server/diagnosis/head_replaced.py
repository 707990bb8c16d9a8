"""F09: the draft's output head is the target's, though its checkpoint has one of its own.

A head reads the states of the layers that it was trained with. Another one reads them as a foreign language:
the draft becomes unsure *and* is always wrong, while all before the head is sound. A lost token map leaves it
sure; that is what tells the two apart.
"""

from __future__ import annotations

import math
from typing import Final

from specscope_server.diagnosis import carry_broken, draft_differs, facts, inventory, shifted, sprt
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

KIND: Final = "head_replaced"
FAULT: Final = "F09"
UNSURE: Final = 0.65
"""Entropy of the first distribution by ln of the draft's vocabulary from which on it is unsure. Measured:
0.39 healthy, up to 0.63 with damaged layers or embeddings, 0.69 to 0.77 with another head."""
NEVER: Final = 0.02
"""First-token acceptance at most. Measured 0.00 with another head; 0.09 to 0.18 with damaged embeddings."""


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft answers through its own head."""
    if any(one.kind in ("draft_silent", "weights_not_finite") for one in found):
        return CLEAR
    decided = inventory.decision(evidence)
    put = [odd for odd in inventory.oddities(evidence, "replaced by the target's") if _head(odd.name)]
    copy = [odd for odd in inventory.oddities(evidence, "copy of the target's") if _head(odd.name)]
    told = inventory.first(evidence)
    numbers = () if told is None else inventory.certainty_numbers(evidence, told)
    if put and decided != sprt.BENEFIT:
        return _finding(
            evidence,
            CERTAIN if decided == sprt.NO_BENEFIT else SUSPECTED,
            "The draft's head was replaced by the target's",
            "The draft's checkpoint has an output head of its own, and the engine put the target's in its"
            " place: the draft's states are read by a head that was not trained with them.",
            (*(odd.number(evidence) for odd in put), *numbers),
        )
    tied = inventory.tied_head(evidence)
    if tied is not None and decided != sprt.BENEFIT:
        return _finding(
            evidence,
            CERTAIN if decided == sprt.NO_BENEFIT else SUSPECTED,
            "The draft's head was tied to the embedding",
            "The draft's checkpoint has an output head of its own; the engine dropped it and answers through"
            " the embedding, which is the target's: the draft's states are read by a table that was not"
            " trained with them.",
            (tied.number(evidence), *numbers),
        )
    if any(one.fault_class for one in found) or decided == sprt.BENEFIT:
        return CLEAR
    other = draft_differs.other_head(draft_differs.compared(evidence))
    if other is not None and decided == sprt.NO_BENEFIT:
        return _finding(
            evidence,
            SUSPECTED,
            "The draft answers through another head",
            "Practically no draft is accepted, and of all tensors of the draft its output head alone holds"
            " other values than in the draft that the reference was made with: the draft's states are read by"
            " a head that was not trained with them.",
            (other.number(evidence), *numbers),
        )
    if copy and decided == sprt.NO_BENEFIT:
        return _finding(
            evidence,
            SUSPECTED,
            "The draft's head holds the target's weights",
            "Practically no draft is accepted, and the draft's output head holds the same numbers as the"
            " target's. A draft trained with a head of its own answers through a wrong one.",
            (*(odd.number(evidence) for odd in copy), *numbers),
        )
    if told is None:
        return Unknown(
            inventory.not_observed(evidence)
            or "how sure the draft is of its tokens was not read (detail steps)"
        )
    if decided != sprt.NO_BENEFIT:
        return Unknown("whether the draft is accepted is not decided yet")
    vocab = inventory.draft_vocab(evidence)
    if vocab is None or told.entropy < UNSURE * math.log(vocab) or told.accepted > NEVER * told.drafted:
        return CLEAR
    if any(isinstance(rule.judge(evidence, ()), Finding) for rule in (carry_broken, shifted)):
        return CLEAR
    return _finding(
        evidence,
        SUSPECTED,
        "The draft is unsure and always wrong",
        f"The draft's first distribution has {told.entropy / math.log(vocab):.0%} of the highest entropy that"
        f" there is, and {told.accepted} of {told.drafted} first drafts were accepted: its head does not fit"
        " the states that it reads (another head, rows in another order, or one that is not trained).",
        numbers,
    )


def _head(name: str) -> bool:
    return "head" in name


def _finding(
    evidence: Evidence, confidence: str, title: str, sentence: str, numbers: tuple[Number, ...]
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL if confidence == CERTAIN else WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(Ruled("F10 token map", "a lost map leaves the draft as sure as ever"),),
        next_check="compare the hash of lm_head.weight in the weight inventory with that of the draft's"
        " checkpoint; A/B: restart with the sharing of the head switched off",
        fix="Keep the draft's own head: name it lm_head.weight in the checkpoint, state draft_vocab_size and"
        " tie_word_embeddings: false in the draft's config.json, and use an engine version that honours it.",
        boundary="draft.propose",
    )
