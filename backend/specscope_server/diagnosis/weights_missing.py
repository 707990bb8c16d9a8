"""F08: weights of the draft were never loaded, or only in part; or it answers as one without training.

Missing names count, not only unexpected ones: a loader that meets a name it does not know drops it, and the
tensor keeps what it held when it was made. Certain where the loads were watched and nothing reached a tensor,
or where all of a matrix is 0. Served acceptance can take back the charge to a suspicion: an engine may make
tensors that it does not use.
"""

from __future__ import annotations

import math
from typing import Final

from specscope import hidden

from specscope_server.diagnosis import facts, fc_bypassed, inventory, sprt
from specscope_server.diagnosis.inventory import Odd
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

KIND: Final = "weights_missing"
FAULT: Final = "F08"
UNIFORM: Final = 0.95
"""Entropy by ln of the draft's vocabulary from which on it knows nothing. Untrained heads have 0.99 and more
(their logits differ by little), the least sure fault of a trained head that we measured has 0.77."""
LOOKS: Final = 8
ZEROS: Final = 0.5
"""Share of zero rows from which on a place holds nothing: a sum of weighted states is never exactly 0."""
_SCALES: Final = ("scale", "zero_point", "zeros", "g_idx")
"""Parts of names of what quantisation adds: engines make them with a value that is right where none comes."""


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether all of the draft's weights are there."""
    if any(one.kind == "weights_not_finite" for one in found):
        return CLEAR  # it tells of the same tensors, and more
    decided = inventory.decision(evidence)
    absent = [
        odd
        for odd in inventory.oddities(evidence, "missing", "partly loaded")
        if _matters(odd) and odd not in inventory.extra_norms(evidence)
    ]
    zero = [odd for odd in inventory.oddities(evidence, "all zero") if odd.level == inventory.CHECK]
    names = list({odd.name: odd for odd in (*absent, *zero)}.values())
    if names:
        proven = any(_as_made(odd) for odd in names) or decided != sprt.BENEFIT
        return _named(evidence, names, CERTAIN if proven else SUSPECTED, found)
    empty = _zeros_out(evidence)
    if empty is not None:
        return empty
    fed = not inventory.upstream((*found, *_width(evidence)))
    if decided == sprt.NO_BENEFIT and fed:
        told = _weak(evidence)
        if told is not None:
            return told
    why = inventory.not_observed(evidence)
    return Unknown(why) if why else CLEAR


def _width(evidence: Evidence) -> tuple[Finding, ...]:
    """Ask ahead: what a draft answers that is fed another width says nothing of its weights."""
    told = fc_bypassed.judge(evidence, ())
    return (told,) if isinstance(told, Finding) else ()


def _zeros_out(evidence: Evidence) -> Finding | None:
    """Say so where fc makes zeros of states that are none."""
    shares = {
        place: [one.zero_share or 0.0 for one in evidence.hidden if one.place == place and one.looks >= LOOKS]
        for place in (hidden.FED, hidden.FC_OUT)
    }
    if not shares[hidden.FED] or not shares[hidden.FC_OUT]:
        return None
    if max(shares[hidden.FED]) >= ZEROS or min(shares[hidden.FC_OUT]) < ZEROS:
        return None
    return _finding(
        evidence,
        CERTAIN,
        "The draft's fc gives zeros",
        "What the draft is fed is sound, and its layer fc makes nothing but zeros of it: the weights of fc"
        " are zero or were never loaded.",
        (
            Number(
                "share of zero rows out of fc",
                round(min(shares[hidden.FC_OUT]), 3),
                0,
                "",
                facts.link(evidence, "draft.fc"),
            ),
        ),
        (Ruled("F07 zero rows", "what the draft is fed holds none"),),
    )


def _matters(odd: Odd) -> bool:
    return not any(part in odd.name.lower() for part in _SCALES)


