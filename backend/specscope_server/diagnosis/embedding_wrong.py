"""F08, F09: the draft looks its input tokens up in another embedding than it was trained with.

What the layer fc makes of the target's states is sound, and the draft is unsure and mostly wrong, least so on
text that it can copy. What is looked up proves it: rows of zeros, rows far smaller than the embedding that
the inventory tells of, or rows that are not the target's though both share one embedding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from specscope import hidden

from specscope_server.diagnosis import deviation, facts, inventory, shifted, sprt
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

KIND: Final = "embedding_wrong"
LOOKS: Final = 16
ZEROS: Final = 0.5
"""Share of zero rows: one padding token may have a row of zeros, half of a text does not."""
SMALLER: Final = 4.0
"""Factor by which what is looked up is smaller than the embedding in memory. Frequent tokens have smaller
rows than rare ones, by less than a factor of 2; engines that scale embeddings make them larger."""
ERROR: Final = 0.3
"""Relative error to the target's embedding: 0 where it is shared, 1 and more where it is another one."""
_ROOTS: Final = ("draft_silent", "weights_missing", "weights_not_finite")


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft looks its tokens up in its own embedding."""
    if any(one.kind in _ROOTS for one in found):
        return CLEAR  # an embedding that is not there is told by them
    looks = [one for one in evidence.hidden if one.place == hidden.EMBEDDING and one.looks >= LOOKS]
    place = facts.link(evidence, "draft.forward")
    empty = [one for one in looks if (one.zero_share or 0.0) >= ZEROS]
    if empty:
        return _finding(
            evidence,
            "F08",
            CERTAIN,
            "The draft's embedding gives zeros",
            "Most input tokens of the draft are looked up as rows of zeros: it does not see which token came"
            " last.",
            (Number("share of zero rows", round(empty[0].zero_share or 0.0, 3), 0, "", place),),
        )
    table = _table(evidence)
    shared = bool(table.get("shared_with") or table.get("equal_to"))
    told = deviation.of_reference(evidence.reference, hidden.EMBEDDING, ERROR)
    moved = shifted.moved_inputs(evidence)  # right rows of other tokens
    if told is not None and moved is None and told.kind not in (deviation.SAME, deviation.SCALED):
        slot = told.slots[0]
        decided = inventory.decision(evidence)
        if shared or (not table and decided == sprt.NO_BENEFIT):
            return _finding(
                evidence,
                "F08",
                CERTAIN if shared else SUSPECTED,
                "The draft looks up other embeddings than the target's",
                "Draft and target share one embedding, and for the same tokens the draft looks up other rows:"
                " its embedding was changed, or rows are looked up by other ids.",
                (
                    Number(f"relative error to the target's embedding ({slot.rows} rows)",
                           round(slot.error, 3), f"< {ERROR:g}", "", place),
                ),
            )  # fmt: skip
    size = _rms(table)
    small = [one for one in looks if one.rms and size is not None and one.rms * SMALLER <= size]
    if small and size is not None:
        return _finding(
            evidence,
            "F08",
            SUSPECTED,
            "What the draft looks up is far smaller than its embedding",
            f"The draft's embedding has a root mean square of {size:.3g}, and what is looked up for the text"
            f" one of {small[0].rms:.3g}: another table is read.",
            (Number("root mean square of looked-up rows", round(small[0].rms or 0.0, 4),
                    f"about {size:.3g}", "", place),),
        )  # fmt: skip
    replaced = [
        odd for odd in inventory.oddities(evidence, "replaced by the target's") if "embed" in odd.name
    ]
    if replaced and inventory.decision(evidence) == sprt.NO_BENEFIT and not any(f.fault_class for f in found):
        return _finding(
            evidence,
            "F09",
            SUSPECTED,
            "The draft's embedding was replaced by the target's",
            "Practically no draft is accepted. The draft's checkpoint has an embedding of its own, and the"
            " engine put the target's in its place; that is harmless only where both are alike.",
            tuple(odd.number(evidence) for odd in replaced),
        )
    if not looks and not evidence.reference:
        return Unknown("the embeddings of the draft's input were not looked at (detail steps)")
    return CLEAR


def _table(evidence: Evidence) -> Mapping[str, Any]:
    """Return what the inventory tells of the draft's embedding, empty where it has none of its own."""
    found = [one for one in inventory.tensors(evidence) if "embed" in str(one.get("name"))]
    return found[0] if len(found) == 1 else {}


def _rms(table: Mapping[str, Any]) -> float | None:
    mean, std = inventory.number(table.get("mean")), inventory.number(table.get("std"))
    return math.hypot(mean, std) if mean is not None and std is not None else None


def _finding(
    evidence: Evidence, fault: str, confidence: str, title: str, sentence: str, numbers: tuple[Number, ...]
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=fault,
        severity=CRITICAL if confidence == CERTAIN else WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(Ruled("F23 workload", "an embedding is a table: no prompt changes its rows"),)
        if confidence == CERTAIN
        else (),
        next_check="compare the hash and deviation of embed_tokens.weight in the weight inventory with the"
        " draft's checkpoint and with the target's; A/B: serve with the other of the two",
        fix="Load the embedding that the draft was trained with: the target's by sharing, or its own under"
        " the name that the engine's class of the draft reads.",
        boundary="draft.forward",
    )
