"""F10: the map from draft ids to target ids (d2t) is lost, wrong, or applied in another way than it is meant.

The draft is well: it is as sure of its tokens as ever, and every one of them is renamed to another. What the
map holds is a fact; where it cannot be read, what is proposed tells: ids that no map of this draft gives, or
none above the draft's own vocabulary. *Sure and always wrong* without any of these is a suspicion.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import carry_broken, facts, inventory, shifted, sprt, vocabulary
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    SUSPECTED,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "token_map"
FAULT: Final = "F10"
MIN_NODES: Final = 400
MIN_DISTINCT: Final = 20
"""Drafts and different ids from which on the range of what is proposed says something: a sound draft that
can name ids above a border does so in some of 400 drafts of 20 kinds."""
EVEN: Final = 0.999
"""Share of even ids. Half of all ids are odd, so 400 drafts of 20 kinds are never all even."""
SURE: Final = 0.3
"""Mean probability of the first favourite. Measured 0.47 with every fault of the map, as healthy; 0.11 to
0.24 with damaged heads and embeddings."""
NEVER: Final = 0.02
"""First-token acceptance at most, and at most :data:`OF_SURE` of what the draft promises. Measured 0.000 to
0.020 with faults of the map; 0.03 and more with every fault of input or layers that leaves the draft sure."""
OF_SURE: Final = 0.05


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft's ids are mapped to the target's as its training meant."""
    if any(one.kind in ("draft_silent", "vocabulary") for one in found):
        return CLEAR
    size, vocab = _size(evidence), inventory.number(facts.setting(evidence.config, "vocab_size"))
    present = facts.setting(evidence.config, "d2t", "present")
    if present is not True and (size is None or vocab is None):
        return Unknown("the sizes of the draft's and the target's vocabularies are not told")
    if present is not True and vocab in (size, inventory.head_rows(evidence)):
        return CLEAR  # both count alike, or the head is the target's whole one: there is nothing to map
    told = (
        _absent(evidence, size, vocab, present)
        or _never_crossed(evidence)
        or _contents(evidence, size, vocab)
        or _proposed(evidence, size)
    )
    if told is not None:
        return told
    if any(one.kind != "token_map" and one.fault_class for one in found):
        return CLEAR  # what is found already explains drafts that are sure and wrong
    ids = evidence.steps.ids
    if vocabulary.differ(evidence) or (ids is not None and (ids.below_zero or ids.above_vocab)):
        return CLEAR  # another vocabulary is sure and wrong as well, and these are its signs
    return _sure_and_wrong(evidence)


def _size(evidence: Evidence) -> float | None:
    told = inventory.number(facts.setting(evidence.config, "d2t", "draft_vocab"))
    return told if told is not None else inventory.number(facts.setting(_map(evidence), "rows"))


def _map(evidence: Evidence) -> dict[str, object]:
    drafts = facts.entries(evidence.config, "weights", "drafts")
    return dict(drafts[0].get("map") or {}) if drafts else {}


def _absent(evidence: Evidence, size: float | None, vocab: float | None, present: object) -> Finding | None:
    if present is not False or size is None or vocab is None or size >= vocab:
        return None
    return _finding(
        evidence,
        CERTAIN,
        "The draft's token map is missing",
        f"The draft's head knows {size:.0f} of the target's {vocab:.0f} tokens, and the engine has no map"
        " (d2t) from one to the other: draft ids are taken for the target's, so nearly every draft is"
        " another token than the one that the draft meant.",
        (
            Number("tokens of the draft's vocabulary", int(size), int(vocab), "", _place(evidence)),
            Number("map from draft to target ids", "none", "one", "", _place(evidence)),
        ),
    )


def _never_crossed(evidence: Evidence) -> Finding | None:
    line = facts.line(evidence, c.DRAFT_MAP)
    if line is None or not line.silent:
        return None
    return _finding(
        evidence,
        CERTAIN if line.expected >= 4 and facts.hook_errors(evidence) is None else SUSPECTED,
        "The draft's token map is never applied",
        f"Draft ids must be mapped to the target's ids in every draft; {line.span} this was due"
        f" {line.expected} times and never done.",
        (facts.crossings(evidence, line),),
    )


def _contents(evidence: Evidence, size: float | None, vocab: float | None) -> Finding | None:
    """Judge what the map holds: facts of the inventory, each by itself enough."""
    told = _map(evidence)
    rows, least, largest = (inventory.number(told.get(name)) for name in ("rows", "least", "largest"))
    distinct, outside = (inventory.number(told.get(name)) for name in ("distinct", "outside_t2d"))
    wrong: list[Number] = []
    place = inventory.link(evidence)
    if rows is not None and size is not None and rows != size:
        wrong.append(Number("rows of the map", int(rows), int(size), "tokens", place))
    if least is not None and least < 0:
        wrong.append(Number("least target id of the map", int(least), ">= 0", "", place))
    if largest is not None and vocab is not None and largest >= vocab:
        wrong.append(Number("largest target id of the map", int(largest), f"< {vocab:.0f}", "", place))
    if rows is not None and distinct is not None and distinct < rows:
        wrong.append(Number("different target ids of the map", int(distinct), int(rows), "", place))
    if told.get("as_checkpoint") is False:
        wrong.append(Number("map in use against the checkpoint's d2t", "differs", "the same", "", place))
    if outside:
        wrong.append(Number("target ids of the map that t2d does not name", int(outside), 0, "", place))
    if told.get("in_use") is False:
        wrong.append(Number("map of the draft against the one in use", "differs", "the same", "", place))
    if not wrong:
        return None
    return _finding(
        evidence,
        CERTAIN,
        "The draft's token map is wrong",
        "The map from draft ids to target ids is not the one that this draft was trained with:"
        f" {'; '.join(f'{one.name} {one.value}, wanted {one.expected}' for one in wrong)}. The draft's"
        " tokens are renamed to others before they are proposed.",
        tuple(wrong),
    )