def _as_made(odd: Odd) -> bool:
    """Say whether the values themselves are those of a tensor before training."""
    mean, std = inventory.number(odd.tensor.get("mean")), inventory.number(odd.tensor.get("std"))
    ratio = inventory.number(odd.tensor.get("std_to_init"))
    if odd.kind == "all zero" or (ratio is not None and abs(ratio - 1) < 0.03):
        return True
    return std == 0 and mean in (0, 1)  # a norm is made of ones, a bias of zeros


def _weak(evidence: Evidence) -> Finding | None:
    """Suspect by what is odd but allowed, where the draft brings nothing."""
    told, vocab = inventory.first(evidence), inventory.draft_vocab(evidence)
    if told is not None and vocab is not None and told.entropy >= UNIFORM * math.log(vocab):
        return _finding(
            evidence,
            SUSPECTED,
            "The draft answers as one without training",
            f"The draft rates all of its {vocab} tokens nearly alike: the entropy of its first distribution"
            f" is {told.entropy:.2f} of at most {math.log(vocab):.2f} nat. A head at its initial values does"
            " so.",
            inventory.certainty_numbers(evidence, told),
            (Ruled("F10 token map", "the draft itself is unsure, before any map"),),
        )
    fresh = inventory.oddities(evidence, "as initialised")
    tied = inventory.tied_head(evidence)  # its name is not missing: another head stands in its place
    unused = tuple(odd for odd in inventory.oddities(evidence, "unused") if odd != tied)
    odd = (*fresh, *unused)
    if not odd:
        return None
    what = (
        f"{len(fresh)} of the draft's matrices have the spread of untrained ones"
        if fresh
        else f"the loader dropped {len(unused)} names of the checkpoint"
    )
    return _finding(
        evidence,
        SUSPECTED,
        "The draft's weights look untrained" if fresh else "Weights of the checkpoint were dropped",
        f"Practically no draft is accepted, and {what} ({', '.join(one.name for one in odd[:3])}).",
        tuple(one.number(evidence) for one in odd[:5]),
        (),
    )


def _named(evidence: Evidence, names: list[Odd], confidence: str, found: tuple[Finding, ...]) -> Finding:
    listed = ", ".join(one.name for one in names[:3]) + (
        f" and {len(names) - 3} more" if len(names) > 3 else ""
    )
    dropped = inventory.oddities(evidence, "unused")
    because = (
        f" The loader dropped {len(dropped)} names of the checkpoint without a word"
        f" ({', '.join(one.name for one in dropped[:3])}): they may be the ones that are missing."
        if dropped
        else ""
    )
    update = next((one for one in found if one.kind == "weights_changed" and one.confidence == CERTAIN), None)
    return _finding(
        evidence,
        confidence,
        "Weights of the draft are missing",
        f"{len(names)} of the draft's tensors hold no trained values ({listed}): nothing of the checkpoint"
        " reached them, only a part, or nothing but zeros. The draft computes with what was there"
        f" before.{because}",
        tuple(one.number(evidence) for one in (*names[:5], *dropped[:3])),
        (Ruled("F23 workload", "no prompt takes weights away"),),
        "" if update is None else update.kind,
    )


def _finding(
    evidence: Evidence,
    confidence: str,
    title: str,
    sentence: str,
    numbers: tuple[Number, ...],
    ruled: tuple[Ruled, ...],
    root: str = "",
) -> Finding:
    harmless = inventory.decision(evidence) == sprt.BENEFIT
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL if confidence == CERTAIN and not harmless else WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=ruled,
        next_check="compare the tensor names and shapes of the draft's checkpoint (safetensors: keys()) with"
        " the weight inventory of the engine page; load the same checkpoint in the code of its training and"
        " compare the head's mean and deviation",
        fix="Export the draft with all tensors under the names that the engine's class of the draft reads"
        " (look at its load_weights), then restart: every tensor must read loaded or shared.",
        boundary="draft.forward",
        root=root,
    )
