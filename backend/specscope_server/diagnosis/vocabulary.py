"""F11: draft and target do not count the same tokens: another tokenizer, or a padded head.

An id outside of the target's vocabulary is proof. Vocabularies of different sizes alone are not: heads are
padded for hardware, and such drafts serve well. Nor are tokenizer files beside the draft that count other
tokens: they may be left over from another model. So a difference is held against a draft only where it brings
nothing and nothing else is found.
"""

from __future__ import annotations

from typing import Final

from specscope_server.diagnosis import facts, inventory, sprt
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

KIND: Final = "vocabulary"
FAULT: Final = "F11"
_SIZES: Final = ("vocab_size", "draft_vocabulary")
_SPECIAL: Final = ("bos_token_id", "eos_token_id")


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft speaks the target's vocabulary."""
    if any(one.kind in ("draft_silent", "weights_not_finite") for one in found):
        return CLEAR  # they bring ids out of range with them
    ids = evidence.steps.ids
    if ids is not None and (ids.below_zero or ids.above_vocab):
        return _out_of_range(evidence, ids.below_zero, ids.above_vocab, ids.nodes)
    if differ(evidence):
        decided = inventory.decision(evidence)
        if decided == sprt.NO_BENEFIT and not any(one.fault_class for one in found):
            lines = (*_differing(evidence), *_tokenizers(evidence))
            return _other(evidence, lines, _map_of_others(evidence))
        if decided == sprt.UNDECIDED:
            return Unknown("vocabularies differ, and whether drafts are accepted is not decided yet")
        return CLEAR
    if ids is None and not facts.setting(evidence.config, "vocab_size"):
        return Unknown("neither vocabularies nor facts of proposed ids are told")
    return CLEAR


def differ(evidence: Evidence) -> bool:
    """Say whether it is told of vocabularies of two sizes (a smaller head is none), or of other tokens."""
    return bool(_tokenizers(evidence)) or any(line.get("field") in _SIZES for line in _differing(evidence))


def _tokenizers(evidence: Evidence) -> tuple[dict[str, object], ...]:
    """Return the line that the tokenizer files of draft and target differ; none: alike, or not comparable."""
    told = [facts.setting(evidence.config, "tokenizers", name) for name in ("draft", "target")]
    files = [facts.setting(one or {}, "file") for one in told]
    hashes = [facts.setting(one or {}, "hash") for one in told]
    if None in hashes or files[0] != files[1] or hashes[0] == hashes[1]:
        return ()
    return ({"field": f"tokens of {files[0]}", "draft": hashes[0], "target": hashes[1]},)


def _differing(evidence: Evidence) -> tuple[dict[str, object], ...]:
    """Return differences of vocabularies: a head smaller than the target is usual and none."""
    told: list[dict[str, object]] = []
    for line in facts.entries(evidence.config, "differences"):
        name, draft, target = line.get("field"), line.get("draft"), line.get("target")
        if name == "draft_vocabulary":
            one, other = inventory.number(draft), inventory.number(target)
            if one is None or other is None or one <= other:
                continue
        elif name not in (*_SIZES, *_SPECIAL):
            continue
        told.append(dict(line))
    return tuple(told)


def _out_of_range(evidence: Evidence, below: int, above: int, nodes: int) -> Finding:
    place = facts.link(evidence, "draft.propose")
    return _finding(
        evidence,
        CERTAIN,
        "Drafts are no tokens of the target",
        f"Of {nodes} drafts {above} have an id beyond the target's vocabulary and {below} one below 0: the"
        " draft counts other tokens than the target.",
        (
            Number("ids beyond the target's vocabulary", above, 0, "drafts", place),
            Number("ids below 0", below, 0, "drafts", place),
            *_numbers(evidence, _tokenizers(evidence)),
        ),
        (Ruled("F23 workload", "no prompt makes ids that do not exist"),),
    )


def _map_of_others(evidence: Evidence) -> tuple[Number, ...]:
    """Return that the draft's map names ids that its own table of known tokens does not."""
    for draft in facts.entries(evidence.config, "weights", "drafts"):
        outside = inventory.number(facts.setting(draft, "map", "outside_t2d"))
        if outside:
            place = f"{facts.link(evidence)}#weights"
            return (Number("target ids of the map that t2d does not name", int(outside), 0, "", place),)
    return ()


def _other(evidence: Evidence, lines: tuple[dict[str, object], ...], renamed: tuple[Number, ...]) -> Finding:
    return _finding(
        evidence,
        CERTAIN if renamed else SUSPECTED,
        "Draft and target have different vocabularies",
        "Practically no draft is accepted, and draft and target do not have the same vocabulary"
        f" ({', '.join(str(line.get('field')) for line in lines)}): ids may mean other tokens."
        + (" The draft's map names ids that its own table of known tokens does not." if renamed else ""),
        (*_numbers(evidence, lines), *renamed),
        (),
    )


def _numbers(evidence: Evidence, lines: tuple[dict[str, object], ...]) -> tuple[Number, ...]:
    place = f"{facts.link(evidence)}#differences"
    return tuple(
        Number(
            f"{line.get('field')} of the draft", str(line.get("draft")), str(line.get("target")), "", place
        )
        for line in lines
    )


def _finding(
    evidence: Evidence,
    confidence: str,
    title: str,
    sentence: str,
    numbers: tuple[Number, ...],
    ruled: tuple[Ruled, ...],
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL if confidence == CERTAIN else WARNING,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=ruled,
        next_check="tokenise one sentence with the tokenizer of the draft's training and with the target's:"
        " the ids must be the same, one by one",
        fix="Serve a draft that was trained with this target's tokenizer, its head cut to the target's"
        " vocabulary.",
        boundary="draft.propose",
    )