def _proposed(evidence: Evidence, size: float | None) -> Finding | None:
    """Judge ids that no right map of this draft gives."""
    ids = evidence.steps.ids
    if ids is None or ids.below_zero or ids.above_vocab:
        return None
    told = _map(evidence)
    least, largest = inventory.number(told.get("least")), inventory.number(told.get("largest"))
    place = _place(evidence)
    if least is not None and largest is not None and not least <= ids.smallest <= ids.largest <= largest:
        return _finding(
            evidence,
            CERTAIN,
            "Ids are proposed that the draft's map does not give",
            f"The draft's map gives target ids from {least:.0f} to {largest:.0f}, and ids from {ids.smallest}"
            f" to {ids.largest} were proposed: another map is applied, or this one twice.",
            (
                Number("least proposed id", ids.smallest, f">= {least:.0f}", "", place),
                Number("largest proposed id", ids.largest, f"<= {largest:.0f}", "", place),
            ),
        )
    many = ids.nodes >= MIN_NODES and (ids.distinct is None or ids.distinct >= MIN_DISTINCT)
    if not many or inventory.decision(evidence) != sprt.NO_BENEFIT or _constant(evidence):
        return None
    if size is not None and ids.largest < size and (largest is None or largest >= size):
        return _finding(
            evidence,
            CERTAIN if largest is not None else SUSPECTED,
            "Draft ids are proposed as they are",
            f"None of {ids.nodes} drafts has an id from {size:.0f} on, which is where the draft's own"
            " vocabulary ends: its ids are not mapped to the target's.",
            (
                Number("largest proposed id", ids.largest, "up to the map's largest", "", place),
                Number("tokens of the draft's vocabulary", int(size), None, "", place),
            ),
        )
    if ids.even_share >= EVEN:
        return _finding(
            evidence,
            CERTAIN,
            "Only even ids are proposed",
            f"All of {ids.nodes} drafts have even ids: the map is applied twice, as id + (id + offset).",
            (Number("share of even ids", round(ids.even_share, 4), "about 0.5", "", place),),
        )
    return None


def _constant(evidence: Evidence) -> bool:
    """Say whether practically one id is proposed: filler, or a draft that is not finite."""
    ids = evidence.steps.ids
    return ids is not None and ((ids.same_mode or 0.0) > 0.5 or ids.mode_share > 0.9)


def _sure_and_wrong(evidence: Evidence) -> Finding | Clear | Unknown:
    decided = inventory.decision(evidence)
    if decided == sprt.BENEFIT:
        return CLEAR
    told = inventory.first(evidence)
    if told is None:
        return Unknown("how sure the draft is of its tokens was not read (detail steps)")
    if decided != sprt.NO_BENEFIT:
        return Unknown("whether the draft is accepted is not decided yet")
    share = told.accepted / told.drafted
    if told.top1 < SURE or share > min(NEVER, OF_SURE * told.top1) or _constant(evidence):
        return CLEAR
    others = (carry_broken.judge(evidence, ()), shifted.judge(evidence, ()))
    if any(isinstance(one, Finding) for one in others):
        return CLEAR
    return _finding(
        evidence,
        SUSPECTED,
        "The draft is sure and always wrong",
        f"The draft gives its first favourite {told.top1:.0%} on average, and {share:.1%} of them are"
        " accepted. A draft that is fed well, is sure and is never right means other tokens than those that"
        " are proposed: its map (d2t) is in question.",
        inventory.certainty_numbers(evidence, told),
    )


def _place(evidence: Evidence) -> str:
    return facts.link(evidence, c.DRAFT_MAP)


def _finding(
    evidence: Evidence, confidence: str, title: str, sentence: str, numbers: tuple[Number, ...]
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(Ruled("F23 workload", "the draft's own certainty and its map know nothing of prompts"),)
        if confidence == CERTAIN
        else (),
        next_check="take the drafts of an example request (SPECSCOPE_DETAIL=tokens), undo the map in use and"
        " apply the checkpoint's (target id = draft id + d2t[draft id]): where they then match the committed"
        " tokens, the map is the fault",
        fix="Put the d2t (and t2d) of this draft's own training into its checkpoint, as offsets (target id -"
        " draft id) where the engine adds them, and restart: SGLang copies the map once, at its start.",
        boundary=c.DRAFT_MAP,
    )
